"""The reference cases of Bayesian neural networks, and models made from them."""

from __future__ import annotations

from functools import partial
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
from scipy import stats

import gpflow_deep as gd
from gpflow_deep.layers import BayesianConv2D, BayesianDense
from gpflow_deep.layers.bayesian import Activation, ScalePrior
from gpflow_deep.posteriors import GlobalInducingWeights, LocalInducingWeights

from .cases import load_arrays

__all__ = [
    "BNNCase",
    "bartlett_normals",
    "conv_layer",
    "gamma_normals",
    "names_of",
    "network",
    "network_noise",
]

_PRECISIONS = {"shared_diag": "shared", "channel_diag": "separate", "shared_full": "full"}


def names_of(kind: str) -> list[str]:
    """The cases of one type."""
    arrays = load_arrays("global_inducing")
    names = [str(name) for name in arrays["case_names"]]
    return [name for name in names if str(arrays[f"{name}/type"][()]) == kind]


class BNNCase:
    """One case by the names of its arrays; layers count from 1."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __getitem__(self, key: str) -> Any:
        value = load_arrays("global_inducing")[f"{self.name}/{key}"]
        return value if value.shape else value.item()

    def __contains__(self, key: str) -> bool:
        return f"{self.name}/{key}" in load_arrays("global_inducing")


class CodesScalePrior(ScalePrior):
    """What the released code has in place of the paper's prior, and a prior of a user's own."""

    def _precision(self, scale: tf.Tensor, fan_in: int) -> tf.Tensor:
        return fan_in * tf.math.rsqrt(scale)


def make_prior(case: BNNCase, layer: str = "") -> Any:
    if case["prior"] in ("neal", "standard"):
        return case["prior"]
    prior = CodesScalePrior() if case["prior"] == "scale_code" else ScalePrior()
    prior.concentration.assign(case[f"{layer}alpha"])
    prior.rate.assign(case[f"{layer}beta"])
    return prior


def gamma_normals(draws: np.ndarray, concentration: Any, rate: Any) -> np.ndarray:
    """The standard normals of which gamma variables are the quantiles."""
    return stats.norm.ppf(stats.gamma.cdf(rate * draws, concentration))


def bartlett_normals(factors: np.ndarray, df: float) -> np.ndarray:
    """The standard normals that Bartlett's factors [S, p, p] come from."""
    p = factors.shape[-1]
    squares = np.diagonal(factors, axis1=-2, axis2=-1) ** 2
    normals = np.array(factors)
    normals[:, range(p), range(p)] = gamma_normals(squares / 2, (df - np.arange(p)) / 2, 1.0)
    return normals


def network(case: BNNCase, estimator: str = "monte_carlo") -> gd.models.GlobalInducingBNN:
    """A model of type `bnn`."""
    layers: list[Any] = []
    for i in range(1, case["depth"] + 1):
        width = case[f"L{i}/V"].shape[1]
        layers += [
            BayesianDense(width, make_prior(case, f"L{i}/"), bool(case["bias"])),
            Activation("relu"),
        ]
    local = bool(case["local"])
    kind = LocalInducingWeights if local else GlobalInducingWeights
    model = gd.models.GlobalInducingBNN(
        layers[:-1],
        gpflow.likelihoods.Gaussian(case["noise_var"]),
        None if local else case["U0"],
        input_shape=case["X"].shape[1] if local else None,
        posterior=partial(kind, precision=_PRECISIONS[case["lam_kind"]]),
        estimator=estimator,
        num_samples=case["S"],
        num_data=int(case["num_data"]),
    )
    for i, q in enumerate(model.inducing_posteriors, start=1):
        q.observations.assign_pseudo_outputs(case[f"L{i}/V"])
        root = case[f"L{i}/lam"]
        q.observations.assign_precision(
            root @ root.T if case["lam_kind"] == "shared_full" else root
        )
        if local:
            q.inducing_inputs.assign(case[f"L{i}/X_ind"])
    return model


def network_noise(case: BNNCase) -> list[np.ndarray]:
    """The draws of a case of type `bnn`."""
    noise = []
    for i in range(1, case["depth"] + 1):
        if f"L{i}/draw" in case:
            a, b = (2.0 + case[f"L{i}/{name}"] for name in ("alpha", "beta"))
            noise.append(gamma_normals(case[f"L{i}/draw"], a, b)[:, None, None])
        noise.append(case[f"L{i}/Z"])
    return noise


def conv_layer(case: BNNCase) -> tuple[BayesianConv2D, GlobalInducingWeights, list[np.ndarray]]:
    """The layer of type `conv`, its posterior, and the draws of its prior precision."""
    spatial = case["prior"] == "spatial_iw"
    layer = BayesianConv2D(
        case["V"].shape[1],
        case["kernel_size"],
        prior="spatial" if spatial else make_prior(case),
        bias=False,
    )
    images = channels_last(case["U_in"])
    layer.connect(images.shape[1:])
    hyper: list[np.ndarray] = []
    if spatial:
        layer.prior.pseudo_rows.assign(case["iw_Y"])
        layer.prior.pseudo_weights.assign(case["iw_w"])
        hyper = [bartlett_normals(case["iw_bartlett"], case["iw_nu"])]
    elif "draw" in case:
        a, b = 2.0 + case["alpha"], 2.0 + case["beta"]
        hyper = [gamma_normals(case["draw"], a, b)[:, None, None]]
    spec = gd.posteriors.WeightSpec(
        layer.num_outputs, layer.fan_in, len(images), layer.num_positions
    )
    q = GlobalInducingWeights(spec)
    q.observations.assign_pseudo_outputs(channels_last(case["V"]).reshape([-1, layer.num_outputs]))
    q.observations.assign_precision(case["lam"])
    return layer, q, hyper


def channels_last(images: np.ndarray) -> np.ndarray:
    """The reference has the channels before the positions."""
    return np.moveaxis(images, -3, -1)
