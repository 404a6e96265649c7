"""The amortised family's reference cases as objects and models; their README has the conventions."""

from __future__ import annotations

from functools import partial
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf

import gpflow_deep as gd
from tests.reference.cases import ReferenceCase, load_arrays

__all__ = ["CASES", "Case", "amortized_model", "assign_network", "kernel", "parameters"]


class Case(ReferenceCase):
    """One case: `case["in/x"]` is an array, `case.meta` its description."""

    family = "amortised"

    def keys(self, prefix: str) -> list[str]:
        """What follows the prefix in the names of this case's arrays."""
        start = f"{self.name}/{prefix}"
        return [
            key.removeprefix(start) for key in load_arrays("amortised") if key.startswith(start)
        ]

    @property
    def data(self) -> tuple[np.ndarray, np.ndarray]:
        return self["in/x"], self["in/y"]

    def layers(self, key: str) -> list[np.ndarray]:
        """An array of each layer."""
        return [self[f"in/layers/{i}/{key}"] for i in range(len(self.meta["dims"]) - 1)]


CASES = {
    name: Case(name)
    for name in sorted({key.split("/")[0] for key in load_arrays("amortised")})
    if name != "names"
}


def kernel(variance: np.ndarray, lengthscales: np.ndarray) -> gd.kernels.StackedStationary:
    return gd.kernels.StackedStationary(len(variance), variance=variance, lengthscales=lengthscales)


def _mean_function(case: Case, i: int) -> gpflow.functions.MeanFunction | None:
    key = f"in/layers/{i}/A"
    if key not in case:
        return None
    return gpflow.functions.Linear(A=case[key].T, b=np.zeros(len(case[key])))


def assign_network(case: Case, i: int, kinds: list[str]) -> gd.layers.MLP:
    """The network made of the reference's networks of one layer and of these kinds, side by side."""
    depth = len(case.keys(f"in/layers/{i}/{kinds[0]}_W/"))
    weights = [
        [case[f"in/layers/{i}/{kind}_W/{j}"] for kind in kinds] for j in range(depth)
    ]  # [depth][K] of [out, in]
    dims = [weights[0][0].shape[1], *(w[0].shape[0] for w in weights)]
    network = gd.layers.MLP(dims, num_networks=len(kinds))
    for j in range(depth):
        network.W[j].assign(np.stack([w.T for w in weights[j]]))
        biases = [case[f"in/layers/{i}/{kind}_b/{j}"][None] for kind in kinds]
        network.b[j].assign(np.stack(biases))
    return network


def _layer(case: Case, i: int) -> gd.layers.AmortizedGPLayer:
    dims, M = case.meta["dims"], case.meta["M"][i]
    if case.meta["joint_net"]:
        networks: Any = assign_network(case, i, ["J"])
    else:
        maps = gd.layers.AffineMaps(dims[i], M)
        maps.W.assign(case[f"in/layers/{i}/WZ"])
        maps.b.assign(case[f"in/layers/{i}/bZ"])
        if case.meta["full_cov"]:
            networks = [maps, assign_network(case, i, ["mu"]), assign_network(case, i, ["L"])]
        else:
            networks = [maps, assign_network(case, i, ["mu", "sd"])]
    return gd.layers.AmortizedGPLayer(
        kernel(case[f"in/layers/{i}/kvar"], case[f"in/layers/{i}/kls"]),
        M,
        dims[i],
        dims[i + 1],
        _mean_function(case, i),
        networks=networks,
        full_covariance=case.meta["full_cov"] or case.meta["joint_net"],
    )


def _probit(shrink: float, f: tf.Tensor) -> tf.Tensor:
    """Probabilities shrunk towards a half as GPflow's are, by half as much."""
    return 0.5 + 0.5 * (1.0 - shrink) * tf.math.erf(f / np.sqrt(2.0))


def likelihood(case: Case) -> gpflow.likelihoods.Likelihood:
    if case.meta.get("likelihood") == "probit":
        quadrature = gpflow.quadrature.NDiagGHQuadrature(1, case.meta["num_gh"])
        return gpflow.likelihoods.Bernoulli(
            partial(_probit, case.meta["shrink"]), quadrature=quadrature
        )
    return gpflow.likelihoods.Gaussian(variance=float(case["in/noise"]))


def amortized_model(case: Case) -> gd.models.AmortizedDeepGP:
    """The model of a case of kind avdgp."""
    meta = case.meta
    layers = [_layer(case, i) for i in range(len(meta["dims"]) - 1)]
    model = gd.models.AmortizedDeepGP(
        layers,
        likelihood(case),
        meta["method"].removesuffix("PP") + ("P" if meta["method"] == "AR2PP" else ""),
        num_samples=meta["S"],
        num_data=meta["N"],
        predictive_objective=meta["beta"] if meta["method"] == "AR2PP" else False,
    )
    assign_sites(case, model)
    return model


