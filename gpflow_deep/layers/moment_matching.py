r"""
Moments of a layer's outputs under a Gaussian input: what FITC-EP propagates.

A posterior of the inducing outputs makes the functions of a layer, at an input h, Gaussian with mean
:math:`m(h) + k(h, Z) A` and variance :math:`k(h, h) - k(h, Z) W k(Z, h)` (see
:class:`~gpflow_deep.posteriors.tied_factor.Weights`). Over a Gaussian h their mean and covariance are, with
C = A A^T - W,

.. math::
    E[f] = E[m(h)] + \psi_1 A, \quad
    Var[f] = \psi_0 + tr(C \psi_2) - (\psi_1 A)^2 + Var[m(h)] + 2 Cov[m(h), k(h, Z) A]

(Bui et al. 2016, section 4 and Appendix G; the mean function is an addition). They are exact for the kernels
that :mod:`gpflow_deep.psi_statistics` knows and affine mean functions, and by quadrature over h for others.

What is added up here is as large as the inverse of K_MM and cancels down to the variances, so the moments are
formed in float64 whatever the default float; only what comes out is rounded to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.kernels import Kernel
from gpflow.mean_functions import Constant, Identity, Linear, MeanFunction, Zero

from ..kernels.methods import has_methods_of
from ..numerics.draws import quasi_normals
from ..numerics.linalg import squared_distances
from ..psi_statistics import Gaussian, NoClosedForm, WhiteTerm, psi0, psi1, psi1_slope, psi2
from ..psi_statistics.exponentials import (
    Exponentials,
    exponential_sums,
    features,
    pair_coefficients,
    pairs,
    products,
    tilted_precision,
)
from ..psi_statistics.terms import Wave, terms
from .covariances import Kuf, has_values_at_points, prior_variance, split_gps
from .gp_layer import GPLayer

__all__ = ["at_points", "under_gaussian"]

_MAX_NODES = 1000
_NUM_DRAWS = 512


def at_points(
    layer: GPLayer, X: tf.Tensor, A: tf.Tensor, W: tf.Tensor, full: bool = False
) -> Gaussian:
    """
    The layer's functions at inputs without uncertainty.

    :param X: [N, D].
    :param A: weights of the mean, [T, M], best in float64.
    :param W: reduction of the variance, [T, M, M], likewise.
    :param full: give the covariance [N, T, T], here diagonal, instead of the variances.
    """
    A, W = _wide(A), _wide(W)
    K = _cross_covariance(layer, X)  # [1 or T, N, M]
    if K.shape[0] == 1:
        mean = tf.matmul(tf.squeeze(K, axis=0), A, transpose_b=True)
    else:
        mean = tf.transpose(tf.linalg.matvec(K, A))
    reduction = tf.transpose(tf.reduce_sum(tf.matmul(K, W) * K, axis=-1))  # [N, T]
    # Rounding may take more than there is.
    variance = tf.maximum(_wide(prior_variance(layer.kernel, X)) - reduction, 0.0)
    mean += _wide(layer.latent_mean(X))
    return _narrow(Gaussian(mean, tf.linalg.diag(variance) if full else variance))


def under_gaussian(
    layer: GPLayer, inputs: Gaussian, A: tf.Tensor, W: tf.Tensor, full: bool = False
) -> Gaussian:
    """
    Mean and variances of the layer's functions under a Gaussian input.

    :param inputs: one Gaussian [D] for each of N points.
    :param A: weights of the mean, [T, M], best in float64.
    :param W: reduction of the variance, [T, M, M], likewise.
    :param full: give the covariance of the outputs [N, T, T] instead of the variances.
    """
    try:
        affine = _affine(layer.mean_function, inputs.mean.shape[1], layer.num_latent_gps)
        stacked = _stacked(layer, inputs.mean.shape[1])
        wide, A, W = tf.nest.map_structure(_wide, (inputs, A, W))
        affine = None if affine is None else tf.nest.map_structure(_wide, affine)
        if stacked is not None:
            moments = _stacked_moments(stacked, wide, A, W, full, affine is not None)
        else:
            moments = _dense_moments(layer, wide, A, W, full)
    except NoClosedForm:
        return _by_quadrature(layer, inputs, A, W, full)
    mean, covariance = _add_mean_function(moments, wide, affine)
    # Rounding may take more than there is.
    return _narrow(Gaussian(mean, covariance if full else tf.maximum(covariance, 0.0)))


def _wide(x: tf.Tensor) -> tf.Tensor:
    return tf.cast(x, tf.float64)


def _narrow(output: Gaussian) -> Gaussian:
    return Gaussian(*(tf.cast(x, gpflow.default_float()) for x in output))


class _Moments(NamedTuple):
    """Of the functions without the mean function."""

    mean: tf.Tensor  # [N, T]
    covariance: tf.Tensor  # [N, T], or [N, T, T]
    slope: tf.Tensor  # d mean / d E[h]: [N, D, T]


# Mean functions.


def _affine(
    mean_function: MeanFunction, input_dim: int, output_dim: int
) -> tuple[tf.Tensor, tf.Tensor] | None:
    """The matrix [D, T] and offset [T] of an affine mean function; None where it is zero."""
    float_type = gpflow.default_float()

    def is_a(kind: type[MeanFunction]) -> bool:
        return has_methods_of(mean_function, kind, "__call__")

    if is_a(Zero):
        return None
    if is_a(Constant):
        return tf.zeros([input_dim, output_dim], float_type), tf.convert_to_tensor(mean_function.c)
    if is_a(Identity):
        return tf.eye(input_dim, dtype=float_type), tf.zeros([output_dim], float_type)
    if is_a(Linear):
        matrix = tf.convert_to_tensor(mean_function.A)
        offset = tf.convert_to_tensor(mean_function.b)
        return tf.broadcast_to(matrix, [input_dim, output_dim]), offset
    raise NoClosedForm(f"{type(mean_function).__name__} is not affine.")


def _add_mean_function(
    moments: _Moments, inputs: Gaussian, affine: tuple[tf.Tensor, tf.Tensor] | None
) -> Gaussian:
    mean, covariance, slope = moments
    if affine is None:
        return Gaussian(mean, covariance)
    matrix, offset = affine  # [D, T]
    mean += tf.matmul(inputs.mean, matrix) + offset
    # By Stein's lemma Cov[h, f] = S d E[f] / d E[h].
    left = inputs.times(matrix + tf.zeros_like(slope))  # [N, D, T]
    if covariance.shape.rank == 2:
        covariance += tf.reduce_sum(left * (matrix + 2.0 * slope), axis=1)
    else:
        cross = tf.matmul(left, slope, transpose_a=True)
        own = tf.matmul(left, matrix + tf.zeros_like(slope), transpose_a=True)
        covariance += own + cross + tf.linalg.matrix_transpose(cross)
    return Gaussian(mean, covariance)


# Squared exponential kernels, all GPs at once.


class _Stacked(NamedTuple):
    """Squared exponential kernels and inducing inputs: one for all GPs (K = 1), or each GP's own (K = T)."""

    log_variance: tf.Tensor  # [K]
    precision: tf.Tensor  # [K, D]
    Z: tf.Tensor  # [K, M, D]
    white: tf.Tensor  # [K], variance of the white noise added to each


