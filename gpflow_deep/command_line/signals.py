"""An end from without that leaves nothing behind."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

__all__ = ["Ended", "ended_by_signals", "telling_at_the_end"]

#: Those that by themselves would end the process on the spot; Windows has not both.
_NAMES = ("SIGTERM", "SIGHUP")
_AT_ONCE = 1.0  # seconds: `timeout` and terminals send a signal twice, which must not cut the tidying short


class Ended(SystemExit):
    """A signal came; the code is the shell's for it."""


@contextmanager
def telling_at_the_end(tell: Callable[[], None]) -> Iterator[None]:
    """
    After Ctrl-C or a signal, say what becomes of the work.

    :param tell: says it.
    """
    try:
        yield
    except (KeyboardInterrupt, Ended):
        with suppress(OSError):  # the terminal may be gone
            tell()
        raise


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """
    Within it, SIGTERM and SIGHUP raise :class:`Ended`, so that files are removed and locks released. One that
    is ignored, as under `nohup`, or that something else takes is left alone; so are both outside the main
    thread, where Python takes none.
    """
    last = float("-inf")

    def end(number: int, frame: FrameType | None) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last > _AT_ONCE:
            last = now
            raise Ended(128 + number)

    taken = []
    if threading.current_thread() is threading.main_thread():
        numbers = [getattr(signal, name) for name in _NAMES if hasattr(signal, name)]
        taken = [number for number in numbers if signal.getsignal(number) == signal.SIG_DFL]
    for number in taken:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number in taken:
            signal.signal(number, signal.SIG_DFL)
