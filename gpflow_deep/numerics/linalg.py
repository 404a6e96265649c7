"""
The linear algebra that layers and posteriors share: products whose gradient is one product, distances, and
products and solutions of many vectors by many matrices.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate, chain, pairwise
from typing import Any

import numpy as np
import tensorflow as tf

__all__ = [
    "cast_all",
    "gram",
    "in_sets",
    "leading_shape",
    "rows_times",
    "shared_product",
    "solve_rows",
    "squared_distances",
    "squared_norms",
    "standard_deviation",
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


def squared_norms(X: tf.Tensor) -> tf.Tensor:
    """``|x|^2`` over the last axis; its gradient is one product."""

    @tf.custom_gradient
    def norms(X: tf.Tensor) -> tuple[tf.Tensor, Callable]:
        return (
            tf.reduce_sum(tf.square(X), axis=-1),
            lambda upstream: 2.0 * tf.expand_dims(upstream, -1) * X,
        )

    return norms(X)


def standard_deviation(variance: tf.Tensor) -> tf.Tensor:
    """The root of a variance; one of zero, of which it has no gradient, counts as one far below rounding."""
    least = np.finfo(variance.dtype.as_numpy_dtype).eps ** 1.5
    return tf.sqrt(tf.maximum(variance, least))


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


def cast_all(tensors: Any, dtype: Any) -> Any:
    """Nested tensors, some perhaps absent, in another dtype."""
    return tf.nest.map_structure(lambda x: None if x is None else tf.cast(x, dtype), tensors)


def leading_shape(x: tf.Tensor) -> list[tf.Tensor]:
    """The first two dimensions of ``x`` [S, N, ...], static where they are known."""
    dynamic = tf.shape(x)
    return [dynamic[i] if x.shape[i] is None else x.shape[i] for i in range(2)]


def in_sets(factor: tf.Tensor) -> tf.Tensor:
    """A layer's factor [M, M] or [T, M, M], or one of sets of inducing inputs already: [S or 1, K, M, M]."""
    return factor[(None,) * (4 - factor.shape.rank)]


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

        return tf.reshape(x, [1, 1, S * T, tf.shape(x)[-1]]), restore
    if matrix.shape[1] == 1:
        return x[:, None], lambda rows: rows[:, 0]
    if matrix.shape[0] == 1:
        return tf.transpose(x, [1, 0, 2])[None], lambda rows: tf.transpose(rows[0], [1, 0, 2])
    return x[:, :, None], lambda rows: rows[:, :, 0]
