"""
What a Bayesian neural network is put together from: connected layers, and a posterior for each random
one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.base import Parameter, TensorType

from ..layers import GPLayer
from ..layers.bayesian import (
    BayesianConv2D,
    BayesianDense,
    NetworkLayer,
    Residual,
    connect,
    random_layers,
)
from ..posteriors.layerwise import LayerPosterior
from ..posteriors.pseudo_observations import PseudoObservations
from ..posteriors.weights import (
    FactorisedWeights,
    WeightPosterior,
    WeightSpec,
)
from ..validation import as_real_array, check_inputs, check_positive_integer
from .checks import refuse_mixing
from .global_inducing_parts import check_builders, initialise

__all__ = [
    "NetworkPosteriors",
    "build_weight_posteriors",
    "connect_layers",
    "image_inputs",
    "uses_inducing_inputs",
]

_NUM_SEEDS = 2**63

NetworkPosteriors = Callable[[WeightSpec], WeightPosterior] | Sequence[Callable[..., Any]]


def image_inputs(inducing_inputs: Any) -> Parameter | None:
    """Inducing inputs [M, ...] as a parameter; one that is a parameter stays the caller's own."""
    if inducing_inputs is None or isinstance(inducing_inputs, Parameter):
        return inducing_inputs
    array = as_real_array(inducing_inputs, "inducing_inputs")
    if array.ndim < 2 or not array.size:
        raise ValueError(
            f"inducing_inputs: expected [M, D] or [M, H, W, C], got shape {list(array.shape)}."
        )
    rows = check_inputs(array.reshape([len(array), -1]), "inducing_inputs")
    return Parameter(rows.reshape(array.shape), dtype=gpflow.default_float())


def connect_layers(
    layers: Sequence[Any], inducing_inputs: Parameter | None, input_shape: Any
) -> tuple[list[Any], tuple[int, ...]]:
    """
    The layers, each of which knows its shapes, and the shape of one point's input.

    :raises TypeError: for anything that is no layer of a network.
    :raises ValueError: where they do not fit each other.
    """
    if not isinstance(layers, Sequence) or not layers:
        raise TypeError(f"layers: expected a non-empty sequence of layers, got {layers!r}.")
    *below, last = layers
    for layer in below:
        if not isinstance(layer, NetworkLayer):
            raise TypeError(f"layers: expected layers of a network below the last, got {layer!r}.")
    if not isinstance(last, (BayesianDense, GPLayer)):
        raise TypeError(f"layers: expected BayesianDense or GPLayer as the last one, got {last!r}.")
    refuse_mixing(last)
    if isinstance(last, GPLayer) and last.inducing_variable is not None:
        raise ValueError(
            "layers: expected a GPLayer without an inducing variable, as its inducing inputs come through"
            f" the layers below, got {type(last.inducing_variable).__name__}."
        )
    shape = _input_shape(inducing_inputs, input_shape)
    connect(layers, shape)
    found = random_layers(layers)
    if len({id(layer) for layer in found}) < len(found):
        raise ValueError("layers: expected each random layer once, got one twice.")
    return list(layers), shape


def _input_shape(inducing_inputs: Parameter | None, input_shape: Any) -> tuple[int, ...]:
    if inducing_inputs is None:
        if input_shape is None:
            raise ValueError("input_shape: expected it without inducing_inputs, got None.")
        many = isinstance(input_shape, (Sequence, np.ndarray, tf.TensorShape))
        sizes = input_shape if many else [input_shape]
        return tuple(check_positive_integer(size, "input_shape") for size in sizes)
    if input_shape is not None:
        raise ValueError(
            f"input_shape: expected None beside inducing_inputs, which have it, got {input_shape!r}."
        )
    return tuple(inducing_inputs.shape[1:])


def build_weight_posteriors(
    posterior: NetworkPosteriors,
    layers: Sequence[NetworkLayer | GPLayer],
    num_inducing: int,
    pseudo_outputs: TensorType | None,
    seed: int,
) -> list[Any]:
    """
    The posterior of each random layer, with its initial values.

    :param layers: of the network.
    :param num_inducing: inducing points; 0 for none.
    :raises TypeError: where ``posterior`` makes something else.
    :raises ValueError: where there are not as many as layers, or inducing inputs are missing.
    """
    found = random_layers(layers)
    if isinstance(posterior, Sequence) and not isinstance(posterior, str):
        builders = list(posterior)
    else:
        builders = [PseudoObservations if isinstance(x, GPLayer) else posterior for x in found]
    check_builders(builders, len(found))
    posteriors: list[Any] = []
    for index, (layer, build) in enumerate(zip(found, builders)):
        kind: type = WeightPosterior
        if isinstance(layer, GPLayer):
            kind = LayerPosterior
            if not num_inducing:
                raise ValueError("inducing_inputs: expected some for a GPLayer, got None.")
            arguments: tuple[Any, ...] = layer.num_latent_gps, num_inducing
        else:
            sizes = layer.num_outputs, layer.fan_in, num_inducing, layer.num_positions
            convolves = isinstance(layer, BayesianConv2D)
            arguments = (
                WeightSpec(*sizes, seed=(seed + index) % _NUM_SEEDS, is_convolution=convolves),
            )
        expected = f"posterior: expected a function that makes a {kind.__name__} for {layer.name}"
        try:
            q = build(*arguments)
        except TypeError as error:
            raise TypeError(f"{expected}, got {build!r}, which raises: {error}") from error
        if not isinstance(q, kind):
            raise TypeError(f"{expected}, got {q!r}.")
        if isinstance(q, WeightPosterior):
            own, others = (layer.num_outputs, layer.fan_in), (q.num_outputs, q.fan_in)
            if others != own:
                raise ValueError(
                    f"{expected} with (num_outputs, fan_in) = {own}, got one with {others}."
                )
        posteriors.append(q)
    _check_local_reparameterisation(layers, iter(reversed(posteriors)))
    # Of the posteriors of weights, those that have pseudo-observations.
    observed: list[Any] = [getattr(q, "observations", q) for q in posteriors]
    initialise(observed, pseudo_outputs, seed)
    return posteriors


def uses_inducing_inputs(q: Any) -> bool:
    """Whether a layer's posterior depends on the inducing inputs that come through the layers below."""
    return isinstance(q, LayerPosterior) or q.uses_inducing_inputs


def _check_local_reparameterisation(
    layers: Sequence[Any], posteriors: Iterator[Any], coupled: bool = False
) -> bool:
    """
    The draws of outputs are each point's own; a posterior above needs the weights that they all share.

    :param posteriors: of the random layers, the last one first, of which it takes those of these layers.
    :param coupled: whether there is such a posterior above them.
    :return: whether there is one above or among them.
    """
    for layer in reversed(layers):
        if isinstance(layer, Residual):
            second = _check_local_reparameterisation(layer.shortcut, posteriors, coupled)
            first = _check_local_reparameterisation(layer.layers, posteriors, coupled)
            coupled = first or second
            continue
        for _ in random_layers([layer]):
            q = next(posteriors)
            if isinstance(q, FactorisedWeights) and q.local_reparameterisation and coupled:
                raise ValueError(
                    "posterior: expected no local_reparameterisation below a layer whose posterior uses"
                    " its inducing inputs."
                )
            coupled = coupled or uses_inducing_inputs(q)
    return coupled
