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
from gpflow.base import TensorType
from gpflow.likelihoods import (
    Gaussian,
    HeteroskedasticTFPConditional,
    Likelihood,
    MonteCarloLikelihood,
    MultiClass,
    ScalarLikelihood,
    SwitchedLikelihood,
)

from ..numerics.factorisations import add_jitter, cholesky
from ..numerics.linalg import standard_deviation
from .batches import by_likelihood
from .expectations import each_log_density, predict_log_density, variational_expectations
from .gaussian import gaussian_normaliser, has_normal_scale, noise_variance, scale_normaliser
from .kinds import inherits, is_switched
from .log_probs import probit
from .monte_carlo import drawn_log_probs
from .robust_max import largest_normaliser, normaliser_given_largest

__all__ = ["Query", "log_normaliser", "normaliser"]


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

    For a Gaussian likelihood it is the log density of the observation under the sum of both variances:

    >>> likelihood = gpflow.likelihoods.Gaussian(0.1)
    >>> F = tf.zeros([1, 1], tf.float64)
    >>> log_Z = gd.likelihoods.log_normaliser(likelihood, F, F, F + 0.9, F + 1.0)
    >>> bool(np.isclose(log_Z, -0.5 * np.log(2 * np.pi) - 0.5))
    True

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
    X, mean, covariance, Y = map(tf.convert_to_tensor, (X, mean, covariance, Y))
    return normaliser(likelihood, Query(X, mean, covariance, Y, alpha, noise))


class Query(NamedTuple):
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
        return tf.linalg.diag_part(self.covariance) if self.has_covariances else self.covariance

    @property
    def has_covariances(self) -> bool:
        """Whether there are covariances of the latent functions, [N, P, P], and not their variances."""
        return self.covariance.shape.rank > self.mean.shape.rank

    @property
    def is_joint(self) -> bool:
        """Whether there are several latent functions that are correlated."""
        return self.has_covariances and self.mean.shape[-1] > 1


@singledispatch
def normaliser(likelihood: Likelihood, at: Query) -> tf.Tensor:
    """log Z [N] by the kind of likelihood: what :func:`log_normaliser` calls, for others to register with."""
    # For these two powers the likelihood has the answer, where it needs no draws of its own.
    draws = isinstance(likelihood, MonteCarloLikelihood) or at.covariance.shape.rank == 3
    if draws or at.alpha not in (0.0, 1.0):
        return _by_draws(likelihood, at)
    return _at_ends(likelihood, at)


def _at_ends(likelihood: Likelihood, at: Query) -> tf.Tensor:
    function = predict_log_density if at.alpha == 1 else variational_expectations
    return function(likelihood, at.X, at.mean, at.variance, at.Y)


@normaliser.register
def _gaussian(likelihood: Gaussian, at: Query) -> tf.Tensor:
    methods = "_scalar_log_prob", "_variational_expectations", "_predict_log_density"
    if not inherits(likelihood, Gaussian, *methods):
        return _scalar(likelihood, at)
    s = noise_variance(likelihood, at.X)
    return gaussian_normaliser(at.Y - at.mean, at.covariance, s, at.alpha)


@normaliser.register
def _heteroskedastic(likelihood: HeteroskedasticTFPConditional, at: Query) -> tf.Tensor:
    if at.alpha == 0 or not has_normal_scale(likelihood):
        return normaliser.dispatch(Likelihood)(likelihood, at)
    return scale_normaliser(likelihood, at.mean, at.covariance, at.Y, at.alpha)


@normaliser.register
def _scalar(likelihood: ScalarLikelihood, at: Query) -> tf.Tensor:
    # Expected log densities ask for the variances only.
    if at.alpha == 0 or (at.alpha == 1 and not at.is_joint):
        return _at_ends(likelihood, at)
    if at.is_joint or isinstance(likelihood, MonteCarloLikelihood):
        return _by_draws(likelihood, at)
    each = each_log_density(likelihood, at.X, at.mean, at.variance, at.Y, at.alpha)
    return tf.reduce_sum(each, axis=-1)


