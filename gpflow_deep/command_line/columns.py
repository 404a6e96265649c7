"""
From the columns of a table to numbers: what each holds, what is done with it, and how a person is told.

What is done are scikit-learn's transformers with all that they learned as their parameters, so that a recipe
is saved as JSON and made again without pickle.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from numbers import Integral
from typing import Any

import numpy as np
import pandas as pd
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

from .cells import (
    booleans,
    date_order,
    days,
    found_numbers,
    is_binary,
    is_missing,
    numbers,
    seconds,
    seconds_of_day,
)
from .tables import listed

__all__ = ["MOSTLY", "Column", "Recipe", "is_text", "row_number", "written"]

MOSTLY = 0.95  # of the cells there are: what so many are, the column is
_MOST_CATEGORIES = 20
_ABSENT = "(missing)"
#: Kinds of which all cells can be read alike.
_READERS: Mapping[str, Callable[[pd.Series], pd.Series]] = {
    "boolean": booleans,
    "time of day": seconds_of_day,
    "duration": seconds,
}


@dataclass(frozen=True)
class Column:
    """
    A column of the inputs.

    :param name: in the table.
    :param kind: "number", "boolean", "date", "time of day", "duration" or "category".
    :param fill: what a missing cell is taken for.
    :param missing: whether cells were missing; a column more then says where.
    :param categories: of a category, each a column; rarer ones and new ones are none of them.
    :param decimal_comma: whether numbers are written with one.
    :param thousands: whether they have marks between thousands, see :func:`.cells.numbers`.
    :param order: of the fields of a date, see :func:`.cells.date_order`.
    """

    name: str
    kind: str
    fill: float = 0.0
    missing: bool = False
    categories: tuple[str, ...] = ()
    decimal_comma: bool = False
    thousands: bool = False
    order: str = ""

    def values(self, cells: pd.Series) -> pd.Series:
        """The cells as numbers, NaN where there is none; or as text."""
        if self.kind == "category":
            text = cells.astype(str).str.strip()
            return text.where(~is_missing(cells), _ABSENT)
        if self.kind == "date":
            return days(cells, self.order)
        if self.kind in _READERS:
            return _READERS[self.kind](cells)
        return numbers(cells, self.decimal_comma, self.thousands)

    def describe(self) -> str:
        """For the user."""
        filled = f", missing cells as {self.fill:.4g} and marked" if self.missing else ""
        if self.kind == "category":
            shown = ", ".join(self.categories[:5]) + (", ..." if len(self.categories) > 5 else "")
            return f"{self.name}: {len(self.categories)} categories ({shown}), a column each"
        if self.kind == "date":
            order = f", {self.order}" if self.order else ""
            return f"{self.name}: date{order}, as days{filled}"
        if self.kind in ("time of day", "duration"):
            return f"{self.name}: {self.kind}, as seconds{filled}"
        return f"{self.name}: {self.kind}{written(self.decimal_comma, self.thousands)}{filled}"


@dataclass(frozen=True)
class Recipe:
    """
    How the inputs of a model are made of a table.

    :param columns: those that are used.
    :param notes: what was done with each column of the table, for the user.
    """

    columns: tuple[Column, ...]
    notes: tuple[str, ...] = ()

    @classmethod
    def of(cls, table: pd.DataFrame, names: Sequence[str]) -> Recipe:
        """
        That of a table.

        :param table: the training data.
        :param names: of the columns that may be used.
        :raises ValueError: where none of them says anything.
        """
        columns, notes = [], []
        for name in names:
            column = _column(name, table[name])
            if isinstance(column, str):
                notes.append(f"{name}: left out, {column}")
            else:
                columns.append(column)
                notes.append(column.describe())
        if not columns:
            got = f"got: {'; '.join(notes)}" if notes else "got none besides the target"
            raise ValueError(f"expected an input column that says something, {got}.")
        return cls(tuple(columns), tuple(notes))

    def inputs(self, table: pd.DataFrame) -> pd.DataFrame:
        """
        The numbers [N, D] of a table, under names.

        :raises ValueError: for columns that are missing, and for cells that are not what they were.
        """
        absent = [column.name for column in self.columns if column.name not in table.columns]
        if absent:
            raise ValueError(
                f"no column {listed(absent)}. The table has the columns {listed(table.columns)}."
            )
        for column in self.columns:
            if is_binary(table[column.name]):
                raise ValueError(
                    f"column {column.name!r}: expected a {column.kind}, got binary cells."
                )
        values = pd.DataFrame({c.name: c.values(table[c.name]) for c in self.columns})
        for column in self.columns:
            wrong = values[column.name].isna() & ~is_missing(table[column.name])
            if column.kind != "category" and wrong.any():
                position = int(np.argmax(wrong.to_numpy()))
                raise ValueError(
                    f"column {column.name!r}, row {row_number(table, position)}: expected a {column.kind},"
                    f" got {table[column.name].iloc[position]!r}."
                )
        inputs: pd.DataFrame = self._transformer().transform(values)
        inputs.columns = _distinct(name.partition("__")[2] for name in inputs.columns)
        return inputs

    def unexpected(self, table: pd.DataFrame) -> dict[str, np.ndarray]:
        """By the names of columns that had all cells in training: where cells are missing now."""
        missing = {
            column.name: is_missing(table[column.name]).to_numpy()
            for column in self.columns
            if not column.missing
            and _ABSENT not in column.categories
            and column.name in table.columns
        }
        return {name: where for name, where in missing.items() if where.any()}

    def unseen(self, table: pd.DataFrame) -> dict[str, pd.Series]:
        """By the names of columns of categories: the cells whose category they had not in training."""
        unseen = {}
        for column in self.columns:
            # Of more categories rare ones were none of them in training, too.
            if column.kind == "category" and len(column.categories) < _MOST_CATEGORIES:
                cells = column.values(table[column.name])
                unseen[column.name] = cells[~cells.isin([*column.categories, _ABSENT])]
        return {name: cells for name, cells in unseen.items() if len(cells)}

    def to_json(self) -> list[dict[str, Any]]:
        """The columns, as JSON has them."""
        return [asdict(column) for column in self.columns]

    @classmethod
    def from_json(cls, columns: Sequence[Mapping[str, Any]]) -> Recipe:
        """What `to_json` gave."""
        return cls(tuple(Column(**{**c, "categories": tuple(c["categories"])}) for c in columns))

    def _transformer(self) -> ColumnTransformer:
        """
        scikit-learn's; fitted to two rows that show it which cells can be missing. Its steps, and by them its
        outputs, are named by position: names of columns can be those of its parameters, or alike.
        """
        steps: list[Any] = []
        shown: dict[str, list[Any]] = {}
        for position, c in enumerate(self.columns):
            if c.kind == "category":
                step = OneHotEncoder(
                    categories=[list(c.categories)], handle_unknown="ignore", sparse_output=False
                )
                shown[c.name] = [c.categories[0]] * 2
            else:
                fill = SimpleImputer(
                    strategy="constant",
                    fill_value=c.fill,
                    add_indicator=c.missing,
                    keep_empty_features=True,
                )
                step = make_pipeline(fill)
                shown[c.name] = [c.fill, np.nan if c.missing else c.fill]
            steps.append((str(position), step, [c.name]))
        transformer = ColumnTransformer(steps, verbose_feature_names_out=True)
        return transformer.set_output(transform="pandas").fit(pd.DataFrame(shown))


def written(decimal_comma: bool, thousands: bool) -> str:
    """How numbers are, for the user, where it is not the usual way."""
    if thousands:
        return (
            ", decimal comma, points between thousands"
            if decimal_comma
            else ", commas between thousands"
        )
    return ", decimal comma" if decimal_comma else ""


def row_number(table: pd.DataFrame | pd.Series, position: int) -> int:
    """Of a row in the file that a part of a table is of, from 1, by the part's index where it has numbers."""
    label = table.index[position]
    return int(label if isinstance(label, Integral) else position) + 1


