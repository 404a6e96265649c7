"""Approximate posteriors over the latent variables that points have beside their inputs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.base import Module, Parameter
from gpflow.utilities import positive

from ..layers.networks import MLP, as_network
from ..validation import check_positive_integer, check_positive_integers, check_seed

__all__ = ["EncodedLatents", "FreeLatents", "LatentPosterior", "Latents"]

_HALF_LOG_TWO_PI = 0.5 * np.log(2.0 * np.pi)


class Latents(NamedTuple):
    """
    q(w_n) = N(mean, scale^2) of N points, independent in its dimensions; [N, W] both.

    >>> q = gd.posteriors.Latents(tf.zeros([20, 1], tf.float64), tf.ones([20, 1], tf.float64))
    >>> q.log_density(tf.zeros([3, 20, 1], tf.float64)).shape
    TensorShape([3, 20])
    """

    mean: tf.Tensor
    scale: tf.Tensor

    def log_density(self, w: tf.Tensor) -> tf.Tensor:
        """log q(w) of values [..., N, W]: [..., N]."""
        z = (w - self.mean) / self.scale
        terms = 0.5 * tf.square(z) + tf.math.log(self.scale) + _HALF_LOG_TWO_PI
        return -tf.reduce_sum(terms, axis=-1)


class LatentPosterior(Module, ABC):
    """
    q(w_n), given a point's input and target.

    >>> q = gd.posteriors.EncodedLatents(input_dim=1, num_targets=1)
    >>> isinstance(q, gd.posteriors.LatentPosterior), q.latent_dim
    (True, 1)

    :param latent_dim: number of latent variables of a point, W.
    """

    def __init__(self, latent_dim: int = 1, *, name: str | None = None) -> None:
        super().__init__(name=name)
        self.latent_dim = check_positive_integer(latent_dim, "latent_dim")

    @abstractmethod
    def condition(self, X: tf.Tensor, Y: tf.Tensor) -> Latents:
        """
        The posterior of the latent variables of a batch.

        :param X: inputs [N, D].
        :param Y: targets [N, P].
        """


class EncodedLatents(LatentPosterior):
    """
    q(w_n) by a network of a point's input and target (Salimbeni et al. 2019), so that batches train it.

    >>> q = gd.posteriors.EncodedLatents(input_dim=1, num_targets=1, latent_dim=2)
    >>> q.condition(tf.constant(X), tf.constant(Y)).mean.shape
    TensorShape([20, 2])

    :param input_dim: D.
    :param num_targets: columns of the targets, P.
    :param latent_dim: W.
    :param hidden: widths of the network's hidden layers.
    :param network: a ``tf.Module`` or Keras layer to use instead, from inputs and targets side by side,
        [N, D + P], to [N, 2 W]: the means, then what softplus makes the standard deviations of.
    :param seed: of the network's initial weights. The first q(w_n) are near the prior.
    :raises TypeError: where the network cannot be called, or its variables could not be found.
    :raises ValueError: where it does not take such inputs, or returns something else.
    """

    def __init__(
        self,
        input_dim: int,
        num_targets: int = 1,
        latent_dim: int = 1,
        *,
        hidden: Sequence[int] = (20, 20),
        network: Any = None,
        seed: int = 0,
        name: str | None = None,
    ) -> None:
        super().__init__(latent_dim, name=name)
        self.input_dim = check_positive_integer(input_dim, "input_dim")
        self.num_targets = check_positive_integer(num_targets, "num_targets")
        columns, W = self.input_dim + self.num_targets, self.latent_dim
        widths = check_positive_integers(hidden, "hidden")
        if network is None:
            network = MLP([columns, *widths, 2 * W], seed=check_seed(seed))
            # The prior: what softplus makes 1 of.
            network.b[-1].assign(np.repeat([0.0, np.log(np.expm1(1.0))], W)[None, None])
        self.network, outputs = as_network(network, columns, "network")
        if outputs != 2 * W:
            raise ValueError(
                f"network: expected {2 * W} columns, a mean and a scale for each of {W} latent variables, got"
                f" {outputs}."
            )

    def condition(self, X: tf.Tensor, Y: tf.Tensor) -> Latents:
        X, Y = (tf.cast(x, gpflow.default_float()) for x in (X, Y))
        if Y.shape[-1] != self.num_targets:
            raise ValueError(
                f"latents: expected targets [N, {self.num_targets}], as the encoder takes, got {Y.shape}."
            )
        if X.shape[-1] != self.input_dim or not X.shape[:1].is_compatible_with(Y.shape[:1]):
            raise ValueError(
                f"latents: expected inputs [N, {self.input_dim}], as the encoder takes, for as many targets,"
                f" got {X.shape} for {Y.shape}."
            )
        # A target that is missing says nothing.
        Y = tf.where(tf.math.is_finite(Y), Y, tf.zeros_like(Y))
        mean, scale = tf.split(self.network(tf.concat([X, Y], axis=-1)), 2, axis=-1)
        return Latents(mean, tf.nn.softplus(scale))


class FreeLatents(LatentPosterior):
    """
    q(w_n) by a mean and a standard deviation of each point's own, for training on all points at once: what
    an encoder can at most reach.

    >>> q = gd.posteriors.FreeLatents(num_data=len(X))
    >>> q.condition(tf.constant(X), tf.constant(Y)).scale.shape
    TensorShape([20, 1])

    :param num_data: number of points, N, in the order of the data.
    :param latent_dim: W.
    :param seed: of the initial means, near zero; the standard deviations are near one.
    """

    def __init__(
        self, num_data: int, latent_dim: int = 1, *, seed: int = 0, name: str | None = None
    ) -> None:
        super().__init__(latent_dim, name=name)
        self.num_data = check_positive_integer(num_data, "num_data")
        shape, dtype = (self.num_data, self.latent_dim), gpflow.default_float()
        rng = np.random.default_rng(check_seed(seed))
        self.mean = Parameter(0.1 * rng.standard_normal(shape), dtype=dtype)
        self.scale = Parameter(np.ones(shape), transform=positive(lower=0.0), dtype=dtype)

    def condition(self, X: tf.Tensor, Y: tf.Tensor) -> Latents:
        del Y
        expected = (
            f"latents: expected all {self.num_data} points at once, as each has a posterior of its own"
            " (batch_size=None in fit, and no validation_fraction); use EncodedLatents for batches"
        )
        if X.shape[0] not in (None, self.num_data):
            raise ValueError(f"{expected}; got {X.shape[0]}.")
        N = tf.shape(X)[0]
        rows = tf.debugging.assert_equal(N, self.num_data, f"{expected}.")
        with tf.control_dependencies([] if rows is None else [rows]):
            # Rows of a number that is known only then: from that of the parameters TensorFlow would work out
            # shapes that wait for no assertion, and targets would fail to broadcast to them first.
            return Latents(self.mean[:N], self.scale[:N])
