"""Scores of held-out data, and the parameters that had the best."""

from __future__ import annotations

__all__ = ["Validation"]

from collections.abc import Sequence

import gpflow
import numpy as np
import tensorflow as tf

from gpflow_deep.numerics.compiled import compiled

from .data import Data

_ROWS_PER_CALL = 512  # so that memory does not grow with the held-out set


class Validation:
    """
    The mean log predictive density of held-out data, and the parameters at which it was highest.

    :param model: the model scored. Where its likelihood has `observation_weights` of targets, the mean is
        weighted by them.
    :param data: held-out X and Y.
    :param variables: the parameters to keep.
    """

    def __init__(
        self, model: gpflow.models.BayesianModel, data: Data, variables: Sequence[tf.Variable]
    ) -> None:
        num_parts = -(-len(data[0]) // _ROWS_PER_CALL)
        parts = zip(*(np.array_split(array, num_parts) for array in data), strict=True)
        self._parts = [(tf.constant(X), tf.constant(Y)) for X, Y in parts]
        weigh = getattr(getattr(model, "likelihood", None), "observation_weights", None)
        self._weights = None if weigh is None else weigh(data[1])
        self._variables = variables
        self._log_density = compiled(model.predict_log_density)
        self.best = [tf.Variable(variable, trainable=False) for variable in variables]

    def score(self) -> float:
        """The score of the present parameters."""
        densities = [self._log_density(part).numpy().ravel() for part in self._parts]
        return float(np.average(np.concatenate(densities), weights=self._weights))

    def keep(self) -> None:
        """Take the present parameters for the best."""
        for best, variable in zip(self.best, self._variables, strict=True):
            best.assign(variable)

    def restore(self) -> None:
        """Set the model to the best parameters."""
        for best, variable in zip(self.best, self._variables, strict=True):
            variable.assign(best)
