"""
Cost of one Adam step of global inducing deep GPs at the size of the yacht data: M = 100,
277 points at once, 6 inputs, hidden layers of 6 GPs; by depth, by draws, by precision, and for twice the
inducing points, beside the mean-field deep GP.

    python benchmarks/global_inducing_step.py

Every model runs in a process of its own on one thread, several times in turn; the table has medians over
rounds of the least and the median CPU time of a step, and the growth of a process's memory from before the
model is made.
"""

from __future__ import annotations

import argparse
import json

from harness import adam_step, argument_parser, child_command, measure, peak_mb, run_rounds

NUM_DATA, INPUT_DIM = 277, 6
#: Model, layers, draws, inducing points, dtype.
CASES = [
    ("global", 2, 1, 100, "float64"),
    ("global", 5, 1, 100, "float64"),
    ("global", 2, 10, 100, "float64"),
    ("global", 5, 10, 100, "float64"),
    ("global", 2, 20, 100, "float64"),
    ("global", 2, 10, 200, "float64"),
    ("global", 2, 1, 100, "float32"),
    ("global", 5, 10, 100, "float32"),
    ("mean-field", 2, 1, 100, "float64"),
    ("mean-field", 5, 10, 100, "float64"),
]


def child(o: argparse.Namespace) -> dict[str, float]:
    import gpflow
    import numpy as np
    import tensorflow as tf

    import gpflow_deep as gd

    name, depth, samples, M, dtype = o.child
    gpflow.config.set_default_float(dtype)
    X = np.random.default_rng(0).normal(size=(NUM_DATA, INPUT_DIM)).astype(dtype)
    Y = np.sin(X.sum(axis=1, keepdims=True)).astype(dtype)
    layers = gd.layers.build_layers(X, (INPUT_DIM,) * (depth - 1), num_inducing=M)
    likelihood = gpflow.likelihoods.Gaussian(0.05)
    before = peak_mb()
    if name == "global":
        model = gd.models.GlobalInducingDeepGP(
            layers, likelihood, X[:M], pseudo_outputs=Y[:M], num_samples=samples, num_data=NUM_DATA
        )
    else:
        model = gd.models.DeepGP(
            layers, likelihood, gd.posteriors.MeanField, num_samples=samples, num_data=NUM_DATA
        )
    batch = tf.constant(X), tf.constant(Y)
    step = adam_step(lambda: model.training_loss(batch), model.trainable_variables, o.jit)
    return measure(step, o.steps, before)


def main() -> None:
    o = argument_parser(__doc__, steps=50).parse_args()
    if o.child:
        print(json.dumps(child(o)))
        return
    results = run_rounds({case: child_command(__file__, case) for case in CASES}, o.rounds)
    print("| model | layers | S | M | dtype | least CPU ms | median CPU ms | memory MB |")
    print("|---|---|---|---|---|---|---|---|")
    for case, r in results.items():
        print(
            f"| {' | '.join(map(str, case))} | {r['least_cpu']:.1f} | {r['cpu']:.1f}"
            f" | {r['memory']:.0f} |"
        )


if __name__ == "__main__":
    main()
