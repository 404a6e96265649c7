"""The linear algebra of layers and posteriors against plain sums, with derivatives of both orders."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import pytest
import tensorflow as tf

from gpflow_deep.numerics import factorisations, forms, linalg

N, S, M, K, T, U = 4, 3, 5, 2, 3, 2
Form = Callable[..., tf.Tensor]


def _random(*shape: int, seed: int = 0) -> tf.Tensor:
    return tf.constant(np.random.default_rng(seed).standard_normal(shape))


def _symmetric_pairs(C: tf.Tensor) -> tf.Tensor:
    """Blocks with C_ut = C_tu^T, as of a covariance of GPs."""
    return C + tf.transpose(C, [1, 0, 3, 2])


def _per_gp(basis: tf.Tensor, num_gps: int) -> tf.Tensor:
    """The bases of the first GPs, [S, N, num_gps, M]."""
    if basis.shape.rank == 3:
        return tf.repeat(basis[:, :, None], num_gps, axis=2)
    return basis[:, :, :num_gps]


def _all_samples(basis: tf.Tensor) -> tf.Tensor:
    return basis if basis.shape[0] == S else tf.repeat(basis, S, axis=0)


def _plain_pairs(A: tf.Tensor, C: tf.Tensor, B: tf.Tensor) -> tf.Tensor:
    A = _per_gp(_all_samples(A), C.shape[0])
    return tf.einsum("sntm,tumk,snuk->sntu", A, C, _per_gp(_all_samples(B), C.shape[1]))


_LAYERS = [[2, 2, 2], [1], [3]]  # sizes of the blocks


def _block_triangular(L: tf.Tensor) -> tf.Tensor:
    """Full blocks on the diagonal too: what is zero are the blocks above."""
    blocks = np.repeat(np.arange(5), [2, 2, 2, 1, 3])
    return L * tf.constant(blocks[:, None] >= blocks, L.dtype)


def _plain_grams(L: tf.Tensor) -> list[list[tf.Tensor]]:
    product, (a, b, c) = L @ tf.transpose(L), (slice(6), slice(6, 7), slice(7, 10))
    return [[product[rows, k] for k in (a, b, c)[: l + 1]] for l, rows in enumerate((a, b, c))]


def _flat(parts: Sequence[Sequence[tf.Tensor]]) -> tf.Tensor:
    return tf.concat([tf.reshape(part, [-1]) for row in parts for part in row], axis=0)


def _plain_diagonal(A: tf.Tensor, C: tf.Tensor, B: tf.Tensor) -> tf.Tensor:
    A, B = _per_gp(_all_samples(A), len(C)), _per_gp(_all_samples(B), len(C))
    return tf.einsum("sntm,tmk,sntk->snt", A, C, B)


def _definite(X: tf.Tensor) -> tf.Tensor:
    return tf.matmul(X, X, transpose_b=True) + tf.eye(X.shape[-1], dtype=X.dtype)


def _sum(root: tuple[tf.Tensor, tf.Tensor]) -> tf.Tensor:
    """A matrix plus a number."""
    return root[0] + root[1][..., None, None]


CASES: dict[str, tuple[Form, Form, Sequence[tf.Tensor]]] = {
    "quadratic": (
        lambda A, C: forms.quadratic_forms(A, C + tf.linalg.matrix_transpose(C)),
        lambda A, C: tf.einsum("snm,pmk,snk->snp", A, C + tf.linalg.matrix_transpose(C), A),
        [_random(S, N, M), _random(T, M, M)],
    ),
    "quadratic of one number": (
        forms.quadratic_forms,
        lambda A, C: tf.einsum("snm,pmk,snk->snp", A, C, A),
        [_random(S, N, 1), _random(T, 1, 1)],
    ),
    "quadratic of one form": (
        lambda A, C: forms.quadratic_forms(A, C + tf.linalg.matrix_transpose(C)),
        lambda A, C: tf.einsum("snm,pmk,snk->snp", A, C + tf.linalg.matrix_transpose(C), A),
        [_random(S, N, M), _random(1, M, M)],
    ),
    "quadratic of many numbers": (
        lambda A, C: forms.quadratic_forms(A, C + tf.linalg.matrix_transpose(C)),
        lambda A, C: tf.einsum("snm,pmk,snk->snp", A, C + tf.linalg.matrix_transpose(C), A),
        [_random(S, N, 70), _random(T, 70, 70)],
    ),
    "bilinear": (
        forms.bilinear_forms,
        lambda A, C, B: tf.einsum("snm,pmk,snk->snp", A, C, B),
        [_random(S, N, M), _random(T, M, K), _random(S, N, K)],
    ),
    "bilinear of shared rows": (
        forms.bilinear_forms,
        lambda A, C, B: tf.einsum("snm,pmk,nk->snp", A, C, B[0]),
        [_random(S, N, M), _random(T, M, K), _random(1, N, K)],
    ),
    "diagonal": (
        forms.diagonal_forms,
        _plain_diagonal,
        [_random(S, N, M), _random(T, M, K), _random(S, N, K)],
    ),
    "diagonal of more bases than forms": (
        forms.diagonal_forms,
        _plain_diagonal,
        [_random(S, N, T + 1, M), _random(T, M, K), _random(1, N, T + 2, K)],
    ),
    "diagonal with bases of one side": (
        forms.diagonal_forms,
        _plain_diagonal,
        [_random(S, N, T, M), _random(T, M, K), _random(1, N, K)],
    ),
    "diagonal with bases of the other": (
        forms.diagonal_forms,
        _plain_diagonal,
        [_random(S, N, M), _random(T, M, K), _random(S, N, T + 1, K)],
    ),
    "pairs": (
        forms.pair_forms,
        _plain_pairs,
        [_random(S, N, M), _random(T, U, M, K), _random(S, N, K)],
    ),
    "pairs of shared rows": (
        forms.pair_forms,
        _plain_pairs,
        [_random(S, N, M), _random(T, U, M, K), _random(1, N, K)],
    ),
    "pairs with bases of one side": (
        forms.pair_forms,
        _plain_pairs,
        [_random(S, N, T, M), _random(T, U, M, K), _random(1, N, K)],
    ),
    "pairs with bases of the other": (
        forms.pair_forms,
        _plain_pairs,
        [_random(S, N, M), _random(T, U, M, K), _random(S, N, U, K)],
    ),
    "covariance": (
        lambda A, C: forms.covariance_forms(A, _symmetric_pairs(C)),
        lambda A, C: _plain_pairs(A, _symmetric_pairs(C), A),
        [_random(S, N, M), _random(T, T, M, M)],
    ),
    "covariance with bases": (
        lambda A, C: forms.covariance_forms(A, _symmetric_pairs(C)),
        lambda A, C: _plain_pairs(A, _symmetric_pairs(C), A),
        [_random(S, N, T, M), _random(T, T, M, M)],
    ),
    "gram": (
        linalg.gram,
        lambda X: tf.einsum("stmd,stme->stde", X, X),
        [_random(S, T, M, K)],
    ),
    "gram of rows": (
        lambda X: linalg.gram(X, of_rows=True),
        lambda X: tf.einsum("stmd,stnd->stmn", X, X),
        [_random(S, T, M, K)],
    ),
    "inverse root": (
        lambda X: factorisations.inverse_root(_definite(X), "A", {}).inverse,
        lambda X: tf.linalg.inv(tf.linalg.cholesky(_definite(X))),
        [_random(S, M, M)],
    ),
    "inverse root and its determinant": (
        lambda X: _sum(factorisations.inverse_root(_definite(X), "A", {})),
        lambda X: _sum(
            (tf.linalg.inv(tf.linalg.cholesky(_definite(X))), -0.5 * tf.linalg.logdet(_definite(X)))
        ),
        [_random(S, M, M)],
    ),
    "inverse roots of many": (
        lambda X: factorisations.inverse_root(_definite(X), "A", {}).inverse,
        lambda X: tf.linalg.inv(tf.linalg.cholesky(_definite(X))),
        [_random(4, 16, 35, 35)],
    ),
    "triangular Gram matrices": (
        lambda L: _flat(linalg.triangular_grams(_block_triangular(L), _LAYERS)),
        lambda L: _flat(_plain_grams(_block_triangular(L))),
        [_random(10, 10)],
    ),
    "weighted Gram matrices": (
        linalg.weighted_grams,
        lambda X, w: tf.einsum("km,smd,sme->skde", w, X, X),
        [_random(S, M, K), _random(T, M)],
    ),
}


def _derivatives(form: Form, arguments: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """The value, its gradient along some direction, and the gradient of that along another."""
    with tf.GradientTape() as outer:
        outer.watch(arguments)
        with tf.GradientTape() as inner:
            inner.watch(arguments)
            value = form(*arguments)
        weights = _random(*value.shape, seed=1)
        first = inner.gradient(value, arguments, output_gradients=weights)
        along = [_random(*x.shape, seed=i + 2) for i, x in enumerate(arguments)]
        total = tf.add_n([tf.reduce_sum(g * d) for g, d in zip(first, along, strict=True)])
    second = outer.gradient(total, arguments)
    return [value, *first, *second]


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("name", CASES)
def test_forms_equal_plain_sums(name: str, compiled: bool) -> None:
    form, plain, arguments = CASES[name]
    actual = (tf.function(_derivatives) if compiled else _derivatives)(form, arguments)
    for one, other in zip(actual, _derivatives(plain, arguments), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12)


def test_forms_of_an_unknown_number_of_points() -> None:
    A, C = _random(S, N, M), _random(T, T, M, M)

    @tf.function(input_signature=[tf.TensorSpec([None, None, M], tf.float64)])
    def covariance(A: tf.Tensor) -> tf.Tensor:
        return forms.covariance_forms(A, _symmetric_pairs(C))

    np.testing.assert_allclose(covariance(A), _plain_pairs(A, _symmetric_pairs(C), A), rtol=1e-12)
    assert covariance(A[:, :0]).shape == (S, 0, T, T)


# ---------------------------------------------------------------- Cholesky


def _covariance(smallest: float, size: int = 4) -> np.ndarray:
    """A symmetric matrix with eigenvalues 1, 2, ... and one other."""
    basis, _ = np.linalg.qr(_random(size, size))
    eigenvalues = np.r_[smallest, np.arange(1.0, size)]
    return (basis * eigenvalues) @ basis.T


@pytest.mark.parametrize("dtype", [tf.float32, tf.float64])
def test_factor(dtype: tf.DType) -> None:
    matrices = tf.cast(np.stack([_covariance(0.5), _covariance(1e-4)]), dtype)
    factor = factorisations.cholesky(matrices, "K", {})
    assert factor.dtype == dtype
    np.testing.assert_array_equal(factor, tf.linalg.band_part(factor, -1, 0))
    product = tf.matmul(factor, factor, transpose_b=True)
    np.testing.assert_allclose(
        product, matrices, rtol=0, atol=1e-6 if dtype == tf.float32 else 1e-14
    )


def test_factor_of_single_precision_is_computed_in_double() -> None:
    """A matrix that float32 holds, but whose factorisation in float32 fails."""
    x = np.linspace(0.0, 1.0, 6)
    matrix = tf.cast(np.exp(-0.5 * (x[:, None] - x) ** 2) + 3e-7 * np.eye(6), tf.float32)
    smallest = np.linalg.eigvalsh(matrix.numpy().astype(float)).min()
    assert 0 < smallest < 1e-6
    assert np.isfinite(factorisations.cholesky(matrix, "K", {})).all()


def test_failure_says_what_and_why() -> None:
    matrices = tf.constant(np.stack([_covariance(0.5), _covariance(-0.25)]))
    context = {"lengthscales": tf.constant([0.5, 7.0])}
    with pytest.raises(factorisations.FactorisationError) as eager:
        factorisations.cholesky(matrices, "K_MM of layer 3", context)
    with pytest.raises(tf.errors.InvalidArgumentError) as compiled:
        tf.function(lambda K: factorisations.cholesky(K, "K_MM of layer 3", context))(matrices)
    for error in (eager, compiled):
        for fact in ("K_MM of layer 3", "lengthscales", "7", "jitter", "duplicates"):
            assert fact in str(error.value)
    assert "-0.25" in str(eager.value)
    # A graph shows all digits, and what they are rounded to differs between processors.
    assert re.search(r"-0\.(25|2499999)", str(compiled.value))


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_failure_of_a_matrix_that_is_not_finite(value: float) -> None:
    matrix = np.eye(3)
    matrix[1, 1] = value
    with pytest.raises(factorisations.FactorisationError, match="K of a test"):
        factorisations.cholesky(tf.constant(matrix), "K of a test", {})


def test_factor_has_second_derivatives() -> None:
    matrix = tf.constant(_covariance(0.5))
    actual, expected = (
        _derivatives(lambda X, f=f: f(0.5 * (X + tf.transpose(X))), [matrix])
        for f in (lambda X: factorisations.cholesky(X, "K", {}), tf.linalg.cholesky)
    )
    for one, other in zip(actual, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("compiled", [False, True])
def test_many_inverse_roots_in_float32_fall_back_on_float64(compiled: bool) -> None:
    """Where a pivot passes zero by rounding in the matrices' own dtype."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(64, 40, 2)) * 3e3
    matrices = tf.constant(np.eye(40) + X @ X.swapaxes(1, 2), tf.float32)
    alone = factorisations._inverse_root(matrices)
    assert not np.isfinite(tf.linalg.diag_part(alone)).all()

    def root(matrices: tf.Tensor) -> tf.Tensor:
        # Rounded entries need not be of a positive definite matrix.
        return factorisations.inverse_root(matrices + 10.0 * tf.eye(40), "A", {}).inverse

    inverse = (tf.function(root) if compiled else root)(matrices).numpy().astype(np.float64)
    wide = np.asarray(matrices + 10.0 * tf.eye(40), np.float64)
    white = inverse @ wide @ inverse.swapaxes(1, 2)
    np.testing.assert_allclose(white, np.broadcast_to(np.eye(40), white.shape), atol=0.2)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("count", [3, 64])
