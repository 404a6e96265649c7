"""
What GPflow's likelihoods say of observations when the latent functions are normal, by quadrature that can be
relied on.

The functions here are the likelihoods' own methods of the same names wherever these are more than GPflow's
Gauss-Hermite quadrature of 20 nodes or its Monte Carlo: closed forms, whatever a likelihood of yours
overrides, a ``quadrature`` given to its constructor. In place of those 20 nodes they use :mod:`.quadrature`,
in place of random draws :mod:`.monte_carlo`.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.base import MeanAndVariance
from gpflow.likelihoods import (
    Bernoulli,
    Exponential,
    Gamma,
    Likelihood,
    Ordinal,
    Poisson,
    ScalarLikelihood,
    StudentT,
)
from gpflow.likelihoods.utils import inv_probit

from .batches import by_likelihood, by_rows, needs_rows
from .gaussian import has_default_quadrature, has_normal_scale, scale_normaliser
from .kinds import inherits, is_switched
from .log_probs import (
    is_ordinal,
    log_probit,
    ordinal_probabilities,
    probit,
    scalar_log_prob,
)
from .monte_carlo import drawn_density, drawn_expectation, drawn_moments, takes_draws
from .ordinal import ordinal_normaliser
from .quadrature import expectation, log_expectation
from .robust_max import has_robust_max, largest_moments, largest_normaliser

__all__ = [
    "each_expectation",
    "each_log_density",
    "needs_quadrature",
    "predict_log_density",
    "predict_mean_and_var",
    "variational_expectations",
]

# GPflow's methods that have a closed form for one link and fall back to the quadrature for others.
_CLOSED_FORMS = {Bernoulli: inv_probit, Poisson: tf.exp, Gamma: tf.exp, Exponential: tf.exp}


def variational_expectations(
    likelihood: Likelihood, X: tf.Tensor, Fmu: tf.Tensor, Fvar: tf.Tensor, Y: tf.Tensor
) -> tf.Tensor:
    """
    The expected log density of each observation.

    >>> likelihood = gpflow.likelihoods.StudentT(scale=0.02)
    >>> F = tf.zeros([20, 1], tf.float64)
    >>> gd.likelihoods.variational_expectations(likelihood, X, F, F + 0.5, Y).shape
    TensorShape([20])

    :param likelihood: any of GPflow's, or one of yours.
    :param X: inputs [N, D], of which functions that the likelihood is made of are asked once for all draws.
    :param Fmu: means of the latent functions [..., N, P], leading axes for draws.
    :param Fvar: their variances [..., N, P].
    :param Y: observations [N, ...].
    :return: [..., N].
    """
    X, Fmu, Fvar, Y = map(tf.convert_to_tensor, (X, Fmu, Fvar, Y))
    if takes_draws(likelihood, "variational_expectations"):
        return drawn_expectation(likelihood, X, Fmu, Fvar, Y)
    if needs_rows(likelihood, X, Fmu, Fvar, Y=Y):
        return by_rows(partial(variational_expectations, likelihood), X, Fmu, Fvar, Y)
    if is_switched(likelihood):
        return by_likelihood(variational_expectations, likelihood, X, Fmu, Fvar, Y)
    if has_robust_max(likelihood):
        return largest_normaliser(likelihood, Fmu, Fvar, Y, 0.0)
    if not needs_quadrature(likelihood, "variational_expectations"):
        return _own(likelihood, "variational_expectations", X, Fmu, Fvar, Y)
    return tf.reduce_sum(each_expectation(likelihood, X, Fmu, Fvar, Y), axis=-1)


def predict_log_density(
    likelihood: Likelihood, X: tf.Tensor, Fmu: tf.Tensor, Fvar: tf.Tensor, Y: tf.Tensor
) -> tf.Tensor:
    """
    The log predictive density of each observation; arguments and shapes as :func:`variational_expectations`.

    >>> likelihood = gpflow.likelihoods.Gaussian(0.1)
    >>> F = tf.zeros([1, 1], tf.float64)
    >>> density = gd.likelihoods.predict_log_density(likelihood, F, F, F + 0.9, F + 1.0)
    >>> bool(np.isclose(density, -0.5 * np.log(2 * np.pi) - 0.5))  # N(1; 0, 0.9 + 0.1)
    True
    """
    X, Fmu, Fvar, Y = map(tf.convert_to_tensor, (X, Fmu, Fvar, Y))
    if takes_draws(likelihood, "predict_log_density"):
        return drawn_density(likelihood, X, Fmu, Fvar, Y)
    if needs_rows(likelihood, X, Fmu, Fvar, Y=Y):
        return by_rows(partial(predict_log_density, likelihood), X, Fmu, Fvar, Y)
    if is_switched(likelihood):
        return by_likelihood(predict_log_density, likelihood, X, Fmu, Fvar, Y)
    if has_robust_max(likelihood):
        return largest_normaliser(likelihood, Fmu, Fvar, Y, 1.0)
    if has_normal_scale(likelihood):
        return scale_normaliser(likelihood, Fmu, Fvar, Y)
    if not needs_quadrature(likelihood, "predict_log_density"):
        return _own(likelihood, "predict_log_density", X, Fmu, Fvar, Y)
    return tf.reduce_sum(each_log_density(likelihood, X, Fmu, Fvar, Y), axis=-1)


def predict_mean_and_var(
    likelihood: Likelihood, X: tf.Tensor, Fmu: tf.Tensor, Fvar: tf.Tensor
) -> MeanAndVariance:
    """
    Mean and variance of new observations.

    >>> likelihood = gpflow.likelihoods.Bernoulli()
    >>> F = tf.zeros([1, 1], tf.float64)
    >>> mean, variance = gd.likelihoods.predict_mean_and_var(likelihood, F, F, F + 1.0)
    >>> mean.numpy().item(), round(variance.numpy().item(), 6)
    (0.5, 0.25)

    :param likelihood: any of GPflow's, or one of yours.
    :param X: inputs [N, D].
    :param Fmu: means of the latent functions [..., N, P].
    :param Fvar: their variances [..., N, P].
    :return: both [..., N, ...].
    """
    X, Fmu, Fvar = map(tf.convert_to_tensor, (X, Fmu, Fvar))
    if takes_draws(likelihood, "predict_mean_and_var"):
        return drawn_moments(likelihood, X, Fmu, Fvar)
    if needs_rows(likelihood, X, Fmu, Fvar):
        return by_rows(partial(predict_mean_and_var, likelihood), X, Fmu, Fvar)
    if is_switched(likelihood):
        parts = [predict_mean_and_var(part, X, Fmu, Fvar) for part in likelihood.likelihoods]
        mean, variance = (tf.concat(columns, axis=-1) for columns in zip(*parts))
        return mean, variance
    if has_robust_max(likelihood):
        return largest_moments(likelihood, Fmu, Fvar)
    if not needs_quadrature(likelihood, "predict_mean_and_var"):
        return _own(likelihood, "predict_mean_and_var", X, Fmu, Fvar)

    methods = "_conditional_mean", "_conditional_variance"
    if isinstance(likelihood, StudentT) and inherits(likelihood, StudentT, *methods):
        df = tf.convert_to_tensor(likelihood.df, Fmu.dtype)  # which may be trained
        is_finite = df > 2.0
        safe = tf.where(is_finite, df, 3.0 * tf.ones_like(df))
        noise = tf.square(likelihood._scale(X)) * safe / (safe - 2.0)
        infinity = tf.constant(np.inf, Fmu.dtype)
        return tf.identity(Fmu), tf.where(is_finite, Fvar + noise, infinity)
    if isinstance(likelihood, Ordinal) and inherits(likelihood, Ordinal, "_make_phi"):
        return _ordinal_moments(likelihood, Fmu, Fvar)

    def conditional_mean(F: tf.Tensor) -> tf.Tensor:
        return likelihood.conditional_mean(X, F)

    mean = expectation(conditional_mean, Fmu, Fvar)

    def square(F: tf.Tensor) -> tf.Tensor:
        return likelihood.conditional_variance(X, F) + tf.square(conditional_mean(F) - mean)

    return mean, expectation(square, Fmu, Fvar)


def _own(likelihood: Likelihood, method: str, *arguments: tf.Tensor) -> Any:
    try:
        return getattr(likelihood, method)(*arguments)
    except NotImplementedError as error:
        if str(error):
            raise
        raise NotImplementedError(
            f"likelihood: expected one with the method {method} for this objective or prediction, got"
            f" {type(likelihood).__name__}, whose _{method} is not implemented."
        ) from error


def _ordinal_moments(likelihood: Ordinal, Fmu: tf.Tensor, Fvar: tf.Tensor) -> MeanAndVariance:
    """Those of the bins' numbers."""
    bins = tf.range(likelihood.num_bins, dtype=Fmu.dtype)
    probabilities = ordinal_probabilities(likelihood, Fmu, Fvar)
    mean, square = (tf.linalg.matvec(probabilities, bins**power) for power in (1, 2))
    return mean, square - tf.square(mean)


