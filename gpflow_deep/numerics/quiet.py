"""TensorFlow without its start-up messages."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["import_tensorflow"]


def import_tensorflow() -> None:
    """
    Import TensorFlow and let it look for devices, its messages on that dropped: its libraries write them to
    the file descriptor itself, some before they know of any log level. Later messages come through.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    with _without_standard_error():
        import tensorflow as tf

        tf.config.list_logical_devices()


@contextmanager
def _without_standard_error() -> Iterator[None]:
    """For a while, what is written to file descriptor 2 is lost; exceptions are not."""
    try:
        kept = os.dup(2)
    except OSError:  # closed: there is nothing to do
        yield
        return
    try:
        with open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), 2)
            try:
                yield
            finally:
                os.dup2(kept, 2)
    finally:
        os.close(kept)
