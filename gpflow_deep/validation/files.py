"""Files that are written after long work."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

__all__ = ["check_writable", "written_whole"]


@contextmanager
def written_whole(path: Path) -> Iterator[IO[bytes]]:
    """
    A file to write to, which has its name once all of it is on the disk: a kill leaves none by halves.

    :param path: of the file; folders are made.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    try:
        with partial.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def check_writable(folder: Path) -> None:
    """
    Check, before the work, that files can be written to a folder: by writing one.

    Where the folder is not there yet, one like it is tried beneath the nearest that is, under a name that
    no other process has, so that any number of them can check at once.

    :param folder: it, and its parents, need not exist; what is made for the check is removed again.
    :raises OSError: where they cannot.
    """
    try:
        folder = folder.absolute()
        existing = next(path for path in (folder, *folder.parents) if os.path.lexists(path))
        with tempfile.TemporaryDirectory(dir=existing) as trial:
            path = Path(trial, folder.relative_to(existing))
            path.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=path):
                pass
    except OSError as error:
        raise type(error)(f"{folder}: expected a folder that can be written to: {error}") from error
