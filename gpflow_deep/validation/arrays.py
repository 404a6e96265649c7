"""Matrices, tensors, inducing variables and draws."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Real
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.inducing_variables import (
    FallbackSeparateIndependentInducingVariables,
    FallbackSharedIndependentInducingVariables,
    InducingPoints,
    InducingVariables,
    MultioutputInducingVariables,
)

__all__ = [
    "as_array",
    "as_draws",
    "as_real_array",
    "as_real_tensor",
    "check_finite",
    "check_inducing_variable",
    "check_inputs",
    "check_noise",
    "check_positive_array",
    "images_as_rows",
    "refuse_merged_values",
    "refuse_non_finite",
]


def images_as_rows(shape: Sequence[int | None], input_dim: int | None = None) -> str:
    """
    The end of a message on an array that is no rows: what to do if it holds images [..., H, W, C].

    :param input_dim: columns that are expected, if that is known.
    """
    pixels = tf.TensorShape(shape[-3:]).num_elements() if len(shape) >= 4 else None
    if pixels is None or input_dim not in (None, pixels):
        return ""
    return f" Images are given as rows of their pixels: reshape them to [{shape[-4]}, {pixels}]."


def check_inputs(X: Any, name: str) -> np.ndarray:
    """
    ``X`` as a finite matrix [N, D] of the default float, N and D at least 1.

    :param name: the argument's name in error messages.
    :raises TypeError: where the values are not real numbers.
    :raises ValueError: where the shape is wrong, or values are masked, NaN or infinite, or are no longer told
        apart in the default float.
    """
    _refuse_masks(X, name)
    try:
        array = as_array(X.numpy() if isinstance(X, (tf.Tensor, tf.Variable)) else X)
    except ValueError as error:  # rows of different lengths
        raise TypeError(
            f"{name}: expected a matrix [N, D], got {type(X).__name__}: {error}"
        ) from error
    if array.dtype.kind not in "fiub":
        raise TypeError(f"{name}: expected real numbers, got dtype {array.dtype}.")
    if array.ndim != 2 or 0 in array.shape:
        raise ValueError(f"{name}: expected a non-empty matrix [N, D], got shape {array.shape}.")
    refuse_non_finite(array, name)
    return refuse_merged_values(array, name)


def refuse_non_finite(array: np.ndarray, name: str) -> None:
    """Raise a ValueError where a matrix has NaN or infinity."""
    bad = ~np.isfinite(array).all(axis=1)
    if bad.any():
        raise ValueError(
            f"{name}: expected finite values, got NaN or infinity in {bad.sum()} of {len(array)} rows"
            f" (first: row {int(np.argmax(bad))})."
        )


def _refuse_masks(x: Any, name: str) -> None:
    """Masked cells hold a number that is meant for nobody, such as 1e20."""
    if isinstance(x, np.ma.MaskedArray) and np.ma.is_masked(x):
        count = np.ma.count_masked(x)
        raise ValueError(
            f"{name}: expected an array without a mask, got one with {count} of {x.size} cells masked: drop"
            " the rows or fill the cells."
        )


def refuse_merged_values(array: np.ndarray, name: str) -> np.ndarray:
    """``array`` in the default float, after a look at what that does to values that differ."""
    float_type: np.dtype = np.dtype(gpflow.default_float())
    narrowed = array.astype(float_type)
    if array.dtype.kind in "iuf" and array.dtype.itemsize > float_type.itemsize and array.ndim == 2:
        for column in range(array.shape[1]):
            # A value in so many merges by chance; where half of them do, they are dates or large numbers.
            before = len(np.unique(array[:, column]))
            after = len(np.unique(narrowed[:, column]))
            if after < 0.5 * before:
                raise ValueError(
                    f"{name}: expected values that differ in {float_type.name}, got a column ({column}) whose"
                    f" {before} values become {after}: subtract its mean first, or work in float64"
                    " (gpflow.config.set_default_float)."
                )
    return narrowed


def as_array(values: Any) -> np.ndarray:
    """
    An array; of float64 for what holds real numbers of several kinds, objects to NumPy, such as a table of
    pandas.
    """
    array = np.asarray(values)
    if array.dtype != object:
        return array
    if hasattr(values, "iloc"):
        kinds = {getattr(dtype, "kind", "O") for dtype in np.atleast_1d(values.dtypes)}
        if kinds <= set("fiub"):
            return values.to_numpy(dtype=float, na_value=np.nan)
    if all(isinstance(value, (Real, np.bool_)) for value in array.flat):
        return array.astype(np.float64)
    return array


def as_real_tensor(x: Any, name: str) -> tf.Tensor:
    """
    ``x`` as a tensor of its own dtype; Python's numbers as float64, whatever TensorFlow would make of them.

    :raises TypeError: where it holds no real numbers.
    :raises ValueError: where cells of it are masked.
    """
    _refuse_masks(x, name)
    kind = type(x).__name__
    try:
        if isinstance(x, (list, tuple, float)) and not _holds_tensors(x):
            array = as_array(x)
            if array.dtype.kind == "O":
                raise ValueError("its rows are of different lengths, or hold what are no numbers.")
            x = array
        elif isinstance(x, np.ndarray) or hasattr(x, "iloc"):
            x = as_array(x)
            cells = x.flat if x.dtype.kind == "O" else ()
            if (text := next((cell for cell in cells if isinstance(cell, str)), None)) is not None:
                raise ValueError(f"it holds text, such as {text!r}.")
        tensor = tf.convert_to_tensor(x)
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"{name}: expected an array of real numbers, got {kind}: {error}"
        ) from error
    if not (tensor.dtype.is_floating or tensor.dtype.is_integer or tensor.dtype.is_bool):
        raise TypeError(f"{name}: expected real numbers, got dtype {tensor.dtype.name}.")
    return tensor


def as_real_array(x: Any, name: str) -> np.ndarray:
    """Likewise as an array of NumPy's, also while a graph is built."""
    with tf.init_scope():
        return as_real_tensor(x, name).numpy()


