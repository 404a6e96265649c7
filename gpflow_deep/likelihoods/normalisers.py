r"""
The normaliser that expectation propagation needs of a likelihood,

.. math:: \log Z_\alpha = \tfrac1\alpha \log \int N(f; m, V) p(y | f)^\alpha df

(power EP: Bui, Yan & Turner 2017; 1 is EP), which tends to the expected log density for alpha to 0. In closed
form for Gaussian and probit Bernoulli likelihoods, by quadrature for other likelihoods of one function, by
given draws for the rest.
"""

from __future__ import annotations

from functools import singledispatch
from typing import NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.base import TensorType
from gpflow.likelihoods import (
    Bernoulli,
    Gaussian,
    Likelihood,
    MonteCarloLikelihood,
    ScalarLikelihood,
    SwitchedLikelihood,
)
from gpflow.likelihoods.utils import inv_probit

__all__ = ["log_normaliser", "probit"]

_NUM_NODES = 60


def probit(x: TensorType) -> tf.Tensor:
    """
    The standard normal distribution function, for ``Bernoulli(invlink=probit)``: GPflow's ``inv_probit``
    without its distance of 0.001 from 0 and 1.
    """
    return 0.5 * tf.math.erfc(-x / np.sqrt(2.0))


def log_normaliser(
    likelihood: Likelihood,
    X: tf.Tensor,
    mean: tf.Tensor,
    covariance: tf.Tensor,
    Y: tf.Tensor,
    alpha: float = 1.0,
    noise: TensorType | None = None,
) -> tf.Tensor:
    """
    log Z of every point.

    :param X: inputs [N, D].
    :param mean: of the latent functions, [N, P].
    :param covariance: their variances [N, P], or covariances [N, P, P].
    :param Y: observations [N, ...].
    :param alpha: the power, from 0 to 1.
    :param noise: standard normal draws [S, P], the same for all points, for likelihoods with neither
        a closed form nor a quadrature.
    :return: [N].
    :raises ValueError: where such draws are needed and not given.
    """
    return _normaliser(likelihood, _Query(X, mean, covariance, Y, alpha, noise))


class _Query(NamedTuple):
    """The arguments of :func:`log_normaliser` beside the likelihood."""

    X: tf.Tensor
    mean: tf.Tensor
    covariance: tf.Tensor
    Y: tf.Tensor
    alpha: float
    noise: TensorType | None

    @property
    def variance(self) -> tf.Tensor:
        """[N, P]"""
        full = self.covariance.shape.rank == 3
        return tf.linalg.diag_part(self.covariance) if full else self.covariance

    @property
    def is_joint(self) -> bool:
        """Whether there are several latent functions that are correlated."""
        return self.covariance.shape.rank == 3 and self.mean.shape[-1] > 1


@singledispatch
def _normaliser(likelihood: Likelihood, at: _Query) -> tf.Tensor:
    # For these two powers GPflow has the answer, where it needs no draws of its own.
    draws = isinstance(likelihood, MonteCarloLikelihood) or at.covariance.shape.rank == 3
    if draws or at.alpha not in (0.0, 1.0):
        return _by_draws(likelihood, at)
    if at.alpha == 1:
        return likelihood.predict_log_density(at.X, at.mean, at.covariance, at.Y)
    return likelihood.variational_expectations(at.X, at.mean, at.covariance, at.Y)


@_normaliser.register
def _gaussian(likelihood: Gaussian, at: _Query) -> tf.Tensor:
    X, mean, covariance, Y, alpha, _ = at
    # N(y; f, s)^alpha is Gaussian in f with variance s / alpha; written so that nothing cancels for
    # small alpha.
    s = likelihood.variance_at(X)  # [N, 1] or [N, P]
    error = Y - mean
    constant = -0.5 * tf.math.log(2.0 * np.pi * s) + tf.zeros_like(mean)
    if covariance.shape.rank == 2:
        if alpha == 0:
            determinant = covariance / s
        else:
            determinant = tf.math.log1p(alpha * covariance / s) / alpha
        squares = tf.square(error) / (alpha * covariance + s)
        return tf.reduce_sum(constant - 0.5 * (determinant + squares), axis=-1)
    s = s + tf.zeros_like(mean)
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


@_normaliser.register
def _bernoulli(likelihood: Bernoulli, at: _Query) -> tf.Tensor:
    if at.alpha != 1 or at.is_joint or likelihood.invlink not in (inv_probit, probit):
        return _scalar(likelihood, at)
    # The normal distribution function of f integrates to that of its mean, widened.
    scaled = at.mean / tf.sqrt(1.0 + at.variance)
    scaled = tf.where(at.Y > 0.5, scaled, -scaled)
    if likelihood.invlink is probit:
        log_p = tfp.math.logerfc(-scaled / np.sqrt(2.0)) - np.log(2.0)
    else:
        log_p = tf.math.log(inv_probit(scaled))
    return tf.reduce_sum(log_p, axis=-1)


@_normaliser.register
def _scalar(likelihood: ScalarLikelihood, at: _Query) -> tf.Tensor:
    X, mean, _, Y, alpha, _ = at
    if at.is_joint:
        return _by_draws(likelihood, at)
    scale = tf.sqrt(at.variance)
    nodes, weights = _gauss_hermite(mean.dtype)
    F = mean + nodes[:, None, None] * scale  # [Q, N, P]
    log_p = likelihood._scalar_log_prob(X[None], F, Y[None])  # [Q, N, P]
    if alpha == 0:
        expected = tf.tensordot(weights, log_p, 1)
    else:
        log_weights = tf.math.log(weights)[:, None, None]
        expected = tf.reduce_logsumexp(alpha * log_p + log_weights, axis=0) / alpha
    return tf.reduce_sum(expected, axis=-1)


_normaliser.register(SwitchedLikelihood, _normaliser.dispatch(Likelihood))


def _by_draws(likelihood: Likelihood, at: _Query) -> tf.Tensor:
    X, mean, covariance, Y, alpha, noise = at
    if noise is None:
        raise ValueError(
            f"noise: expected standard normal draws [S, {mean.shape[-1]}] for"
            f" {type(likelihood).__name__}, got None."
        )
    noise = tf.cast(noise, mean.dtype)
    if covariance.shape.rank == 2:
        F = mean + tf.sqrt(covariance) * noise[:, None, :]  # [S, N, P]
    else:
        root = tf.cast(tf.linalg.cholesky(tf.cast(covariance, tf.float64)), mean.dtype)
        F = mean + tf.einsum("npq,sq->snp", root, noise)
    S, N = noise.shape[0], tf.shape(mean)[0]

    def rows(x: tf.Tensor) -> tf.Tensor:
        return tf.reshape(tf.broadcast_to(x, tf.concat([[S], tf.shape(x)], 0)), [-1, x.shape[-1]])

    log_p = likelihood.log_prob(rows(X), tf.reshape(F, [-1, F.shape[-1]]), rows(Y))
    log_p = tf.reshape(log_p, [S, N])
    if alpha == 0:
        return tf.reduce_mean(log_p, axis=0)
    log_S = tf.math.log(tf.cast(S, mean.dtype))
    return (tf.reduce_logsumexp(alpha * log_p, axis=0) - log_S) / alpha


def _gauss_hermite(dtype: tf.DType) -> tuple[tf.Tensor, tf.Tensor]:
    """Nodes and weights for a standard normal."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(_NUM_NODES)
    return tf.constant(nodes, dtype), tf.constant(weights / np.sqrt(2.0 * np.pi), dtype)
