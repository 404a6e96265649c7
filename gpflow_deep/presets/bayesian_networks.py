"""
Bayesian neural networks as in Ober & Aitchison 2021 for the studies: ReLU networks with each posterior and
prior of their Tables 4 to 6, by names such as `bnn-global-inducing-scale`.

Under names such as `ober2021-bnn-global-inducing-scale` they have that paper's sizes and training, too.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from gpflow_deep.initialisation import inducing_data
from gpflow_deep.layers.bayesian import Activation, BayesianDense
from gpflow_deep.models import GlobalInducingBNN
from gpflow_deep.posteriors import (
    FactorisedWeights,
    GlobalInducingWeights,
    LocalInducingWeights,
)

from .parts import learn_noise_slowly, likelihood_and_outputs, pseudo_targets
from .registry import register
from .settings import Settings

__all__ = ["POSTERIORS_IN_WORDS", "PRIORS", "bayesian_network"]

# Each unit has precisions of its own. The paper does not say so, but one for all units, which takes a fifth
# to a third of the time, stays far below its bounds (yacht: 0.16 after 10,000 steps; the paper has 0.74).
_GLOBAL_INDUCING = partial(GlobalInducingWeights, precision="separate")
# Of the layers below the last, and of the last.
_POSTERIORS: dict[str, tuple[Any, Any]] = {
    "factorised": (partial(FactorisedWeights, local_reparameterisation=True),) * 2,
    "local-inducing": (partial(LocalInducingWeights, precision="separate"),) * 2,
    # Each draw of the weights below moves inducing points and data alike, so none draws outputs.
    "factorised-to-global": (FactorisedWeights, _GLOBAL_INDUCING),
    "global-inducing": (_GLOBAL_INDUCING,) * 2,
}
PRIORS = ("neal", "standard", "scale")
#: Local inducing points start as functions that know nothing of the data, of a variance in the hundreds under
#: the standard prior. With little noise the first gradients are thousands of times those that come later, and
#: Adam's running mean of squares keeps everything from moving for as many steps as are taken: so the noise
#: starts where the function's residuals are, on some rows.
_ROWS_FOR_NOISE = 1000


def bayesian_network(
    X: np.ndarray, Y: np.ndarray, settings: Settings, seed: int, *, posterior: str, prior: str
) -> GlobalInducingBNN:
    """
    A ReLU network; a global inducing one starts with training points as inducing inputs.

    :param X: standardised inputs [N, D].
    :param Y: standardised targets [N, P], or classes.
    :param settings: its layers are those of weights, the output's included.
    :param seed: of initial values and predictions.
    :param posterior: "factorised", "local-inducing", "factorised-to-global" or "global-inducing".
    :param prior: "neal", "standard" or "scale".
    :raises ValueError: where settings name a kernel.
    """
    if settings.kernel != "own":
        raise ValueError(
            f"kernel: expected none with a network of weights, which has no kernels, got {settings.kernel!r}."
        )
    layers: list[Any] = []
    widths = settings.hidden_dims(X.shape[1])
    for width in widths:
        layers += [BayesianDense(width, prior), Activation("relu")]
    likelihood, num_outputs = likelihood_and_outputs(Y, settings)
    noise = learn_noise_slowly(likelihood, settings)
    start: dict[str, Any] = {"input_shape": X.shape[1]}
    below, last = _POSTERIORS[posterior]
    if last is _GLOBAL_INDUCING:
        targets = pseudo_targets(Y, num_outputs, settings)
        U0, V = inducing_data(X, targets, settings.num_inducing, seed=seed)
        start = {"inducing_inputs": U0, "pseudo_outputs": V}
    model = GlobalInducingBNN(
        [*layers, BayesianDense(num_outputs, prior)],
        likelihood,
        posterior=[*[below] * len(widths), last],
        num_samples=settings.num_samples,
        num_data=len(X),
        seed=seed,
        **start,
    )
    if posterior == "local-inducing" and noise is not None:
        rows = slice(_ROWS_FOR_NOISE)
        mean, variance = model.predict_f(X[rows])
        residuals = np.mean(np.square(Y[rows] - mean) + variance, axis=0)
        noise.assign(np.reshape(np.maximum(settings.likelihood_variance, residuals), noise.shape))
    return model


POSTERIORS_IN_WORDS = {
    "factorised": "factorised Gaussians over the weights",
    "local-inducing": "inducing points of each layer",
    "factorised-to-global": "factorised weights, global inducing points in the last layer,",
    "global-inducing": "global inducing points",
}

for _posterior in _POSTERIORS:
    for _prior in PRIORS:
        _build = partial(bayesian_network, posterior=_posterior, prior=_prior)
        _build.__doc__ = (
            f"A ReLU network with {POSTERIORS_IN_WORDS[_posterior]} and the prior {_prior!r}."
        )
        register(f"bnn-{_posterior}-{_prior}")(_build)