def _holds_tensors(x: Any) -> bool:
    if isinstance(x, (list, tuple)):
        return any(map(_holds_tensors, x))
    return isinstance(x, (tf.Tensor, tf.Variable))


def check_finite(tensor: tf.Tensor, name: str) -> tf.Tensor:
    """
    ``tensor`` in the default float.

    :raises ValueError: where a value is NaN or infinite, or values of a column are no longer told apart.
    :raises tf.errors.InvalidArgumentError: for NaN and infinity, where the values are known only when a
        compiled function runs (compiled by XLA it has no such check).
    """
    known = tf.get_static_value(tensor)
    if known is not None:
        if not np.isfinite(known).all():
            raise ValueError(f"{name}: expected finite values, got NaN or infinity.")
        refuse_merged_values(known, name)
    tensor = tf.cast(tensor, gpflow.default_float())
    if known is None:
        tensor = tf.debugging.check_numerics(tensor, f"{name}: expected finite values")
    return tensor


def check_positive_array(x: Any, name: str) -> np.ndarray:
    """
    Positive, finite numbers of any shape, in the default float.

    :raises TypeError: where they are no real numbers.
    :raises ValueError: where one is not positive or not finite, or there is none.
    """
    array = as_real_array(x, name)
    if array.dtype == bool or not array.size or not (np.isfinite(array) & (array > 0)).all():
        raise ValueError(f"{name}: expected positive numbers, got {x!r}.")
    return array.astype(gpflow.default_float())


def check_inducing_variable(inducing_variable: Any, num_latent_gps: int) -> InducingVariables:
    """
    ``inducing_variable`` as GPflow's inducing variables, of inducing points where it is a matrix.

    :raises TypeError: where inducing inputs are not real numbers, or inducing variables of several GPs of
        a kind that GPflow does not have.
    :raises ValueError: where inducing inputs are no finite matrix, or inducing variables of several
        GPs are not ``num_latent_gps`` of equal size.
    """
    if not isinstance(inducing_variable, InducingVariables):
        Z = check_inputs(inducing_variable, "inducing_variable")
        # A parameter or variable stays the caller's own.
        shared = isinstance(inducing_variable, (gpflow.Parameter, tf.Variable))
        return InducingPoints(inducing_variable if shared else Z)
    if isinstance(inducing_variable, MultioutputInducingVariables):
        if not isinstance(
            inducing_variable,
            (
                FallbackSharedIndependentInducingVariables,
                FallbackSeparateIndependentInducingVariables,
            ),
        ):
            raise TypeError(
                "inducing_variable: expected inducing variables of one output, or GPflow's shared or separate"
                f" independent ones of them, got {type(inducing_variable).__name__}."
            )
        sizes = [int(each.num_inducing) for each in inducing_variable.inducing_variables]
        if len(sizes) not in (1, num_latent_gps):
            raise ValueError(
                f"inducing_variable: expected inducing variables for {num_latent_gps} GPs"
                f" (num_latent_gps), got them for {len(sizes)}."
            )
        if len(set(sizes)) > 1:
            raise ValueError(
                "inducing_variable: expected the same number of inducing variables for every GP, got"
                f" {', '.join(map(str, sizes))}."
            )
    return inducing_variable


def as_draws(noise: Any) -> list[Any]:
    """
    A list of given draws, empty for ``None``.

    :raises TypeError: where it is no sequence.
    """
    if noise is None:
        return []
    if not isinstance(noise, Sequence) or isinstance(noise, str):
        raise TypeError(f"noise: expected a list of tensors, got {type(noise).__name__}.")
    return list(noise)


def check_noise(noise: Sequence[Any], shapes: Sequence[Sequence[int | None]]) -> list[tf.Tensor]:
    """
    Given draws in the default float, after a check of the shapes that are known by now.

    :param shapes: those expected, each of three dimensions, of which the first is the number of samples.
    :raises ValueError: where they are others, or not of equally many samples.
    """
    noise = [tf.cast(as_real_tensor(z, "noise"), gpflow.default_float()) for z in as_draws(noise)]
    sizes = {z.shape[0] for z in noise if z.shape.rank} - {None}
    fit = [z.shape.is_compatible_with([None, *shape[1:]]) for z, shape in zip(noise, shapes)]
    if len(noise) != len(shapes) or len(sizes) > 1 or not all(fit):
        expected = ", ".join(f"[S, {shape[1]}, {shape[2]}]" for shape in shapes)
        got = ", ".join(str(z.shape) for z in noise)
        raise ValueError(
            f"noise: expected tensors of shapes {expected or 'none'}, got {got or 'none'}."
        )
    return noise
