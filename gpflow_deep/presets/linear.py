"""A linear function of the inputs: what is one, GPs with other kernels learn less well."""

from __future__ import annotations

import gpflow
import numpy as np
from gpflow.inducing_variables import InducingPoints

from gpflow_deep.layers import GPLayer
from gpflow_deep.models import DeepGP
from gpflow_deep.posteriors import MeanField

from .exact import ExactGP
from .parts import initial_noise, likelihood_and_outputs
from .registry import LINEAR, register
from .settings import Settings

__all__ = ["linear"]


@register(LINEAR, max_layers=1, fixed={"kernel": "own"})
def linear(X: np.ndarray, Y: np.ndarray, settings: Settings, seed: int) -> ExactGP | DeepGP:
    """
    A linear function of the inputs, as a GP with a linear kernel.

    With Gaussian noise an exact one, of standardised rows, which the estimators fit as a Bayesian linear
    regression. With other likelihoods the function has a constant. Its values at the origin and at the unit
    inputs say all of it: these are the inducing inputs, and the sparse GP is no approximation. Of classes the
    estimators fit it as a logistic regression.
    """
    D = X.shape[1]
    if settings.likelihood == "gaussian":
        noise = gpflow.likelihoods.Gaussian(
            initial_noise(settings), variance_lower_bound=settings.noise_floor
        )
        return ExactGP((X, Y), gpflow.kernels.Linear(variance=1.0 / D), noise)
    likelihood, num_outputs = likelihood_and_outputs(Y, settings)
    kernel = gpflow.kernels.Linear(variance=1.0 / D) + gpflow.kernels.Constant()
    points = InducingPoints(np.vstack([np.zeros([1, D]), np.eye(D)]).astype(X.dtype))
    gpflow.set_trainable(points, False)
    layer = GPLayer(kernel, points, num_outputs)
    return DeepGP(
        [layer],
        likelihood,
        posterior=MeanField([layer]),
        num_samples=settings.num_samples,
        num_data=len(X),
        seed=seed,
    )
