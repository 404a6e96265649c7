"""
The likelihoods that GPflow integrates by random draws, such as ``Softmax``, by quasi-random nodes in their
place: the first points of a scrambled Sobol sequence, the same for all observations.

So predictions are a function of their inputs. Where new draws are wanted, as in training, the same random
binary digits are added, without carrying, to all points (a digital shift: L'Ecuyer & Lemieux 2002): every
node is then distributed as the latent functions are, and averages are unbiased. The points stay as even as
they were; shifted modulo 1 they would not. One observation's expected log density has an error 6 to 29 times
smaller than with GPflow's 100 draws (3 to 30 classes, latent functions with standard deviations of 0.3 to 3).

Each component of a mixture has a shift of its own, in predictions always the same one: what a set of nodes
gives one class and takes from another averages out.

Of one latent function nothing need be drawn: it has the nodes of :mod:`.quadrature`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.base import MeanAndVariance, TensorType
from gpflow.likelihoods import Likelihood, MonteCarloLikelihood, Softmax

from ..numerics.draws import digital_shift, even_normals
from ..numerics.linalg import standard_deviation
from ..numerics.warning import warn_of_new_draws
from .batches import by_rows
from .kinds import inherits
from .log_probs import log_prob
from .quadrature import Function, expectation, log_expectation

__all__ = [
    "drawn_density",
    "drawn_expectation",
    "drawn_log_probs",
    "drawn_moments",
    "have_seed",
    "new_nodes",
    "nodes_of_seed",
    "takes_draws",
]

_NEW = object()
#: Of the shift; None for none. Of this thread, as a replica's step is.
_SEED: ContextVar[Any] = ContextVar("seed", default=None)


@contextmanager
def nodes_of_seed(seed: TensorType) -> Iterator[None]:
    """
    For a while nodes are those of a seed.

    :param seed: two integers.
    """
    token = _SEED.set(seed)
    try:
        yield
    finally:
        _SEED.reset(token)


def have_seed() -> bool:
    """Whether nodes are those of a seed, as in a step of training, which has other draws in the next one."""
    return _SEED.get() is not None


@contextmanager
def new_nodes(wanted: bool = True) -> Iterator[None]:
    """For a while nodes are drawn anew, by TensorFlow's global generator, where no seed says which."""
    token = _SEED.set(_NEW if wanted and _SEED.get() is None else _SEED.get())
    try:
        yield
    finally:
        _SEED.reset(token)


def takes_draws(likelihood: Likelihood, method: str) -> bool:
    """Whether GPflow would compute a public method of a likelihood by draws."""
    return (
        isinstance(likelihood, MonteCarloLikelihood)
        and inherits(likelihood, Likelihood, method)
        and inherits(likelihood, MonteCarloLikelihood, f"_{method}", "_mc_quadrature")
    )


def drawn_expectation(
    likelihood: MonteCarloLikelihood, X: tf.Tensor, Fmu: tf.Tensor, Fvar: tf.Tensor, Y: tf.Tensor
) -> tf.Tensor:
    """
    The expected log density of each observation, [..., N].

    :param X: [N, D].
    :param Fmu: [..., N, P], leading axes for the components of mixtures; they may differ in all that follows.
    :param Fvar: likewise.
    :param Y: [N, ...].
    """
    if Fmu.shape[-1] == 1:
        return expectation(_of_values(likelihood, X, Y), Fmu, Fvar)[..., 0]
    F = _at_nodes(likelihood, Fmu, Fvar)
    return tf.reduce_mean(drawn_log_probs(likelihood, X, F, Y), axis=0)


def drawn_density(
    likelihood: MonteCarloLikelihood, X: tf.Tensor, Fmu: tf.Tensor, Fvar: tf.Tensor, Y: tf.Tensor
) -> tf.Tensor:
    """The log predictive density of each observation, [..., N]."""
    if Fmu.shape[-1] == 1:
        return log_expectation(_of_values(likelihood, X, Y), Fmu, Fvar)[..., 0]
    F = _at_nodes(likelihood, Fmu, Fvar)
    log_p = drawn_log_probs(likelihood, X, F, Y)
    return tf.reduce_logsumexp(log_p, axis=0) - np.log(F.shape[0])


def drawn_moments(
    likelihood: MonteCarloLikelihood, X: tf.Tensor, Fmu: tf.Tensor, Fvar: tf.Tensor
) -> MeanAndVariance:
    """Mean and variance of new observations."""

    # Given values [Q, ..., N, P] of the functions.
    mean_of, variance_of = (
        partial(by_rows, moment, _inputs(likelihood, X))
        for moment in (likelihood.conditional_mean, likelihood.conditional_variance)
    )
    # Of several moments, as of classes, a function's values do not make one each.
    if Fmu.shape[-1] == 1 and mean_of(Fmu[None]).shape[-1] == 1:
        mean = expectation(mean_of, Fmu, Fvar)

        def square(F: tf.Tensor) -> tf.Tensor:
            return variance_of(F) + tf.square(mean_of(F) - mean)

        return mean, expectation(square, Fmu, Fvar)
    F = _at_nodes(likelihood, Fmu, Fvar)
    means, variances = mean_of(F), variance_of(F)
    mean = tf.reduce_mean(means, axis=0)
    return mean, tf.reduce_mean(variances + tf.square(means - mean), axis=0)


def _of_values(likelihood: Likelihood, X: tf.Tensor, Y: tf.Tensor) -> Function:
    """The log density of observations as a function of values [Q, ..., N, 1] of one latent function."""
    return lambda F: drawn_log_probs(likelihood, X, F, Y)[..., None]


def drawn_log_probs(likelihood: Likelihood, X: tf.Tensor, F: tf.Tensor, Y: tf.Tensor) -> tf.Tensor:
    """Log densities [Q, ..., N] of the observations, given values [Q, ..., N, P] of the latent functions."""
    return log_prob(likelihood, _inputs(likelihood, X), F, Y)


def _inputs(likelihood: Likelihood, X: tf.Tensor) -> tf.Tensor:
    """None of the columns of images for a likelihood that does not look at them."""
    return X[..., :0] if type(likelihood) is Softmax else X


def _at_nodes(likelihood: MonteCarloLikelihood, Fmu: tf.Tensor, Fvar: tf.Tensor) -> tf.Tensor:
    """The latent functions at the nodes, [Q, ..., N, P]."""
    scale = standard_deviation(Fvar)
    components = tf.shape(Fmu + scale)[:-2] if (Fmu.shape.rank or 2) > 2 else None
    nodes = _nodes(likelihood.num_monte_carlo_points, Fmu.shape[-1], components)
    last = nodes.shape.rank - 2
    nodes = tf.transpose(nodes, [last, *range(last), last + 1])[..., None, :]
    return Fmu + scale * tf.cast(nodes, Fmu.dtype)


def _nodes(least: int, num_functions: int, components: tf.Tensor | None) -> tf.Tensor:
    """Standard normal [..., Q, P] for so many components, Q at least ``least``."""
    seed = _SEED.get()
    if seed is None:
        if components is None:
            return even_normals(least, num_functions)
        seed = [0, 0]
    elif seed is _NEW:
        warn_of_new_draws()
        seed = None
    return even_normals(least, num_functions, digital_shift(num_functions, seed, components))
