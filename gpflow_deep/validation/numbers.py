"""Numbers, flags and names; and what memory many numbers take."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf

__all__ = [
    "check_choice",
    "check_flag",
    "check_memory",
    "check_number",
    "check_positive_integer",
    "check_positive_integers",
    "check_positive_number",
    "check_seed",
    "check_sequence_of",
    "check_share",
]

_LARGEST_SIZE = 2**31 - 1
_SEEDS = 2**63


def check_positive_integer(value: Any, name: str) -> int:
    """
    ``value`` as an int of at least 1, that TensorFlow can have as a dimension.

    :raises ValueError: where it is not one.
    """
    value = _as_scalar(value)
    if not _is_integer(value) or not 1 <= value <= _LARGEST_SIZE:
        too_large = f" of at most {_LARGEST_SIZE}" if _is_integer(value) and value > 1 else ""
        raise ValueError(f"{name}: expected a positive integer{too_large}, got {value!r}.")
    return int(value)


def check_positive_integers(values: Any, name: str) -> list[int]:
    """
    A sequence of such, as widths are given.

    :raises TypeError: where it is no sequence.
    :raises ValueError: where one is not such an integer.
    """
    if (
        isinstance(values, str)
        or not isinstance(values, (Sequence, np.ndarray))
        or _is_matrix(values)
    ):
        raise TypeError(f"{name}: expected a sequence of positive integers, got {values!r}.")
    return [check_positive_integer(value, name) for value in values]


def _is_matrix(values: Any) -> bool:
    return isinstance(values, np.ndarray) and values.ndim != 1


def check_seed(value: Any, name: str = "seed") -> int:
    """
    ``value`` as an int that random draws of NumPy and TensorFlow can start from.

    :raises ValueError: where it is not one.
    """
    value = _as_scalar(value)
    if not _is_integer(value) or not 0 <= value < _SEEDS:
        raise ValueError(f"{name}: expected an integer in [0, 2^63), got {value!r}.")
    return int(value)


def _as_scalar(value: Any) -> Any:
    """The number that a tensor or an array of no dimensions is, where it is known; else what came."""
    known = tf.get_static_value(value) if tf.is_tensor(value) else value
    if isinstance(known, np.ndarray):
        return known[()] if known.ndim == 0 else value
    return value if known is None else known


def _is_integer(value: Any) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def check_flag(value: Any, name: str) -> bool:
    """
    ``value`` as a bool; nothing else, since "no" and NaN would count as true.

    :raises TypeError: where it is none.
    """
    if not isinstance(value, (bool, np.bool_)):
        raise TypeError(f"{name}: expected True or False, got {value!r}.")
    return bool(value)


def check_choice(value: Any, name: str, choices: Sequence[str]) -> str:
    """
    ``value``, which is one of several names.

    :raises ValueError: where it is not.
    """
    if not isinstance(value, str) or value not in choices:
        shown = [repr(choice) for choice in choices]
        expected = " or ".join(shown) if len(shown) == 2 else f"one of {', '.join(shown)}"
        raise ValueError(f"{name}: expected {expected}, got {value!r}.")
    return value


def check_sequence_of(values: Any, kind: type, name: str) -> None:
    """
    :raises TypeError: where ``values`` is no sequence of such objects, or empty.
    """
    if (
        not isinstance(values, Sequence)
        or not values
        or not all(isinstance(value, kind) for value in values)
    ):
        raise TypeError(
            f"{name}: expected a non-empty sequence of {kind.__name__}, got {values!r}."
        )


def check_number(value: Any, name: str, low: float = -np.inf, high: float = np.inf) -> float:
    """
    ``value`` as a finite float from ``low`` to ``high``.

    :raises ValueError: where it is not one.
    """
    number = _as_number(value)
    if number is None or not low <= number <= high:
        if high < np.inf:
            expected = f"a number from {low:g} to {high:g}"
        else:
            expected = f"a number of at least {low:g}" if low > -np.inf else "a finite number"
        raise ValueError(f"{name}: expected {expected}, got {value!r}.")
    return number


def check_positive_number(value: Any, name: str) -> float:
    """
    ``value`` as a finite float above 0.

    :raises ValueError: where it is not one.
    """
    number = _as_number(value)
    if number is None or number <= 0:
        raise ValueError(f"{name}: expected a positive number, got {value!r}.")
    return number


def check_share(value: Any, name: str) -> float:
    """
    ``value`` as a float above 0, at most 1.

    :raises ValueError: where it is not one.
    """
    number = _as_number(value)
    if number is None or not 0 < number <= 1:
        raise ValueError(f"{name}: expected a number in (0, 1], got {value!r}.")
    return number


def _as_number(value: Any) -> float | None:
    """A finite real scalar as a float; ``None`` for whatever is not one."""
    value = _as_scalar(value)
    if isinstance(value, (bool, np.bool_)) or not isinstance(
        value, (int, float, np.integer, np.floating)
    ):
        return None
    try:
        number = float(value)
    except OverflowError:  # of an integer
        return None
    return number if np.isfinite(number) else None


def check_memory(numbers: int, what: str, name: str) -> None:
    """
    That so many numbers of the default float fit into this machine's memory.

    :param numbers: how many there will be at a time.
    :param what: they are.
    :param name: of the argument that makes them so many.
    :raises ValueError: where they do not; it says what they would take.
    """
    memory = _memory()
    needed = int(numbers) * np.dtype(gpflow.default_float()).itemsize
    if memory is not None and needed > memory:
        raise ValueError(
            f"{name}: expected what fits into the {_size(memory)} of memory here, got {what},"
            f" {numbers:,} numbers, which take {_size(needed)}."
        )


def _memory() -> int | None:
    """Bytes of this machine, or of the share that it gives its processes; ``None`` where it does not tell."""
    try:
        total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):  # not on Windows
        return None
    try:
        limit = Path("/sys/fs/cgroup/memory.max").read_text().strip()
    except OSError:
        return total
    return min(total, int(limit)) if limit.isdigit() else total


def _size(num_bytes: int) -> str:
    units = ("bytes", "kB", "MB", "GB", "TB", "PB")
    power = min(max(num_bytes, 1).bit_length() // 10, len(units) - 1)
    return f"{num_bytes / 1024**power:.3g} {units[power]}"
