"""
The models of Bui et al. 2016 for the studies: a GP with a FITC prior, and deep ones of two layers with
one to three hidden GPs; `--layers` makes them deeper.
"""

from __future__ import annotations

import gpflow
import numpy as np

from gpflow_deep.layers import build_separate_layers
from gpflow_deep.models import FITCEPDeepGP

from .registry import register
from .settings import Settings

__all__ = ["fitc_ep_1", "fitc_ep_2", "fitc_ep_3", "fitc_gp"]


def _model(X: np.ndarray, Y: np.ndarray, settings: Settings, seed: int, width: int) -> FITCEPDeepGP:
    layers = build_separate_layers(
        X,
        hidden_dims=(width,) * (settings.num_layers - 1),
        output_dim=Y.shape[1],
        num_inducing=settings.num_inducing,
        seed=seed,
    )
    likelihood = gpflow.likelihoods.Gaussian(variance=settings.likelihood_variance)
    return FITCEPDeepGP(layers, likelihood, num_data=len(X), seed=seed)


@register("fitc-gp", max_layers=1)
def fitc_gp(X: np.ndarray, Y: np.ndarray, settings: Settings, seed: int) -> FITCEPDeepGP:
    """One layer."""
    return _model(X, Y, settings, seed, 0)


@register("fitc-ep-1")
def fitc_ep_1(X: np.ndarray, Y: np.ndarray, settings: Settings, seed: int) -> FITCEPDeepGP:
    """One GP in every hidden layer: the paper's DGP-1."""
    return _model(X, Y, settings, seed, 1)


@register("fitc-ep-2")
def fitc_ep_2(X: np.ndarray, Y: np.ndarray, settings: Settings, seed: int) -> FITCEPDeepGP:
    """Two GPs in every hidden layer: DGP-2."""
    return _model(X, Y, settings, seed, 2)


@register("fitc-ep-3")
def fitc_ep_3(X: np.ndarray, Y: np.ndarray, settings: Settings, seed: int) -> FITCEPDeepGP:
    """Three GPs in every hidden layer: DGP-3."""
    return _model(X, Y, settings, seed, 3)
