"""
What a convolution's posterior needs of its inducing images, X^T Lambda X and V^T X with their gradients in
the images, by correlations of the images with themselves and by patches written out.

    python benchmarks/convolution_gram.py
    python benchmarks/convolution_gram.py --kernel-size 5 --dtype float64

Both in a process of their own on one thread, in turn; medians over rounds of the CPU time, and the peak of
memory less what the process had before.
"""

from __future__ import annotations

import argparse
import json
from typing import Any

import numpy as np
from harness import argument_parser, child_command, measure, peak_mb, run_rounds

#: Inducing images, rows and columns, channels: the digits' network, then layers of CIFAR's.
SIZES = ((100, 8, 8), (500, 32, 3), (500, 8, 32), (500, 16, 32), (500, 32, 32))
WAYS = ("correlations", "patches")


def patches(images: Any, o: argparse.Namespace) -> Any:
    """[1, 1, images and positions, inputs of a unit], the constant last."""
    import tensorflow as tf

    before = (o.kernel_size - 1) // 2
    behind = o.kernel_size - 1 - before
    padded = images[0, 0]
    for axis in (1, 2):
        size = padded.shape[axis]
        around = np.arange(-before, size + behind) % size
        padded = tf.gather(padded, around, axis=axis)
    window, step = [1, o.kernel_size, o.kernel_size, 1], [1, o.stride, o.stride, 1]
    rows = tf.image.extract_patches(padded, window, step, [1] * 4, "VALID")
    rows = tf.reshape(rows, [-1, rows.shape[-1]])
    return tf.concat([rows, tf.ones_like(rows[:, :1])], axis=1)[None, None]


def child(o: argparse.Namespace) -> dict[str, float]:
    import tensorflow as tf

    from gpflow_deep.layers import BayesianConv2D
    from gpflow_deep.layers.bayesian.designs import ExplicitDesign

    way, M, size, channels = o.child
    rng = np.random.default_rng(0)
    layer = BayesianConv2D(channels, o.kernel_size, o.stride)
    layer.connect((size, size, channels))
    images = tf.Variable(rng.normal(size=[1, M, size, size, channels]), dtype=o.dtype)
    num_rows = M * layer.num_positions
    V = tf.constant(rng.normal(size=[1, channels, num_rows]), o.dtype)
    roots = tf.constant(rng.uniform(0.5, 2.0, [1, M]), o.dtype)
    D = layer.fan_in
    upstream = tf.constant(rng.normal(size=[1, 1, D, D]), o.dtype)

    @tf.function(autograph=False)
    def step() -> Any:
        with tf.GradientTape() as tape:
            if way == "patches":
                by_row = tf.repeat(roots, layer.num_positions, axis=1)
                design: Any = ExplicitDesign(patches(images[:, None], o), by_row)
            else:
                design = layer.design(images).scale(roots)
            gram, product = design.gram(), design.project(V)
            loss = tf.reduce_sum(gram * upstream) + tf.reduce_sum(tf.square(product))
        return tape.gradient(loss, images)

    return measure(step, o.steps, peak_mb())


def main() -> None:
    parser = argument_parser(__doc__, steps=3)
    parser.add_argument("--kernel-size", type=int, default=3)
    parser.add_argument("--stride", type=int, default=1)
    parser.add_argument("--dtype", choices=("float32", "float64"), default="float32")
    o: argparse.Namespace = parser.parse_args()
    if o.child:
        print(json.dumps(child(o)))
        return
    cases = [(way, *size) for size in SIZES for way in WAYS]
    results = run_rounds({case: child_command(__file__, case) for case in cases}, o.rounds)
    print(
        "| images | CPU ms, correlations | patches | ratio | MB, correlations | patches | ratio |"
    )
    print("|---|---|---|---|---|---|---|")
    for M, size, channels in SIZES:
        ours, theirs = (results.get((way, M, size, channels)) for way in WAYS)
        if ours is None or theirs is None:
            continue
        cells = [f"{M} of {size} x {size} x {channels}"]
        for figure in ("cpu", "memory"):
            cells += [f"{r[figure]:.0f}" for r in (ours, theirs)]
            cells.append(f"{ours[figure] / theirs[figure]:.2f}")
        print(f"| {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
