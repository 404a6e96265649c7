"""The posterior of orthogonal inducing points."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import tensorflow as tf
from gpflow.base import Parameter
from scipy.linalg import block_diag

from ..layers import GPLayer
from ..numerics.bijectors import PackedTriangular
from ..validation import check_positive_integer
from .mean_field import MeanField

__all__ = ["Orthogonal"]


class Orthogonal(MeanField):
    r"""
    A mean-field posterior in which the first inducing points of a GP are independent of its others (Shi,
    Titsias & Mnih 2020, *Sparse orthogonal variational inference for Gaussian processes*), for whitened
    layers.

    Whitened by the Cholesky factor of all inducing points' covariance, the others are what remains of them
    given the first ones: their own block of the factor is that of the residual kernel
    :math:`C_{vv} = K_{vv} - K_{vu} K_{uu}^{-1} K_{uv}`. So SOLVE-GP is an SVGP with this q, and with half of
    each inducing point's covariances.

    >>> layers = gd.layers.build_layers(X, hidden_dims=(), num_inducing=6)
    >>> gd.posteriors.Orthogonal(layers, num_inducing=4).num_parameters  # of MeanField: 27
    19

    :param layers: the layers, whitened.
    :param num_inducing: number of first points of each GP, the others being orthogonal: of every layer.
    :raises ValueError: where a layer is not whitened, or has no more points than that.
    """

    def __init__(
        self, layers: Sequence[GPLayer], num_inducing: int, name: str | None = None
    ) -> None:
        self._first = check_positive_integer(num_inducing, "num_inducing")
        super().__init__(layers, name=name)
        if not all(layer.whiten and layer.num_inducing > self._first for layer in layers):
            raise ValueError(
                f"layers: expected whitened layers of more than {self._first} inducing points."
            )
        self.q_sqrt = [
            Parameter(q_sqrt.numpy(), transform=_Orthogonal(self._mask(size)))
            for q_sqrt, size in zip(self.q_sqrt, self.num_inducing)
        ]

    @property
    def num_parameters(self) -> int:
        return sum(size + int(self._mask(size).sum()) for size in self._gp_sizes())

    def _mask(self, size: int) -> np.ndarray:
        """Which entries of a GP's factor are free."""
        mask = np.tril(np.ones([size, size], dtype=bool))
        mask[self._first :, : self._first] = False
        return mask

    def _dense_mask(self) -> np.ndarray:
        return block_diag(*map(self._mask, self._gp_sizes()))


class _Orthogonal(PackedTriangular):
    """
    Of factors with no covariance between the first points and the others: one that is assigned and has some,
    an SVGP's, say, would lose it unseen.
    """

    def _inverse(self, y: tf.Tensor) -> tf.Tensor:
        free = super()._inverse(y)
        lost = tf.linalg.band_part(y, -1, 0) - self._unpack(free)
        is_too_much = tf.reduce_max(tf.abs(lost)) > 1e-6 * tf.reduce_max(tf.abs(y))
        message = (
            "q_sqrt: expected no covariance between the first inducing points and the others, which"
            " orthogonal inducing points have not; MeanField has it."
        )
        if not tf.executing_eagerly():
            tf.debugging.Assert(~is_too_much, [message])
        elif is_too_much:
            raise ValueError(message)
        return free
