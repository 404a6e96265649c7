"""The small networks that make inducing inputs and variational parameters out of a layer's inputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.base import Module, Parameter

from ..validation import (
    check_memory,
    check_positive_integer,
    check_positive_integers,
    check_seed,
)

__all__ = ["AffineMaps", "MLP", "Network", "as_module", "as_network"]

#: From [R, D] to [R, columns].
Network = Callable[[tf.Tensor], tf.Tensor]


class AffineMaps(Module):
    r"""
    M affine maps :math:`z_m = W_m x + b_m` of inputs, invertible at the start: :math:`W_m = I`,
    :math:`b_m \sim N(0, I)` (Meng & Zhang 2024).

    >>> maps = gd.layers.AffineMaps(input_dim=2, num_maps=3)
    >>> maps(tf.zeros([5, 2], tf.float64)).shape  # three points of two dimensions, side by side
    TensorShape([5, 6])

    :param input_dim: dimension of the inputs, Q.
    :param num_maps: M.
    :param seed: of the initial shifts.
    """

    def __init__(
        self, input_dim: int, num_maps: int, *, seed: int = 0, name: str | None = None
    ) -> None:
        super().__init__(name=name)
        Q = check_positive_integer(input_dim, "input_dim")
        M = check_positive_integer(num_maps, "num_maps")
        check_memory(M * Q * Q, f"{M} maps of {Q} dimensions", "num_maps, input_dim")
        rng, dtype = np.random.default_rng(check_seed(seed)), gpflow.default_float()
        self.W = Parameter(np.tile(np.eye(Q), [M, 1, 1]), dtype=dtype)  # [M, Q, Q]
        self.b = Parameter(rng.standard_normal([M, Q]), dtype=dtype)  # [M, Q]

    def __call__(self, X: tf.Tensor) -> tf.Tensor:
        """The maps of inputs [R, Q] side by side: [R, M Q]."""
        rows = tf.reshape(self.W, [-1, X.shape[-1]])  # [M Q, Q]
        return tf.matmul(X, rows, transpose_b=True) + tf.reshape(self.b, [-1])


class MLP(Module):
    """
    Feed-forward networks, one or several of equal shape side by side, with leaky ReLUs of slope 0.2 between
    their affine maps.

    >>> networks = gd.layers.MLP([2, 8, 3], num_networks=2)
    >>> networks(tf.zeros([5, 2], tf.float64)).shape
    TensorShape([5, 6])

    :param dims: dimension of the inputs, of the hidden layers, and of the outputs of each network.
    :param num_networks: how many of them: as many operations as one has.
    :param repeats: outputs that are equal at the start: of the last dimension, each so many in a row.
    :param seed: of the initial weights, uniform in +-1/sqrt(inputs).
    """

    def __init__(
        self,
        dims: Sequence[int],
        *,
        num_networks: int = 1,
        repeats: int = 1,
        seed: int = 0,
        name: str | None = None,
    ) -> None:
        super().__init__(name=name)
        dims = check_positive_integers(dims, "dims")
        K = check_positive_integer(num_networks, "num_networks")
        repeats = check_positive_integer(repeats, "repeats")
        if len(dims) < 2 or dims[-1] % repeats:
            raise ValueError(
                f"dims: expected inputs, hidden layers and outputs, a multiple of repeats ({repeats}),"
                f" got {dims}."
            )
        weights = K * sum(d_in * d_out for d_in, d_out in zip(dims, dims[1:]))
        check_memory(weights, f"{K} networks of widths {dims}", "dims, num_networks")
        rng, dtype = np.random.default_rng(check_seed(seed)), gpflow.default_float()
        self.W, self.b = [], []  # [K, in, out], [K, 1, out]
        for index, (d_in, d_out) in enumerate(zip(dims, dims[1:])):
            copies = repeats if index == len(dims) - 2 else 1
            bound = d_in**-0.5
            W = rng.uniform(-bound, bound, [K, d_in, d_out // copies])
            b = rng.uniform(-bound, bound, [K, 1, d_out // copies])
            self.W.append(Parameter(np.repeat(W, copies, axis=-1), dtype=dtype))
            self.b.append(Parameter(np.repeat(b, copies, axis=-1), dtype=dtype))

    def __call__(self, X: tf.Tensor) -> tf.Tensor:
        """The networks' outputs for inputs [R, Q], side by side: [R, K outputs]."""
        H = tf.expand_dims(X, 0)
        for index, (W, b) in enumerate(zip(self.W, self.b)):
            if index:
                # TensorFlow's leaky ReLU has its slope in float32.
                H *= tf.where(H > 0.0, tf.ones([], H.dtype), tf.constant(0.2, H.dtype))
            H = tf.matmul(H, W) + b
        if H.shape[0] == 1:
            return tf.squeeze(H, axis=0)
        return tf.concat(tf.unstack(H), axis=-1)


class _KerasNetwork(Module):
    """A layer of Keras 3, which is no ``tf.Module``, with its variables where GPflow finds them."""

    def __init__(self, layer: Any) -> None:
        super().__init__(name=layer.name)
        self._layer = _Hidden(layer)
        self.weights = [variable.value for variable in layer.weights]

    def __call__(self, X: tf.Tensor) -> tf.Tensor:
        return self._layer.value(X)


class _Hidden:
    """Something that GPflow must not look into."""

    def __init__(self, value: Any) -> None:
        self.value = value


def as_module(network: Network) -> Network:
    """
    Itself, or a layer of Keras that has been called, and so has its variables, as a module that GPflow finds
    them in.
    """
    is_module = isinstance(network, tf.Module)
    return network if is_module or not _has_variables(network) else _KerasNetwork(network)


def _has_variables(network: Any) -> bool:
    return hasattr(type(network), "trainable_variables")


def as_network(network: Any, input_dim: int, name: str = "networks") -> tuple[Network, int]:
    """
    A ``tf.Module`` or Keras layer that can be called with inputs [R, input_dim], and how many columns it
    returns.

    :param name: what the caller calls it, for errors.
    :raises TypeError: where it cannot be called, or its variables could not be found.
    :raises ValueError: where it does not take such inputs, or returns no matrix of the default float.
    """
    if not callable(network) or not _has_variables(network):
        raise TypeError(f"{name}: expected callable tf.Modules or Keras layers, got {network!r}.")
    X = tf.zeros([2, input_dim], gpflow.default_float())
    try:
        Y = network(X)  # Keras makes its variables now
    except Exception as error:
        raise ValueError(
            f"{name}: {type(network).__name__} does not fit inputs of dimension {input_dim}: {error}"
        ) from error
    if Y.shape.rank != 2 or Y.shape[0] != 2 or Y.dtype != X.dtype:
        raise ValueError(
            f"{name}: expected [2, columns] of {X.dtype.name} for inputs [2, {input_dim}], got"
            f" {Y.shape} of {Y.dtype.name} from {type(network).__name__}."
        )
    return as_module(network), int(Y.shape[1])
