"""
Design matrices: the inputs of a Bayesian layer's units at its inducing points, by what a Gaussian posterior
of the weights needs of them. Those of a convolution are never written out.

Shapes: S draws of the inducing inputs (or one), K sets of precisions, M inducing points, D inputs of a unit.
"""

from __future__ import annotations

from typing import Protocol

import tensorflow as tf

from ...numerics.linalg import gram, rows_times, weighted_grams
from .precisions import Precision

__all__ = ["Design", "ExplicitDesign"]


class Design(Protocol):
    """A design matrix X, of one row for each observation of a unit's output."""

    @property
    def num_observations(self) -> int:
        """How many rows it has."""

    @property
    def fan_in(self) -> int:
        """How many columns it has, D."""

    @property
    def dtype(self) -> tf.DType:
        """Of its numbers, and of the sums over its rows."""

    def scale(self, roots: tf.Tensor) -> Design:
        """The rows of each inducing point times a number: [K, M]."""

    def gram(self) -> tf.Tensor:
        """X^T X: [S, K, D, D]."""

    def project(self, rows: tf.Tensor) -> tf.Tensor:
        """``rows`` X, for [S or 1, T, observations], K = 1 or T: [S, T, D]."""


class ExplicitDesign:
    """
    A design matrix as it is, but for its rows' scales.

    :param matrix: [S, 1, M, D].
    :param roots: what its rows are multiplied by, [K, M]; one by default.
    """

    def __init__(self, matrix: tf.Tensor, roots: tf.Tensor | None = None) -> None:
        self.matrix = matrix
        self._roots = roots

    @property
    def num_observations(self) -> int:
        """M."""
        return int(self.matrix.shape[2])

    @property
    def fan_in(self) -> int:
        """D."""
        return int(self.matrix.shape[3])

    @property
    def dtype(self) -> tf.DType:
        """See :class:`Design`."""
        return self.matrix.dtype

    def cast(self, dtype: tf.DType) -> ExplicitDesign:
        """In another dtype, before its rows are scaled."""
        return type(self)(tf.cast(self.matrix, dtype))

    def whiten(self, precision: Precision) -> ExplicitDesign:
        """As it meets white weights, for K = 1."""
        return type(self)(precision.whiten(self.matrix[:, 0])[:, None])

    def scale(self, roots: tf.Tensor) -> ExplicitDesign:
        """See :class:`Design`."""
        return ExplicitDesign(self.matrix, roots)

    def gram(self) -> tf.Tensor:
        """See :class:`Design`."""
        if self._roots is None:
            return gram(self.matrix)
        if self.fan_in <= 2 * self._roots.shape[0]:
            return weighted_grams(self.matrix[:, 0], tf.square(self._roots))
        return gram(self.matrix * self._roots[..., None])

    def project(self, rows: tf.Tensor) -> tf.Tensor:
        """See :class:`Design`."""
        return rows_times(rows if self._roots is None else rows * self._roots, self.matrix)
