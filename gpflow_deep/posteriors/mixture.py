"""Mixtures of Gaussians over the last layer's functions: what every deep model predicts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.base import MeanAndVariance, TensorType

from ..numerics.factorisations import cholesky

__all__ = [
    "Mixture",
    "average",
    "equal_log_weights",
    "joint_covariance",
    "moments",
    "sample_joint_mixture",
    "sample_mixture",
    "with_noise_scales",
]

Noise = Sequence[TensorType] | None


class Mixture(NamedTuple):
    """A mixture of S Gaussians at each of N points."""

    means: tf.Tensor  # [S, N, P]
    variances: tf.Tensor  # [S, N, P]
    log_weights: tf.Tensor  # [S]


def equal_log_weights(num_samples: TensorType) -> tf.Tensor:
    """Logarithms of S equal weights."""
    size = tf.cast(num_samples, gpflow.default_float())
    return tf.fill([num_samples], -tf.math.log(size))


def average(x: tf.Tensor, log_weights: tf.Tensor) -> tf.Tensor:
    """Weighted mean over the components, the first axis."""
    return tf.tensordot(tf.exp(log_weights), x, [[0], [0]])


def with_noise_scales(
    functions: Mixture, observed: Mixture, factors: TensorType, shares: np.ndarray
) -> Mixture:
    """
    Of observations, whose noise is multiplied by one of the factors [K].

    :param functions: the mixture of S components without the noise.
    :param observed: with it.
    :param shares: the factors' probabilities [K]; on average the factor is one.
    :return: of K S components.
    """
    dtype = functions.means.dtype
    scales = tf.cast(factors, dtype)[:, None, None, None]
    variances = functions.variances + scales * (observed.variances - functions.variances)
    log_weights = tf.constant(np.log(shares)[:, None], dtype) + observed.log_weights
    rows = tf.shape(observed.means)[1:]
    return Mixture(
        tf.tile(observed.means, [len(shares), 1, 1]),
        tf.reshape(variances, tf.concat([[-1], rows], axis=0)),
        tf.reshape(log_weights, [-1]),
    )


def moments(mixture: Mixture, full_output_cov: bool = False) -> MeanAndVariance:
    """Mean [N, P] and variances of a mixture, or the covariance of the outputs [N, P, P]."""
    means, variances, log_weights = mixture
    mean = average(means, log_weights)
    centred = means - mean
    if full_output_cov:
        between = centred[..., :, None] * centred[..., None, :]
    else:
        between = tf.square(centred)
    return mean, average(variances + between, log_weights)


def joint_covariance(mixture: Mixture, variance: tf.Tensor, full_output_cov: bool) -> tf.Tensor:
    """
    The covariance of a mixture of joint Gaussians, [P, N, N] or [N, P, N, P], with the given variances
    [N, P] on its diagonal: its correlations are the mixture's.
    """
    means, covariances, log_weights = mixture
    centred = means - average(means, log_weights)  # [S, N, P]
    weighted = tf.exp(log_weights)[:, None, None] * centred
    if full_output_cov:
        N, P = tf.shape(variance)[0], variance.shape[1]
        covariance = average(covariances, log_weights)
        covariance += tf.tensordot(weighted, centred, [[0], [0]])  # [N, P, N, P]
        square = tf.reshape(covariance, [N * P, N * P])
        scale = _rescaling(square, tf.reshape(variance, [-1]))
        return tf.reshape(square * scale[:, None] * scale, [N, P, N, P])
    covariance = average(covariances, log_weights)  # [P, N, N]
    covariance += tf.einsum("snp,smp->pnm", weighted, centred)
    scale = _rescaling(covariance, tf.transpose(variance))
    return covariance * scale[..., :, None] * scale[..., None, :]


def _rescaling(covariance: tf.Tensor, variance: tf.Tensor) -> tf.Tensor:
    """By what to multiply rows and columns, for these variances on the diagonal."""
    diagonal = tf.linalg.diag_part(covariance)
    tiny = np.finfo(diagonal.dtype.as_numpy_dtype).tiny
    return tf.sqrt(variance / tf.maximum(diagonal, tiny))


def sample_mixture(
    mixture: Mixture, num_samples: int, mixing: TensorType | None = None
) -> tf.Tensor:
    """
    New draws [num_samples, N, P] from a mixture, each point by itself.

    :param mixing: W [P, T], where the deviations from the means are mixtures of independent ones, whose
        variances [S, N, T] are given.
    """
    means, variances, log_weights = mixture
    N = tf.shape(means)[1]
    component = tf.random.categorical(log_weights[None], num_samples * N)
    rows = tf.stack([component[0], tf.tile(tf.range(N, dtype=tf.int64), [num_samples])], axis=-1)
    mean, variance = (
        tf.reshape(tf.gather_nd(x, rows), [num_samples, N, x.shape[-1]]) for x in (means, variances)
    )
    shape = tf.shape(mean if mixing is None else variance)
    draws = tf.sqrt(variance) * tf.random.normal(shape, dtype=mean.dtype)
    return mean + _mixed(draws, mixing)


def sample_joint_mixture(
    mixture: Mixture, num_samples: int, mixing: TensorType | None = None
) -> tf.Tensor:
    """
    New draws [num_samples, N, P], coherent over the points, from a mixture of joint Gaussians.

    :param mixing: as for :func:`sample_mixture`, with covariances [S, T, N, N].
    """
    means, covariances, log_weights = mixture  # [S, N, P], [S, P, N, N], [S]
    component = tf.random.categorical(log_weights[None], num_samples)[0]
    # The jitter, and what rounding may have taken from the smallest eigenvalue of a sum of N terms.
    diagonal = tf.linalg.diag_part(covariances)
    eps = np.finfo(means.dtype.as_numpy_dtype).eps
    rounding = eps * tf.cast(tf.shape(means)[1], means.dtype) * tf.reduce_max(diagonal)
    diagonal += gpflow.config.default_jitter() + rounding
    scale = cholesky(
        tf.linalg.set_diag(covariances, diagonal), "the covariance of the outputs at the inputs", {}
    )
    mean = tf.gather(means, component)
    num_gps = means.shape[-1] if mixing is None else mixing.shape[-1]
    noise = tf.random.normal([num_samples, num_gps, tf.shape(means)[1]], dtype=mean.dtype)
    draws = tf.linalg.matvec(tf.gather(scale, component), noise)  # [num_samples, P or T, N]
    return mean + _mixed(tf.linalg.matrix_transpose(draws), mixing)


def _mixed(draws: tf.Tensor, mixing: TensorType | None) -> tf.Tensor:
    return draws if mixing is None else tf.matmul(draws, mixing, transpose_b=True)
