"""Stationary covariances and their derivatives, against GPflow's formulas of sums of differences."""

from functools import partial

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from gpflow_deep.numerics.stationary import PROFILES, stationary_covariance


def by_differences(kind, Z, X, lengthscales, variance):
    kernel = kind()
    kernel.variance = variance
    differences = (Z[..., :, None, :] - X[..., None, :, :]) / lengthscales
    return kernel.K_r2(tf.reduce_sum(differences**2, axis=-1))


def derivatives(covariance, arguments, weights):
    """The weighted sum of a covariance, its gradient, and the gradient of a function of that."""
    with tf.GradientTape(persistent=True) as outer:
        outer.watch(arguments)
        with tf.GradientTape() as inner:
            inner.watch(arguments)
            value = tf.reduce_sum(weights * covariance(*arguments))
        first = inner.gradient(value, arguments)
        of_first = tf.add_n([tf.reduce_sum(tf.sin(x) * x) for x in first])
    return [value, *first, *outer.gradient(of_first, arguments)]


@pytest.mark.parametrize("kind", PROFILES)
@pytest.mark.parametrize(
    "ard, known",
    [(True, True), (False, True), (True, False), ("one", True)],
    ids=["ard", "isotropic", "ard, unknown sizes", "one in a vector"],
)
@pytest.mark.parametrize(
    "leading", [((), ()), ((1,), (5,)), ((5,), (1,)), ((5,), (5,)), ((), (5,))], ids=str
)
def test_derivatives_equal_those_of_differences(leading, ard, known, kind):
    rng = np.random.default_rng(0)
    of_Z, of_X = leading
    lengthscales = {True: [0.5, 1.0, 2.0], False: 0.7, "one": [0.7]}[ard]
    arguments = [rng.normal(size=[*of_Z, 4, 3]), rng.normal(size=[*of_X, 6, 3]), lengthscales, 1.3]
    arguments = [tf.constant(x, tf.float64) for x in arguments]
    weights = rng.normal(size=[*np.broadcast_shapes(of_Z, of_X), 4, 6])
    expected = derivatives(partial(by_differences, kind), arguments, weights)
    covariance = partial(stationary_covariance, PROFILES[kind])

    def ours(*arguments):
        return derivatives(covariance, list(arguments), weights)

    if not known:
        shapes = [[None] * (x.shape.rank - 1) + list(x.shape[-1:]) for x in arguments]
        ours = tf.function(ours, input_signature=[tf.TensorSpec(s, tf.float64) for s in shapes])
    for actual, wanted in zip(ours(*arguments), expected, strict=True):
        assert actual.shape == wanted.shape
        np.testing.assert_allclose(actual, wanted, rtol=1e-10, atol=1e-11)


@pytest.mark.parametrize("kind", PROFILES)
def test_derivatives_at_distance_zero(kind):
    """By finite differences: those of distances have no value there."""
    X = np.array([[0.3, -0.2], [0.3, -0.2], [1.0, 0.5]])
    arguments = [tf.constant(x, tf.float64) for x in (X, X, [0.7, 1.2], 1.3)]
    weights = np.arange(9.0).reshape(3, 3)

    def value(*arguments):
        return tf.reduce_sum(weights * stationary_covariance(PROFILES[kind], *arguments))

    with tf.GradientTape() as tape:
        tape.watch(arguments)
        total = value(*arguments)
    for place, gradient in enumerate(tape.gradient(total, arguments)):
        numeric = np.zeros(arguments[place].shape)
        for index in np.ndindex(numeric.shape):
            moved = [np.array(x) for x in arguments]
            ends = []
            for step in (1e-5, -1e-5):
                moved[place][index] = arguments[place].numpy()[index] + step
                ends.append(value(*map(tf.constant, moved)))
            numeric[index] = (ends[0] - ends[1]) / 2e-5
        np.testing.assert_allclose(gradient, numeric, rtol=1e-4, atol=1e-4)


@settings(max_examples=20, deadline=None)
@given(
    kind=st.sampled_from([*PROFILES]),
    shift=st.floats(-1e4, 1e4),
    lengthscale=st.floats(0.1, 10.0),
    variance=st.floats(1e-3, 1e3),
)
def test_only_differences_of_inputs_count(kind, shift, lengthscale, variance):
    X = np.random.default_rng(0).normal(size=[7, 2])
    kernel = kind(variance, lengthscale)
    parameters = (tf.constant(x, tf.float64) for x in (lengthscale, variance))
    K = stationary_covariance(PROFILES[kind], *[tf.constant(X + shift)] * 2, *parameters)
    np.testing.assert_allclose(K, kernel(X), rtol=1e-6)
