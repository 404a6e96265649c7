"""What a global inducing deep GP is put together from: layers with its inducing inputs, and posteriors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.base import TensorType
from gpflow.inducing_variables import (
    InducingPoints,
    MultioutputInducingVariables,
    SharedIndependentInducingVariables,
)

from ..kernels.independent import index_columns
from ..kernels.methods import has_registered_covariances
from ..layers import GPLayer
from ..posteriors.layerwise import LayerPosterior
from ..posteriors.pseudo_observations import PseudoObservations
from ..validation import check_choice, check_inputs

__all__ = [
    "LayerPosteriors",
    "build_posteriors",
    "check_builders",
    "inducing_points",
    "initialise",
    "place_inducing_inputs",
]

LayerPosteriors = (
    Callable[[int, int], LayerPosterior] | Sequence[Callable[[int, int], LayerPosterior]]
)


def inducing_points(layer: GPLayer) -> tf.Tensor:
    """
    Inducing inputs [M, D] that all GPs of the layer share. What in them counts outputs is not trained: it
    goes through the mean function, whose gradient knows nothing of whole numbers.
    """
    inducing_variable = layer.inducing_variable
    if isinstance(inducing_variable, SharedIndependentInducingVariables):
        inducing_variable = inducing_variable.inducing_variable
    if type(inducing_variable) is not InducingPoints:
        raise ValueError(
            f"layers: expected inducing points shared by all GPs of {layer.name}, got"
            f" {type(inducing_variable).__name__}."
        )
    if has_registered_covariances(inducing_variable, layer.kernel):
        raise ValueError(
            f"layers: expected inducing points of {layer.name} that are function values, got a Kuu or Kuf"
            f" that was registered for {type(inducing_variable).__name__} and {type(layer.kernel).__name__}."
        )
    Z = tf.convert_to_tensor(inducing_variable.Z)
    is_index = np.isin(np.arange(Z.shape[1]), index_columns(layer.kernel, Z.shape[1]))
    return tf.where(is_index, tf.stop_gradient(Z), Z) if np.any(is_index) else Z


def place_inducing_inputs(
    layers: Sequence[GPLayer], inducing_inputs: TensorType | None, inducing: str
) -> list[GPLayer]:
    """The layers with the inducing variables that the model uses, and no others."""
    check_choice(inducing, "inducing", ("global", "local"))
    if inducing == "local" and inducing_inputs is not None:
        raise ValueError("inducing_inputs: expected None with inducing='local'.")
    first, *others = layers
    if inducing_inputs is not None:
        if not isinstance(inducing_inputs, (gpflow.Parameter, tf.Variable)):
            inducing_inputs = check_inputs(inducing_inputs, "inducing_inputs")
        if first.input_dim not in (None, inducing_inputs.shape[1]):
            raise ValueError(
                f"inducing_inputs: expected [M, {first.input_dim}] like the first layer's inducing inputs,"
                f" got {list(inducing_inputs.shape)}."
            )
        first = _with_inducing_variable(first, inducing_inputs)
    elif first.inducing_variable is None:
        raise ValueError("inducing_inputs: expected [M, D], as the first layer has none, got None.")
    if inducing == "global":
        others = [_with_inducing_variable(layer, None) for layer in others]
        for below, layer in zip([first, *others], others):
            layer.check_inputs_of(below.num_latent_gps)
    layers = [first, *others]
    for layer in layers:
        if layer.inducing_variable is not None:
            inducing_points(layer)
    return layers


def _with_inducing_variable(layer: GPLayer, inducing_variable: TensorType | None) -> GPLayer:
    """
    A layer of the same kernel and mean function.

    :raises ValueError: where the layer has inducing variables that are more than points: to leave them out
        would make another model of it.
    """
    own = layer.inducing_variable
    parts = own.inducing_variables if isinstance(own, MultioutputInducingVariables) else [own]
    for part in parts:
        if part is not None and type(part) is not InducingPoints:
            raise ValueError(
                f"layers: expected inducing points, or none, of {layer.name}, in whose place the model has"
                f" those of global inducing inputs, got {type(part).__name__}."
            )
    return GPLayer(
        layer.kernel,
        inducing_variable,
        layer.num_latent_gps,
        layer.mean_function,
        name=layer.name,
    )


def build_posteriors(
    posterior: LayerPosteriors,
    layers: Sequence[GPLayer],
    pseudo_outputs: TensorType | None,
    seed: int,
) -> list[LayerPosterior]:
    """The posterior of each layer, with its initial values."""
    if isinstance(posterior, Sequence) and not isinstance(posterior, str):
        builders = list(posterior)
    else:
        builders = [posterior] * len(layers)
    check_builders(builders, len(layers))
    posteriors = []
    M = 0
    for index, (layer, build) in enumerate(zip(layers, builders)):
        M = layer.num_inducing or M
        q = build(layer.num_latent_gps, M)
        if not isinstance(q, LayerPosterior):
            raise TypeError(
                "posterior: expected PseudoObservations, IndependentGaussian, Prior or a function of"
                f" (num_latent_gps, num_inducing) that makes one, got {q!r} for layer {index}."
            )
        posteriors.append(q)
    initialise(posteriors, pseudo_outputs, seed)
    return posteriors


def check_builders(builders: Sequence[Any], num_layers: int) -> None:
    """
    :raises TypeError: where posteriors are to be made by what is no function.
    :raises ValueError: where there are not as many functions as layers.
    """
    if len(builders) != num_layers:
        raise ValueError(
            f"posterior: expected one, or one for each of {num_layers} layers, got {len(builders)}."
        )
    for build in builders:
        if not callable(build):
            raise TypeError(
                f"posterior: expected a posterior's class or a function that makes one, got {build!r}."
            )


def initialise(
    posteriors: Sequence[LayerPosterior], pseudo_outputs: TensorType | None, seed: int
) -> None:
    """
    Initial values (Ober & Aitchison 2021): hidden pseudo-observations are standard normal; those at the
    output are data, of precision 1.
    """
    rng = np.random.default_rng(seed)
    for q in posteriors[:-1]:
        if isinstance(q, PseudoObservations):
            q.pseudo_outputs.assign(rng.standard_normal(q.pseudo_outputs.shape))
    output = posteriors[-1]
    if isinstance(output, PseudoObservations):
        output.assign_pseudo_outputs(
            np.zeros(output.pseudo_outputs.shape) if pseudo_outputs is None else pseudo_outputs
        )
        output.precision_diagonal.assign(np.ones(output.precision_diagonal.shape))
    elif pseudo_outputs is not None:
        raise ValueError(
            "pseudo_outputs: expected None, as the posterior of the last layer is no PseudoObservations."
        )
