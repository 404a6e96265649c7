"""
From the columns of a table to numbers: what each holds, what is done with it, and how a person is told.

What is done are scikit-learn's transformers with all that they learned as their parameters, so that a recipe
is saved as JSON and made again without pickle.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from numbers import Integral
from typing import Any

import numpy as np
import pandas as pd
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.preprocessing import OneHotEncoder

from .cells import (
    Notation,
    booleans,
    composed,
    composed_names,
    date_order,
    days,
    found_numbers,
    is_binary,
    is_missing,
    numbers,
    seconds,
    seconds_of_day,
)
from .files import listed

__all__ = ["MOSTLY", "Column", "Recipe", "is_text", "numbered", "row_number", "shortened"]

MOSTLY = 0.95  # of the cells there are: what so many are, the column is
_FEW_CATEGORIES = 20  # so many have a column each, however few the rows,
_ROWS_OF_CATEGORY = 8  # and more where there are so many rows for each of them,
_MOST_CATEGORIES = 100  # but no more: memory grows with rows times columns
_ABSENT = "(missing)"
_SHOWN = 5  # of the categories, to the user
_LONGEST = 40  # of the characters of one
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
    :param decimal_comma: how numbers are written, see :class:`.cells.Notation`.
    :param thousands: likewise.
    :param order: of the fields of a date, see :func:`.cells.date_order`.
    :param prefix: what stands before each number.
    :param suffix: behind each.
    :param rare: the categories of training without a column; ``None`` where an older fit does not know them.
    :param rare_share: of the rows of training, theirs.
    """

    name: str
    kind: str
    fill: float = 0.0
    missing: bool = False
    categories: tuple[str, ...] = ()
    decimal_comma: bool = False
    thousands: bool = False
    order: str = ""
    prefix: str = ""
    suffix: str = ""
    rare: tuple[str, ...] | None = ()
    rare_share: float = 0.0

    @property
    def notation(self) -> Notation:
        """How numbers are written."""
        return Notation(self.decimal_comma, self.thousands, self.prefix, self.suffix)

    def values(self, cells: pd.Series) -> pd.Series:
        """The cells as numbers, NaN where there is none; or as text."""
        if self.kind == "category":
            return self._as_categories(cells).where(~is_missing(cells), _ABSENT)
        if self.kind == "date":
            return days(cells, self.order)
        if self.kind in _READERS:
            return _READERS[self.kind](cells)
        return numbers(cells, *self.notation)

    def outputs(self, name: str) -> list[str]:
        """What scikit-learn's transformers call that which they make of it, where it has a name."""
        if self.kind == "category":
            return [f"{name}_{category}" for category in self.categories]
        return [name, f"missingindicator_{name}"] if self.missing else [name]

    def _as_categories(self, cells: pd.Series) -> pd.Series:
        """Numbers as they were written in training, with decimals or without."""
        text, bare = cells.astype(str).str.strip(), labels(cells)
        known = [*self.categories, *(self.rare or ())]
        return text.where(text.isin(known) | ~bare.isin(known), bare)

    def describe(self) -> str:
        """For the user."""
        filled = f", missing cells as {self.fill:.4g} and marked" if self.missing else ""
        if self.kind == "category":
            return f"{self.name}: {self._described_categories()}"
        if self.kind == "date":
            order = f", {self.order}" if self.order else ""
            return f"{self.name}: date{order}, as days{filled}"
        if self.kind in ("time of day", "duration"):
            return f"{self.name}: {self.kind}, as seconds{filled}"
        return f"{self.name}: {self.kind}{self.notation}{filled}"

    def _described_categories(self) -> str:
        count = len(self.categories)
        shown = ", ".join(shortened(category) for category in self.categories[:_SHOWN])
        shown = f"({shown}{', ...' if count > _SHOWN else ''})"
        if not self.rare:
            return f"{count} categories {shown}, a column each"
        all_of_them = count + len(self.rare)
        return (
            f"the {count} commonest of {all_of_them} categories {shown}, a column each; the other"
            f" {len(self.rare)} ({100 * self.rare_share:.3g}% of rows) are taken for none"
        )


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
                    f"column {column.name!r}, row {row_number(table, position)}: expected a {column.kind}"
                    f"{column.notation}, got {table[column.name].iloc[position]!r}."
                )
        # Names of columns can be those of a transformer's parameters, or alike: it has their positions.
        values.columns = [str(position) for position in range(len(self.columns))]
        made: pd.DataFrame = self._transformer().transform(values)
        names = {
            name: label
            for position, column in enumerate(self.columns)
            for name, label in zip(
                column.outputs(str(position)), column.outputs(column.name), strict=True
            )
        }
        return made[list(names)].set_axis(_distinct(names.values()), axis=1)

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
        """
        By the names of columns of categories: the cells whose category they had not in training. Columns that
        are missing are left to `inputs`.
        """
        unseen = {}
        for column in self.columns:
            if column.kind == "category" and column.rare is not None and column.name in table:
                cells = column.values(table[column.name])
                known = [*column.categories, *column.rare, _ABSENT]
                unseen[column.name] = cells[~cells.isin(known)]
        return {name: cells for name, cells in unseen.items() if len(cells)}

    def to_json(self) -> list[dict[str, Any]]:
        """The columns, as JSON has them."""
        return [asdict(column) for column in self.columns]

    @classmethod
    def from_json(cls, columns: Sequence[Mapping[str, Any]]) -> Recipe:
        """What `to_json` gave."""
        return cls(tuple(Column(**_with_categories(column)) for column in columns))

    def _transformer(self) -> ColumnTransformer:
        """scikit-learn's, fitted to two rows that show what is filled in, and where cells can be missing."""
        shown = {
            str(position): [c.categories[0]] * 2
            if c.kind == "category"
            else [c.fill, np.nan if c.missing else c.fill]
            for position, c in enumerate(self.columns)
        }
        texts = {
            str(position): list(c.categories)
            for position, c in enumerate(self.columns)
            if c.kind == "category"
        }
        others = [position for position in shown if position not in texts]
        coded = OneHotEncoder(
            categories=list(texts.values()), handle_unknown="ignore", sparse_output=False
        )
        filled = SimpleImputer(strategy="most_frequent", add_indicator=True)
        transformer = ColumnTransformer(
            [("coded", coded, list(texts)), ("filled", filled, others)],
            verbose_feature_names_out=False,
        )
        return transformer.set_output(transform="pandas").fit(pd.DataFrame(shown))


