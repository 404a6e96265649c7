"""
The deep GPs of Ober & Aitchison 2021 for the studies: inducing inputs propagated from the bottom, and the
same posterior with inducing inputs of every layer's own.
"""

from __future__ import annotations

import gpflow
import numpy as np

from gpflow_deep.initialisation import inducing_data
from gpflow_deep.layers import build_layers
from gpflow_deep.models import GlobalInducingDeepGP

from .registry import register
from .settings import Settings

__all__ = ["global_inducing", "local_inducing"]


def _model(
    X: np.ndarray, Y: np.ndarray, settings: Settings, seed: int, inducing: str
) -> GlobalInducingDeepGP:
    U0, V = inducing_data(X, Y, settings.num_inducing, seed=seed)
    layers = build_layers(
        X,
        hidden_dims=settings.hidden_dims(X.shape[1]),
        output_dim=Y.shape[1],
        num_inducing=len(U0),
        seed=seed,
    )
    return GlobalInducingDeepGP(
        layers,
        gpflow.likelihoods.Gaussian(variance=settings.likelihood_variance),
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
