"""A training run at the door: its data read, cast, and checked against the model."""

from __future__ import annotations

__all__ = [
    "as_float_data",
    "check_data",
    "check_tempering",
    "fit_to_model",
    "has_own_loss",
    "model_dtype",
    "stream_to_model",
]

from collections.abc import Callable, Iterator
from inspect import signature
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
from check_shapes.exceptions import ShapeMismatchError

from gpflow_deep.likelihoods import MissingOutputs
from gpflow_deep.models.variational import VariationalDeepGPModel
from gpflow_deep.validation import as_array, check_num_data, check_targets, images_as_rows

from .clock import Tempering
from .data import Data, split_validation
from .scales import warn_of_scales
from .streams import Stream, as_rows, as_stream

_MAX_DATASET_BYTES = 2**31  # of the rows of a tf.data dataset, which are all kept in memory


def check_data(
    model: gpflow.models.BayesianModel,
    data: Any,
    validation_data: Any,
    validation_fraction: float | None,
    seed: int,
) -> tuple[Data | Stream, Data | None]:
    """
    What to train on and what to hold out, cast and checked against the model.

    :param model: to be fitted.
    :param data: as :func:`fit` takes it.
    :param validation_data: likewise.
    :param validation_fraction: in its place, the share to draw from `data`.
    :param seed: of that draw.
    :raises TypeError: a wrong argument, or a model that cannot be fitted.
    :raises ValueError: likewise, or data unfit for the model.
    """
    if not hasattr(model, "training_loss") or isinstance(
        model, gpflow.models.InternalDataTrainingLossMixin
    ):
        raise TypeError(
            "model: expected one with training_loss(data), which does not hold its data, "
            f"got {type(model).__name__}."
        )
    if validation_data is not None and validation_fraction is not None:
        raise ValueError("validation_data, validation_fraction: expected one of them, got both.")
    dtype = model_dtype(model)
    missing = isinstance(getattr(model, "likelihood", None), MissingOutputs)
    num_data = getattr(model, "num_data", None)
    stream = as_stream(data, num_data)
    if stream is not None:
        if validation_fraction is not None:
            raise ValueError(
                f"validation_fraction: expected None for a stream, got {validation_fraction:g}: give "
                "validation_data, rows that are not in it."
            )
        stream = stream_to_model("data", stream, model, dtype, missing=missing)
        train = stream.first
    else:
        train = fit_to_model("data", as_float_data("data", data, dtype, missing=missing), model)
        check_num_data(model, len(train[0]))
    warn_of_scales("data", train, model)
    if validation_fraction is not None:
        return split_validation(train, validation_fraction, seed)
    if validation_data is None:
        return stream or train, None
    held_out = as_float_data("validation_data", validation_data, dtype, missing=missing)
    return stream or train, fit_to_model("validation_data", held_out, model)


def model_dtype(model: gpflow.models.BayesianModel) -> np.dtype:
    """The float type of the model's parameters; GPflow's default if they have several or none."""
    dtypes = {variable.dtype for variable in model.variables if variable.dtype.is_floating}
    return np.dtype(dtypes.pop().as_numpy_dtype if len(dtypes) == 1 else gpflow.default_float())


