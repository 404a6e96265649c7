"""
Priors over the weights of a Bayesian layer: independent units, each with Gaussian weights of mean zero. Their
precision may be random; then the prior has its approximate posterior along.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple

import gpflow
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.base import Module, Parameter
from gpflow.utilities import positive

from ...distributions import InverseWishart
from ...numerics.gamma import gammas_from_normals
from ...validation import check_choice, check_positive_integer
from .precisions import Isotropic, Precision, Spatial

__all__ = [
    "NealPrior",
    "PrecisionDraw",
    "ScalePrior",
    "SpatialInverseWishartPrior",
    "StandardPrior",
    "WeightPrior",
]


class PrecisionDraw(NamedTuple):
    """Draws of the precision of a layer's weights."""

    precision: Precision
    log_ratio: tf.Tensor  # log p - log q of the draws: [S or 1]
    kl: tf.Tensor  # its expectation with the sign turned, the divergence of q from p: [1]


class WeightPrior(Module, ABC):
    """The law of the weights of a unit, with D inputs (the constant for the bias included)."""

    def noise_shapes(self, num_samples: int | None) -> list[list[int | None]]:
        """Of the standard normals that a draw of the precision takes."""
        return []

    @abstractmethod
    def draw(
        self, noise: Sequence[tf.Tensor], fan_in: int, *, from_prior: bool = False
    ) -> PrecisionDraw:
        """
        Draw the precision.

        :param noise: standard normals of :meth:`noise_shapes`.
        :param fan_in: D.
        :param from_prior: from the prior itself, rather than from its approximate posterior.
        """


class _FixedPrior(WeightPrior):
    """Independent weights of a fixed precision."""

    def draw(
        self, noise: Sequence[tf.Tensor], fan_in: int, *, from_prior: bool = False
    ) -> PrecisionDraw:
        """See :meth:`WeightPrior.draw`."""
        precision = tf.fill([1], tf.cast(self._precision(fan_in), gpflow.default_float()))
        zero = tf.zeros([1], gpflow.default_float())
        return PrecisionDraw(Isotropic(precision), zero, zero)

    @abstractmethod
    def _precision(self, fan_in: int) -> float: ...


class NealPrior(_FixedPrior):
    """Precision D: outputs keep the size of the inputs, however many there are (Neal 1996)."""

    def _precision(self, fan_in: int) -> float:
        return float(fan_in)


class StandardPrior(_FixedPrior):
    """Precision 1."""

    def _precision(self, fan_in: int) -> float:
        return 1.0


class ScalePrior(WeightPrior):
    """
    Precision D s with s ~ Gamma(2, 2) for the whole layer, and q(s) = Gamma(2 + a, 2 + b) with positive a and
    b (Ober & Aitchison 2021, Eq. 15; the released code has D / sqrt(s)).
    """

    def __init__(self, *, name: str | None = None) -> None:
        super().__init__(name=name)
        self.concentration = Parameter(1.0, transform=positive(), dtype=gpflow.default_float())
        self.rate = Parameter(1.0, transform=positive(), dtype=gpflow.default_float())

    def noise_shapes(self, num_samples: int | None) -> list[list[int | None]]:
        """One normal a draw."""
        return [[num_samples, 1, 1]]

    def draw(
        self, noise: Sequence[tf.Tensor], fan_in: int, *, from_prior: bool = False
    ) -> PrecisionDraw:
        """See :meth:`WeightPrior.draw`."""
        two = tf.constant(2.0, gpflow.default_float())
        p = tfp.distributions.Gamma(two, two)
        q = p if from_prior else tfp.distributions.Gamma(2.0 + self.concentration, 2.0 + self.rate)
        scale = gammas_from_normals(q.concentration, noise[0][:, 0, 0]) / q.rate
        divergence = tfp.distributions.kl_divergence(q, p)
        return PrecisionDraw(
            Isotropic(self._precision(scale, fan_in)),
            p.log_prob(scale) - q.log_prob(scale),
            tf.reshape(divergence, [1]),
        )

    def _precision(self, scale: tf.Tensor, fan_in: int) -> tf.Tensor:
        return fan_in * scale


