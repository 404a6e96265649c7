"""Checks at the door: every error names the argument, what was expected and what came."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.inducing_variables import (
    FallbackSeparateIndependentInducingVariables,
    FallbackSharedIndependentInducingVariables,
    InducingPatches,
    InducingPoints,
    InducingVariables,
    MultioutputInducingVariables,
    Multiscale,
)
from gpflow.kernels import Convolutional, Kernel
from gpflow.likelihoods import (
    Likelihood,
    MultiClass,
    ScalarLikelihood,
    Softmax,
    SwitchedLikelihood,
)

__all__ = [
    "as_real_tensor",
    "check_finite",
    "check_inducing_variable",
    "check_inputs",
    "check_noise",
    "check_positive_integer",
    "check_targets",
    "input_dim",
]


def check_inputs(X: Any, name: str) -> np.ndarray:
    """
    ``X`` as a finite matrix [N, D] of the default float, N and D at least 1.

    :param name: the argument's name in error messages.
    :raises TypeError: where the values are not real numbers.
    :raises ValueError: where the shape is wrong or values are NaN or infinite.
    """
    array = np.asarray(X.numpy() if isinstance(X, (tf.Tensor, tf.Variable)) else X)
    if array.dtype.kind not in "fiub":
        raise TypeError(f"{name}: expected real numbers, got dtype {array.dtype}.")
    if array.ndim != 2 or 0 in array.shape:
        raise ValueError(f"{name}: expected a non-empty matrix [N, D], got shape {array.shape}.")
    bad = ~np.isfinite(array).all(axis=1)
    if bad.any():
        raise ValueError(
            f"{name}: expected finite values, got NaN or infinity in {bad.sum()} of {len(array)} rows"
            f" (first: row {int(np.argmax(bad))})."
        )
    return array.astype(gpflow.default_float())


def check_positive_integer(value: Any, name: str) -> int:
    """
    ``value`` as an int of at least 1.

    :raises ValueError: where it is not one.
    """
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1:
        raise ValueError(f"{name}: expected a positive integer, got {value!r}.")
    return int(value)


def as_real_tensor(x: Any, name: str) -> tf.Tensor:
    """
    ``x`` as a tensor of its own dtype.

    :raises TypeError: where it holds no real numbers.
    """
    try:
        tensor = tf.convert_to_tensor(x)
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"{name}: expected an array of real numbers, got {type(x).__name__}: {error}"
        ) from error
    if not (tensor.dtype.is_floating or tensor.dtype.is_integer or tensor.dtype.is_bool):
        raise TypeError(f"{name}: expected real numbers, got dtype {tensor.dtype.name}.")
    return tensor


def check_finite(tensor: tf.Tensor, name: str) -> tf.Tensor:
    """
    ``tensor`` in the default float.

    :raises ValueError: where a value is NaN or infinite.
    :raises tf.errors.InvalidArgumentError: likewise, where the values are known only when a compiled
        function runs (compiled by XLA it has no such check).
    """
    known = tf.get_static_value(tensor)
    if known is not None and not np.isfinite(known).all():
        raise ValueError(f"{name}: expected finite values, got NaN or infinity.")
    tensor = tf.cast(tensor, gpflow.default_float())
    if known is None:
        tensor = tf.debugging.check_numerics(tensor, f"{name}: expected finite values")
    return tensor


def check_targets(Y: Any, likelihood: Likelihood, num_latent_gps: int, name: str) -> tf.Tensor:
    """
    Observations in the type that their likelihood takes: integers for ``Softmax``, else the default
    float.

    :param Y: [..., P].
    :raises ValueError: where the number of columns is not the likelihood's, or a value known by now is
        not one of its classes.
    :raises tf.errors.InvalidArgumentError: where such a value is known only when a compiled function runs
        (compiled by XLA it has no such check).
    """
    tensor = as_real_tensor(Y, name)
    columns = _observation_dim(likelihood, num_latent_gps)
    if columns is not None and tensor.shape.rank is not None and tensor.shape[-1] is None:
        tensor = tf.ensure_shape(tensor, tensor.shape[:-1].concatenate(columns))
    if columns is not None and tensor.shape.rank is not None and tensor.shape[-1] != columns:
        raise ValueError(
            f"{name}: expected [N, {columns}] for {type(likelihood).__name__} of {num_latent_gps}"
            f" latent functions, got {tensor.shape}."
        )
    if isinstance(likelihood, (Softmax, MultiClass)):
        tensor = _check_classes(tensor, num_latent_gps, name)
    return tf.cast(tensor, tf.int64 if isinstance(likelihood, Softmax) else gpflow.default_float())


def _check_classes(tensor: tf.Tensor, num_classes: int, name: str) -> tf.Tensor:
    expected = f"{name}: expected classes 0 to {num_classes - 1}, as many as the last layer has GPs"
    known = tf.get_static_value(tensor)
    if known is None:
        classes = tf.range(num_classes, dtype=tensor.dtype)
        right = tf.reduce_all(tf.reduce_any(tensor[..., None] == classes, axis=-1))
        with tf.control_dependencies([tf.debugging.Assert(right, [expected])]):
            return tf.identity(tensor)
    wrong = known[~np.isin(known, np.arange(num_classes))]
    if wrong.size:
        raise ValueError(f"{expected}, got {wrong[0]:g}.")
    return tensor


def _observation_dim(likelihood: Likelihood, num_latent_gps: int) -> int | None:
    """How many columns the observations of a likelihood have, where it is known."""
    if isinstance(likelihood, SwitchedLikelihood):
        return num_latent_gps + 1  # the last one says which likelihood
    if isinstance(likelihood, ScalarLikelihood):
        return num_latent_gps
    if isinstance(likelihood, (Softmax, MultiClass)):
        return 1
    dim: int | None = likelihood.observation_dim
    return dim


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


def check_noise(noise: Sequence[Any], shapes: Sequence[Sequence[int | None]]) -> list[tf.Tensor]:
    """
    Given draws in the default float, after a check of the shapes that are known by now.

    :param shapes: those expected, each of three dimensions, of which the first is the number of samples.
    :raises ValueError: where they are others, or not of equally many samples.
    """
    noise = [tf.cast(z, gpflow.default_float()) for z in noise]
    sizes = {z.shape[0] for z in noise if z.shape.rank} - {None}
    fit = [z.shape.is_compatible_with([None, *shape[1:]]) for z, shape in zip(noise, shapes)]
    if len(noise) != len(shapes) or len(sizes) > 1 or not all(fit):
        expected = ", ".join(f"[S, {shape[1]}, {shape[2]}]" for shape in shapes)
        got = ", ".join(str(z.shape) for z in noise)
        raise ValueError(
            f"noise: expected tensors of shapes {expected or 'none'}, got {got or 'none'}."
        )
    return noise


def input_dim(inducing_variable: InducingVariables, kernel: Kernel) -> int | None:
    """
    The dimension of the inputs: that of inducing inputs, or of the images that a convolutional kernel takes
    patches of; ``None`` where neither tells.
    """
    convolutions = [k for k in (kernel, *kernel.submodules) if isinstance(k, Convolutional)]
    dims = {int(np.prod(k.image_shape)) * k.colour_channels for k in convolutions}
    parts: Sequence[InducingVariables] = [inducing_variable]
    if isinstance(inducing_variable, MultioutputInducingVariables):
        parts = inducing_variable.inducing_variables
    at_inputs = [part for part in parts if isinstance(part, (InducingPoints, Multiscale))]
    patches = InducingPatches if convolutions else ()
    dims |= {part.Z.shape[1] for part in at_inputs if not isinstance(part, patches)}
    return dims.pop() if len(dims) == 1 else None
