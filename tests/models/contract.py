"""
The model families that GPflow's users must be able to use as they use GPflow's models.

A family joins the suite in `test_gpflow_contract.py` with one line in `FAMILIES`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf

import gpflow_deep as gd
from gpflow_deep.layers.bayesian import Activation
from gpflow_deep.models import DeepGPModel

__all__ = [
    "COMPILED_FAMILIES",
    "FAMILIES",
    "GP_FAMILIES",
    "KERNEL_FAMILIES",
    "LATENT",
    "PREDICTIONS",
    "XNEW",
    "YNEW",
    "X",
    "Y",
    "assert_close",
    "block_structured",
    "data",
    "differ",
    "fix_draws",
    "gradients",
    "is_joint",
    "make_model",
    "predictions",
    "randomise",
    "values",
    "variational",
]

Data = tuple[np.ndarray, np.ndarray]


def block_structured(layers: Sequence[gd.layers.GPLayer]) -> gd.posteriors.BlockStructured:
    """Some pattern that is none of the named ones: each GP with itself and the one before it."""
    num_gps = sum(layer.num_latent_gps for layer in layers)
    pattern = np.eye(num_gps, dtype=bool) | np.eye(num_gps, k=-1, dtype=bool)
    return gd.posteriors.BlockStructured(layers, pattern)


def _deep_gp(posterior: Any, layers: Sequence[gd.layers.GPLayer], *args: Any, **kwargs: Any) -> Any:
    posterior = posterior if isinstance(posterior, type) else posterior(layers)
    return gd.models.DeepGP(layers, *args, posterior=posterior, **kwargs)


def _sigma_points(layers: Any, *args: Any, num_samples: int, **kwargs: Any) -> Any:
    return gd.models.DeepSigmaPointProcess(layers, *args, num_sites=num_samples, **kwargs)


def _amortized(rule: str, layers: Any, *args: Any, **kwargs: Any) -> Any:
    """Layers of as many GPs, with the same kernels and mean functions."""
    amortized = [
        gd.layers.AmortizedGPLayer(
            layer.kernel, 3, layer.input_dim, layer.num_latent_gps, layer.mean_function, seed=index
        )
        for index, layer in enumerate(layers)
    ]
    return gd.models.AmortizedDeepGP(amortized, *args, amortization=rule, **kwargs)


def _fitc_ep(
    layers: Sequence[gd.layers.GPLayer], *args: Any, num_samples: int, **kwargs: Any
) -> Any:
    del num_samples  # its training is deterministic
    return gd.models.FITCEPDeepGP(layers, *args, **kwargs)


def _network(layers: Sequence[gd.layers.GPLayer], *args: Any, **kwargs: Any) -> Any:
    """A network of as many layers, as wide, with inducing points at the same inputs."""
    network: list[Any] = []
    for layer in layers:
        network += [gd.layers.BayesianDense(layer.num_latent_gps), Activation("tanh")]
    Z = layers[0].inducing_variable.Z.numpy()
    return gd.models.GlobalInducingBNN(network[:-1], *args, inducing_inputs=Z, **kwargs)


def _latent_variables(
    layers: Sequence[gd.layers.GPLayer], *args: Any, num_samples: int, **kwargs: Any
) -> Any:
    """Layers of the same sizes, of which the first takes a latent variable too; two importance samples."""
    widths = [layer.num_latent_gps for layer in layers]
    own = gd.layers.build_layers(
        data()[0], widths[:-1], widths[-1], layers[0].num_inducing, latent_dim=1
    )
    settings = {"num_importance_samples": 2, **kwargs}
    return gd.models.LatentVariableDeepGP(own, *args, num_samples=num_samples, **settings)


FAMILIES: dict[str, Callable[..., DeepGPModel]] = {
    "mean-field": partial(_deep_gp, gd.posteriors.MeanField),
    "stripes-and-arrow": partial(_deep_gp, gd.posteriors.StripesAndArrow),
    "fully-coupled": partial(_deep_gp, gd.posteriors.FullyCoupled),
    "block-structured": partial(_deep_gp, block_structured),
    "global-inducing": gd.models.GlobalInducingDeepGP,
    "sigma-points": _sigma_points,
    "amortized-samples": partial(_amortized, "AR1"),
    "amortized-sites": partial(_amortized, "AR2P", predictive_objective=True),
    "fitc-ep": _fitc_ep,
    "bayesian-network": _network,
    "sampled": gd.models.SampledDeepGP,
    "latent-variables": _latent_variables,
}
"""A function of (layers, likelihood) and the settings `num_data`, `num_samples`,
`num_prediction_samples`, by the family's name."""

COMPILED_FAMILIES = [
    name
    for name in FAMILIES
    if name not in ("mean-field", "fully-coupled", "block-structured", "amortized-sites")
]
"""For what takes seconds a family to compile: without those whose every operation others have too."""

GP_FAMILIES = [name for name in FAMILIES if name != "bayesian-network"]
"""Those whose layers have kernels."""

LATENT = "latent-variables"
"""Whose gradients with new draws are estimates of their own, not those of the loss at these draws."""

