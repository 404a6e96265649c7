"""The data that an estimator is given, checked as scikit-learn does, with names to what does not fit."""

from __future__ import annotations

import datetime
import warnings
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd
from scipy.sparse import issparse
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, validate_data

__all__ = ["check_labels", "check_unmasked", "checked_data", "checked_weights"]

_FEWEST_OBSERVATIONS = 0.1  # a row, below which weights may be meant as shares
_TIMES = (np.datetime64, np.timedelta64, datetime.date, datetime.time, datetime.timedelta)


def checked_data(estimator: Any, X: Any, *y: Any, **options: Any) -> Any:
    """
    Inputs, and targets where they are given, as arrays of numbers; see scikit-learn's `validate_data`.

    :raises ValueError: naming the column of a table that has none; for times; for targets that are missing.
    """
    check_unmasked(X, "X")
    if y:
        check_unmasked(y[0], "y")
        if issparse(y[0]):
            raise TypeError(
                "y: expected an array, got a sparse matrix (toarray() makes one of it)."
            )
        _check_targets(y[0], options.get("y_numeric", False))
    # Times alone would be taken for numbers: counts of whatever unit they are kept in.
    if not isinstance(X, pd.DataFrame):
        _check_no_times(X, "X")
    elif any(_times_in(cells) for _, cells in X.items()):
        _check_columns(X, None)
    try:
        return validate_data(estimator, X, *y, dtype=np.float64, **options)
    except (TypeError, ValueError) as error:
        _check_columns(_as_frame(X), error)
        raise


def _check_no_times(values: Any, name: str) -> None:
    for part in _parts(values):
        if kind := _times_in(part):
            raise ValueError(f"{name}: expected numbers, got {kind}. Count times in a unit.")


def _parts(values: Any) -> Iterable[Any]:
    """The columns of a table, each with a type of its own; anything else as it is."""
    if isinstance(values, pd.DataFrame):
        return (cells for _, cells in values.items())
    columns = _columns_of(values)
    return [values] if columns is None else columns()


def _as_frame(X: Any) -> pd.DataFrame:
    """A table with the names of its columns; anything else as one that has none."""
    if isinstance(X, pd.DataFrame):
        return X
    columns = _columns_of(X)
    if columns is None:
        return pd.DataFrame()
    names = X.column_names if hasattr(X, "column_names") else X.columns
    return pd.DataFrame({name: np.asarray(cells) for name, cells in zip(names, columns())})


def _columns_of(values: Any) -> Any:
    """The method of polars' or of pyarrow's tables; ``None`` for what has neither."""
    return getattr(values, "iter_columns", getattr(values, "itercolumns", None))


def _times_in(values: Any) -> str:
    """What kind of times is among values of one type, or of any; empty where none is."""
    if not hasattr(values, "dtype"):
        try:
            values = np.asarray(values)
        except (TypeError, ValueError):  # rows of several lengths: scikit-learn tells
            return ""
    categories = getattr(values.dtype, "categories", None)
    dtype = getattr(categories, "dtype", values.dtype)
    kind = getattr(dtype, "kind", None)
    if kind in ("m", "M") or (hasattr(dtype, "is_temporal") and dtype.is_temporal()):  # of polars
        return str(dtype)
    if kind != "O":
        return ""
    types = set(map(type, np.asarray(values, object).ravel())) - {type(pd.NaT)}
    return next((cell.__name__ for cell in types if issubclass(cell, _TIMES)), "")


def check_unmasked(values: Any, name: str) -> None:
    """
    That no mask hides values, which would be taken for what is there.

    :param values: as the user gives them.
    :param name: of the argument.
    :raises ValueError: where one does.
    """
    if isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values):
        remedy = (
            "Impute them: X.filled(np.nan) is what scikit-learn's imputers take"
            if name == "X"
            else "Leave their rows out"
        )
        raise ValueError(
            f"{name}: expected no masked values, got {np.ma.count_masked(values)}. {remedy}."
        )


def _check_columns(table: pd.DataFrame, error: Exception | None) -> None:
    """That what is wrong is no column."""
    for name, cells in table.items():
        wrong = cells.notna()
        if not _times_in(cells):
            wrong &= pd.to_numeric(cells, errors="coerce").isna()
        elif cells.dtype == object:
            wrong &= np.array([isinstance(cell, _TIMES) for cell in cells])
        if wrong.any():
            raise ValueError(
                f"X, column {name!r}: expected numbers, got {cells.dtype} such as"
                f" {cells[wrong].iloc[0]!s}. Encode text, as by scikit-learn's OneHotEncoder; count times in"
                " a unit."
            ) from error


def _check_targets(y: Any, numbers: bool) -> None:
    """That they are there, and no times; and, where they must be, that they are numbers."""
    kind = getattr(getattr(y, "dtype", None), "kind", "O")
    if numbers:
        _check_no_times(y, "y")
    is_sequence = isinstance(y, Sequence) or hasattr(y, "dtype")
    if kind not in "OSUT" or not is_sequence or not len(y):
        return
    cells = pd.Series(np.asarray(y, object).ravel())
    missing = cells.isna()
    if kind == "O" and missing.any():
        row = int(np.argmax(missing)) // (len(cells) // len(y))
        raise ValueError(
            f"Input y contains NaN: expected a value in each row, got none in row {row}."
        )
    if numbers and (wrong := pd.to_numeric(cells, errors="coerce").isna() & ~missing).any():
        raise ValueError(f"y: expected numbers, got {cells[wrong].iloc[0]!r}.")


def check_labels(y: np.ndarray) -> None:
    """
    Check that they are classes.

    :param y: labels [N].
    :raises ValueError: for numbers that are none, and for labels of several types.
    """
    try:
        check_classification_targets(y)
    except (TypeError, ValueError) as error:
        types = sorted({type(label).__name__ for label in y.tolist()})
        if len(types) < 2:
            raise
        raise ValueError(
            f"Unknown label type: y: expected labels of one type, got {', '.join(types)}."
        ) from error


def checked_weights(sample_weight: Any, X: np.ndarray) -> np.ndarray | None:
    """
    How often rows were observed [N], with a warning where they are nearly no observations.

    :param sample_weight: as the user gives it, or ``None``.
    :param X: checked inputs [N, D].
    :raises ValueError: for others than numbers of at least 0, and where none is above.
    """
    if sample_weight is None:
        return None
    check_unmasked(sample_weight, "sample_weight")
    try:
        weights = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
    except (TypeError, ValueError) as error:
        if "sample" in str(error).lower():
            raise
        raise ValueError(f"sample_weight: expected numbers, got: {error}.") from error
    if not weights.any():
        raise ValueError("sample_weight: expected some weight above zero, got zeros only.")
    counted = np.count_nonzero(weights)  # a weight of zero leaves its row out
    if weights.sum() < _FEWEST_OBSERVATIONS * counted:
        warnings.warn(
            f"sample_weight: {counted} rows are {weights.sum():g} observations in all, of which"
            " little can be learned: a weight says how many observations a row is. Where they are to be"
            " relative, divide them by their mean.",
            stacklevel=3,
        )
    return weights
