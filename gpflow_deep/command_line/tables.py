"""Tables from files: CSV of any separator, decimal mark and encoding, and Parquet."""

from __future__ import annotations

import csv
import re
import warnings
from codecs import getincrementaldecoder
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any

import pandas as pd

from .cells import composed
from .files import (
    PARQUET,
    SAMPLE,
    UTF_16,
    check_no_workbook,
    check_text,
    listed,
    opened,
    whole,
    whole_cells,
)

__all__ = ["Format", "read_table", "require", "stream_table"]

_SEPARATORS = ";\t|,"  # where as much speaks for two, the comma is that of text or of decimals
_ROWS = 5000
_FIRST_ROWS = 20  # that the separator is found from
#: pandas ends lines here, where Python's `str.splitlines` does also at form feeds and others.
_LINE_END = re.compile(r"\r\n|\r|\n")
#: The first line of files that Excel is to read.
_SEPARATOR_LINE = re.compile(r"\s*\"?sep=(.)\"?\s*", re.IGNORECASE)
_MARK = "\ufeff"  # of the order of bytes, where the encoding that was named leaves it
_NO_ROWS = "expected rows below the names of the columns, got none."


@dataclass(frozen=True)
class Format:
    """
    How a CSV file is written.

    :param separator: of cells.
    :param encoding: as Python names it.
    """

    separator: str
    encoding: str

    @classmethod
    def found(cls, path: Path, separator: str | None = None, encoding: str | None = None) -> Format:
        """
        That of a file: by the marks at its beginning, UTF-8, or else Windows-1252; by a line `sep=;`, or
        else the separator that makes most cells of the first line, and as many of the next ones.

        :param separator: if it is known.
        :param encoding: if it is known.
        :raises ValueError: for a separator of several characters, an encoding that Python does not know, or a
            file that is no text as it is.
        """
        separator = {"\\t": "\t", "tab": "\t"}.get(separator or "", separator)
        if separator is not None and (len(separator) != 1 or separator in '\r\n"'):
            raise ValueError(
                f"--separator: expected one character, or tab or \\t, got {separator!r}."
            )
        try:
            # Python knows others too, such as base64, that are none of text.
            "a".encode(encoding or "utf-8")
        except (LookupError, UnicodeError):
            raise ValueError(
                f"--encoding: expected one that Python knows, such as utf-8 or cp1252, got {encoding!r}."
            ) from None
        with opened(path) as file:
            head = file.read(SAMPLE)
            is_whole = not file.read(1)
            check_no_workbook(path, file, head)
        if encoding is None:
            check_text(path, head)
            encoding = _encoding(head, is_whole)
        text = head.decode(encoding, errors="replace").removeprefix(_MARK)
        lines = [line for line in _LINE_END.split(text) if line.strip()]
        named = _SEPARATOR_LINE.fullmatch(lines[0]) if lines else None
        return cls(separator or (named[1] if named else _separator(lines)), encoding)


def read_table(
    path: Path, separator: str | None = None, encoding: str | None = None
) -> pd.DataFrame:
    """
    A table whose first line names the columns; cells of CSV files are text, as they are in the file. Letters
    with marks, in names too, are composed to one character: files differ in that where nobody sees it.

    :param path: CSV, also compressed as pandas knows it, or Parquet.
    :param separator: of a CSV file's cells; found from the file by default.
    :param encoding: of a CSV file; found from the file by default.
    :raises ValueError: for a file that is no such table.
    """
    return pd.concat(list(stream_table(path, separator, encoding, rows=None)))


def stream_table(
    path: Path,
    separator: str | None = None,
    encoding: str | None = None,
    rows: int | None = _ROWS,
) -> Iterator[pd.DataFrame]:
    """
    The same in parts of some rows, so that memory does not grow with the file. Blank rows are left out; the
    index counts them.
    """
    if path.suffix.lower() in PARQUET:
        try:
            table = pd.read_parquet(path)
            table = table.reset_index(drop=table.index.names == [None])
        except ImportError as error:
            raise ValueError(
                f"{path}: to read Parquet takes pyarrow: pip install 'pyarrow<22' (later ones want NumPy 2)."
                f" What failed: {error}"
            ) from error
        except (OSError, ValueError) as error:
            raise ValueError(f"{path}: expected a Parquet file, got {error}.") from error
        table.columns = _check_names(path, list(table.columns))
        table = _composed(table)
        if table.empty:
            raise ValueError(f"{path}: {_NO_ROWS}")
        yield from ([table] if rows is None else _cut(table, rows))
        return
    with whole(path):
        found = Format.found(path, separator, encoding)
        yield from _stream_csv(path, found, rows)


