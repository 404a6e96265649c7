"""
The models of Meng & Zhang 2024, with their baselines.

Its three layers have 16, 4 and 1 GPs and 8, 4 and 4 inducing points (the baselines 256, 128 and 128), so that
`hidden_dim` and `num_inducing` are those of the first layer here: a quarter of the GPs from one hidden
layer to the next, half of the points from the second layer on.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gpflow_deep.layers import build_amortized_layers, build_layers
from gpflow_deep.models import (
    AmortizedDeepGP,
    DeepSigmaPointProcess,
    InputDependentSVGP,
    OrthogonalSVGP,
)

from .parts import (
    ard_kernel,
    build_gp_layers,
    compute_dtype,
    kernel_factory,
    likelihood_and_outputs,
)
from .registry import register
from .settings import Settings

__all__ = ["ar1", "ar2", "ar2p", "ar2pp", "dspp", "idsgp", "ppgpr", "sgp_avi", "solve_gp"]


def _widths(settings: Settings, input_dim: int) -> list[int]:
    """A quarter of the GPs from one hidden layer to the next; or as many as inputs in all."""
    if settings.hidden_dim == 0:
        return list(settings.hidden_dims(input_dim))
    return [max(1, settings.hidden_dim // 4**i) for i in range(settings.num_layers - 1)]


def _sizes(settings: Settings) -> list[int]:
    """Inducing points of the layers: half as many from the second on."""
    M = settings.num_inducing
    return [M, *[max(1, M // 2)] * (settings.num_layers - 1)]


def _amortized(
    X: np.ndarray, Y: np.ndarray, settings: Settings, seed: int, **kind: Any
) -> AmortizedDeepGP:
    likelihood, num_outputs = likelihood_and_outputs(Y, settings)
    layers = build_amortized_layers(
        X.shape[1],
        _widths(settings, X.shape[1]),
        num_outputs,
        _sizes(settings),
        kernel_factory=kernel_factory(settings, fixed_variance=False),
        seed=seed,
    )
    return AmortizedDeepGP(
        layers,
        likelihood,
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


@register("ar2pp", weights=False)
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
    likelihood, num_outputs = likelihood_and_outputs(Y, settings)
    return InputDependentSVGP(
        None if settings.kernel == "own" else ard_kernel(settings, X.shape[1]),
        likelihood,
        settings.num_inducing,
        X.shape[1],
        num_outputs,
        inference=inference,
        num_data=len(X),
        seed=seed,
    )


@register("dspp", weights=False)
def dspp(X: np.ndarray, Y: np.ndarray, settings: Settings, seed: int) -> DeepSigmaPointProcess:
    """Learned sites on ordinary inducing points (Jankowiak et al. 2020)."""
    likelihood, num_outputs = likelihood_and_outputs(Y, settings)
    layers = build_layers(
        X,
        _widths(settings, X.shape[1]),
        num_outputs,
        _sizes(settings),
        kernel_factory=kernel_factory(settings),
        inducing_init=settings.inducing_init,
        seed=seed,
    )
    return DeepSigmaPointProcess(
        layers,
        likelihood,
        num_sites=settings.num_samples,
        num_data=len(X),
        compute_dtype=compute_dtype(settings),
        seed=seed,
    )


@register("ppgpr", max_layers=1, weights=False)
def ppgpr(X: np.ndarray, Y: np.ndarray, settings: Settings, seed: int) -> DeepSigmaPointProcess:
    """A sparse GP trained for its predictive density (Jankowiak et al. 2020)."""
    return dspp(X, Y, settings, seed)


@register("solve-gp", max_layers=1)
def solve_gp(X: np.ndarray, Y: np.ndarray, settings: Settings, seed: int) -> OrthogonalSVGP:
    """A sparse GP with half of its inducing points orthogonal to the others (Shi et al. 2020)."""
    likelihood, num_outputs = likelihood_and_outputs(Y, settings)
    (layer,) = build_gp_layers(X, num_outputs, settings, seed)
    Z = np.random.default_rng(seed).permutation(layer.inducing_variable.Z)  # type: ignore[union-attr]
    half = len(Z) // 2
    return OrthogonalSVGP(
        layer.kernel,
        likelihood,
        Z[:half],
        Z[half:],
        num_outputs,
        num_data=len(X),
        compute_dtype=compute_dtype(settings),
        seed=seed,
    )
