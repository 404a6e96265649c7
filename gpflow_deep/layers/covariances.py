"""
Covariances between inducing variables and inputs.

GPflow's ``Kuu`` and ``Kuf`` are used for every kernel. With inducing points the squared exponential and the
Matern kernels of 3/2 and 5/2, alone or with white noise added, have a short cut, one matrix product and few
passes over a covariance matrix, in the dtype of the data path; and in float32 K_MM is evaluated in float64,
where its small eigenvalues live.

Short cuts are for kernels with the methods that GPflow, or this package, gave them
(:func:`~gpflow_deep.kernels.methods.has_methods_of`); all others are called. Where a user registered
covariances of his own for inducing variables and a kernel, GPflow's dispatch has the word.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import NamedTuple

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.inducing_variables import (
    InducingPoints,
    InducingVariables,
    MultioutputInducingVariables,
)
from gpflow.kernels import (
    IsotropicStationary,
    Kernel,
    MultioutputKernel,
    Product,
    Stationary,
    Sum,
    White,
)

from ..kernels import StackedStationary
from ..kernels.independent import latent_kernels
from ..kernels.methods import (
    has_methods_of,
    has_registered_covariances,
    profile_of,
    takes_batches,
)
from ..numerics.factorisations import add_jitter
from ..numerics.linalg import squared_distances
from ..numerics.stationary import Profile, stationary_covariance

__all__ = [
    "Kuf",
    "Kuu",
    "batch_covariance",
    "covariance_matrix",
    "has_values_at_points",
    "local_covariances",
    "prior_variance",
    "split_gps",
]


class _StationarySum(NamedTuple):
    """A kernel that has a short cut, and the white noise added to it."""

    kernel: Stationary
    profile: Profile
    white: Sequence[White]


def split_gps(
    inducing_variable: InducingVariables, kernel: Kernel
) -> list[tuple[InducingVariables, Kernel]]:
    """
    The inducing variables and kernel of each GP, as GPflow's ``Kuu`` and ``Kuf`` take them: one pair where
    the GPs share both. A multi-output kernel that has its own way to evaluate its GPs stays one, and so do
    both where a user registered covariances of all GPs at once.
    """
    if isinstance(inducing_variable, MultioutputInducingVariables) and has_registered_covariances(
        inducing_variable, kernel
    ):
        return [(inducing_variable, kernel)]
    kernels = latent_kernels(kernel) or [kernel]
    each = [inducing_variable]
    if isinstance(inducing_variable, MultioutputInducingVariables):
        each = list(inducing_variable.inducing_variables)
    size = max(len(kernels), len(each))
    return list(zip(each * (size // len(each)), [*kernels] * (size // len(kernels))))


def has_values_at_points(inducing_variable: InducingVariables, kernel: Kernel) -> bool:
    """Whether inducing outputs are a GP's values at inducing inputs, with the kernel's own covariances."""
    is_points = type(inducing_variable) is InducingPoints
    return is_points and not has_registered_covariances(inducing_variable, kernel)


def _as_stationary(inducing_variable: InducingVariables, kernel: Kernel) -> _StationarySum | None:
    if not has_values_at_points(inducing_variable, kernel):
        return None
    parts = kernel.kernels if has_methods_of(kernel, Sum) else [kernel]
    white = [part for part in parts if has_methods_of(part, White)]
    smooth = [
        (part, profile) for part in parts for profile in [profile_of(part)] if profile is not None
    ]
    if len(smooth) != 1 or len(smooth) + len(white) != len(parts):
        return None
    return _StationarySum(*smooth[0], white)


def _stationary(kernel: Stationary, profile: Profile, Z: tf.Tensor, X: tf.Tensor) -> tf.Tensor:
    """k(Z, X) [..., M, N], in the dtype of ``Z`` and ``X``."""
    parameters = (tf.cast(x, Z.dtype) for x in (kernel.lengthscales, kernel.variance))
    return stationary_covariance(profile, *_sliced(kernel, Z, X), *parameters)


def _sliced(kernel: Kernel, X: tf.Tensor, X2: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """What the kernel's ``slice`` makes of inputs. GPflow's of all columns would copy them, both ways."""
    dims = kernel.active_dims
    is_idle = type(kernel).slice is Kernel.slice and isinstance(dims, slice) and dims == slice(None)
    return (X, X2) if is_idle else kernel.slice(X, X2)


def covariance_matrix(kernel: Kernel, X: tf.Tensor, X2: tf.Tensor | None = None) -> tf.Tensor:
    """What a kernel of one output says when it is called with ``X`` [N, D] and ``X2`` [N2, D]: [N, N2]."""
    profile = profile_of(kernel)
    if profile is None:
        return kernel(X, X2)
    return _stationary(kernel, profile, X, X if X2 is None else X2)


def Kuf(inducing_variable: InducingVariables, kernel: Kernel, X: tf.Tensor) -> tf.Tensor:
    """
    Covariance of inducing variables and function values at ``X`` [N, D], in its dtype: [M, N] or [T, M, N].
    """
    dtype, own = X.dtype, tf.cast(X, gpflow.default_float())

    def covariance(inducing_variable: InducingVariables, kernel: Kernel) -> tf.Tensor:
        fast = _as_stationary(inducing_variable, kernel)
        if fast is not None:
            Z = tf.cast(inducing_variable.Z, dtype)
            return _stationary(fast.kernel, fast.profile, Z, X)
        if isinstance(kernel, MultioutputKernel) and type(inducing_variable) is InducingPoints:
            return tf.cast(_all_gps(kernel, inducing_variable.Z, own), dtype)
        K = _dense(gpflow.covariances.Kuf(inducing_variable, kernel, own))
        return tf.cast(_with_known(K, [-2], inducing_variable), dtype)

    return _of_each(covariance, inducing_variable, kernel)


def Kuu(inducing_variable: InducingVariables, kernel: Kernel, jitter: float) -> tf.Tensor:
    """Covariance of the inducing variables plus ``jitter`` I, in float64: [M, M] or [T, M, M]."""

    def covariance(inducing_variable: InducingVariables, kernel: Kernel) -> tf.Tensor:
        fast = _as_stationary(inducing_variable, kernel)
        if fast is not None:
            Z = tf.cast(inducing_variable.Z, tf.float64)
            K = _stationary(fast.kernel, fast.profile, Z, Z)
            if not fast.white:
                return K
            noise = sum(tf.cast(white.variance, tf.float64) for white in fast.white)
            return tf.linalg.set_diag(K, tf.linalg.diag_part(K) + noise)
        if isinstance(kernel, MultioutputKernel) and type(inducing_variable) is InducingPoints:
            K = _all_gps(kernel, inducing_variable.Z)
        else:
            K = _dense(gpflow.covariances.Kuu(inducing_variable, kernel, jitter=0.0))
            K = _with_known(K, [-2, -1], inducing_variable)
        return _clear_of_rounding(K)

    K = _of_each(covariance, inducing_variable, kernel)
    return add_jitter(K, jitter)


def _dense(K: tf.Tensor | tf.linalg.LinearOperator) -> tf.Tensor:
    """GPflow takes operators, too."""
    return K.to_dense() if isinstance(K, tf.linalg.LinearOperator) else K


def _with_known(
    K: tf.Tensor, axes: Sequence[int], inducing_variable: InducingVariables
) -> tf.Tensor:
    """Whose axes of inducing variables are as long as these know, where a user's covariance does not tell."""
    shape = K.shape.as_list()
    unknown = [axis for axis in axes if shape[axis] is None]
    if unknown:
        with tf.init_scope():  # eager, also while a function is being traced
            M = int(inducing_variable.num_inducing)
        for axis in unknown:
            shape[axis] = M
        K.set_shape(shape)
    return K