def sparse_model(case: Case) -> gd.models.DeepGP:
    """The model of a case of kind dgp: inducing outputs of their own, not functions of the input."""
    meta = case.meta
    dims, L = meta["dims"], len(meta["dims"]) - 1
    layers = [
        gd.layers.GPLayer(
            kernel(case[f"in/layers/{i}/kvar"], case[f"in/layers/{i}/kls"]),
            case[f"in/layers/{i}/Z"].copy(),
            dims[i + 1],
            _mean_function(case, i),
            whiten=meta["whiten"],
        )
        for i in range(L)
    ]
    settings = {"num_data": meta["N"], "covariance_jitter": 0.0}
    if meta["method"] == "DSDGP":
        settings |= {"posterior": gd.posteriors.MeanField, "num_samples": meta["S"]}
        model = gd.models.DeepGP(layers, likelihood(case), **settings)
    else:
        settings |= {"num_sites": meta["S"], "predictive_objective": meta["beta"]}
        model = gd.models.DeepSigmaPointProcess(layers, likelihood(case), **settings)
        assign_sites(case, model)
    for i, layer in enumerate(layers):
        key = f"in/layers/{i}/"
        mean = case[f"{key}mu"].T
        if not meta["whiten"]:  # the model's inducing outputs are less the mean function
            mean = mean - layer.mean_function(layer.inducing_variable.Z).numpy()
        factor = case[f"{key}L"] if meta["full_cov"] else _diagonals(case[f"{key}sd"])
        model.inducing_posterior.q_mu[i].assign(mean)
        model.inducing_posterior.q_sqrt[i].assign(factor)
    return model


def orthogonal_model(case: Case) -> gd.models.OrthogonalSVGP:
    """The model of a case of kind solve, whose inducing outputs are not whitened in the reference."""
    D = case.meta["D"]
    model = gd.models.OrthogonalSVGP(
        kernel(case["in/kvar"], case["in/kls"]),
        likelihood(case),
        case["in/Zu"],
        case["in/Zv"],
        num_latent_gps=D,
        num_data=case.meta["N"],
    )
    q = model.inducing_posterior
    size = len(case["in/Zu"])
    prior = model.layers[0].factorise().numpy()  # [D, M, M]
    means, factors = [], np.zeros_like(prior)
    for part, rows in (("u", slice(0, size)), ("v", slice(size, None))):
        own = prior[:, rows, rows]
        factor = (
            case[f"in/L_{part}"] if case.meta["full_cov"] else _diagonals(case[f"in/sd_{part}"])
        )
        means.append(np.linalg.solve(own, case[f"in/mu_{part}"][..., None])[..., 0])
        factors[:, rows, rows] = np.linalg.solve(own, factor)
    q.q_mu[0].assign(np.concatenate(means, axis=1).T)
    q.q_sqrt[0].assign(factors)
    return model


def _diagonals(values: np.ndarray) -> np.ndarray:
    return values[..., None] * np.eye(values.shape[-1])


def assign_sites(case: Case, model: gd.models.DeepGPModel) -> None:
    if model.sites is not None and model.sites.num_sites > 1:
        for i, nodes in enumerate(model.sites.nodes):
            nodes.unconstrained_variable.assign(case[f"in/raw_nodes/{i}"])
        model.sites.weight_logits.assign(case["in/weight_logits"])


def draws(case: Case) -> list[np.ndarray] | None:
    count = len(case.keys("in/draws/"))
    return [case[f"in/draws/{i}"] for i in range(count)] or None


def parameters(
    case: Case, model: gd.models.AmortizedDeepGP
) -> dict[str, tuple[gpflow.Parameter, tuple[Any, ...], bool]]:
    """
    By the reference's name of a parameter: the model's, which part of it that is, and whether the part is
    the transpose of the reference.
    """
    found: dict[str, tuple[gpflow.Parameter, tuple[Any, ...], bool]] = {}
    for i, layer in enumerate(model.layers):
        prefix = f"layers/{i}/"
        found[f"{prefix}kvar"] = layer.kernel.variance, (), False
        found[f"{prefix}kls"] = layer.kernel.lengthscales, (), False
        if case.meta["joint_net"]:
            kinds = [["J"]]
        else:
            maps = layer.networks[0]
            found[f"{prefix}WZ"] = maps.W, (), False
            found[f"{prefix}bZ"] = maps.b, (), False
            kinds = [["mu"], ["L"]] if case.meta["full_cov"] else [["mu", "sd"]]
        for network, names in zip(layer.networks[-len(kinds) :], kinds, strict=True):
            for k, name in enumerate(names):
                for j, W in enumerate(network.W):
                    found[f"{prefix}{name}_W/{j}"] = W, (k,), True
    if "in/noise" in case and hasattr(model.likelihood, "variance"):
        found["noise"] = model.likelihood.variance, (), False
    if model.sites is not None:
        for i, nodes in enumerate(model.sites.nodes):
            found[f"raw_nodes/{i}"] = nodes, (), False
        found["weight_logits"] = model.sites.weight_logits, (), False
    return found


def along(case: Case, model: gd.models.AmortizedDeepGP, name: str, slope: tf.Tensor) -> float:
    """The derivative of the objective along the reference's direction, of its own parameter."""
    parameter, part, transposed = parameters(case, model)[name]
    direction = case[f"dir/{name}"]
    direction = direction.T if transposed else direction
    gradient = tf.convert_to_tensor(slope)
    if not name.startswith("raw"):  # the reference's direction is of the constrained value
        with tf.GradientTape() as tape:
            value = tf.convert_to_tensor(parameter)
        jacobian = tape.gradient(value, parameter.unconstrained_variable)
        gradient = gradient / jacobian
    return float(np.sum(gradient.numpy()[part] * direction))