def _stream_csv(path: Path, found: Format, rows: int | None) -> Iterator[pd.DataFrame]:
    options: dict[str, Any] = dict(
        sep=found.separator,
        encoding=found.encoding,
        dtype=str,
        keep_default_na=False,
        skipinitialspace=True,
        index_col=False,
        skip_blank_lines=False,
        header=0,
        chunksize=rows or 10**9,
    )
    try:
        above, names = _names(path, found)
        empty = True
        with (
            opened(path) as file,
            pd.read_csv(
                whole_cells(path, file, found.encoding), names=names, skiprows=above, **options
            ) as reader,
        ):
            for part in _as_long_as_the_names(reader):
                part = _composed(part.map(str.strip))
                part = part.loc[(part != "").any(axis=1)]
                if len(part):
                    empty = False
                    yield part
        if empty:
            raise ValueError(f"{path}: {_NO_ROWS}")
    except UnicodeError as error:
        raise ValueError(
            f"{path}: expected text in {found.encoding}, got {error}. Name the encoding (--encoding)."
        ) from error
    except (pd.errors.ParserWarning, pd.errors.ParserError) as error:
        told = _too_long(path, found, above, len(names)) or _said(error)
        raise ValueError(f"{path}: {told}") from error
    except (pd.errors.EmptyDataError, csv.Error) as error:
        raise ValueError(f"{path}: {_said(error)}") from error


def _too_long(path: Path, found: Format, above: int, num_names: int) -> str:
    """What is wrong with the first row of more cells than names, which so many lines are above."""
    with opened(path, found.encoding) as file, suppress(csv.Error):
        lines = islice(file, above, None)
        rows = csv.reader(lines, delimiter=found.separator, skipinitialspace=True)
        for row in rows:
            if len(row) > num_names:
                return (
                    f"expected as many cells in each row as in the line of names (line {above + 1}:"
                    f" {num_names}), got {len(row)} in line {above + rows.line_num} (a title or comments"
                    f" above the names, to be removed? {found.separator!r} in a number or at the end? row"
                    " numbers without a name?)."
                )
    return ""


def _said(error: Exception) -> str:
    """By those who read CSV."""
    return f"expected a CSV file: {str(error).rpartition('C error: ')[2].strip()}."


def _as_long_as_the_names(reader: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    """The parts of a table, unless pandas would cut its rows."""
    while True:
        with warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)
            part = next(reader, None)
        if part is None:
            return
        yield part


def require(table: pd.DataFrame, names: Iterable[str], path: Path) -> None:
    """
    Check that columns of these names exist.

    :raises ValueError: naming those that do not, and those that do.
    """
    missing = [name for name in names if name not in table.columns]
    if missing:
        raise ValueError(
            f"{path}: no column {listed(missing)}. The file has the columns {listed(table.columns)}."
        )


def _encoding(head: bytes, is_whole: bool) -> str:
    """
    :param head: the first bytes of a file.
    :param is_whole: whether they are all; else the last character may be cut.
    """
    if head.startswith(UTF_16):
        return "utf-16"
    try:
        getincrementaldecoder("utf-8-sig")().decode(head, final=is_whole)
    except UnicodeDecodeError:
        return "cp1252"
    return "utf-8-sig"


def _separator(lines: list[str]) -> str:
    """That of the lines of a file."""

    def weight(separator: str) -> int:
        reader = csv.reader(lines, delimiter=separator, skipinitialspace=True)
        first, *others = [len(row) for row in islice(reader, 1 + _FIRST_ROWS)] or [1]
        return (first - 1) * (1 + others.count(first))

    separator = max(_SEPARATORS, key=weight)
    return separator if weight(separator) else ","


def _names(path: Path, found: Format) -> tuple[int, list[str]]:
    """The names in the first line that is not blank, to its end, and how many lines are above it."""
    with opened(path, found.encoding) as file:
        above, first = 0, ""
        for first in file:
            first = first.removeprefix(_MARK)
            if first.strip() and not (above == 0 and _SEPARATOR_LINE.fullmatch(first)):
                break
            above, first = above + 1, ""
        lines = chain([first], file)
        cells = next(csv.reader(lines, delimiter=found.separator, skipinitialspace=True), [])
    return above, _check_names(path, [cell.strip() for cell in cells])


def _check_names(path: Path, names: list[Any]) -> list[str]:
    if not names:
        raise ValueError(f"{path}: expected a line of column names and rows below it, got nothing.")
    texts = [composed(str(name)) for name in names]
    if all(_is_number(name) for name in texts):
        raise ValueError(
            f"{path}: expected the names of the columns in the first line, got only numbers:"
            f" {listed(texts)}."
        )
    repeated = [name for name, count in Counter(texts).items() if name and count > 1]
    if repeated:
        raise ValueError(f"{path}: expected each column name once, got {listed(repeated)} again.")
    # A column of row numbers, as pandas writes it, has no name.
    number = {index: f"(column {index + 1})" for index, name in enumerate(texts) if not name}
    taken = [name for name in number.values() if name in texts]
    if taken:
        raise ValueError(f"{path}: expected other names than {listed(taken)}, as some have none.")
    return [number.get(index, name) for index, name in enumerate(texts)]


def _composed(table: pd.DataFrame) -> pd.DataFrame:
    """With its text as `composed` has it."""
    table = table.copy(deep=False)
    for name in table.columns:
        cells = table[name]
        if cells.dtype.kind == "O" and not all(map(_is_ascii, cells.tolist())):
            table[name] = cells.map(composed, na_action="ignore")
    return table


def _is_ascii(cell: Any) -> bool:
    return not isinstance(cell, str) or cell.isascii()


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _cut(table: pd.DataFrame, rows: int) -> list[pd.DataFrame]:
    return [table.iloc[start : start + rows] for start in range(0, len(table), rows)]
