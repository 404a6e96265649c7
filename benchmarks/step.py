"""
Cost of one Adam step of each model, in one run, beside GPflux's mean-field deep GP and the floor.

    python benchmarks/step.py                        # the table of the README
    python benchmarks/step.py --models mf star --num-inducing 64

Every model runs in a process of its own (its peak memory is then its own), several times in turn (these
machines are noisy: the median over rounds of the median step is reported). CPU-seconds are those of the
whole process. The floor is the flops of the method's matrix products divided by the rate of a large
matrix product, measured in the same process. GPflux is an optional development dependency
(``pip install gpflow_deep[benchmark]``); ``--peer-python`` names the interpreter that has it.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
# GPflux needs it, and it spares a process the memory of Keras 3: the same for all.
os.environ["TF_USE_LEGACY_KERAS"] = "1"

MODELS = ("svgp", "mf", "star", "fc", "gpflux")
DTYPES = {
    "float64": ("svgp", "mf", "star", "fc", "gpflux"),
    "float32": ("svgp", "mf", "star", "fc"),
}


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[1])
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--dtypes", nargs="+", choices=list(DTYPES), default=list(DTYPES))
    parser.add_argument("--num-inducing", type=int, default=128)
    parser.add_argument("--width", type=int, default=5, help="GPs of a hidden layer, tau")
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=512)
    parser.add_argument("--samples", type=int, default=5)
    parser.add_argument("--input-dim", type=int, default=8)
    parser.add_argument("--steps", type=int, default=20, help="timed steps of a round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--jit", action="store_true", help="compile the step with XLA")
    parser.add_argument("--peer-python", default=sys.executable)
    parser.add_argument("--json", action="store_true", help="print JSON lines instead of the table")
    parser.add_argument("--child", nargs=2, metavar=("MODEL", "DTYPE"), help=argparse.SUPPRESS)
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


def measure(step: Callable[[], object], o: argparse.Namespace) -> dict[str, float]:
    for _ in range(3):
        step()
    walls, cpus = [], []
    for _ in range(o.steps):
        wall, cpu = time.perf_counter(), time.process_time()
        step()
        walls.append(time.perf_counter() - wall)
        cpus.append(time.process_time() - cpu)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {
        "wall": statistics.median(walls),
        "least": min(walls),
        "cpu": statistics.median(cpus),
        "peak_mb": peak,
    }


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


def child(o: argparse.Namespace) -> dict[str, object]:
    model_name, dtype = o.child
    import numpy as np
    import tensorflow as tf

    rng = np.random.default_rng(0)
    X = rng.normal(size=(20 * o.batch_size, o.input_dim)).astype(dtype)
    Y = np.sin(X.sum(axis=1, keepdims=True)).astype(dtype)
    batch = (tf.constant(X[: o.batch_size]), tf.constant(Y[: o.batch_size]))
    baseline = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    step = {"gpflux": gpflux_step}.get(model_name, own_step)(model_name, dtype, X, batch, o)
    result = {"model": model_name, "dtype": dtype, "baseline_mb": baseline, **measure(step, o)}
    result["rate"] = matrix_product_rate(dtype)
    if model_name != "gpflux":
        result["gflop"] = gigaflops(model_name, o)
    return result


def own_step(name, dtype, X, batch, o):  # type: ignore[no-untyped-def]
    import gpflow
    import numpy as np
    import tensorflow as tf

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
    posterior = {
        "star": gd.posteriors.StripesAndArrow,
        "fc": gd.posteriors.FullyCoupled,
    }.get(name, gd.posteriors.MeanField)
    model = gd.models.DeepGP(
        layers, gpflow.likelihoods.Gaussian(0.01), posterior, num_samples=o.samples, num_data=len(X)
    )
    return adam_step(tf, lambda: model.training_loss(batch), model, o)


def adam_step(tf, loss, model, o):  # type: ignore[no-untyped-def]
    from gpflow.keras import tf_keras

    variables = model.trainable_variables
    optimizer = tf_keras.optimizers.Adam(0.005)
    optimizer.build(variables)

    @tf.function(jit_compile=o.jit, autograph=False)
    def step():  # type: ignore[no-untyped-def]
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(variables)
            value = loss()
        optimizer.apply_gradients(zip(tape.gradient(value, variables), variables))
        return value

    return lambda: step().numpy()


def gpflux_step(name, dtype, X, batch, o):  # type: ignore[no-untyped-def]
    import gpflow
    import numpy as np
    import tensorflow as tf
    from gpflux.helpers import construct_basic_inducing_variables, construct_basic_kernel
    from gpflux.layers import GPLayer, LikelihoodLayer
    from gpflux.models import DeepGP

    del name
    tf.keras.backend.set_floatx(dtype)
    dims = [o.input_dim] + [o.width] * (o.layers - 1) + [1]
    layers = []
    for index, (d_in, d_out) in enumerate(zip(dims, dims[1:])):
        last = index == o.layers - 1
        kernel = construct_basic_kernel(
            gpflow.kernels.SquaredExponential(lengthscales=np.ones(d_in)),
            output_dim=d_out,
            share_hyperparams=True,
        )
        z = np.random.default_rng(index).normal(size=(o.num_inducing, d_in))
        inducing = construct_basic_inducing_variables(
            o.num_inducing, d_in, output_dim=d_out, share_variables=True, z_init=z
        )
        mean = (
            gpflow.mean_functions.Zero()
            if last
            else gpflow.mean_functions.Linear(np.eye(d_in, d_out))
        )
        gpflow.set_trainable(mean, False)
        layer = GPLayer(kernel, inducing, num_data=len(X), mean_function=mean, num_latent_gps=d_out)
        layer.q_sqrt.assign(layer.q_sqrt * (1.0 if last else 1e-5))
        layers.append(layer)
    likelihood = LikelihoodLayer(gpflow.likelihoods.Gaussian(0.01))
    model = DeepGP(layers, likelihood, num_data=len(X)).as_training_model()
    # GPflux draws one sample a point: S samples are S copies of the batch.
    X_batch, Y_batch = (tf.tile(b, [o.samples, 1]) for b in batch)
    variables = model.trainable_variables
    optimizer = tf.keras.optimizers.legacy.Adam(0.005)

    @tf.function
    def step():  # type: ignore[no-untyped-def]
        with tf.GradientTape() as tape:
            model({"inputs": X_batch, "targets": Y_batch}, training=True)
            value = tf.add_n(model.losses)
        optimizer.apply_gradients(zip(tape.gradient(value, variables), variables))
        return value

    return lambda: step().numpy()


def main() -> None:
    o = parse_arguments()
    if o.child:
        print(json.dumps(child(o)))
        return
    arguments = [a for a in sys.argv[1:] if a != "--json"]
    runs: dict[tuple[str, str], list[dict[str, float]]] = {}
    for _ in range(o.rounds):
        for dtype in o.dtypes:
            for model in (m for m in DTYPES[dtype] if m in o.models):
                python = o.peer_python if model == "gpflux" else sys.executable
                command = [python, __file__, *arguments, "--child", model, dtype]
                process = subprocess.run(command, capture_output=True, text=True)
                if process.returncode:
                    print(f"{model} {dtype} left out: {process.stderr.strip().splitlines()[-1]}")
                    continue
                line = json.loads(process.stdout.splitlines()[-1])
                runs.setdefault((model, dtype), []).append(line)
                if o.json:
                    print(json.dumps(line), flush=True)
    if o.json:
        return

    def median(key: tuple[str, str], field: str) -> float:
        return statistics.median(run[field] for run in runs[key])

    peer = median(("gpflux", "float64"), "cpu") if ("gpflux", "float64") in runs else None
    print(
        f"One Adam step: M={o.num_inducing}, tau={o.width}, L={o.layers}, batch {o.batch_size},"
        f" S={o.samples}, D={o.input_dim}; median of {o.rounds} rounds of {o.steps} steps."
    )
    print("| model | dtype | CPU ms | wall ms | of GPflux | GFLOP | of the floor | peak MB |")
    print("|---|---|---|---|---|---|---|---|")
    for model, dtype in runs:
        key = (model, dtype)
        cpu, wall, memory = (median(key, f) for f in ("cpu", "wall", "peak_mb"))
        of_peer = f"{cpu / peer:.2f}" if peer else "-"
        flops, of_floor = "-", "-"
        if "gflop" in runs[key][0]:
            floor = median(key, "gflop") / median(key, "rate")
            flops, of_floor = f"{median(key, 'gflop'):.1f}", f"{cpu / floor:.1f}"
        print(
            f"| {model} | {dtype} | {cpu * 1e3:.0f} | {wall * 1e3:.0f} | {of_peer} | {flops}"
            f" | {of_floor} | {memory:.0f} |"
        )


if __name__ == "__main__":
    main()
