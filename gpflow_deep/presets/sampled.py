"""
Deep GPs sampled by SGHMC, with this package's settings.

Their reasons. Four chains side by side: they agree or they do not, and each finds modes of its own, which on
noisy data is worth more than one chain of as many steps in all. Hidden layers start as nearly linear
functions, with kernels of a small variance, which is trained: from the usual 1 the draws of hidden layers are
so noisy that the chains take many times the steps. Hyperparameters follow the present states, and settle as
Adam's rate falls; at earlier states, as in the paper, they learn more slowly. A prior on the noise variance
makes no difference: once the residual variances of the layers explain the data, it falls all the same.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gpflow_deep.models import SampledDeepGP

from .parts import build_gp_layers, likelihood_and_outputs
from .registry import register
from .settings import Settings

__all__ = ["build_sampled", "sghmc"]

_NUM_CHAINS = 4
_HIDDEN_VARIANCE = 0.05
_KEPT_SHARE = 0.25  # of the steps: from the last ones come the states that predict


def build_sampled(
    X: np.ndarray, Y: np.ndarray, settings: Settings, seed: int, **options: Any
) -> SampledDeepGP:
    """
    A sampled deep GP of the settings' sizes, whose kernel variances are all trained.

    :param options: of `SampledDeepGP`: its chains and their sampler.
    """
    likelihood, num_outputs = likelihood_and_outputs(Y, settings)
    layers = build_gp_layers(X, num_outputs, settings, seed, "rbf", fixed_variance=False)
    return SampledDeepGP(
        layers,
        likelihood,
        num_samples=settings.num_samples,
        num_data=len(X),
        num_prediction_samples=settings.test_samples,
        seed=seed,
        **options,
    )


@register("sghmc", weights=False)
def sghmc(X: np.ndarray, Y: np.ndarray, settings: Settings, seed: int) -> SampledDeepGP:
    """A mixture over states of four Markov chains, in place of a Gaussian posterior."""
    of_each_chain = max(1, settings.test_samples // _NUM_CHAINS)
    model = build_sampled(
        X,
        Y,
        settings,
        seed,
        num_chains=_NUM_CHAINS,
        keep_every=max(1, round(_KEPT_SHARE * settings.steps / of_each_chain)),
    )
    for layer in model.layers[:-1]:
        layer.kernel.variance.assign(_HIDDEN_VARIANCE)
    return model
