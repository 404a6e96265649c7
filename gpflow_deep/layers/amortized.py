"""A layer whose inducing points are functions of its input."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import gpflow
import numpy as np
import tensorflow as tf
from check_shapes import check_shapes
from gpflow.base import MeanAndVariance, TensorType
from gpflow.kernels import Kernel
from gpflow.mean_functions import MeanFunction

from ..kernels import StackedStationary
from ..kernels.independent import takes_indices
from ..numerics.bijectors import PackedTriangular
from ..numerics.factorisations import add_jitter
from ..numerics.linalg import leading_shape, squared_norms
from ..validation import check_flag, check_positive_integer, check_seed
from .base import Layer
from .covariances import local_covariances, prior_variance
from .networks import MLP, AffineMaps, as_network

__all__ = ["AmortizedGPLayer", "LocalPosterior"]


class LocalPosterior(NamedTuple):
    """
    Posteriors of R sets of inducing outputs, one a row, whitened: u = m(Z) + K_ZZ^{1/2} v with
    v ~ N(mean, scale scale^T).

    >>> layer = gd.layers.AmortizedGPLayer(None, num_inducing=4, input_dim=1, num_latent_gps=2)
    >>> local = layer.infer(tf.constant(X))
    >>> local.moments.shape, local.kl.shape
    (TensorShape([20, 2, 4, 5]), TensorShape([20, 2]))
    """

    inducing_inputs: tf.Tensor  # [R, M, D]
    whitening: tf.Tensor  # [R, T or 1, M, M], the inverse of the Cholesky factor of K_ZZ
    moments: tf.Tensor  # [R, T, M, 1 + M], mean and scale side by side
    kl: tf.Tensor  # [R, T], from the prior


class AmortizedGPLayer(Layer):
    r"""
    T GPs with input-dependent inducing points (Meng & Zhang 2024; Jafrasteh et al. 2022): networks map an
    input :math:`\xi` to M inducing inputs, the same for all GPs, and to a Gaussian over each GP's values
    :math:`u` there,

    .. math:: q(u_t | \xi) = N(\mu_t(\xi), \Sigma_t(\xi)),\quad Z = (W_1 \xi + b_1, ..., W_M \xi + b_M).

    Few of them are enough, since they follow the input: 4 to 16.

    >>> layer = gd.layers.AmortizedGPLayer(None, num_inducing=4, input_dim=1, num_latent_gps=2)
    >>> layer.infer(tf.constant(X)).inducing_inputs.shape  # each of 20 inputs has its own 4
    TensorShape([20, 4, 1])

    :param kernel: any GPflow kernel of independent GPs, or ``None`` for Matérn-5/2 with a variance and a
        lengthscale for each GP (``StackedStationary``, the fast way to have those), the lengthscales at first
        the square root of Q.
    :param num_inducing: inducing points of an input, M.
    :param input_dim: dimension of the inputs, Q.
    :param num_latent_gps: number of GPs, T.
    :param mean_function: from [N, Q] to [N, T]; zero by default.
    :param networks: what maps inputs [R, Q] to, side by side: inducing inputs (column m Q + q); means
        (t M + m); standard deviations before a softplus (t M + m), or with ``full_covariance`` the lower
        triangles of the covariances' factors (t M (M + 1) / 2 and then row by row). One Keras layer or
        ``tf.Module``, or a sequence of them whose outputs are concatenated. By default the paper's:
        :class:`AffineMaps`, and for means and deviations each an :class:`MLP` of two hidden layers whose
        outputs do not depend on m at the start.
    :param full_covariance: whether :math:`\Sigma_t` is full, with a factor whose diagonal may have any sign.
    :param seed: of the networks' initial values.
    :raises ValueError: where the networks' columns are not as many as that.
    """

    def __init__(
        self,
        kernel: Kernel | None,
        num_inducing: int,
        input_dim: int,
        num_latent_gps: int,
        mean_function: MeanFunction | None = None,
        *,
        networks: Any = None,
        full_covariance: bool = False,
        seed: int = 0,
        name: str | None = None,
    ) -> None:
        T = check_positive_integer(num_latent_gps, "num_latent_gps")
        if kernel is None:
            scale = check_positive_integer(input_dim, "input_dim") ** 0.5
            kernel = StackedStationary(T, lengthscales=scale)
        super().__init__(kernel, T, mean_function, name=name)
        self.num_inducing = M = check_positive_integer(num_inducing, "num_inducing")
        self._input_dim = Q = check_positive_integer(input_dim, "input_dim")
        self.full_covariance = check_flag(full_covariance, "full_covariance")
        scale_columns = T * M * (M + 1) // 2 if full_covariance else T * M
        if networks is None:
            networks = _default_networks(Q, M, [T * M, scale_columns], check_seed(seed))
        elif not isinstance(networks, Sequence):
            networks = [networks]
        checked = [as_network(network, Q) for network in networks]
        self.networks = [network for network, _ in checked]
        self._sizes = [M * Q, T * M, scale_columns]
        columns = sum(number for _, number in checked)
        if columns != sum(self._sizes):
            raise ValueError(
                f"networks: expected {sum(self._sizes)} columns in all, {self._sizes[0]} of inducing"
                f" inputs, {self._sizes[1]} of means and {self._sizes[2]} of scales, got {columns}."
            )
        self._check_parts()

    def _check_parts(self) -> None:
        if takes_indices(self.kernel):
            raise ValueError(
                "kernel: expected one without Coregion, as inducing inputs are a network's outputs and no"
                " indices."
            )
        X = tf.zeros([1, self._input_dim], gpflow.default_float())
        self._check_mean_function(X)
        try:
            local_covariances(self.kernel, X[None])
        except Exception as error:
            raise ValueError(
                f"kernel: {type(self.kernel).__name__} (its lengthscales, variances or active_dims) does"
                f" not fit inputs of dimension {self._input_dim}: {error}"
            ) from error

    @property
    def input_dim(self) -> int:
        """Dimension of the inputs, Q."""
        return self._input_dim

    @property
    def inducing_variable(self) -> tf.Module:
        """
        The network that makes the inducing inputs, and with one joint network all else: what to give
        ``gpflow.set_trainable`` to fix them, as in other layers.
        """
        return self.networks[0]

    @check_shapes(
        "X: [R, D]",
        "return[0]: [R, M, D]",
        "return[1]: [R, T, M]",
        "return[2]: [R, T, M, M] if self.full_covariance",
        "return[2]: [R, T, M] if not self.full_covariance",
    )
    def variational_parameters(self, X: TensorType) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """
        Inducing inputs Z, means, and standard deviations or factors of full covariances, for each input.

        :param X: what the networks see, xi.
        """
        T, M = self.num_latent_gps, self.num_inducing
        columns = [network(X) for network in self.networks]
        columns = columns[0] if len(columns) == 1 else tf.concat(columns, axis=-1)
        Z, mean, scale = tf.split(columns, self._sizes, axis=-1)
        if self.full_covariance:
            packed = tf.reshape(scale, [-1, T, M * (M + 1) // 2])
            scale = PackedTriangular.lower(M).forward(packed)
        else:
            scale = tf.nn.softplus(tf.reshape(scale, [-1, T, M]))
        return tf.reshape(Z, [-1, M, self._input_dim]), tf.reshape(mean, [-1, T, M]), scale

    @check_shapes(
        "X: [R, D]",
    )
    def infer(self, X: TensorType) -> LocalPosterior:
        """
        The posterior of each input's own inducing outputs.

        :param X: what the networks see, xi.
        :raises FactorisationError: where a covariance of inducing outputs is not positive definite.
        """
        Z, mu, scale = self.variational_parameters(X)
        K = local_covariances(self.kernel, Z)  # [R, K, M, M]
        wide = tf.cast(K, tf.float64)
        factor = self._factorise(
            add_jitter(wide, gpflow.config.default_jitter()),
            f"K_ZZ of {self.name} ({self.num_inducing} inducing points of each input",
        )
        W = _inverse(K, factor)
        mu = mu - tf.linalg.matrix_transpose(self.latent_mean(Z))
        mean = tf.linalg.matvec(W, mu)  # [R, T, M]
        if self.full_covariance:
            diagonal = tf.abs(tf.linalg.diag_part(scale))
            scale = tf.matmul(W, scale)
        else:
            diagonal = scale
            scale = W * tf.expand_dims(scale, -2)
        # KL(N(mean, scale scale^T) | N(0, I)), whose determinant is that of W times that of q(u).
        moments = tf.concat([tf.expand_dims(mean, -1), scale], axis=-1)  # [R, T, M, 1 + M]
        M = self.num_inducing
        squares = squared_norms(tf.reshape(moments, [-1, self.num_latent_gps, M * (M + 1)])) - M
        # A network can drive a deviation to zero, whose logarithm is none.
        tiny = np.finfo(diagonal.dtype.as_numpy_dtype).tiny
        log_determinant = tf.reduce_sum(tf.math.log(tf.maximum(diagonal, tiny)), axis=-1)
        log_determinant += tf.reduce_sum(tf.math.log(tf.linalg.diag_part(W)), axis=-1)
        return LocalPosterior(Z, W, moments, 0.5 * squares - log_determinant)

    def sample_prior(self, X: tf.Tensor, noise: tf.Tensor) -> tf.Tensor:
        """
        Draws [S, N, T] from the prior. Every point has inducing outputs of its own, independent of those of
        others: given the layer below, so are its function values.
        """
        rows = tf.reshape(X, [-1, self._input_dim])
        variance = prior_variance(self.kernel, rows)
        variance = tf.reshape(variance, [*leading_shape(X), variance.shape[-1]])
        return self.latent_mean(X) + tf.sqrt(variance) * noise

    @check_shapes(
        "X: [S, R, D]",
        "return[0]: [S, R, T]",
        "return[1]: [S, R, T]",
    )
    def condition(self, X: TensorType, local: LocalPosterior) -> MeanAndVariance:
        """
        Means and variances of the GPs at S inputs for each of R sets of inducing outputs.

        :param X: inputs of the GPs.
        :param local: what :meth:`infer` returned for R inputs of the networks.
        """
        rows = tf.transpose(X, [1, 0, 2])  # [R, S, D]
        k = local_covariances(self.kernel, rows, local.inducing_inputs)  # [R, K, S, M]
        a = tf.matmul(k, local.whitening, transpose_b=True)
        mean, scale = tf.split(tf.matmul(a, local.moments), [1, -1], axis=-1)  # [R, T, S, 1 or M]
        change = squared_norms(scale) - squared_norms(a)  # [R, T, S]
        prior = prior_variance(self.kernel, tf.reshape(X, [-1, self._input_dim]))
        prior = tf.reshape(prior, [*leading_shape(X), prior.shape[-1]])
        # Positive in exact arithmetic; in float32 rounding makes it otherwise.
        tiny = np.finfo(prior.dtype.as_numpy_dtype).eps
        variance = tf.maximum(prior + tf.transpose(change, [2, 0, 1]), tiny)
        return tf.transpose(tf.squeeze(mean, -1), [2, 0, 1]) + self.latent_mean(X), variance


def _default_networks(
    input_dim: int, num_inducing: int, sizes: Sequence[int], seed: int
) -> list[AffineMaps | MLP]:
    """The paper's: affine maps, and an MLP each for as many columns as ``sizes`` says."""

    def dims(size: int) -> list[int]:
        width = min(input_dim, size)
        return [input_dim, width, width, size]

    maps = AffineMaps(input_dim, num_inducing, seed=seed)
    means, scales = sizes
    if means == scales:
        # Means before deviations, as their columns are.
        return [maps, MLP(dims(means), num_networks=2, repeats=num_inducing, seed=seed + 1)]
    return [
        maps,
        MLP(dims(means), repeats=num_inducing, seed=seed + 1),
        MLP(dims(scales), seed=seed + 2),
    ]


