r"""
Expected squared exponentials under Gaussians: the hot path of moment matching.

K sets of P functions :math:`e^{a_p} \exp(-\tfrac12 (h - c_p)^T P (h - c_p))` of a Gaussian h. The logarithm
of the expectation is one matrix product of features of the points and features of the functions, so that P
of them at N points cost one product and one exponential. The products of two kernels at inducing inputs
that psi2 is made of are such functions too; for one kernel those of (z, z') and (z', z) are the same, and
only the pairs of a triangle are ever formed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from ..numerics.bijectors import PackedTriangular
from .gaussian import Gaussian

__all__ = [
    "Exponentials",
    "exponential_sums",
    "features",
    "lower_pairs",
    "pair_coefficients",
    "pairs",
    "products",
    "tilted_precision",
]


class Exponentials(NamedTuple):
    """K sets of P squared exponentials, those of a set of one precision."""

    log_amplitudes: tf.Tensor  # [K, P]
    centres: tf.Tensor  # [K, P, D]
    precision: tf.Tensor  # [K, D], the diagonal of P


def tilted_precision(precision: tf.Tensor, gaussian: Gaussian) -> tf.Tensor:
    """Q = (P^-1 + S)^-1 for P = diag(``precision`` [K, D]): [K, N, D, D], or [K, N, D] if S is diagonal."""
    P = precision[:, None, :]
    if gaussian.is_diagonal:
        return P / (1.0 + gaussian.covariance * P)
    root = tf.sqrt(P)
    wide, _ = _tilting(root, gaussian)
    identity = tf.eye(root.shape[-1], dtype=wide.dtype, batch_shape=tf.shape(wide)[:-2])
    inner = tf.cast(tf.linalg.cholesky_solve(wide, identity), root.dtype)
    return root[..., :, None] * inner * root[..., None, :]


def _tilting(root: tf.Tensor, gaussian: Gaussian) -> tuple[tf.Tensor, tf.Tensor]:
    """Cholesky factor of I + P^1/2 S P^1/2 in float64, and the logarithm of its determinant."""
    scaled = root[..., :, None] * gaussian.covariance * root[..., None, :]  # [K, N, D, D]
    scaled = tf.cast(scaled, tf.float64)
    factor = tf.linalg.cholesky(scaled + tf.eye(root.shape[-1], dtype=tf.float64))
    return factor, 2.0 * tf.reduce_sum(tf.math.log(tf.linalg.diag_part(factor)), axis=-1)


def features(functions: Exponentials, gaussian: Gaussian) -> tuple[tf.Tensor, tf.Tensor]:
    """Features of the points [K, N, F] and of the functions [K, P, F]: log E[function] is their product."""
    precision = functions.precision
    # About a point amid the centres the products lose fewer digits to cancellation.
    shift = tf.stop_gradient(tf.reduce_mean(functions.centres, axis=1, keepdims=True))
    c = functions.centres - shift  # [K, P, D]
    mean = gaussian.mean - shift  # [K, N, D]
    Q = tilted_precision(precision, gaussian)
    if gaussian.is_diagonal:
        Q_mean = Q * mean
        log_determinant = tf.reduce_sum(
            tf.math.log1p(gaussian.covariance * precision[:, None, :]), axis=-1
        )
        quadratic, squares = Q, tf.square(c)
    else:
        Q_mean = tf.linalg.matvec(Q, mean)
        _, log_determinant = _tilting(tf.sqrt(precision[:, None, :]), gaussian)
        log_determinant = tf.cast(log_determinant, Q.dtype)
        D = c.shape[-1]
        quadratic = tf.reshape(Q, [*_shape(Q)[:2], D * D])
        squares = tf.reshape(c[..., :, None] * c[..., None, :], [*_shape(c)[:2], D * D])
    own = -0.5 * (tf.reduce_sum(mean * Q_mean, axis=-1) + log_determinant)[..., None]
    amplitudes = functions.log_amplitudes[..., None]
    points = tf.concat([Q_mean, -0.5 * quadratic, own, tf.ones_like(own)], axis=-1)
    return points, tf.concat([c, squares, tf.ones_like(amplitudes), amplitudes], axis=-1)


def exponential_sums(points: tf.Tensor, functions: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
    """
    ``sum_p exp(x_n . y_p) weights_pt`` for features x of N points and y of P functions.

    One [K, N, P] matrix is alive, the exponentials themselves: the gradients are products with it.

    :param points: x [K, N, F].
    :param functions: y [K, P, F].
    :param weights: [K, P, T].
    :return: [K, N, T].
    """
    single = weights.shape[-1] == 1

    @tf.custom_gradient
    def sums(x: tf.Tensor, y: tf.Tensor, w: tf.Tensor) -> tuple[tf.Tensor, Callable]:
        E = tf.exp(tf.matmul(x, y, transpose_b=True))

        def gradient(g: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
            if single:
                # Of G = E * (g w^T) the products with x and y are products with E.
                both = tf.matmul(tf.concat([g, g * x], axis=-1), E, transpose_a=True)
                both = tf.linalg.matrix_transpose(both)
                return g * tf.matmul(E, w * y), w * both[..., 1:], both[..., :1]
            G = E * tf.matmul(g, w, transpose_b=True)
            return (
                tf.matmul(G, y),
                tf.matmul(G, x, transpose_a=True),
                tf.matmul(E, g, transpose_a=True),
            )

        return tf.linalg.matvec(E, w[..., 0])[..., None] if single else tf.matmul(E, w), gradient

    return sums(points, functions, weights)


def lower_pairs(size: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows and columns of a lower triangle."""
    rows, columns = np.tril_indices(size)
    return rows.astype(np.int32), columns.astype(np.int32)


