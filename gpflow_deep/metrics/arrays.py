"""What scores are computed from."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["finite_array", "probability", "probability_array", "real_array"]


def real_array(value: Any, name: str) -> np.ndarray:
    """
    ``value`` in float64.

    :raises TypeError: where it holds no real numbers, or rows of different lengths.
    """
    try:
        array = np.asarray(value)
        if array.dtype.kind not in "fiub":
            raise TypeError(f"dtype {array.dtype}")
        return array.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"{name}: expected an array of real numbers, got {type(value).__name__}: {error}"
        ) from error


def finite_array(value: Any, name: str) -> np.ndarray:
    """
    Likewise with at least one value, all of them finite.

    :raises TypeError: as above.
    :raises ValueError: for other values.
    """
    array = real_array(value, name)
    if array.size == 0:
        raise ValueError(f"{name}: expected at least one value, got shape {array.shape}.")
    if not np.all(np.isfinite(array)):
        count = int(np.sum(~np.isfinite(array)))
        raise ValueError(f"{name}: expected finite values, got {count} NaN or infinite ones.")
    return array


def probability(value: Any, name: str) -> float:
    """
    A probability, neither 0 nor 1.

    :raises TypeError: as above.
    :raises ValueError: for other values.
    """
    array = real_array(value, name)
    if array.ndim != 0 or not 0.0 < array < 1.0:
        raise ValueError(f"{name}: expected a number in (0, 1), got {value!r}.")
    return float(array)


def probability_array(value: Any, name: str) -> np.ndarray:
    """
    A list of probabilities, neither 0 nor 1.

    :raises TypeError: as above.
    :raises ValueError: for other values.
    """
    array = real_array(value, name)
    if array.ndim != 1 or not np.all((array > 0.0) & (array < 1.0)):
        raise ValueError(f"{name}: expected a list of numbers in (0, 1), got {value!r}.")
    return array
