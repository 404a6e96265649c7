"""The squared exponential covariance as one matrix product, with a gradient of few operations."""

from __future__ import annotations

__all__ = ["squared_exponential"]

from collections.abc import Callable

import tensorflow as tf


def squared_exponential(
    Z: tf.Tensor, X: tf.Tensor, lengthscales: tf.Tensor, variance: tf.Tensor
) -> tf.Tensor:
    r"""
    :math:`\sigma^2 \exp(-\tfrac12 \sum_d (z_d - x_d)^2 / \ell_d^2)` for all pairs of rows, all in one dtype.

    :param Z: [..., M, D].
    :param X: [..., N, D], whose leading axes broadcast with those of ``Z``.
    :param lengthscales: [] or [D].
    :param variance: [].
    :return: [..., M, N].
    """

    @tf.custom_gradient
    def covariance(
        Z: tf.Tensor, X: tf.Tensor, lengthscales: tf.Tensor, variance: tf.Tensor
    ) -> tuple[tf.Tensor, Callable]:
        # The kernel is stationary: about Z's mean the products lose fewer digits to cancellation.
        centre = tf.reduce_mean(Z, axis=-2, keepdims=True)
        z, x = (Z - centre) / lengthscales, (X - centre) / lengthscales
        halves_z, halves_x = (
            -0.5 * tf.reduce_sum(tf.square(scaled), axis=-1, keepdims=True) for scaled in (z, x)
        )
        left = tf.concat([z, halves_z + tf.math.log(variance), tf.ones_like(halves_z)], axis=-1)
        right = tf.concat([x, tf.ones_like(halves_x), halves_x], axis=-1)  # [..., N, D + 2]
        K = tf.exp(tf.matmul(left, right, transpose_b=True))

        def gradient(upstream: tf.Tensor) -> list[tf.Tensor]:
            g = upstream * K
            D = Z.shape[-1]
            dz, row_sums, _ = tf.split(tf.matmul(g, right), [D, 1, 1], axis=-1)
            dx, _, column_sums = tf.split(tf.matmul(g, left, transpose_a=True), [D, 1, 1], axis=-1)
            dz, dx = dz - row_sums * z, dx - column_sums * x
            of_lengthscales = [
                tf.reduce_sum(dy * y, axis=list(range(dy.shape.rank - lengthscales.shape.rank)))
                for dy, y in ((dz, z), (dx, x))
            ]
            return [
                _sum_as(Z, dz) / lengthscales,
                _sum_as(X, dx) / lengthscales,
                -tf.add_n(of_lengthscales) / lengthscales,
                tf.reduce_sum(row_sums) / variance,
            ]

        return K, gradient

    return covariance(Z, X, lengthscales, variance)


def _sum_as(argument: tf.Tensor, gradient: tf.Tensor) -> tf.Tensor:
    """A gradient [..., N, D], summed over the leading axes that its argument was broadcast along."""
    leading, own = gradient.shape[:-2], argument.shape[:-2]
    if leading.is_fully_defined() and leading == own:
        return gradient
    axes = tf.raw_ops.BroadcastGradientArgs(s0=tf.shape(argument), s1=tf.shape(gradient)).r0
    return tf.reshape(tf.reduce_sum(gradient, axis=axes), tf.shape(argument))
