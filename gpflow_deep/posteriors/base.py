r"""
What every Gaussian posterior over the inducing outputs of all layers has in common.

Notation (Lindinger et al. 2020): layers l = 1..L with T_l GPs of M_l inducing points each; v stacks the
inducing outputs layer by layer, within a layer GP by GP, within a GP point by point, and
:math:`q(v) = N(m, L L^T)` with a lower-triangular L whose M x M blocks are zero outside a pattern.

With ``a`` a layer's projection of its input on its inducing variables, Theorem 1 says that for one point
all layers' function values are jointly Gaussian given the inputs of each layer,

.. math::
    \tilde S_{(l,t),(k,u)} = a_l^T (L L^T)_{(l,t),(k,u)} a_k
    + \delta_{(l,t),(k,u)} (k_{nn} - k^T K_{MM}^{-1} k),

so that the layers can be sampled in turn. A posterior forms the blocks of :math:`L L^T` that its pattern
needs once a step; a :class:`Recursion` carries one batch of points through the layers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple

import gpflow
import numpy as np
import tensorflow as tf
from check_shapes import check_shapes
from gpflow.base import Module, Parameter, TensorType

from ..layers import GPLayer, Projection

__all__ = ["Conditional", "InducingPosterior", "Recursion"]

HIDDEN_SCALE = 1e-5
"""Initial factor of q in hidden layers: nearly deterministic (Salimbeni & Deisenroth 2017)."""


class Conditional(NamedTuple):
    """A layer's function values given the draws of the layers below (Eqs. 10 and 11)."""

    mean: tf.Tensor  # [N, S, T]
    covariance: tf.Tensor  # [N, S, T, T], or its diagonal [N, S, T] where the rest is zero


class Recursion(ABC):
    """
    One pass of a batch of points through the layers: condition on the layers below, sample, go on.

    :param jitter: J of the small covariance matrices: f = mean + chol(covariance + J I) z.
    """

    def __init__(self, jitter: float) -> None:
        self.jitter = jitter

    @abstractmethod
    def condition(self, projection: Projection) -> Conditional:
        """The next layer's conditional, from its projection of the draws of the layer below."""

    @abstractmethod
    def sample(self, noise: tf.Tensor) -> tf.Tensor:
        """A draw [N, S, T] from the last conditional, made of standard normal ``noise``."""