def _inverse(matrix: tf.Tensor, factor: tf.Tensor) -> tf.Tensor:
    """
    The inverse of a Cholesky factor, computed in float64.

    Its derivative needs three small products, where TensorFlow's way through factor and triangular solves
    needs many.

    :param matrix: the positive definite matrices [..., M, M].
    :param factor: their Cholesky factors, in float64.
    :return: in the type of ``matrix``.
    """

    @tf.custom_gradient
    def inverse(matrix: tf.Tensor, factor: tf.Tensor) -> tuple[tf.Tensor, Callable]:
        eye = tf.eye(factor.shape[-1], dtype=factor.dtype)
        W = tf.linalg.triangular_solve(factor, tf.broadcast_to(eye, tf.shape(factor)))
        W = tf.cast(W, matrix.dtype)

        def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, None]:
            # dW = -tril(W dK W^T) W, with half of the diagonal.
            G = tf.linalg.band_part(tf.matmul(upstream, W, transpose_b=True), -1, 0)
            G = (
                0.5
                * (G + tf.linalg.matrix_transpose(G))
                * (1.0 - 0.5 * tf.eye(G.shape[-1], dtype=G.dtype))
            )
            return -tf.matmul(W, tf.matmul(G, W), transpose_a=True), None

        return W, gradient

    return inverse(matrix, factor)
