"""Numeric CSV files by column name, with errors that say where in the file the trouble is."""

from __future__ import annotations

import csv
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

__all__ = ["CsvTable", "read_csv", "write_csv"]

_DELIMITERS = (",", ";", "\t")


@dataclass(frozen=True)
class CsvTable:
    """
    The cells of a CSV file, as text: only the columns that are asked for need to hold numbers.

    :param path: where the file is, for messages.
    :param columns: the names in the first line; a column without a name has the empty one.
    :param rows: the cells of the lines after it that are not blank.
    :param lines: the line in the file on which each row ends, counted from 1.
    """

    path: Path
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    lines: tuple[int, ...]

    def numbers(self, columns: Sequence[str]) -> np.ndarray:
        """
        The values of some columns, float64 [N, len(columns)].

        :param columns: names, in the order wanted.
        :raises ValueError: for a column that is not there, and for a cell that is empty, not a
            number, or not finite.
        """
        self.require(columns)
        positions = [self.columns.index(name) for name in columns]
        values = np.empty((len(self.rows), len(columns)))
        for i, row in enumerate(self.rows):
            for j, position in enumerate(positions):
                values[i, j] = self._number(row[position], self.lines[i], columns[j])
        return values

    def require(self, columns: Iterable[str]) -> None:
        """
        Check that columns of these names exist.

        :param columns: names.
        :raises ValueError: naming those that do not, and those that do.
        """
        missing = [name for name in columns if name not in self.columns]
        if missing:
            raise ValueError(
                f"{self.path}: no column {_listed(missing)}. "
                f"The file has the columns {_listed(self.columns)}."
            )

    def _number(self, cell: str, line: int, column: str) -> float:
        value = _as_number(cell)
        if value is None or not math.isfinite(value):
            found = f"got {cell!r}" if cell.strip() else "the cell is empty"
            raise ValueError(
                f"{self.path}, line {line}, column {column!r}: expected a finite number, {found}. A column"
                " of other things can be excluded."
            )
        return value


def read_csv(path: str | Path) -> CsvTable:
    """
    Read a CSV file whose first line names the columns, separated by commas, semicolons or tabs.

    :param path: a file in UTF-8, with or without a byte order mark.
    :raises ValueError: for a file without names or rows, with a name given twice, or with a line
        that has more or fewer cells than there are names.
    """
    path = Path(path)
    with path.open(newline="", encoding="utf-8-sig") as file:
        try:
            delimiter = max(_DELIMITERS, key=file.readline().count)
            file.seek(0)
            return _parse(path, csv.reader(file, delimiter=delimiter))
        except UnicodeDecodeError as error:
            raise ValueError(f"{path}: expected text in UTF-8, got {error}.") from error
        except csv.Error as error:
            raise ValueError(f"{path}: expected a CSV file, got {error}.") from error


def write_csv(file: IO[str], columns: Sequence[str], values: np.ndarray) -> None:
    """
    Write numbers under column names, in so many digits that reading gives the same numbers.

    :param file: open for writing text.
    :param columns: C names.
    :param values: [N, C].
    """
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(values.tolist())


def _parse(path: Path, reader: Any) -> CsvTable:
    columns: tuple[str, ...] = ()
    rows: list[tuple[str, ...]] = []
    lines: list[int] = []
    for cells in reader:
        if not any(cell.strip() for cell in cells):
            continue
        if not columns:
            columns = _checked_names(path, cells)
            continue
        if len(cells) != len(columns):
            raise ValueError(
                f"{path}, line {reader.line_num}: expected {len(columns)} cells, as many as "
                f"column names, got {len(cells)}."
            )
        rows.append(tuple(cells))
        lines.append(reader.line_num)
    if not rows:
        raise ValueError(f"{path}: expected a line of column names and rows below it, got no rows.")
    return CsvTable(path, columns, tuple(rows), tuple(lines))


def _checked_names(path: Path, cells: Sequence[str]) -> tuple[str, ...]:
    columns = tuple(cell.strip() for cell in cells)
    if all(_is_number(name) for name in columns):
        raise ValueError(
            f"{path}: expected the names of the columns in the first line, got only numbers: "
            f"{_listed(columns)}."
        )
    repeated = [name for name, count in Counter(columns).items() if name and count > 1]
    if repeated:
        raise ValueError(f"{path}: expected each column name once, got {_listed(repeated)} again.")
    return columns


def _is_number(text: str) -> bool:
    return _as_number(text) is not None


def _as_number(text: str) -> float | None:
    """The number that a cell holds; `1_000`, which Python reads as one, is none in a table."""
    try:
        return None if "_" in text else float(text)
    except ValueError:
        return None


def _listed(names: Iterable[str]) -> str:
    return ", ".join(repr(name) for name in names)