class InducingPosterior(Module, ABC):
    """
    A Gaussian q(v) over the inducing outputs of all layers, with some structure.

    :param layers: the layers whose inducing outputs it is over. Only their sizes are kept.
    """

    def __init__(self, layers: Sequence[GPLayer], name: str | None = None) -> None:
        super().__init__(name=name)
        if not layers or not all(isinstance(layer, GPLayer) for layer in layers):
            raise TypeError(f"layers: expected a non-empty sequence of GPLayer, got {layers!r}.")
        self.num_latent_gps = tuple(layer.num_latent_gps for layer in layers)
        self.num_inducing = tuple(layer.num_inducing for layer in layers)

    # What a structure defines.

    @property
    @abstractmethod
    def pattern(self) -> np.ndarray:
        """Which blocks of the factor may differ from zero: [T, T], boolean, lower triangular."""

    @abstractmethod
    def covariances(self) -> Any:
        """The mean and the blocks of L L^T that predictions need: all that no input enters."""

    @abstractmethod
    def recursion(self, covariances: Any, jitter: float) -> Recursion:
        """A pass through the layers, with what :meth:`covariances` returned."""

    @abstractmethod
    def dense(self) -> tuple[tf.Tensor, tf.Tensor]:
        """Mean [T M] and lower-triangular factor [T M, T M] of q(v): the definition of q."""

    @abstractmethod
    def _assign(self, mean: np.ndarray, scale_tril: np.ndarray) -> None:
        """Take over a mean and a factor that :meth:`assign_dense` has checked."""

    @abstractmethod
    def _means(self) -> list[tf.Tensor]:
        """The mean, layer by layer: [T_l, M_l]."""

    @abstractmethod
    def _row_blocks(self) -> list[list[tf.Tensor]]:
        """
        Per layer the stored blocks of the factor's rows, each [t, M_l, columns] with t <= T_l. The last
        one ends with the layer's own columns: M_l where its GPs are not coupled, else T_l M_l.
        """

    @abstractmethod
    def factor_times(self, noise: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """L e for ``noise`` e, both per layer [S, T_l, M_l]."""

    @abstractmethod
    def own_covariance(self, layer: int) -> tf.Tensor:
        """Covariance [T_l, M_l, M_l] of each GP of a layer given the noise of the layers below."""

    @property
    def variational_params(self) -> list[tuple[Parameter, Parameter]]:
        """
        The (q_mu, q_sqrt) pairs that ``gpflow.optimizers.NaturalGradient`` takes: one at a time where
        their sizes differ and GPflow checks shapes, which by default it does in eager mode only.

        :raises NotImplementedError: where the structure is not one that it can update.
        """
        raise NotImplementedError(
            f"gpflow.optimizers.NaturalGradient updates full covariances only: MeanField (layer by"
            f" layer) and FullyCoupled have variational_params, {type(self).__name__} has not."
            " Train it with Adam."
        )

    # What follows from it.

    @property
    def num_parameters(self) -> int:
        """The number of free numbers: the mean's, and the stored entries of the factor."""
        sizes = self._gp_sizes()
        stored = sum(sizes[i] * sizes[j] for i, j in np.argwhere(self.pattern) if i != j)
        return int(sum(sizes) + stored + sum(m * (m + 1) // 2 for m in sizes))

    def sample(self, noise: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """Draws of v, per layer [S, T_l, M_l], made of standard normal ``noise`` of these shapes."""
        return [m + e for m, e in zip(self._means(), self.factor_times(noise))]

    def prior_kl(self, prior_factors: Sequence[tf.Tensor | None] | None = None) -> tf.Tensor:
        r"""
        KL divergence from the prior, :math:`\tfrac12 (|m|^2 + |L|_F^2 - TM) - \log|L|`.

        :param prior_factors: per layer the Cholesky factor of the prior covariance, [M, M] or
            [T, M, M], or ``None`` for N(0, I). All ``None`` by default, as for whitened layers.
        """
        if prior_factors is None:
            prior_factors = [None] * len(self.num_latent_gps)
        total = tf.zeros([], gpflow.default_float())
        for mean, blocks, factor in zip(self._means(), self._row_blocks(), prior_factors):
            total -= _log_abs_diagonal(blocks[-1])
            blocks = [mean[..., None], *blocks]
            if factor is not None:
                log_factor = tf.reduce_sum(tf.math.log(tf.linalg.diag_part(factor)))
                total += log_factor * (mean.shape[0] if factor.shape.rank == 2 else 1)
                blocks = [_solve(factor, block) for block in blocks]
            squares = tf.add_n([tf.reduce_sum(tf.square(block)) for block in blocks])
            total += 0.5 * (squares - tf.cast(tf.size(mean), squares.dtype))
        return total

    @check_shapes(
        "mean: [size]",
        "scale_tril: [size, size]",
    )
    def assign_dense(self, mean: TensorType, scale_tril: TensorType) -> None:
        """
        Set q(v) = N(mean, scale_tril scale_tril^T).

        :param mean: [T M], in the joint order.
        :param scale_tril: [T M, T M], lower triangular with a positive diagonal, zero outside the
            pattern.
        :raises ValueError: where it is not.
        """
        mean, scale_tril = np.asarray(mean), np.asarray(scale_tril)
        size = sum(self._gp_sizes())
        if len(mean) != size:
            raise ValueError(f"mean: expected [{size}], got {mean.shape}.")
        if np.triu(scale_tril, 1).any() or (np.diag(scale_tril) <= 0).any():
            raise ValueError(
                "scale_tril: expected a lower-triangular matrix with a positive diagonal."
            )
        if scale_tril[~self._dense_mask()].any():
            raise ValueError(
                f"scale_tril: expected zeros outside the pattern of {type(self).__name__}."
            )
        self._assign(mean, scale_tril)

    def _gp_sizes(self) -> list[int]:
        """The number of inducing points of each of the T GPs, in the joint order."""
        return [m for t, m in zip(self.num_latent_gps, self.num_inducing) for _ in range(t)]

    def _layer_slices(self) -> list[slice]:
        """Where each layer lies in the joint order."""
        ends = np.cumsum([t * m for t, m in zip(self.num_latent_gps, self.num_inducing)])
        return [slice(start, end) for start, end in zip([0, *ends[:-1]], ends)]

    def _dense_mask(self) -> np.ndarray:
        """The pattern entry by entry: [T M, T M]."""
        sizes = self._gp_sizes()
        return np.tril(np.repeat(np.repeat(self.pattern, sizes, axis=0), sizes, axis=1))


def initial_factors(layers: Sequence[GPLayer]) -> list[np.ndarray]:
    """
    Initial diagonal blocks of the factor, per layer [T_l, M_l, M_l]: a multiple of the prior's factor,
    1e-5 in hidden layers and 1 at the output (Lindinger et al. 2020, Appendix G).
    """
    factors = []
    for index, layer in enumerate(layers):
        scale = 1.0 if index == len(layers) - 1 else HIDDEN_SCALE
        prior = np.eye(layer.num_inducing) if layer.whiten else np.asarray(layer.factorise())
        shape = [layer.num_latent_gps, layer.num_inducing, layer.num_inducing]
        factors.append(scale * np.broadcast_to(prior, shape).astype(gpflow.default_float()))
    return factors


def _log_abs_diagonal(rows: tf.Tensor) -> tf.Tensor:
    """
    Sum of log |diagonal| of a layer's rows [T, M, columns], whose last columns are the layer's own. As in
    GPflow, nothing keeps the diagonal positive but its own gradient.
    """
    T, M, columns = rows.shape
    if columns != M:
        rows = tf.reshape(rows, [T * M, columns])[:, -T * M :]
    return 0.5 * tf.reduce_sum(tf.math.log(tf.square(tf.linalg.diag_part(rows))))


def _solve(factor: tf.Tensor, block: tf.Tensor) -> tf.Tensor:
    if factor.shape.rank == 2:
        factor = tf.broadcast_to(factor, [block.shape[0], *factor.shape])
    return tf.linalg.triangular_solve(factor[: block.shape[0]], block)
