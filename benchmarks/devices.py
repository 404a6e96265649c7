"""
What a GPU would make of a training step of each family: which of its operations have no kernel for one, and,
where a GPU is there, how long a step takes on it and on the CPU.

    python benchmarks/devices.py                              # all families
    python benchmarks/devices.py --model mean-field dspp --num-inducing 256 --batch-size 4096

TensorFlow's packages for Linux hold the GPU's kernels, so that the first needs no GPU: an operation without
one runs on the CPU, and its inputs and outputs travel between the two in every step.
"""

from __future__ import annotations

import argparse
import os
from collections import Counter
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf
from gpflow.keras import tf_keras
from harness import measure
from tensorflow.python.framework import kernels

from gpflow_deep import presets

#: Small tensors of integers and texts are constants of the host, by design.
_OF_THE_HOST = {"Const"}


def without_gpu_kernel(graph: tf.Graph) -> Counter[str]:
    """The operations of a graph, and of the functions it calls, that have no kernel for a GPU, by type."""
    definition = graph.as_graph_def()
    nodes = [*definition.node, *(n for f in definition.library.function for n in f.node_def)]
    return Counter(n.op for n in nodes if n.op not in _OF_THE_HOST and not _has_gpu_kernel(n))


def _has_gpu_kernel(node: Any) -> bool:
    registered = kernels.get_registered_kernels_for_op(node.op).kernel
    return any(
        kernel.device_type in ("GPU", "DEFAULT")
        and all(
            node.attr[constraint.name].type in allowed or not allowed
            for constraint in kernel.constraint
            for allowed in [constraint.allowed_values.list.type]
        )
        for kernel in registered
    )


def training_step(name: str, options: argparse.Namespace) -> Any:
    """One step of Adam of a preset on random data, compiled: a function of (X, Y), with examples of them."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(options.batch_size, options.input_dim))
    Y = np.sin(X[:, :1])
    settings = presets.Settings(
        num_layers=min(options.layers, presets.get(name).max_layers or options.layers),
        num_inducing=options.num_inducing,
        compute_dtype=options.compute_dtype,
    )
    model = presets.build(name, X, Y, settings, 0)
    variables, adam = model.trainable_variables, tf_keras.optimizers.Adam(0.005)
    adam.build(variables)

    @tf.function(autograph=False)
    def step(X: tf.Tensor, Y: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = model.training_loss((X, Y))
        adam.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        return loss

    return step, (tf.constant(X), tf.constant(Y))


def families() -> list[str]:
    """Presets that are trained by steps; the papers' are the same with other settings."""
    found = [name for name in presets.names() if presets.get(name).defaults is None]
    return [name for name in found if name not in ("gp", "rough-gp")]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--model", nargs="+", choices=families(), default=families())
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--num-inducing", type=int, default=128)
    parser.add_argument("--batch-size", type=int, default=512)
    parser.add_argument("--input-dim", type=int, default=8)
    parser.add_argument("--compute-dtype", choices=("own", "float32"), default="own")
    parser.add_argument("--steps", type=int, default=20, help="timed, where there is a GPU")
    options = parser.parse_args()
    gpus = tf.config.list_logical_devices("GPU")
    devices = ["/CPU:0", *(gpu.name for gpu in gpus[:1])]
    timed = " | ".join(f"wall ms on {device}" for device in devices) if gpus else "no GPU is there"
    print(f"| model | operations without a GPU kernel | {timed} |", flush=True)
    print("|---" * (2 + (len(devices) if gpus else 1)) + "|")
    for name in options.model:
        step, batch = training_step(name, options)
        lacking = without_gpu_kernel(step.get_concrete_function(*batch).graph)
        cells = [", ".join(f"{op} ({count})" for op, count in lacking.items()) or "none"]
        for device in devices if gpus else []:
            with tf.device(device):
                step, batch = training_step(name, options)
                milliseconds = measure(lambda: step(*batch).numpy(), options.steps)  # noqa: B023
            cells.append(f"{milliseconds['wall']:.1f}")
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