def is_text(different: int, rows: int) -> bool:
    """Whether cells that differ so often are no categories: few say what others say."""
    return different > _MOST_CATEGORIES and different > 0.5 * rows


def _distinct(names: Iterable[str]) -> list[str]:
    """Each once: what was there before has a number behind it."""
    distinct: dict[str, None] = {}
    for name in names:
        number, tried = 1, name
        while tried in distinct:
            number += 1
            tried = f"{name} ({number})"
        distinct[tried] = None
    return list(distinct)


def _column(name: str, cells: pd.Series) -> Column | str:
    """What a column is, or why it is left out."""
    if is_binary(cells):
        return "it is binary: write it as numbers or text"
    missing = is_missing(cells)
    there = cells[~missing]
    if there.empty:
        return "it is empty"
    any_missing = bool(missing.any())
    if there.astype(str).nunique() == 1 and not any_missing:
        return "it is constant"
    # What a type says goes before what numbers and text it could be taken for.
    if pd.api.types.is_datetime64_any_dtype(there):
        return Column(name, "date", float(days(there).median()), any_missing)
    if pd.api.types.is_timedelta64_dtype(there):
        return Column(name, "duration", float(seconds(there).median()), any_missing)
    values = booleans(there)
    if values.notna().all():
        return Column(name, "boolean", float(values.mode()[0]), any_missing)
    notation, values = found_numbers(there, MOSTLY)
    if values.notna().mean() >= MOSTLY:
        strange = list(there[values.isna()].unique())
        if strange:
            return f"it has numbers, but also {listed(strange[:3])}: correct them, or write ? for missing"
        return Column(name, "number", float(values.median()), any_missing, (), *notation)
    values = seconds_of_day(there)
    if values.notna().all():
        return Column(name, "time of day", float(values.median()), any_missing)
    order = date_order(there)
    values = days(there, order)
    if order is None and values.notna().all():
        return "the day comes first in some of its dates and second in others: begin them with the year"
    if values.notna().all():
        return Column(name, "date", float(values.median()), any_missing, order=order or "")
    counts = there.astype(str).str.strip().value_counts()
    if is_text(len(counts), len(there)):
        return f"it is text of {len(counts)} different values in {len(there)} rows"
    # Who writes "(missing)" means it.
    categories = sorted(
        set(counts.index[:_MOST_CATEGORIES]) - ({_ABSENT} if any_missing else set())
    )
    return Column(name, "category", categories=(*categories, *([_ABSENT] if any_missing else [])))
