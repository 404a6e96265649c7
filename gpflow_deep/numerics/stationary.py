"""Stationary covariances as one matrix product and few passes over it, with a gradient of as few."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf
from gpflow.kernels import IsotropicStationary, Matern32, Matern52, SquaredExponential

__all__ = ["PROFILES", "Profile", "stationary_covariance"]


class Profile(NamedTuple):
    """
    A kernel of unit variance and lengthscales as a function k of s = ``scale`` r^2, r the distance of two
    inputs. Constants are apart, so that they multiply what is small.
    """

    scale: float
    factor: float
    evaluate: Callable[[tf.Tensor], tuple[tf.Tensor, tf.Tensor]]
    """k(s) and dk/ds / ``factor``; one tensor where they are the same."""


def _squared_exponential(s: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    value = tf.exp(s)
    return value, value


def _matern32(s: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    r = _root(s)
    slope = tf.exp(-r)
    return slope + r * slope, slope


def _matern52(s: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    r = _root(s)
    e = tf.exp(-r)
    part = r * e
    slope = e + part
    return slope + r * (part / 3.0), slope


def _root(s: tf.Tensor) -> tf.Tensor:
    """With a gradient at distance zero, which rounding may make negative."""
    return tf.sqrt(tf.maximum(s, 1e-36))


#: Not the Matern-1/2 kernel, whose derivative is infinite at distance zero.
PROFILES: dict[type[IsotropicStationary], Profile] = {
    SquaredExponential: Profile(-0.5, 1.0, _squared_exponential),
    Matern32: Profile(3.0, -0.5, _matern32),
    Matern52: Profile(5.0, -1.0 / 6.0, _matern52),
}


def stationary_covariance(
    profile: Profile, Z: tf.Tensor, X: tf.Tensor, lengthscales: tf.Tensor, variance: tf.Tensor
) -> tf.Tensor:
    r"""
    :math:`\sigma^2 k(\sum_d (z_d - x_d)^2 / \ell_d^2)` for all pairs of rows, all in one dtype.

    :param profile: of the kernel k.
    :param Z: [..., M, D].
    :param X: [..., N, D], whose leading axes broadcast with those of ``Z``.
    :param lengthscales: [], [1] or [D].
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
        squares_z, squares_x = (
            profile.scale * tf.reduce_sum(tf.square(scaled), axis=-1, keepdims=True)
            for scaled in (z, x)
        )
        double = 2.0 * profile.scale
        left = tf.concat([z, squares_z, tf.ones_like(squares_z)], axis=-1)
        right = tf.concat([-double * x, tf.ones_like(squares_x), squares_x], axis=-1)
        value, slope = profile.evaluate(tf.matmul(left, right, transpose_b=True))

        def gradient(upstream: tf.Tensor) -> list[tf.Tensor]:
            g = upstream * slope
            D = Z.shape[-1]
            dz, row_sums, _ = tf.split(tf.matmul(g, right), [D, 1, 1], axis=-1)
            dx, _, column_sums = tf.split(tf.matmul(g, left, transpose_a=True), [D, 1, 1], axis=-1)
            weight = profile.factor * variance
            dz, dx = (
                weight * (dz + double * row_sums * z),
                (weight * double) * (column_sums * x - dx),
            )
            of_lengthscales = [
                tf.reduce_sum(dy * y, axis=list(range(dy.shape.rank - lengthscales.shape.rank)))
                for dy, y in ((dz, z), (dx, x))
            ]
            return [
                _sum_as(Z, dz) / lengthscales,
                _sum_as(X, dx) / lengthscales,
                -tf.add_n(of_lengthscales) / lengthscales,
                tf.reduce_sum(row_sums if slope is value else upstream * value),
            ]

        return variance * value, gradient

    if lengthscales.shape == [1]:  # one for all D inputs, as GPflow takes it
        lengthscales = lengthscales[0]
    return covariance(Z, X, lengthscales, variance)


def _sum_as(argument: tf.Tensor, gradient: tf.Tensor) -> tf.Tensor:
    """A gradient [..., N, D], summed over the leading axes that its argument was broadcast along."""
    leading, own = gradient.shape[:-2], argument.shape[:-2]
    if leading.is_fully_defined() and leading == own:
        return gradient
    axes = tf.raw_ops.BroadcastGradientArgs(s0=tf.shape(argument), s1=tf.shape(gradient)).r0
    return tf.reshape(tf.reduce_sum(gradient, axis=axes), tf.shape(argument))
