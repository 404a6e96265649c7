"""A part of the rows at a time: what bounds the memory of predictions."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import tensorflow as tf

__all__ = ["in_parts", "part_size"]

#: How many sampled inputs a prediction carries through the layers at once.
_ROWS = 16_384
#: And how many numbers these may be in a layer: rows are fewer where a layer has thousands of units.
_NUMBERS = 2**24


def part_size(num_samples: int, width: int = 1) -> int:
    """
    How many inputs a prediction carries through the layers at once.

    :param num_samples: draws of each.
    :param width: numbers that a draw is in the widest layer.
    """
    return max(1, min(_ROWS, _NUMBERS // width) // num_samples)


def in_parts(
    function: Callable[..., tuple[tf.Tensor, ...]],
    arrays: Sequence[tf.Tensor],
    size: int,
    num_outputs: int,
    axis: int = 0,
) -> tuple[tf.Tensor, ...]:
    """
    ``function`` of all rows, a part of them at a time.

    :param function: of as many tensors as ``arrays``, with some of their rows; it returns a tuple of tensors
        of the first array's dtype with as many rows on their axis ``axis``.
    :param arrays: tensors with N rows.
    :param size: rows of a part, at most.
    :param num_outputs: how many tensors the function returns.
    """
    known = arrays[0].shape[0]
    if known is not None and known <= size:
        return function(*arrays)
    N = tf.shape(arrays[0])[0]
    if tf.executing_eagerly():
        pieces = [function(*(x[i : i + size] for x in arrays)) for i in range(0, int(N), size)]
        return tuple(tf.concat(piece, axis=axis) for piece in zip(*pieces))
    rows = tf.maximum(N, 1)  # of no rows too there is a part, to be cut off again
    size = tf.minimum(size, rows)

    def parts(x: tf.Tensor) -> tf.Tensor:
        padding = tf.pad(x, [[0, rows - N + (-rows) % size], *[[0, 0]] * (x.shape.rank - 1)])
        shape = tf.concat([[-1, size], tf.shape(x)[1:]], axis=0)
        pieces = tf.reshape(padding, shape)
        pieces.set_shape([None, None, *x.shape[1:]])
        return pieces

    results = tf.map_fn(
        lambda part: function(*part),
        tuple(map(parts, arrays)),
        fn_output_signature=(arrays[0].dtype,) * num_outputs,
    )  # [parts, ..., size, ...]

    def join(x: tf.Tensor) -> tf.Tensor:
        order = [*range(1, axis + 1), 0, *range(axis + 1, x.shape.rank)]
        x = tf.transpose(x, order)
        known, shape = x.shape, tf.shape(x)
        x = tf.reshape(x, tf.concat([shape[:axis], [-1], shape[axis + 2 :]], axis=0))
        x.set_shape([*known[:axis], None, *known[axis + 2 :]])
        return x[(slice(None),) * axis + (slice(N),)]

    return tuple(map(join, results))
