"""Noise with heavy tails as a mixture of Gaussians of several scales."""

from __future__ import annotations

import gpflow
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.base import TensorType
from gpflow.likelihoods import Likelihood, StudentT
from scipy.special import gammainc, gammaincinv

from .kinds import inherits
from .missing import MissingOutputs

__all__ = ["noise_scales"]

# Of draws of a Student-t's precision, those of the smallest the fewest: a density of 3 degrees of freedom is
# then off by 1e-4 nats.
_QUANTILES = np.array([0.0, 0.002, 0.01, 0.04, 0.12, 0.3, 0.55, 0.8, 1.0])


def noise_scales(likelihood: Likelihood) -> tuple[TensorType, np.ndarray] | None:
    """
    What a noise's variance is multiplied by, with which probabilities, to have its tails by Gaussians: a
    Student-t is a scale mixture, of which eight are taken here, each of the average variance of its share.

    :param likelihood: any; outputs of which some may be missing have the noise of those that are there.
    :return: factors and probabilities, both [K]; ``None`` where the noise is no Student-t with a variance.
        Of degrees of freedom that are trained the factors follow them, and are 1 where there is no variance.
    """
    if isinstance(likelihood, MissingOutputs):
        likelihood = likelihood.likelihood
    methods = "_scalar_log_prob", "_conditional_mean", "_conditional_variance"
    if not isinstance(likelihood, StudentT) or not inherits(likelihood, StudentT, *methods):
        return None
    df, shares = likelihood.df, np.diff(_QUANTILES)
    if isinstance(df, (gpflow.Parameter, tf.Variable, tf.Tensor)):
        return _factors_that_follow(tf.cast(tf.convert_to_tensor(df), tf.float64)), shares
    if float(df) <= 2.0:
        return None
    shape = float(df) / 2.0
    below = gammainc(shape - 1.0, gammaincinv(shape, _QUANTILES))
    return np.diff(below) / shares, shares


def _factors_that_follow(df: tf.Tensor) -> tf.Tensor:
    has_variance = df > 2.0
    shape = tf.where(has_variance, df, 3.0) / 2.0
    inner = tfp.math.igammainv(shape, tf.constant(_QUANTILES[1:-1]))
    below = tf.concat([[0.0], tf.math.igamma(shape - 1.0, inner), [1.0]], axis=0)
    factors = (below[1:] - below[:-1]) / np.diff(_QUANTILES)
    return tf.where(has_variance, factors, tf.ones_like(factors))