KERNEL_FAMILIES = [name for name in GP_FAMILIES if name != LATENT]
"""Those that are made of layers with any kernels of the inputs alone."""


def data(num_points: int = 20, output_dim: int = 1, seed: int = 0) -> Data:
    """Inputs [N, 2] and smooth targets [N, P] with a little noise."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((num_points, 2))
    Y = np.sin(X @ rng.standard_normal((2, output_dim)))
    return X, Y + 0.1 * rng.standard_normal(Y.shape)


def make_model(
    family: str,
    hidden_dims: Sequence[int] = (2,),
    likelihood: gpflow.likelihoods.Likelihood | None = None,
    output_dim: int = 1,
    num_inducing: int = 5,
    layers: Sequence[gd.layers.GPLayer] | None = None,
    random: bool = True,
    **settings: Any,
) -> DeepGPModel:
    """
    A tiny model of a family on the inputs of `data()`.

    :param random: move every trainable parameter from its initial value, at which much is zero.
    """
    X, _ = data()
    if layers is None:
        layers = gd.layers.build_layers(X, hidden_dims, output_dim, num_inducing)
    settings = {"num_data": len(X), "num_samples": 3, "num_prediction_samples": 8, **settings}
    model = FAMILIES[family](layers, likelihood or gpflow.likelihoods.Gaussian(0.1), **settings)
    if random:
        randomise(model)
    return model


def randomise(model: tf.Module, seed: int = 1, scale: float = 0.2) -> None:
    """Add normal draws to all trainable parameters, unconstrained: the same draws at every call."""
    rng = np.random.default_rng(seed)
    parameters = gpflow.utilities.parameter_dict(model)
    # Models of one layer have some of them by two names.
    once = {id(parameter): parameter for _, parameter in sorted(parameters.items(), reverse=True)}
    for parameter in reversed(once.values()):
        if parameter.trainable:
            variable = parameter.unconstrained_variable
            variable.assign_add(scale * rng.standard_normal(variable.shape))


def variational(model: DeepGPModel) -> tf.Module | None:
    """A part of the model that its approximate posterior is, where one exists that no input enters."""
    if isinstance(model, gd.models.GlobalInducingDeepGP):
        return model.inducing_posteriors[0]
    return getattr(model, "inducing_posterior", None)


def fix_draws(model: DeepGPModel, num_points: int = 20) -> None:
    """Make the objective a function of the parameters, for batches of this size."""
    if hasattr(model, "draw_noise"):
        noise = model.draw_noise(num_points, seed=[1, 2])
        model.draw_noise = lambda *args, **kwargs: noise


def values(model: tf.Module) -> np.ndarray:
    """All parameters of a model in one vector."""
    parameters = gpflow.utilities.read_values(model)
    return np.concatenate([np.ravel(value) for _, value in sorted(parameters.items())])


def gradients(
    loss: Callable[[], tf.Tensor], variables: Sequence[tf.Variable]
) -> tuple[tf.Tensor, list[tf.Tensor]]:
    """A loss and its gradients, as tensors also where TensorFlow has slices of them."""
    with tf.GradientTape() as tape:
        value = loss()
    return value, [tf.convert_to_tensor(g) for g in tape.gradient(value, variables)]


X, Y = data()
XNEW, YNEW = data(6, seed=2)

PREDICTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "predict_f": lambda model, X: model.predict_f(X),
    "predict_f full_cov": lambda model, X: model.predict_f(X, full_cov=True),
    "predict_f full_output_cov": lambda model, X: model.predict_f(X, full_output_cov=True),
    "predict_f full_cov full_output_cov": lambda model, X: model.predict_f(X, True, True),
    "predict_f_mixture": lambda model, X: model.predict_f_mixture(X),
    "predict_y": lambda model, X: model.predict_y(X),
    "predict_y_mixture": lambda model, X: model.predict_y_mixture(X),
    "predict_log_density": lambda model, X: model.predict_log_density((X, YNEW[: len(X)])),
}
"""All that a model and its posterior predict, as functions of them and of up to six inputs."""


def predictions(model: DeepGPModel) -> dict[str, Callable[[Any, Any], Any]]:
    """Those that are defined: amortised posteriors are not joint over the points."""
    if is_joint(model):
        return PREDICTIONS
    return {name: predict for name, predict in PREDICTIONS.items() if "full_cov" not in name}


def is_joint(model: DeepGPModel) -> bool:
    """Whether the posterior is one over functions, not point by point."""
    return not isinstance(model, gd.models.AmortizedDeepGP)


def assert_close(actual: Any, expected: Any, rtol: float = 1e-9, atol: float = 1e-10) -> None:
    """Tensors, or structures of them, are the same within tolerances."""
    actual, expected = tf.nest.flatten(actual), tf.nest.flatten(expected)
    assert len(actual) == len(expected)
    for one, other in zip(actual, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=rtol, atol=atol)


def differ(one: Any, other: Any) -> bool:
    """Whether some tensors of two structures differ by more than rounding."""
    pairs = zip(tf.nest.flatten(one), tf.nest.flatten(other), strict=True)
    return any(not np.allclose(a, b, rtol=1e-6, atol=1e-8) for a, b in pairs)
