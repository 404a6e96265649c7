"""Files that are written after long work."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

__all__ = ["check_writable"]


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
