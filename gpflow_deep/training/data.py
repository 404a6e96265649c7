"""The data of a training run: checked at the door, split, and served in minibatches."""

from __future__ import annotations

__all__ = ["as_float_data", "fit_to_model", "minibatches", "model_dtype", "split_validation"]

from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
from check_shapes import check_shapes
from check_shapes.exceptions import ShapeMismatchError

from gpflow_deep.validation import check_targets

Data = tuple[np.ndarray, np.ndarray]

_SHUFFLING = 2**31 - 1  # folded into seeds, it keeps permutations apart from a model's draws


def model_dtype(model: gpflow.models.BayesianModel) -> np.dtype:
    """The float type of the model's parameters; GPflow's default if they have several or none."""
    dtypes = {variable.dtype for variable in model.variables if variable.dtype.is_floating}
    return np.dtype(dtypes.pop().as_numpy_dtype if len(dtypes) == 1 else gpflow.default_float())


def as_float_data(name: str, data: Any, dtype: np.dtype) -> Data:
    """
    Check a pair (X [N, D], Y [N, P]) and cast it to `dtype`.

    Integers, booleans and narrower floats are widened exactly; wider floats are rounded.

    :param name: The argument's name in error messages.
    :param data: Two arrays or anything that numpy makes arrays of.
    :param dtype: The model's float type.
    :raises TypeError: Not a pair, or not real numbers.
    :raises ValueError: Wrong shapes, lengths that differ, no rows, values that are not finite in
        `dtype`.
    """
    if not isinstance(data, tuple | list) or len(data) != 2:
        raise TypeError(f"{name}: expected a pair (X, Y), got {type(data).__name__}.")
    X, Y = (
        _as_float_matrix(f"{part} of {name}", array, dtype)
        for part, array in zip("XY", data, strict=True)
    )
    if len(X) != len(Y):
        raise ValueError(
            f"{name}: expected X and Y of the same length, got {len(X)} and {len(Y)} rows."
        )
    return X, Y


def _as_float_matrix(name: str, array: Any, dtype: np.dtype) -> np.ndarray:
    array = np.asarray(array)
    if array.dtype.kind not in "fiub":
        raise TypeError(f"{name}: expected real numbers, got dtype {array.dtype}.")
    if array.ndim != 2 or 0 in array.shape:
        raise ValueError(
            f"{name}: expected a matrix [rows, columns] with at least one of each, "
            f"got shape {array.shape}."
        )
    with np.errstate(over="ignore"):  # what overflows is reported below, with its rows
        array = array.astype(dtype)
    num_bad = np.count_nonzero(~np.isfinite(array).all(axis=1))
    if num_bad:
        raise ValueError(
            f"{name}: expected values that are finite in {dtype}, "
            f"got NaN or infinity in {num_bad} of {len(array)} rows."
        )
    return array


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


def split_validation(data: Data, fraction: float, seed: int) -> tuple[Data, Data]:
    """
    Draw a share of the rows without replacement; (the rest, the rows drawn), in their old order.

    :param data: X and Y.
    :param fraction: Share drawn, rounded to the nearest number of rows, at least one.
    :param seed: Of the draw.
    """
    X, Y = data
    num_drawn = max(1, round(fraction * len(X)))
    if num_drawn >= len(X):
        raise ValueError(
            f"validation_fraction: expected to leave rows to train on, "
            f"got {fraction} of {len(X)} rows."
        )
    drawn = np.zeros(len(X), dtype=bool)
    drawn[np.random.default_rng(seed).permutation(len(X))[:num_drawn]] = True
    return (X[~drawn], Y[~drawn]), (X[drawn], Y[drawn])


@check_shapes(
    "data[0]: [N, D]",
    "data[1]: [N, P]",
)
def minibatches(
    data: tuple[Any, Any], batch_size: int | None, seed: int = 0, start: int = 0
) -> tf.data.Dataset:
    """
    An endless dataset of minibatches (X [B, D], Y [B, P]): batch i depends on `seed` and i only.

    Every epoch has a permutation of its own; rows that do not fill its last batch sit that epoch
    out. With `batch_size` None, or at least N, every batch is all the data in the order given.

    :param data: X and Y.
    :param batch_size: Rows B in a batch.
    :param seed: Of the permutations.
    :param start: Number of the first batch, so that a run can be taken up at any step.
    """
    X, Y = (tf.convert_to_tensor(array) for array in data)
    num_rows = X.shape[0]
    if batch_size is None or batch_size >= num_rows:
        return tf.data.Dataset.from_tensors((X, Y)).repeat()
    batches_per_epoch = num_rows // batch_size

    def epoch_batches(epoch: tf.Tensor) -> tf.data.Dataset:
        epoch_seed = tf.random.experimental.stateless_fold_in(
            tf.stack([tf.cast(seed, epoch.dtype), epoch]), _SHUFFLING
        )
        rows = tf.random.experimental.stateless_shuffle(tf.range(num_rows), seed=epoch_seed)
        rows = rows[: batches_per_epoch * batch_size]
        return tf.data.Dataset.from_tensor_slices(tf.reshape(rows, [batches_per_epoch, batch_size]))

    return (
        tf.data.Dataset.range(start // batches_per_epoch, tf.int64.max)
        .flat_map(epoch_batches)
        .skip(start % batches_per_epoch)
        .map(lambda rows: (tf.gather(X, rows), tf.gather(Y, rows)))
        .prefetch(2)
    )
