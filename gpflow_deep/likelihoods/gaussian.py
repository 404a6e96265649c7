"""Normalisers of normal distributions: in closed form, but for the scale where that is a function too."""

from __future__ import annotations

import inspect

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.likelihoods import Gaussian, HeteroskedasticTFPConditional
from gpflow.likelihoods.base import DEFAULT_NUM_GAUSS_HERMITE_POINTS
from gpflow.quadrature import NDiagGHQuadrature

from .kinds import inherits
from .quadrature import log_expectation

__all__ = [
    "gaussian_normaliser",
    "has_default_quadrature",
    "has_normal_scale",
    "noise_variance",
    "scale_normaliser",
]


def noise_variance(likelihood: Gaussian, X: tf.Tensor) -> tf.Tensor:
    """
    Of a Gaussian likelihood at inputs [N, D]: [N, 1], or [N, P] where outputs have their own, for which
    GPflow's ``variance_at`` has no room.
    """
    variance = tf.convert_to_tensor(likelihood._variance(X))
    columns = (variance.shape[-1] or tf.shape(variance)[-1]) if variance.shape.rank else 1
    return tf.broadcast_to(variance, tf.concat([tf.shape(X)[:-1], [columns]], axis=0))


def gaussian_normaliser(
    error: tf.Tensor, covariance: tf.Tensor, s: tf.Tensor, alpha: float
) -> tf.Tensor:
    """
    log Z of a Gaussian likelihood: N(y; f, s)^alpha is Gaussian in f with variance s / alpha. Written so
    that nothing cancels for small alpha.

    :param error: y less the mean of f, [..., N, P].
    :param covariance: of f, [..., N, P] or [N, P, P].
    :param s: variance of the noise, [N, P], or [N, 1] for all outputs.
    :return: [..., N].
    """
    constant = -0.5 * tf.math.log(2.0 * np.pi * s) + tf.zeros_like(error)
    if covariance.shape.rank == error.shape.rank:
        if alpha == 0:
            determinant = covariance / s
        else:
            determinant = tf.math.log1p(alpha * covariance / s) / alpha
        squares = tf.square(error) / (alpha * covariance + s)
        return tf.reduce_sum(constant - 0.5 * (determinant + squares), axis=-1)
    s = s + tf.zeros_like(error)
    if alpha == 0:
        determinant = tf.reduce_sum(tf.linalg.diag_part(covariance) / s, axis=-1)
        squares = tf.reduce_sum(tf.square(error) / s, axis=-1)
    else:
        root_s = tf.sqrt(s)
        ratio = covariance / (root_s[:, :, None] * root_s[:, None, :])
        identity = tf.eye(ratio.shape[-1], dtype=tf.float64)
        root = tf.cast(tf.linalg.cholesky(identity + alpha * tf.cast(ratio, tf.float64)), s.dtype)
        log_diagonal = tf.math.log(tf.linalg.diag_part(root))
        determinant = 2.0 / alpha * tf.reduce_sum(log_diagonal, axis=-1)
        whitened = tf.linalg.triangular_solve(root, (error / root_s)[..., None])
        squares = tf.reduce_sum(tf.square(whitened), axis=[-2, -1])
    return tf.reduce_sum(constant, axis=-1) - 0.5 * (determinant + squares)


def has_default_quadrature(likelihood: object) -> bool:
    """Whether a likelihood has the nodes that GPflow gives it where its constructor is told of none."""
    quadrature = likelihood.quadrature  # type: ignore[attr-defined]
    return (
        type(quadrature) is NDiagGHQuadrature
        and quadrature.n_gh == DEFAULT_NUM_GAUSS_HERMITE_POINTS
    )


def has_normal_scale(likelihood: object) -> bool:
    """Whether observations are normal, their mean one latent function, their scale made of another."""
    kind = HeteroskedasticTFPConditional
    methods = "_log_prob", "predict_log_density", "_predict_log_density", "_quadrature_log_prob"
    if not isinstance(likelihood, kind) or not inherits(likelihood, kind, *methods):
        return False
    # GPflow keeps the class in its function only. What else makes a Normal may change location and scale.
    function = inspect.unwrap(likelihood.conditional_distribution)
    if not inspect.isfunction(function):
        return False
    known = inspect.getclosurevars(function).nonlocals.get("distribution_class")
    return known is tfp.distributions.Normal and has_default_quadrature(likelihood)


def scale_normaliser(
    likelihood: HeteroskedasticTFPConditional,
    mean: tf.Tensor,
    covariance: tf.Tensor,
    Y: tf.Tensor,
    alpha: float = 1.0,
) -> tf.Tensor:
    """
    log Z of what :func:`has_normal_scale`: in closed form over the mean given the scale, by quadrature over
    that. A grid for both functions misses densities that are narrower than its distances.

    :param mean: of the two functions, [N, 2].
    :param covariance: [N, 2] or [N, 2, 2].
    :param Y: [N, 1].
    :param alpha: above 0.
    :return: [N].
    """
    slope = tf.zeros_like(mean[:, :1])  # of the first function's mean in the second function
    variance = covariance
    if covariance.shape.rank == 3:
        variance = tf.linalg.diag_part(covariance)
        slope = tf.math.divide_no_nan(covariance[:, 0, 1:], variance[:, 1:])
    given = variance[:, :1] - tf.square(slope) * variance[:, 1:]
    given = tf.maximum(given, tf.zeros_like(given))

    def log_Z(g: tf.Tensor) -> tf.Tensor:
        error = Y - mean[:, :1] - slope * (g - mean[:, 1:])
        s = tf.square(likelihood.scale_transform(g))
        v = tf.broadcast_to(given, tf.shape(g))
        error, v, s = (tf.reshape(x, [-1, 1]) for x in (error, v, s))
        return alpha * tf.reshape(gaussian_normaliser(error, v, s, alpha), tf.shape(g))

    return log_expectation(log_Z, mean[:, 1:], variance[:, 1:])[:, 0] / alpha
