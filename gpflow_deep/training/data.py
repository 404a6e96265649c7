"""Rows of a training run: split, and served in minibatches."""

from __future__ import annotations

__all__ = ["Augmentation", "Data", "hold_out", "minibatches", "split_validation"]

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from gpflow_deep.validation import as_real_tensor, check_pair, check_positive_integer, check_seed

from .streams import Stream

Data = tuple[np.ndarray, np.ndarray]

_SHUFFLING = 2**31 - 1  # folded into seeds, it keeps permutations apart from a model's draws
_AUGMENTATION = 2**31 - 2  # likewise the draws of augmentations


def hold_out(
    num_rows: int,
    fraction: float,
    seed: int | Sequence[int],
    *,
    at_least: int = 1,
    at_most: int | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """
    Draw a share of the rows without replacement.

    :param num_rows: rows in all, N.
    :param fraction: share drawn, rounded to the nearest number of rows; of zero none are drawn.
    :param seed: of the draw.
    :param at_least: rows drawn where the share is not zero ...
    :param at_most: ... and the most, if there is one.
    :return: numbers of the rows that are left, and of those drawn, both in the order of the draw.
    :raises ValueError: nothing would be left.
    """
    order = np.random.default_rng(seed).permutation(num_rows)
    num_drawn = max(at_least, round(fraction * num_rows)) if fraction else 0
    num_drawn = num_drawn if at_most is None else min(num_drawn, at_most)
    if num_drawn >= num_rows:
        raise ValueError(
            "validation_fraction: expected to leave rows to train on, "
            f"got {fraction:g} of {num_rows} rows."
        )
    return order[num_drawn:], order[:num_drawn]


def split_validation(data: Data, fraction: float, seed: int) -> tuple[Data, Data]:
    """
    Draw a share of the rows, at least one; (the rest, the rows drawn), in their old order.

    :param data: X and Y.
    :param fraction: share drawn.
    :param seed: of the draw.
    """
    X, Y = data
    left, drawn = (np.sort(rows) for rows in hold_out(len(X), fraction, seed))
    return (X[left], Y[left]), (X[drawn], Y[drawn])


#: (X [B, D], Y [B, P], seed [2]) -> the batch that is trained on in place of it, as many rows and columns.
Augmentation = Callable[[tf.Tensor, tf.Tensor, tf.Tensor], tuple[tf.Tensor, tf.Tensor]]


def minibatches(
    data: tuple[Any, Any] | Stream,
    batch_size: int | None,
    seed: int = 0,
    start: int = 0,
    augmentation: Augmentation | None = None,
) -> tf.data.Dataset:
    """
    An endless dataset of minibatches (X [B, D], Y [B, P]): batch i depends on `seed` and i only.

    Every epoch has a permutation of its own; rows that do not fill its last batch sit that epoch
    out. With `batch_size` None, or at least N, every batch is all the data in the order given.

    >>> batches = iter(gd.training.minibatches((X, Y), batch_size=5, seed=1))
    >>> inputs, targets = next(batches)
    >>> inputs.shape, targets.shape
    (TensorShape([5, 1]), TensorShape([5, 1]))

    :param data: X and Y, or a :class:`Stream`, which has an order of its own.
    :param batch_size: rows B in a batch.
    :param seed: of the permutations.
    :param start: number of the first batch, so that a run can be taken up at any step.
    :param augmentation: changes each batch, by random draws of the two integers that it is given beside it.
    :raises TypeError: it is no function.
    :raises ValueError: what it returns has other columns or another type.
    """
    if isinstance(data, Stream):
        size = min(check_positive_integer(batch_size or data.num_data, "batch_size"), data.num_data)
        batches = data.minibatches(size, check_seed(seed), check_seed(start, "start"))
        return _augmented(batches, augmentation, seed, start).prefetch(2).with_options(_options())
    X, Y = (as_real_tensor(array, f"data[{i}]") for i, array in enumerate(check_pair(data)))
    if X.shape.rank != 2 or Y.shape.rank != 2 or len(X) != len(Y):
        raise ValueError(f"data: expected [N, D] and [N, P], got {X.shape} and {Y.shape}.")
    seed, start, num_rows = check_seed(seed), check_seed(start, "start"), len(X)
    if batch_size is not None:
        batch_size = check_positive_integer(batch_size, "batch_size")
    if batch_size is None or batch_size >= num_rows:
        whole = tf.data.Dataset.from_tensors((X, Y)).repeat()
        return _augmented(whole, augmentation, seed, start).with_options(_options())
    batches_per_epoch = num_rows // batch_size

    # A search for control flow of Python in these two would take a tenth of a second.
    @tf.autograph.experimental.do_not_convert
    def epoch_batches(epoch: tf.Tensor) -> tf.data.Dataset:
        epoch_seed = tf.random.experimental.stateless_fold_in(
            tf.stack([tf.cast(seed, epoch.dtype), epoch]), _SHUFFLING
        )
        rows = tf.random.experimental.stateless_shuffle(tf.range(num_rows), seed=epoch_seed)
        rows = rows[: batches_per_epoch * batch_size]
        return tf.data.Dataset.from_tensor_slices(tf.reshape(rows, [batches_per_epoch, batch_size]))

    @tf.autograph.experimental.do_not_convert
    def gathered(rows: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return tf.gather(X, rows), tf.gather(Y, rows)

    batches = (
        tf.data.Dataset.range(start // batches_per_epoch, tf.int64.max)
        .flat_map(epoch_batches)
        .skip(start % batches_per_epoch)
        .map(gathered)
    )
    return _augmented(batches, augmentation, seed, start).prefetch(2).with_options(_options())


def _options() -> tf.data.Options:
    """There is nothing to tune while it runs, and no thread needed for that."""
    options = tf.data.Options()
    options.autotune.enabled = False
    options.experimental_optimization.inject_prefetch = False
    return options


def _augmented(
    batches: tf.data.Dataset, augmentation: Augmentation | None, seed: int, start: int
) -> tf.data.Dataset:
    """Batch i changed by draws of (seed, i), other draws than those of its shuffling."""
    if augmentation is None:
        return batches
    if not callable(augmentation):
        raise TypeError(f"augmentation: expected a function, got {augmentation!r}.")

    def change(step: tf.Tensor, batch: tuple[tf.Tensor, tf.Tensor]) -> tuple[tf.Tensor, tf.Tensor]:
        own = tf.stack([tf.cast(seed, step.dtype), step])
        own = tf.random.experimental.stateless_fold_in(own, _AUGMENTATION)
        changed = augmentation(*batch, own)
        if not isinstance(changed, (tuple, list)) or len(changed) != 2:
            raise ValueError(f"augmentation: expected the rows as a pair (X, Y), got {changed!r}.")
        expected = [f"{x.dtype.name} {x.shape[1:]}" for x in batch]
        got = [f"{x.dtype.name} {x.shape[1:]}" for x in map(tf.convert_to_tensor, changed)]
        if got != expected:
            raise ValueError(f"augmentation: expected rows {expected} as it was given, got {got}.")
        return tuple(changed)

    return batches.enumerate(start).map(change)
