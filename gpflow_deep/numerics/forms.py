"""
Quadratic and bilinear forms evaluated at many points at once: the hot path of training.

Each keeps the one product with a big matrix that the gradient needs again, so that a symmetric form costs
two matrix products forward and backward instead of three, and no temporary larger than [points, GPs, M] is
ever alive.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import tensorflow as tf
from check_shapes import check_shapes

from .linalg import leading_shape

__all__ = [
    "bilinear_forms",
    "covariance_forms",
    "diagonal_forms",
    "pair_forms",
    "quadratic_forms",
]


def _contract_last(W: tf.Tensor, A: tf.Tensor) -> tf.Tensor:
    """``sum_m W[..., p, m] A[..., m]``; a reduction beats a batched product with one row only."""
    if W.shape[-2] == 1:
        return tf.reduce_sum(W * A[..., None, :], axis=-1)
    return tf.matmul(W, A[..., None])[..., 0]


@check_shapes(
    "A: [S, N, M]",
    "C: [P, M, M]",
    "return: [S, N, P]",
)
def quadratic_forms(A: tf.Tensor, C: tf.Tensor) -> tf.Tensor:
    """
    ``a^T C_p a`` for every row a of ``A`` and every **symmetric** ``C_p``.

    Symmetry makes the gradient with respect to a twice the product already at hand.
    """
    num_forms, M = C.shape[0], C.shape[-1]

    @tf.custom_gradient
    def forms(A: tf.Tensor, C: tf.Tensor) -> tuple[tf.Tensor, Callable]:
        rows = tf.reshape(A, [-1, M])  # [S N, M]
        products = tf.matmul(rows, tf.reshape(C, [-1, M]), transpose_b=True)  # [S N, P M]
        W = tf.reshape(products, [-1, num_forms, M])  # [S N, P, M]

        def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            g = tf.reshape(upstream, [-1, num_forms])  # [S N, P]
            d_rows = 2.0 * tf.matmul(g[:, None, :], W)[:, 0, :]
            return tf.reshape(d_rows, tf.shape(A)), _weighted_gram(rows, g)

        return tf.reshape(_contract_last(W, rows), [*leading_shape(A), num_forms]), gradient

    return forms(A, C)


def _weighted_gram(rows: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
    """
    ``sum_n weights_np rows_n rows_n^T`` for rows [N, M] and weights [N, P]: symmetric, [P, M, M].

    By up to four strips, each from its diagonal block on: what is below is the transpose of what is above. Of
    transposed points, whose strips are slices of memory.
    """
    N, P, M = tf.shape(rows)[0], weights.shape[1], rows.shape[1]
    points, weights = tf.transpose(rows), tf.transpose(weights)[:, None, :]

    def strip(start: int, end: int) -> tf.Tensor:
        scaled = tf.reshape(weights * points[start:end], [P * (end - start), N])
        product = tf.matmul(scaled, points[start:], transpose_b=True)
        product = tf.reshape(product, [P, end - start, M - start])
        return tf.pad(product, [[0, 0], [0, 0], [start, 0]]) if start else product

    size = max(-(-M // 4), 32)
    strips = [strip(start, min(start + size, M)) for start in range(0, M, size)]
    upper = tf.concat(strips, axis=1)
    return tf.where(np.tri(M, dtype=bool).T, upper, tf.linalg.matrix_transpose(upper))


@check_shapes(
    "A: [S, N, M]",
    "C: [P, M, K]",
    "B: [R, N, K]",
    "return: [S, N, P]",
)
def bilinear_forms(A: tf.Tensor, C: tf.Tensor, B: tf.Tensor) -> tf.Tensor:
    """
    ``a^T C_p b`` for every pair of rows of ``A`` and ``B`` and every ``C_p``.

    ``B`` has R = S rows a point, or R = 1 where all samples share it: the products with C are then
    computed for N points, not for S N.
    """
    num_forms, M, K = C.shape
    shared = B.shape[0] == 1

    @tf.custom_gradient
    def forms(A: tf.Tensor, C: tf.Tensor, B: tf.Tensor) -> tuple[tf.Tensor, Callable]:
        rows = tf.reshape(B, [-1, K])  # [R N, K]
        stacked = tf.reshape(C, [-1, K])  # [P M, K]
        products = tf.matmul(rows, stacked, transpose_b=True)  # [R N, P M]
        if shared:
            # The samples of a point meet its products in one small matrix product.
            by_point = tf.transpose(A, [1, 0, 2])  # [N, S, M]
            W = tf.reshape(products, [-1, num_forms, M])  # [N, P, M]
            value = tf.transpose(tf.matmul(by_point, W, transpose_b=True), [1, 0, 2])
        else:
            W = tf.reshape(products, [*leading_shape(A), num_forms, M])  # [S, N, P, M]
            value = _contract_last(W, A)

        def gradient(g: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
            if shared:
                g = tf.transpose(g, [1, 0, 2])  # [N, S, P]
                d_A = tf.transpose(tf.matmul(g, W), [1, 0, 2])
                d_W = tf.matmul(g, by_point, transpose_a=True)  # [N, P, M]
            else:
                d_A = tf.matmul(g[..., None, :], W)[..., 0, :]
                d_W = g[..., None] * A[..., None, :]  # [S, N, P, M]
            d_products = tf.reshape(d_W, [-1, num_forms * M])
            d_C = tf.matmul(d_products, rows, transpose_a=True)
            d_B = tf.matmul(d_products, stacked)
            return d_A, tf.reshape(d_C, [num_forms, M, K]), tf.reshape(d_B, tf.shape(B))

        return value, gradient

    return forms(A, C, B)


def diagonal_forms(A: tf.Tensor, C: tf.Tensor, B: tf.Tensor) -> tf.Tensor:
    """
    ``a_t^T C_t b_t`` for t = 1..T: covariances between GPs of the same index in two layers.

    :param A: basis of one layer, [S, N, M], or [S, N, T', M] with T' >= T where every GP has its own.
    :param C: covariance blocks, [T, M, K].
    :param B: basis of the other layer, [R, N, K] or [R, N, T', K], with R = S or 1.
    :return: [S, N, T].
    """
    if A.shape.rank == 3 and B.shape.rank == 3:
        return bilinear_forms(A, C, B)
    num_gps = C.shape[0]
    if B.shape.rank == 3:
        products = tf.einsum("tmk,rnk->rntm", C, B)
    else:
        products = tf.einsum("tmk,rntk->rntm", C, B[:, :, :num_gps])
    return tf.reduce_sum(_per_gp(A, num_gps) * products, axis=-1)


def pair_forms(A: tf.Tensor, C: tf.Tensor, B: tf.Tensor) -> tf.Tensor:
    """
    ``a_t^T C_tu b_u`` for all t = 1..T, u = 1..U: covariances between all GPs of two layers.

    :param A: [S, N, M], or [S, N, T, M] where every GP has its own basis.
    :param C: [T, U, M, K].
    :param B: [R, N, K] or [R, N, U, K], with R = S or 1.
    :return: [S, N, T, U].
    """
    T, U, M, K = C.shape
    if A.shape.rank == 3 and B.shape.rank == 3:
        flat = bilinear_forms(A, tf.reshape(C, [T * U, M, K]), B)
        return tf.reshape(flat, [*leading_shape(flat), T, U])
    if B.shape.rank == 3:
        products = tf.einsum("tumk,rnk->rntum", C, B)
    else:
        products = tf.einsum("tumk,rnuk->rntum", C, B[:, :, :U])
    return tf.reduce_sum(_per_gp(A, T)[..., None, :] * products, axis=-1)


def covariance_forms(A: tf.Tensor, C: tf.Tensor) -> tf.Tensor:
    """
    ``a_t^T C_tu a_u`` for all pairs of GPs of one layer, where ``C_ut = C_tu^T``.

    :param A: [S, N, M], or [S, N, T, M] where every GP has its own basis.
    :param C: [T, T, M, M].
    :return: [S, N, T, T], symmetric.
    """
    T = C.shape[0]
    if A.shape.rank == 4:
        return pair_forms(A, C, A)
    # One basis for all GPs: only the symmetric part of C_tu counts, and only the pairs t >= u.
    rows = [t for t in range(T) for _ in range(t + 1)]
    columns = [u for t in range(T) for u in range(t + 1)]
    lower = tf.gather_nd(C, list(zip(rows, columns)))  # [T (T + 1) / 2, M, M]
    forms = quadratic_forms(A, 0.5 * (lower + tf.linalg.matrix_transpose(lower)))
    # By a product: the gradient of a gather from the last axis is far slower.
    full = np.zeros([len(rows), T, T])
    full[range(len(rows)), rows, columns] = full[range(len(rows)), columns, rows] = 1.0
    flat = tf.reshape(forms, [-1, len(rows)]) @ tf.constant(full.reshape(-1, T * T), forms.dtype)
    return tf.reshape(flat, [*leading_shape(forms), T, T])


def _per_gp(basis: tf.Tensor, num_gps: int) -> tf.Tensor:
    """The bases of the first ``num_gps`` GPs, with an axis for them: [S, N, 1 or num_gps, M]."""
    return basis[:, :, None, :] if basis.shape.rank == 3 else basis[:, :, :num_gps, :]
