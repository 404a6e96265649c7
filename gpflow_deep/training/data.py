"""The data of a training run: checked at the door, split, and served in minibatches."""

from __future__ import annotations

__all__ = [
    "Augmentation",
    "Data",
    "as_float_data",
    "fit_to_model",
    "hold_out",
    "minibatches",
    "model_dtype",
    "split_validation",
]

from collections.abc import Callable, Sequence
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
from check_shapes.exceptions import ShapeMismatchError

from gpflow_deep.validation import (
    as_real_tensor,
    check_positive_integer,
    check_seed,
    check_targets,
)

Data = tuple[np.ndarray, np.ndarray]

_MAX_DATASET_BYTES = 2**31  # of the rows of a tf.data dataset, which are all kept in memory
_SHUFFLING = 2**31 - 1  # folded into seeds, it keeps permutations apart from a model's draws
_AUGMENTATION = 2**31 - 2  # likewise the draws of augmentations


def model_dtype(model: gpflow.models.BayesianModel) -> np.dtype:
    """The float type of the model's parameters; GPflow's default if they have several or none."""
    dtypes = {variable.dtype for variable in model.variables if variable.dtype.is_floating}
    return np.dtype(dtypes.pop().as_numpy_dtype if len(dtypes) == 1 else gpflow.default_float())


def as_float_data(name: str, data: Any, dtype: np.dtype, *, missing: bool = False) -> Data:
    """
    Check a pair (X [N, D], Y [N, P]) and cast it to `dtype`.

    Integers, booleans and narrower floats are widened exactly; wider floats are rounded.

    :param name: The argument's name in error messages.
    :param data: Two arrays or anything that numpy makes arrays of, Y of shape [N] for one column; or
        a finite dataset of pairs, which is read once into memory.
    :param dtype: The model's float type.
    :param missing: Whether NaN in Y stands for what was not observed, rather than for a mistake.
    :raises TypeError: Not a pair, or not real numbers.
    :raises ValueError: Wrong shapes, lengths that differ, no rows, values that are masked, not finite
        in `dtype`, or not told apart in it; a dataset without end or too large for memory.
    """
    if isinstance(data, tf.data.Dataset):
        data = _read_dataset(name, data)
    if not isinstance(data, tuple | list) or len(data) != 2:
        raise TypeError(f"{name}: expected a pair (X, Y), got {type(data).__name__}.")
    X, Y = (
        _as_float_matrix(f"{part} of {name}", array, dtype, missing and part == "Y")
        for part, array in zip("XY", data, strict=True)
    )
    if len(X) != len(Y):
        raise ValueError(
            f"{name}: expected X and Y of the same length, got {len(X)} and {len(Y)} rows."
        )
    return X, Y


def _as_float_matrix(name: str, array: Any, dtype: np.dtype, missing: bool) -> np.ndarray:
    num_masked = np.ma.count_masked(array) if isinstance(array, np.ma.MaskedArray) else 0
    if num_masked:
        raise ValueError(f"{name}: expected values, got {num_masked} that are masked.")
    try:
        array = np.asarray(array)
    except ValueError as error:  # rows of different lengths
        raise TypeError(
            f"{name}: expected a matrix, got {type(array).__name__}: {error}"
        ) from error
    if array.dtype.kind not in "fiub":
        raise TypeError(f"{name}: expected real numbers, got dtype {array.dtype}.")
    if array.ndim == 1 and name.startswith("Y"):
        array = array[:, None]
    if array.ndim != 2 or 0 in array.shape:
        raise ValueError(
            f"{name}: expected a matrix [rows, columns] with at least one of each, "
            f"got shape {array.shape}."
        )
    with np.errstate(over="ignore"):  # what overflows is reported below, with its rows
        cast = array.astype(dtype)
    bad = ~np.isfinite(cast)
    if missing:
        bad &= ~np.isnan(array)
    num_bad = np.count_nonzero(bad.any(axis=1))
    if num_bad:
        advice = " Where NaN means not observed, see gpflow_deep.likelihoods.MissingOutputs."
        raise ValueError(
            f"{name}: expected values that are finite in {dtype}, "
            f"got NaN or infinity in {num_bad} of {len(array)} rows."
            f"{advice if name.startswith('Y') and not missing and np.isnan(cast).any() else ''}"
        )
    _check_rounding(name, array, cast)
    return cast


