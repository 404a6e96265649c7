"""Gamma variables as smooth functions of normal ones, so that all draws start from standard normals."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import tensorflow as tf
from gpflow.base import TensorType

__all__ = ["gammas_from_normals"]

_LOG_SQRT_2PI = 0.5 * np.log(2.0 * np.pi)

# On the scale of normal scores the problem is almost linear: from 3 on nothing changes but in far tails.
_NEWTON_STEPS = 6
# Above it TensorFlow's functions lose digits, soon all of those in derivatives by the concentration, and the
# expansion for large concentrations has them.
_LARGE = {tf.float32: 200.0, tf.float64: 4000.0}
_MOST_SCORE = 0.5  # of roots of the concentration, for the expansion
# Of the quantile: coefficients of powers of the concentration, from 1 by halves down, in the normal score.
_EXPANSION = (
    np.poly1d([1.0]),
    np.poly1d([1.0, 0.0]),
    np.poly1d([1.0, 0.0, -1.0]) / 3.0,
    np.poly1d([1.0, 0.0, -7.0, 0.0]) / 36.0,
    np.poly1d([-3.0, 0.0, -7.0, 0.0, 16.0]) / 810.0,
    np.poly1d([9.0, 0.0, 256.0, 0.0, -433.0, 0.0]) / 38880.0,
    np.poly1d([12.0, 0.0, -243.0, 0.0, -923.0, 0.0, 1472.0]) / 204120.0,
)


def gammas_from_normals(concentration: tf.Tensor, normals: TensorType) -> tf.Tensor:
    r"""
    Variables with the law Gamma(concentration, rate 1), increasing in ``normals``: the quantile at
    :math:`\Phi(z)`, with the derivatives (of first order) that the implicit function theorem gives, in both
    arguments.

    Newton's method on :math:`\Phi^{-1}(P(a, s)) = z` for log s, from the cube of a normal variable (Wilson &
    Hilferty 1931) or, where that is no start, from the leading term of P at zero or that of 1 - P. For large
    concentrations it is the expansion of Cornish and Fisher (Goldberg & Levine 1946), with its derivatives.

    :param concentration: a > 0, broadcast against ``normals``.
    :param normals: z.
    """
    normals = tf.convert_to_tensor(normals, concentration.dtype)
    shape = tf.broadcast_dynamic_shape(tf.shape(concentration), tf.shape(normals))

    @tf.custom_gradient
    def quantiles(a: tf.Tensor, z: tf.Tensor) -> tuple[tf.Tensor, Callable]:
        is_large = (a > _LARGE[z.dtype]) & (tf.abs(z) < _MOST_SCORE * tf.sqrt(a))
        others = tf.where(is_large, tf.ones_like(a), a)
        # Next to nothing is not nothing, which has neither logarithm nor root.
        values = tf.maximum(tf.exp(_log_quantiles(others, z)), _least(z.dtype))

        def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            log_density = _log_density(others, values)
            d_a = -tf.raw_ops.IgammaGradA(a=others, x=values) * tf.exp(-log_density)
            d_z = tf.exp(-0.5 * tf.square(z) - _LOG_SQRT_2PI - log_density)
            _, *of_large = _expansion(a, z)
            d_a, d_z = (tf.where(is_large, *pair) for pair in zip(of_large, (d_a, d_z)))
            return upstream * d_a, upstream * d_z

        return tf.where(is_large, _expansion(a, z)[0], values), gradient

    return quantiles(tf.broadcast_to(concentration, shape), tf.broadcast_to(normals, shape))


def _least(dtype: tf.DType) -> float:
    """The smallest number of full precision."""
    return float(np.finfo(dtype.as_numpy_dtype).tiny)


def _expansion(a: tf.Tensor, z: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """The quantile for a large concentration, and its derivatives in concentration and score."""
    value, by_a, by_z = (tf.zeros_like(a) for _ in range(3))
    for k, polynomial in enumerate(_EXPANSION):
        power = 1.0 - 0.5 * k
        value += _horner(polynomial, z) * a**power
        by_a += _horner(polynomial, z) * power * a ** (power - 1.0)
        by_z += _horner(polynomial.deriv(), z) * a**power
    return value, by_a, by_z


def _horner(polynomial: np.poly1d, z: tf.Tensor) -> tf.Tensor:
    value = tf.zeros_like(z)
    for coefficient in polynomial.coeffs:
        value = value * z + coefficient
    return value


def _log_density(a: tf.Tensor, x: tf.Tensor) -> tf.Tensor:
    return (a - 1.0) * tf.math.log(x) - x - tf.math.lgamma(a)


def _log_quantiles(a: tf.Tensor, z: tf.Tensor) -> tf.Tensor:
    cube_root = 1.0 - 1.0 / (9.0 * a) + z / (3.0 * tf.sqrt(a))
    near_zero = (_log_ndtr(z) + tf.math.lgamma(a + 1.0)) / a
    usual = tf.math.log(a) + 3.0 * tf.math.log(tf.maximum(cube_root, 0.1))
    # The upper tail of small concentrations, 1 - P = a E_1(x), by the leading terms of E_1.
    ratio = tf.nn.relu(tf.math.log(a) - _log_ndtr(-z))
    upper = tf.math.log(0.5 + tf.nn.relu(ratio - tf.math.log1p(ratio)))
    near_zero = tf.where(near_zero > -1.0, upper, near_zero)
    log_x = tf.where((cube_root > 0.3) & (a > 0.03), usual, near_zero)
    for _ in range(_NEWTON_STEPS):
        x = tf.exp(log_x)
        # The smaller of the two tails has all of its digits.
        score = tf.where(
            z < 0.0, tf.math.ndtri(tf.math.igamma(a, x)), -tf.math.ndtri(tf.math.igammac(a, x))
        )
        log_slope = _log_density(a, x) + log_x + 0.5 * tf.square(score) + _LOG_SQRT_2PI
        step = tf.clip_by_value((score - z) * tf.exp(-log_slope), -1.0, 1.0)
        # Where x is next to nothing the leading term is all that there is.
        log_x = tf.where(x > _least(x.dtype), log_x - step, log_x)
    return log_x


def _log_ndtr(z: tf.Tensor) -> tf.Tensor:
    return tf.math.log(0.5 * tf.math.erfc(-z * np.sqrt(0.5)))
