"""From a table to a fit, and from a fit and tables to predictions."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from gpflow_deep.estimators import DeepGPClassifier, DeepGPRegressor, load
from gpflow_deep.estimators.persistence import load_notes

from .cells import Notation, composed, composed_names, found_numbers, is_binary, is_missing, numbers
from .columns import MOSTLY, Recipe, is_text, numbered, row_number, shortened
from .files import listed

__all__ = ["FittedTable", "Task", "fit_table", "predict_table", "probability_name", "task_of"]

_FEW_VALUES = 10  # so many whole numbers, at most, are taken for classes
_FAR = 0.1  # of a column's range beyond its ends: what is further out is far from the training data


@dataclass(frozen=True)
class Task:
    """
    What is to be predicted.

    :param name: "regression" or "classification".
    :param why: for the user.
    :param decimal_comma: how the target's numbers are written, see :class:`.cells.Notation`.
    :param thousands: likewise.
    :param whole: whether labels are whole numbers, 1 and 1.0 the same one.
    :param prefix: what stands before each number.
    :param suffix: behind each.
    """

    name: str
    why: str
    decimal_comma: bool = False
    thousands: bool = False
    whole: bool = False
    prefix: str = ""
    suffix: str = ""

    @property
    def notation(self) -> Notation:
        """How numbers are written."""
        return Notation(self.decimal_comma, self.thousands, self.prefix, self.suffix)

    def targets(self, cells: pd.Series) -> np.ndarray:
        """
        Numbers, or labels as text.

        :raises ValueError: for a cell that is neither.
        """
        if self.name == "classification":
            return self._labels(cells).to_numpy(dtype=object)
        values = self.numbers(cells).to_numpy()
        if np.isnan(values).any():
            position = int(np.argmax(np.isnan(values)))
            raise ValueError(
                f"target {cells.name!r}, row {row_number(cells, position)}: expected a finite number"
                f"{self.notation.beside}, got {cells.iloc[position]!r}."
            )
        return values

    def numbers(self, cells: pd.Series) -> pd.Series:
        """Those of regression, NaN for what is none."""
        return numbers(cells, *self.notation)

    def _labels(self, cells: pd.Series) -> pd.Series:
        labels = cells.astype(str).str.strip()
        if not self.whole:
            return labels
        mark = "," if self.decimal_comma else r"\."
        end = rf"(?=\s*{re.escape(self.suffix)}$)"
        return labels.str.replace(rf"(?<=\d){mark}0*{end}", "", regex=True)


@dataclass(frozen=True)
class FittedTable:
    """
    A fit with all that it takes to use it on tables.

    :param estimator: the fit.
    :param recipe: of its inputs.
    :param target: name of the column that it predicts.
    :param task: what that is.
    :param low: least value of each input in training, slips left out.
    :param high: largest.
    """

    estimator: Any
    recipe: Recipe
    target: str
    task: Task
    low: np.ndarray
    high: np.ndarray

    def save(self, path: Path, *, overwrite: bool = False) -> None:
        """See `gpflow_deep.estimators.save`."""
        from gpflow_deep.estimators import save

        notes = {
            "columns": self.recipe.to_json(),
            "target": self.target,
            "task": vars(self.task),
            "low": self.low.tolist(),
            "high": self.high.tolist(),
        }
        save(self.estimator, path, overwrite=overwrite, notes=notes)

    @classmethod
    def load(cls, path: Path) -> FittedTable:
        """
        What `save` saved.

        :raises ValueError: also for a fit that was not made of a table.
        """
        estimator, notes = load(path), load_notes(path)
        # Tables are read with letters that older fits may have in two characters.
        for name in ("feature_names_in_", "classes_"):
            if (names := getattr(estimator, name, None)) is not None and names.dtype == object:
                setattr(estimator, name, np.array(composed_names(names), dtype=object))
        try:
            return cls(
                estimator,
                Recipe.from_json(notes["columns"]),
                composed(notes["target"]),
                Task(**notes["task"]),
                np.array(notes["low"]),
                np.array(notes["high"]),
            )
        except (KeyError, TypeError) as error:
            raise ValueError(
                f"{path}: expected a fit made from a table, missing: {error}."
            ) from error

    def clipped(self, inputs: pd.DataFrame) -> pd.DataFrame:
        """
        As the estimator takes them, which would warn of others, [N, D]: `far` has told of these rows.
        """
        limits = self.estimator.prediction_limits_
        return inputs.clip(limits.low, limits.high, axis=1)

    def far(self, inputs: np.ndarray) -> np.ndarray:
        """Which rows are out of the training data's ranges by a tenth of these, or are clipped."""
        margin = _FAR * (self.high - self.low)
        outside = (inputs < self.low - margin) | (inputs > self.high + margin)
        outside |= self.estimator.prediction_limits_.beyond(inputs)
        far: np.ndarray = outside.any(axis=1)
        return far


