"""A folder for one process at a time."""

from __future__ import annotations

__all__ = ["Lock"]

import json
import os
import socket
import sys
import time
from pathlib import Path
from typing import IO


class Lock:
    """
    A lock on a file that says whose it is: process, host and since when.

    The system holds it for the process that opened the file and lets go of it when that process ends,
    however it ends: the file that a killed process leaves locks nothing, and is taken over. On
    Windows, which has no such locks, nothing is locked.

    :param path: the file; made here, removed on release.
    :raises OSError: it cannot be written.
    :raises RuntimeError: it is held; the message says by whom.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        while True:
            self._file = path.open("a+", encoding="utf-8")
            try:
                if not _try_lock(self._file):
                    raise RuntimeError(f"{path.parent} is in use: {_owner(self._file)}.")
                # The one that held it may have removed the file between our opening and our locking.
                if os.path.exists(path) and os.path.samestat(
                    os.fstat(self._file.fileno()), os.stat(path)
                ):
                    self._sign()
                    return
            except BaseException:
                self._file.close()
                raise
            self._file.close()

    def _sign(self) -> None:
        self._file.truncate(0)
        owner = {
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "since": time.strftime("%Y-%m-%d %H:%M:%S"),
        }
        self._file.write(json.dumps(owner))
        self._file.flush()

    def release(self) -> None:
        """Let others have it."""
        if sys.platform == "win32":  # where a file that is open cannot be removed
            self._file.close()
        self._path.unlink(missing_ok=True)
        self._file.close()


def _try_lock(file: IO[str]) -> bool:
    if sys.platform == "win32":
        return True
    import fcntl

    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _owner(file: IO[str]) -> str:
    file.seek(0)
    try:
        owner = json.loads(file.read())
        return f"process {owner['pid']} on {owner['host']} is at it since {owner['since']}"
    except (ValueError, KeyError, TypeError):  # it has not signed yet
        return "another process has just begun"
