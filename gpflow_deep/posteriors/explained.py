"""What is known of a layer's function values through its inducing outputs."""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

from ..layers import GPLayer
from ..numerics.linalg import rows_times

__all__ = ["Explained", "explain_by_outputs", "independent_covariances"]

# Rounding makes variances at inducing inputs zero or negative; from here on square roots have gradients.
_LEAST_VARIANCE = 1e-24


class Explained(NamedTuple):
    """
    What a layer's posterior says about function values whose covariance with the inducing outputs is K_MN,
    the inducing outputs integrated out: their mean, less the mean function's, and their covariance, which is
    the prior's plus added^T added less removed^T removed.

    K is T where every GP has its own kernel, else 1.
    """

    mean: tf.Tensor  # [S, N, T]
    removed: tf.Tensor  # [S, K or T, M, N]
    added: tf.Tensor | None  # [S, T, R, N]
    coupled: bool = False  # whether ``added`` of different GPs are of the same R noises

    def variance(self, prior: tf.Tensor) -> tf.Tensor:
        """The variances [S, N, T], for the prior's [S, K, N]."""
        change = -tf.reduce_sum(tf.square(self.removed), axis=-2)
        if self.added is not None:
            change += tf.reduce_sum(tf.square(self.added), axis=-2)
        variance = tf.linalg.matrix_transpose(tf.maximum(prior + change, _LEAST_VARIANCE))
        return tf.broadcast_to(variance, tf.shape(self.mean))

    def covariance(self, prior: tf.Tensor) -> tf.Tensor:
        """Likewise over all points jointly: [S, K or T, N, N], for the prior's [S, K, N, N]."""
        covariance = prior - tf.matmul(self.removed, self.removed, transpose_a=True)
        if self.added is not None:
            covariance += tf.matmul(self.added, self.added, transpose_a=True)
        return covariance

    def full_covariance(self, prior: tf.Tensor) -> tf.Tensor:
        """Likewise over all points and outputs: [S, N, T, N, T]."""
        num_outputs = self.mean.shape[-1]
        if self.added is None or not self.coupled:
            return independent_covariances(self.covariance(prior), num_outputs)
        covariance = independent_covariances(
            self._replace(added=None).covariance(prior), num_outputs
        )
        return covariance + tf.einsum("spri,sqrj->sipjq", self.added, self.added)


def explain_by_outputs(
    layer: GPLayer,
    inputs: tf.Tensor,
    factor: tf.Tensor,
    inducing_outputs: tf.Tensor,
    output_factor: tf.Tensor | None = None,
) -> Explained:
    """
    What inducing outputs say of a layer's functions over all inputs.

    :param inputs: [S, N, D].
    :param factor: what :meth:`GPLayer.factorise` returned.
    :param inducing_outputs: draws, or the mean where they are integrated out, [S or 1, T, M].
    :param output_factor: of their covariance then, [T, M, R], with R = M noises of each GP's own, or R > M
        that all GPs have in common.
    """
    A, basis = layer.joint_projection(inputs, factor)  # [S, K, M, N]
    mean = tf.linalg.matrix_transpose(rows_times(inducing_outputs, basis))
    if output_factor is None:
        return Explained(mean, A, None)
    added = tf.matmul(output_factor, basis, transpose_a=True)  # [S, T, R, N]
    return Explained(mean, A, added, output_factor.shape[-1] > output_factor.shape[-2])


def independent_covariances(covariances: tf.Tensor, num_outputs: int) -> tf.Tensor:
    """Covariances of the points [S, P or 1, N, N] as those of points and outputs: [S, N, P, N, P]."""
    by_point = tf.transpose(covariances, [0, 2, 3, 1])  # [S, N, N, P or 1]
    shape = tf.concat([tf.shape(by_point)[:-1], [num_outputs]], axis=0)
    return tf.transpose(tf.linalg.diag(tf.broadcast_to(by_point, shape)), [0, 1, 3, 2, 4])
