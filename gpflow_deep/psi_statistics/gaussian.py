"""Gaussian inputs, one for each of N points."""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

__all__ = ["Gaussian"]


class Gaussian(NamedTuple):
    """
    N Gaussian vectors of dimension D, independent of each other.

    >>> gaussian = gd.psi_statistics.Gaussian(tf.constant(X), tf.ones_like(X))
    >>> gaussian.is_diagonal
    True
    """

    mean: tf.Tensor  # [N, D]
    covariance: tf.Tensor  # [N, D, D], or its diagonal [N, D] where the rest is zero

    @property
    def is_diagonal(self) -> bool:
        """Whether only the variances are there."""
        return self.covariance.shape.rank == 2

    @property
    def variance(self) -> tf.Tensor:
        """The variances [N, D]."""
        return self.covariance if self.is_diagonal else tf.linalg.diag_part(self.covariance)

    def times(self, x: tf.Tensor) -> tf.Tensor:
        """Covariance times vectors: ``x`` [N, D, K] to [N, D, K]."""
        if self.is_diagonal:
            return self.covariance[:, :, None] * x
        return tf.matmul(self.covariance, x)
