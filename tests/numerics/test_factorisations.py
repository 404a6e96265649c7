"""Inverses of triangular matrices by halves, and the evidence of a GP with its own gradient."""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import multivariate_normal

from gpflow_deep.numerics import factorisations
from gpflow_deep.numerics.factorisations import (
    FactorisationError,
    gaussian_log_density,
    triangular_inverse,
)


def _covariance(N: int, seed: int = 0) -> np.ndarray:
    A = np.random.default_rng(seed).standard_normal((N, N))
    return A @ A.T / N + 0.1 * np.eye(N)


@pytest.fixture
def small_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Halves down to three rows."""
    monkeypatch.setattr(factorisations, "LEAF", 3)


@pytest.mark.usefixtures("small_leaves")
@pytest.mark.parametrize("N", [1, 2, 3, 4, 7, 16, 41])
def test_a_triangular_inverse_is_lower_and_the_inverse(N: int) -> None:
    factor = np.linalg.cholesky(_covariance(N))
    inverse = triangular_inverse(tf.constant(factor)).numpy()
    np.testing.assert_array_equal(np.triu(inverse, 1), 0.0)
    np.testing.assert_allclose(inverse @ factor, np.eye(N), atol=1e-12)


def test_a_large_triangular_inverse() -> None:
    factor = np.linalg.cholesky(_covariance(901))
    inverse = triangular_inverse(tf.constant(factor)).numpy()
    np.testing.assert_allclose(inverse @ factor, np.eye(901), atol=1e-10)


@pytest.mark.usefixtures("small_leaves")
@pytest.mark.parametrize(("N", "P"), [(1, 1), (3, 2), (8, 1), (21, 3)])
def test_log_density_and_its_gradient(N: int, P: int) -> None:
    """Against SciPy, and TensorFlow's gradient of the factorisation, made symmetric."""
    K, Y = (
        tf.constant(_covariance(N)),
        tf.constant(np.random.default_rng(1).standard_normal((N, P))),
    )
    with tf.GradientTape(persistent=True) as tape:
        tape.watch([K, Y])
        own = gaussian_log_density(K, Y, "K")
        factor = tf.linalg.cholesky(K)
        alpha = tf.linalg.triangular_solve(factor, Y)
        diagonal = tf.linalg.diag_part(factor)
        other = -0.5 * tf.reduce_sum(alpha**2) - P * tf.reduce_sum(tf.math.log(diagonal))
    expected = multivariate_normal(np.zeros(N), K.numpy()).logpdf(Y.numpy().T)
    np.testing.assert_allclose(own, np.sum(expected), rtol=1e-10)
    own_K, own_Y = tape.gradient(own, [K, Y])
    other_K, other_Y = tape.gradient(other, [K, Y])
    np.testing.assert_allclose(own_K, 0.5 * (other_K + tf.transpose(other_K)), atol=1e-10)
    np.testing.assert_allclose(own_Y, other_Y, atol=1e-10)


@settings(max_examples=20, deadline=None)
@given(N=st.integers(1, 9), P=st.integers(1, 3), seed=st.integers(0, 10**6))
def test_gradient_by_finite_differences(N: int, P: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    K, Y = _covariance(N, seed), rng.standard_normal((N, P))
    dK, dY = rng.standard_normal((N, N)), rng.standard_normal((N, P))
    dK = 0.5 * (dK + dK.T)

    def value(step: float) -> float:
        moved = tf.constant(K + step * dK), tf.constant(Y + step * dY)
        return float(gaussian_log_density(*moved, "K"))

    where = tf.constant(K), tf.constant(Y)
    with tf.GradientTape() as tape:
        tape.watch(where)
        loss = 2.0 * gaussian_log_density(*where, "K")
    along = sum(np.sum(g * d) for g, d in zip(tape.gradient(loss, where), (dK, dY), strict=True))
    numeric = (value(1e-6) - value(-1e-6)) / 1e-6
    np.testing.assert_allclose(along, numeric, rtol=1e-5, atol=1e-5)


def test_float32_is_computed_in_float64() -> None:
    K, Y = _covariance(30), np.ones((30, 1))
    with tf.GradientTape() as tape:
        narrow = tf.constant(K, tf.float32)
        tape.watch(narrow)
        value = gaussian_log_density(narrow, tf.constant(Y, tf.float32), "K")
    assert value.dtype == tf.float64
    assert tape.gradient(value, narrow).dtype == tf.float32
    wide = tf.constant(narrow.numpy().astype(np.float64))
    assert float(value) == float(gaussian_log_density(wide, tf.constant(Y), "K"))


@pytest.mark.parametrize("compiled", [False, True])
def test_a_matrix_that_is_no_covariance_is_named(compiled: bool) -> None:
    def evaluate() -> tf.Tensor:
        return gaussian_log_density(
            -tf.eye(3, dtype=tf.float64), tf.ones([3, 1], tf.float64), "K_4"
        )

    expected = tf.errors.InvalidArgumentError if compiled else FactorisationError
    with pytest.raises(expected, match="K_4"):
        (tf.function(evaluate) if compiled else evaluate)()
