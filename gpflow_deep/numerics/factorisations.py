"""Cholesky factorisations that explain their failures, and the inverses of their factors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from gpflow.base import TensorType

__all__ = [
    "MANY",
    "SMALL",
    "FactorisationError",
    "InverseRoot",
    "add_jitter",
    "cholesky",
    "gaussian_log_density",
    "inverse_root",
    "triangular_inverse",
]

#: Of matrices that are inverted by halves, in their own dtype: how many there are at least, and how many
#: rows they have, more than the second number and up to the third.
MANY, SMALL, _LARGE = 64, 32, 128
LEAF = 200  # rows that are not halved further, nor those whose number is not known to a graph


class FactorisationError(ValueError):
    """A covariance matrix is not numerically positive definite."""


_ADVICE = (
    "Try a larger jitter (gpflow.config.set_default_jitter), inputs scaled to unit variance, inducing"
    " inputs without duplicates, bounded lengthscales, or float64 (gpflow.config.set_default_float)."
)


def cholesky(matrix: tf.Tensor, what: str, context: Mapping[str, tf.Tensor]) -> tf.Tensor:
    """
    Lower Cholesky factor of ``matrix`` [..., M, M]; computed in float64, returned in its dtype.

    TensorFlow's own factorisation returns NaN without a word where the matrix is not positive
    definite. This one raises, in eager mode and inside a ``tf.function`` alike (compiled by XLA it
    returns NaN: XLA has no assertions).

    :param what: the matrix's name in the error message, such as "K_MM of layer 2".
    :param context: tensors to show in the error message, such as the kernel's parameters.
    :raises FactorisationError: in eager mode, where the matrix is not positive definite.
    :raises tf.errors.InvalidArgumentError: likewise, inside a ``tf.function``.
    """
    wide = tf.cast(matrix, tf.float64)
    factor = tf.linalg.cholesky(wide)
    _check_success(factor, wide, what, context)
    return tf.cast(factor, matrix.dtype)


def _check_success(
    factor: tf.Tensor, matrix: tf.Tensor, what: str, context: Mapping[str, tf.Tensor]
) -> None:
    """Whether the triangular matrices that a factorisation came to have finite diagonals."""
    wide = tf.cast(matrix, tf.float64)
    succeeded = _is_finite(factor)
    message = f"The Cholesky factorisation of {what} failed: it is not positive definite."

    def smallest_eigenvalue() -> tf.Tensor:
        finite = tf.where(tf.math.is_finite(wide), wide, tf.zeros_like(wide))
        return tf.reduce_min(tf.linalg.eigvalsh(finite))

    if tf.executing_eagerly():
        if not succeeded:
            shown = "; ".join(
                f"{name}: {tf.convert_to_tensor(x).numpy()}" for name, x in context.items()
            )
            wrong = int(tf.reduce_sum(tf.cast(~tf.math.is_finite(wide), tf.int32)))
            if wrong:
                raise FactorisationError(
                    f"The Cholesky factorisation of {what} failed: {wrong} of its values are NaN or"
                    f" infinite, as inputs or parameters are{'; ' * bool(shown)}{shown}."
                )
            raise FactorisationError(
                f"{message} Smallest eigenvalue: {float(smallest_eigenvalue()):.3g}; {shown}."
                f" {_ADVICE}"
            )
    else:

        def report() -> tf.Operation:
            wrong = tf.reduce_sum(tf.cast(~tf.math.is_finite(wide), tf.int32))
            data: list[object] = [message, _ADVICE, "Smallest eigenvalue:", smallest_eigenvalue()]
            data += ["Values that are NaN or infinite:", wrong]
            for name, value in context.items():
                data += [f"{name}:", tf.convert_to_tensor(value)]
            # That of tf.debugging is within a condition of its own.
            return tf.raw_ops.Assert(condition=False, data=data, summarize=20)

        tf.cond(succeeded, tf.no_op, report)


def add_jitter(matrix: tf.Tensor, jitter: TensorType) -> tf.Tensor:
    """``matrix`` [..., M, M] plus ``jitter`` I, which costs the gradient nothing: to set a diagonal does."""
    size = matrix.shape[-1] if matrix.shape[-1] is not None else tf.shape(matrix)[-1]
    return matrix + jitter * tf.eye(size, dtype=matrix.dtype)


class InverseRoot(NamedTuple):
    """C^-1 for the lower Cholesky factor C of matrices [..., M, M]."""

    inverse: tf.Tensor  # [..., M, M]
    log_det: tf.Tensor  # log |C^-1|: [...]


def inverse_root(matrix: tf.Tensor, what: str, context: Mapping[str, tf.Tensor]) -> InverseRoot:
    """
    C^-1 for the lower Cholesky factor C of ``matrix`` [..., M, M], none of whose eigenvalues may be small,
    and the logarithm of its determinant.

    It is computed in float64, and returned in the matrix's dtype; but of many matrices in their own dtype, by
    products, and in float64 only where that fails. A sum of squares that was rounded before may still have
    lost the sign of its smallest eigenvalue: such a matrix gets on its diagonal what rounding may have taken,
    as much as its trace times the precision of its dtype. Its gradient is three matrix products; those of the
    factorisation and of the solve take eight. It is that of symmetric changes of the matrix, not itself made
    symmetric. The determinant's adds nothing to them.

    :param what: see :func:`cholesky`.
    :param context: see :func:`cholesky`.
    """
    M = int(matrix.shape[-1])
    half = np.tril(np.ones([M, M])) - 0.5 * np.eye(M)
    shown = {name: tf.convert_to_tensor(value) for name, value in context.items()}

    @tf.custom_gradient
    def root(matrix: tf.Tensor) -> tuple[tuple[tf.Tensor, tf.Tensor], Callable]:
        if matrix.dtype == tf.float64 or not _are_many(matrix):
            inverse = _inverse_root_widely(matrix)
        else:
            # The matrix's own rounding is as large as this one's, but a pivot may pass zero by it.
            inverse = _inverse_root(matrix)
            inverse = tf.cond(
                _is_finite(inverse), lambda: inverse, lambda: _inverse_root_widely(matrix)
            )
        _check_success(inverse, matrix, what, shown)
        log_det = tf.reduce_sum(tf.math.log(tf.linalg.diag_part(inverse)), axis=-1)

        def gradient(upstream: tf.Tensor, d_log_det: tf.Tensor) -> tf.Tensor:
            # d C^-1 = -F(C^-1 dA C^-T) C^-1, where F takes the lower triangle with half of the diagonal.
            inner = tf.matmul(upstream, inverse, transpose_b=True) * tf.cast(-half, matrix.dtype)
            # d log |C^-1| = -tr F(C^-1 dA C^-T)
            inner -= 0.5 * d_log_det[..., None, None] * tf.eye(M, dtype=matrix.dtype)
            return tf.matmul(inverse, tf.matmul(inner, inverse), transpose_a=True)

        return (inverse, log_det), gradient

    return InverseRoot(*root(matrix))


def triangular_inverse(factor: tf.Tensor) -> tf.Tensor:
    """
    L^-1 of a lower triangular L [N, N], by halves: most of the work is then in matrix products, which take a
    third of the time of a solve.
    """
    N = factor.shape[-1]
    if N is None or N <= LEAF:
        return tf.linalg.triangular_solve(factor, tf.eye(tf.shape(factor)[-1], dtype=factor.dtype))
    half = N // 2
    first = triangular_inverse(factor[:half, :half])
    second = triangular_inverse(factor[half:, half:])
    left = -tf.matmul(second, tf.matmul(factor[half:, :half], first))
    return _by_quarters(first, tf.zeros([half, N - half], factor.dtype), left, second)


def gaussian_log_density(covariance: tf.Tensor, Y: tf.Tensor, what: str) -> tf.Tensor:
    """
    Sum of the log densities of the columns of ``Y`` [N, P] under N(0, ``covariance`` [N, N]), in float64.

    Its gradient, (K^-1 Y Y^T K^-1 - P K^-1) / 2, takes two thirds of N^3 multiplications beyond the
    factorisation's; that of TensorFlow's factorisation takes three.

    :param what: see :func:`cholesky`.
    """

    @tf.custom_gradient
    def log_density(K: tf.Tensor, Y: tf.Tensor) -> tuple[tf.Tensor, Callable]:
        factor = cholesky(K, what, {})
        alpha = tf.linalg.triangular_solve(factor, Y)
        N, P = (tf.cast(size, K.dtype) for size in (tf.shape(Y)[0], tf.shape(Y)[1]))
        log_determinant = 2.0 * tf.reduce_sum(tf.math.log(tf.linalg.diag_part(factor)))
        squares = tf.reduce_sum(tf.square(alpha))
        value = -0.5 * (squares + P * log_determinant + N * P * np.log(2.0 * np.pi))

        def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            inverse = triangular_inverse(factor)
            residuals = tf.matmul(inverse, alpha, transpose_a=True)  # K^-1 Y
            outer = tf.matmul(residuals, residuals, transpose_b=True)
            return 0.5 * upstream * (outer - P * _lower_gram(inverse)), -upstream * residuals

        return value, gradient

    return log_density(tf.cast(covariance, tf.float64), tf.cast(Y, tf.float64))


def _lower_gram(factor: tf.Tensor) -> tf.Tensor:
    """T^T T [N, N] of a lower triangular T, whose zeros are not multiplied."""
    N = factor.shape[-1]
    if N is None or N <= LEAF:
        return tf.matmul(factor, factor, transpose_a=True)
    half = N // 2
    left, second = factor[half:, :half], factor[half:, half:]
    first = _lower_gram(factor[:half, :half]) + tf.matmul(left, left, transpose_a=True)
    below = tf.matmul(second, left, transpose_a=True)
    return _by_quarters(first, tf.transpose(below), below, _lower_gram(second))


def _by_quarters(
    first: tf.Tensor, above: tf.Tensor, below: tf.Tensor, last: tf.Tensor
) -> tf.Tensor:
    """A matrix [[first, above], [below, last]]."""
    return tf.concat([tf.concat([first, above], -1), tf.concat([below, last], -1)], -2)


def _are_many(matrices: tf.Tensor) -> bool:
    """And of middling size: of these a factorisation and solve take several times as long as products do."""
    count = matrices.shape[:-2].num_elements()
    return count is not None and count >= MANY and SMALL < matrices.shape[-1] <= _LARGE


def _is_finite(factor: tf.Tensor) -> tf.Tensor:
    """Whether no factorisation of a stack has failed."""
    return tf.reduce_all(_succeeded(factor))


def _succeeded(factor: tf.Tensor) -> tf.Tensor:
    """Which factorisations of a stack [..., M, M] have: [...]."""
    return tf.reduce_all(tf.math.is_finite(tf.linalg.diag_part(factor)), axis=-1)


def _inverse_root_widely(matrix: tf.Tensor) -> tf.Tensor:
    """In float64, with what rounding may have taken from those that fail."""
    wide = tf.cast(matrix, tf.float64)
    inverse = _inverse_root(wide)

    def unrounded() -> tf.Tensor:
        taken = np.finfo(matrix.dtype.as_numpy_dtype).eps * tf.linalg.trace(wide)
        taken = tf.where(_succeeded(inverse), tf.zeros_like(taken), taken)
        return _inverse_root(add_jitter(wide, taken[..., None, None]))

    inverse = tf.cond(_is_finite(inverse), lambda: inverse, unrounded)
    return tf.cast(inverse, matrix.dtype)


def _inverse_root(matrix: tf.Tensor) -> tf.Tensor:
    """By halves where there are many, in the matrix's dtype."""
    M = int(matrix.shape[-1])
    if not _are_many(matrix):
        factor = tf.linalg.cholesky(matrix)
        eye = tf.eye(M, dtype=matrix.dtype)
        return tf.linalg.triangular_solve(factor, tf.broadcast_to(eye, tf.shape(factor)))
    half = M // 2
    first = _inverse_root(matrix[..., :half, :half])
    below = tf.matmul(matrix[..., half:, :half], first, transpose_b=True)
    rest = matrix[..., half:, half:] - tf.matmul(below, below, transpose_b=True)
    second = _inverse_root(rest)
    left = -tf.matmul(second, tf.matmul(below, first))
    above = tf.zeros_like(matrix[..., :half, half:])
    return _by_quarters(first, above, left, second)
