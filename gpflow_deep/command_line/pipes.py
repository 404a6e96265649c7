"""Tables that can be read but once, from pipes."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import click

__all__ = ["PARQUET_MARK", "readable"]

#: How Parquet files begin; the last byte opens a structure, and is no letter of a column's name.
PARQUET_MARK = b"PAR1\x15"

_STANDARD_INPUT = Path("-")
#: How files begin that are not read as text, and how their names end.
_ENDINGS = {
    PARQUET_MARK: ".parquet",
    b"\x1f\x8b": ".gz",
    b"PK\x03\x04": ".zip",
    b"BZh": ".bz2",
    b"\xfd7zXZ\x00": ".xz",
    b"\x28\xb5\x2f\xfd": ".zst",
}


@contextmanager
def readable(path: Path) -> Iterator[Path]:
    """
    A file that can be read several times, as tables are: a pipe's content is kept as long as it takes.

    :param path: of a file, a pipe or a device; - for the standard input.
    :raises ValueError: what is raised about the file, by the name that the user knows.
    """
    if path != _STANDARD_INPUT and path.is_file():
        yield path
        return
    name = "standard input" if path == _STANDARD_INPUT else str(path)
    with TemporaryDirectory(prefix="gpflow-deep-") as folder:
        with click.open_file(str(path), "rb") as given:
            beginning = given.read(max(map(len, _ENDINGS)))
            endings = [end for mark, end in _ENDINGS.items() if beginning.startswith(mark)]
            kept = Path(folder) / f"table{''.join(endings)}"
            with kept.open("wb") as file:
                file.write(beginning)
                shutil.copyfileobj(given, file)
        try:
            yield kept
        except ValueError as error:
            raise ValueError(str(error).replace(str(kept), name)) from error
