"""
The linear algebra that layers and posteriors share: quadratic and bilinear forms evaluated at many
points at once.

The forms are the hot path of training. Each keeps the one product with a big matrix that the
gradient needs again, so that a symmetric form costs two matrix products forward and backward
instead of three, and no temporary larger than [points, GPs, M] is ever alive.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate, chain, pairwise

import numpy as np
import tensorflow as tf
from check_shapes import check_shapes

__all__ = [
    "bilinear_forms",
    "covariance_forms",
    "diagonal_forms",
    "gram",
    "leading_shape",
    "pair_forms",
    "quadratic_forms",
    "rows_times",
    "shared_product",
    "solve_rows",
    "squared_distances",
    "squared_norms",
    "triangular_grams",
    "weighted_grams",
]


def gram(X: tf.Tensor, of_rows: bool = False) -> tf.Tensor:
    """
    ``X^T X`` for matrices [..., M, D]: [..., D, D]; its gradient is one product.

    :param of_rows: ``X X^T`` instead, [..., M, M].
    """

    @tf.custom_gradient
    def product(X: tf.Tensor) -> tuple[tf.Tensor, Callable]:
        def gradient(upstream: tf.Tensor) -> tf.Tensor:
            symmetric = upstream + tf.linalg.matrix_transpose(upstream)
            return tf.matmul(symmetric, X) if of_rows else tf.matmul(X, symmetric)

        return tf.matmul(X, X, transpose_a=not of_rows, transpose_b=of_rows), gradient

    return product(X)


def triangular_grams(factor: tf.Tensor, layers: Sequence[Sequence[int]]) -> list[list[tf.Tensor]]:
    """
    ``L L^T`` for a matrix of blocks of which those above the diagonal are zero, and are not multiplied: half
    of the flops forward and, as the product is symmetric, less than half backward.

    :param factor: L [n, n].
    :param layers: the sizes of the blocks of each layer; they add up to n.
    :return: of layer l with each layer k <= l, [n_l, n_k].
    """
    blocks = list(pairwise(accumulate(chain(*layers), initial=0)))
    ends = list(accumulate(map(sum, layers)))
    bounds = list(zip([0, *ends], ends))

    @tf.custom_gradient
    def products(L: tf.Tensor) -> tuple[list[tf.Tensor], Callable]:
        # From the diagonal down, a column of blocks after the other.
        columns = [(i, tf.matmul(L[i:, :j], L[i:j, :j], transpose_b=True)) for i, j in blocks]

        def part(rows: tuple[int, int], within: tuple[int, int]) -> tf.Tensor:
            """Rows of the columns that begin within a layer; zeros above the diagonal."""
            (start, end), (first, last) = rows, within
            inside = [(i, column) for i, column in columns if first <= i < last]
            parts = [column[max(start - i, 0) : end - i] for i, column in inside]
            if rows == within:
                parts = [tf.pad(x, [[i - start, 0], [0, 0]]) for x, (i, _) in zip(parts, inside)]
            return tf.concat(parts, axis=1)

        def gradient(*upstream: tf.Tensor) -> tf.Tensor:
            flat = iter(upstream)
            below = [[next(flat) for _ in range(l + 1)] for l in range(len(layers))]
            own = [row[-1] + tf.transpose(row[-1]) for row in below]
            rows = [
                [*row[:-1], own[l], *(tf.transpose(higher[l]) for higher in below[l + 1 :])]
                for l, row in enumerate(below)
            ]
            D = tf.concat([tf.concat(row, axis=1) for row in rows], axis=0)
            columns = [tf.matmul(D[i:, i:], L[i:, i:j]) for i, j in blocks]
            padded = [tf.pad(x, [[i, 0], [0, 0]]) for x, (i, _) in zip(columns, blocks)]
            return tf.concat(padded, axis=1)

        result = []
        for l, rows in enumerate(bounds):
            lower = tf.linalg.band_part(part(rows, rows), -1, 0)
            own = tf.linalg.set_diag(lower + tf.transpose(lower), tf.linalg.diag_part(lower))
            result += [*(part(rows, within) for within in bounds[:l]), own]
        return result, gradient

    flat = iter(products(factor))
    return [[next(flat) for _ in range(l + 1)] for l in range(len(layers))]


def weighted_grams(X: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
    """
    ``sum_m weights_km x_sm x_sm^T`` for the rows of matrices [S, M, D] and weights [K, M]: [S, K, D, D].

    By the rows' own outer products, forward and backward one large matrix product a matrix; K scaled copies
    of it are never made. Worth it where D is not larger than K.
    """
    M, D = X.shape[1:]

    @tf.custom_gradient
    def grams(X: tf.Tensor, weights: tf.Tensor) -> tuple[tf.Tensor, Callable]:
        outer = tf.reshape(X[:, :, :, None] * X[:, :, None, :], [-1, M, D * D])

        def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            g = tf.reshape(upstream, [tf.shape(outer)[0], -1, D * D])  # [S, K, D D]
            d_weights = tf.reduce_sum(tf.matmul(g, outer, transpose_b=True), axis=0)
            d_outer = tf.reshape(tf.matmul(weights, g, transpose_a=True), [-1, M, D, D])
            left = tf.matmul(X[:, :, None, :], d_outer)[:, :, 0, :]
            right = tf.matmul(d_outer, X[:, :, :, None])[:, :, :, 0]
            return left + right, d_weights

        return tf.reshape(tf.matmul(weights, outer), [-1, weights.shape[0], D, D]), gradient

    return grams(X, weights)


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

    Of its four quarters one is another's transpose, and is not computed.
    """
    N, P, M = tf.shape(rows)[0], weights.shape[1], rows.shape[1]
    half = M // 2  # none of one row

    def block(first: tf.Tensor, second: tf.Tensor) -> tf.Tensor:
        size = first.shape[1]
        scaled = tf.reshape(weights[:, :, None] * first[:, None, :], [N, P * size])
        product = tf.matmul(scaled, second, transpose_a=True)
        return tf.reshape(product, [P, size, second.shape[1]])

    upper = block(rows[:, :half], rows)
    lower = block(rows[:, half:], rows[:, half:])
    left = tf.linalg.matrix_transpose(upper[:, :, half:])
    return tf.concat([upper, tf.concat([left, lower], axis=2)], axis=1)


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