def _parts(layer: GPLayer) -> tuple[Sequence[Kernel], Sequence[tf.Tensor]]:
    """The kernels and inducing inputs of a layer's GPs: one pair where they share both."""
    inducing, kernels = zip(*split_gps(layer.own_inducing_variable, layer.kernel))
    if not all(map(has_values_at_points, inducing, kernels)):
        raise NoClosedForm("Inducing variables that are not at points have no closed form here.")
    return kernels, [tf.convert_to_tensor(one.Z) for one in inducing]


def _stacked(layer: GPLayer, input_dim: int) -> _Stacked | None:
    """The kernels of a layer as one array in float64, where all are squared exponentials."""
    kernels, Zs = _parts(layer)
    waves: list[Wave] = []
    white = []
    for kernel in kernels:
        parts = terms(kernel, input_dim)
        smooth = [term for term in parts if isinstance(term, Wave) and term.frequency is None]
        noise = [term.variance for term in parts if isinstance(term, WhiteTerm)]
        if len(smooth) != 1 or len(smooth) + len(noise) < len(parts):
            return None
        waves += smooth
        white.append(tf.add_n(noise) if noise else tf.zeros([], gpflow.default_float()))
    return _Stacked(
        _wide(tf.stack([wave.log_amplitude for wave in waves])),
        _wide(tf.stack([wave.precision for wave in waves])),
        _wide(tf.stack(Zs)),
        _wide(tf.stack(white)),
    )