def as_float_data(name: str, data: Any, dtype: np.dtype, *, missing: bool = False) -> Data:
    """
    Check a pair (X [N, D], Y [N, P]) and cast it to `dtype`.

    Integers, booleans and narrower floats are widened exactly; wider floats are rounded.

    :param name: the argument's name in error messages.
    :param data: two arrays or anything that numpy makes arrays of, Y of shape [N] for one column; or
        a finite dataset of pairs, which is read once into memory.
    :param dtype: the model's float type.
    :param missing: whether NaN in Y stands for what was not observed, rather than for a mistake.
    :raises TypeError: not a pair, or not real numbers.
    :raises ValueError: wrong shapes, lengths that differ, no rows, values that are masked, not finite
        in `dtype`, or not told apart in it; a dataset without end or too large for memory.
    """
    if isinstance(data, tf.data.Dataset):
        data = _read_dataset(name, data)
    if not isinstance(data, tuple | list) or len(data) != 2:
        advice = " For rows in pieces give a function that returns, for each pass, an iterator over them."
        raise TypeError(
            f"{name}: expected a pair (X, Y), got {type(data).__name__}."
            + (advice if isinstance(data, Iterator | list) else "")
        )
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
        array = as_array(array)
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
            f"got shape {array.shape}.{images_as_rows(array.shape)}"
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

    :raises ValueError: rounding moves a column by more than a hundredth of its range.
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

    :raises TypeError: its elements are no pairs of dense tensors.
    :raises ValueError: it has no end, does not fit into memory, has no or uneven rows, or fails.
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
            X, Y = as_rows(X, Y)
            parts.append((X, Y))
            num_bytes += X.nbytes + Y.nbytes
            if num_bytes > _MAX_DATASET_BYTES:
                raise ValueError(
                    f"{name}: expected a dataset that fits into memory, got more than "
                    f"{_MAX_DATASET_BYTES / 2**20:.4g} MiB, and no end yet: give "
                    "gpflow_deep.training.Stream(dataset.as_numpy_iterator)."
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

    :raises ValueError: the inputs, or the targets' columns or classes, are not the model's.
    """
    X, Y = data
    return X, _as_targets(name, Y, model, _num_outputs(name, X, model))


def stream_to_model(
    name: str,
    stream: Stream,
    model: gpflow.models.BayesianModel,
    dtype: np.dtype,
    *,
    missing: bool,
) -> Stream:
    """
    Likewise a stream, whose pieces are checked and cast as they are read; the first one is now.

    :param dtype: as for :func:`as_float_data`.
    :param missing: as for :func:`as_float_data`.
    :raises ValueError: the first piece is not the model's, or there is none.
    """

    def cast(piece: Any) -> Data:
        try:
            return as_float_data(name, piece, dtype, missing=missing)
        except ValueError as error:
            if not stream.place:
                raise
            raise ValueError(f"{error} They are in {stream.place}.") from error

    X, _ = cast(stream.first)
    num_outputs = _num_outputs(name, X, model)

    def check(X: np.ndarray, Y: np.ndarray) -> Data:
        X, Y = cast((X, Y))
        return X, _as_targets(name, Y, model, num_outputs)

    checked = stream.map(check)
    _ = checked.first
    return checked


def _num_outputs(name: str, X: np.ndarray, model: gpflow.models.BayesianModel) -> int:
    try:
        mean, _ = model.predict_f(tf.constant(X[:1]))
    except (ShapeMismatchError, ValueError, tf.errors.InvalidArgumentError) as error:
        raise ValueError(
            f"X of {name}: expected inputs of the model, got {X.shape[1]} columns, "
            f"at which it, or a kernel of it, fails: {error}"
        ) from error
    return mean.shape[-1]


def _as_targets(
    name: str, Y: np.ndarray, model: gpflow.models.BayesianModel, num_outputs: int
) -> np.ndarray:
    likelihood = getattr(model, "likelihood", None)
    if likelihood is None:
        return Y
    targets = check_targets(Y, likelihood, num_outputs, f"Y of {name}").numpy()
    return targets.astype(Y.dtype) if targets.dtype.kind == "f" else targets


def has_own_loss(model: gpflow.models.BayesianModel) -> bool:
    """Whether its training loss is another than GPflow's of an objective that can be given its draws."""
    parts = (
        (model.training_loss, gpflow.models.ExternalDataTrainingLossMixin.training_loss),
        (model._training_loss, gpflow.models.BayesianModel._training_loss),
    )
    if any(getattr(method, "__func__", None) is not theirs for method, theirs in parts):
        return True
    objectives = [model.maximum_log_likelihood_objective]
    if has_own_bound(model):
        objectives.append(model.elbo)
    return not all(map(_takes_draws, objectives))


def has_own_bound(model: gpflow.models.BayesianModel) -> bool:
    """Whether a class of the user's has another bound than ours, which training then maximises."""
    bound = getattr(type(model), "elbo", None)
    return isinstance(model, VariationalDeepGPModel) and bound is not VariationalDeepGPModel.elbo


def _takes_draws(objective: Callable[..., Any]) -> bool:
    parameters = signature(objective).parameters.values()
    return any(p.name == "noise" or p.kind is p.VAR_KEYWORD for p in parameters)


def check_tempering(tempering: Any, model: gpflow.models.BayesianModel) -> None:
    """
    Raise unless the divergences of a model can be weighted so in training.

    :raises TypeError: it is no tempering.
    :raises ValueError: the model has no divergences to weight.
    """
    if tempering is None:
        return
    if not isinstance(tempering, Tempering):
        raise TypeError(
            f"tempering: expected gpflow_deep.training.Tempering, got {type(tempering).__name__}."
        )
    is_ours = isinstance(model, VariationalDeepGPModel)
    if not is_ours or has_own_loss(model) or has_own_bound(model):
        raise ValueError(
            f"tempering: expected None for {type(model).__name__}, whose objective takes no weight of the"
            f" divergences, got {tempering!r}."
        )
