"""
Cost of one Adam step of each model, in one run, beside GPflux's mean-field deep GP and the floor.

    python benchmarks/step.py                        # the table of docs/speed.md
    python benchmarks/step.py --models mf star --num-inducing 64

Every model runs in a process of its own, several times in turn: the median over rounds of the median step
is reported. CPU time is that of the whole process. The floor is the flops of the method's matrix products
divided by the rate of a large matrix product, measured in the same process. GPflux is an optional
development dependency (``pip install gpflow_deep[benchmark]``); ``--peer-python`` names the interpreter that
has it.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from typing import Any

import peers
from harness import adam_step, argument_parser, child_command, measure, peak_mb, run_rounds

MODELS = ("svgp", "mf", "star", "fc", "sghmc", "gpflux")
DTYPES = {
    "float64": ("svgp", "mf", "star", "fc", "sghmc", "gpflux"),
    "float32": ("svgp", "mf", "star", "fc", "sghmc"),
    # Parameters in float64, products over points in float32.
    "mixed": ("svgp", "mf", "star", "fc"),
}


def parse_arguments() -> argparse.Namespace:
    parser = argument_parser(__doc__, steps=20)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--dtypes", nargs="+", choices=list(DTYPES), default=list(DTYPES))
    parser.add_argument("--num-inducing", type=int, default=128)
    parser.add_argument("--width", type=int, default=5, help="GPs of a hidden layer, tau")
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=512)
    parser.add_argument("--samples", type=int, default=5)
    parser.add_argument("--input-dim", type=int, default=8)
    parser.add_argument("--chains", type=int, default=4, help="of sghmc, in place of samples")
    parser.add_argument("--peer-python", default=sys.executable)
    parser.add_argument(
        "--json", action="store_true", help="print a JSON line a case, not the table"
    )
    return parser.parse_args()


def gigaflops(model: str, o: argparse.Namespace) -> float:
    """
    10^9 flops of the matrix products of one step, forward and backward: every product counted once
    forward and as often backward as the gradient needs it.
    """
    M, T, L, N, S = o.num_inducing, o.width, o.layers, o.batch_size, o.samples
    if model == "svgp":
        L = 1
    widths = [T] * (L - 1) + [1]
    rows = [N] + [N * S] * (L - 1)
    total = 0.0
    for l, (t, n) in enumerate(zip(widths, rows)):
        total += 3 * M**2 * n + 2 * M**2 * n * 0.5  # triangular solve, its gradients
        hidden = model == "star" and l < L - 1
        own = t if model in ("mf", "svgp") or hidden else t * (t + 1) // 2
        total += 2 * (2 * M**2 * n * own)  # symmetric forms: forward, gradient of C
        for k in range(l):
            pairs = {"mf": 0, "fc": t * widths[k]}.get(model, t if hidden else t * widths[k])
            total += 3 * (2 * M**2 * rows[k] * pairs)
        columns = {"fc": sum(widths[: l + 1])}.get(model, l + 1 if hidden else sum(widths[: l + 1]))
        columns = 1 if model in ("mf", "svgp") else columns
        if model == "fc":  # L L^T, rows of this layer against all rows up to it
            total += 3 * sum(
                2 * M**3 * t * widths[k] * sum(widths[: k + 1]) * 0.5 for k in range(l + 1)
            )
        else:
            total += 3 * 2 * M**3 * t * columns
    return total / 1e9


def matrix_product_rate(dtype: str) -> float:
    """10^9 flops per CPU-second of a large matrix product."""
    import tensorflow as tf

    a = tf.random.normal([2048, 1024], dtype=dtype)
    product = tf.function(lambda: tf.reduce_sum(tf.matmul(a, a, transpose_b=True)))
    product()
    rates = []
    for _ in range(5):
        start = time.process_time()
        product().numpy()
        rates.append(2 * 2048 * 2048 * 1024 / (time.process_time() - start) / 1e9)
    return max(rates)


def child(o: argparse.Namespace) -> dict[str, float]:
    name, kind = o.child
    dtype, compute_dtype = ("float64", "float32") if kind == "mixed" else (kind, kind)
    import numpy as np
    import tensorflow as tf

    rng = np.random.default_rng(0)
    X = rng.normal(size=(20 * o.batch_size, o.input_dim)).astype(dtype)
    Y = np.sin(X.sum(axis=1, keepdims=True)).astype(dtype)
    batch = (tf.constant(X[: o.batch_size]), tf.constant(Y[: o.batch_size]))
    baseline = peak_mb()
    if name == "gpflux":
        step = peers.gpflux_step(dtype, X, batch, o)
    else:
        step = own_step(name, dtype, compute_dtype, X, batch, o)
    result = measure(step, o.steps, baseline)
    result["rate"] = matrix_product_rate(compute_dtype)
    if name not in ("gpflux", "sghmc"):
        result["gflop"] = gigaflops(name, o)
    return result


def own_step(
    name: str,
    dtype: str,
    compute_dtype: str,
    X: Any,
    batch: tuple[Any, Any],
    o: argparse.Namespace,
) -> Callable[[], object]:
    import gpflow
    import numpy as np

    import gpflow_deep as gd

    gpflow.config.set_default_float(dtype)
    widths = [1] if name == "svgp" else [o.width] * (o.layers - 1) + [1]
    dims = [o.input_dim, *widths]
    layers = []
    for index, (d_in, d_out) in enumerate(zip(dims, widths)):
        mean = (
            None if index == len(widths) - 1 else gpflow.mean_functions.Linear(np.eye(d_in, d_out))
        )
        layer = gd.layers.GPLayer(
            gpflow.kernels.SquaredExponential(lengthscales=np.ones(d_in)),
            np.random.default_rng(index).normal(size=(o.num_inducing, d_in)),
            d_out,
            mean,
        )
        gpflow.set_trainable(layer.mean_function, False)
        layers.append(layer)
    if name == "sghmc":
        model = gd.models.SampledDeepGP(
            layers, gpflow.likelihoods.Gaussian(0.01), num_chains=o.chains, num_data=len(X)
        )
        return sampled_step(model, batch, o.jit)
    posterior = {
        "star": gd.posteriors.StripesAndArrow,
        "fc": gd.posteriors.FullyCoupled,
    }.get(name, gd.posteriors.MeanField)
    model = gd.models.DeepGP(
        layers,
        gpflow.likelihoods.Gaussian(0.01),
        posterior,
        num_samples=o.samples,
        num_data=len(X),
        compute_dtype=compute_dtype,
    )
    return adam_step(lambda: model.training_loss(batch), model.trainable_variables, o.jit)


def sampled_step(model: Any, batch: tuple[Any, Any], jit: bool) -> Callable[[], object]:
    """One of the chains and, from the same gradient, one of Adam."""
    import tensorflow as tf
    from gpflow.keras import tf_keras

    import gpflow_deep as gd

    chains = model.inducing_posterior.variables_of_chains
    others = [v for v in model.trainable_variables if all(v is not chain for chain in chains)]
    sampler, adam = gd.optimizers.SGHMC(), tf_keras.optimizers.Adam(0.005)
    sampler.build(chains)
    adam.build(others)

    @tf.function(jit_compile=jit, autograph=False)
    def step() -> tf.Tensor:
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(chains + others)
            loss = model.training_loss(batch)
        gradients = tape.gradient(loss, chains + others)
        sampler.apply_gradients(zip(gradients, chains))
        adam.apply_gradients(zip(gradients[len(chains) :], others))
        return loss

    return lambda: step().numpy()


def main() -> None:
    o = parse_arguments()
    if o.child:
        print(json.dumps(child(o)))
        return
    cases = [(model, dtype) for dtype in o.dtypes for model in DTYPES[dtype] if model in o.models]
    pythons = {"gpflux": o.peer_python}
    commands = {
        case: child_command(__file__, case, python=pythons.get(case[0], sys.executable))
        for case in cases
    }
    results = run_rounds(commands, o.rounds, one_thread=False)
    if o.json:
        for (model, dtype), r in results.items():
            print(json.dumps({"model": model, "dtype": dtype, **r}))
        return
    peer = results.get(("gpflux", "float64"))
    print(
        f"One Adam step: M={o.num_inducing}, tau={o.width}, L={o.layers}, batch {o.batch_size},"
        f" S={o.samples}, D={o.input_dim}; median of {o.rounds} rounds of {o.steps} steps."
    )
    print("| model | dtype | CPU ms | wall ms | of GPflux | GFLOP | of the floor | peak MB |")
    print("|---|---|---|---|---|---|---|---|")
    for (model, dtype), r in results.items():
        of_peer = f"{r['cpu'] / peer['cpu']:.2f}" if peer else "-"
        flops, of_floor = "-", "-"
        if "gflop" in r:
            flops, of_floor = f"{r['gflop']:.1f}", f"{r['cpu'] * r['rate'] / r['gflop'] / 1e3:.1f}"
        print(
            f"| {model} | {dtype} | {r['cpu']:.0f} | {r['wall']:.0f} | {of_peer} | {flops}"
            f" | {of_floor} | {r['peak_mb']:.0f} |"
        )


if __name__ == "__main__":
    main()
