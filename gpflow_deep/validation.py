"""Checks at the door: every error names the argument, what was expected and what came."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

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
    Bernoulli,
    Beta,
    Exponential,
    Gamma,
    Likelihood,
    MultiClass,
    Ordinal,
    Poisson,
    ScalarLikelihood,
    Softmax,
    SwitchedLikelihood,
)

from .likelihoods import MissingOutputs

__all__ = [
    "as_real_tensor",
    "check_finite",
    "check_inducing_variable",
    "check_inputs",
    "check_noise",
    "check_number",
    "check_positive_integer",
    "check_positive_number",
    "check_targets",
    "input_dim",
]


def check_inputs(X: Any, name: str) -> np.ndarray:
    """
    ``X`` as a finite matrix [N, D] of the default float, N and D at least 1.

    :param name: the argument's name in error messages.
    :raises TypeError: where the values are not real numbers.
    :raises ValueError: where the shape is wrong, or values are masked, NaN or infinite, or are no longer told
        apart in the default float.
    """
    _refuse_masks(X, name)
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
    return _narrow(array, name)


def _refuse_masks(x: Any, name: str) -> None:
    """Masked cells hold a number that is meant for nobody, such as 1e20."""
    if isinstance(x, np.ma.MaskedArray) and np.ma.is_masked(x):
        count = np.ma.count_masked(x)
        raise ValueError(
            f"{name}: expected an array without a mask, got one with {count} of {x.size} cells masked: drop"
            " the rows or fill the cells."
        )


def _narrow(array: np.ndarray, name: str) -> np.ndarray:
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


def check_positive_integer(value: Any, name: str) -> int:
    """
    ``value`` as an int of at least 1.

    :raises ValueError: where it is not one.
    """
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1:
        raise ValueError(f"{name}: expected a positive integer, got {value!r}.")
    return int(value)


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


def _as_number(value: Any) -> float | None:
    """A finite real scalar as a float; ``None`` for whatever is not one."""
    if isinstance(value, (tf.Tensor, tf.Variable)) and tf.get_static_value(value) is not None:
        value = tf.get_static_value(value)
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value[()]
    if isinstance(value, (bool, np.bool_)) or not isinstance(
        value, (int, float, np.integer, np.floating)
    ):
        return None
    return float(value) if np.isfinite(value) else None


def as_real_tensor(x: Any, name: str) -> tf.Tensor:
    """
    ``x`` as a tensor of its own dtype; Python's numbers as float64, whatever TensorFlow would make of them.

    :raises TypeError: where it holds no real numbers.
    :raises ValueError: where cells of it are masked.
    """
    _refuse_masks(x, name)
    try:
        if isinstance(x, (list, tuple, float)) and not _holds_tensors(x):
            array = np.asarray(x)
            if array.dtype.kind == "O":
                raise ValueError("its rows are of different lengths, or hold what are no numbers.")
            x = array
        tensor = tf.convert_to_tensor(x)
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"{name}: expected an array of real numbers, got {type(x).__name__}: {error}"
        ) from error
    if not (tensor.dtype.is_floating or tensor.dtype.is_integer or tensor.dtype.is_bool):
        raise TypeError(f"{name}: expected real numbers, got dtype {tensor.dtype.name}.")
    return tensor


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
        _narrow(known, name)
    tensor = tf.cast(tensor, gpflow.default_float())
    if known is None:
        tensor = tf.debugging.check_numerics(tensor, f"{name}: expected finite values")
    return tensor


def check_targets(Y: Any, likelihood: Likelihood, num_latent_gps: int, name: str) -> tf.Tensor:
    """
    Observations in the type that their likelihood takes: integers for ``Softmax``, else the default
    float.

    :param Y: [..., P].
    :raises ValueError: where the number of columns is not the likelihood's, or a value known by now is NaN,
        infinite, or none that the likelihood can have.
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
    if tensor.dtype.is_bool:
        tensor = tf.cast(tensor, gpflow.default_float())
    known = tf.get_static_value(tensor)
    requirements = _requirements(likelihood, num_latent_gps)
    if tensor.dtype.is_integer:
        requirements = requirements[1:]  # without that of being finite
    if known is None:
        checks = [
            tf.debugging.Assert(tf.reduce_all(each.holds(tensor)), [f"{name}: {each.words}"])
            for each in requirements
        ]
        with tf.control_dependencies(checks):
            tensor = tf.identity(tensor)
    else:
        for each in requirements:
            wrong = np.broadcast_to(~each.holds(known), known.shape)
            if wrong.any():
                raise ValueError(f"{name}: {each.words}, got {known[wrong][0]:g}.")
        _narrow(known, name)
    return tf.cast(tensor, tf.int64 if isinstance(likelihood, Softmax) else gpflow.default_float())


class _Requirement(NamedTuple):
    """What observations must be."""

    holds: Callable[[Any], Any]  # of an array or a tensor, value by value
    words: str


def _requirements(likelihood: Likelihood, num_latent_gps: int) -> list[_Requirement]:
    support = _support(likelihood, num_latent_gps)
    if isinstance(likelihood, MissingOutputs):
        finite = _Requirement(lambda y: abs(y) != np.inf, "expected finite values, or NaN for none")
        inner = _support(likelihood.likelihood, num_latent_gps)
        if inner is not None:
            support = _Requirement(lambda y: (y != y) | inner.holds(y), f"{inner.words}, or NaN")
    else:
        advice = ""
        if isinstance(likelihood, ScalarLikelihood) and num_latent_gps > 1:
            advice = " (wrap the likelihood in gpflow_deep.likelihoods.MissingOutputs where NaN means none)"
        finite = _Requirement(
            lambda y: abs(y) < np.inf, f"expected finite values, not NaN or infinity{advice}"
        )
    return [finite] if support is None else [finite, support]


def _support(likelihood: Likelihood, num_classes: int) -> _Requirement | None:
    """The observations that GPflow's likelihoods can have; of others nothing is known."""
    if isinstance(likelihood, (Softmax, MultiClass)):
        return _Requirement(
            lambda y: (y >= 0) & (y < num_classes) & (y % 1 == 0),
            f"expected classes 0 to {num_classes - 1}, as many as the last layer has GPs",
        )
    if isinstance(likelihood, Bernoulli):
        return _Requirement(lambda y: (y == 0) | (y == 1), "expected labels 0 and 1 for Bernoulli")
    if isinstance(likelihood, Ordinal):
        last = likelihood.num_bins - 1
        return _Requirement(
            lambda y: (y >= 0) & (y <= last) & (y % 1 == 0), f"expected levels 0 to {last}"
        )
    if isinstance(likelihood, Poisson):
        return _Requirement(lambda y: (y >= 0) & (y % 1 == 0), "expected counts for Poisson")
    if isinstance(likelihood, Beta):
        return _Requirement(lambda y: (y > 0) & (y < 1), "expected values between 0 and 1 for Beta")
    if isinstance(likelihood, (Gamma, Exponential)):
        kind = type(likelihood).__name__
        return _Requirement(lambda y: y > 0, f"expected positive values for {kind}")
    if isinstance(likelihood, SwitchedLikelihood):
        last = len(likelihood.likelihoods) - 1

        def holds(y: Any) -> Any:
            index = y[..., -1:]
            return (index >= 0) & (index <= last) & (index % 1 == 0)

        return _Requirement(
            holds, f"expected the index of a likelihood, 0 to {last}, in the last column"
        )
    return None


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
