"""Warnings that point to the line of the user's that they are about."""

from __future__ import annotations

import logging
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import gpflow
import tensorflow as tf

__all__ = ["complex_casts_unsaid", "warn_caller", "warn_of_new_draws"]


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


def warn_of_new_draws() -> None:
    """Likewise as of the line that called GPflow's ``Scipy``, if one did: new draws are not for that one."""
    level, last, is_callback = 1, None, False
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if frame.f_globals.get("__name__") == gpflow.optimizers.scipy.__name__:
            # What a user looks at after a step may be drawn anew.
            is_callback |= last is None and frame.f_code.co_name == "_callback"
            last = level
        level, frame = level + 1, frame.f_back
    if last is not None and not is_callback:
        warnings.warn(
            "gpflow.optimizers.Scipy asks for the loss again and again, with new draws each time:"
            " it will stop early and report success. Give it model.training_loss_closure(data, seed=0).",
            stacklevel=last + 1,
        )


@contextmanager
def complex_casts_unsaid() -> Iterator[None]:
    """TensorFlow logs casts of complex numbers to real ones, also where they are meant."""

    def is_other(record: logging.LogRecord) -> bool:
        return "You are casting an input of type complex" not in record.getMessage()

    logger = tf.get_logger()
    logger.addFilter(is_other)
    try:
        yield
    finally:
        logger.removeFilter(is_other)
