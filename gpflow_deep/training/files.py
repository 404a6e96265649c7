"""Tables in files as streams of rows."""

from __future__ import annotations

__all__ = ["read_files"]

import glob
import json
import re
import zlib
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from ..validation import as_array
from .streams import Source, Stream

_ROWS = 50_000  # read at once


def read_files(
    pattern: str | Path,
    targets: Sequence[str],
    inputs: Sequence[str] | None = None,
    num_data: int | None = None,
    *,
    buffer_size: int | None = None,
) -> Stream:
    """
    The rows of CSV or Parquet files, some at a time.

    Parquet needs the package pyarrow. In each pass the files come in an order of its own; their rows come as
    they lie there, mixed in the buffer.

    >>> import pandas as pd, tempfile
    >>> folder = tempfile.mkdtemp()
    >>> pd.DataFrame({"a": [1.0, 2.0], "b": [3.0, 4.0], "y": [5.0, 6.0]}).to_csv(f"{folder}/1.csv")
    >>> stream = gd.training.read_files(f"{folder}/*.csv", targets=["y"], inputs=["a", "b"])
    >>> stream.num_data
    2

    :param pattern: of their paths, as the shell has it: ``data/part-*.parquet``, ``data/*.csv.gz``.
    :param targets: names of the columns of Y.
    :param inputs: those of X; all others by default.
    :param num_data: number of rows of all files, counted if not given.
    :param buffer_size: see :class:`Stream`.
    :raises TypeError: the pattern is no string; in a pass, a column holds no numbers.
    :raises FileNotFoundError: there are none.
    :raises ValueError: they are of another kind, or lack a column, the later ones in a pass.
    """
    return Stream(_Files(pattern, targets, inputs), num_data, buffer_size=buffer_size)


class _Files(Source):
    """Rows of files of one kind, see :func:`read_files`."""

    def __init__(
        self, pattern: str | Path, targets: Sequence[str], inputs: Sequence[str] | None
    ) -> None:
        if not isinstance(pattern, str | Path):
            raise TypeError(
                f"pattern: expected one string, such as 'data/part-*.csv', got {type(pattern).__name__}."
            )
        self._paths = sorted(glob.glob(str(pattern), recursive=True))
        if not self._paths:
            raise FileNotFoundError(f"pattern: expected the paths of files, got {pattern}: none.")
        kinds = {_kind(path) for path in self._paths}
        if len(kinds) > 1 or not kinds <= _READERS.keys():
            raise ValueError(
                f"pattern: expected files of one kind, {' or '.join(_READERS)}, got"
                f" {', '.join(sorted(kinds))}."
            )
        names, self._pieces = _READERS[kinds.pop()]
        try:
            columns = names(self._paths[0])
        except ValueError as error:
            raise ValueError(
                "pattern: expected files of rows below the names of the columns, got"
                f" {self._paths[0]}: {error}"
            ) from error
        if inputs is None:
            inputs = [column for column in columns if column not in targets]
        for name, chosen in (("targets", targets), ("inputs", inputs)):
            if isinstance(chosen, str) or not chosen or not set(chosen) <= set(columns):
                raise ValueError(
                    f"{name}: expected a list of some of the columns {columns}, got {chosen!r}."
                )
        both = sorted(set(inputs) & set(targets))
        if both:
            raise ValueError(f"inputs: expected none of the targets, got {both} in both.")
        self._inputs, self._targets = list(inputs), list(targets)
        sizes = [[Path(path).name, Path(path).stat().st_size] for path in self._paths]
        self.identity = f", files {zlib.crc32(json.dumps(sizes).encode()):08x}"

    def read(self, rng: np.random.Generator | None) -> Iterator[Any]:
        for path in self._paths if rng is None else rng.permutation(self._paths):
            self.place = str(path)
            try:
                for table in self._pieces(path, [*self._inputs, *self._targets]):
                    if len(table):
                        yield (
                            _numbers("X", table[self._inputs], path),
                            _numbers("Y", table[self._targets], path),
                        )
            except ValueError as error:  # of the reader, which does not name the file
                if str(path) in str(error):
                    raise
                raise ValueError(f"{path}: expected rows with these columns: {error}") from error


def _numbers(part: str, table: Any, path: str) -> np.ndarray:
    """
    A table's cells.

    :raises TypeError: where they are no numbers.
    """
    strange = [name for name, dtype in table.dtypes.items() if dtype.kind not in "fiub"]
    if strange:
        cells = table[strange[0]]
        wrong = next((x for x in cells if not isinstance(x, float | int)), cells.iloc[0])
        raise TypeError(
            f"{part} of data: expected real numbers, got {wrong!r} in column {strange[0]!r} of {path}."
        )
    return as_array(table)


def _names_in_csv(path: str) -> list[str]:
    import pandas as pd  # half a second to import

    table = pd.read_csv(path, nrows=1)
    # Of longer rows pandas takes the first cells for labels, and every column for the one before.
    if not isinstance(table.index, pd.RangeIndex):
        raise ValueError("got more cells in its rows than names in the first line.")
    # A first column without a name is the index that pandas wrote.
    return [name for name in table.columns if name != "Unnamed: 0"]


def _pieces_of_csv(path: str, columns: list[str]) -> Iterator[Any]:
    import pandas as pd

    _names_in_csv(path)
    with pd.read_csv(path, usecols=columns, chunksize=_ROWS) as pieces:
        yield from pieces


def _names_in_parquet(path: str) -> list[str]:
    # An index without a name is pandas' own.
    names = _parquet().read_schema(path).names
    return [name for name in names if not re.fullmatch(r"__index_level_\d+__", name)]


def _pieces_of_parquet(path: str, columns: list[str]) -> Iterator[Any]:
    with _parquet().ParquetFile(path) as file:
        for batch in file.iter_batches(_ROWS, columns=columns):
            yield batch.to_pandas(ignore_metadata=True)


def _parquet() -> Any:
    try:
        return import_module("pyarrow.parquet")
    except ImportError as error:
        raise ImportError(
            "Parquet files are read by pyarrow: pip install 'pyarrow<22' (later ones want NumPy 2)."
        ) from error


def _kind(path: str) -> str:
    """The ending, without that of a compression that pandas knows."""
    endings = [ending.lower() for ending in Path(path).suffixes]
    if len(endings) > 1 and endings[-1] in _COMPRESSED:
        endings.pop()
    return endings[-1] if endings else ""


_COMPRESSED = (".gz", ".bz2", ".xz", ".zip", ".zst")

#: By the ending: what reads the names of a file's columns, and what its rows.
_READERS = {
    ".csv": (_names_in_csv, _pieces_of_csv),
    ".parquet": (_names_in_parquet, _pieces_of_parquet),
}