@normaliser.register
def _robust_max(likelihood: MultiClass, at: Query) -> tf.Tensor:
    """Of two values by the probability that the class's function is the largest: draws have no gradients."""
    methods = "_log_prob", "_variational_expectations", "_predict_log_density"
    if not inherits(likelihood, MultiClass, *methods):
        return normaliser.dispatch(Likelihood)(likelihood, at)
    if not at.is_joint and at.alpha in (0.0, 1.0):
        return _at_ends(likelihood, at)
    if not at.is_joint:
        return largest_normaliser(likelihood, at.mean, at.variance, at.Y, at.alpha)
    return normaliser_given_largest(likelihood, _probability_of_largest(likelihood, at), at.alpha)


def _probability_of_largest(likelihood: Likelihood, at: Query) -> tf.Tensor:
    """
    The probability [N] that the function of the observed class is the largest of correlated ones: exact given
    draws of the others.
    """
    noise = _draws_for(likelihood, at)
    observed = tf.one_hot(tf.reshape(tf.cast(at.Y, tf.int32), [-1]), at.mean.shape[-1])
    order = tf.argsort(observed, stable=True)  # the class's own last
    mean = tf.gather(at.mean, order, batch_dims=1)
    covariance = tf.gather(at.covariance, order, batch_dims=1)
    covariance = tf.gather(covariance, order, axis=2, batch_dims=1)
    root = _root(covariance)
    others, scale = root[:, :, :-1], root[:, -1, -1]
    F = mean + tf.einsum("npq,sq->snp", others, noise[:, :-1])  # its own: the mean given the others
    ahead = F[..., -1] - tf.reduce_max(F[..., :-1], axis=-1)  # [S, N]
    return tf.reduce_mean(probit(ahead / scale), axis=0)


@normaliser.register
def _switched(likelihood: SwitchedLikelihood, at: Query) -> tf.Tensor:
    if at.is_joint or not is_switched(likelihood):
        return normaliser.dispatch(Likelihood)(likelihood, at)

    def of_part(
        part: Likelihood, X: tf.Tensor, mean: tf.Tensor, variance: tf.Tensor, Y: tf.Tensor
    ) -> tf.Tensor:
        return normaliser(part, Query(X, mean, variance, Y, at.alpha, at.noise))

    return by_likelihood(of_part, likelihood, at.X, at.mean, at.variance, at.Y)


def _draws_for(likelihood: Likelihood, at: Query) -> tf.Tensor:
    if at.noise is None:
        raise ValueError(
            f"noise: expected standard normal draws [S, {at.mean.shape[-1]}] for"
            f" {type(likelihood).__name__}, got None."
        )
    return tf.cast(at.noise, at.mean.dtype)


def _root(covariance: tf.Tensor) -> tf.Tensor:
    """The Cholesky factors of covariances [N, P, P] that may be singular, to rounding."""
    numbers = np.finfo(covariance.dtype.as_numpy_dtype)
    largest = tf.reduce_max(tf.linalg.diag_part(covariance), axis=-1)
    floor = largest * covariance.shape[-1] * numbers.eps
    floor += numbers.tiny**0.5  # where there is no variance at all
    jitter = 4.0 * tf.stop_gradient(floor)[:, None, None]
    return cholesky(add_jitter(covariance, jitter), "the covariance of a point's functions", {})


def _by_draws(likelihood: Likelihood, at: Query) -> tf.Tensor:
    X, mean, covariance, Y, alpha, _ = at
    noise = _draws_for(likelihood, at)
    if covariance.shape.rank == 2:
        F = mean + standard_deviation(covariance) * noise[:, None, :]  # [S, N, P]
    else:
        F = mean + tf.einsum("npq,sq->snp", _root(covariance), noise)
    log_p = drawn_log_probs(likelihood, X, F, Y)
    if alpha == 0:
        return tf.reduce_mean(log_p, axis=0)
    log_S = tf.math.log(tf.cast(noise.shape[0], mean.dtype))
    return (tf.reduce_logsumexp(alpha * log_p, axis=0) - log_S) / alpha
