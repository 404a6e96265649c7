"""The mean-field posterior: no coupling between GPs (Salimbeni & Deisenroth 2017)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.base import Parameter

from ..layers import GPLayer, Projection
from ..numerics.bijectors import PackedTriangular
from ..numerics.forms import diagonal_forms, quadratic_forms
from ..numerics.linalg import gram, in_sets, solve_rows
from ..validation import check_one_replica
from .base import (
    GP,
    HIDDEN_SCALE,
    Conditional,
    InducingPosterior,
    Moments,
    Read,
    Recursion,
    initial_factors,
    log_abs_diagonal,
    stack_means,
)

__all__ = ["MeanField", "direct_moments"]


class _Layer(NamedTuple):
    """One layer of q."""

    mean: tf.Tensor  # [M, T]
    own: tf.Tensor  # [T, M, M]


def project_mean(projection: Projection, mean: tf.Tensor) -> tf.Tensor:
    """mu~ [S, N, T] of Theorem 1, for the mean ``mean`` [M, T] of the inducing outputs."""
    if projection.basis.shape.rank == 3:
        return tf.matmul(projection.basis, mean) + projection.mean
    return tf.einsum("nstm,mt->nst", projection.basis, mean) + projection.mean


def project_variance(projection: Projection, own: tf.Tensor) -> tf.Tensor:
    """The diagonal of S~, [S, N, T], for ``own`` [T, M, M], the covariance of each GP less the prior's."""
    basis = projection.basis
    shared = basis.shape.rank == 3
    forms = quadratic_forms(basis, own) if shared else diagonal_forms(basis, own, basis)
    # Never negative in exact arithmetic; in float32 rounding makes it so.
    return tf.maximum(projection.variance + forms, 0.0)


def direct_moments(layer: _Layer, factor: tf.Tensor) -> _Layer:
    r"""
    A whitened layer of q for a basis of the covariances k of a point with the inducing outputs, unsolved:
    the mean :math:`L_K^{-T} m`, and :math:`Q = L_K^{-T} (S - I) L_K^{-1}`, so that the variance is
    :math:`k_{nn} + k^T Q k`. Two solves for each of the layer's covariances stand for one for every point.

    S - I is solved for as it is: the difference of solved S and I would lose 100 to 1000 times as much.

    :param factor: L_K, [M, M] or [T, M, M].
    """
    sets = in_sets(factor)

    def solve(rows: tf.Tensor) -> tf.Tensor:
        """L_K^-T for the last axis of [N, T, M]."""
        return solve_rows(sets, rows, transpose=True)

    half = solve(tf.transpose(layer.own, [1, 0, 2]))
    own = solve(tf.transpose(half, [2, 1, 0]))
    mean = tf.transpose(solve(tf.transpose(layer.mean)[None])[0])
    return _Layer(mean, tf.transpose(own, [1, 0, 2]))


class MeanField(InducingPosterior):
    """
    q(v) = prod_l prod_t N(m_lt, L_lt L_lt^T): T M (M + 1) / 2 entries; the cheapest, and the usual
    doubly stochastic deep GP. With one layer it is GPflow's SVGP.

    ``q_mu[l]`` [M, T] and ``q_sqrt[l]`` [T, M, M] are in GPflow's shapes.

    >>> layers = gd.layers.build_layers(X, hidden_dims=(2,), num_inducing=5)
    >>> gd.posteriors.MeanField(layers).pattern.astype(int)
    array([[1, 0, 0],
           [0, 1, 0],
           [0, 0, 1]])

    :param hidden_scale: initial factor of q in hidden layers, as a multiple of the prior's.
    """

    def __init__(
        self,
        layers: Sequence[GPLayer],
        hidden_scale: float = HIDDEN_SCALE,
        name: str | None = None,
    ) -> None:
        super().__init__(layers, name=name)
        self._check_memory()
        factors = initial_factors(layers, hidden_scale)
        self.q_mu = [
            Parameter(np.zeros((m, t)), dtype=gpflow.default_float())
            for m, t in zip(self.num_inducing, self.num_latent_gps)
        ]
        self.q_sqrt = [
            Parameter(factor, transform=PackedTriangular.lower(factor.shape[-1]))
            for factor in factors
        ]

    @property
    def pattern(self) -> np.ndarray:
        return np.eye(sum(self.num_latent_gps), dtype=bool)

    @property
    def variational_params(self) -> list[tuple[Parameter, Parameter]]:
        check_one_replica()
        return list(zip(self.q_mu, self.q_sqrt))

    def _mean(self, read: Read = tf.convert_to_tensor) -> tf.Tensor:
        return stack_means(self.q_mu, read)

    def _factor(self, read: Read = tf.convert_to_tensor) -> list[Any]:
        return [read(q_sqrt) for q_sqrt in self.q_sqrt]

    def _block(self, factor: Sequence[Any], row: GP, column: GP) -> Any:
        layer, index = row
        return factor[layer][index]

    def _layer_moments(self, factor: list[tf.Tensor]) -> list[_Layer]:
        return [
            _Layer(tf.convert_to_tensor(q_mu), gram(L, True)) for q_mu, L in zip(self.q_mu, factor)
        ]

    def recursion(self, moments: Moments, jitter: float) -> Recursion:
        return _IndependentRecursion(moments.layers, jitter)

    def _assign(self, mean: np.ndarray, scale_tril: np.ndarray) -> None:
        for layer, rows in enumerate(self._layer_slices()):
            shape = (self.num_latent_gps[layer], self.num_inducing[layer])
            self.q_mu[layer].assign(mean[rows].reshape(shape).T)
            blocks = scale_tril[rows, rows].reshape(shape * 2)
            self.q_sqrt[layer].assign(np.einsum("tmtk->tmk", blocks))

    def _log_determinant(self, factor: list[tf.Tensor]) -> tf.Tensor:
        return tf.add_n([log_abs_diagonal(L) for L in factor])

    def _factor_times(self, factor: list[tf.Tensor], noise: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        return [tf.einsum("tmk,stk->stm", L, e) for L, e in zip(factor, noise)]

    def output_factor(self, moments: Moments) -> tf.Tensor:
        return moments.factor[-1]


class _IndependentRecursion(Recursion):
    """Every GP for itself: the conditional is the marginal, and its covariance is diagonal."""

    def __init__(self, layers: Sequence[_Layer], jitter: float) -> None:
        super().__init__(jitter)
        self._remaining = iter(layers)

    def condition(self, projection: Projection) -> Conditional:
        layer = next(self._remaining)
        self._conditional = Conditional(
            mean=project_mean(projection, layer.mean),
            covariance=project_variance(projection, layer.own),
        )
        return self._conditional

    def sample(self, noise: tf.Tensor) -> tf.Tensor:
        mean, variance = self._conditional
        return mean + tf.sqrt(variance + self.jitter) * noise
