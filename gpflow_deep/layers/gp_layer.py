"""One layer of a deep GP: the prior of T independent GPs that share their inputs."""

from __future__ import annotations

from typing import NamedTuple

import gpflow
import numpy as np
import tensorflow as tf
from check_shapes import check_shapes
from gpflow.base import TensorType
from gpflow.inducing_variables import InducingVariables
from gpflow.kernels import (
    Kernel,
    MultioutputKernel,
    SharedIndependent,
)
from gpflow.mean_functions import MeanFunction

from ..linalg import leading_shape
from ..validation import check_inducing_variable, input_dim
from .base import Layer
from .covariances import Kuf, Kuu, prior_variance

__all__ = ["GPLayer", "Projection"]


class Projection(NamedTuple):
    """
    What the prior of a layer says about its function values f at some inputs: their mean and variance, and
    that given inducing outputs v they have the mean ``mean + basis^T v``.
    """

    basis: tf.Tensor  # [N, S, M], or [N, S, T, M] where every GP has its own
    variance: tf.Tensor  # [N, S, 1] or [N, S, T]
    mean: tf.Tensor  # [N, S, T], the mean function


class GPLayer(Layer):
    r"""
    The prior of one layer: T independent GPs :math:`f_t \sim GP(m_t, k)` and their inducing variables.

    A layer knows nothing of the other layers, nor of the approximate posterior over its inducing
    outputs: it projects inputs on its inducing variables, and that is all.

    :param kernel: any GPflow kernel. A single-output kernel, or ``SharedIndependent``, is shared by
        the layer's GPs; ``SeparateIndependent`` gives each GP its own.
    :param inducing_variable: GPflow inducing variables, or inducing inputs [M, D].
    :param num_latent_gps: number of GPs, T, which is also the dimension of the layer's output.
    :param mean_function: any GPflow mean function from [..., D] to [..., T]; zero by default.
    :param whiten: whether the inducing outputs v are whitened, u = chol(K_MM) v (the default), or
        the function values u themselves.
    :raises ValueError: where the number of GPs of the kernel or of the inducing variables is not T,
        or the kernel mixes its GPs (``LinearCoregionalization``).
    """

    def __init__(
        self,
        kernel: Kernel,
        inducing_variable: InducingVariables | TensorType,
        num_latent_gps: int,
        mean_function: MeanFunction | None = None,
        *,
        whiten: bool = True,
        name: str | None = None,
    ) -> None:
        super().__init__(kernel, num_latent_gps, mean_function, name=name)
        self.inducing_variable = check_inducing_variable(inducing_variable, self.num_latent_gps)
        self.num_inducing = int(self.inducing_variable.num_inducing)
        self.whiten = bool(whiten)
        self._check_input_dim()

    @property
    def input_dim(self) -> int | None:
        """Dimension of the inputs; ``None`` for inducing variables that are not at inputs."""
        return input_dim(self.inducing_variable)

    def factorise(self) -> tf.Tensor:
        """
        Cholesky factor of K_MM plus the default jitter: [M, M], or [T, M, M] where GPs have their
        own kernels or inducing variables. Factorised in float64, whatever the default float is.

        :raises FactorisationError: where K_MM is not positive definite (see :func:`linalg.cholesky`).
        """
        K = Kuu(self.inducing_variable, self.kernel, gpflow.config.default_jitter())
        factor = self._factorise(K, f"K_MM of {self.name} ({self.num_inducing} inducing points")
        return tf.cast(factor, gpflow.default_float())

    @check_shapes(
        "X: [N, S, D]",
        "factor: [T_or_M...]",
    )
    def project(self, X: TensorType, factor: tf.Tensor) -> Projection:
        """
        Project inputs on the inducing variables (the K~ of Lindinger et al. 2020, Theorem 1).

        :param X: S inputs for each of N points.
        :param factor: what :meth:`factorise` returned.
        """
        N, S = leading_shape(X)
        rows = tf.reshape(X, [-1, X.shape[-1]])  # [N S, D]
        A = tf.linalg.triangular_solve(
            factor, _match_rank(Kuf(self.inducing_variable, self.kernel, rows), factor)
        )  # [(T), M, N S]
        if not self.whiten:
            A = tf.linalg.triangular_solve(factor, A, adjoint=True)
        basis = tf.transpose(A, [2, 0, 1] if A.shape.rank == 3 else [1, 0])  # [N S, (T), M]
        variance = prior_variance(self.kernel, rows)
        return Projection(
            basis=tf.reshape(basis, [N, S, *basis.shape[1:]]),
            variance=tf.reshape(variance, [N, S, variance.shape[-1]]),
            mean=self._mean(X),
        )

    @check_shapes(
        "X: [S, N, D]",
        "inducing_outputs: [S, T, M]",
        "return[0]: [S, N, T]",
        "return[1]: [S, K, N, N]",
    )
    def joint_conditional(
        self, X: TensorType, factor: tf.Tensor, inducing_outputs: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """
        Mean and a factor of the covariance over all N inputs jointly, given draws of the inducing
        outputs: the Cholesky factor of the covariance plus the default jitter, and plus what rounding may
        have taken from its smallest eigenvalue.

        :return: mean [S, N, T], factor [S, T or 1, N, N] (1 where the GPs share one kernel).
        :raises FactorisationError: where the covariance is not positive definite all the same.
        """
        A, covariance = self.joint_projection(X, factor)  # [S, K, M, N], [S, K, N, N]
        mean = tf.matmul(inducing_outputs[:, :, None, :], A)[:, :, 0, :]  # [S, T, N]
        what = f"the covariance of {self.name} at the inputs (conditional on its inducing outputs"
        scale = self._joint_factor(covariance, X, what)
        return tf.linalg.matrix_transpose(mean) + self._mean(X), scale

    @check_shapes(
        "X: [S, N, D]",
        "return[0]: [S, K, M, N]",
        "return[1]: [S, K, N, N]",
    )
    def joint_projection(self, X: TensorType, factor: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """
        Basis and residual covariance over all N inputs jointly: K = T where every GP has its own
        kernel, else 1.
        """
        S, N = leading_shape(X)
        rows = tf.reshape(X, [-1, X.shape[-1]])  # [S N, D]
        A = tf.linalg.triangular_solve(
            factor, _match_rank(Kuf(self.inducing_variable, self.kernel, rows), factor)
        )  # [(T), M, S N]
        A = tf.reshape(A, [-1, self.num_inducing, S, N])
        A = tf.transpose(A, [2, 0, 1, 3])  # [S, K, M, N]
        prior = self._joint_prior(X)
        covariance = prior - tf.matmul(A, A, transpose_a=True)
        if not self.whiten:
            A = tf.linalg.triangular_solve(
                tf.broadcast_to(factor, [S, *A.shape[1:3], self.num_inducing]), A, adjoint=True
            )
        return A, covariance

    def sample_prior(self, X: tf.Tensor, noise: tf.Tensor) -> tf.Tensor:
        """Draws [S, N, T] from the prior, coherent over all points: cubic in N."""
        what = f"the prior covariance of {self.name} at the inputs (of all {X.shape[1]} points"
        scale = self._joint_factor(self._joint_prior(X), X, what)  # [S, T or 1, N, N]
        draws = tf.linalg.matvec(scale, tf.linalg.matrix_transpose(noise))  # [S, T, N]
        return self._mean(X) + tf.linalg.matrix_transpose(draws)

    def _joint_prior(self, X: tf.Tensor) -> tf.Tensor:
        """Prior covariance over all points, [S, T or 1, N, N]."""
        kernel = self.kernel.kernel if isinstance(self.kernel, SharedIndependent) else self.kernel
        if isinstance(kernel, MultioutputKernel):
            prior = kernel(X, full_cov=True, full_output_cov=False)  # [T, S, N, N]
            return tf.transpose(prior, [1, 0, 2, 3])
        return kernel(X, full_cov=True)[:, None]

    def _joint_factor(self, covariance: tf.Tensor, X: tf.Tensor, what: str) -> tf.Tensor:
        """Cholesky factor of a covariance over all points plus the default jitter and rounding."""
        # The covariance is the prior's less a sum of M terms, and the factorisation sums N of them.
        prior = tf.reduce_max(prior_variance(self.kernel, tf.reshape(X, [-1, X.shape[-1]])))
        rounding = tf.cast(tf.shape(X)[1] + self.num_inducing, prior.dtype) * prior
        rounding *= np.finfo(prior.dtype.as_numpy_dtype).eps
        diagonal = tf.linalg.diag_part(covariance) + gpflow.config.default_jitter() + rounding
        return self._factorise(tf.linalg.set_diag(covariance, diagonal), what)

    def _check_input_dim(self) -> None:
        """Try kernel and mean function on an input, so that they need not fail in the midst of training."""
        if self.input_dim is None:
            return
        X = tf.zeros([1, self.input_dim], gpflow.default_float())
        try:
            Kuf(self.inducing_variable, self.kernel, X)
        except Exception as error:
            raise ValueError(
                f"kernel: {type(self.kernel).__name__} (its lengthscales, variances or active_dims) does"
                f" not fit {type(self.inducing_variable).__name__} of dimension {self.input_dim}: {error}"
            ) from error
        self._check_mean_function(X)


def _match_rank(K: tf.Tensor, factor: tf.Tensor) -> tf.Tensor:
    """Where only the kernels differ, or only the inducing inputs, GPflow may return one matrix."""
    if K.shape.rank < factor.shape.rank:
        return tf.broadcast_to(K, tf.concat([tf.shape(factor)[:1], tf.shape(K)], axis=0))
    return K
