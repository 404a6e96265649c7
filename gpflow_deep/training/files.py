"""Tables in files as streams of rows."""

from __future__ import annotations

__all__ = ["read_files"]

import glob
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

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

    :param pattern: of their paths, as the shell has it: ``data/part-*.parquet``.
    :param targets: names of the columns of Y.
    :param inputs: those of X; all others by default.
    :param num_data: number of rows of all files, counted if not given.
    :param buffer_size: see :class:`Stream`.
    :raises FileNotFoundError: there are none.
    :raises ValueError: they are of another kind, or lack a column.
    """
    return Stream(_Files(pattern, targets, inputs), num_data, buffer_size=buffer_size)


class _Files(Source):
    """Rows of files of one kind, see :func:`read_files`."""

    def __init__(
        self, pattern: str | Path, targets: Sequence[str], inputs: Sequence[str] | None
    ) -> None:
        self._paths = sorted(glob.glob(str(pattern), recursive=True))
        if not self._paths:
            raise FileNotFoundError(f"pattern: expected the paths of files, got {pattern}: none.")
        kinds = {Path(path).suffix for path in self._paths}
        if len(kinds) > 1 or not kinds <= _READERS.keys():
            raise ValueError(
                f"pattern: expected files of one kind, {' or '.join(_READERS)}, got"
                f" {', '.join(sorted(kinds))}."
            )
        names, self._pieces = _READERS[kinds.pop()]
        columns = names(self._paths[0])
        if inputs is None:
            inputs = [column for column in columns if column not in targets]
        for name, chosen in (("targets", targets), ("inputs", inputs)):
            if isinstance(chosen, str) or not chosen or not set(chosen) <= set(columns):
                raise ValueError(
                    f"{name}: expected a list of some of the columns {columns}, got {chosen!r}."
                )
        self._inputs, self._targets = list(inputs), list(targets)

    def read(self, rng: np.random.Generator | None) -> Iterator[Any]:
        for path in self._paths if rng is None else rng.permutation(self._paths):
            for table in self._pieces(path, [*self._inputs, *self._targets]):
                yield table[self._inputs].to_numpy(), table[self._targets].to_numpy()


def _names_in_csv(path: str) -> list[str]:
    import pandas as pd  # half a second to import

    return list(pd.read_csv(path, nrows=0).columns)


def _pieces_of_csv(path: str, columns: list[str]) -> Iterator[Any]:
    import pandas as pd

    with pd.read_csv(path, usecols=columns, chunksize=_ROWS) as pieces:
        yield from pieces


def _names_in_parquet(path: str) -> list[str]:
    return list(_parquet().read_schema(path).names)


def _pieces_of_parquet(path: str, columns: list[str]) -> Iterator[Any]:
    with _parquet().ParquetFile(path) as file:
        for batch in file.iter_batches(_ROWS, columns=columns):
            yield batch.to_pandas()


def _parquet() -> Any:
    try:
        return import_module("pyarrow.parquet")
    except ImportError as error:
        raise ImportError(
            "Parquet files are read by the package pyarrow: pip install pyarrow."
        ) from error


#: By the ending: what reads the names of a file's columns, and what its rows.
_READERS = {
    ".csv": (_names_in_csv, _pieces_of_csv),
    ".parquet": (_names_in_parquet, _pieces_of_parquet),
}
