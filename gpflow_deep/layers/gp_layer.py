"""One layer of a deep GP: the prior of T independent GPs that share their inputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import gpflow
import numpy as np
import tensorflow as tf
from check_shapes import check_shapes
from gpflow.base import TensorType
from gpflow.inducing_variables import (
    FallbackSeparateIndependentInducingVariables,
    InducingPatches,
    InducingPoints,
    InducingVariables,
    Multiscale,
)
from gpflow.kernels import (
    Combination,
    Convolutional,
    Kernel,
    LinearCoregionalization,
    MultioutputKernel,
    SeparateIndependent,
    SharedIndependent,
    Stationary,
)
from gpflow.mean_functions import MeanFunction

from ..kernels.methods import has_registered_covariances, profile_of
from ..numerics.factorisations import add_jitter
from ..numerics.linalg import leading_shape
from ..validation import check_flag, check_inducing_variable
from .base import Layer
from .covariances import Kuf, Kuu, batch_covariance, prior_variance, split_gps

__all__ = ["GPLayer", "Projection", "check_inducing_variables"]


class Projection(NamedTuple):
    """
    What the prior of a layer says about its function values f at some inputs: their mean and variance, and
    that given inducing outputs v they have the mean ``mean + basis^T v``.

    >>> layer = gd.layers.GPLayer(gpflow.kernels.Matern52(), X[::4], num_latent_gps=2)
    >>> projection = layer.project(tf.constant(X)[None], layer.factorise())
    >>> projection.basis.shape, projection.mean.shape
    (TensorShape([1, 20, 5]), TensorShape([1, 20, 2]))
    """

    basis: tf.Tensor  # [S, N, M], or [S, N, T, M] where every GP has its own
    variance: tf.Tensor  # [S, N, 1] or [S, N, T]
    mean: tf.Tensor  # [S, N, T], of the GPs: see Layer.latent_mean


class GPLayer(Layer):
    r"""
    The prior of one layer: T independent GPs :math:`f_t \sim GP(m_t, k)` and their inducing variables.

    A layer knows nothing of the other layers, nor of the approximate posterior over its inducing
    outputs: it projects inputs on its inducing variables, and that is all.

    >>> layer = gd.layers.GPLayer(gpflow.kernels.Matern52(), X[::4], num_latent_gps=2)
    >>> layer.input_dim, layer.output_dim
    (1, 2)

    :param kernel: any GPflow kernel. A single-output kernel, or ``SharedIndependent``, is shared by
        the layer's GPs; ``SeparateIndependent`` gives each GP its own; so does ``LinearCoregionalization``,
        whose W [P, T] mixes them (see :class:`Layer`).
    :param inducing_variable: GPflow inducing variables, or inducing inputs [M, D]; ``None`` for a layer whose
        inducing inputs are the inducing outputs of the layer below
        (:class:`gpflow_deep.models.GlobalInducingDeepGP`).
    :param num_latent_gps: number of GPs, T, which is also the dimension of the layer's output.
    :param mean_function: any GPflow mean function from [N, D] to [N, T]; zero by default.
    :param whiten: whether the inducing outputs v are whitened, u = chol(K_MM) v (the default), or
        the function values u themselves. Posteriors start with the covariance of the prior, or a share of
        it, either way: of one layer with u itself another start than SVGP's, which is a unit covariance.
    :raises ValueError: where the number of GPs of the kernel or of the inducing variables is not T,
        or they are not independent.
    """

    _replaceable = ("kernel", "mean_function", "inducing_variable", "whiten")

    def __init__(
        self,
        kernel: Kernel,
        inducing_variable: InducingVariables | TensorType | None,
        num_latent_gps: int,
        mean_function: MeanFunction | None = None,
        *,
        whiten: bool = True,
        name: str | None = None,
    ) -> None:
        super().__init__(kernel, num_latent_gps, mean_function, name=name)
        self.inducing_variable, self.num_inducing = None, 0
        if inducing_variable is not None:
            self.inducing_variable = check_inducing_variable(inducing_variable, self.num_latent_gps)
            self.num_inducing = int(self.inducing_variable.num_inducing)
        self.whiten = check_flag(whiten, "whiten")
        self._check_parts()

    @property
    def input_dim(self) -> int | None:
        """Dimension of the inputs; ``None`` without inducing variables at inputs."""
        if self.inducing_variable is None:
            return None
        return _input_dim(self.inducing_variable, self.kernel)

    @property
    def own_inducing_variable(self) -> InducingVariables:
        """
        The layer's inducing variables.

        :raises ValueError: where it has none.
        """
        if self.inducing_variable is None:
            raise ValueError(
                f"inducing_variable: expected inducing variables of {self.name} for this use, got None."
            )
        return self.inducing_variable

    def factorise(self) -> tf.Tensor:
        """
        Cholesky factor of K_MM plus the default jitter: [M, M], or [T, M, M] where GPs have their
        own kernels or inducing variables. Factorised in float64, whatever the default float is.

        :raises FactorisationError: where K_MM is not positive definite (see :func:`factorisations.cholesky`).
        :raises ValueError: where the number of inducing points is no longer that of the beginning.
        """
        K = Kuu(self.own_inducing_variable, self.kernel, gpflow.config.default_jitter())
        M = K.shape[-1]
        if M is None:  # of a variable without a fixed shape, compiled
            K = tf.ensure_shape(K, [*K.shape[:-2], self.num_inducing, self.num_inducing])
        elif M != self.num_inducing:
            raise self._wrong_number(M)
        factor = self._factorise(K, f"K_MM of {self.name} ({self.num_inducing} inducing points")
        return tf.cast(factor, gpflow.default_float())

    @check_shapes(
        "inducing_inputs: [S, M, D]",
        "return[0]: [S, K, M, M]",
        "return[1]: [S, K, M, M]",
    )
    def factorise_at(self, inducing_inputs: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """
        K_MM plus the default jitter and its Cholesky factor, at S sets of inducing inputs that are not the
        layer's own, in their dtype: K = T where every GP has its own kernel, else 1.

        :raises FactorisationError: where K_MM is not positive definite (see :func:`factorisations.cholesky`).
        """
        K = batch_covariance(self.kernel, inducing_inputs)
        K = add_jitter(K, gpflow.config.default_jitter())
        return K, self._factorise(K, f"K_MM of {self.name} (propagated inducing points")

    @check_shapes(
        "X: [S, N, D]",
        "inducing_inputs: [R, M, D]",
        "return[0]: [Q, K, M, N]",
        "return[1]: [S, K, N]",
    )
    def covariances(self, X: tf.Tensor, inducing_inputs: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Covariance K_MN of inducing outputs and function values at ``X``, and these values' variance."""
        rows = tf.reshape(X, [-1, X.shape[-1]])
        S, N = leading_shape(X)
        variance = prior_variance(self.kernel, rows)
        variance = tf.transpose(tf.reshape(variance, [S, N, variance.shape[-1]]), [0, 2, 1])
        return batch_covariance(self.kernel, inducing_inputs, X), variance

    @check_shapes(
        "X: [S, N, D]",
        "factor: [T_or_M...]",
    )
    def project(self, X: TensorType, factor: tf.Tensor | None) -> Projection:
        """
        Project inputs on the inducing variables (the K~ of Lindinger et al. 2020, Theorem 1).

        :param X: S inputs for each of N points, in the dtype to compute in.
        :param factor: what :meth:`factorise` returned, in the same; ``None`` for a basis of the covariances
            k_NM themselves, unsolved.
        """
        S, N = leading_shape(X)
        rows = tf.reshape(X, [-1, X.shape[-1]])  # [S N, D]
        A = Kuf(self.own_inducing_variable, self.kernel, rows)  # [(T), M, S N]
        if factor is not None:
            A = tf.linalg.triangular_solve(factor, A)
            if not self.whiten:
                A = tf.linalg.triangular_solve(factor, A, adjoint=True)
        basis = tf.transpose(A, [2, 0, 1] if A.shape.rank == 3 else [1, 0])  # [S N, (T), M]
        variance = prior_variance(self.kernel, rows)
        return Projection(
            basis=tf.reshape(basis, [S, N, *basis.shape[1:]]),
            variance=tf.reshape(variance, [S, N, variance.shape[-1]]),
            mean=self.latent_mean(X),
        )

    def prior_covariance(self, X: tf.Tensor) -> tf.Tensor:
        """
        Prior covariance over each of S sets of inputs: [S, K, N, N], K = T where every GP has its own kernel,
        else 1.

        :param X: inputs [S, N, D].
        """
        return batch_covariance(self.kernel, X)

    def factorise_joint(
        self,
        covariance: tf.Tensor,
        X: tf.Tensor,
        num_inducing: int,
        jitter: TensorType | None = None,
    ) -> tf.Tensor:
        """
        Cholesky factor of the conditional covariance [S, K, N, N] at the inputs [S, N, D], plus the default
        jitter or another, and plus what rounding may have taken from its smallest eigenvalue.

        :raises FactorisationError: where the covariance is not positive definite all the same.
        """
        # The covariance is the prior's less a sum of M terms, and the factorisation sums N of them.
        prior = tf.reduce_max(prior_variance(self.kernel, tf.reshape(X, [-1, X.shape[-1]])))
        rounding = tf.cast(tf.shape(X)[1] + num_inducing, prior.dtype) * prior
        rounding *= np.finfo(prior.dtype.as_numpy_dtype).eps
        jitter = gpflow.config.default_jitter() if jitter is None else jitter
        diagonal = tf.linalg.diag_part(covariance) + jitter + rounding
        return self._factorise(
            tf.linalg.set_diag(covariance, diagonal),
            f"the covariance of {self.name} at the inputs (conditional on its inducing outputs",
        )

    @check_shapes(
        "X: [S, N, D]",
        "return[0]: [S, K, M, N]",
        "return[1]: [S, K, M, N]",
    )
    def joint_projection(self, X: TensorType, factor: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """
        Project whole sets of inputs on the inducing variables: K = T where every GP has its own kernel, else
        1.

        :param X: inputs [S, N, D].
        :param factor: what :meth:`factorise` returned.
        :return: a = L_K^-1 K_MN [S, K, M, N], whose square the inducing outputs take from the prior's
            covariance; and the basis: given inducing outputs v the mean is ``latent_mean + basis^T v``.
        """
        S, N = leading_shape(X)
        rows = tf.reshape(X, [-1, X.shape[-1]])  # [S N, D]
        K = Kuf(self.own_inducing_variable, self.kernel, rows)
        A = _by_set(tf.linalg.triangular_solve(factor, K), S, N)  # [S, K, M, N]
        if self.whiten:
            return A, A
        factors = tf.broadcast_to(factor, [S, *A.shape[1:3], self.num_inducing])
        return A, tf.linalg.triangular_solve(factors, A, adjoint=True)

    @check_shapes(
        "X: [S, N, D]",
        "return: [S, K, M, N]",
    )
    def inducing_covariance(self, X: TensorType) -> tf.Tensor:
        """K_MN of the layer's own inducing outputs and function values at each of S sets of inputs."""
        rows = tf.reshape(X, [-1, X.shape[-1]])
        return _by_set(Kuf(self.own_inducing_variable, self.kernel, rows), *leading_shape(X))

    def sample_prior(self, X: tf.Tensor, noise: tf.Tensor) -> tf.Tensor:
        """Draws [S, N, T] from the prior, coherent over all points: cubic in N."""
        scale = self.factorise_joint(self.prior_covariance(X), X, 0)  # [S, T or 1, N, N]
        draws = tf.linalg.matvec(scale, tf.linalg.matrix_transpose(noise))  # [S, T, N]
        return self.latent_mean(X) + tf.linalg.matrix_transpose(draws)

    def _as_part(self, name: str, value: Any) -> Any:
        if name == "whiten":
            return check_flag(value, name)
        if name != "inducing_variable":
            return super()._as_part(name, value)
        new = check_inducing_variable(value, self.num_latent_gps)
        M = int(new.num_inducing)
        if M != self.num_inducing:
            raise self._wrong_number(M)
        return new

    def _wrong_number(self, M: int) -> ValueError:
        return ValueError(
            f"inducing_variable: expected {self.num_inducing} inducing points, as many as the posterior"
            f" has outputs of, got {M}; a model of another number is a new one."
        )

    def _check_parts(self) -> None:
        separate = isinstance(self.inducing_variable, FallbackSeparateIndependentInducingVariables)
        if separate and not isinstance(self.kernel, MultioutputKernel):
            raise ValueError(
                "kernel: expected SharedIndependent or SeparateIndependent with"
                f" {type(self.inducing_variable).__name__}, got {type(self.kernel).__name__}."
            )
        if self.input_dim is not None:
            self.check_inputs_of(self.input_dim)

    def check_inputs_of(self, input_dim: int) -> None:
        """
        Try kernel and mean function on an input, so that they need not fail in the midst of training.

        :raises ValueError: where they do not fit inputs of this dimension.
        """
        X = tf.zeros([1, input_dim], gpflow.default_float())
        at = "inputs"
        try:
            if self.inducing_variable is not None:
                at = type(self.inducing_variable).__name__
                Kuf(self.inducing_variable, self.kernel, X)
            # Of inputs and a kernel with a formula of distances, the covariance above is the same function.
            if (
                type(self.inducing_variable) is not InducingPoints
                or profile_of(self.kernel) is None
            ):
                batch_covariance(self.kernel, X[None])
            _check_scales(self.kernel, input_dim)
        except Exception as error:
            raise ValueError(
                f"kernel: {type(self.kernel).__name__} (its lengthscales, variances, active_dims, or its own"
                f" code) does not fit {at} of dimension {input_dim}: {error}"
            ) from error
        self._check_mean_function(X)


def _by_set(matrix: tf.Tensor, S: TensorType, N: TensorType) -> tf.Tensor:
    """[(T), M, S N] as [S, T or 1, M, N]."""
    matrix = matrix if matrix.shape.rank == 3 else matrix[None]
    K, M = matrix.shape[:2]
    return tf.transpose(tf.reshape(matrix, [K, M, S, N]), [2, 0, 1, 3])


def _input_dim(inducing_variable: InducingVariables, kernel: Kernel) -> int | None:
    """
    The dimension of the inputs: that of inducing inputs, or of the images that a convolutional kernel takes
    patches of; ``None`` where neither tells. Of inducing points with covariances that a user registered, only
    these know whether they are inputs, or features of inputs.
    """
    convolutions = [k for k in (kernel, *kernel.submodules) if isinstance(k, Convolutional)]
    dims = {int(np.prod(k.image_shape)) * k.colour_channels for k in convolutions}
    patches = InducingPatches if convolutions else ()
    dims |= {
        one.Z.shape[1]
        for one, own_kernel in split_gps(inducing_variable, kernel)
        if isinstance(one, (InducingPoints, Multiscale))
        and not isinstance(one, patches)
        and not has_registered_covariances(one, own_kernel)
    }
    return dims.pop() if len(dims) == 1 else None


def _check_scales(kernel: Kernel, input_dim: int) -> None:
    """Whether lengthscales are as many as inputs: of one input alone, others would be broadcast to."""
    if isinstance(kernel, SharedIndependent):
        _check_scales(kernel.kernel, input_dim)
    if isinstance(kernel, (Combination, SeparateIndependent, LinearCoregionalization)):
        for part in kernel.kernels:
            _check_scales(part, input_dim)
    if isinstance(kernel, Stationary):
        active = len(np.arange(input_dim)[kernel.active_dims])
        scales = tf.convert_to_tensor(kernel.lengthscales)  # which need be no parameter
        if not active:
            raise ValueError(f"active_dims: expected some of {input_dim} inputs, got none.")
        if scales.shape.rank and scales.shape[-1] not in (1, active):
            raise ValueError(f"lengthscales: expected one or {active}, got {scales.shape[-1]}.")


def check_inducing_variables(layers: Sequence[GPLayer]) -> None:
    """Raise a ValueError where some have none."""
    without = [layer.name for layer in layers if layer.inducing_variable is None]
    if without:
        raise ValueError(
            f"layers: expected inducing variables in all of them, got none in {without}."
        )
