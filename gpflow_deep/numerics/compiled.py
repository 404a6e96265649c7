"""Functions compiled once a run."""

from __future__ import annotations

__all__ = ["compiled"]

from collections.abc import Callable
from functools import partial
from typing import Any

import tensorflow as tf


def compiled(function: Callable[..., Any], **options: Any) -> Any:
    """
    A `tf.function` whose first call TensorFlow knows for one.

    It counts tracings by a function's code, which all runs of a process share, and from the fifth run on
    would warn of retracing. A partial has no code. AutoGraph is kept out: there is no Python control flow to
    convert.

    :param options: of `tf.function`.
    """
    return tf.function(partial(function), autograph=False, **options)
