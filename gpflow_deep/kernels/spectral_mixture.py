"""The spectral mixture kernel, whose expectations under a Gaussian are known."""

from __future__ import annotations

import math

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.base import Parameter, TensorType
from gpflow.kernels import Kernel
from gpflow.kernels.base import ActiveDims
from gpflow.utilities import positive

__all__ = ["SpectralMixture"]


class SpectralMixture(Kernel):
    r"""
    The stationary kernel whose spectrum is a mixture of Q Gaussians (Wilson & Adams 2013, Eq. 12),

    .. math::
        k(x, z) = \sum_q w_q \exp(-2 \pi^2 \sum_d b_{qd}^2 (x_d - z_d)^2)
                  \cos(2 \pi \sum_d f_{qd} (x_d - z_d)).

    A deep GP can propagate moments through it in closed form.

    >>> kernel = gd.kernels.SpectralMixture(
    ...     weights=[1.0, 0.5], frequencies=[[0.0], [2.0]], bandwidths=[[0.1], [0.1]]
    ... )
    >>> kernel(X).shape
    TensorShape([20, 20])
    >>> round(float(kernel.K_diag(X)[0]), 6)  # the sum of the weights
    1.5

    :param weights: w [Q], the variances of the components.
    :param frequencies: f [Q, D], in cycles per unit; of either sign.
    :param bandwidths: b [Q, D], the standard deviations of the spectrum's components.
    :raises ValueError: where the shapes do not fit each other.
    """

    def __init__(
        self,
        weights: TensorType,
        frequencies: TensorType,
        bandwidths: TensorType,
        *,
        active_dims: ActiveDims | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(active_dims=active_dims, name=name)
        shapes = np.shape(weights), np.shape(frequencies), np.shape(bandwidths)
        if (
            len(shapes[0]) != 1
            or len(shapes[1]) != 2
            or shapes[1] != shapes[2]
            or shapes[0] != shapes[1][:1]
        ):
            raise ValueError(
                "weights, frequencies, bandwidths: expected shapes [Q], [Q, D] and [Q, D], got"
                f" {shapes[0]}, {shapes[1]} and {shapes[2]}."
            )
        self.weights = Parameter(weights, transform=positive())
        self.frequencies = Parameter(frequencies)
        self.bandwidths = Parameter(bandwidths, transform=positive())
        self._validate_ard_active_dims(np.asarray(bandwidths)[0])

    def K(self, X: TensorType, X2: TensorType | None = None) -> tf.Tensor:
        """Covariances of all pairs of inputs."""
        difference = gpflow.utilities.ops.difference_matrix(X, X2)[
            ..., None, :
        ]  # [..., N, N2, 1, D]
        decay = tf.reduce_sum(tf.square(self.bandwidths * difference), axis=-1)
        phase = tf.reduce_sum(self.frequencies * difference, axis=-1)
        waves = tf.exp(-2.0 * math.pi**2 * decay) * tf.cos(2.0 * math.pi * phase)
        return tf.reduce_sum(self.weights * waves, axis=-1)

    def K_diag(self, X: TensorType) -> tf.Tensor:
        """Variances at the inputs."""
        return tf.fill(tf.shape(X)[:-1], tf.reduce_sum(self.weights))
