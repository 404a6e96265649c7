"""Expectations of an ordinal likelihood against sums over dense nodes about the edges of its bins."""

from __future__ import annotations

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow.likelihoods import Ordinal
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import ndtr

from gpflow_deep.likelihoods import log_normaliser, variational_expectations

# The third bin is narrow; both ends are open.
EDGES = np.array([-1.0, 0.0, 0.05, 2.0])
MEANS = (-3.0, -0.7, 0.02, 0.4, 1.9)


def _log_density(f: np.ndarray, y: int, sigma: float) -> np.ndarray:
    low, high = (np.r_[-np.inf, EDGES, np.inf][k] for k in (y, y + 1))
    low, high = (low - f) / sigma, (high - f) / sigma
    lower_tail = np.where(high < 0.0, ndtr(high) - ndtr(low), ndtr(-low) - ndtr(-high))
    return np.log((1.0 - 2e-3) * lower_tail + 1e-6)


def _dense(mean: float, variance: float, y: int, sigma: float, alpha: float) -> np.ndarray:
    """The answer and its derivatives by mean, variance and sigma."""
    scale = np.sqrt(variance)
    nodes = [np.linspace(-10.0, 10.0, 801)]
    for edge in EDGES[max(y - 1, 0) : y + 1]:
        nodes.append((edge + sigma * np.linspace(-12.0, 12.0, 801) - mean) / scale)
    z = np.unique(np.concatenate(nodes))
    z = z[np.abs(z) <= 10.0]
    # Gauss-Legendre nodes between one and the next.
    x, w = np.polynomial.legendre.leggauss(4)
    half = 0.5 * np.diff(z)[:, None]
    z, weights = (0.5 * (z[1:] + z[:-1])[:, None] + half * x).ravel(), (half * w).ravel()
    f, step = mean + scale * z, 1e-4 * sigma
    density, *moved = (
        np.exp(alpha * log_p) if alpha else log_p
        for log_p in (_log_density(f, y, sigma + by) for by in (0.0, step, -step))
    )
    by_sigma = (moved[0] - moved[1]) / (2.0 * step)
    weights *= np.exp(-0.5 * z**2) / np.sqrt(2.0 * np.pi)
    rows = density, density * z / scale, density * (z**2 - 1.0) / (2.0 * variance), by_sigma
    value, *slopes = (weights @ row for row in rows)
    if alpha:
        return np.array([np.log(value), *np.divide(slopes, value)]) / alpha
    return np.array([value, *slopes])


def _ours(
    mean: np.ndarray, variance: np.ndarray, y: np.ndarray, sigma: float, alpha: float
) -> np.ndarray:
    """Likewise, [N, 4], where the last derivative is that of the sum."""
    dtype = gpflow.default_float()
    likelihood = Ordinal(EDGES.astype(dtype))
    likelihood.sigma = gpflow.Parameter(sigma)
    mean, variance, y = (tf.constant(x[:, None], dtype) for x in (mean, variance, y))
    with tf.GradientTape() as tape:
        tape.watch([mean, variance])
        value = log_normaliser(likelihood, mean, mean, variance, y, alpha)
    *slopes, by_sigma = tape.gradient(
        value, [mean, variance, likelihood.sigma.unconstrained_variable]
    )
    columns = [value, *(slope[:, 0] for slope in slopes), tf.fill(value.shape, by_sigma)]
    return np.stack(columns, axis=1)


@pytest.mark.parametrize("alpha", [0.0, 0.5])
@pytest.mark.parametrize("ratio", [0.02, 0.1, 0.4, 1.0, 5.0])
def test_edges_of_any_width(ratio: float, alpha: float) -> None:
    """Beside the function's deviation: values and gradients, in double and single precision."""
    for scale in (0.05, 1.0, 2.0):
        grid = [(m, scale**2, y) for m in MEANS for y in range(5)]
        sigma = ratio * scale
        expected = np.array([_dense(*point, sigma, alpha) for point in grid])
        expected[:, 3] = expected[:, 3].sum()
        for dtype, tolerance in ((np.float64, 2e-6), (np.float32, 2e-4)):
            gpflow.config.set_default_float(dtype)
            actual = _ours(*np.transpose(grid), sigma, alpha)
            error = np.abs(actual - expected) / (1.0 + np.abs(expected))
            assert error.max() < tolerance, (scale, dtype, error.max(axis=0))


@given(
    mean=st.floats(-4.0, 4.0),
    log_scale=st.floats(-6.0, 2.0),
    log_sigma=st.floats(-4.0, 1.0),
    y=st.integers(0, 4),
)
def test_normalisers_grow_with_their_power(
    mean: float, log_scale: float, log_sigma: float, y: int
) -> None:
    """Jensen's inequality: an expected log density that is too high makes no bound."""
    likelihood = Ordinal(EDGES)
    likelihood.sigma.assign(np.exp(log_sigma))
    F, variance, Y = (
        tf.constant([[x]], tf.float64) for x in (mean, np.exp(2.0 * log_scale), float(y))
    )
    powers = 0.0, 1e-3, 0.5, 1.0
    values = [
        log_normaliser(likelihood, F, F, variance, Y, alpha).numpy().item() for alpha in powers
    ]
    assert (np.diff(values) > -1e-6).all()
    assert np.log(1e-6) - 1e-6 < values[0] and values[-1] < 0.0


@pytest.mark.parametrize("jit", [False, True])
def test_compiled_with_second_derivatives(jit: bool) -> None:
    likelihood = Ordinal(EDGES)
    likelihood.sigma.assign(0.1)
    mean, variance = tf.constant([[0.4], [-3.0], [1.9]], tf.float64), tf.constant(1.0, tf.float64)
    Y = tf.constant([[0.0], [2.0], [4.0]], tf.float64)

    def curvature(mean: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as outer:
            outer.watch(mean)
            with tf.GradientTape() as inner:
                inner.watch(mean)
                spread = variance + tf.zeros_like(mean)
                value = variational_expectations(likelihood, mean, mean, spread, Y)
            slope = inner.gradient(value, mean)
        return outer.gradient(slope, mean)

    actual = tf.function(curvature, autograph=False, jit_compile=jit)(mean)
    # A normal's density obeys the heat equation: twice the derivative by its variance.
    grid = zip(mean.numpy()[:, 0], [0, 2, 4])
    expected = [2.0 * _dense(m, 1.0, y, 0.1, 0.0)[2] for m, y in grid]
    np.testing.assert_allclose(actual[:, 0], expected, rtol=1e-4)
