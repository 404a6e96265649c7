"""Deep GPs with a latent variable beside the inputs (Salimbeni et al. 2019), with this package's settings."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from gpflow_deep.models import LatentVariableDeepGP
from gpflow_deep.posteriors import MeanField

from .parts import build_gp_layers, compute_dtype, likelihood_and_outputs
from .registry import register
from .settings import Settings

__all__ = ["latent_variable"]


@register("latent-variable", weights=False)
def latent_variable(
    X: np.ndarray, Y: np.ndarray, settings: Settings, seed: int
) -> LatentVariableDeepGP:
    """
    Mean-field with a latent variable beside the inputs: skewed targets, several modes, noise that changes.

    The samples in training are importance samples.
    """
    likelihood, num_outputs = likelihood_and_outputs(Y, settings)
    # As wide as the input, of which the latent variable is a part.
    own = replace(settings, hidden_dim=settings.hidden_dim or X.shape[1] + 1)
    layers = build_gp_layers(X, num_outputs, own, seed, latent_dim=1)
    return LatentVariableDeepGP(
        layers,
        likelihood,
        posterior=MeanField(layers, hidden_scale=settings.hidden_scale),
        num_importance_samples=settings.num_samples,
        num_data=len(X),
        compute_dtype=compute_dtype(settings),
        seed=seed,
    )
