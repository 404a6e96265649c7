"""Files that tables are read from: compressed, in archives, damaged, or of another kind than they look."""

from __future__ import annotations

import re
import sys
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from io import BufferedReader, RawIOBase, TextIOWrapper
from lzma import LZMAError
from pathlib import Path
from tarfile import TarError
from typing import IO, Any
from zipfile import BadZipFile, ZipFile

import pandas as pd

from .pipes import PARQUET_MARK

__all__ = [
    "OTHER_KINDS",
    "PARQUET",
    "SAMPLE",
    "UTF_16",
    "check_no_workbook",
    "check_text",
    "listed",
    "opened",
    "whole",
    "whole_cells",
]

UTF_16 = (b"\xff\xfe", b"\xfe\xff")
SAMPLE = 65_536  # bytes of a file that its format is found from
_BINARY = 0.1  # of the bytes of a file are zero: it is no text, or UTF-16
_ZIP, _ZIP_MARK = ".zip", b"PK\x03\x04"
#: Of other compressed files: a mark, and where it is.
_COMPRESSED = {
    ".gz": (b"\x1f\x8b", 0),
    ".bz2": (b"1AY&SY", 4),
    ".xz": (b"\xfd7zXZ", 0),
    ".zst": (b"\x28\xb5\x2f\xfd", 0),
}
#: What archives have that are workbooks.
_WORKBOOKS = {"[Content_Types].xml": "an Excel", "META-INF/manifest.xml": "an OpenDocument"}
PARQUET = (".parquet", ".pq")
#: Endings of what is not read as text as it is.
OTHER_KINDS = (*PARQUET, *_COMPRESSED, _ZIP, ".xlsx", ".xls", ".ods")
_OLD_WORKBOOK_MARK = b"\xd0\xcf\x11\xe0"
#: What macOS adds to an archive.
_OF_MACOS = re.compile(r"__MACOSX/|(?:.*/)?\.DS_Store$")
_SHOWN = 5  # of the files in an archive, to the user


@contextmanager
def opened(path: Path, encoding: str | None = None) -> Iterator[IO[Any]]:
    """The bytes of a file, uncompressed, or its text with the ends of lines as they are."""
    if path.suffix.lower() == _ZIP:
        with ZipFile(path) as archive, archive.open(_only_file(path, archive)) as member:
            if encoding is None:
                yield member
            else:
                yield TextIOWrapper(member, encoding, errors="replace", newline="")
        return
    options: dict[str, Any] = dict(encoding=encoding, errors="replace") if encoding else {}
    mode = "r" if encoding else "rb"
    with pd.io.common.get_handle(
        path, mode, compression="infer", is_text=bool(encoding), **options
    ) as handles:
        yield handles.handle


@contextmanager
def whole(path: Path) -> Iterator[None]:
    """
    What is wrong with a compressed file is told as of any other.

    :raises ValueError: for one that is cut or damaged, or that takes a package which is not there.
    """
    try:
        yield
    except ImportError as error:
        raise ValueError(f"{path}: {error}") from error
    except _damage() as error:
        # The system's own errors have a number, and name the file.
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise ValueError(f"{path}: expected a whole compressed file: {error}") from error


def _damage() -> tuple[type[Exception], ...]:
    """What is raised by those who uncompress; pandas imports zstandard for files that need it."""
    zstandard = sys.modules.get("zstandard")
    theirs = () if zstandard is None else (zstandard.ZstdError,)
    return (EOFError, BadZipFile, LZMAError, OSError, TarError, zlib.error, *theirs)


def check_no_workbook(path: Path, file: IO[bytes], head: bytes) -> None:
    """
    Whether a file is no workbook or archive, whose name may say otherwise.

    :param file: its bytes.
    :param head: the first of them.
    :raises ValueError: saying what it is.
    """
    if head.startswith(_OLD_WORKBOOK_MARK):
        raise _is_workbook(path, "an Excel")
    if head.startswith(_ZIP_MARK):
        with ZipFile(file) as archive:
            _only_file(path, archive)
        raise ValueError(f"{path}: expected the name of a zip archive to end in {_ZIP}.")


def check_text(path: Path, head: bytes) -> None:
    """
    Whether a file is text, in an encoding that its beginning tells.

    :raises ValueError: for Parquet of another name, and for UTF-16 without a mark.
    """
    if head.startswith(PARQUET_MARK):
        raise ValueError(f"{path}: expected the name of a Parquet file to end in .parquet or .pq.")
    for ending, (mark, place) in _COMPRESSED.items():
        if head.startswith(mark, place):
            raise ValueError(
                f"{path}: expected the name of a file so compressed to end in {ending}."
            )
    if head.startswith(UTF_16) or head.count(0) <= _BINARY * len(head):
        return
    # The first half of a Latin letter is zero in one order, the second in the other.
    encoding = "utf-16-le" if head[1::2].count(0) >= head[::2].count(0) else "utf-16-be"
    raise ValueError(
        f"{path}: expected text, got NUL bytes: it may be UTF-16 without a mark at its beginning (--encoding"
        f" {encoding})."
    )


class _WholeCells(RawIOBase):
    """The bytes of a file, which is refused at a NUL byte: pandas would end the cell there."""

    def __init__(self, path: Path, file: IO[bytes]) -> None:
        self._path, self._file, self._lines = path, file, 1

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._file.read(len(buffer))
        place = data.find(b"\0")
        if place >= 0:
            line = self._lines + data.count(b"\n", 0, place)
            raise ValueError(
                f"{self._path}: expected text, got a NUL byte in line {line}. The file may be damaged."
            )
        self._lines += data.count(b"\n")
        buffer[: len(data)] = data
        return len(data)


def whole_cells(path: Path, file: IO[bytes], encoding: str) -> IO[bytes]:
    """The bytes of a file, checked where its encoding has no NUL bytes."""
    if b"\0" in "a".encode(encoding):
        return file
    return BufferedReader(_WholeCells(path, file), SAMPLE)


def _only_file(path: Path, archive: ZipFile) -> str:
    """
    The name of the table in an archive.

    :raises ValueError: for a workbook, and for an archive of several files.
    """
    names = [name for name in archive.namelist() if not name.endswith("/")]
    for name, kind in _WORKBOOKS.items():
        if name in names:
            raise _is_workbook(path, kind)
    names = [name for name in names if not _OF_MACOS.match(name)]
    if len(names) != 1:
        more = ", ..." if len(names) > _SHOWN else ""
        raise ValueError(
            f"{path}: expected an archive of one file, got {len(names)}:"
            f" {listed(names[:_SHOWN])}{more}."
        )
    return names[0]


def _is_workbook(path: Path, kind: str) -> ValueError:
    return ValueError(f"{path}: expected a CSV file, got {kind} workbook: save its sheet as CSV.")


def listed(names: Iterable[Any]) -> str:
    """Names in quotes, separated by commas."""
    return ", ".join(repr(str(name)) for name in names)
