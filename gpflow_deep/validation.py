"""Checks at the door: every error names the argument, what was expected and what came."""

from __future__ import annotations

from typing import Any

import gpflow
import numpy as np
import tensorflow as tf

__all__ = ["check_inputs", "check_positive_integer"]


def check_inputs(X: Any, name: str) -> np.ndarray:
    """
    ``X`` as a finite matrix [N, D] of the default float, N and D at least 1.

    :param name: the argument's name in error messages.
    :raises TypeError: where the values are not real numbers.
    :raises ValueError: where the shape is wrong or values are NaN or infinite.
    """
    array = np.asarray(X.numpy() if isinstance(X, (tf.Tensor, tf.Variable)) else X)
    if array.dtype.kind not in "fiub":
        raise TypeError(f"{name}: expected real numbers, got dtype {array.dtype}.")
    if array.ndim != 2 or 0 in array.shape:
        raise ValueError(f"{name}: expected a non-empty matrix [N, D], got shape {array.shape}.")
    bad = ~np.isfinite(array).all(axis=1)
    if bad.any():
        raise ValueError(
            f"{name}: expected finite values, got NaN or infinity in {bad.sum()} of {len(array)} rows"
            f" (first: row {int(np.argmax(bad))})."
        )
    return array.astype(gpflow.default_float())


def check_positive_integer(value: Any, name: str) -> int:
    """
    ``value`` as an int of at least 1.

    :raises ValueError: where it is not one.
    """
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1:
        raise ValueError(f"{name}: expected a positive integer, got {value!r}.")
    return int(value)
