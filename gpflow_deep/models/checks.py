"""Which layers and which likelihood make a model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gpflow.likelihoods import Likelihood

from ..kernels.independent import takes_indices
from ..layers import Layer
from ..validation import check_sequence_of

__all__ = ["check_layers", "check_likelihood", "mark_in_use", "refuse_mixing"]


def check_layers(layers: Sequence[Layer], kind: type[Layer]) -> list[Layer]:
    """
    The layers, input first, as a list.

    :raises TypeError: where one is of another kind.
    :raises ValueError: where they do not fit each other.
    """
    check_sequence_of(layers, kind, "layers")
    layers = list(layers)
    for index, (below, above) in enumerate(zip(layers, layers[1:]), start=1):
        if above.input_dim not in (None, below.num_latent_gps):
            raise ValueError(
                f"layers: layer {index} has inducing inputs of dimension {above.input_dim}, expected"
                f" {below.num_latent_gps}, the number of GPs of layer {index - 1}."
            )
        if below.mixing is not None:
            raise ValueError(
                f"layers: expected a kernel that mixes its GPs ({type(below.kernel).__name__}) in the last"
                f" layer only, got one in layer {index - 1}."
            )
        if isinstance(above, Layer) and takes_indices(above.kernel):
            raise ValueError(
                f"layers: expected Coregion in the first layer only, whose inputs are the data's, got one in"
                f" layer {index}, whose inputs are the values of GPs and no indices."
            )
    return layers


def mark_in_use(layers: Sequence[Any]) -> None:
    """Let layers of GPs check, from now on, what is assigned in the place of their parts."""
    for layer in layers:
        if isinstance(layer, Layer):
            layer._is_in_use = True


def refuse_mixing(layer: Any, name: str = "layers") -> None:
    """Raise a ValueError where a layer's outputs are mixtures of its GPs (``LinearCoregionalization``)."""
    if layer.mixing is not None:
        raise ValueError(
            f"{name}: expected a kernel that does not mix its GPs, got {type(layer.kernel).__name__}."
        )


def check_likelihood(likelihood: Likelihood, output_dim: int) -> Likelihood:
    """
    The likelihood.

    :raises TypeError: where it is none.
    :raises ValueError: where it takes another number of functions.
    """
    if not isinstance(likelihood, Likelihood):
        raise TypeError(f"likelihood: expected a GPflow likelihood, got {likelihood!r}.")
    if likelihood.latent_dim not in (None, output_dim):
        raise ValueError(
            f"likelihood: {type(likelihood).__name__} takes {likelihood.latent_dim} latent functions,"
            f" the last layer has {output_dim}."
        )
    return likelihood
