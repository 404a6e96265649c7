"""Files that are written after long work."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

__all__ = ["NO_ROOM", "check_file", "check_writable", "written_whole"]

#: A full disk, a file larger than it may be, a share that is used up.
NO_ROOM = frozenset({errno.ENOSPC, errno.EFBIG, getattr(errno, "EDQUOT", errno.ENOSPC)})
#: What writing may come to of which the system does not say where.
_UNNAMED = {*NO_ROOM, errno.EIO}


@contextmanager
def written_whole(path: Path) -> Iterator[IO[bytes]]:
    """
    A file to write to, which has its name once all of it is on the disk: a kill leaves none by halves. A link
    stays one: it is what it leads to that is written. Pipes, devices and the like are written to as they are.

    :param path: of the file; folders are made.
    :raises OSError: where it cannot be written, or there is no room for it: with the name of the file.
    """
    try:
        with _written_whole(path) as file:
            yield file
    except OSError as error:
        if error.errno in _UNNAMED and error.filename is None:
            error.filename = str(path)
        raise


@contextmanager
def _written_whole(path: Path) -> Iterator[IO[bytes]]:
    whole = _replaceable(path)
    if whole is None:
        with path.open("wb") as file:
            yield file
        return
    whole.parent.mkdir(parents=True, exist_ok=True)
    partial = whole.with_name(f"{whole.name}.{os.getpid()}.partial")
    try:
        with partial.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        partial.replace(whole)
    finally:
        partial.unlink(missing_ok=True)


def check_file(path: Path) -> None:
    """
    Check, before the work, that `written_whole` can write a file. A pipe is not opened: its reader would take
    that for the end.

    :param path: of the file; it need not exist.
    :raises OSError: where it cannot.
    """
    whole = _replaceable(path)
    if whole is not None:
        check_writable(whole.parent)
    elif not os.access(path, os.W_OK):
        raise PermissionError(f"{path}: expected a file that can be written to.")


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


def _replaceable(path: Path) -> Path | None:
    """
    The file that a name stands for, links followed, whether it is there or not; ``None`` for what is there
    and cannot be replaced, as it is no file or, open elsewhere, has no name any more.
    """
    file = os.path.realpath(path)
    return Path(file) if os.path.isfile(file) or not os.path.exists(path) else None
