"""
Cost of one Adam step of the amortised deep GPs and their baselines at the kin8nm settings of Meng & Zhang
2024, in one run: 3 layers of 16, 4 and 1 GPs, batch 100, 32 samples or sites (AR1: one), 8 inputs.

    python benchmarks/amortized_step.py

Amortised layers have 8, 4 and 4 inducing points, the deep sigma point process and the mean-field deep GP
256, 128 and 128. Every model runs in a process of its own, several times in turn; the table has medians over
rounds of median and of minimal steps, CPU-seconds of the whole process, and seconds an epoch of 6554 points.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ["TF_USE_LEGACY_KERAS"] = "1"

from step import adam_step, measure  # noqa: E402

MODELS = ("ar1", "ar2", "ar2p", "ar2pp", "dspp", "mean-field")
NUM_DATA, INPUT_DIM, WIDTHS = 6554, 8, (16, 4)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[1])
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--dtypes", nargs="+", default=["float32", "float64"])
    parser.add_argument("--batch-size", type=int, default=100)
    parser.add_argument("--samples", type=int, default=32)
    parser.add_argument("--steps", type=int, default=100, help="timed steps of a round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--jit", action="store_true", help="compile the step with XLA")
    parser.add_argument("--child", nargs=2, metavar=("MODEL", "DTYPE"), help=argparse.SUPPRESS)
    return parser.parse_args()


def build(name: str, samples: int, X: Any) -> Any:
    import gpflow

    import gpflow_deep as gd

    likelihood = gpflow.likelihoods.Gaussian(0.1)
    if name.startswith("ar"):
        return gd.models.AmortizedDeepGP(
            gd.layers.build_amortized_layers(INPUT_DIM, WIDTHS),
            likelihood,
            {"ar2pp": "AR2P"}.get(name, name.upper()),
            num_samples=1 if name == "ar1" else samples,
            num_data=NUM_DATA,
            predictive_objective=name == "ar2pp",
        )
    layers = gd.layers.build_layers(X, WIDTHS, num_inducing=(256, 128, 128))
    if name == "dspp":
        return gd.models.DeepSigmaPointProcess(
            layers, likelihood, num_sites=samples, num_data=NUM_DATA
        )
    return gd.models.DeepGP(
        layers, likelihood, gd.posteriors.MeanField, num_samples=samples, num_data=NUM_DATA
    )


def child(o: argparse.Namespace) -> dict[str, object]:
    import gpflow
    import numpy as np
    import tensorflow as tf

    name, dtype = o.child
    gpflow.config.set_default_float(getattr(np, dtype))
    X = np.random.default_rng(0).normal(size=(20 * o.batch_size, INPUT_DIM)).astype(dtype)
    Y = np.sin(X.sum(axis=1, keepdims=True)).astype(dtype)
    model = build(name, o.samples, X)
    batch = tf.constant(X[: o.batch_size]), tf.constant(Y[: o.batch_size])
    step = adam_step(tf, lambda: model.training_loss(batch), model, o)
    return {"model": name, "dtype": dtype, **measure(step, o)}


def main() -> None:
    o = parse_arguments()
    if o.child:
        print(json.dumps(child(o)))
        return
    runs: dict[tuple[str, str], list[dict[str, float]]] = {}
    for _ in range(o.rounds):
        for dtype in o.dtypes:
            for name in o.models:
                command = [sys.executable, __file__, *sys.argv[1:], "--child", name, dtype]
                process = subprocess.run(command, capture_output=True, text=True)
                if process.returncode:
                    print(f"{name} {dtype} left out: {process.stderr.strip().splitlines()[-1]}")
                    continue
                line = json.loads(process.stdout.splitlines()[-1])
                runs.setdefault((name, dtype), []).append(line)
    print("| model | dtype | CPU ms | wall ms | least wall ms | s an epoch | peak MB |")
    print("|---|---|---|---|---|---|---|")
    for (name, dtype), lines in runs.items():
        cpu, wall, least, memory = (
            statistics.median(line[field] for line in lines)
            for field in ("cpu", "wall", "least", "peak_mb")
        )
        epoch = wall * NUM_DATA / o.batch_size
        print(
            f"| {name} | {dtype} | {cpu * 1e3:.1f} | {wall * 1e3:.1f} | {least * 1e3:.1f} | {epoch:.2f}"
            f" | {memory:.0f} |"
        )


if __name__ == "__main__":
    main()
