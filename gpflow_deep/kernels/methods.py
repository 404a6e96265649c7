"""What may be evaluated by another way than calling the kernel: only what no one has overridden."""

from __future__ import annotations

import inspect
from functools import cache
from typing import Any
from weakref import WeakKeyDictionary

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.inducing_variables import InducingVariables
from gpflow.kernels import Kernel

from ..numerics.stationary import PROFILES, Profile

__all__ = ["has_methods_of", "has_registered_covariances", "profile_of", "takes_batches"]


def profile_of(kernel: Kernel) -> Profile | None:
    """Of a stationary kernel that has one, and whose formula it is; ``None`` for any other."""
    profiles = (profile for kind, profile in PROFILES.items() if has_methods_of(kernel, kind))
    return next(profiles, None)


def has_methods_of(module: tf.Module, kind: type, *names: str) -> bool:
    """
    Whether a kernel or a mean function is of a class whose formula may stand for its methods: neither a
    subclass nor the instance overrides them. A squared exponential whose user gave it another ``K`` is none
    any more.

    :param kind: the class whose formula it is.
    :param names: the methods that the formula replaces; all that the class has by default.
    """
    own: Any = type(module)
    methods = frozenset(names) or _methods(kind)
    return (
        isinstance(module, kind)
        and methods.isdisjoint(vars(module))
        and _inherits(own, kind, methods)
    )


@cache
def _methods(kind: type) -> frozenset[str]:
    """Names of a class's methods and properties, private ones included."""
    return frozenset(
        name
        for name in dir(kind)
        if (name == "__call__" or not name.startswith("__"))
        and (
            callable(inspect.getattr_static(kind, name))
            or isinstance(inspect.getattr_static(kind, name), property)
        )
    )


@cache
def _inherits(kind: type, ancestor: type, names: frozenset[str]) -> bool:
    return all(
        inspect.getattr_static(kind, name) is inspect.getattr_static(ancestor, name)
        for name in names
    )


def has_registered_covariances(inducing_variable: InducingVariables, kernel: Kernel) -> bool:
    """Whether a user registered a function of his own as ``Kuu`` or ``Kuf`` of such a pair."""
    kinds = type(inducing_variable), type(kernel)
    functions = (
        gpflow.covariances.Kuu.dispatch(*kinds),
        gpflow.covariances.Kuf.dispatch(*kinds, tf.Tensor),
    )
    return any(
        function is not None and function.__module__.partition(".")[0] != "gpflow"
        for function in functions
    )


_TRIED: WeakKeyDictionary[Kernel, bool] = WeakKeyDictionary()


def takes_batches(kernel: Kernel, input_dim: int | None) -> bool:
    """
    Whether ``kernel(X)`` at R groups of points [R, N, D] is the covariance within each group, as GPflow
    asks of kernels. Those written for one matrix of inputs fail there or, worse, return something else: a
    trial on a few inputs, once for each kernel, tells.

    :param input_dim: D; where it is not known yet, there is no trial, and the answer is no.
    """
    if kernel not in _TRIED:
        if input_dim is None:
            return False
        with tf.init_scope():  # eager, also while a function is being traced
            _TRIED[kernel] = _trial(kernel, input_dim)
    return _TRIED[kernel]


def _trial(kernel: Kernel, input_dim: int) -> bool:
    # Not as many points as inputs: Keras's models would take the points for these. And few: a convolutional
    # kernel takes all pairs of all their patches.
    num_points = 3 if input_dim != 3 else 4
    draws = np.random.default_rng(0).standard_normal([2, num_points, input_dim])
    X = tf.constant(draws, gpflow.default_float())
    try:
        groups, batch = np.stack([kernel(x) for x in X]), np.asarray(kernel(X))
    except Exception:  # whatever a user's kernel raises
        return False
    scale = np.sqrt(np.finfo(groups.dtype).eps)
    return groups.shape == batch.shape and np.allclose(batch, groups, rtol=scale, atol=scale)
