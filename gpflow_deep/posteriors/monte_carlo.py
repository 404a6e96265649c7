"""Sampling the inducing outputs, instead of marginalising them."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from ..layers import Projection
from .base import Conditional, Recursion

__all__ = ["MonteCarloRecursion"]


class MonteCarloRecursion(Recursion):
    """
    A pass through the layers given draws of all inducing outputs, one for every sample: the layers are
    then independent (Havasi et al. 2018; the comparison of Lindinger et al. 2020, Figure 2).

    :param inducing_outputs: per layer [S, T, M].
    :param prior_factors: per layer the Cholesky factor of their prior covariance, ``None`` for the identity.
    """

    def __init__(
        self,
        inducing_outputs: Sequence[tf.Tensor],
        prior_factors: Sequence[tf.Tensor | None],
        jitter: float,
    ) -> None:
        super().__init__(jitter)
        self._remaining = zip(inducing_outputs, prior_factors)

    def condition(self, projection: Projection) -> Conditional:
        v, factor = next(self._remaining)  # [S, T, M]
        if projection.basis.shape.rank == 3:
            mean = tf.matmul(projection.basis, v, transpose_b=True)
        else:
            mean = tf.reduce_sum(projection.basis * v[:, None], axis=-1)
        mean += projection.mean
        # The variance that v explains is |factor^T a|^2.
        shared = projection.basis.shape.rank == 3
        a = tf.expand_dims(projection.basis, 2) if shared else projection.basis  # [S, N, 1 or T, M]
        if factor is not None:
            factor = factor if factor.shape.rank == 3 else tf.expand_dims(factor, 0)
            a = tf.squeeze(tf.matmul(tf.expand_dims(a, -2), factor), axis=-2)
        explained = tf.reduce_sum(tf.square(a), axis=-1)
        variance = tf.maximum(projection.variance - explained, 0.0)
        self._conditional = Conditional(mean, variance + tf.zeros_like(mean))
        return self._conditional

    def sample(self, noise: tf.Tensor) -> tf.Tensor:
        mean, variance = self._conditional
        return mean + tf.sqrt(variance + self.jitter) * noise
