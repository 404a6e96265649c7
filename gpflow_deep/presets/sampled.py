"""
Deep GPs sampled by SGHMC, with this package's settings.

Their reasons. Four chains side by side: they agree or they do not, and each finds modes
of its own. Hidden layers start as nearly linear functions, with kernels of a small variance, which is
trained: from the usual 1 the draws of hidden layers are so noisy that the chains take many times the steps.
The noise variance has a prior: once the residual variances of the layers explain the data, little keeps it
from falling to nothing, and densities of new points fall with it; where the data say that it is small, as in
noiseless simulations, they outweigh the prior.
"""

from __future__ import annotations

from typing import Any

import gpflow
import numpy as np
import tensorflow_probability as tfp

from gpflow_deep.layers import build_layers
from gpflow_deep.models import SampledDeepGP

from .parts import kernel_factory, likelihood_and_outputs
from .registry import register
from .settings import Settings

__all__ = ["build_sampled", "sghmc"]

_NUM_CHAINS = 4
_HIDDEN_VARIANCE = 0.05
_KEPT_SHARE = 0.25  # of the steps: from the last ones come the states that predict
_NOISE_PRIOR = (np.log(0.05), 1.0)  # of the logarithm of the noise variance of standardised targets


def build_sampled(
    X: np.ndarray, Y: np.ndarray, settings: Settings, seed: int, **options: Any
) -> SampledDeepGP:
    """
    A sampled deep GP of the settings' sizes, whose kernel variances are all trained.

    :param options: of `SampledDeepGP`: its chains and their sampler.
    """
    likelihood, num_outputs = likelihood_and_outputs(Y, settings)
    layers = build_layers(
        X,
        settings.hidden_dims(X.shape[1]),
        num_outputs,
        settings.num_inducing,
        kernel_factory=kernel_factory(settings, "rbf", fixed_variance=False),
        seed=seed,
    )
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
    if isinstance(model.likelihood, gpflow.likelihoods.Gaussian):
        float_type = gpflow.default_float()
        prior = tfp.distributions.LogNormal(*(float_type(number) for number in _NOISE_PRIOR))
        gpflow.utilities.parameter_dict(model.likelihood)[".variance"].prior = prior
    return model
