"""
Cost of FITC-EP: one Adam step at several sizes, and psi2 against `gpflow.expectations`, in one run.

    python benchmarks/moment_matching.py            # both tables
    python benchmarks/moment_matching.py --rounds 1

Every measurement has a process of its own, on one thread; the median over rounds of the median call is
reported. CPU time is that of the whole process. Of psi2 a layer needs the sums tr(C psi2):
`gpflow.expectations` makes the whole [N, M, M] first.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from itertools import product

from harness import adam_step, argument_parser, child_command, measure, peak_mb, run_rounds

#: Inducing points, batch, inputs, hidden widths, whether the GPs of a layer share kernel and inducing inputs.
STEPS: list[tuple[int, int, int, tuple[int, ...], bool]] = [
    (50, 50, 13, (), False),
    (50, 50, 13, (1,), False),
    (50, 50, 13, (2,), False),
    (50, 50, 13, (2,), True),
    (50, 50, 13, (3,), False),
    (100, 500, 9, (2,), False),
    (100, 500, 9, (5, 5), False),
    (100, 500, 9, (5, 5), True),
    (100, 1000, 9, (2,), False),
    (50, 500, 9, (2,), False),
]
#: Points, inducing points, inputs, GPs.
PSI2 = [(500, 100, 5, 2), (500, 100, 5, 1), (500, 50, 2, 1)]


def step(
    M: int, N: int, D: int, hidden: tuple[int, ...], shared: bool, jit: bool
) -> Callable[[], object]:
    import gpflow
    import numpy as np
    import tensorflow as tf

    import gpflow_deep as gd

    rng = np.random.default_rng(0)
    X = rng.normal(size=(10 * N, D))
    Y = np.sin(X.sum(axis=1, keepdims=True))
    dims = [D, *hidden, 1]
    layers = []
    for d_in, d_out in zip(dims, dims[1:]):
        kernel, points = [
            [make() for _ in range(d_out)]
            for make in (
                lambda d=d_in: gpflow.kernels.SquaredExponential(lengthscales=np.full(d, d**0.5)),
                lambda d=d_in: gpflow.inducing_variables.InducingPoints(rng.normal(size=(M, d))),
            )
        ]
        if shared or d_out == 1:
            layers.append(gd.layers.GPLayer(kernel[0], points[0], d_out))
        else:
            separate = gpflow.inducing_variables.SeparateIndependentInducingVariables(points)
            kernels = gpflow.kernels.SeparateIndependent(kernel)
            layers.append(gd.layers.GPLayer(kernels, separate, d_out))
    model = gd.models.FITCEPDeepGP(layers, gpflow.likelihoods.Gaussian(0.1), num_data=len(X))
    batch = tf.constant(X[:N]), tf.constant(Y[:N])
    return adam_step(lambda: model.training_loss(batch), model.trainable_variables, jit)


def psi2(
    N: int, M: int, D: int, T: int, ours: bool, with_gradient: bool, jit: bool
) -> Callable[[], object]:
    import gpflow
    import numpy as np
    import tensorflow as tf

    from gpflow_deep.psi_statistics import Gaussian, terms
    from gpflow_deep.psi_statistics.exponentials import (
        exponential_sums,
        features,
        pair_coefficients,
        pairs,
    )

    rng = np.random.default_rng(0)
    kernels = [gpflow.kernels.SquaredExponential(1.0 + t, np.full(D, 1.0 + t)) for t in range(T)]
    points = [gpflow.inducing_variables.InducingPoints(rng.normal(size=(M, D))) for _ in range(T)]
    mean = tf.Variable(rng.normal(size=(N, D)))
    variance = tf.Variable(rng.uniform(0.1, 1.0, size=(N, D)))
    C = rng.normal(size=(T, M, M))
    C = tf.Variable(C + np.swapaxes(C, 1, 2))
    sources = [mean, variance, C]
    for module in [*kernels, *points]:
        sources += module.trainable_variables

    def value() -> tf.Tensor:
        if not ours:
            p = gpflow.probability_distributions.DiagonalGaussian(mean, variance)
            whole = [
                gpflow.expectations.expectation(p, (k, z), (k, z)) for k, z in zip(kernels, points)
            ]
            return tf.stack([tf.tensordot(w, C[t], 2) for t, w in enumerate(whole)], axis=1)
        waves = [terms(kernel, D)[0] for kernel in kernels]
        functions = pairs(
            tf.stack([wave.log_amplitude for wave in waves]),
            tf.stack([z.Z for z in points]),
            tf.stack([wave.precision for wave in waves]),
        )
        h = Gaussian(tf.convert_to_tensor(mean), tf.convert_to_tensor(variance))
        sums = exponential_sums(*features(functions, h), pair_coefficients(C)[..., None])
        return tf.transpose(sums[..., 0])

    @tf.function(jit_compile=jit, autograph=False)
    def take():  # type: ignore[no-untyped-def]
        if not with_gradient:
            return tf.reduce_sum(value())
        with tf.GradientTape() as tape:
            total = tf.reduce_sum(tf.sin(value()))
        slopes = tape.gradient(total, sources)
        return tf.add_n([total, *(tf.reduce_sum(slope) for slope in slopes)])

    return lambda: take().numpy()


def child(o: argparse.Namespace) -> dict[str, float]:
    kind, *arguments = o.child
    import tensorflow as tf

    import gpflow_deep.models  # noqa: F401

    # What a first gradient of anything costs is no part of the comparison.
    x = tf.Variable(tf.ones([8, 8], tf.float64))
    with tf.GradientTape() as tape:
        y = tf.reduce_sum(tf.linalg.cholesky(tf.matmul(x, x) + 9.0 * tf.eye(8, dtype=x.dtype)))
    tape.gradient(y, x)
    call = {"step": step, "psi2": psi2}[kind](*arguments, o.jit)
    return measure(call, o.steps, peak_mb())


def main() -> None:
    o = argument_parser(__doc__, steps=50).parse_args()
    if o.child:
        print(json.dumps(child(o)))
        return
    cases = [("step", *sizes) for sizes in STEPS]
    flags = list(product((False, True), repeat=2))
    cases += [("psi2", *size, *flag) for size in PSI2 for flag in flags]
    results = run_rounds({case: child_command(__file__, case) for case in cases}, o.rounds)
    print("| M | batch | D | hidden | kernels | CPU ms | wall ms | memory MB | batch x M x M, MB |")
    print("|---|---|---|---|---|---|---|---|---|")
    for M, N, D, hidden, shared in STEPS:
        if r := results.get(("step", M, N, D, hidden, shared)):
            widths = ", ".join(map(str, hidden)) or "-"
            print(
                f"| {M} | {N} | {D} | {widths} | {'shared' if shared else 'own'} | {r['cpu']:.1f}"
                f" | {r['wall']:.1f} | {r['memory']:.0f} | {N * M * M * 8 / 2**20:.0f} |"
            )
    print("\n| psi2: N | M | D | GPs | | CPU ms | with gradient | memory MB | with gradient |")
    print("|---|---|---|---|---|---|---|---|---|")
    for size in PSI2:
        for ours in (False, True):
            value, slope = (results.get(("psi2", *size, ours, g)) for g in (False, True))
            if value and slope:
                print(
                    f"| {' | '.join(map(str, size))} | {'ours' if ours else 'GPflow'}"
                    f" | {value['cpu']:.1f} | {slope['cpu']:.1f} | {value['memory']:.0f}"
                    f" | {slope['memory']:.0f} |"
                )


if __name__ == "__main__":
    main()
