"""
The models of Bui et al. 2016: a GP with a FITC prior, and deep ones of two layers with
one to three hidden GPs; `--layers` makes them deeper.
"""

from __future__ import annotations

import numpy as np

from gpflow_deep.layers import build_separate_layers
from gpflow_deep.models import FITCEPDeepGP

from .parts import kernel_factory, likelihood_and_outputs
from .registry import register
from .settings import Settings

__all__ = ["fitc_ep_1", "fitc_ep_2", "fitc_ep_3", "fitc_gp"]


def _model(X: np.ndarray, Y: np.ndarray, settings: Settings, seed: int) -> FITCEPDeepGP:
    likelihood, num_outputs = likelihood_and_outputs(Y, settings)
    layers = build_separate_layers(
        X,
        hidden_dims=settings.hidden_dims(X.shape[1]),
        output_dim=num_outputs,
        num_inducing=settings.num_inducing,
        kernel_factory=kernel_factory(settings, fixed_variance=False),
        seed=seed,
    )
    return FITCEPDeepGP(layers, likelihood, num_data=len(X), seed=seed)


@register("fitc-gp", max_layers=1, weights=False)
def fitc_gp(X: np.ndarray, Y: np.ndarray, settings: Settings, seed: int) -> FITCEPDeepGP:
    """One layer."""
    return _model(X, Y, settings, seed)


@register("fitc-ep-1", fixed={"hidden_dim": 1}, weights=False)
def fitc_ep_1(X: np.ndarray, Y: np.ndarray, settings: Settings, seed: int) -> FITCEPDeepGP:
    """One GP in every hidden layer: the paper's DGP-1."""
    return _model(X, Y, settings, seed)


@register("fitc-ep-2", fixed={"hidden_dim": 2}, weights=False)
def fitc_ep_2(X: np.ndarray, Y: np.ndarray, settings: Settings, seed: int) -> FITCEPDeepGP:
    """Two GPs in every hidden layer: DGP-2."""
    return _model(X, Y, settings, seed)


@register("fitc-ep-3", fixed={"hidden_dim": 3}, weights=False)
def fitc_ep_3(X: np.ndarray, Y: np.ndarray, settings: Settings, seed: int) -> FITCEPDeepGP:
    """Three GPs in every hidden layer: DGP-3."""
    return _model(X, Y, settings, seed)
