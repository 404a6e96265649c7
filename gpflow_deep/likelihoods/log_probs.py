"""Log densities of observations that neither overflow nor lose their gradients far from the data."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import tensorflow as tf
from gpflow.base import TensorType
from gpflow.likelihoods import (
    Bernoulli,
    Likelihood,
    Ordinal,
    ScalarLikelihood,
    Softmax,
    SwitchedLikelihood,
)

from .batches import by_likelihood, by_rows, needs_rows
from .kinds import inherits, is_switched

__all__ = [
    "LEAST_ORDINAL",
    "MOST_ORDINAL",
    "is_ordinal",
    "log_prob",
    "log_probit",
    "ordinal_log_density",
    "ordinal_probabilities",
    "ordinal_probability",
    "probit",
    "scalar_log_prob",
]


# From here on the normal distribution function is 0 or 1.
_FAR = 40.0
# What GPflow adds to the probability of an observed bin, and the most that this may be: GPflow's probit has a
# distance of 0.001 from 0 and 1.
LEAST_ORDINAL = 1e-6
MOST_ORDINAL = 1.0 - 2e-3


def probit(x: TensorType) -> tf.Tensor:
    """
    The standard normal distribution function, for ``Bernoulli(invlink=probit)``: GPflow's ``inv_probit``
    without its distance of 0.001 from 0 and 1.

    >>> likelihood = gpflow.likelihoods.Bernoulli(invlink=gd.likelihoods.probit)
    >>> float(gd.likelihoods.probit(tf.constant(0.0)))
    0.5
    """
    return 0.5 * tf.math.erfc(-x / np.sqrt(2.0))


def log_probit(x: TensorType) -> tf.Tensor:
    """
    The logarithm of :func:`probit`, finite with its first two derivatives: below -10 by Laplace's asymptotic
    series, whose first term left out is below 1e-9 there. (TensorFlow Probability's takes far longer.)
    """
    x = tf.convert_to_tensor(x)
    far = x < -10.0
    near_x, far_x = (tf.where(mask, tf.cast(-10.0, x.dtype), x) for mask in (far, ~far))
    inverse_square = 1.0 / tf.square(far_x)
    series = tf.ones_like(x)
    for k in range(15, 0, -2):
        series = 1.0 - k * inverse_square * series
    tail = _log_normal(far_x) + tf.math.log(series) - tf.math.log(-far_x)
    return tf.where(far, tail, _log_probit_near(near_x))


@tf.custom_gradient
def _log_probit_near(x: tf.Tensor) -> tuple[tf.Tensor, Callable]:
    # Divided by probabilities instead, second derivatives in float32 are infinite from -9 on.
    def gradient(upstream: tf.Tensor) -> tf.Tensor:
        return upstream * tf.exp(_log_normal(x) - _log_probit_near(x))

    return tf.math.log(probit(x)), gradient


def _log_normal(x: tf.Tensor) -> tf.Tensor:
    return -0.5 * (tf.square(x) + np.log(2.0 * np.pi))


def log_prob(likelihood: Likelihood, X: TensorType, F: TensorType, Y: TensorType) -> tf.Tensor:
    """
    ``likelihood.log_prob`` [..., N], by :func:`scalar_log_prob` where the likelihood is scalar; arguments are
    broadcast, such as draws of functions [..., N, P] for inputs [N, D] and observations [N, ...].

    >>> F = tf.constant([[40.0]], tf.float64)
    >>> likelihood = gpflow.likelihoods.Bernoulli(invlink=gd.likelihoods.probit)
    >>> bool(np.isfinite(gd.likelihoods.log_prob(likelihood, F, F, tf.zeros_like(F))))
    True
    """
    X, F, Y = map(tf.convert_to_tensor, (X, F, Y))
    if needs_rows(likelihood, X, F, Y=Y):
        return by_rows(partial(log_prob, likelihood), X, F, Y)
    own = "_log_prob", "log_prob"
    if is_switched(likelihood) and inherits(
        likelihood, SwitchedLikelihood, "_scalar_log_prob", *own
    ):
        return by_likelihood(log_prob, likelihood, X, F, Y)
    if isinstance(likelihood, ScalarLikelihood) and inherits(likelihood, ScalarLikelihood, *own):
        return tf.reduce_sum(scalar_log_prob(likelihood, X, F, Y), axis=-1)
    if isinstance(likelihood, Softmax):
        # Models take classes of any type, and so do the other likelihoods of classes; TensorFlow does not.
        Y = tf.cast(Y, tf.int64)
    return likelihood.log_prob(X, F, Y)


def scalar_log_prob(
    likelihood: ScalarLikelihood, X: TensorType, F: TensorType, Y: TensorType
) -> tf.Tensor:
    """
    log p(y | f), function by function. For GPflow's ``Bernoulli`` with a probit or sigmoid link it is
    computed from the logarithm of the link, for other likelihoods by their own method.

    :param X: inputs [..., D].
    :param F: latent functions [..., P].
    :param Y: observations [..., P].
    :return: [..., P].
    """
    if isinstance(likelihood, Bernoulli) and inherits(likelihood, Bernoulli, "_scalar_log_prob"):
        log_link = _log_link(likelihood.invlink)
        if log_link is not None:
            # Both links are symmetric: 1 - p(f) = p(-f).
            return log_link(tf.where(tf.equal(Y, 1), F, -F))
    if is_ordinal(likelihood):
        return ordinal_log_density(likelihood, F, Y)
    return likelihood._scalar_log_prob(X, F, Y)


def is_ordinal(likelihood: Likelihood) -> bool:
    """Whether a likelihood has the log density of GPflow's ordinal one."""
    return isinstance(likelihood, Ordinal) and inherits(likelihood, Ordinal, "_scalar_log_prob")


def ordinal_log_density(
    likelihood: Ordinal, F: TensorType, Y: TensorType, variance: TensorType = 0.0
) -> tf.Tensor:
    """
    The log density of bins' numbers under an ordinal likelihood; arguments and shapes as
    :func:`ordinal_probability`.
    """
    return tf.math.log(ordinal_probability(likelihood, F, Y, variance) + LEAST_ORDINAL)


def ordinal_probability(
    likelihood: Ordinal, F: TensorType, Y: TensorType, variance: TensorType = 0.0
) -> tf.Tensor:
    """
    The probability of an ordinal likelihood's bin, from 0 to ``MOST_ORDINAL``: GPflow's, without its infinite
    outer edges, of which TensorFlow's error function makes NaN in double precision. Normal functions widen
    the bins' normal edges.

    :param F: latent functions [...], or their means.
    :param Y: numbers of bins, broadcast against ``F``.
    :param variance: of the latent functions, likewise.
    """
    sigma = tf.convert_to_tensor(likelihood.sigma)
    width = tf.sqrt(tf.square(sigma) + variance)
    # As far as gradients stay finite.
    far = [float(np.sqrt(sigma.dtype.max))]
    edges = tf.constant(np.concatenate([np.negative(far), likelihood.bin_edges, far]), sigma.dtype)
    bins = tf.cast(Y, tf.int32)
    low, high = (
        tf.clip_by_value((tf.gather(edges, index) - F) / width, -_FAR, _FAR)
        for index in (bins, bins + 1)
    )
    # Of a bin and its mirror image the one in the lower tail, which has all of its digits.
    mirrored = low + high > 0.0
    low, high = tf.where(mirrored, -high, low), tf.where(mirrored, -low, high)
    return MOST_ORDINAL * (probit(high) - probit(low))


def ordinal_probabilities(
    likelihood: Ordinal, F: TensorType, variance: TensorType = 0.0
) -> tf.Tensor:
    """
    The probabilities of all K bins, [..., P, K].

    :param F: latent functions [..., P], or their means.
    :param variance: of the latent functions.
    """
    F, variance = (tf.convert_to_tensor(x)[..., None] for x in (F, tf.cast(variance, F.dtype)))
    return ordinal_probability(likelihood, F, np.arange(likelihood.num_bins), variance)


def _log_link(invlink: Callable) -> Callable | None:
    if invlink is probit:
        return log_probit
    return tf.math.log_sigmoid if invlink is tf.math.sigmoid else None
