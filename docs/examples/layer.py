"""A layer of one's own: features with trainable frequencies, as a step of a network."""

from __future__ import annotations

from collections.abc import Generator

import gpflow
import numpy as np
import tensorflow as tf

from gpflow_deep.layers.bayesian import NetworkLayer


class Waves(NetworkLayer):
    """
    sin and cos of linear functions of the input, their frequencies trained with all else.

    :param num_waves: how many of each.
    :param seed: of the initial frequencies.
    """

    def __init__(self, num_waves: int, *, seed: int = 0, name: str | None = None) -> None:
        super().__init__(name=name)
        self.num_waves, self.seed = num_waves, seed

    def _connect(self, input_shape: tuple[int, ...]) -> tuple[int, ...]:
        """Now the shape of the inputs is known, and so that of the parameters."""
        self._expect(input_shape, 1, "vectors")
        rng = np.random.default_rng(self.seed)
        self.frequencies = gpflow.Parameter(rng.normal(size=(input_shape[0], self.num_waves)))
        return (2 * self.num_waves,)

    def walk(self, X: tf.Tensor) -> Generator[tf.Tensor, tf.Tensor, tf.Tensor]:
        """From [S, N, D] to [S, N, 2 num_waves]."""
        yield from ()  # nothing random on the way
        phase = tf.einsum("snd,dw->snw", X, self.frequencies)
        return tf.concat([tf.sin(phase), tf.cos(phase)], axis=-1)