def _cross_covariance(layer: GPLayer, X: tf.Tensor) -> tf.Tensor:
    """k(X, Z) in float64: [1 or T, N, M]."""
    if gpflow.default_float() != tf.float64:
        try:
            stacked = _stacked(layer, X.shape[1])
        except NoClosedForm:
            stacked = None
        if stacked is not None:
            root = tf.sqrt(stacked.precision)[:, None, :]
            distances = squared_distances(_wide(X) * root, stacked.Z * root)
            return tf.exp(stacked.log_variance[:, None, None] - 0.5 * distances)
    K = _wide(tf.linalg.matrix_transpose(Kuf(layer.own_inducing_variable, layer.kernel, X)))
    return K if K.shape.rank == 3 else tf.expand_dims(K, 0)


def _stacked_moments(
    stacked: _Stacked,
    inputs: Gaussian,
    A: tf.Tensor,
    W: tf.Tensor,
    full: bool,
    slopes: bool,
) -> _Moments:
    log_variance, precision, Z, white = stacked
    K, M, D = Z.shape
    T, N = A.shape[0], tf.shape(inputs.mean)[0]
    shared = K == 1

    def per_set(x: tf.Tensor) -> tf.Tensor:
        """Weights [T, P] of all GPs as those of each set: [1, P, T], or [T, P, 1]."""
        return tf.transpose(x)[None] if shared else x[..., None]

    def per_gp(x: tf.Tensor) -> tf.Tensor:
        """The sums of each set, [1, N, T] or [T, N, 1], as [N, T]."""
        return x[0] if shared else tf.transpose(x[..., 0])

    own = Exponentials(log_variance[:, None] + tf.zeros_like(Z[..., 0]), Z, precision)
    points = features(own, inputs)
    if slopes:
        # Q (sum_m E_m A_m z_m - E[h] sum_m E_m A_m), all in one pass over the exponentials.
        weighted = A[:, :, None] * Z  # [T, M, D]
        columns = tf.concat([A[..., None], weighted], axis=-1)  # [T, M, 1 + D]
        if shared:
            columns = tf.reshape(tf.transpose(columns, [1, 0, 2]), [1, M, T * (1 + D)])
        sums = tf.reshape(
            tf.transpose(exponential_sums(*points, columns), [1, 0, 2]), [N, T, 1 + D]
        )
        mean = sums[..., 0]
        pull = sums[..., 1:] - inputs.mean[:, None, :] * mean[..., None]  # [N, T, D]
        Q = tilted_precision(precision, inputs)  # [K, N, D(, D)]
        Q = tf.transpose(Q, [1, 0, *range(2, Q.shape.rank)])
        product = Q * pull if inputs.is_diagonal else tf.linalg.matvec(Q, pull)
        slope = tf.transpose(product, [0, 2, 1])
    else:
        mean = per_gp(exponential_sums(*points, per_set(A)))
        slope = tf.zeros([], mean.dtype)

    second = A[:, :, None] * A[:, None, :] - W
    psi2_points = features(pairs(log_variance, Z, precision), inputs)
    prior = tf.exp(log_variance) + white
    if not full:
        sums = per_gp(exponential_sums(*psi2_points, per_set(pair_coefficients(second))))
        return _Moments(mean, prior + sums - tf.square(mean), slope)

    rows, columns = np.tril_indices(T, -1)
    if shared:
        # The covariances of two GPs take the same expectations with the weights A_t A_u^T.
        outer = tf.gather(A, rows)[:, :, None] * tf.gather(A, columns)[:, None, :]
        outer = 0.5 * (outer + tf.linalg.matrix_transpose(outer))
        weights = pair_coefficients(tf.concat([second, outer], axis=0))
        sums = exponential_sums(*psi2_points, per_set(weights))[0]  # [N, T + T (T - 1) / 2]
        diagonal, off_diagonal = sums[:, :T], sums[:, T:]
    else:
        diagonal = per_gp(exponential_sums(*psi2_points, per_set(pair_coefficients(second))))
        off_diagonal = _products_of_pairs(stacked, inputs, A, rows, columns)
    return _Moments(
        mean, _assemble(prior + diagonal, off_diagonal) - mean[:, :, None] * mean[:, None, :], slope
    )