def _check_rounding(name: str, array: np.ndarray, cast: np.ndarray) -> None:
    """
    Refuse columns whose values a narrower float does not tell apart, such as times since 1970.

    :raises ValueError: Rounding moves a column by more than a hundredth of its range.
    """
    if cast.dtype.itemsize >= array.dtype.itemsize and array.dtype.kind == "f":
        return
    wide = array.astype(np.float64)
    seen = np.isfinite(wide)  # not those that are missing
    error = np.where(seen, np.abs(cast - wide), 0.0).max(axis=0)
    highest, lowest = np.where(seen, wide, -np.inf).max(0), np.where(seen, wide, np.inf).min(0)
    spread = np.maximum(highest - lowest, 0.0)
    lost = np.flatnonzero((error > 0.01 * spread) & (spread > 0))
    if lost.size:
        column = int(lost[0])
        raise ValueError(
            f"{name}: expected values that {cast.dtype} tells apart, but in column {column} it rounds by up "
            f"to {error[column]:.3g}, of a range of {spread[column]:.3g}. Subtract the column's mean "
            "first, or use float64."
        )


def _read_dataset(name: str, dataset: tf.data.Dataset) -> Data:
    """
    The rows of a dataset of pairs, in its order: batches [B, D] and [B, P] or [B], or single rows.

    :raises TypeError: Its elements are no pairs of dense tensors.
    :raises ValueError: It has no end, does not fit into memory, has no or uneven rows, or fails.
    """
    spec = dataset.element_spec
    if not isinstance(spec, tuple) or len(spec) != 2:
        raise TypeError(f"{name}: expected a dataset of pairs (X, Y), got elements {spec}.")
    if not all(isinstance(part, tf.TensorSpec) for part in spec):
        raise TypeError(f"{name}: expected a dataset of dense tensors, got elements {spec}.")
    if dataset.cardinality() == tf.data.INFINITE_CARDINALITY:
        raise ValueError(
            f"{name}: expected a dataset with an end, got one without: leave out its repeat(); the "
            "rows are read once, then shuffled and repeated here."
        )
    parts: list[tuple[np.ndarray, np.ndarray]] = []
    num_bytes = 0
    try:
        for X, Y in dataset.as_numpy_iterator():
            X, Y = np.asarray(X), np.asarray(Y)
            if X.ndim < 2:  # a single row
                X, Y = X.reshape(1, -1), Y.reshape(1, -1)
            parts.append((X, Y if Y.ndim > 1 else Y[:, None]))
            num_bytes += X.nbytes + Y.nbytes
            if num_bytes > _MAX_DATASET_BYTES:
                raise ValueError(
                    f"{name}: expected a dataset that fits into memory, got more than "
                    f"{_MAX_DATASET_BYTES / 2**20:.4g} MiB, and no end yet."
                )
    except (tf.errors.OpError, TypeError) as error:
        raise ValueError(f"{name}: the dataset could not be read: {error}") from error
    if not parts:
        raise ValueError(f"{name}: expected a dataset with rows, got none.")
    for which, arrays in zip("XY", zip(*parts), strict=True):
        if len({array.shape[1:] for array in arrays}) > 1:
            raise ValueError(
                f"{which} of {name}: expected elements with the same number of columns, got shapes "
                f"{', '.join(sorted({str(array.shape) for array in arrays}))}."
            )
    X_parts, Y_parts = zip(*parts, strict=True)
    return np.concatenate(X_parts), np.concatenate(Y_parts)


