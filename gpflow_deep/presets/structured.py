"""
The models of Lindinger et al. 2020: one joint Gaussian over all layers' inducing
outputs, with the coupling that each name says.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gpflow_deep import posteriors
from gpflow_deep.models import DeepGP

from .parts import build_gp_layers, class_frequencies, compute_dtype, likelihood_and_outputs
from .registry import register
from .settings import CLASSES, Settings

__all__ = ["fully_coupled", "mean_field", "stripes_and_arrow", "svgp"]


def _deep_gp(X: np.ndarray, Y: np.ndarray, settings: Settings, seed: int, posterior: Any) -> DeepGP:
    likelihood, num_outputs = likelihood_and_outputs(Y, settings)
    layers = build_gp_layers(X, num_outputs, settings, seed)
    if settings.likelihood in CLASSES:
        layers[-1].mean_function = class_frequencies(Y, num_outputs)
    return DeepGP(
        layers,
        likelihood,
        posterior=posterior(layers, hidden_scale=settings.hidden_scale),
        num_samples=settings.num_samples,
        num_data=len(X),
        compute_dtype=compute_dtype(settings),
        seed=seed,
    )


@register("svgp", max_layers=1)
def svgp(X: np.ndarray, Y: np.ndarray, settings: Settings, seed: int) -> DeepGP:
    """A sparse variational GP: one layer."""
    return _deep_gp(X, Y, settings, seed, posteriors.MeanField)


@register("mean-field")
def mean_field(X: np.ndarray, Y: np.ndarray, settings: Settings, seed: int) -> DeepGP:
    """No coupling: doubly stochastic variational inference (Salimbeni and Deisenroth 2017)."""
    return _deep_gp(X, Y, settings, seed, posteriors.MeanField)


@register("stripes-and-arrow")
def stripes_and_arrow(X: np.ndarray, Y: np.ndarray, settings: Settings, seed: int) -> DeepGP:
    """GPs of one index coupled over the hidden layers, the output's GPs with all."""
    return _deep_gp(X, Y, settings, seed, posteriors.StripesAndArrow)


@register("fully-coupled")
def fully_coupled(X: np.ndarray, Y: np.ndarray, settings: Settings, seed: int) -> DeepGP:
    """All GPs of all layers coupled."""
    return _deep_gp(X, Y, settings, seed, posteriors.FullyCoupled)
