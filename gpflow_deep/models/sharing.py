"""A warning where two models train the same parameters."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from weakref import WeakKeyDictionary, ref

import tensorflow as tf

from ..numerics.warning import warn_caller

__all__ = ["warn_of_shared_parameters"]

#: Of kernels, mean functions and inducing variables, the model that was built on them last.
_USERS: WeakKeyDictionary[tf.Module, Any] = WeakKeyDictionary()


def _parts(model: Any) -> Iterator[tf.Module]:
    for layer in model.layers:
        for part in (layer.kernel, layer.mean_function, getattr(layer, "inducing_variable", None)):
            if isinstance(part, tf.Module) and part.trainable_variables:
                yield part


def warn_of_shared_parameters(model: Any) -> None:
    """
    Say so where layers of a new model have parameters that another living model trains: training one then
    changes the other.

    :param model: a model with its layers.
    """
    others: dict[int, Any] = {}
    for part in _parts(model):
        other = _USERS[part]() if part in _USERS else None
        if other is not None and other is not model:
            others[id(other)] = other
        _USERS[part] = ref(model)
    for other in others.values():
        warn_caller(
            f"{model.name} ({type(model).__name__}) is built on layers of {other.name}"
            f" ({type(other).__name__}): to train one changes the other. Give each its own layers, for"
            " instance by copy.deepcopy, or fix the shared ones by gpflow.set_trainable."
        )
