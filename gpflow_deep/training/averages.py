"""Averages of the parameters over the steps, of an optimiser that keeps any."""

from __future__ import annotations

__all__ = ["averaged", "take_averages"]

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import tensorflow as tf


def take_averages(optimizer: Any, variables: Sequence[tf.Variable]) -> None:
    """Set parameters to them."""
    if _keeps_any(optimizer):
        optimizer.finalize_variable_values(variables)


@contextmanager
def averaged(optimizer: Any, variables: Sequence[tf.Variable]) -> Iterator[None]:
    """Likewise for a while; where an error sets parameters to others, these stay."""
    if not _keeps_any(optimizer):
        yield
        return
    values = [variable.numpy() for variable in variables]
    take_averages(optimizer, variables)
    yield
    for variable, value in zip(variables, values, strict=True):
        variable.assign(value)


def _keeps_any(optimizer: Any) -> bool:
    # That of one that scales the loss of another.
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    return bool(getattr(inner, "use_ema", False))
