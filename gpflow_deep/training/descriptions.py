"""What tells a run's model from another with parameters of the same names and shapes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.base import Module, Parameter
from gpflow.kernels import Kernel

from gpflow_deep.posteriors.records import Record

__all__ = ["describe_model", "describe_optimizer", "describe_parameter"]


def describe_model(model: gpflow.models.BayesianModel) -> dict[str, Any]:
    """Its parts, and the plain settings of itself and of them, which JSON can hold."""
    parts = [part for part in model.submodules if isinstance(part, Module)]
    settings = {
        f"{type(part).__name__} {index}": _settings(part)
        for index, part in enumerate(parts, start=1)
    }
    names = " ".join(type(part).__name__ for part in (model, *parts))
    return {**_settings(model), "parts": names, "settings": settings}


def describe_optimizer(optimizer: Any) -> dict[str, Any]:
    """Its settings; of one whose schedule has none to tell, the names of both."""
    # Keras 3 numbers the names that it gives.
    name = type(optimizer).__name__
    try:
        config = optimizer.get_config()
    except NotImplementedError:
        schedule = getattr(optimizer, "_learning_rate", None)
        return {"learning_rate": type(schedule).__name__, "name": name}
    inner = config.get("inner_optimizer")  # of one that scales the loss of another
    if isinstance(inner, dict) and "config" in inner:
        inner["config"]["name"] = inner["class_name"]
    return {**config, "name": name}


def describe_parameter(parameter: Parameter | tf.Variable) -> str:
    """Its shape and prior; whether it is trained, and the value of a single number that no run changes."""
    text = f"{parameter.shape} {'trainable' if parameter.trainable else 'fixed'}"
    # Arrays may have been computed, and differ in the last digit on another machine.
    is_constant = not parameter.trainable and not isinstance(parameter, Record)
    if is_constant and parameter.shape.ndims == 0:
        text += f" at {parameter.numpy():.6g}"
    prior = getattr(parameter, "prior", None)
    return text if prior is None else f"{text}, prior {_describe(prior)}"


def _settings(part: Module) -> Mapping[str, Any]:
    settings = {
        name: value
        for name, value in vars(part).items()
        if isinstance(value, bool | int | float | str) and name[0] != "_" and name != "num_data"
    }
    if isinstance(part, Kernel):
        settings["active_dims"] = str(part.active_dims)
    return settings


def _describe(value: Any) -> str:
    if isinstance(value, tfp.distributions.Distribution | tfp.bijectors.Bijector):
        settings = {name: _describe(x) for name, x in value.parameters.items() if name != "name"}
        return f"{type(value).__name__}({', '.join(f'{k}={v}' for k, v in settings.items() if v)})"
    array = np.asarray(value)
    return " ".join(f"{x:.6g}" for x in array.ravel()) if array.dtype.kind in "fiu" else ""