def each_expectation(
    likelihood: ScalarLikelihood, X: tf.Tensor, Fmu: tf.Tensor, Fvar: tf.Tensor, Y: tf.Tensor
) -> tf.Tensor:
    """The expected log densities of a scalar likelihood, function by function: [..., N, P]."""
    if needs_rows(likelihood, X, Fmu, Fvar, Y=Y):
        return by_rows(partial(each_expectation, likelihood), X, Fmu, Fvar, Y)
    if is_ordinal(likelihood):
        return ordinal_normaliser(likelihood, Fmu, Fvar, Y, 0.0)
    return expectation(lambda F: scalar_log_prob(likelihood, X, F, Y), Fmu, Fvar)


def each_log_density(
    likelihood: ScalarLikelihood,
    X: tf.Tensor,
    Fmu: tf.Tensor,
    Fvar: tf.Tensor,
    Y: tf.Tensor,
    alpha: float = 1.0,
) -> tf.Tensor:
    """
    The logarithms of E[p(y | f)^alpha] / alpha of a scalar likelihood, function by function: [..., N, P].
    """
    if needs_rows(likelihood, X, Fmu, Fvar, Y=Y):
        return by_rows(partial(each_log_density, likelihood, alpha=alpha), X, Fmu, Fvar, Y)
    if isinstance(likelihood, Bernoulli) and inherits(likelihood, Bernoulli, "_scalar_log_prob"):
        if alpha == 1 and likelihood.invlink in (inv_probit, probit):
            # The normal distribution function of f integrates to that of its mean, widened.
            scaled = Fmu / tf.sqrt(1.0 + Fvar)
            scaled = tf.where(tf.equal(Y, 1), scaled, -scaled)
            if likelihood.invlink is probit:
                return log_probit(scaled)
            return tf.math.log(inv_probit(scaled))
    if is_ordinal(likelihood):
        return ordinal_normaliser(likelihood, Fmu, Fvar, Y, alpha)
    scaled_log_prob = log_expectation(
        lambda F: alpha * scalar_log_prob(likelihood, X, F, Y), Fmu, Fvar
    )
    return scaled_log_prob / alpha


def needs_quadrature(likelihood: Likelihood, method: str) -> bool:
    """Whether GPflow would compute a public method of a likelihood by its own quadrature in one dimension."""
    if not isinstance(likelihood, ScalarLikelihood) or not inherits(likelihood, Likelihood, method):
        return False
    if not inherits(
        likelihood, ScalarLikelihood, "_quadrature_log_prob", "_quadrature_reduction"
    ) or not has_default_quadrature(likelihood):
        return False
    if inherits(likelihood, ScalarLikelihood, f"_{method}"):
        return True
    return any(
        inherits(likelihood, base, f"_{method}") and likelihood.invlink is not link
        for base, link in _CLOSED_FORMS.items()
    )
