"""
The papers' own models under names of their own, built and set as their authors ran them, beside the families
of this package, whose initial values differ where that pays.

Lindinger, Reeb, Lippert & Rakitsch 2020: lengthscales of 1, a little white noise in hidden layers, posterior
factors of 1e-5 there at the start. Ober & Aitchison 2021: the kernel variance of every layer is trained, the
noise slowly; networks have two hidden layers of 50 units, and divergences weigh less at first, for how long
the paper does not say. Bui et al. 2016: small batches and Adam at its usual rate. Meng & Zhang 2024: three
layers; mean-field and the deep sigma point process with Matérn-5/2 kernels and linear mean functions that are
learned. Havasi, Hernández-Lobato & Murillo-Fuentes 2018: one chain, with whole batches. Rates are constant,
and no points held out, where a paper does not say otherwise; for Meng & Zhang's they fall and are held out,
since at a constant rate their models overfit some sets.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import gpflow
import numpy as np
from gpflow.kernels import Kernel

from gpflow_deep import posteriors
from gpflow_deep.layers import GPLayer, build_layers
from gpflow_deep.models import (
    DeepGP,
    DeepSigmaPointProcess,
    GlobalInducingDeepGP,
    SampledDeepGP,
)

from .amortized import ar1, ar2, ar2p, ar2pp
from .bayesian_networks import POSTERIORS_IN_WORDS, PRIORS, bayesian_network
from .fitc_ep import fitc_ep_1, fitc_ep_2, fitc_ep_3, fitc_gp
from .parts import (
    ard_kernel,
    build_gp_layers,
    compute_dtype,
    data_for_inducing,
    kernel_factory,
    learn_noise_slowly,
    likelihood_and_outputs,
    pseudo_targets,
)
from .registry import Builder, register
from .sampled import build_sampled
from .settings import Settings

__all__: list[str] = []

_LINDINGER = Settings(num_layers=3, hidden_scale=1e-5)
_OBER = Settings(
    hidden_dim=0,
    num_inducing=100,
    num_samples=1,
    likelihood_variance=0.0498,  # e^-3
    learning_rate=1e-2,
    decay_rate=1.0,
    batch_size=10_000,
    validation_fraction=0.0,
)
_OBER_NETWORK = replace(
    _OBER, num_layers=3, hidden_dim=50, num_samples=10, steps=10_000, tempering_steps=2000
)
_BUI = Settings(
    num_inducing=50,
    batch_size=50,
    learning_rate=1e-3,
    decay_rate=1.0,
    steps=4000,
    validation_fraction=0.0,
)
_MENG = Settings(
    num_layers=3,
    hidden_dim=16,
    num_inducing=8,
    num_samples=32,
    batch_size=100,
    validate_every=100,
)
_HAVASI = Settings(
    num_layers=2,
    hidden_dim=0,
    num_inducing=100,
    num_samples=1,
    likelihood_variance=1.0,
    steps=15_000,
    batch_size=10_000,
    learning_rate=0.01,
    decay_rate=1.0,
    validation_fraction=0.0,
)
_MENG_BASELINE = replace(_MENG, num_inducing=256)


def _structured(posterior: Any) -> Builder:
    def build(X: np.ndarray, Y: np.ndarray, settings: Settings, seed: int) -> DeepGP:
        def kernel(input_dim: int, layer: int) -> Kernel:
            kernel = ard_kernel(settings, input_dim, "rbf" if settings.kernel == "own" else None)
            kernel.lengthscales.assign(np.ones(input_dim))
            if layer < settings.num_layers - 1:
                gpflow.set_trainable(kernel.variance, False)
            return kernel

        likelihood, num_outputs = likelihood_and_outputs(Y, settings)
        layers = build_layers(
            X,
            settings.hidden_dims(X.shape[1]),
            num_outputs,
            settings.num_inducing,
            kernel_factory=kernel,
            white_noise=1e-3,
            inducing_init=settings.inducing_init,
            seed=seed,
        )
        return DeepGP(
            layers,
            likelihood,
            posterior(layers, hidden_scale=settings.hidden_scale),
            num_samples=settings.num_samples,
            num_data=len(X),
            compute_dtype=compute_dtype(settings),
            seed=seed,
        )

    build.__doc__ = f"{posterior.__name__} as Lindinger et al. 2020 ran it."
    return build


for _name, _posterior, _settings in (
    ("mean-field", posteriors.MeanField, _LINDINGER),
    ("stripes-and-arrow", posteriors.StripesAndArrow, _LINDINGER),
    ("fully-coupled", posteriors.FullyCoupled, replace(_LINDINGER, natural_gradient=0.1)),
):
    register(f"lindinger2020-{_name}", defaults=_settings)(_structured(_posterior))


@register("ober2021-global-inducing", defaults=_OBER)
def _ober(X: np.ndarray, Y: np.ndarray, settings: Settings, seed: int) -> GlobalInducingDeepGP:
    """Global inducing points as Ober & Aitchison 2021 ran them, every layer's kernel variance trained."""
    likelihood, num_outputs = likelihood_and_outputs(Y, settings)
    learn_noise_slowly(likelihood, settings)
    layers = build_gp_layers(X, num_outputs, settings, seed, "rbf", fixed_variance=False)
    targets = pseudo_targets(Y, num_outputs, settings)
    U0, V = data_for_inducing(layers, X, targets, settings, seed)
    return GlobalInducingDeepGP(
        layers,
        likelihood,
        U0,
        pseudo_outputs=V,
        num_samples=settings.num_samples,
        num_data=len(X),
        seed=seed,
    )