def task_of(cells: pd.Series, task: str = "auto") -> Task:
    """
    Whether a column is to be predicted as a number or as a class.

    :param cells: of the target, none missing.
    :param task: "regression" or "classification", or "auto".
    :raises ValueError: for text where numbers were asked for; under "auto" for numbers with a little text
        among them, and for text that differs from row to row.
    """
    notation, values = found_numbers(cells)
    is_number = values.notna().all()
    if task == "regression" and not is_number:
        position = int(np.argmax(values.isna().to_numpy()))
        raise ValueError(
            f"target {cells.name!r}: expected numbers{notation.beside} for regression, got"
            f" {listed(map(shortened, cells[values.isna()].astype(str).unique()[:3]))}, first in row"
            f" {row_number(cells, position)}: correct them, or leave them empty where they are missing."
        )
    if task != "auto":
        return Task(task, "you say so", **(notation if is_number else Notation())._asdict())
    if not is_number:
        different = cells.astype(str).str.strip().nunique()
        _refuse_no_classes(cells, different)
        return Task("classification", f"the target is text of {different} values")
    whole = bool((values == values.round()).all())
    classes = Task("classification", "", whole=whole, **notation._asdict())
    different = len(np.unique(classes.targets(cells)))
    if whole and different <= _FEW_VALUES:
        why = (
            f"the target has only {different} values, all whole numbers; --task regression takes them for"
            " quantities"
        )
        return replace(classes, why=why)
    few = f" ({different} values; --task classification takes them for labels)" if whole else ""
    why = f"the target is {'whole ' if whole else ''}numbers{notation}{few}"
    return Task("regression", why, **notation._asdict())


def _refuse_no_classes(cells: pd.Series, different: int) -> None:
    """Text is taken for classes, but neither a slip among numbers nor what each row has its own of."""
    is_number = found_numbers(cells, MOSTLY)[1].notna()
    if is_number.mean() >= MOSTLY:
        position = int(np.argmin(is_number))
        raise ValueError(
            f"target {cells.name!r}: expected numbers or classes, got numbers, but also"
            f" {listed(cells[~is_number].unique()[:3])}, first in row {row_number(cells, position)}: correct"
            " them, leave them empty where they are missing, or take all cells for labels by --task"
            " classification."
        )
    if is_text(different, len(cells)):
        raise ValueError(
            f"target {cells.name!r}: expected numbers or classes, got text of {different} different values in"
            f" {len(cells)} rows, such as {listed(cells.unique()[:3])}: write numbers as such (dates as"
            " days), or take them for labels by --task classification."
        )


