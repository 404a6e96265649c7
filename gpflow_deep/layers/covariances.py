"""
Covariances between inducing variables and inputs.

GPflow's ``Kuu`` and ``Kuf`` are used for every kernel. The squared exponential with inducing points,
alone or with white noise added, is the default of deep GPs and has a short cut: its logarithm is one
matrix product, so that a covariance matrix costs one product and one exponential instead of eight
passes over it, and in float32 K_MM is evaluated in float64, where its small eigenvalues live.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import NamedTuple

import gpflow
import tensorflow as tf
from gpflow.inducing_variables import (
    InducingPoints,
    InducingVariables,
    SharedIndependentInducingVariables,
)
from gpflow.kernels import (
    IsotropicStationary,
    Kernel,
    MultioutputKernel,
    Product,
    SeparateIndependent,
    SharedIndependent,
    SquaredExponential,
    Sum,
    White,
)

from ..kernels import StackedStationary
from ..numerics.linalg import squared_distances

__all__ = ["Kuf", "Kuu", "batch_covariance", "local_covariances", "prior_variance"]


class _SquaredExponentialSum(NamedTuple):
    """A squared exponential kernel and the white noise added to it."""

    kernel: SquaredExponential
    white: Sequence[White]


def _single(
    inducing_variable: InducingVariables, kernel: Kernel
) -> tuple[InducingVariables, Kernel]:
    """The one kernel and one set of inducing variables behind a layer whose GPs share them."""
    if isinstance(inducing_variable, SharedIndependentInducingVariables) and not isinstance(
        kernel, MultioutputKernel
    ):
        inducing_variable = inducing_variable.inducing_variable
    if isinstance(kernel, SharedIndependent):
        if isinstance(inducing_variable, SharedIndependentInducingVariables):
            return inducing_variable.inducing_variable, kernel.kernel
        if isinstance(inducing_variable, InducingPoints):
            return inducing_variable, kernel.kernel
    elif isinstance(kernel, StackedStationary):
        if isinstance(inducing_variable, SharedIndependentInducingVariables):
            return inducing_variable.inducing_variable, kernel
    elif isinstance(kernel, MultioutputKernel) and isinstance(inducing_variable, InducingPoints):
        return SharedIndependentInducingVariables(inducing_variable), kernel
    return inducing_variable, kernel


def _as_squared_exponential(
    inducing_variable: InducingVariables, kernel: Kernel
) -> _SquaredExponentialSum | None:
    if type(inducing_variable) is not InducingPoints:
        return None
    parts = kernel.kernels if type(kernel) is Sum else [kernel]
    smooth = [k for k in parts if type(k) is SquaredExponential]
    white = [k for k in parts if type(k) is White]
    if len(smooth) != 1 or len(smooth) + len(white) != len(parts):
        return None
    return _SquaredExponentialSum(smooth[0], white)


def _log_covariance(kernel: SquaredExponential, Z: tf.Tensor, X: tf.Tensor) -> tf.Tensor:
    """log k(Z, X) [..., M, N] as one matrix product, in the dtype of ``Z`` and ``X``."""
    lengthscales = tf.cast(kernel.lengthscales, Z.dtype)
    Z, X = kernel.slice(Z, X)
    # The kernel is stationary: about Z's mean the products lose fewer digits to cancellation.
    centre = tf.stop_gradient(tf.reduce_mean(Z, axis=-2, keepdims=True))
    Z, X = (Z - centre) / lengthscales, (X - centre) / lengthscales
    z = -0.5 * tf.reduce_sum(tf.square(Z), axis=-1, keepdims=True)
    z += tf.math.log(tf.cast(kernel.variance, Z.dtype))
    x = -0.5 * tf.reduce_sum(tf.square(X), axis=-1, keepdims=True)
    left = tf.concat([Z, z, tf.ones_like(z)], axis=-1)  # [M, D + 2]
    right = tf.concat([X, tf.ones_like(x), x], axis=-1)  # [N, D + 2]
    return tf.matmul(left, right, transpose_b=True)


def Kuf(inducing_variable: InducingVariables, kernel: Kernel, X: tf.Tensor) -> tf.Tensor:
    """Covariance of inducing variables and function values at ``X`` [N, D]: [M, N] or [T, M, N]."""
    inducing_variable, kernel = _single(inducing_variable, kernel)
    if isinstance(kernel, StackedStationary):
        return kernel(inducing_variable.Z, X, full_cov=True, full_output_cov=False)
    fast = _as_squared_exponential(inducing_variable, kernel)
    if fast is None:
        return gpflow.covariances.Kuf(inducing_variable, kernel, X)
    return tf.exp(_log_covariance(fast.kernel, tf.convert_to_tensor(inducing_variable.Z), X))


def Kuu(inducing_variable: InducingVariables, kernel: Kernel, jitter: float) -> tf.Tensor:
    """Covariance of the inducing variables plus ``jitter`` I, in float64: [M, M] or [T, M, M]."""
    inducing_variable, kernel = _single(inducing_variable, kernel)
    fast = _as_squared_exponential(inducing_variable, kernel)
    if isinstance(kernel, StackedStationary):
        K = kernel(inducing_variable.Z, full_cov=True, full_output_cov=False)
        K, noise = tf.cast(K, tf.float64), tf.constant(jitter, tf.float64)
    elif fast is None:
        K = tf.cast(gpflow.covariances.Kuu(inducing_variable, kernel, jitter=0.0), tf.float64)
        noise = tf.constant(jitter, tf.float64)
    else:
        Z = tf.cast(inducing_variable.Z, tf.float64)
        K = tf.exp(_log_covariance(fast.kernel, Z, Z))
        variances = [tf.cast(white.variance, tf.float64) for white in fast.white]
        noise = tf.add_n([tf.constant(jitter, tf.float64), *variances])
    return tf.linalg.set_diag(K, tf.linalg.diag_part(K) + noise)


def batch_covariance(kernel: Kernel, X: tf.Tensor, X2: tf.Tensor | None = None) -> tf.Tensor:
    """
    Covariance of function values at ``X`` and ``X2`` in each of S pairs of sets of inputs; at ``X`` itself,
    with any white noise, where there is no ``X2``. For large sets: distances are matrix products.

    :param X: [S, M, D], or [1, M, D] for one set with every ``X2``.
    :param X2: [S, N, D], likewise.
    :return: [S, K, M, N] in the dtype of ``X``, K = T where every GP has its own kernel, else 1.
    """
    if isinstance(kernel, SharedIndependent):
        kernel = kernel.kernel
    if isinstance(kernel, SeparateIndependent):
        return tf.concat([batch_covariance(k, X, X2) for k in kernel.kernels], axis=1)
    if isinstance(kernel, (Sum, Product)):
        parts = [batch_covariance(k, X, X2) for k in kernel.kernels]
        return tf.add_n(parts) if isinstance(kernel, Sum) else reduce(tf.multiply, parts)
    if type(kernel) is SquaredExponential:
        return tf.exp(_log_covariance(kernel, X, X if X2 is None else X2))[:, None]
    if X.dtype != gpflow.default_float():
        # Other kernels' parameters do not follow their inputs.
        inputs = [None if x is None else tf.cast(x, gpflow.default_float()) for x in (X, X2)]
        return tf.cast(batch_covariance(kernel, *inputs), X.dtype)
    if X2 is None:
        return local_covariances(kernel, X)
    if isinstance(kernel, IsotropicStationary):
        left, right = (kernel.scale(x) for x in kernel.slice(X, X2))
        squares = tf.reduce_sum(tf.square(left), axis=-1)[..., :, None]
        squares += tf.reduce_sum(tf.square(right), axis=-1)[..., None, :]
        squares -= 2.0 * tf.matmul(left, right, transpose_b=True)
        return kernel.K_r2(tf.maximum(squares, 0.0))[:, None]
    S = tf.maximum(tf.shape(X)[0], tf.shape(X2)[0])
    return local_covariances(
        kernel, *(tf.broadcast_to(x, [S, tf.shape(x)[1], x.shape[2]]) for x in (X, X2))
    )


def prior_variance(kernel: Kernel, X: tf.Tensor) -> tf.Tensor:
    """Prior variance of the GPs at ``X`` [N, D]: [N, T], or [N, 1] where they share one kernel."""
    if isinstance(kernel, SharedIndependent):
        kernel = kernel.kernel
    if isinstance(kernel, MultioutputKernel):
        return kernel(X, full_cov=False, full_output_cov=False)
    return kernel(X, full_cov=False)[:, None]


def local_covariances(kernel: Kernel, X: tf.Tensor, X2: tf.Tensor | None = None) -> tf.Tensor:
    """
    Covariances of the GPs within each of R groups of points, none between groups. For small groups:
    distances are sums of differences, whose digits do not cancel.

    Any kernel will do; an isotropic stationary one takes distances once, ``StackedStationary`` once for all
    its GPs. As in GPflow, white noise is part of the covariance of ``X`` with itself only.

    :param X: [R, N, D].
    :param X2: [R, N2, D]; ``X`` itself by default.
    :return: [R, T, N, N2], or [R, 1, N, N2] where the GPs share one kernel.
    """
    if isinstance(kernel, SharedIndependent):
        kernel = kernel.kernel
    if isinstance(kernel, SeparateIndependent):
        return tf.concat([local_covariances(k, X, X2) for k in kernel.kernels], axis=1)
    if isinstance(kernel, (StackedStationary, IsotropicStationary)):
        X, X2 = kernel.slice(X, X2)
        X2 = X if X2 is None else X2
        if isinstance(kernel, StackedStationary):
            return kernel.local(X, X2)
        X, X2 = kernel.scale(X), kernel.scale(X2)
        return kernel.K_r2(squared_distances(X, X2))[:, None]
    if X2 is None:
        return kernel(X, full_cov=True)[:, None]
    # GPflow pairs every group of X with every group of X2: ask for one pair of points at a time.
    shape = tf.concat([tf.shape(X)[:2], tf.shape(X2)[1:]], axis=0)  # [R, N, N2, D]
    pairs = [tf.broadcast_to(X[:, :, None, :], shape), tf.broadcast_to(X2[:, None, :, :], shape)]
    pairs = tf.reshape(tf.stack(pairs, axis=-2), [-1, 2, X.shape[-1]])
    return tf.reshape(kernel(pairs, full_cov=True)[:, 0, 1], shape[:-1])[:, None]
