"""StackedStationary is SeparateIndependent, and covariances within groups are what kernels say."""

from __future__ import annotations

from collections.abc import Callable

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow.kernels import Kernel

import gpflow_deep as gd
from gpflow_deep.layers.covariances import local_covariances

KINDS = [
    gpflow.kernels.Matern52,
    gpflow.kernels.Matern32,
    gpflow.kernels.SquaredExponential,
    gpflow.kernels.Matern12,
    gpflow.kernels.RationalQuadratic,
]
VARIANCE = np.array([0.5, 1.0, 2.0])
LENGTHSCALES = {
    "isotropic": np.array([0.6, 1.1, 2.3]),
    "ARD": np.linspace(0.5, 2.0, 6).reshape(3, 2),
}


def _pair(kind: type, ard: str) -> tuple[gd.kernels.StackedStationary, Kernel]:
    lengthscales = LENGTHSCALES[ard]
    stacked = gd.kernels.StackedStationary(3, kind, variance=VARIANCE, lengthscales=lengthscales)
    parts = [kind(variance=v, lengthscales=s) for v, s in zip(VARIANCE, lengthscales, strict=True)]
    return stacked, gpflow.kernels.SeparateIndependent(parts)


@pytest.mark.parametrize("ard", LENGTHSCALES)
@pytest.mark.parametrize("kind", KINDS)
def test_stacked_kernels_are_separate_ones(kind: type, ard: str) -> None:
    stacked, separate = _pair(kind, ard)
    rng = np.random.default_rng(0)
    X, X2 = rng.normal(size=(2, 4, 2)), rng.normal(size=(5, 2))
    for outputs in (True, False):
        for other in (X2, None):
            actual, expected = (
                k(X, other, full_cov=True, full_output_cov=outputs) for k in (stacked, separate)
            )
            np.testing.assert_allclose(actual, expected, rtol=1e-10, atol=1e-12)
        actual, expected = (
            k(X, full_cov=False, full_output_cov=outputs) for k in (stacked, separate)
        )
        np.testing.assert_allclose(actual, expected, rtol=1e-12)
    assert stacked.num_latent_gps == 3
    for one, other in zip(stacked.latent_kernels, separate.kernels, strict=True):
        np.testing.assert_allclose(one(X2), other(X2), rtol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_are_those_of_separate_kernels(kind: type) -> None:
    """Of value and gradient, so that second derivatives are seen too."""
    stacked, separate = _pair(kind, "isotropic")
    rng = np.random.default_rng(1)
    X, X2 = (tf.constant(rng.normal(size=(3, n, 2))) for n in (2, 4))
    weights = tf.constant(rng.normal(size=(3, 3, 2, 4)))

    def derivatives(kernel: Kernel) -> list[np.ndarray]:
        variables = [X, X2]
        parameters = [kernel] if kernel is stacked else kernel.kernels
        for name in ("variance", "lengthscales"):
            variables += [getattr(k, name).unconstrained_variable for k in parameters]
        with tf.GradientTape() as outer:
            outer.watch([X, X2])
            with tf.GradientTape() as inner:
                inner.watch([X, X2])
                value = tf.reduce_sum(weights * local_covariances(kernel, X, X2) ** 2)
            first = inner.gradient(value, variables)
            size = tf.add_n([tf.reduce_sum(tf.sin(g)) for g in first])
        second = outer.gradient(size, variables)
        ordered = [np.ravel(g) for g in (*first[:2], *second[:2])]
        return [*ordered, *(np.concatenate([np.ravel(x) for x in g[2:]]) for g in (first, second))]

    for actual, expected in zip(derivatives(stacked), derivatives(separate), strict=True):
        np.testing.assert_allclose(actual, expected, rtol=1e-9, atol=1e-10)


ANY: dict[str, Callable[[], Kernel]] = {
    "stationary": lambda: gpflow.kernels.Matern32(lengthscales=[0.5, 2.0]),
    "one dimension": lambda: gpflow.kernels.Matern52(active_dims=[1]),
    "periodic": lambda: gpflow.kernels.Periodic(gpflow.kernels.SquaredExponential()),
    "polynomial": lambda: gpflow.kernels.Polynomial(degree=2),
    "arc cosine": lambda: gpflow.kernels.ArcCosine(order=1),
    "sum with noise": lambda: gpflow.kernels.Matern52() + gpflow.kernels.White(0.3),
    "shared": lambda: gpflow.kernels.SharedIndependent(gpflow.kernels.Cosine(), 2),
    "separate": lambda: gpflow.kernels.SeparateIndependent(
        [gpflow.kernels.Linear(), gpflow.kernels.Matern12()]
    ),
    "stacked": lambda: gd.kernels.StackedStationary(2, lengthscales=[0.5, 2.0]),
}


@pytest.mark.parametrize("name", ANY)
def test_covariances_within_groups(name: str) -> None:
    """Group by group with GPflow's own kernel."""
    kernel = ANY[name]()
    if isinstance(kernel, gpflow.kernels.SharedIndependent):
        parts: tuple[Kernel, ...] = (kernel.kernel,)
    else:
        multiple = isinstance(kernel, gpflow.kernels.MultioutputKernel)
        parts = kernel.latent_kernels if multiple else (kernel,)
    rng = np.random.default_rng(2)
    X, X2 = rng.normal(size=(3, 4, 2)), rng.normal(size=(3, 5, 2))
    for other in (X2, None):
        actual = local_covariances(kernel, X, other)
        for r in range(3):
            for t, part in enumerate(parts):
                expected = part(X[r], None if other is None else X2[r], full_cov=True)
                np.testing.assert_allclose(actual[r, t], expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"num_latent_gps": 0}, ValueError, "num_latent_gps: expected a positive integer, got 0"),
        ({"kernel": gpflow.kernels.Linear}, TypeError, "kernel: expected an isotropic stationary"),
        ({"variance": [1.0, 2.0]}, ValueError, r"variance: expected 3 of them.*got \(2,\)"),
        ({"lengthscales": np.ones([2, 3])}, ValueError, r"lengthscales: expected 3.*\(2, 3\)"),
        (
            {"kernel": lambda: gpflow.kernels.Matern52(active_dims=[0])},
            ValueError,
            "kernel: expected one of all inputs, got active_dims",
        ),
        (
            {"kernel": lambda: gpflow.kernels.Matern52(variance=3.0)},
            ValueError,
            "kernel: expected one of variance and lengthscale 1",
        ),
    ],
)
def test_bad_input(settings: dict, error: type, message: str) -> None:
    with pytest.raises(error, match=message):
        gd.kernels.StackedStationary(**{"num_latent_gps": 3, **settings})