def row_number(table: pd.DataFrame | pd.Series, position: int) -> int:
    """Of a row in the file that a part of a table is of, from 1, by the part's index where it has numbers."""
    label = table.index[position]
    return int(label if isinstance(label, Integral) else position) + 1


def is_text(different: int, rows: int) -> bool:
    """Whether cells that differ so often are no categories: few say what others say."""
    return different > _FEW_CATEGORIES and different > 0.5 * rows


def labels(cells: pd.Series) -> pd.Series:
    """Cells as text, whole numbers without decimals: where some are missing, Parquet has them as 1.0."""
    text = cells.astype(str).str.strip()
    return text.str.removesuffix(".0") if pd.api.types.is_float_dtype(cells) else text


def shortened(text: str) -> str:
    """A text for a line that the user reads."""
    text = " ".join(text.splitlines())
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def _with_categories(column: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a column, from JSON."""
    categories, rare = composed_names(column["categories"]), column.get("rare", ())
    # Fits of before they were kept had so many columns at most, and rarer categories had none.
    if "rare" not in column and len(categories) >= _FEW_CATEGORIES:
        rare = None
    rare = None if rare is None else composed_names(rare)
    column = {name: composed(value) for name, value in column.items()}
    return {**column, "categories": categories, "rare": rare}


def _distinct(names: Iterable[str]) -> list[str]:
    """Each once: what was there before has a number behind it."""
    distinct: dict[str, None] = {}
    for name in names:
        distinct[numbered(name, distinct)] = None
    return list(distinct)


def numbered(name: str, taken: Collection[str]) -> str:
    """The name, with a number behind it where it is taken."""
    number, tried = 1, name
    while tried in taken:
        number += 1
        tried = f"{name} ({number})"
    return tried


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
        if values.isna().any():
            return _strange(there, f"numbers{notation.beside}", values)
        way = notation._asdict()
        return Column(name, "number", float(values.median()), any_missing, **way)
    values = seconds_of_day(there)
    if values.notna().mean() >= MOSTLY:
        if values.isna().any():
            return _strange(there, "times of day", values)
        return Column(name, "time of day", float(values.median()), any_missing)
    order = date_order(there, MOSTLY)
    dates = days(there, order)
    if dates.notna().mean() >= MOSTLY:
        if order is None:
            return "the day comes first in some of its dates and second in others: begin them with the year"
        if dates.isna().any():
            return _strange(there, "dates", dates)
        return Column(name, "date", float(dates.median()), any_missing, order=order)
    counts = labels(there).value_counts()
    if is_text(len(counts), len(there)):
        notation, values = found_numbers(there, 0.5)
        if values.notna().mean() >= 0.5:
            return _strange(there, f"numbers{notation.beside}", values)
        if dates.notna().mean() >= 0.5:
            return _strange(there, "dates", dates)
        return f"it is text of {len(counts)} different values in {len(there)} rows"
    return _categories(name, counts, any_missing, len(cells))


def _strange(there: pd.Series, kind: str, values: pd.Series) -> str:
    """What is wrong with a column of numbers, or of others of which some cells are none."""
    wrong = values.isna()
    strange = listed(shortened(str(cell)) for cell in there[wrong].unique()[:3])
    first = row_number(there, int(np.argmax(wrong.to_numpy())))
    advice = "correct them, or write ? for missing"
    return f"it has {kind}, but also {strange}, first in row {first}: {advice}"


def _categories(name: str, counts: pd.Series, any_missing: bool, rows: int) -> Column:
    """A column of categories of which there are so many rows each, the commonest first."""
    if any_missing:  # who writes "(missing)" means it
        counts = counts.drop(_ABSENT, errors="ignore")
    number = min(max(_FEW_CATEGORIES, rows // _ROWS_OF_CATEGORY), _MOST_CATEGORIES)
    kept = counts.iloc[:number]
    rare = counts.iloc[len(kept) :]
    return Column(
        name,
        "category",
        categories=(*sorted(kept.index), *([_ABSENT] if any_missing else [])),
        rare=tuple(sorted(rare.index)),
        rare_share=float(rare.sum() / rows),
    )
