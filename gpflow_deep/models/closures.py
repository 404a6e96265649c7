"""Closures of a loss over what data come from."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from ..numerics.compiled import compiled

__all__ = ["check_source", "over_batches"]


def check_source(data: Any) -> None:
    """Raise a TypeError where data are no pair, nor an iterator over such pairs."""
    if not isinstance(data, (tuple, list, Iterator)):
        raise TypeError(
            "data: expected a pair (X, Y), or an iterator over such pairs, as iter(dataset) is, got"
            f" {type(data).__name__}."
        )


def over_batches(
    loss: Callable[[Any], tf.Tensor], batches: Iterator[Any], compile: bool
) -> Callable[[], tf.Tensor]:
    """The loss of the next batch, at every call."""
    # The last batch of a pass is a smaller one; where sizes go on changing, one graph does for all of them.
    of_batch = compiled(loss, reduce_retracing=True) if compile else loss
    in_graphs = isinstance(batches, (tf.data.Iterator, tf.distribute.DistributedIterator))

    def of_next_batch() -> tf.Tensor:
        if not in_graphs and not tf.executing_eagerly():
            raise TypeError(
                "data: expected iter(dataset) of a tf.data.Dataset where the closure is called in a compiled"
                " function, which would take one batch of a Python iterator for all of its calls, got"
                f" {type(batches).__name__}."
            )
        return of_batch(next(batches))

    return of_next_batch