def _products_of_pairs(
    stacked: _Stacked, inputs: Gaussian, A: tf.Tensor, rows: np.ndarray, columns: np.ndarray
) -> tf.Tensor:
    """E[f_t f_u] for pairs of GPs with their own kernels: [N, pairs]."""
    if len(rows) == 0:
        return tf.zeros([tf.shape(inputs.mean)[0], 0], A.dtype)
    left, right = ([tf.gather(x, index) for x in stacked[:3]] for index in (rows, columns))
    weights = tf.gather(A, rows)[:, :, None] * tf.gather(A, columns)[:, None, :]
    weights = tf.reshape(weights, [len(rows), -1, 1])
    functions = products(left[0], left[2], left[1], right[0], right[2], right[1])
    return tf.transpose(exponential_sums(*features(functions, inputs), weights)[..., 0])


def _assemble(diagonal: tf.Tensor, off_diagonal: tf.Tensor) -> tf.Tensor:
    """[N, T] and the entries t > u [N, T (T - 1) / 2], row by row, as symmetric matrices [N, T, T]."""
    T = diagonal.shape[1]
    entries = tf.concat([diagonal, off_diagonal], axis=1)
    position = {(t, t): t for t in range(T)}
    rows, columns = np.tril_indices(T, -1)
    for index, (t, u) in enumerate(zip(rows, columns)):
        position[int(t), int(u)] = position[int(u), int(t)] = T + index
    order = [position[t, u] for t in range(T) for u in range(T)]
    return tf.reshape(tf.gather(entries, order, axis=1), [-1, T, T])


# All other kernels with a closed form: one GP after the other.