def test_inverse_roots_of_what_rounding_made_indefinite(count: int, compiled: bool) -> None:
    """I + X X^T in float32: those that fail get no more than rounding takes, the others nothing."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(count, 40, 2)) * np.where(np.arange(count) == 1, 1.0, 3e3)[:, None, None]
    matrices = tf.constant(np.eye(40) + X @ X.swapaxes(1, 2), tf.float32)
    wide = np.asarray(matrices, np.float64)
    smallest = np.linalg.eigvalsh(wide)[:, 0]
    failing = smallest < 0.0
    assert failing.any() and smallest[1] > 0.5

    def root(matrices: tf.Tensor) -> factorisations.InverseRoot:
        return factorisations.inverse_root(matrices, "A", {})

    with tf.GradientTape() as tape:
        tape.watch(matrices)
        inverse, log_det = (tf.function(root) if compiled else root)(matrices)
        loss = tf.reduce_sum(log_det)
    gradient = tape.gradient(loss, matrices)
    inverse = inverse.numpy().astype(np.float64)
    assert np.isfinite(inverse).all() and (inverse == np.tril(inverse)).all()
    np.testing.assert_allclose(log_det, np.linalg.slogdet(inverse)[1], rtol=1e-5)
    share = np.finfo(np.float32).eps * np.trace(wide, axis1=1, axis2=2)
    given = wide + np.where(failing, share, 0.0)[:, None, None] * np.eye(40)
    white = inverse @ given @ inverse.swapaxes(1, 2)
    known = failing | (smallest > 0.5)
    np.testing.assert_allclose(white[known], np.tile(np.eye(40), [known.sum(), 1, 1]), atol=0.05)
    # d log |C^-1| = -tr(A^-1 dA) / 2
    np.testing.assert_allclose(
        gradient, -0.5 * inverse.swapaxes(1, 2) @ inverse, rtol=1e-3, atol=1e-5
    )


def test_many_inverse_roots_that_fail() -> None:
    matrices = np.broadcast_to(np.eye(40), (64, 40, 40)).copy()
    matrices[7, 30, 30] = -1.0
    for dtype in (tf.float32, tf.float64):
        with pytest.raises(factorisations.FactorisationError, match="of A failed"):
            factorisations.inverse_root(tf.constant(matrices, dtype), "A", {})


@pytest.mark.parametrize("leading", [(1, 1), (3, 1), (1, 2), (3, 2)])
def test_rows_of_unknown_length(leading: tuple[int, int]) -> None:
    rng = np.random.default_rng(0)
    signature = [tf.TensorSpec([None, 2, None], tf.float64)]
    signature.append(tf.TensorSpec([*leading, None, None], tf.float64))
    product = tf.function(partial(linalg.rows_times, transpose=True), input_signature=signature)
    for M in (4, 0):
        x, matrices = rng.normal(size=(3, 2, M)), rng.normal(size=(*leading, M, M))
        expected = np.einsum("stm,stnm->stn", x, np.broadcast_to(matrices, (3, 2, M, M)))
        np.testing.assert_allclose(product(x, matrices), expected, rtol=1e-12)


@pytest.mark.parametrize("dtype", [tf.float64, tf.float32])
@pytest.mark.parametrize("leading", [(1, 1), (1,), (), (1, 3), (10, 1)])
def test_products_with_shared_matrices(dtype: tf.DType, leading: tuple[int, ...]) -> None:
    """At the size at which TensorFlow's own product in float32 ends the process."""
    x, matrix = _random(10, 1, 100, 51), _random(*leading, 51, 40, seed=1)
    for transpose in (False, True):
        given = tf.linalg.matrix_transpose(matrix) if transpose else matrix
        product = linalg.shared_product(tf.cast(x, dtype), tf.cast(given, dtype), transpose)
        np.testing.assert_allclose(product, x.numpy() @ matrix.numpy(), atol=1e-4)
