"""Models that studies know by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any

import numpy as np

from gpflow_deep.experiments.settings import Settings

__all__ = ["Builder", "RegisteredModel", "get_model", "model_names", "register_model"]

#: (X [N, D], Y [N, P], settings, seed) -> a model with `predict_y_mixture`; X and Y standardised.
Builder = Callable[[np.ndarray, np.ndarray, Settings, int], Any]

#: Modules that register the families of this package when they are imported.
_FAMILIES = (
    "gpflow_deep.experiments.amortized",
    "gpflow_deep.experiments.fitc_ep",
    "gpflow_deep.experiments.global_inducing",
    "gpflow_deep.experiments.structured",
)


@dataclass(frozen=True)
class RegisteredModel:
    """
    A model by name.

    :param name: what it is called in commands and tables.
    :param build: makes it from standardised data.
    :param max_layers: more layers than it can have are not asked of it.
    """

    name: str
    build: Builder
    max_layers: int | None = None

    def settings(self, settings: Settings) -> Settings:
        """Settings as this model can use them."""
        if self.max_layers is None:
            return settings
        return replace(settings, num_layers=min(settings.num_layers, self.max_layers))


_MODELS: dict[str, RegisteredModel] = {}


def register_model(name: str, *, max_layers: int | None = None) -> Callable[[Builder], Builder]:
    """
    Decorator that makes a builder known to `gpflow-deep benchmark --model NAME`.

    :param name: not yet in use.
    :param max_layers: most layers that the model can have, if that is limited.
    """

    def decorate(build: Builder) -> Builder:
        if name in _MODELS:
            raise ValueError(f"name: a model {name!r} is registered already.")
        _MODELS[name] = RegisteredModel(name, build, max_layers)
        return build

    return decorate


def model_names() -> list[str]:
    """Names of all registered models."""
    for family in _FAMILIES:
        import_module(family)
    return sorted(_MODELS)


def get_model(name: str) -> RegisteredModel:
    """
    A registered model.

    :param name: one of `model_names()`.
    :raises ValueError: for any other name; it lists them.
    """
    names = model_names()
    if name not in names:
        raise ValueError(f"Unknown model {name!r}. Registered: {', '.join(names)}.")
    return _MODELS[name]
