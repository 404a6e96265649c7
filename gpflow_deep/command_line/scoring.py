"""How good the predictions of a table are, a part of its rows after the other."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from gpflow_deep import metrics

from .cells import is_missing
from .columns import row_number
from .fitting import FittedTable, probability_name

__all__ = ["Scores", "known_targets"]

_RMSE = "RMSE"


def known_targets(fitted: FittedTable, cells: pd.Series) -> np.ndarray:
    """Which cells of the target's column hold what the fit can be compared with."""
    if fitted.task.name == "regression":
        there = ~is_missing(cells) & fitted.task.numbers(cells).notna()
        return there.to_numpy()
    labels = fitted.task.targets(cells).astype(str)
    return np.isin(labels, fitted.estimator.classes_.astype(str))


class Scores:
    """
    Of the rows whose target is known; all of them are means over rows.

    :param fitted: the fit.
    """

    def __init__(self, fitted: FittedTable) -> None:
        self._fitted = fitted
        self._sums: dict[str, float] = {}
        self._num_rows = 0
        #: Targets that the fit can say nothing of, and the first of them.
        self._num_strange, self._strange = 0, ""

    def add(self, table: pd.DataFrame, predicted: pd.DataFrame) -> None:
        """
        Score the rows of a part.

        :param table: the part.
        :param predicted: what `predict_table` made of it.
        """
        cells = table[self._fitted.target]
        known = known_targets(self._fitted, cells)
        strange = ~known & ~is_missing(cells).to_numpy()
        if not self._num_strange and strange.any():
            position = int(np.argmax(strange))
            self._strange = f"row {row_number(cells, position)}: {cells.iloc[position]!r}"
        self._num_strange += int(strange.sum())
        if not known.any():
            return
        y = self._fitted.task.targets(cells[known])
        if self._is_regression:
            inputs = self._fitted.clipped(self._fitted.recipe.inputs(table[known]))
            means = self._of_numbers(inputs, y)
        else:
            means = self._of_classes(predicted[known], y)
        for name, value in means.items():
            self._sums[name] = self._sums.get(name, 0.0) + float(value) * len(y)
        self._num_rows += len(y)

    def lines(self) -> list[str]:
        """For the user."""
        lines = []
        if self._num_strange:
            expected = "finite numbers" if self._is_regression else "classes of the training data"
            lines.append(
                f"Warning: {self._num_strange} targets are no {expected} (first: {self._strange}) and have"
                " no scores."
            )
        scores = ", ".join(f"{name} {value:.4g}" for name, value in self.values().items())
        return [*lines, f"Scores: {scores}." if scores else "No row has a target: no scores."]

    def values(self) -> Mapping[str, float]:
        """
        RMSE, log density, CRPS and coverage of the central 95% interval; or accuracy, log loss and Brier
        score. Nothing where no target is known.
        """
        means = {name: total / self._num_rows for name, total in self._sums.items()}
        return {name: mean**0.5 if name == _RMSE else mean for name, mean in means.items()}

    @property
    def _is_regression(self) -> bool:
        return self._fitted.task.name == "regression"

    def _of_classes(self, predicted: pd.DataFrame, y: np.ndarray) -> dict[str, float]:
        labels = self._fitted.estimator.classes_
        probabilities = predicted[[probability_name(label) for label in labels]].to_numpy()
        classes = np.argmax(y[:, None] == labels, axis=1)
        return {
            "accuracy": metrics.accuracy(classes, probabilities),
            "log loss": metrics.log_loss(classes, probabilities),
            "Brier score": metrics.brier_score(classes, probabilities),
        }

    def _of_numbers(self, inputs: pd.DataFrame, y: np.ndarray) -> dict[str, float]:
        """By whole distributions, of which predictions have but the moments."""
        estimator = self._fitted.estimator
        mixture = estimator.predict_mixture(inputs)
        mean, _ = metrics.mixture_moments(*mixture)
        Y = y[:, None]
        return {
            _RMSE: np.mean(np.square(Y - mean)),  # the root is that of the mean over all rows
            "log density": np.mean(estimator.log_density(inputs, y)),
            "CRPS": np.mean(metrics.crps(Y, *mixture)),
            "in the 95% interval": metrics.coverage(Y, *mixture),
        }
