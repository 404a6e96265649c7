"""Deep GPs sampled by SGHMC (Havasi, Hernández-Lobato & Murillo-Fuentes 2018)."""

from __future__ import annotations

import numpy as np

from gpflow_deep.layers import build_layers
from gpflow_deep.models import SampledDeepGP

from .parts import kernel_factory, likelihood_and_outputs
from .registry import register
from .settings import Settings

__all__ = ["sampled_deep_gp", "sghmc"]

_KEPT_SHARE = 0.25  # of the steps: from the last ones come the states that predict
_NUM_CHAINS = 4


def sampled_deep_gp(
    X: np.ndarray, Y: np.ndarray, settings: Settings, seed: int, num_chains: int = _NUM_CHAINS
) -> SampledDeepGP:
    """
    A sampled deep GP whose kept states are spread over the last quarter of its training.

    :param num_chains: chains side by side.
    """
    likelihood, num_outputs = likelihood_and_outputs(Y, settings)
    layers = build_layers(
        X,
        settings.hidden_dims(X.shape[1]),
        num_outputs,
        settings.num_inducing,
        kernel_factory=kernel_factory(settings),
        seed=seed,
    )
    of_each_chain = max(1, settings.test_samples // num_chains)
    return SampledDeepGP(
        layers,
        likelihood,
        observation_term="predictive",
        num_chains=num_chains,
        num_samples=settings.num_samples,
        num_data=len(X),
        keep_every=max(1, round(_KEPT_SHARE * settings.steps / of_each_chain)),
        num_prediction_samples=settings.test_samples,
        seed=seed,
    )


@register("sghmc", weights=False)
def sghmc(X: np.ndarray, Y: np.ndarray, settings: Settings, seed: int) -> SampledDeepGP:
    """A mixture over states of four Markov chains, in place of a Gaussian posterior."""
    return sampled_deep_gp(X, Y, settings, seed)
