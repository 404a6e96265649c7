"""Deep GPs as scikit-learn has models: fit, predict, save and load."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .classifier import DeepGPClassifier
    from .persistence import load, save
    from .regressor import DeepGPRegressor

__all__ = ["DeepGPClassifier", "DeepGPRegressor", "load", "save"]

_HOMES = {
    "DeepGPClassifier": "classifier",
    "DeepGPRegressor": "regressor",
    "load": "persistence",
    "save": "persistence",
}


def __getattr__(name: str) -> Any:
    # Imported when first used: the studies' splits take the scaling from here, and help must not wait.
    if name in _HOMES:
        return getattr(importlib.import_module(f".{_HOMES[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