def fit_table(
    table: pd.DataFrame,
    target: str,
    *,
    task: str = "auto",
    exclude: Sequence[str] = (),
    tell: Callable[[str], None] = print,
    **options: Any,
) -> FittedTable:
    """
    Fit a deep GP to a table: one column from all the others.

    :param table: the data.
    :param target: the column to predict; rows where it is missing are left out.
    :param task: see `task_of`.
    :param exclude: columns to leave out.
    :param tell: takes lines for the user: what was done with each column, and what with the model.
    :param options: of the estimator.
    :raises ValueError: for a table that cannot be fitted.
    """
    if target in exclude:
        raise ValueError(f"exclude: expected columns besides the target, got {target!r}.")
    if is_binary(table[target]):
        raise ValueError(f"target {target!r}: expected numbers or classes, got binary cells.")
    there = ~is_missing(table[target])
    if task != "regression" and found_numbers(table[target][there])[1].isna().any():
        there = ~is_missing(table[target], labels=True)
    if not there.any():
        raise ValueError(f"target {target!r}: expected values, got only missing ones.")
    if not there.all():
        tell(f"{(~there).sum()} rows without a target are left out.")
    table = table[there]
    chosen = task_of(table[target], task)
    given = options.get("likelihood")
    if chosen.name == "classification" and given is not None:
        raise ValueError(f"likelihood: expected none for classes, it is of numbers, got {given!r}.")
    y = chosen.targets(table[target])
    if len(np.unique(y)) < 2:
        raise ValueError(f"target {target!r}: expected values that vary, got one: {y[:1]}.")
    tell(f"Task: {chosen.name}, as {chosen.why}.")
    recipe = Recipe.of(table, [n for n in table.columns if n != target and n not in exclude])
    for note in recipe.notes:
        tell(f"  {note}")
    inputs = recipe.inputs(table)
    estimator = (DeepGPClassifier if chosen.name == "classification" else DeepGPRegressor)(
        **options
    )
    estimator._checkpoints_are_kept = True
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        estimator.fit(inputs, y)
    for warning in caught:
        if issubclass(warning.category, UserWarning):
            tell(f"Warning: {str(warning.message).removeprefix('checkpoint_dir: ')}")
    X = inputs.to_numpy()
    X = np.where(estimator.input_limits_.beyond(X), np.nan, X)
    low, high = np.nanmin(X, axis=0), np.nanmax(X, axis=0)
    return FittedTable(estimator, recipe, target, chosen, low, high)


def predict_table(
    fitted: FittedTable,
    parts: Iterable[pd.DataFrame],
    quantiles: Sequence[float] = (),
    keep: Sequence[str] = (),
) -> Iterator[tuple[pd.DataFrame, np.ndarray]]:
    """
    Predict the target for the rows of a table, whose columns are found by name.

    :param fitted: the fit.
    :param parts: of the table, in any order of columns.
    :param quantiles: probabilities in (0, 1), for regression.
    :param keep: columns of the table to have beside the predictions; with "(given)" behind the name where
        these have it too, and a number where that is another's name.
    :return: for each part a table of the columns kept and `mean`, `sd` and `q...` with the noise, or `class`
        and `p(...)`; and which of its rows are far from the training data.
    """
    for part in parts:
        given = fitted.recipe.inputs(part)
        inputs = fitted.clipped(given)
        columns: dict[str, Any] = {}
        if fitted.task.name == "classification":
            probabilities = fitted.estimator.predict_proba(inputs)
            classes = fitted.estimator.classes_
            columns["class"] = classes[np.argmax(probabilities, axis=1)]
            columns |= {probability_name(c): probabilities[:, j] for j, c in enumerate(classes)}
        else:
            mean, sd, values = fitted.estimator.predict_summary(inputs, quantiles)
            columns |= {"mean": mean, "sd": sd}
            columns |= {f"q{float(level)}": v for level, v in zip(quantiles, values.T, strict=True)}
        kept = {
            beside: part[name].to_numpy() for name, beside in _names_beside(keep, columns).items()
        }
        yield pd.DataFrame(kept | columns), fitted.far(given.to_numpy())


def probability_name(label: Any) -> str:
    """Of the column of a class's probabilities."""
    return f"p({label})"


def _names_beside(keep: Iterable[str], predicted: Collection[str]) -> dict[str, str]:
    """By the names of columns that are kept: names that neither predictions nor others have."""
    names = {name: name for name in keep}
    taken = {*names, *predicted}
    for name in [name for name in names if name in predicted]:
        names[name] = numbered(f"{name} (given)", taken)
        taken.add(names[name])
    return names