class SpatialInverseWishartPrior(WeightPrior):
    r"""
    For convolutions: the weights of one input channel have a common covariance over the p positions of the
    kernel, with precision C X over C input channels and X ~ InverseWishart(p + 1, p (p + 1) I), so that the
    expected covariance is I / (C p). Its posterior is InverseWishart(p + 1 + sum w, p (p + 1) I + Y diag(w)
    Y^T) with free Y [p, p] and positive w [p] (Ober & Aitchison 2021, Eq. 16, with p + 1 degrees of freedom).
    A bias has precision D.

    :param num_positions: p, the product of the kernel's sizes, at least 2.
    :raises ValueError: for less.
    """

    def __init__(self, num_positions: int, *, name: str | None = None) -> None:
        super().__init__(name=name)
        p = self.num_positions = check_positive_integer(num_positions, "num_positions")
        if p == 1:  # a bias would be one channel more
            raise ValueError("num_positions: expected at least 2, got 1.")
        # At the start the covariance has its prior expectation.
        self.pseudo_rows = Parameter(p * np.eye(p), dtype=gpflow.default_float())
        self.pseudo_weights = Parameter(
            np.ones(p), transform=positive(), dtype=gpflow.default_float()
        )

    def noise_shapes(self, num_samples: int | None) -> list[list[int | None]]:
        """A matrix [p, p] a draw, of which the lower triangle is used."""
        return [[num_samples, self.num_positions, self.num_positions]]

    def draw(
        self, noise: Sequence[tf.Tensor], fan_in: int, *, from_prior: bool = False
    ) -> PrecisionDraw:
        """See :meth:`WeightPrior.draw`."""
        p, q = self._laws()
        if from_prior:
            q = p
        X = q.from_normals(noise[0])
        channels = tf.constant(fan_in // self.num_positions, X.dtype)
        factor = tf.sqrt(channels) * tf.linalg.cholesky(X)
        bias = tf.fill(tf.shape(X)[:1], tf.constant(np.sqrt(fan_in), X.dtype))
        divergence = tfp.distributions.kl_divergence(q, p)
        return PrecisionDraw(
            Spatial(factor, bias), p.log_prob(X) - q.log_prob(X), tf.reshape(divergence, [1])
        )

    def _laws(self) -> tuple[InverseWishart, InverseWishart]:
        """Prior and posterior of X."""
        size, dtype = self.num_positions, gpflow.default_float()
        prior_scale = tf.cast(size * (size + 1), dtype) * tf.eye(size, dtype=dtype)
        rows = self.pseudo_rows * tf.sqrt(self.pseudo_weights)
        scale = prior_scale + tf.matmul(rows, rows, transpose_b=True)
        df = tf.constant(size + 1.0, dtype)
        prior = InverseWishart(df, tf.sqrt(prior_scale))
        posterior = InverseWishart(
            df + tf.reduce_sum(self.pseudo_weights), tf.linalg.cholesky(scale)
        )
        return prior, posterior


def weight_prior(prior: Any, num_positions: int) -> WeightPrior:
    """
    A prior by its name, or itself.

    :param num_positions: of the layer's kernel; 1 of a dense layer.
    :raises ValueError: for another name, or a spatial prior of another kernel.
    """
    if isinstance(prior, SpatialInverseWishartPrior) and prior.num_positions != num_positions:
        raise ValueError(
            f"prior: expected a spatial prior over the kernel's positions, {num_positions}, got one over"
            f" {prior.num_positions}."
        )
    if isinstance(prior, WeightPrior):
        return prior
    known = {"neal": NealPrior, "standard": StandardPrior, "scale": ScalePrior}
    spatial = ["spatial"] if num_positions > 1 else []
    if check_choice(prior, "prior", [*known, *spatial]) == "spatial":
        return SpatialInverseWishartPrior(num_positions)
    return known[prior]()
