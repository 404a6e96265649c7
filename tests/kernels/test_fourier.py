"""Draws from priors by waves: their covariance is the kernel's."""

from __future__ import annotations

import gpflow
import numpy as np
import pytest
import tensorflow as tf

import gpflow_deep as gd
from gpflow_deep.kernels.fourier import PriorFunctions

k = gpflow.kernels
SCALES = {"variance": 1.5, "lengthscales": [0.7, 1.3]}

KERNELS = {
    "squared exponential": lambda: k.SquaredExponential(**SCALES),
    "matern12": lambda: k.Matern12(**SCALES),
    "matern32": lambda: k.Matern32(**SCALES),
    "matern52": lambda: k.Matern52(**SCALES),
    "exponential": lambda: k.Exponential(**SCALES),
    "rational quadratic": lambda: k.RationalQuadratic(alpha=0.7, **SCALES),
    "cosine": lambda: k.Cosine(variance=1.5, lengthscales=[3.0, 5.0]),
    "spectral mixture": lambda: gd.kernels.SpectralMixture(
        [1.0, 0.5], [[0.0, 0.1], [0.4, 0.0]], [[0.2, 0.1], [0.1, 0.3]]
    ),
    "one input": lambda: k.Matern52(lengthscales=0.5, active_dims=[1]),
    "inputs by slice": lambda: k.Matern52(lengthscales=0.5, active_dims=slice(1, 2)),
    "sum": lambda: k.Matern32(**SCALES) + k.Constant(0.5) + k.SquaredExponential(active_dims=[0]),
    "product": lambda: k.Matern32(active_dims=[0]) * k.SquaredExponential(1.5, active_dims=[1]),
    "product of sums": lambda: (
        (k.SquaredExponential() + k.Constant(0.5)) * (k.Matern52(0.5) + k.Cosine(0.8, 4.0))
    ),
}


def _inputs(num_points: int = 4) -> np.ndarray:
    return np.random.default_rng(0).standard_normal((num_points, 2))


def _assert_covariance(draws: np.ndarray, expected: np.ndarray) -> None:
    """Of draws [S, N] with zero mean, within five standard errors."""
    products = draws[:, :, None] * draws[:, None, :]
    errors = products.std(axis=0) / np.sqrt(len(draws))
    assert (np.abs(products.mean(axis=0) - expected) < 5 * errors).all()
    assert errors.max() < 0.03 * expected.max()


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("num_features", [1, 20])
def test_covariance_of_many_draws(name: str, num_features: int) -> None:
    kernel, X = KERNELS[name](), _inputs()
    draw = PriorFunctions(kernel, 1, 2, 20_000, num_features, tf.constant([1, 2]))
    values = draw(tf.constant(X)[None])
    assert values.shape == (20_000, 4, 1)
    _assert_covariance(values.numpy()[:, :, 0], kernel(X).numpy())


@pytest.mark.parametrize("name", KERNELS)
def test_every_draw_has_the_variance_of_the_kernel_at_every_input(name: str) -> None:
    kernel, X = KERNELS[name](), _inputs()
    draw = PriorFunctions(
        kernel, 5_000, 2, 1, 3, tf.constant([1, 2])
    )  # GPs of the same frequencies
    values = draw(tf.constant(X)[None])[0].numpy().T
    np.testing.assert_allclose(values.var(axis=0), kernel(X, full_cov=False), rtol=0.15)


def test_many_waves_of_one_draw_have_the_covariance_of_the_kernel() -> None:
    kernel, X = k.Matern52(**SCALES), _inputs()
    draw = PriorFunctions(kernel, 1, 2, 1, 200_000, tf.constant([1, 2]))
    phases = X @ draw.frequencies.numpy()[0, 0].T
    waves = np.concatenate([np.cos(phases), np.sin(phases)], axis=1)
    np.testing.assert_allclose(1.5 * waves @ waves.T / 200_000, kernel(X), atol=0.02)


@pytest.mark.parametrize(
    "name", ["squared exponential", "matern12", "matern52", "one input", "product"]
)
def test_draws_differ_less_than_by_random_frequencies(name: str) -> None:
    """In the covariance of a draw's values at two points, given its frequencies."""
    kernel, X, F, S = KERNELS[name](), _inputs(), 64, 500
    frequencies = PriorFunctions(kernel, 1, 2, S, F, tf.constant([1, 2])).frequencies.numpy()[:, 0]

    def scatter(frequencies: np.ndarray) -> np.ndarray:
        """Of draws [S, F, D] for each pair of points."""
        return np.cos(frequencies @ (X[0] - X[1:]).T).mean(axis=1).var(axis=0)

    mixed = np.random.default_rng(0).permutation(frequencies.reshape(S * F, 2))
    ratios = scatter(frequencies) / scatter(mixed.reshape(S, F, 2))
    assert ratios.mean() < 0.7, ratios


@pytest.mark.parametrize(
    "kernel, T",
    [
        (k.SharedIndependent(k.Matern32(), output_dim=3), 3),
        (
            k.SeparateIndependent(
                [k.SquaredExponential(), k.Matern12(0.5) + k.Constant(), k.Cosine(lengthscales=3.0)]
            ),
            3,
        ),
        (
            gd.kernels.StackedStationary(3, lengthscales=[0.3, 1.0, 3.0], variance=[1.0, 2.0, 0.5]),
            3,
        ),
    ],
)
def test_independent_gps(kernel: gpflow.kernels.Kernel, T: int) -> None:
    X = _inputs(3)
    values = PriorFunctions(kernel, T, 2, 20_000, 4, tf.constant([1, 2]))(tf.constant(X)[None])
    expected = kernel(X, full_cov=True, full_output_cov=False).numpy()
    dense = np.einsum("tnm,tu->ntmu", expected, np.eye(T)).reshape(3 * T, 3 * T)
    _assert_covariance(values.numpy().reshape(20_000, -1), dense)


def test_every_sample_has_inputs_of_its_own() -> None:
    draw = PriorFunctions(k.Matern52(), 2, 2, 3, 10, tf.constant([1, 2]))
    X = np.random.default_rng(1).standard_normal((3, 5, 2))
    values = draw(tf.constant(X)).numpy()
    for s in range(3):
        np.testing.assert_allclose(values[s], draw(tf.constant(X[s : s + 1]))[s], rtol=1e-12)


class _Own(gpflow.kernels.SquaredExponential):
    def K_r2(self, r2: tf.Tensor) -> tf.Tensor:
        return super().K_r2(2.0 * r2)


@pytest.mark.parametrize(
    "kernel", [k.White(), k.Linear(), k.Matern32() + k.White(), k.ArcCosine(), _Own()]
)
def test_kernels_without_a_known_density(kernel: gpflow.kernels.Kernel) -> None:
    with pytest.raises(NotImplementedError, match="spectral density is known .SquaredExponential"):
        PriorFunctions(kernel, 1, 2, 3, 10, tf.constant([1, 2]))
