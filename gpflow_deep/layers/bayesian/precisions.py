r"""
The prior precision of a unit's weights, :math:`P = G G^T` with G lower triangular, by what it does to
rows of numbers: weights w are :math:`G^{-T}` times white ones, and inputs x meet white weights as
:math:`G^{-1} x`.

Shapes: S draws of the precision (or one), D inputs of a unit. Rows are [S or 1, R, D].
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import tensorflow as tf

from ...numerics.linalg import leading_shape

__all__ = ["Isotropic", "Precision", "Spatial"]


class Precision(Protocol):
    """The precision of the weights of one unit; all units of a layer have the same."""

    def whiten(self, inputs: tf.Tensor) -> tf.Tensor:
        """Inputs x in rows as they meet white weights: rows G^-T."""

    def unwhiten(self, weights: tf.Tensor) -> tf.Tensor:
        """White weights in rows as weights: rows G^-1."""

    def whiten_weights(self, weights: tf.Tensor) -> tf.Tensor:
        """The inverse of :meth:`unwhiten`: rows G."""

    def whiten_gram(self, gram: tf.Tensor) -> tf.Tensor:
        """G^-1 A G^-T for symmetric matrices A [S or 1, K, D, D]."""

    def log_det_root(self, fan_in: int) -> tf.Tensor:
        """log |G|: [S]."""

    def diagonal(self, fan_in: int) -> tf.Tensor:
        """The diagonal of P: [S, D]."""


class Isotropic(NamedTuple):
    """One precision for all weights: G = sqrt(precision) I."""

    precision: tf.Tensor  # [S]

    def _scaled(self, rows: tf.Tensor, power: float) -> tf.Tensor:
        return rows * tf.pow(self.precision, power)[:, None, None]

    def whiten(self, inputs: tf.Tensor) -> tf.Tensor:
        """See :class:`Precision`."""
        return self._scaled(inputs, -0.5)

    def unwhiten(self, weights: tf.Tensor) -> tf.Tensor:
        """See :class:`Precision`."""
        return self._scaled(weights, -0.5)

    def whiten_weights(self, weights: tf.Tensor) -> tf.Tensor:
        """See :class:`Precision`."""
        return self._scaled(weights, 0.5)

    def whiten_gram(self, gram: tf.Tensor) -> tf.Tensor:
        """See :class:`Precision`."""
        return gram / self.precision[:, None, None, None]

    def log_det_root(self, fan_in: int) -> tf.Tensor:
        """See :class:`Precision`."""
        return 0.5 * fan_in * tf.math.log(self.precision)

    def diagonal(self, fan_in: int) -> tf.Tensor:
        """See :class:`Precision`."""
        return tf.tile(self.precision[:, None], [1, fan_in])


class Spatial(NamedTuple):
    """
    The weights of one input channel share a precision over the p positions of the kernel: P = I kron Q over
    the channels, and behind them one more for the bias, where there is one.
    """

    factor: tf.Tensor  # of Q, lower triangular: [S, p, p]
    bias: tf.Tensor  # root of the bias' precision: [S]

    @property
    def _inverse(self) -> tf.Tensor:
        eye = tf.eye(self.factor.shape[-1], dtype=self.factor.dtype)
        return tf.linalg.triangular_solve(self.factor, tf.broadcast_to(eye, tf.shape(self.factor)))

    def _by_channel(self, rows: tf.Tensor, matrix: tf.Tensor, bias: tf.Tensor) -> tf.Tensor:
        """Rows times the matrix [S, p, p], channel by channel, and the last column times ``bias`` [S]."""
        p, D = self.factor.shape[-1], rows.shape[-1]
        channels = D // p * p
        groups = tf.reshape(rows[..., :channels], [tf.shape(rows)[0], -1, p])
        product = tf.matmul(groups, matrix)
        product = tf.reshape(product, [tf.shape(product)[0], tf.shape(rows)[1], channels])
        if D == channels:
            return product
        return tf.concat([product, rows[..., channels:] * bias[:, None, None]], axis=-1)

    def whiten(self, inputs: tf.Tensor) -> tf.Tensor:
        """See :class:`Precision`."""
        return self._by_channel(inputs, tf.linalg.matrix_transpose(self._inverse), 1.0 / self.bias)

    def unwhiten(self, weights: tf.Tensor) -> tf.Tensor:
        """See :class:`Precision`."""
        return self._by_channel(weights, self._inverse, 1.0 / self.bias)

    def whiten_weights(self, weights: tf.Tensor) -> tf.Tensor:
        """See :class:`Precision`."""
        return self._by_channel(weights, self.factor, self.bias)

    def whiten_gram(self, gram: tf.Tensor) -> tf.Tensor:
        """See :class:`Precision`."""
        K, D = gram.shape[1], gram.shape[-1]
        for _ in range(2):
            rows = self.whiten(tf.reshape(gram, [leading_shape(gram)[0], K * D, D]))
            gram = tf.linalg.matrix_transpose(tf.reshape(rows, [-1, K, D, D]))
        return gram

    def log_det_root(self, fan_in: int) -> tf.Tensor:
        """See :class:`Precision`."""
        p = self.factor.shape[-1]
        by_channel = tf.reduce_sum(tf.math.log(tf.linalg.diag_part(self.factor)), axis=-1)
        return fan_in // p * by_channel + fan_in % p * tf.math.log(self.bias)

    def diagonal(self, fan_in: int) -> tf.Tensor:
        """See :class:`Precision`."""
        p = self.factor.shape[-1]
        by_position = tf.reduce_sum(tf.square(self.factor), axis=-1)
        by_channel = tf.tile(by_position, [1, fan_in // p])
        return tf.concat([by_channel, tf.square(self.bias)[:, None]], axis=-1)[:, :fan_in]
