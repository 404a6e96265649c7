"""Many stationary kernels as one."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
from check_shapes import inherit_check_shapes
from gpflow.base import Parameter, TensorType
from gpflow.kernels import (
    IsotropicStationary,
    Kernel,
    Matern52,
    MultioutputKernel,
)
from gpflow.utilities import positive

from ..numerics.linalg import squared_distances
from ..numerics.stationary import Profile
from ..validation import check_positive_array, check_positive_integer
from .methods import has_methods_of, profile_of

__all__ = ["StackedStationary"]


class StackedStationary(MultioutputKernel):
    """
    T independent GPs with stationary kernels of one kind, each with its own variance and lengthscale: what
    ``SeparateIndependent`` of T kernels is, with two parameters instead of 2 T and as few operations as one
    kernel has.

    >>> kernel = gd.kernels.StackedStationary(3, gpflow.kernels.Matern32, lengthscales=[0.1, 1.0, 10.0])
    >>> kernel.num_latent_gps, len(kernel.trainable_variables)
    (3, 2)

    :param num_latent_gps: number of GPs, T.
    :param kernel: an isotropic stationary kernel of GPflow. Its other parameters, such as the ``alpha`` of
        ``RationalQuadratic``, are shared by the GPs.
    :param variance: initial variances, [T] or one for all.
    :param lengthscales: initial lengthscales: [T] or one for all; [T, D] for one a dimension (ARD).
    :raises TypeError: where ``kernel`` is not such a kernel's class.
    :raises ValueError: where variances or lengthscales are not T, or ``kernel`` sets its own or active_dims.
    """

    def __init__(
        self,
        num_latent_gps: int,
        kernel: Callable[[], IsotropicStationary] = Matern52,
        *,
        variance: TensorType = 1.0,
        lengthscales: TensorType = 1.0,
        name: str | None = None,
    ) -> None:
        super().__init__(name=name)
        self._num_latent_gps = check_positive_integer(num_latent_gps, "num_latent_gps")
        shape: Any = None if isinstance(kernel, Kernel) or not callable(kernel) else kernel()
        if not has_methods_of(shape, IsotropicStationary, *_REPLACED):
            raise TypeError(
                "kernel: expected an isotropic stationary kernel, with no methods of its own but K_r2 or"
                f" K_r, got {kernel!r}."
            )
        own = {"variance": shape.variance, "lengthscales": shape.lengthscales}
        if any(scale.shape.rank or scale.numpy() != 1.0 for scale in own.values()):
            raise ValueError(
                "kernel: expected one of variance and lengthscale 1, as the GPs' own are given beside it, got"
                f" {shape.variance.numpy()} and {shape.lengthscales.numpy()}."
            )
        if shape.active_dims != slice(None):
            raise ValueError(
                f"kernel: expected one of all inputs, got active_dims={shape.active_dims!r}."
            )
        self.shape: IsotropicStationary = shape
        # No parameters of its own: scales are applied here.
        for scale in ("variance", "lengthscales"):
            setattr(self.shape, scale, 1.0)
        self.variance = self._parameter(variance, "variance", (1,))
        self.lengthscales = self._parameter(lengthscales, "lengthscales", (1, 2))

    def _parameter(self, value: TensorType, name: str, ranks: tuple[int, ...]) -> Parameter:
        T = self._num_latent_gps
        array = check_positive_array(value, name)
        if array.ndim == 0:
            array = np.full(T, array)
        if array.ndim not in ranks or len(array) != T:
            raise ValueError(f"{name}: expected {T} of them (num_latent_gps), got {array.shape}.")
        return Parameter(array, transform=positive())

    @property
    def num_latent_gps(self) -> int:
        """Number of GPs, T."""
        return self._num_latent_gps

    @property
    def latent_kernels(self) -> tuple[Kernel, ...]:
        """The kernels by themselves, with the present values of their parameters."""
        kernels = []
        for variance, lengthscales in zip(self.variance.numpy(), self.lengthscales.numpy()):
            kernel = copy.deepcopy(self.shape)
            kernel.variance = Parameter(variance, transform=positive())
            kernel.lengthscales = Parameter(lengthscales, transform=positive())
            kernels.append(kernel)
        return tuple(kernels)

    @property
    def ard(self) -> bool:
        """Whether every dimension has a lengthscale of its own."""
        return bool(self.lengthscales.shape.rank == 2)

    def local(self, X: tf.Tensor, X2: tf.Tensor) -> tf.Tensor:
        """
        Covariances within each of R groups of points, none between groups.

        :param X: [R, N, D], presliced.
        :param X2: [R, N2, D].
        :return: [R, T, N, N2].
        """
        variance, lengthscales = (
            tf.convert_to_tensor(p) for p in (self.variance, self.lengthscales)
        )
        if self.ard:
            squares = tf.square(X[:, :, None, :] - X2[:, None, :, :])  # [R, N, N2, D]
            r2 = tf.einsum("rnmd,td->rtnm", squares, 1.0 / tf.square(lengthscales))
            return variance[:, None, None] * self.shape.K_r2(r2)
        # Distances once, for all GPs.
        squares, precision = squared_distances(X, X2), 1.0 / tf.square(lengthscales)
        profile = profile_of(self.shape)
        if profile is None:
            r2 = squares[:, None] * precision[:, None, None]
            return variance[:, None, None] * self.shape.K_r2(r2)
        return _stacked(profile, squares, precision, variance)

    @inherit_check_shapes
    def K(
        self, X: TensorType, X2: TensorType | None = None, full_output_cov: bool = True
    ) -> tf.Tensor:
        """Covariance of all GPs at ``X`` and ``X2``."""
        left = self._scaled(X)  # [T, batch..., N, D]
        if X2 is None:
            r2 = _squared_distances(left, left)
        else:
            right = self._scaled(X2)  # [T, batch2..., N2, D]
            rows = [tf.reshape(x, [x.shape[0], -1, x.shape[-1]]) for x in (left, right)]
            shape = tf.concat([tf.shape(left)[:-1], tf.shape(right)[1:-1]], axis=0)
            r2 = tf.reshape(_squared_distances(*rows), shape)
        variance = tf.reshape(self.variance, [-1] + [1] * (r2.shape.rank - 1))
        covariance = variance * self.shape.K_r2(r2)  # [T, batch..., N, (batch2...,) N2]
        if not full_output_cov:
            return covariance
        rank, split = covariance.shape.rank, left.shape.rank - 2
        dense = tf.linalg.diag(tf.transpose(covariance, [*range(1, rank), 0]))
        return tf.transpose(dense, [*range(split), rank - 1, *range(split, rank - 1), rank])

    @inherit_check_shapes
    def K_diag(self, X: TensorType, full_output_cov: bool = True) -> tf.Tensor:
        """Variance of all GPs at ``X``."""
        variance = tf.broadcast_to(
            self.variance, tf.concat([tf.shape(X)[:-1], [self._num_latent_gps]], axis=0)
        )
        return tf.linalg.diag(variance) if full_output_cov else variance

    def _scaled(self, X: TensorType) -> tf.Tensor:
        """Inputs [T, ..., D] in units of each GP's lengthscales."""
        X = tf.convert_to_tensor(X)
        ones = [1] * (X.shape.rank - 1)
        return X / tf.reshape(self.lengthscales, [self._num_latent_gps, *ones, -1])


