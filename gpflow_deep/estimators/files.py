"""Files that are written after long work."""

from __future__ import annotations

import tempfile
from pathlib import Path

__all__ = ["check_writable"]


def check_writable(folder: Path) -> None:
    """
    Check, before the work, that files can be written to a folder: by writing one.

    :param folder: it, and its parents, need not exist; what is made for the check is removed again.
    :raises OSError: where they cannot.
    """
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise type(error)(f"{folder}: expected a folder that can be written to: {error}") from error
    finally:
        for path in missing:
            if path.exists():
                path.rmdir()