def _clear_of_rounding(K: tf.Tensor) -> tf.Tensor:
    """In float64; with what float32 may have taken from the smallest eigenvalues, where it was in that."""
    wide = tf.cast(K, tf.float64)
    if K.dtype == tf.float64:
        return wide
    M = tf.cast(tf.shape(K)[-1], tf.float64)
    largest = tf.reduce_max(tf.linalg.diag_part(wide), axis=-1)
    rounding = tf.stop_gradient(M * largest) * np.finfo(K.dtype.as_numpy_dtype).eps
    return add_jitter(wide, rounding[..., None, None])


def _all_gps(kernel: MultioutputKernel, X: tf.Tensor, X2: tf.Tensor | None = None) -> tf.Tensor:
    """Covariances [T, N, N2] of a kernel that has its own way to evaluate its GPs."""
    return kernel(X, X2, full_cov=True, full_output_cov=False)


def _of_each(
    covariance: Callable[[InducingVariables, Kernel], tf.Tensor],
    inducing_variable: InducingVariables,
    kernel: Kernel,
) -> tf.Tensor:
    """The covariance of the pair that all GPs share, or those of each GP's own."""
    each = [covariance(*pair) for pair in split_gps(inducing_variable, kernel)]
    if len(each) == 1:
        return each[0]
    if latent_kernels(kernel) is None:  # of all GPs at the inducing variables of each
        each = [K[t] for t, K in enumerate(each)]
    return tf.stack(each)


