"""Fully connected layers with random weights."""

from __future__ import annotations

import tensorflow as tf

from .base import BayesianLayer, Shape
from .designs import ExplicitDesign
from .priors import WeightPrior

__all__ = ["BayesianDense"]


class BayesianDense(BayesianLayer):
    """
    A fully connected layer with random weights, without an activation.

    >>> layer = gd.layers.BayesianDense(8)
    >>> layer.connect((3,))
    (8,)
    >>> layer.fan_in  # the constant included
    4

    :param num_outputs: number of units, T.
    :param prior: see :class:`~gpflow_deep.layers.bayesian.BayesianLayer`.
    :param bias: whether the units have a bias, which counts as one of their D inputs.
    """

    def __init__(
        self,
        num_outputs: int,
        prior: str | WeightPrior = "neal",
        bias: bool = True,
        *,
        name: str | None = None,
    ) -> None:
        super().__init__(num_outputs, prior, bias, name=name)

    @property
    def fan_in(self) -> int:
        """Inputs of a unit, the constant included."""
        return self.input_dim + self.bias

    def _connect(self, input_shape: Shape) -> Shape:
        self._expect(input_shape, 1, "vectors (put Flatten before it)")
        return (self.num_outputs,)

    def features(self, X: tf.Tensor) -> tf.Tensor:
        """Inputs as the weights meet them: [S, N, D]."""
        if not self.bias:
            return X
        return tf.concat([X, tf.ones_like(X[..., :1])], axis=-1)

    def design(self, X: tf.Tensor) -> ExplicitDesign:
        """See :meth:`BayesianLayer.design`."""
        return ExplicitDesign(self.features(X)[:, None])

    def apply(self, X: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
        """See :meth:`BayesianLayer.apply`."""
        return tf.matmul(self.features(X), weights, transpose_b=True)
