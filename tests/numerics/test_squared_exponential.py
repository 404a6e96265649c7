"""The squared exponential covariance and its derivatives, against sums of differences."""

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from gpflow_deep.numerics.squared_exponential import squared_exponential


def by_differences(Z, X, lengthscales, variance):
    differences = (Z[..., :, None, :] - X[..., None, :, :]) / lengthscales
    return variance * tf.exp(-0.5 * tf.reduce_sum(differences**2, axis=-1))


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


@pytest.mark.parametrize("known", [True, False], ids=["static", "dynamic"])
@pytest.mark.parametrize("ard", [True, False], ids=["ard", "isotropic"])
@pytest.mark.parametrize(
    "leading", [((), ()), ((1,), (5,)), ((5,), (1,)), ((5,), (5,)), ((), (5,))], ids=str
)
def test_derivatives_equal_those_of_differences(leading, ard, known):
    rng = np.random.default_rng(0)
    of_Z, of_X = leading
    lengthscales = [0.5, 1.0, 2.0] if ard else 0.7
    arguments = [rng.normal(size=[*of_Z, 4, 3]), rng.normal(size=[*of_X, 6, 3]), lengthscales, 1.3]
    arguments = [tf.constant(x, tf.float64) for x in arguments]
    weights = rng.normal(size=[*np.broadcast_shapes(of_Z, of_X), 4, 6])
    expected = derivatives(by_differences, arguments, weights)

    def ours(*arguments):
        return derivatives(squared_exponential, list(arguments), weights)

    if not known:
        shapes = [[None] * (x.shape.rank - 1) + list(x.shape[-1:]) for x in arguments]
        ours = tf.function(ours, input_signature=[tf.TensorSpec(s, tf.float64) for s in shapes])
    for actual, wanted in zip(ours(*arguments), expected, strict=True):
        assert actual.shape == wanted.shape
        np.testing.assert_allclose(actual, wanted, rtol=1e-10, atol=1e-11)


@settings(max_examples=20, deadline=None)
@given(shift=st.floats(-1e4, 1e4), lengthscale=st.floats(0.1, 10.0), variance=st.floats(1e-3, 1e3))
def test_only_differences_of_inputs_count(shift, lengthscale, variance):
    X = np.random.default_rng(0).normal(size=[7, 2])
    kernel = gpflow.kernels.SquaredExponential(variance, lengthscale)
    parameters = (tf.constant(x, tf.float64) for x in (lengthscale, variance))
    K = squared_exponential(*[tf.constant(X + shift)] * 2, *parameters)
    np.testing.assert_allclose(K, kernel(X), rtol=1e-6)