def prior_variance(kernel: Kernel, X: tf.Tensor) -> tf.Tensor:
    """
    Prior variance of the GPs at ``X`` [N, D], in its dtype: [N, T], or [N, 1] where they share one kernel.
    """
    dtype, X = X.dtype, tf.cast(X, gpflow.default_float())
    kernels = latent_kernels(kernel)
    if kernels is not None:
        return tf.cast(tf.stack([k(X, full_cov=False) for k in kernels], axis=-1), dtype)
    assert isinstance(kernel, MultioutputKernel)
    return tf.cast(kernel(X, full_cov=False, full_output_cov=False), dtype)


def batch_covariance(kernel: Kernel, X: tf.Tensor, X2: tf.Tensor | None = None) -> tf.Tensor:
    """
    Covariance of function values at ``X`` and ``X2`` in each of S pairs of sets of inputs; at ``X`` itself,
    with any white noise, where there is no ``X2``. For large sets: distances are matrix products.

    :param X: [S, M, D], or [1, M, D] for one set with every ``X2``.
    :param X2: [S, N, D], likewise.
    :return: [S, K, M, N] in the dtype of ``X``, K = T where every GP has its own kernel, else 1.
    """
    parts = _of_parts(batch_covariance, kernel, X, X2)
    if parts is not None:
        return parts
    profile = profile_of(kernel)
    if profile is not None:
        return tf.expand_dims(_stationary(kernel, profile, X, X if X2 is None else X2), 1)
    if X.dtype != gpflow.default_float():
        # Other kernels' parameters do not follow their inputs.
        inputs = [None if x is None else tf.cast(x, gpflow.default_float()) for x in (X, X2)]
        return tf.cast(batch_covariance(kernel, *inputs), X.dtype)
    if X2 is None:
        return local_covariances(kernel, X)
    if _is_function_of_distance(kernel, X):
        left, right = (kernel.scale(x) for x in _sliced(kernel, X, X2))
        squares = tf.reduce_sum(tf.square(left), axis=-1)[..., :, None]
        squares += tf.reduce_sum(tf.square(right), axis=-1)[..., None, :]
        squares -= 2.0 * tf.matmul(left, right, transpose_b=True)
        return tf.expand_dims(kernel.K_r2(tf.maximum(squares, 0.0)), 1)
    if X.shape[0] == 1 and not isinstance(kernel, MultioutputKernel):
        K = kernel(X[0], tf.reshape(X2, [-1, X2.shape[-1]]))  # [M, S N]
        K = tf.reshape(K, [1, tf.shape(X)[1], tf.shape(X2)[0], tf.shape(X2)[1]])
        return tf.transpose(K, [2, 0, 1, 3])
    S = tf.maximum(tf.shape(X)[0], tf.shape(X2)[0])
    return local_covariances(
        kernel, *(tf.broadcast_to(x, [S, tf.shape(x)[1], x.shape[2]]) for x in (X, X2))
    )


