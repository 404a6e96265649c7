"""
Deep Gaussian processes for GPflow.

Layers of GPs (:mod:`gpflow_deep.layers`), approximate posteriors over the inducing outputs of all layers
(:mod:`gpflow_deep.posteriors`), models that train and predict like GPflow's own
(:mod:`gpflow_deep.models`), and what helps to use them: :mod:`gpflow_deep.training`,
:mod:`gpflow_deep.metrics`, :mod:`gpflow_deep.plotting`, :mod:`gpflow_deep.experiments`.
"""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from . import (
        distributions,
        estimators,
        experiments,
        initialisation,
        kernels,
        layers,
        likelihoods,
        metrics,
        models,
        optimizers,
        plotting,
        posteriors,
        presets,
        psi_statistics,
        training,
    )

__all__ = [
    "__version__",
    "distributions",
    "estimators",
    "experiments",
    "initialisation",
    "kernels",
    "layers",
    "likelihoods",
    "metrics",
    "models",
    "optimizers",
    "plotting",
    "posteriors",
    "presets",
    "psi_statistics",
    "training",
]

__version__ = "0.1.0"


def __getattr__(name: str) -> ModuleType:
    # Imported when first used: TensorFlow takes seconds, which the command line's help need not.
    if name in __all__:
        return importlib.import_module(f".{name}", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
