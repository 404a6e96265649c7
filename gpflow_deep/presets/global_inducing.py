"""
The deep GPs of Ober & Aitchison 2021: inducing inputs propagated from the bottom, and the
same posterior with inducing inputs of every layer's own.
"""

from __future__ import annotations

import numpy as np

from gpflow_deep.models import GlobalInducingDeepGP

from .parts import build_gp_layers, data_for_inducing, likelihood_and_outputs, pseudo_targets
from .registry import register
from .settings import Settings

__all__ = ["global_inducing", "local_inducing"]


def _model(
    X: np.ndarray, Y: np.ndarray, settings: Settings, seed: int, inducing: str
) -> GlobalInducingDeepGP:
    likelihood, num_outputs = likelihood_and_outputs(Y, settings)
    layers = build_gp_layers(X, num_outputs, settings, seed)
    U0, V = None, None
    if inducing == "global":
        targets = pseudo_targets(Y, num_outputs, settings)
        U0, V = data_for_inducing(layers, X, targets, settings, seed)
    return GlobalInducingDeepGP(
        layers,
        likelihood,
        U0,
        inducing=inducing,
        pseudo_outputs=V,
        num_samples=settings.num_samples,
        num_data=len(X),
        seed=seed,
    )


@register("global-inducing")
def global_inducing(
    X: np.ndarray, Y: np.ndarray, settings: Settings, seed: int
) -> GlobalInducingDeepGP:
    """
    Inducing inputs at the bottom only, from the training points.

    With their targets: they are drawn at random where others have centres of k-means, which have none.
    """
    return _model(X, Y, settings, seed, "global")


@register("local-inducing")
def local_inducing(
    X: np.ndarray, Y: np.ndarray, settings: Settings, seed: int
) -> GlobalInducingDeepGP:
    """Inducing inputs of every layer's own."""
    return _model(X, Y, settings, seed, "local")