def local_covariances(kernel: Kernel, X: tf.Tensor, X2: tf.Tensor | None = None) -> tf.Tensor:
    """
    Covariances of the GPs within each of R groups of points, none between groups. For small groups:
    distances are sums of differences, whose digits do not cancel.

    Any kernel will do; an isotropic stationary one takes distances once, ``StackedStationary`` once for all
    its GPs, and one that takes no batches is called group by group, which is slow. As in GPflow, white noise
    is part of the covariance of ``X`` with itself only.

    :param X: [R, N, D].
    :param X2: [R, N2, D]; ``X`` itself by default.
    :return: [R, T, N, N2], or [R, 1, N, N2] where the GPs share one kernel.
    """
    parts = _of_parts(local_covariances, kernel, X, X2)
    if parts is not None:
        return parts
    if has_methods_of(kernel, StackedStationary):
        return kernel.local(*_sliced(kernel, X, X if X2 is None else X2))
    if _is_function_of_distance(kernel, X):
        X, X2 = (kernel.scale(x) for x in _sliced(kernel, X, X if X2 is None else X2))
        return tf.expand_dims(kernel.K_r2(squared_distances(X, X2)), 1)
    if isinstance(kernel, MultioutputKernel) or not takes_batches(kernel, X.shape[-1]):
        return _group_by_group(kernel, X, X2)
    if X2 is None:
        return tf.expand_dims(kernel(X, full_cov=True), 1)
    # GPflow pairs every group of X with every group of X2: ask for one pair of points at a time.
    shape = tf.concat([tf.shape(X)[:2], tf.shape(X2)[1:]], axis=0)  # [R, N, N2, D]
    pairs = [tf.broadcast_to(X[:, :, None, :], shape), tf.broadcast_to(X2[:, None, :, :], shape)]
    pairs = tf.reshape(tf.stack(pairs, axis=-2), [-1, 2, X.shape[-1]])
    return tf.reshape(kernel(pairs, full_cov=True)[:, 0, 1], shape[:-1])[:, None]


def _of_parts(
    covariance: Callable[[Kernel, tf.Tensor, tf.Tensor | None], tf.Tensor],
    kernel: Kernel,
    X: tf.Tensor,
    X2: tf.Tensor | None,
) -> tf.Tensor | None:
    """The covariances of a kernel that is made of others, from theirs; ``None`` for any other kernel."""
    kernels = latent_kernels(kernel)
    if isinstance(kernel, MultioutputKernel) and kernels is not None:
        return tf.concat([covariance(k, X, X2) for k in kernels], axis=1)
    if has_methods_of(kernel, Sum):
        return tf.add_n([covariance(k, X, X2) for k in kernel.kernels])
    if has_methods_of(kernel, Product):
        return reduce(tf.multiply, [covariance(k, X, X2) for k in kernel.kernels])
    return None


def _is_function_of_distance(kernel: Kernel, X: tf.Tensor) -> bool:
    """
    Whether a kernel is its own ``K_r2`` of distances between inputs that it sliced and scaled, whoever
    wrote these methods, and groups of distances are as welcome to it as one matrix of them.
    """
    replaced = ("__call__", "K", "scaled_squared_euclid_dist")
    return has_methods_of(kernel, IsotropicStationary, *replaced) and takes_batches(
        kernel, X.shape[-1]
    )


def _group_by_group(kernel: Kernel, X: tf.Tensor, X2: tf.Tensor | None) -> tf.Tensor:
    """What kernels say of one group's matrices, [R, T or 1, N, N2], for those that know no other."""

    @tf.autograph.experimental.do_not_convert
    def covariance(group: tuple[tf.Tensor, ...]) -> tf.Tensor:
        if isinstance(kernel, MultioutputKernel):
            return _all_gps(kernel, *group)
        return tf.expand_dims(kernel(*group), 0)

    groups = (X,) if X2 is None else (X, X2)
    return tf.map_fn(covariance, groups, fn_output_signature=X.dtype)
