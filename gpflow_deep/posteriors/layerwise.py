"""
Approximate posteriors over the inducing outputs of one layer, given its inducing inputs.

Where the inducing inputs of a layer are the inducing outputs of the layer below, they are draws: S sets of
them. Everything here is in float64, whatever the default float is: these matrices are small, and their small
eigenvalues decide.

Shapes: S draws (or one that stands for all), K = T where every GP has its own kernel, else 1.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple, Protocol

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.base import Module, Parameter

from ..numerics.bijectors import PackedTriangular
from ..numerics.linalg import rows_times, solve_rows
from ..validation import (
    check_flag,
    check_memory,
    check_positive_integer,
    check_positive_number,
)
from .explained import Explained

__all__ = [
    "IndependentGaussian",
    "InducingConditional",
    "LayerPosterior",
    "Prior",
]


class InducingConditional(Protocol):
    """q(u | inducing inputs) and all that was factorised for it: a named tuple of tensors."""

    @property
    def prior_factor(self) -> tf.Tensor:
        """The Cholesky factor of K_MM [S, K, M, M]."""

    def sample(self, noise: tuple[tf.Tensor, ...]) -> tf.Tensor:
        """Draws of the whitened inducing outputs [S, T, M] from standard normals [S, T, M]."""

    def log_ratio(self, whitened: tf.Tensor, noise: tuple[tf.Tensor, ...] = ()) -> tf.Tensor:
        """log p(u) - log q(u) at draws [S, T, M]: [S]. The noise of the draws, where known, saves time."""

    def prior_kl(self) -> tf.Tensor:
        """KL divergence from the prior: [S], or [1] for all draws."""

    def explain(self, Kuf: tf.Tensor) -> Explained:
        """The inducing outputs integrated out, for K_MN [S, K, M, N]."""


class LayerPosterior(Module, ABC):
    """
    A posterior over the inducing outputs of one layer, given its inducing inputs.

    >>> q = gd.posteriors.IndependentGaussian(num_latent_gps=2, num_inducing=5)
    >>> isinstance(q, gd.posteriors.LayerPosterior)
    True

    :param num_latent_gps: number of GPs of the layer, T.
    :param num_inducing: number of its inducing points, M.
    """

    num_noise = 1
    """How many standard normals a draw of an inducing output takes."""

    def __init__(self, num_latent_gps: int, num_inducing: int, *, name: str | None = None) -> None:
        super().__init__(name=name)
        self.num_latent_gps = check_positive_integer(num_latent_gps, "num_latent_gps")
        self.num_inducing = check_positive_integer(num_inducing, "num_inducing")

    @abstractmethod
    def condition(self, K: tf.Tensor, factor: tf.Tensor, mean: tf.Tensor) -> InducingConditional:
        """
        The posterior of the inducing outputs less the mean function.

        :param K: K_MM [S, K, M, M].
        :param factor: its Cholesky factor.
        :param mean: the mean function at the inducing inputs [S or 1, T, M].
        """


class Prior(LayerPosterior):
    """
    The prior itself: the layer is a random function that the data do not touch.

    A layer of random features under one that learns:

    >>> model = gd.models.GlobalInducingDeepGP(
    ...     gd.layers.build_layers(X, hidden_dims=(2,), num_inducing=5),
    ...     gpflow.likelihoods.Gaussian(0.1),
    ...     posterior=[gd.posteriors.Prior, gd.posteriors.PseudoObservations],
    ... )
    >>> model.elbo((X, Y)).shape
    TensorShape([])
    """

    def condition(self, K: tf.Tensor, factor: tf.Tensor, mean: tf.Tensor) -> InducingConditional:
        del K
        return _PriorConditional(factor, tf.zeros_like(mean))


class _PriorConditional(NamedTuple):
    prior_factor: tf.Tensor  # [S, K, M, M]
    mean: tf.Tensor  # zero: [S, T, M]

    def sample(self, noise: tuple[tf.Tensor, ...]) -> tf.Tensor:
        return noise[0]

    def log_ratio(self, whitened: tf.Tensor, noise: tuple[tf.Tensor, ...] = ()) -> tf.Tensor:
        return tf.zeros_like(whitened[:, 0, 0])

    def prior_kl(self) -> tf.Tensor:
        return tf.zeros([1], self.prior_factor.dtype)

    def explain(self, Kuf: tf.Tensor) -> Explained:
        mean = tf.linalg.matrix_transpose(rows_times(self.mean, Kuf))
        return Explained(mean, Kuf[:, :, :0], None)


class IndependentGaussian(LayerPosterior):
    r"""
    q(U) = prod_t N(m_t, L_t L_t^T), whatever the inducing inputs are: with propagated inducing inputs
    "inducing points as inducing locations" (Ustyuzhaninov et al. 2020).

    As in GPflow, U is without the layer's mean function, whose values at the inducing inputs are added. The
    layers are independent, as in that paper, where hidden layers have a mean of zero; with the identity that
    ``build_layers`` gives them, a layer moves with the one below it.

    ``q_mu`` [M, T] and ``q_sqrt`` [T, M, M] are in GPflow's shapes.

    >>> q = gd.posteriors.IndependentGaussian(num_latent_gps=2, num_inducing=5)
    >>> q.q_mu.shape, q.q_sqrt.shape
    (TensorShape([5, 2]), TensorShape([2, 5, 5]))

    :param whiten: whether this is q(v), u = chol(K_MM) v, rather than q(u) as in the paper (the default).
    :param initial_scale: of the factor at the start, a multiple of the identity.
    """

    def __init__(
        self,
        num_latent_gps: int,
        num_inducing: int,
        *,
        whiten: bool = False,
        initial_scale: float = 1.0,
        name: str | None = None,
    ) -> None:
        super().__init__(num_latent_gps, num_inducing, name=name)
        self.whiten = check_flag(whiten, "whiten")
        initial_scale = check_positive_number(initial_scale, "initial_scale")
        T, M = self.num_latent_gps, self.num_inducing
        check_memory(T * M * M, f"{T} factors [{M}, {M}]", "num_inducing")
        self.q_mu = Parameter(np.zeros((M, T)), dtype=gpflow.default_float())
        self.q_sqrt = Parameter(
            initial_scale * np.tile(np.eye(M), (T, 1, 1)),
            dtype=gpflow.default_float(),
            transform=PackedTriangular.lower(M),
        )

    def condition(self, K: tf.Tensor, factor: tf.Tensor, mean: tf.Tensor) -> InducingConditional:
        del K, mean
        q_mu = tf.linalg.matrix_transpose(tf.cast(self.q_mu, factor.dtype))[None]
        scale = tf.expand_dims(tf.cast(self.q_sqrt, factor.dtype), 0)
        log_det = tf.reduce_sum(tf.math.log(tf.abs(tf.linalg.diag_part(scale))))
        if not self.whiten:
            q_mu, scale = solve_rows(factor, q_mu), tf.linalg.triangular_solve(factor, scale)
            log_prior = tf.reduce_sum(tf.math.log(tf.linalg.diag_part(factor)), axis=[1, 2])
            copies = self.num_latent_gps // factor.shape[1]
            log_det = log_det - copies * log_prior
        return _GaussianConditional(factor, q_mu, scale, tf.reshape(log_det, [-1]))


class _GaussianConditional(NamedTuple):
    """Whitened: q(v) = N(mean, scale scale^T)."""

    prior_factor: tf.Tensor  # [S, K, M, M]
    mean: tf.Tensor  # [S, T, M]
    scale: tf.Tensor  # [S, T, M, M]
    log_determinant: tf.Tensor  # [S], of all scales

    def sample(self, noise: tuple[tf.Tensor, ...]) -> tf.Tensor:
        return self.mean + rows_times(noise[0], self.scale, transpose=True)

    def log_ratio(self, whitened: tf.Tensor, noise: tuple[tf.Tensor, ...] = ()) -> tf.Tensor:
        normals = noise[0] if noise else solve_rows(self.scale, whitened - self.mean)
        squares = tf.reduce_sum(tf.square(normals), axis=[1, 2])
        return self.log_determinant + 0.5 * (
            squares - tf.reduce_sum(tf.square(whitened), axis=[1, 2])
        )

    def prior_kl(self) -> tf.Tensor:
        squares = tf.reduce_sum(tf.square(self.mean), axis=[1, 2])
        trace = tf.reduce_sum(tf.square(self.scale), axis=[1, 2, 3])
        size = tf.cast(tf.reduce_prod(tf.shape(self.mean)[1:]), trace.dtype)
        return 0.5 * (squares + trace - size) - self.log_determinant

    def explain(self, Kuf: tf.Tensor) -> Explained:
        A = tf.linalg.triangular_solve(self.prior_factor, Kuf)  # [S, K, M, N]
        mean = tf.linalg.matrix_transpose(rows_times(self.mean, A))
        return Explained(mean, A, tf.matmul(self.scale, A, transpose_a=True))
