"""
The deep GPs of Ober & Aitchison 2021: inducing inputs propagated from the bottom, and the
same posterior with inducing inputs of every layer's own.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from gpflow_deep.initialisation import inducing_data
from gpflow_deep.models import GlobalInducingDeepGP

from .parts import build_gp_layers, likelihood_and_outputs, pseudo_targets
from .registry import register
from .settings import Settings

__all__ = ["global_inducing", "local_inducing"]


def _model(
    X: np.ndarray, Y: np.ndarray, settings: Settings, seed: int, inducing: str
) -> GlobalInducingDeepGP:
    likelihood, num_outputs = likelihood_and_outputs(Y, settings)
    targets = pseudo_targets(Y, num_outputs, settings)
    U0, V = inducing_data(X, targets, settings.num_inducing, seed=seed)
    layers = build_gp_layers(X, num_outputs, replace(settings, num_inducing=len(U0)), seed)
    return GlobalInducingDeepGP(
        layers,
        likelihood,
        U0 if inducing == "global" else None,
        inducing=inducing,
        pseudo_outputs=V if inducing == "global" else None,
        num_samples=settings.num_samples,
        num_data=len(X),
        seed=seed,
    )


@register("global-inducing")
def global_inducing(
    X: np.ndarray, Y: np.ndarray, settings: Settings, seed: int
) -> GlobalInducingDeepGP:
    """Inducing inputs at the bottom only, from the training points."""
    return _model(X, Y, settings, seed, "global")


@register("local-inducing")
def local_inducing(
    X: np.ndarray, Y: np.ndarray, settings: Settings, seed: int
) -> GlobalInducingDeepGP:
    """Inducing inputs of every layer's own."""
    return _model(X, Y, settings, seed, "local")
