"""Rows that count several times in a bound: a sum of expected log-likelihoods."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import tensorflow as tf
from check_shapes import inherit_check_shapes
from gpflow.base import MeanAndVariance, TensorType
from gpflow.likelihoods import Likelihood, Softmax

from gpflow_deep.likelihoods import (
    predict_log_density,
    predict_mean_and_var,
    variational_expectations,
)

__all__ = ["WeightedLikelihood", "weighted_rows"]


class WeightedLikelihood(Likelihood):
    """
    A likelihood of observations whose last column says how often each was made: its log-likelihood and
    expected log-likelihood are that many times the base's. Predictions and predictive densities
    are the base's.

    :param base: any GPflow likelihood.
    :param num_columns: columns of its observations, P.
    """

    def __init__(self, base: Likelihood, num_columns: int) -> None:
        super().__init__(
            input_dim=base.input_dim, latent_dim=base.latent_dim, observation_dim=num_columns + 1
        )
        self.base = base

    def observation_weights(self, Y: TensorType) -> tf.Tensor:
        """By which scores of held-out rows are averaged, [N]."""
        return Y[..., -1]

    def _split(self, Y: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Observations as the base takes them, and weights [N]."""
        observations = Y[..., :-1]
        if isinstance(self.base, Softmax):
            observations = tf.cast(observations, tf.int64)
        return observations, self.observation_weights(Y)

    @inherit_check_shapes
    def _log_prob(self, X: TensorType, F: TensorType, Y: TensorType) -> tf.Tensor:
        observations, weights = self._split(Y)
        return weights * self.base.log_prob(X, F, observations)

    @inherit_check_shapes
    def _variational_expectations(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        observations, weights = self._split(Y)
        return weights * variational_expectations(self.base, X, Fmu, Fvar, observations)

    @inherit_check_shapes
    def _predict_log_density(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        observations, _ = self._split(Y)
        return predict_log_density(self.base, X, Fmu, Fvar, observations)

    def _predict_mean_and_var(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType
    ) -> MeanAndVariance:
        return predict_mean_and_var(self.base, X, Fmu, Fvar)


@contextmanager
def weighted_rows(model: Any, num_columns: int) -> Iterator[None]:
    """
    For a while, the targets of a model have their weights as one column more.

    :param model: one whose objective sums expected log-likelihoods.
    :param num_columns: columns of its targets without it.
    """
    base = model.likelihood
    model.likelihood = WeightedLikelihood(base, num_columns)
    try:
        yield
    finally:
        model.likelihood = base
