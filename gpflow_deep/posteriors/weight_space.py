r"""
The Gaussian posterior of white weights given pseudo-observations, in weight space: where a unit has fewer
inputs than there are pseudo-observations, the smaller of two forms of one thing
(:class:`~gpflow_deep.posteriors.PseudoObservations` has the other).
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import tensorflow as tf

from ..numerics.factorisations import inverse_root
from ..numerics.linalg import rows_times, shared_product, solve_rows, squared_norms

__all__ = ["WeightSpace", "WhiteWeights"]


class WhiteWeights(Protocol):
    """The posterior of weights that are N(0, I) under the prior: a named tuple of tensors."""

    def sample(self, noise: tuple[tf.Tensor, ...]) -> tf.Tensor:
        """Draws of the weights [S, T, D] from standard normals."""

    def log_ratio(self, weights: tf.Tensor, noise: tuple[tf.Tensor, ...] = ()) -> tf.Tensor:
        """log p(w) - log q(w) at draws [S, T, D]: [S]. The noise of the draws, where known, saves time."""

    def prior_kl(self) -> tf.Tensor:
        """KL divergence from the prior: [S], or [1] for all draws."""

    def moments(self, features: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """
        Mean and variance [S, N, T] of the units' outputs, the weights integrated out.

        :param features: inputs, as they meet white weights: [S, N, D].
        """

    def joint_moments(self, features: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Likewise with the covariance over the points: [S, 1 or T, N, N]."""


class WeightSpace(NamedTuple):
    r"""
    In terms of :math:`C C^T = I + X^T \Lambda X` for white weights w with prior N(0, I): covariance
    :math:`(C C^T)^{-1}`, mean :math:`C^{-T} C^{-1} X^T \Lambda v` (Ober & Aitchison 2021, Eqs. 10 and 11).

    Shapes: S draws, K = T units where each has its own precisions, else 1.
    """

    inverse: tf.Tensor  # C^-1: [S, K, D, D]
    log_det: tf.Tensor  # log |C^-1|: [S, K]
    scaled: tf.Tensor  # C^-1 X^T Lambda v: [S, T, D]
    mean: tf.Tensor  # [S, T, D]

    @classmethod
    def from_statistics(cls, gram: tf.Tensor, cross: tf.Tensor, name: str) -> WeightSpace:
        """
        From sums over the pseudo-observations.

        :param gram: X^T Lambda X [S, K, D, D].
        :param cross: X^T Lambda v [S, T, D].
        :param name: of the posterior, for error messages.
        """
        precision = gram + tf.eye(gram.shape[-1], dtype=gram.dtype)
        # No eigenvalue is below 1: this inverse loses nothing.
        inverse, log_det = inverse_root(precision, f"I + X^T Lambda X of {name}", {})
        scaled = rows_times(cross, inverse, transpose=True)
        return cls(inverse, log_det, scaled, rows_times(scaled, inverse))

    def sample(self, noise: tuple[tf.Tensor, ...]) -> tf.Tensor:
        """Draws of the weights [S, T, D] from standard normals of that shape."""
        return rows_times(self.scaled + noise[0], self.inverse)

    def log_ratio(self, weights: tf.Tensor, noise: tuple[tf.Tensor, ...] = ()) -> tf.Tensor:
        """log p(w) - log q(w) at draws [S, T, D]: [S]. The noise of the draws, where known, saves time."""
        if noise:
            (normals,) = noise
        else:
            normals = solve_rows(self.inverse, weights, transpose=True) - self.scaled
        squares = tf.reduce_sum(tf.square(normals) - tf.square(weights), axis=[1, 2])
        return 0.5 * squares + self._log_det_scale()

    def prior_kl(self) -> tf.Tensor:
        """KL divergence from the prior: [S], or [1] for all draws."""
        traces = tf.reduce_sum(squared_norms(self.inverse), axis=[1, 2])
        size = tf.cast(tf.reduce_prod(tf.shape(self.mean)[1:]), self.mean.dtype)
        squares = tf.reduce_sum(tf.square(self.mean), axis=[1, 2])
        return 0.5 * (squares + self._copies() * traces - size) - self._log_det_scale()

    def _log_det_scale(self) -> tf.Tensor:
        """log |C^-1|, over all units."""
        return self._copies() * tf.reduce_sum(self.log_det, axis=1)

    def _copies(self) -> int:
        """How many units share one C."""
        return int(self.scaled.shape[1] // self.inverse.shape[1])

    def _mean_and_scale(self, features: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """[S, N, T], and C^-1 x for every point [S, K, N, D]."""
        # The gradient of an index would write all of the features anew.
        features = tf.expand_dims(features, 1)
        # By C^-1 X^T Lambda v, whose digits cancel, it would be less exact.
        mean = rows_times(self.mean, features, transpose=True)
        scale = shared_product(features, self.inverse, transpose=True)
        return tf.linalg.matrix_transpose(mean), scale

    def moments(self, features: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """
        Mean and variance [S, N, T] of the units' outputs, the weights integrated out.

        :param features: inputs, as they meet white weights: [S, N, D].
        """
        mean, scale = self._mean_and_scale(features)
        variance = tf.linalg.matrix_transpose(squared_norms(scale))
        return mean, tf.broadcast_to(variance, tf.shape(mean))

    def joint_moments(self, features: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Likewise with the covariance over the points: [S, K, N, N]."""
        mean, scale = self._mean_and_scale(features)
        return mean, tf.matmul(scale, scale, transpose_b=True)
