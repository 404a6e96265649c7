"""Tables from files: CSV of any separator, decimal mark and encoding, and Parquet."""

from __future__ import annotations

import codecs
import csv
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

__all__ = ["Format", "listed", "read_table", "require", "stream_table"]

_SEPARATORS = ",;\t|"
_PARQUET = (".parquet", ".pq")
_SAMPLE = 65_536  # bytes of a file that its format is found from
_ROWS = 5000
_NO_ROWS = "got no rows below the names of the columns"


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
        That of a file: by the marks at its beginning, UTF-8, or else Windows-1252; by the separator that
        the first line has most of.

        :param separator: if it is known.
        :param encoding: if it is known.
        :raises ValueError: for a separator of several characters, or an encoding that Python does not know.
        """
        separator = {"\\t": "\t", "tab": "\t"}.get(separator or "", separator)
        if separator and len(separator) > 1:
            raise ValueError(
                f"--separator: expected one character, or tab or \\t, got {separator!r}."
            )
        try:
            codecs.lookup(encoding or "utf-8")
        except LookupError:
            raise ValueError(
                f"--encoding: expected one that Python knows, such as utf-8 or cp1252, got {encoding!r}."
            ) from None
        with _opened(path) as file:
            head = file.read(_SAMPLE)
        if encoding is None:
            encoding = _encoding(head)
        text = head.decode(encoding, errors="replace")
        first = next((line for line in text.splitlines() if line.strip()), "")
        return cls(separator or max(_SEPARATORS, key=first.count), encoding)


def read_table(
    path: Path, separator: str | None = None, encoding: str | None = None
) -> pd.DataFrame:
    """
    A table whose first line names the columns; cells of CSV files are text, as they are in the file.

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
    if path.suffix in _PARQUET:
        try:
            table = pd.read_parquet(path)
            table = table.reset_index(drop=table.index.names == [None])
        except ImportError as error:
            raise ValueError(
                f"{path}: to read Parquet takes pyarrow, which is not installed (pip install pyarrow)."
            ) from error
        except (OSError, ValueError) as error:
            raise ValueError(f"{path}: expected a Parquet file, got {error}.") from error
        _check_names(path, list(table.columns))
        if table.empty:
            raise ValueError(_NO_ROWS)
        yield from ([table] if rows is None else _cut(table, rows))
        return
    found = Format.found(path, separator, encoding)
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
        with _opened(path) as file:
            head = file.read(_SAMPLE).decode(found.encoding, "replace")
        blank = next((i for i, line in enumerate(head.splitlines()) if line.strip()), 0)
        names = _names(path, head, found)
        empty = True
        with pd.read_csv(path, names=names, skiprows=blank, **options) as reader:
            for part in _as_long_as_the_names(reader):
                part = part.map(str.strip)
                part = part.loc[(part != "").any(axis=1)]
                if len(part):
                    empty = False
                    yield part
        if empty:
            raise ValueError(_NO_ROWS)
    except UnicodeError as error:
        raise ValueError(
            f"{path}: expected text in {found.encoding}, got {error}. Name the encoding (--encoding)."
        ) from error
    except pd.errors.ParserWarning as error:
        raise ValueError(
            f"{path}: expected as many cells in each row as in the line of names, got more in the first row"
            " (a comma in a number or at the end? row numbers without a name?)."
        ) from error
    except (pd.errors.ParserError, pd.errors.EmptyDataError, csv.Error) as error:
        raise ValueError(f"{path}: expected a CSV file: {error}") from error


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


def listed(names: Iterable[Any]) -> str:
    """Names in quotes, separated by commas."""
    return ", ".join(repr(str(name)) for name in names)


def _opened(path: Path) -> Any:
    """The bytes of a file, uncompressed."""
    handles = pd.io.common.get_handle(path, "rb", compression="infer", is_text=False)
    return handles.handle


def _encoding(head: bytes) -> str:
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "utf-16"
    try:
        # The last character may be cut.
        head[: max(len(head) - 4, 0) or None].decode("utf-8-sig")
    except UnicodeDecodeError:
        return "cp1252"
    return "utf-8-sig"


def _names(path: Path, head: str, found: Format) -> list[str]:
    """The names in the first line that is not blank."""
    lines = (line for line in head.splitlines() if line.strip())
    cells = next(csv.reader(lines, delimiter=found.separator, skipinitialspace=True), [])
    names = [cell.strip() for cell in cells]
    return _check_names(path, names)


def _check_names(path: Path, names: list[Any]) -> list[str]:
    if not names:
        raise ValueError(f"{path}: expected a line of column names and rows below it, got nothing.")
    texts = [str(name) for name in names]
    if all(_is_number(name) for name in texts):
        raise ValueError(
            f"{path}: expected the names of the columns in the first line, got only numbers:"
            f" {listed(texts)}."
        )
    repeated = [name for name, count in Counter(texts).items() if name and count > 1]
    if repeated:
        raise ValueError(f"{path}: expected each column name once, got {listed(repeated)} again.")
    # A column of row numbers, as pandas writes it, has no name.
    return [name or f"(column {index + 1})" for index, name in enumerate(texts)]


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _cut(table: pd.DataFrame, rows: int) -> list[pd.DataFrame]:
    return [table.iloc[start : start + rows] for start in range(0, len(table), rows)]
