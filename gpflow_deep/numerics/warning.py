"""Warnings that point to the line of the user's that they are about."""

from __future__ import annotations

import sys
import warnings
from types import FrameType

__all__ = ["warn_caller"]


def warn_caller(message: str, category: type[Warning] = UserWarning) -> None:
    """
    Warn as of the first line outside this package on the way to here: Python then shows that line, and the
    warning once for it.
    """
    level = 1
    frame: FrameType | None = sys._getframe()
    while frame is not None and frame.f_globals.get("__name__", "").split(".")[0] == "gpflow_deep":
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)