def _dense_moments(
    layer: GPLayer, inputs: Gaussian, A: tf.Tensor, W: tf.Tensor, full: bool
) -> _Moments:
    kernels, Zs = _parts(layer)
    Zs = [_wide(Z) for Z in Zs]
    T, K = layer.num_latent_gps, len(kernels)
    own = [t % K for t in range(T)]
    parts = list(zip(kernels, Zs))
    means = [psi1(kernel, Z, inputs) for kernel, Z in parts]  # [N, M]
    slopes = [psi1_slope(kernel, Z, inputs) for kernel, Z in parts]  # [N, D, M]
    priors = [psi0(kernel, inputs) for kernel, _ in parts]  # [N]
    squares = [psi2(kernel, Z, kernel, Z, inputs) for kernel, Z in parts]  # [N, M, M]
    mean = tf.stack([tf.linalg.matvec(means[own[t]], A[t]) for t in range(T)], axis=1)
    slope = tf.stack([tf.linalg.matvec(slopes[own[t]], A[t]) for t in range(T)], axis=2)

    def entry(t: int, u: int) -> tf.Tensor:
        """E[f_t f_u]"""
        weights = A[t][:, None] * A[u]
        if t == u:
            return priors[own[t]] + tf.tensordot(squares[own[t]], weights - W[t], 2)
        if own[t] == own[u]:
            return tf.tensordot(squares[own[t]], weights, 2)
        return tf.tensordot(psi2(*parts[own[t]], *parts[own[u]], inputs), weights, 2)

    diagonal = tf.stack([entry(t, t) for t in range(T)], axis=1)
    if not full:
        return _Moments(mean, diagonal - tf.square(mean), slope)
    pairs_of_gps = [entry(t, u) for t in range(T) for u in range(t)]
    off_diagonal = tf.stack(pairs_of_gps, axis=1) if pairs_of_gps else diagonal[:, :0]
    second = _assemble(diagonal, off_diagonal)
    return _Moments(mean, second - mean[:, :, None] * mean[:, None, :], slope)


# Any kernel and any mean function.


def _by_quadrature(
    layer: GPLayer, inputs: Gaussian, A: tf.Tensor, W: tf.Tensor, full: bool
) -> Gaussian:
    """The moments of a mixture of the layer's functions at nodes of the input's distribution."""
    D, T = inputs.mean.shape[1], layer.num_latent_gps
    nodes, weights = (tf.constant(x, inputs.mean.dtype) for x in _nodes(D))  # [Q, D], [Q]
    if inputs.is_diagonal:
        shifts = nodes[:, None, :] * tf.sqrt(inputs.covariance)
    else:
        root = tf.linalg.cholesky(tf.cast(inputs.covariance, tf.float64))
        shifts = tf.einsum("nde,qe->qnd", tf.cast(root, nodes.dtype), nodes)
    rows = tf.reshape(inputs.mean + shifts, [-1, D])
    means, variances = at_points(layer, rows, A, W)
    Q = nodes.shape[0]
    means = tf.reshape(means, [Q, -1, T])
    variance = tf.tensordot(weights, tf.reshape(variances, [Q, -1, T]), 1)
    mean = tf.tensordot(weights, means, 1)
    centred = means - mean
    if not full:
        return Gaussian(mean, variance + tf.tensordot(weights, tf.square(centred), 1))
    between = tf.einsum("q,qnt,qnu->ntu", weights, centred, centred)
    return Gaussian(mean, between + tf.linalg.diag(variance))


def _nodes(dim: int) -> tuple[np.ndarray, np.ndarray]:
    """
    Nodes [Q, D] and weights [Q] for a standard normal: a Gauss-Hermite grid in few dimensions, a quasi
    Monte Carlo sequence in many. Of one input even nodes, which are nearer to each other in the middle than
    twice as many of Gauss and Hermite: kernels without closed forms may be narrow.
    """
    if dim == 1:
        nodes = np.linspace(-8.5, 8.5, 128)
        weights = np.exp(-0.5 * np.square(nodes))
        return nodes[:, None], weights / weights.sum()
    order = int(_MAX_NODES ** (1.0 / dim) + 1e-9)
    if order < 5:
        return quasi_normals(_NUM_DRAWS, [dim], 0)[0], np.full(_NUM_DRAWS, 1.0 / _NUM_DRAWS)
    nodes, weights = np.polynomial.hermite_e.hermegauss(order)
    weights = weights / weights.sum()
    grid = np.stack([x.ravel() for x in np.meshgrid(*[nodes] * dim, indexing="ij")], axis=1)
    total = np.prod([x.ravel() for x in np.meshgrid(*[weights] * dim, indexing="ij")], axis=0)
    return grid, total