def squared_norms(X: tf.Tensor) -> tf.Tensor:
    """``|x|^2`` over the last axis; its gradient is one product."""

    @tf.custom_gradient
    def norms(X: tf.Tensor) -> tuple[tf.Tensor, Callable]:
        return (
            tf.reduce_sum(tf.square(X), axis=-1),
            lambda upstream: 2.0 * tf.expand_dims(upstream, -1) * X,
        )

    return norms(X)


def squared_distances(X: tf.Tensor, X2: tf.Tensor) -> tf.Tensor:
    """
    ``|x - x2|^2`` for all pairs within each of R groups of points.

    By differences, whose digits do not cancel; the gradient is two matrix products.

    :param X: [R, N, D].
    :param X2: [R, N2, D].
    :return: [R, N, N2].
    """

    @tf.custom_gradient
    def distances(X: tf.Tensor, X2: tf.Tensor) -> tuple[tf.Tensor, Callable]:
        differences = tf.expand_dims(X, 2) - tf.expand_dims(X2, 1)

        def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            g = 2.0 * upstream
            rows, columns = (tf.expand_dims(tf.reduce_sum(g, axis=i), -1) for i in (2, 1))
            dX = rows * X - tf.matmul(g, X2)
            return dX, columns * X2 - tf.matmul(g, X, transpose_a=True)

        return tf.reduce_sum(tf.square(differences), axis=-1), gradient

    return distances(X, X2)


def leading_shape(x: tf.Tensor) -> list[tf.Tensor]:
    """The first two dimensions of ``x`` [S, N, ...], static where they are known."""
    dynamic = tf.shape(x)
    return [dynamic[i] if x.shape[i] is None else x.shape[i] for i in range(2)]


def rows_times(x: tf.Tensor, matrix: tf.Tensor, transpose: bool = False) -> tf.Tensor:
    """
    ``x_st^T matrix_st`` for vectors ``x`` [S, T, M] and matrices [S or 1, T or 1, M, N]: [S, T, N].

    ``x`` too may be one for all S.

    :param transpose: multiply by the matrices' transposes, [..., N, M], instead.
    """
    rows, restore = _group(x, matrix)
    return restore(tf.matmul(rows, matrix, transpose_b=transpose))


def shared_product(x: tf.Tensor, matrix: tf.Tensor, transpose: bool = False) -> tf.Tensor:
    """
    ``x matrix``, or ``x matrix^T``, for x [..., N, K] and matrices whose leading dimensions broadcast against
    those of ``x``. One matrix meets all rows in one product: ``tf.matmul`` in float32 on a CPU may end the
    process where ``x`` is [S, 1, N, K] (TensorFlow's issue 117700).
    """
    if any(size != 1 for size in matrix.shape[:-2]):
        return tf.matmul(x, matrix, transpose_b=transpose)
    single = tf.reshape(matrix, matrix.shape[-2:])
    product = tf.matmul(tf.reshape(x, [-1, x.shape[-1]]), single, transpose_b=transpose)
    return tf.reshape(product, tf.concat([tf.shape(x)[:-1], tf.shape(product)[-1:]], axis=0))


def solve_rows(factor: tf.Tensor, x: tf.Tensor, transpose: bool = False) -> tf.Tensor:
    """
    ``factor_st^-1 x_st`` for vectors ``x`` [S, T, M] and lower triangular [S or 1, T or 1, M, M]: [S, T, M].

    :param transpose: solve with the factors' transposes instead.
    """
    rows, restore = _group(x, factor)
    columns = tf.linalg.matrix_transpose(rows)
    columns = tf.linalg.triangular_solve(factor, columns, adjoint=transpose)
    return restore(tf.linalg.matrix_transpose(columns))


def _group(x: tf.Tensor, matrix: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
    """
    Vectors [S, T, M] in rows by the matrix [S or 1, T or 1, ...] that they meet, so that each matrix meets
    all of its vectors in one product; and how to put such rows back.
    """
    S, T = leading_shape(x)
    if matrix.shape[0] == 1 and matrix.shape[1] == 1:

        def restore(rows: tf.Tensor) -> tf.Tensor:
            return tf.reshape(rows, [S, T, tf.shape(rows)[-1]])

        return tf.reshape(x, [1, 1, -1, x.shape[-1]]), restore
    if matrix.shape[1] == 1:
        return x[:, None], lambda rows: rows[:, 0]
    if matrix.shape[0] == 1:
        return tf.transpose(x, [1, 0, 2])[None], lambda rows: tf.transpose(rows[0], [1, 0, 2])
    return x[:, :, None], lambda rows: rows[:, :, 0]