# What is done here in the kernel's stead.
_REPLACED = ("__call__", "K", "K_diag", "slice", "scale", "scaled_squared_euclid_dist")


def _stacked(
    profile: Profile,
    squares: tf.Tensor,
    precision: tf.Tensor,
    variance: tf.Tensor,
) -> tf.Tensor:
    """
    The covariances of T kernels from squared distances. Most of a small layer's time would go into the
    gradient of these few elementwise operations if it were left to TensorFlow.

    :param squares: [R, N, N2].
    :param precision: [T].
    :param variance: [T].
    :return: [R, T, N, N2].
    """

    @tf.custom_gradient
    def covariances(
        squares: tf.Tensor, precision: tf.Tensor, variance: tf.Tensor
    ) -> tuple[tf.Tensor, Callable]:
        wide, p, v = tf.expand_dims(squares, 1), precision[:, None, None], variance[:, None, None]
        value, slope = profile.evaluate(wide * (profile.scale * p))

        def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
            through = upstream * slope
            weight = profile.factor * profile.scale
            d_squares = tf.reduce_sum(through * (weight * p * v), axis=1)
            d_precision = weight * variance * _per_kernel(through * wide)
            return d_squares, d_precision, _per_kernel(upstream * value)

        return v * value, gradient

    return covariances(squares, precision, variance)


def _per_kernel(x: tf.Tensor) -> tf.Tensor:
    """[R, T, N, N2] summed to [T]; in two steps, of which the big one is over contiguous numbers."""
    return tf.reduce_sum(tf.reduce_sum(x, axis=[2, 3]), axis=0)


def _squared_distances(X: tf.Tensor, X2: tf.Tensor) -> tf.Tensor:
    """[..., N, N2] from [..., N, D] and [..., N2, D]."""
    products = tf.matmul(X, X2, transpose_b=True)
    left = tf.reduce_sum(tf.square(X), axis=-1)[..., :, None]
    right = tf.reduce_sum(tf.square(X2), axis=-1)[..., None, :]
    return tf.maximum(left + right - 2.0 * products, 0.0)
