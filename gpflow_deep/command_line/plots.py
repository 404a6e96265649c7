"""Figures of how a fit does on a table whose target is known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from sklearn.calibration import CalibrationDisplay
from sklearn.inspection import permutation_importance
from sklearn.metrics import ConfusionMatrixDisplay

from gpflow_deep.plotting import plot_calibration

from .fitting import FittedTable
from .scoring import known_targets

__all__ = ["write_plots"]

_ROWS = 500  # by which importance is judged
_SHOWN = 15  # most important columns


def write_plots(fitted: FittedTable, table: pd.DataFrame, folder: Path) -> list[Path]:
    """
    Predicted against true values with 95% intervals and calibration, or the confusion matrix and
    reliability; and what each column is worth: how much worse the score becomes when its values are
    shuffled.

    :param folder: for the figures; made if it is not there.
    :return: where they are.
    """
    folder.mkdir(parents=True, exist_ok=True)
    table = table[known_targets(fitted, table[fitted.target])]
    y = fitted.task.targets(table[fitted.target])
    inputs = fitted.clipped(fitted.recipe.inputs(table))
    draw = _classes if fitted.task.name == "classification" else _numbers
    with plt.rc_context({"text.parse_math": False}):  # a name with $ in it is no formula
        return [draw(fitted, inputs, y, folder), _importance(fitted, inputs, y, folder)]


def _numbers(fitted: FittedTable, inputs: pd.DataFrame, y: np.ndarray, folder: Path) -> Path:
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 5), layout="constrained")
    low, mean, high = fitted.estimator.predict_quantiles(inputs, (0.025, 0.5, 0.975)).T
    order = np.random.default_rng(0).permutation(len(y))[:_ROWS]
    left.errorbar(
        y[order],
        mean[order],
        np.stack([mean - low, high - mean])[:, order],
        fmt=".",
        elinewidth=0.5,
        alpha=0.6,
        label="median and 95% interval",
    )
    left.axline((float(y.mean()), float(y.mean())), slope=1.0, color="black", linewidth=1)
    left.set(xlabel=f"true {fitted.target}", ylabel=f"predicted {fitted.target}")
    left.legend()
    means, variances, log_weights = fitted.estimator.predict_mixture(inputs)
    plot_calibration(y[:, None], means, variances, log_weights, ax=right)
    return _saved(figure, folder / "predictions.png")


def _classes(fitted: FittedTable, inputs: pd.DataFrame, y: np.ndarray, folder: Path) -> Path:
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 5), layout="constrained")
    probabilities = fitted.estimator.predict_proba(inputs)
    labels = fitted.estimator.classes_
    ConfusionMatrixDisplay.from_predictions(
        y, labels[np.argmax(probabilities, axis=1)], labels=labels, ax=left, colorbar=False
    )
    for index, label in enumerate(labels[:5]):
        CalibrationDisplay.from_predictions(
            y == label, probabilities[:, index], n_bins=10, name=str(label), ax=right
        )
    return _saved(figure, folder / "predictions.png")


def _importance(fitted: FittedTable, inputs: pd.DataFrame, y: np.ndarray, folder: Path) -> Path:
    rows = np.random.default_rng(0).permutation(len(y))[:_ROWS]

    def log_density(estimator: Any, X: Any, targets: Any) -> float:
        return float(np.mean(estimator.log_density(X, targets)))

    found = permutation_importance(
        fitted.estimator,
        inputs.iloc[rows],
        y[rows],
        scoring=log_density,
        n_repeats=3,
        random_state=0,
    )
    order = np.argsort(found.importances_mean)[-_SHOWN:]
    figure, ax = plt.subplots(figsize=(7, 1 + 0.3 * len(order)), layout="constrained")
    ax.barh(
        [str(inputs.columns[j]) for j in order],
        found.importances_mean[order],
        xerr=found.importances_std[order],
    )
    ax.set_xlabel("log density lost when the column is shuffled")
    return _saved(figure, folder / "importance.png")


def _saved(figure: plt.Figure, path: Path) -> Path:
    figure.savefig(path, dpi=120)
    plt.close(figure)
    return path
