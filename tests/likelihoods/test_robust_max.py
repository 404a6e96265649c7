"""The probability that a class's function is the largest, against dense grids."""

from __future__ import annotations

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow.likelihoods import MultiClass
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import trapezoid
from scipy.stats import norm

from gpflow_deep.likelihoods import (
    log_normaliser,
    predict_log_density,
    predict_mean_and_var,
    variational_expectations,
)


def _dense(means: np.ndarray, deviations: np.ndarray, own: int) -> float:
    """By a grid that is dense about every step."""
    others = [k for k in range(len(means)) if k != own]
    steps = [means[k] + deviations[k] * np.linspace(-8.0, 8.0, 2001) for k in range(len(means))]
    x = np.unique(np.concatenate(steps))
    density = norm.pdf(x, means[own], deviations[own])
    return trapezoid(
        density * np.prod([norm.cdf(x, means[k], deviations[k]) for k in others], axis=0), x
    )


def _functions(widest: float, number: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(number)
    means = rng.normal(size=(40, number))
    return means, np.exp(rng.uniform(np.log(1.0 / widest), np.log(2.0), size=means.shape))


@pytest.mark.parametrize("number", [2, 3, 10, 20])
@pytest.mark.parametrize(("widest", "tolerance"), [(2.0, 1e-4), (50.0, 2e-3)])
def test_probabilities_and_their_sum(widest: float, tolerance: float, number: int) -> None:
    means, deviations = _functions(widest, number)
    likelihood, X = MultiClass(number), means[:, :1]
    p = predict_mean_and_var(likelihood, X, means, deviations**2)[0].numpy()
    epsilon = 1e-3
    exact = np.array(
        [[_dense(m, s, k) for k in range(number)] for m, s in zip(means[:8], deviations[:8])]
    )
    expected = exact * (1.0 - epsilon) + (1.0 - exact) * epsilon / (number - 1.0)
    np.testing.assert_allclose(p[:8], expected, atol=tolerance)
    np.testing.assert_allclose(p.sum(axis=1), 1.0, atol=3.0 * tolerance)


@given(st.floats(-5.0, 5.0), st.floats(-3.0, 3.0), st.floats(-3.0, 3.0))
@settings(max_examples=25, deadline=None)
def test_of_two_functions_it_is_closed(mean: float, log_first: float, log_second: float) -> None:
    first, second = np.exp([log_first, log_second])
    likelihood = MultiClass(2)
    means, variances = np.array([[mean, 0.0]]), np.array([[first, second]]) ** 2
    p = norm.cdf(mean / np.hypot(first, second))
    X, Y = means[:, :1], np.zeros([1, 1])
    args = likelihood, X, means, variances, Y
    right, wrong = np.log(1.0 - 1e-3), np.log(1e-3)
    expected = p * right + (1.0 - p) * wrong
    np.testing.assert_allclose(variational_expectations(*args), [expected], atol=1e-3)
    np.testing.assert_allclose(log_normaliser(*args, alpha=0.0), [expected], atol=1e-3)
    density = np.log(p * (1.0 - 1e-3) + (1.0 - p) * 1e-3)
    np.testing.assert_allclose(predict_log_density(*args), [density], atol=3e-4 / np.exp(density))
    half = 2.0 * np.log(p * np.exp(0.5 * right) + (1.0 - p) * np.exp(0.5 * wrong))
    np.testing.assert_allclose(log_normaliser(*args, alpha=0.5), [half], atol=5e-3)


def test_gradients_by_finite_differences() -> None:
    means, deviations = _functions(10.0, 3)
    likelihood, X = MultiClass(3), tf.constant(means[:5, :1])
    Y = tf.constant([[0.0], [1.0], [2.0], [0.0], [1.0]], tf.float64)
    mean, variance = tf.constant(means[:5]), tf.constant(deviations[:5] ** 2)

    def exact(mean: np.ndarray, variance: np.ndarray) -> float:
        p = np.array([_dense(m, v**0.5, int(y)) for m, v, y in zip(mean, variance, Y[:, 0])])
        return float(np.log(p * (1.0 - 1e-3) + (1.0 - p) * 5e-4).sum())

    with tf.GradientTape() as tape:
        tape.watch([mean, variance])
        value = tf.reduce_sum(predict_log_density(likelihood, X, mean, variance, Y))
    gradients = tape.gradient(value, [mean, variance])
    rng = np.random.default_rng(0)
    for _ in range(3):
        direction = rng.normal(size=(2, 5, 3)) * [[[1.0]], [[0.1]]]
        step = 1e-4
        ends = [exact(mean + s * direction[0], variance + s * direction[1]) for s in (step, -step)]
        slope = float(sum(tf.reduce_sum(g * d) for g, d in zip(gradients, direction)))
        np.testing.assert_allclose(slope, (ends[0] - ends[1]) / (2.0 * step), rtol=0.02, atol=0.02)


def test_a_number_of_nodes_that_a_user_chose_is_kept() -> None:
    likelihood = MultiClass(3)
    likelihood.num_gauss_hermite_points = 7
    means, deviations = _functions(10.0, 3)
    X, Y = means[:, :1], np.zeros([40, 1])
    args = X, means, deviations**2
    np.testing.assert_array_equal(
        predict_mean_and_var(likelihood, *args), likelihood.predict_mean_and_var(*args)
    )
    for function, own in (
        (variational_expectations, likelihood.variational_expectations),
        (predict_log_density, likelihood.predict_log_density),
    ):
        np.testing.assert_array_equal(function(likelihood, *args, Y), own(*args, Y))


def test_single_precision_and_compiled() -> None:
    means, deviations = _functions(10.0, 3)
    results = []
    moments = tf.function(predict_mean_and_var, autograph=False, jit_compile=True)
    for dtype in (np.float64, np.float32):
        gpflow.config.set_default_float(dtype)
        mean, variance = (tf.constant(x, dtype) for x in (means, deviations**2))
        results.append(moments(MultiClass(3), mean[:, :1], mean, variance)[0])
    np.testing.assert_allclose(results[0], results[1], atol=1e-5)
    assert results[1].dtype == tf.float32
