"""
Cost of one Adam step of the amortised deep GPs and their baselines at the kin8nm settings of Meng & Zhang
2024, in one run: 3 layers of 16, 4 and 1 GPs, batch 100, 32 samples or sites (AR1: one), 8 inputs.

    python benchmarks/amortized_step.py

Amortised layers have 8, 4 and 4 inducing points, the others 256, 128 and 128. GPyTorch's models have a kernel
for every GP, as `dspp-separate` has; `dspp` and `mean-field` have one for a layer. Every model runs in a
process of its own on one thread, several times in turn; the table has medians over rounds of median and of
minimal steps, CPU time of the whole process, and seconds an epoch of 6554 points. GPyTorch is an optional
development dependency (``pip install gpflow_deep[benchmark]``); ``--peer-python`` names the interpreter that
has it.
"""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

import numpy as np
import peers
from harness import adam_step, argument_parser, child_command, measure, run_rounds

MODELS = ("ar1", "ar2", "ar2p", "ar2pp", "dspp", "dspp-separate", "mean-field", *peers.GPYTORCH)
NUM_DATA, INPUT_DIM, WIDTHS, NUM_INDUCING = 6554, 8, (16, 4), (256, 128, 128)


def parse_arguments() -> argparse.Namespace:
    parser = argument_parser(__doc__, steps=100)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--dtypes", nargs="+", default=["float32", "float64"])
    parser.add_argument("--batch-size", type=int, default=100)
    parser.add_argument("--samples", type=int, default=32)
    parser.add_argument("--peer-python", default=sys.executable)
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

    def separate(d: int, index: int) -> gpflow.kernels.Kernel:
        kernels = [
            gpflow.kernels.SquaredExponential(lengthscales=np.full(d, d**0.5))
            for _ in range([*WIDTHS, 1][index])
        ]
        return gpflow.kernels.SeparateIndependent(kernels)

    layers = gd.layers.build_layers(
        X,
        WIDTHS,
        num_inducing=NUM_INDUCING,
        kernel_factory=separate if name == "dspp-separate" else None,
    )
    if name.startswith("dspp"):
        return gd.models.DeepSigmaPointProcess(
            layers, likelihood, num_sites=samples, num_data=NUM_DATA
        )
    return gd.models.DeepGP(
        layers, likelihood, gd.posteriors.MeanField, num_samples=samples, num_data=NUM_DATA
    )


def child(o: argparse.Namespace) -> dict[str, float]:
    name, dtype = o.child
    X = np.random.default_rng(0).normal(size=(20 * o.batch_size, INPUT_DIM)).astype(dtype)
    Y = np.sin(X.sum(axis=1, keepdims=True)).astype(dtype)
    batch = X[: o.batch_size], Y[: o.batch_size]
    if name in peers.GPYTORCH:
        step = peers.gpytorch_step(
            name,
            dtype,
            batch,
            widths=WIDTHS,
            num_inducing=NUM_INDUCING,
            samples=o.samples,
            num_data=NUM_DATA,
        )
        return measure(step, o.steps)

    import gpflow
    import tensorflow as tf

    gpflow.config.set_default_float(dtype)
    model = build(name, o.samples, X)
    tensors = tuple(map(tf.constant, batch))
    step = adam_step(lambda: model.training_loss(tensors), model.trainable_variables, o.jit)
    return measure(step, o.steps)


def main() -> None:
    o = parse_arguments()
    if o.child:
        print(json.dumps(child(o)))
        return
    commands = {
        (name, dtype): child_command(
            __file__,
            (name, dtype),
            python=o.peer_python if name in peers.GPYTORCH else sys.executable,
        )
        for dtype in o.dtypes
        for name in o.models
    }
    results = run_rounds(commands, o.rounds)
    print("| model | dtype | CPU ms | wall ms | least wall ms | s an epoch | peak MB |")
    print("|---|---|---|---|---|---|---|")
    for (name, dtype), r in results.items():
        epoch = r["wall"] / 1e3 * NUM_DATA / o.batch_size
        print(
            f"| {name} | {dtype} | {r['cpu']:.1f} | {r['wall']:.1f} | {r['least_wall']:.1f}"
            f" | {epoch:.2f} | {r['peak_mb']:.0f} |"
        )


if __name__ == "__main__":
    main()
