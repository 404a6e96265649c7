"""
Cost of one Adam step of global inducing deep GPs at the size of the yacht data: M = 100,
277 points at once, 6 inputs, hidden layers of 6 GPs; by depth, by draws, by precision, and for twice the
inducing points, beside the mean-field deep GP.

    python benchmarks/global_inducing_step.py

Every model runs in a process of its own on one thread, several times in turn; the table has the least and
the median over rounds of the CPU time of a step, and the growth of a process's memory from before the model
is made.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
for variable in ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS", "OMP_NUM_THREADS"):
    os.environ[variable] = "1"
os.environ["TF_USE_LEGACY_KERAS"] = "1"

from step import adam_step, measure  # noqa: E402

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

    name, depth, samples, M, dtype = json.loads(o.child)
    gpflow.config.set_default_float(getattr(np, dtype))
    X = np.random.default_rng(0).normal(size=(NUM_DATA, INPUT_DIM)).astype(dtype)
    Y = np.sin(X.sum(axis=1, keepdims=True)).astype(dtype)
    layers = gd.layers.build_layers(X, (INPUT_DIM,) * (depth - 1), num_inducing=M)
    likelihood = gpflow.likelihoods.Gaussian(0.05)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    if name == "global":
        model = gd.models.GlobalInducingDeepGP(
            layers, likelihood, X[:M], pseudo_outputs=Y[:M], num_samples=samples, num_data=NUM_DATA
        )
    else:
        model = gd.models.DeepGP(
            layers, likelihood, gd.posteriors.MeanField, num_samples=samples, num_data=NUM_DATA
        )
    batch = tf.constant(X), tf.constant(Y)
    result = measure(adam_step(tf, lambda: model.training_loss(batch), model, o), o)
    return {**result, "memory": result["peak_mb"] - before}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[1])
    parser.add_argument("--steps", type=int, default=50, help="timed steps of a round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--jit", action="store_true", help="compile the step with XLA")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    o = parser.parse_args()
    if o.child:
        print(json.dumps(child(o)))
        return
    runs: list[list[dict[str, float]]] = [[] for _ in CASES]
    for _ in range(o.rounds):
        for case, lines in zip(CASES, runs):
            command = [sys.executable, __file__, *sys.argv[1:], "--child", json.dumps(case)]
            process = subprocess.run(command, capture_output=True, text=True, check=True)
            lines.append(json.loads(process.stdout.splitlines()[-1]))
    print("| model | layers | S | M | dtype | least CPU ms | median CPU ms | memory MB |")
    print("|---|---|---|---|---|---|---|---|")
    for case, lines in zip(CASES, runs):
        cpu = sorted(1e3 * line["cpu"] for line in lines)
        memory = statistics.median(line["memory"] for line in lines)
        print(
            f"| {' | '.join(map(str, case))} | {cpu[0]:.1f} | {statistics.median(cpu):.1f}"
            f" | {memory:.0f} |"
        )


if __name__ == "__main__":
    main()
