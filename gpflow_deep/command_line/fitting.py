"""From a table to a fit, and from a fit and a table to predictions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gpflow_deep import metrics
from gpflow_deep.estimators.regression import Regression, fit_regression
from gpflow_deep.presets import Settings

from .tables import CsvTable

__all__ = ["fit_table", "predict_table"]

_PREDICTION_ROWS = 2000  # predicted at a time, so that memory does not grow with the table


def fit_table(
    table: CsvTable,
    target: str,
    model_name: str,
    settings: Settings,
    *,
    seed: int = 0,
    exclude: Sequence[str] = (),
    progress: bool = True,
) -> tuple[Regression, list[str]]:
    """
    Fit a deep GP to a table: one column from all the others.

    :param table: the data.
    :param target: the column to predict.
    :param model_name: registered name of the model (`gpflow_deep.presets`).
    :param settings: model and training.
    :param seed: of everything random, so that a fit can be repeated.
    :param exclude: columns to leave out.
    :param progress: whether to show a progress bar.
    :return: the fit, and notes for the user: which columns were left out and why.
    :raises ValueError: for columns that are missing, and as `CsvTable.numbers` and `fit_regression`
        say.
    """
    table.require([target, *exclude])
    if target in exclude:
        raise ValueError(f"exclude: expected columns besides the target, got {target!r}.")
    names = [name for name in table.columns if name and name != target and name not in exclude]
    notes = ["Left out a column without a name."] if "" in table.columns else []
    X, Y = table.numbers(names), table.numbers([target])
    varies = np.ptp(X, axis=0) > 0.0
    constant = [name for name, keep in zip(names, varies, strict=True) if not keep]
    if constant:
        notes.append(f"Left out constant columns, which say nothing: {', '.join(constant)}.")
    if np.ptp(Y) == 0.0:
        raise ValueError(
            f"{table.path}: expected a target that varies, but {target!r} is constant."
        )
    if not varies.any():
        raise ValueError(f"{table.path}: expected a column besides {target!r} that varies.")
    regression = fit_regression(
        X[:, varies],
        Y,
        model_name,
        settings,
        seed=seed,
        input_names=[name for name, keep in zip(names, varies, strict=True) if keep],
        target_name=target,
        progress=progress,
    )
    num_layers = regression.settings.num_layers
    if num_layers != settings.num_layers:
        notes.append(f"Built {num_layers} layer(s), the most that {model_name} can have.")
    return regression, notes


def predict_table(
    regression: Regression, table: CsvTable, quantiles: Sequence[float] = ()
) -> tuple[list[str], np.ndarray, list[str]]:
    """
    Predict the target for the rows of a table, whose columns are found by name.

    :param regression: the fit.
    :param table: new data; columns in any order.
    :param quantiles: probabilities in (0, 1).
    :return: names of the columns mean, sd and one for each quantile; their values
        [N, 2 + len(quantiles)] in original units, with the noise; and notes for the user.
    :raises ValueError: for missing columns, and for cells as in `CsvTable.numbers`.
    """
    X = table.numbers(regression.input_names)
    expected = {*regression.input_names, regression.target_name}
    extra = [name or "(without a name)" for name in table.columns if name not in expected]
    notes = [f"Ignored columns that the model does not use: {', '.join(extra)}."] if extra else []
    values = np.empty((len(X), 2 + len(quantiles)))
    for start in range(0, len(X), _PREDICTION_ROWS):
        rows = slice(start, start + _PREDICTION_ROWS)
        mixture = regression.predict_y_mixture(X[rows])
        mean, variance = metrics.mixture_moments(*mixture)
        values[rows, :2] = np.hstack([mean, np.sqrt(variance)])
        if quantiles:
            values[rows, 2:] = metrics.quantile(quantiles, *mixture)[:, :, 0].T
    return ["mean", "sd", *(f"q{level:g}" for level in quantiles)], values, notes
