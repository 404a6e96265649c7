"""
The models of Meng & Zhang 2024 for the studies, with their baselines.

Its setting of three layers is `--hidden-dim 16 --num-inducing 8 --num-samples 32 --batch-size 100`: the
widths are 16 and 4, and the layers have 8, 4 and 4 inducing points; `dspp` had 256, 128 and 128 there.
"""

from __future__ import annotations

from typing import Any

import gpflow
import numpy as np

from gpflow_deep.initialisation import kmeans_inducing_inputs
from gpflow_deep.layers import build_amortized_layers, build_layers
from gpflow_deep.models import (
    AmortizedDeepGP,
    DeepSigmaPointProcess,
    InputDependentSVGP,
    OrthogonalSVGP,
)

from .registry import register
from .settings import Settings

__all__ = ["ar1", "ar2", "ar2p", "ar2pp", "dspp", "idsgp", "ppgpr", "sgp_avi", "solve_gp"]


def _widths(settings: Settings) -> list[int]:
    """A quarter of the GPs from one hidden layer to the next."""
    return [max(1, settings.hidden_dim // 4**i) for i in range(settings.num_layers - 1)]


def _sizes(settings: Settings) -> list[int]:
    """Inducing points of the layers: half as many from the second on."""
    M = settings.num_inducing
    return [M, *[max(1, M // 2)] * (settings.num_layers - 1)]


def _likelihood(settings: Settings) -> gpflow.likelihoods.Likelihood:
    return gpflow.likelihoods.Gaussian(variance=settings.likelihood_variance)


def _amortized(
    X: np.ndarray, Y: np.ndarray, settings: Settings, seed: int, **kind: Any
) -> AmortizedDeepGP:
    layers = build_amortized_layers(
        X.shape[1], _widths(settings), Y.shape[1], _sizes(settings), seed=seed
    )
    return AmortizedDeepGP(
        layers,
        _likelihood(settings),
        **{"num_samples": settings.num_samples, "num_data": len(X), "seed": seed, **kind},
    )


@register("ar1")
def ar1(X: np.ndarray, Y: np.ndarray, settings: Settings, seed: int) -> AmortizedDeepGP:
    """Inducing points of every sample; one sample in training, as in the paper."""
    return _amortized(X, Y, settings, seed, amortization="AR1", num_samples=1)


@register("ar2")
def ar2(X: np.ndarray, Y: np.ndarray, settings: Settings, seed: int) -> AmortizedDeepGP:
    """Inducing points of the samples' mean."""
    return _amortized(X, Y, settings, seed, amortization="AR2")


@register("ar2p")
def ar2p(X: np.ndarray, Y: np.ndarray, settings: Settings, seed: int) -> AmortizedDeepGP:
    """Learned sites instead of samples."""
    return _amortized(X, Y, settings, seed)


@register("ar2pp")
def ar2pp(X: np.ndarray, Y: np.ndarray, settings: Settings, seed: int) -> AmortizedDeepGP:
    """Learned sites, trained for the predictive density."""
    return _amortized(X, Y, settings, seed, predictive_objective=True)


@register("sgp-avi", max_layers=1)
def sgp_avi(X: np.ndarray, Y: np.ndarray, settings: Settings, seed: int) -> InputDependentSVGP:
    """One layer with affine maps."""
    return _input_dependent(X, Y, settings, seed, "affine")


@register("idsgp", max_layers=1)
def idsgp(X: np.ndarray, Y: np.ndarray, settings: Settings, seed: int) -> InputDependentSVGP:
    """One layer with one joint network (Jafrasteh et al. 2022)."""
    return _input_dependent(X, Y, settings, seed, "joint")


def _input_dependent(
    X: np.ndarray, Y: np.ndarray, settings: Settings, seed: int, inference: str
) -> InputDependentSVGP:
    return InputDependentSVGP(
        None,
        _likelihood(settings),
        settings.num_inducing,
        X.shape[1],
        Y.shape[1],
        inference=inference,
        num_data=len(X),
        seed=seed,
    )


@register("dspp")
def dspp(X: np.ndarray, Y: np.ndarray, settings: Settings, seed: int) -> DeepSigmaPointProcess:
    """Learned sites on ordinary inducing points (Jankowiak et al. 2020)."""
    layers = build_layers(X, _widths(settings), Y.shape[1], _sizes(settings), seed=seed)
    return DeepSigmaPointProcess(
        layers,
        _likelihood(settings),
        num_sites=settings.num_samples,
        num_data=len(X),
        seed=seed,
    )


@register("ppgpr", max_layers=1)
def ppgpr(X: np.ndarray, Y: np.ndarray, settings: Settings, seed: int) -> DeepSigmaPointProcess:
    """A sparse GP trained for its predictive density (Jankowiak et al. 2020)."""
    return dspp(X, Y, settings, seed)


@register("solve-gp", max_layers=1)
def solve_gp(X: np.ndarray, Y: np.ndarray, settings: Settings, seed: int) -> OrthogonalSVGP:
    """A sparse GP with half of its inducing points orthogonal to the others (Shi et al. 2020)."""
    (layer,) = build_layers(X, (), Y.shape[1], settings.num_inducing, seed=seed)
    Z = np.random.default_rng(seed).permutation(
        kmeans_inducing_inputs(X, settings.num_inducing, seed=seed)
    )
    half = len(Z) // 2
    return OrthogonalSVGP(
        layer.kernel,
        _likelihood(settings),
        Z[:half],
        Z[half:],
        Y.shape[1],
        num_data=len(X),
        seed=seed,
    )