def fit_to_model(name: str, data: Data, model: gpflow.models.BayesianModel) -> Data:
    """
    The data with targets in the type that the model's likelihood takes.

    One row is predicted eagerly, where GPflow checks shapes: in a compiled step a wrong number of
    columns would broadcast to a wrong loss without a word, and a class that there is not would be
    some other class.

    :raises ValueError: The inputs, or the targets' columns or classes, are not the model's.
    """
    X, Y = data
    try:
        mean, _ = model.predict_f(tf.constant(X[:1]))
    except (ShapeMismatchError, ValueError, tf.errors.InvalidArgumentError) as error:
        raise ValueError(
            f"X of {name}: expected inputs of the model, got {X.shape[1]} columns, "
            f"at which it fails: {error}"
        ) from error
    likelihood = getattr(model, "likelihood", None)
    if likelihood is None:
        return X, Y
    targets = check_targets(Y, likelihood, mean.shape[-1], f"Y of {name}").numpy()
    return X, targets.astype(Y.dtype) if targets.dtype.kind == "f" else targets


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

    :param num_rows: Rows in all, N.
    :param fraction: Share drawn, rounded to the nearest number of rows; of zero none are drawn.
    :param seed: Of the draw.
    :param at_least: Rows drawn where the share is not zero ...
    :param at_most: ... and the most, if there is one.
    :return: Numbers of the rows that are left, and of those drawn, both in the order of the draw.
    :raises ValueError: Nothing would be left.
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
    :param fraction: Share drawn.
    :param seed: Of the draw.
    """
    X, Y = data
    left, drawn = (np.sort(rows) for rows in hold_out(len(X), fraction, seed))
    return (X[left], Y[left]), (X[drawn], Y[drawn])


#: (X [B, D], Y [B, P], seed [2]) -> the batch that is trained on in place of it, as many rows and columns.
Augmentation = Callable[[tf.Tensor, tf.Tensor, tf.Tensor], tuple[tf.Tensor, tf.Tensor]]


def minibatches(
    data: tuple[Any, Any],
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

    :param data: X and Y.
    :param batch_size: Rows B in a batch.
    :param seed: Of the permutations.
    :param start: Number of the first batch, so that a run can be taken up at any step.
    :param augmentation: Changes each batch, by random draws of the two integers that it is given beside it.
    :raises TypeError: It is no function.
    :raises ValueError: What it returns has other columns or another type.
    """
    if not isinstance(data, (tuple, list)) or len(data) != 2:
        raise TypeError(f"data: expected a pair (X, Y), got {type(data).__name__}.")
    X, Y = (as_real_tensor(array, f"data[{i}]") for i, array in enumerate(data))
    if X.shape.rank != 2 or Y.shape.rank != 2 or len(X) != len(Y):
        raise ValueError(f"data: expected [N, D] and [N, P], got {X.shape} and {Y.shape}.")
    seed, start, num_rows = check_seed(seed), check_seed(start, "start"), len(X)
    if batch_size is not None:
        batch_size = check_positive_integer(batch_size, "batch_size")
    if batch_size is None or batch_size >= num_rows:
        whole = tf.data.Dataset.from_tensors((X, Y)).repeat()
        return _augmented(whole, augmentation, seed, start).with_options(_options())
    batches_per_epoch = num_rows // batch_size

    def epoch_batches(epoch: tf.Tensor) -> tf.data.Dataset:
        epoch_seed = tf.random.experimental.stateless_fold_in(
            tf.stack([tf.cast(seed, epoch.dtype), epoch]), _SHUFFLING
        )
        rows = tf.random.experimental.stateless_shuffle(tf.range(num_rows), seed=epoch_seed)
        rows = rows[: batches_per_epoch * batch_size]
        return tf.data.Dataset.from_tensor_slices(tf.reshape(rows, [batches_per_epoch, batch_size]))

    batches = (
        tf.data.Dataset.range(start // batches_per_epoch, tf.int64.max)
        .flat_map(epoch_batches)
        .skip(start % batches_per_epoch)
        .map(lambda rows: (tf.gather(X, rows), tf.gather(Y, rows)))
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
        expected = [f"{x.dtype.name} {x.shape[1:]}" for x in batch]
        got = [f"{x.dtype.name} {x.shape[1:]}" for x in map(tf.convert_to_tensor, changed)]
        if got != expected:
            raise ValueError(f"augmentation: expected rows {expected} as it was given, got {got}.")
        return tuple(changed)

    return batches.enumerate(start).map(change)