def _renamed(build: Builder, description: str) -> Builder:
    def again(X: np.ndarray, Y: np.ndarray, settings: Settings, seed: int) -> Any:
        return build(X, Y, settings, seed)

    again.__doc__ = description
    return again


for _name, _words in POSTERIORS_IN_WORDS.items():
    for _prior in PRIORS:
        register(f"ober2021-bnn-{_name}-{_prior}", defaults=_OBER_NETWORK)(
            _renamed(
                partial(bayesian_network, posterior=_name, prior=_prior),
                f"A network with {_words} and the prior {_prior!r}, as Ober & Aitchison 2021 ran it.",
            )
        )

for _name, _build, _width in (
    ("gp", fitc_gp, 0),
    ("dgp-1", fitc_ep_1, 1),
    ("dgp-2", fitc_ep_2, 2),
    ("dgp-3", fitc_ep_3, 3),
):
    register(
        f"bui2016-{_name}",
        max_layers=None if _width else 1,
        defaults=_BUI,
        fixed={"hidden_dim": _width} if _width else None,
        weights=False,
    )(_renamed(_build, f"FITC-EP as Bui et al. 2016 ran it: {_name.upper()}."))

for _name, _build in (("ar1", ar1), ("ar2", ar2), ("ar2p", ar2p), ("ar2pp", ar2pp)):
    register(f"meng2024-{_name}", defaults=_MENG, weights=_name != "ar2pp")(
        _renamed(_build, f"{_name.upper()} as Meng & Zhang 2024 ran it.")
    )


def _linear_mean_layers(
    X: np.ndarray, num_outputs: int, settings: Settings, seed: int
) -> list[GPLayer]:
    """Layers of the amortised paper's baselines: linear mean functions, learned, in all of them."""
    widths = [max(1, settings.hidden_dim // 4**i) for i in range(settings.num_layers - 1)]
    M = settings.num_inducing
    layers = build_layers(
        X,
        widths,
        num_outputs,
        [M, *[max(1, M // 2)] * len(widths)],
        kernel_factory=kernel_factory(settings, "matern52", fixed_variance=False),
        inducing_init=settings.inducing_init,
        seed=seed,
    )
    for layer, input_dim in zip(layers, [X.shape[1], *widths], strict=True):
        start = np.asarray(layer.mean_function(np.eye(input_dim, dtype=X.dtype)))
        layer.mean_function = gpflow.mean_functions.Linear(
            np.broadcast_to(start, [input_dim, layer.num_latent_gps]).copy(),
            np.zeros(layer.num_latent_gps),
        )
    return layers


def _baseline(make: Callable[..., DeepGP], description: str) -> Builder:
    def build(X: np.ndarray, Y: np.ndarray, settings: Settings, seed: int) -> DeepGP:
        likelihood, num_outputs = likelihood_and_outputs(Y, settings)
        layers = _linear_mean_layers(X, num_outputs, settings, seed)
        dtype = compute_dtype(settings)
        return make(layers, likelihood, settings, num_data=len(X), compute_dtype=dtype, seed=seed)

    build.__doc__ = description
    return build


register("meng2024-mean-field", defaults=replace(_MENG_BASELINE, num_samples=1))(
    _baseline(
        lambda layers, likelihood, settings, **data: DeepGP(
            layers,
            likelihood,
            posteriors.MeanField(layers, hidden_scale=settings.hidden_scale),
            num_samples=settings.num_samples,
            **data,
        ),
        "The mean-field baseline of Meng & Zhang 2024, with one sample as they trained it.",
    )
)
register("meng2024-dspp", defaults=_MENG_BASELINE, weights=False)(
    _baseline(
        lambda layers, likelihood, settings, **data: DeepSigmaPointProcess(
            layers, likelihood, num_sites=settings.num_samples, **data
        ),
        "The deep sigma point process of Meng & Zhang 2024.",
    )
)


@register("havasi2018-sghmc", defaults=_HAVASI, weights=False)
def _havasi_sghmc(X: np.ndarray, Y: np.ndarray, settings: Settings, seed: int) -> SampledDeepGP:
    """
    One chain as Havasi et al. 2018 ran it: a window of 100 states for the hyperparameters, and the last 100
    states, 50 steps apart, for predictions, after a burn-in of two thirds of the steps.
    """
    return build_sampled(
        X,
        Y,
        settings,
        seed,
        num_chains=1,
        keep_every=50,
        window=100,
        step_size=0.01,
        momentum_decay=0.05,
        burn_in_share=2.0 / 3.0,
    )
