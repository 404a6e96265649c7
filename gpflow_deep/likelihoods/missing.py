"""Observations of several outputs of which some are missing."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import tensorflow as tf
from gpflow.base import MeanAndVariance, TensorType
from gpflow.likelihoods import (
    Gaussian,
    Likelihood,
    MonteCarloLikelihood,
    ScalarLikelihood,
    SwitchedLikelihood,
)

from .batches import by_rows, needs_rows
from .expectations import each_expectation, each_log_density, predict_mean_and_var
from .gaussian import gaussian_normaliser, noise_variance
from .kinds import inherits, is_own
from .log_probs import scalar_log_prob
from .normalisers import Query, normaliser

__all__ = ["MissingOutputs"]

# An observation that all of GPflow's scalar likelihoods can have: what stands where one is missing.
_STAND_IN = 1.0


class MissingOutputs(ScalarLikelihood):
    """
    A scalar likelihood of several outputs, of which entries of Y that are NaN add nothing to any sum: each
    row is fitted by those of its outputs that were observed. A row may lack all of them. Predictions are of
    all outputs.

    >>> likelihood = gd.likelihoods.MissingOutputs(gpflow.likelihoods.Gaussian(0.1))
    >>> both = tf.constant([[0.0, 0.0]], tf.float64)
    >>> Y = tf.constant([[0.5, np.nan]], tf.float64)
    >>> one = gpflow.likelihoods.Gaussian(0.1).log_prob(both, both[:, :1], Y[:, :1])
    >>> bool(likelihood.log_prob(both, both, Y) == one)
    True

    :param likelihood: of every output, one latent function each.
    :raises TypeError: for likelihoods of another kind.
    """

    def __init__(self, likelihood: ScalarLikelihood) -> None:
        if not isinstance(likelihood, ScalarLikelihood) or isinstance(
            likelihood, (SwitchedLikelihood, MonteCarloLikelihood, MissingOutputs)
        ):
            raise TypeError(
                "likelihood: expected a likelihood of one latent function for each output"
                f" (gpflow.likelihoods.ScalarLikelihood), got {likelihood!r}."
            )
        super().__init__()
        self.likelihood = likelihood

    def _scalar_log_prob(self, X: TensorType, F: TensorType, Y: TensorType) -> tf.Tensor:
        present, Y = _fill(Y)
        # What is not finite where nothing was observed would spoil gradients, though it is left out.
        F = tf.where(present, F, tf.zeros_like(F))
        each = scalar_log_prob(self.likelihood, X, F, Y)
        return tf.where(present, each, tf.zeros_like(each))

    def _conditional_mean(self, X: TensorType, F: TensorType) -> tf.Tensor:
        return self.likelihood.conditional_mean(X, F)

    def _conditional_variance(self, X: TensorType, F: TensorType) -> tf.Tensor:
        return self.likelihood.conditional_variance(X, F)

    def _predict_mean_and_var(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType
    ) -> MeanAndVariance:
        return predict_mean_and_var(self.likelihood, X, Fmu, Fvar)

    def _variational_expectations(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        return self._log_Z(X, Fmu, Fvar, Y, 0.0)

    def _predict_log_density(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        return self._log_Z(X, Fmu, Fvar, Y, 1.0)

    def _log_Z(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType, alpha: float
    ) -> tf.Tensor:
        X, Fmu, Fvar, Y = map(tf.convert_to_tensor, (X, Fmu, Fvar, Y))
        if needs_rows(self, X, Fmu, Fvar, Y=Y):
            return by_rows(partial(self._log_Z, alpha=alpha), X, Fmu, Fvar, Y)
        return normaliser(self, Query(X, Fmu, Fvar, Y, alpha, None))


def _fill(Y: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Which entries are there, and Y with something in place of those that are not."""
    present = tf.math.logical_not(tf.math.is_nan(Y))
    return present, tf.where(present, Y, tf.fill(tf.shape(Y), tf.cast(_STAND_IN, Y.dtype)))


@normaliser.register
def _missing(likelihood: MissingOutputs, at: Query) -> tf.Tensor:
    inner = likelihood.likelihood
    present, Y = _fill(at.Y)
    if isinstance(inner, Gaussian) and inherits(inner, Gaussian, "_scalar_log_prob"):
        # Outputs without error and covariance, whose noise makes the density of zero one.
        s = tf.where(present, noise_variance(inner, at.X), 0.5 / np.pi)
        error = tf.where(present, Y - at.mean, tf.zeros_like(Y))
        mask = tf.cast(present, Y.dtype)
        if at.has_covariances:
            mask = mask[:, :, None] * mask[:, None, :]
        return gaussian_normaliser(error, at.covariance * mask, s, at.alpha)
    if at.is_joint and at.alpha != 0:
        return normaliser.dispatch(Likelihood)(likelihood, at)
    mean = tf.where(present, at.mean, tf.zeros_like(at.mean))
    variance = tf.where(present, at.variance, tf.ones_like(at.variance))
    each = _each(inner, at.alpha)(inner, at.X, mean, variance, Y)
    return tf.reduce_sum(tf.where(present, each, tf.zeros_like(each)), axis=-1)


def _each(likelihood: ScalarLikelihood, alpha: float) -> Callable[..., tf.Tensor]:
    """log Z of (likelihood, X, Fmu, Fvar, Y), output by output [N, P]."""
    method = {0.0: "variational_expectations", 1.0: "predict_log_density"}.get(alpha)
    if method is not None and is_own(likelihood, method):
        return lambda likelihood, X, *columns: tf.stack(
            [
                getattr(likelihood, method)(X, *(x[..., p : p + 1] for x in columns))
                for p in range(columns[0].shape[-1])
            ],
            axis=-1,
        )
    if alpha == 0:
        return each_expectation
    return partial(each_log_density, alpha=alpha)
