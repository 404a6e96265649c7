"""A warning where two models train the same parameters."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any
from weakref import WeakKeyDictionary, ref

import tensorflow as tf

from ..numerics.warning import warn_caller

__all__ = ["warn_of_shared_parameters"]

#: Of kernels, mean functions, inducing variables and layers of networks, the last model built on them.
_USERS: WeakKeyDictionary[tf.Module, Any] = WeakKeyDictionary()


def _parts(model: Any) -> Iterator[tf.Module]:
    for layer in model.layers:
        if not hasattr(layer, "kernel"):  # a network's, with a prior or a function of its own
            if layer.trainable_variables:
                yield layer
            continue
        for part in (layer.kernel, layer.mean_function, getattr(layer, "inducing_variable", None)):
            if isinstance(part, tf.Module) and part.trainable_variables:
                yield part


def warn_of_shared_parameters(model: Any) -> None:
    """
    Say so where layers of a new model have parameters that another living model trains: training one then
    changes the other.

    :param model: a model with its layers.
    """
    parts = list(_parts(model))
    for other in _others(model, parts):
        warn_caller(
            f"{model.name} ({type(model).__name__}) is built on layers of {other.name}"
            f" ({type(other).__name__}): to train one changes the other. Give each its own layers, for"
            " instance by copy.deepcopy, or fix the shared ones by gpflow.set_trainable."
        )
    for part in parts:
        _USERS[part] = ref(model)


def _others(model: Any, parts: Sequence[tf.Module]) -> list[Any]:
    """The living models that were built on some of these parts last, each once."""
    users = (_USERS[part]() for part in parts if part in _USERS)
    others = {id(user): user for user in users if user is not None and user is not model}
    return list(others.values())
