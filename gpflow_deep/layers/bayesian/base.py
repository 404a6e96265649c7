"""What a network of Bayesian and other layers is put together from."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Iterable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.base import Module

from ...validation import check_flag, check_positive_integer
from ..gp_layer import GPLayer
from .designs import Design
from .priors import WeightPrior, weight_prior

__all__ = ["BayesianLayer", "NetworkLayer", "Path", "Shape", "connect", "random_layers", "walk"]

#: Of what a layer takes or returns, without the axes of draws and points.
Shape = tuple[int, ...]

#: A way through layers: it yields the inputs [S or 1, N, *input_shape] of each random layer, is sent that
#: layer's outputs, and returns what comes out at the end.
Path = Generator[tf.Tensor, tf.Tensor, tf.Tensor]


class NetworkLayer(Module, ABC):
    """
    One step of a network. It gets to know its shapes when it is connected to the layers below.

    :param name: of the module.
    """

    mixing = None
    """Outputs are what they are: no matrix mixes them."""

    def __init__(self, *, name: str | None = None) -> None:
        super().__init__(name=name)
        # Shapes of TensorFlow's, as it wraps tuples.
        self._input_shape: tf.TensorShape | None = None
        self._output_shape = tf.TensorShape(None)

    @property
    def input_shape(self) -> Shape:
        """Of one point's input."""
        if self._input_shape is None:
            raise ValueError(f"{self.name}: expected a layer of a network, got one by itself.")
        return tuple(self._input_shape)

    @property
    def output_shape(self) -> Shape:
        """Of one point's output."""
        return tuple(self._output_shape)

    @property
    def input_dim(self) -> int:
        """How many numbers an input has."""
        return int(np.prod(self.input_shape))

    @property
    def num_latent_gps(self) -> int:
        """How many numbers an output has."""
        return int(np.prod(self.output_shape))

    @property
    def output_dim(self) -> int:
        """Likewise."""
        return self.num_latent_gps

    def connect(self, input_shape: Shape) -> Shape:
        """
        Let the layer know the shape of its inputs, for good; the shape of its outputs.

        :raises ValueError: where they do not fit it, or it has had others before.
        """
        if self._input_shape not in (None, tf.TensorShape(input_shape)):
            raise ValueError(
                f"layers: {self.name} has had inputs of shape {list(self.input_shape)} before, got"
                f" {list(input_shape)}; a network with other inputs needs new layers."
            )
        outputs = self._connect(tuple(input_shape))
        self._input_shape, self._output_shape = map(tf.TensorShape, (input_shape, outputs))
        return outputs

    @abstractmethod
    def _connect(self, input_shape: Shape) -> Shape:
        """The shape of the outputs."""

    @abstractmethod
    def walk(self, X: tf.Tensor) -> Path:
        """From inputs ``[S or 1, N, *input_shape]`` to outputs ``[S or 1, N, *output_shape]``."""

    @property
    def random_layers(self) -> list[BayesianLayer | GPLayer]:
        """The random layers inside, in the order of :meth:`walk`."""
        return []

    def _expect(self, input_shape: Shape, rank: int, what: str) -> None:
        if len(input_shape) != rank:
            raise ValueError(
                f"layers: {type(self).__name__} takes {what}, got inputs of shape {list(input_shape)}."
            )


class BayesianLayer(NetworkLayer):
    """
    Outputs that are linear in random weights: T units, independent under the prior, with D weights each.

    :param num_outputs: number of units, T.
    :param prior: "neal" (precision D), "standard" (1), "scale" (D s with a Gamma prior on s), for
        convolutions "spatial" (an inverse Wishart prior over the kernel's positions), or a
        :class:`~gpflow_deep.layers.bayesian.priors.WeightPrior`.
    :param bias: whether one of the D weights meets a constant.
    :raises ValueError: for another prior.
    """

    num_positions = 1
    """In the output of one point, at each of which the units have an output."""

    def __init__(
        self,
        num_outputs: int,
        prior: str | WeightPrior,
        bias: bool,
        kernel_positions: int = 1,
        *,
        name: str | None = None,
    ) -> None:
        super().__init__(name=name)
        self.num_outputs = check_positive_integer(num_outputs, "num_outputs")
        self.prior = weight_prior(prior, kernel_positions)
        self.bias = check_flag(bias, "bias")

    @property
    @abstractmethod
    def fan_in(self) -> int:
        """How many weights a unit has, D."""

    @abstractmethod
    def design(self, X: tf.Tensor) -> Design:
        """The design matrix at inducing inputs ``[S or 1, M, *input_shape]``."""

    @abstractmethod
    def apply(self, X: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
        """
        Outputs ``[S, N, *output_shape]``.

        :param X: inputs ``[S or 1, N, *input_shape]``.
        :param weights: [S or 1, T, D], the bias last.
        """

    def walk(self, X: tf.Tensor) -> Path:
        """See :meth:`NetworkLayer.walk`."""
        return (yield X)

    @property
    def random_layers(self) -> list[BayesianLayer | GPLayer]:
        """Itself."""
        return [self]


def connect(layers: Sequence[Any], input_shape: Shape) -> Shape:
    """
    Let layers know the shapes of their inputs, from below.

    :raises ValueError: where they do not fit.
    """
    shape = tuple(input_shape)
    for layer in layers:
        if isinstance(layer, NetworkLayer):
            shape = layer.connect(shape)
        elif len(shape) != 1:
            raise ValueError(f"layers: a GPLayer takes vectors, got inputs of shape {list(shape)}.")
        else:
            layer.check_inputs_of(*shape)
    return shape


def walk(layers: Iterable[Any], X: tf.Tensor) -> Path:
    """Carry inputs [S or 1, N, ...] through layers; the caller says what comes out of the random ones."""
    for layer in layers:
        X = (yield from layer.walk(X)) if isinstance(layer, NetworkLayer) else (yield X)
    return X


def random_layers(layers: Iterable[Any]) -> list[BayesianLayer | GPLayer]:
    """All random layers, in the order of :func:`walk`."""
    return [
        inner
        for layer in layers
        for inner in (layer.random_layers if isinstance(layer, NetworkLayer) else [layer])
    ]
