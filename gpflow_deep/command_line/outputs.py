"""Where there is no room for what is written."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import IO

__all__ = ["standard_output"]


@contextmanager
def standard_output() -> Iterator[IO[bytes]]:
    """
    For bytes, which are all written at the end of it: what fails at the end of a process nobody can tell of.

    :raises OSError: where there is no room for them, with its name as a file's.
    """
    try:
        yield sys.stdout.buffer
        sys.stdout.flush()
    except OSError as error:
        from gpflow_deep.validation.files import NO_ROOM

        if error.errno in NO_ROOM and error.filename is None:
            error.filename = "standard output"
            _drop_the_rest()
        raise


def _drop_the_rest() -> None:
    """Else Python tries to write it when the process ends, and tells of that too."""
    with suppress(OSError), open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), sys.stdout.fileno())
