"""What observations a likelihood can have, and how many of them a model counts on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import gpflow
import numpy as np
import tensorflow as tf
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

from ..likelihoods import MissingOutputs
from ..likelihoods.kinds import inherits, is_own
from .arrays import as_real_tensor, refuse_merged_values
from .numbers import check_positive_integer

__all__ = ["as_num_data", "check_num_data", "check_targets", "observation_dim"]


def as_num_data(value: Any) -> Any:
    """
    How many rows a model counts on, as GPflow's models take it: ``None``, an integer, also as a whole float,
    or a scalar tensor or variable, as it is.

    :raises ValueError: for anything else.
    """
    if value is None:
        return None
    if isinstance(value, tf.Variable) or tf.is_tensor(value):
        if value.shape.rank != 0:
            raise ValueError(f"num_data: expected one number, got shape {value.shape}.")
        return value
    whole = isinstance(value, (float, np.floating)) and value.is_integer()
    return check_positive_integer(int(value) if whole else value, "num_data")


def check_pair(data: Any) -> Any:
    """
    Inputs and targets, of whatever kind.

    :raises TypeError: where they are no pair.
    """
    if not isinstance(data, (tuple, list)) or len(data) != 2:
        count = f" of {len(data)}" if isinstance(data, (tuple, list)) else ""
        raise TypeError(f"data: expected a pair (X, Y), got {type(data).__name__}{count}.")
    return data


def check_num_data(model: gpflow.models.BayesianModel, num_rows: int) -> None:
    """Raise a ValueError where a model counts on another number of rows."""
    num_data = getattr(model, "num_data", None)
    if num_data is not None and num_data != num_rows:
        raise ValueError(
            f"model.num_data: expected the number of rows of data, {num_rows}, or None, got {num_data}."
        )


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
    columns = observation_dim(likelihood, num_latent_gps)
    if columns is None and isinstance(likelihood, ScalarLikelihood) and tensor.shape.rank:
        found = tensor.shape[-1]
        if found is not None and found < num_latent_gps:
            raise ValueError(
                f"{name}: expected [N, {num_latent_gps}], or more columns, for"
                f" {type(likelihood).__name__} of {num_latent_gps} latent functions, got {tensor.shape}."
            )
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
            wrong = ~each.holds(known)
            if wrong.any():
                raise ValueError(
                    f"{name}: {each.words}, got {known[..., each.columns][wrong][0]:g}."
                )
        refuse_merged_values(known, name)
    return tf.cast(tensor, tf.int64 if isinstance(likelihood, Softmax) else gpflow.default_float())


class _Requirement(NamedTuple):
    """What observations must be."""

    holds: Callable[[Any], Any]  # of an array or a tensor, value by value
    words: str
    columns: slice = slice(None)  # that are judged


def _requirements(likelihood: Likelihood, num_latent_gps: int) -> list[_Requirement]:
    support = _support(likelihood, num_latent_gps)
    if isinstance(likelihood, MissingOutputs):
        words = "expected finite values, or NaN for none"
        finite = _Requirement(lambda y: (y != y) | _is_finite(y), words)
        inner = _support(likelihood.likelihood, num_latent_gps)
        if inner is not None:
            support = _Requirement(lambda y: (y != y) | inner.holds(y), f"{inner.words}, or NaN")
    else:
        advice = ""
        if isinstance(likelihood, ScalarLikelihood) and num_latent_gps > 1:
            advice = " (wrap the likelihood in gpflow_deep.likelihoods.MissingOutputs where NaN means none)"
        finite = _Requirement(_is_finite, f"expected finite values, not NaN or infinity{advice}")
    requirements = [finite] if support is None else [finite, support]
    if isinstance(likelihood, SwitchedLikelihood):
        for number, part in enumerate(likelihood.likelihoods):
            requirements += _of_part(number, _support(part, num_latent_gps))
    return requirements


def _is_finite(y: Any) -> Any:
    # Not by comparison with infinity, which TensorFlow's check of numerics would take for one of the data's.
    return tf.math.is_finite(y) if tf.is_tensor(y) else np.isfinite(y)


def _any(x: Any) -> Any:
    return tf.reduce_any(x) if tf.is_tensor(x) else np.any(x)


def _of_part(number: int, support: _Requirement | None) -> list[_Requirement]:
    """What one of several likelihoods asks of the rows whose last column has its number."""
    if support is None:
        return []

    def holds(y: Any) -> Any:
        values, others = y[..., :-1], y[..., -1:] != number
        library = tf if tf.is_tensor(y) else np
        # What other likelihoods observe says nothing of this one's labels, nor does a label of 1.
        return others | support.holds(library.where(others, library.ones_like(values), values))

    words = f"{support.words} where the last column is {number}"
    return [_Requirement(holds, words, slice(None, -1))]


def _support(likelihood: Likelihood, num_classes: int) -> _Requirement | None:
    """The observations that GPflow's likelihoods can have; of densities by users nothing is known."""

    def has_density_of(*bases: type[Likelihood]) -> bool:
        return any(
            isinstance(likelihood, base)
            and inherits(
                likelihood, base, *{"_log_prob", "_scalar_log_prob"}.intersection(dir(base))
            )
            for base in bases
        )

    if has_density_of(Softmax, MultiClass):
        return _Requirement(
            lambda y: (y >= 0) & (y < num_classes) & (y % 1 == 0),
            f"expected classes 0 to {num_classes - 1}, as many as the last layer has GPs",
        )
    if isinstance(likelihood, Softmax):  # which is given integers, whatever its density
        return _Requirement(lambda y: y % 1 == 0, "expected whole numbers for Softmax")
    if has_density_of(Bernoulli):
        # GPflow's takes all labels but 1 for the other class, which here has one label in a set of them.
        return _Requirement(
            lambda y: (y == 1) | (y == 0) | ((y == -1) & ~_any(y == 0)),
            "expected labels -1 and 1 alone or labels 0 and 1 for Bernoulli",
        )
    if has_density_of(Ordinal):
        last = likelihood.num_bins - 1
        return _Requirement(
            lambda y: (y >= 0) & (y <= last) & (y % 1 == 0), f"expected levels 0 to {last}"
        )
    if has_density_of(Poisson):
        return _Requirement(lambda y: (y >= 0) & (y % 1 == 0), "expected counts for Poisson")
    if has_density_of(Beta):
        return _Requirement(lambda y: (y > 0) & (y < 1), "expected values between 0 and 1 for Beta")
    if has_density_of(Gamma):
        return _Requirement(lambda y: y > 0, "expected positive values for Gamma")
    if has_density_of(Exponential):
        return _Requirement(lambda y: y >= 0, "expected values from 0 on for Exponential")
    if has_density_of(SwitchedLikelihood):
        last = len(likelihood.likelihoods) - 1

        def holds(y: Any) -> Any:
            index = y[..., -1:]
            return (index >= 0) & (index <= last) & (index % 1 == 0)

        return _Requirement(
            holds,
            f"expected the index of a likelihood, 0 to {last}, in the last column",
            slice(-1, None),
        )
    return None


def observation_dim(likelihood: Likelihood, num_latent_gps: int) -> int | None:
    """
    How many columns the observations of a likelihood have, where it is known. Those of a user's density may
    have more than the functions: known variances, numbers of trials, what is censored.
    """
    if isinstance(likelihood, SwitchedLikelihood):
        return num_latent_gps + 1  # the last one says which likelihood
    if isinstance(likelihood, (Softmax, MultiClass)):
        return 1
    dim: int | None = likelihood.observation_dim
    if (
        dim is None
        and isinstance(likelihood, ScalarLikelihood)
        and not is_own(likelihood, "scalar_log_prob", "log_prob")
    ):
        return num_latent_gps
    return dim