def pairs(log_amplitude: tf.Tensor, Z: tf.Tensor, precision: tf.Tensor) -> Exponentials:
    """
    The products of a kernel at the pairs z_i, z_j of its inducing inputs with i >= j.

    :param log_amplitude: [K].
    :param Z: [K, M, D].
    :param precision: [K, D].
    """
    rows, columns = lower_pairs(Z.shape[1])
    left, right = tf.gather(Z, rows, axis=1), tf.gather(Z, columns, axis=1)  # [K, P, D]
    apart = tf.reduce_sum(tf.square(left - right) * precision[:, None, :], axis=-1)
    amplitudes = 2.0 * log_amplitude[:, None] - 0.25 * apart
    return Exponentials(amplitudes, 0.5 * (left + right), 2.0 * precision)


def pair_coefficients(C: tf.Tensor) -> tf.Tensor:
    """Weights [..., P] of the pairs i >= j such that they sum to tr(C X) for symmetric X; C [..., M, M]."""
    M = C.shape[-1]
    total = C + tf.linalg.matrix_transpose(C)
    total = tf.linalg.set_diag(total, tf.linalg.diag_part(C))
    return PackedTriangular.lower(M).inverse(total)


def products(
    log_amplitude: tf.Tensor,
    Z: tf.Tensor,
    precision: tf.Tensor,
    other_log_amplitude: tf.Tensor,
    other_Z: tf.Tensor,
    other_precision: tf.Tensor,
) -> Exponentials:
    """
    The products of two kernels at all pairs of their inducing inputs, P = M M' in row-major order.

    :param log_amplitude: [K], and so the other kernel's.
    :param Z: [K, M, D]; the other's [K, M', D].
    :param precision: [K, D], and so the other's.
    """
    left, right = Z[:, :, None, :], other_Z[:, None, :, :]
    P, R = precision[:, None, None, :], other_precision[:, None, None, :]
    # A dimension on which neither kernel is active has no centre, and needs none.
    centres = tf.math.divide_no_nan(P * left + R * right, P + R)  # [K, M, M', D]
    apart = tf.square(left - right) * tf.math.divide_no_nan(P * R, P + R)
    amplitudes = (log_amplitude + other_log_amplitude)[:, None, None] - 0.5 * tf.reduce_sum(
        apart, axis=-1
    )
    K, M, R_, D = centres.shape
    return Exponentials(
        tf.reshape(amplitudes, [K, M * R_]),
        tf.reshape(centres, [K, M * R_, D]),
        precision + other_precision,
    )


def _shape(x: tf.Tensor) -> list[tf.Tensor]:
    dynamic = tf.shape(x)
    return [dynamic[i] if size is None else size for i, size in enumerate(x.shape)]
