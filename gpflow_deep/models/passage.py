"""
The one walk through the layers, for all families.

What differs between the families is what happens at one layer: given its inputs and what was drawn below,
what is the conditional of its output? That is a :class:`Passage`, made for one batch of points from what the
model prepared. All of it is in one layout: samples, points, GPs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import gpflow
import tensorflow as tf
from gpflow.base import TensorType

from ..layers import GPLayer, Layer
from ..numerics.linalg import cast_all, rows_times
from ..posteriors.base import Conditional, Recursion
from ..posteriors.explained import Explained

__all__ = [
    "JointPassage",
    "MarginalPassage",
    "Passage",
    "PassageChain",
    "Step",
    "sample_gaussians",
    "walk",
]


class Passage(ABC):
    """One batch of points on its way through the layers."""

    @abstractmethod
    def condition(self, layer: Layer, inputs: Any, below: Conditional | None) -> Conditional:
        """
        What the next layer's functions are, given its inputs and what was drawn below.

        :param layer: the layers come in their order, input first.
        :param inputs: of the layer, [S or 1, N, D]: the data, [1, N, D], then what :meth:`sample` returned.
        :param below: the conditional of the layer below; ``None`` for data.
        """

    @abstractmethod
    def sample(self, noise: TensorType | None) -> Any:
        """
        The inputs of the next layer: a draw [S, N, T] from the last conditional.

        :param noise: standard normal draws, [S, N, T], or [S, 1, T] that all points share; ``None`` where
            nothing is drawn.
        """


class Step(NamedTuple):
    """What a walk leaves at a layer."""

    sample: Any  # [S, N, T]; None where the walk ended
    conditional: Conditional
    inputs: Any  # of the layer


def walk(
    layers: Sequence[Layer], passage: Passage, X: tf.Tensor, noise: Sequence[TensorType | None]
) -> list[Step]:
    """
    Carry points through the layers: condition, sample, go on.

    :param X: inputs [N, D], or [S, N, D] where every sample has its own.
    :param noise: for as many layers as are to be sampled: all but perhaps the last.
    """
    steps: list[Step] = []
    inputs, below = (X[None] if X.shape.rank == 2 else X), None
    for index, layer in enumerate(layers):
        below = passage.condition(layer, inputs, below)
        sample = passage.sample(noise[index]) if index < len(noise) else None
        steps.append(Step(sample, below, inputs))
        inputs = sample
    return steps


def sample_gaussians(conditional: Conditional, noise: TensorType) -> tf.Tensor:
    """Draws [S, N, T] of independent GPs."""
    mean, variance = conditional
    return mean + tf.sqrt(variance) * noise


class MarginalPassage(Passage):
    """
    Point by point: project on the inducing variables, then condition on the layers below (Theorem 1).

    :param dtype: to compute in, that of factors and recursion: GPflow's default float, as what it takes and
        returns, by default.
    """

    def __init__(
        self, factors: Sequence[tf.Tensor], recursion: Recursion, dtype: str | None = None
    ) -> None:
        self._factors = iter(factors)
        self._recursion = recursion
        self._dtype = dtype or gpflow.default_float()

    def condition(
        self, layer: GPLayer, inputs: tf.Tensor, below: Conditional | None
    ) -> Conditional:
        projection = layer.project(tf.cast(inputs, self._dtype), next(self._factors))
        conditional = self._recursion.condition(projection)
        return Conditional(*cast_all(conditional, gpflow.default_float()))

    def sample(self, noise: TensorType | None) -> tf.Tensor:
        sample = self._recursion.sample(tf.cast(noise, self._dtype))
        return tf.cast(sample, gpflow.default_float())


class JointPassage(Passage):
    """
    Whole functions on their way: draws are coherent over all points, and covariances are those of the points.

    :param explain: what is known of a layer's functions at its inputs, as a function of the layer's place
        among those of this passage, the layer, and its inputs [S or 1, N, D].
    :param noise_variance: of noise that a layer's outputs have on top, likewise.
    :param full_output_cov: give covariances of points and outputs, [S, N, T, N, T], instead of those of
        each GP's points, [S, K, N, N] with K = T or, where the GPs have the same, 1.
    """

    def __init__(
        self,
        explain: Callable[[int, Layer, tf.Tensor], Explained],
        noise_variance: Callable[[int], TensorType] | None = None,
        full_output_cov: bool = False,
    ) -> None:
        self._explain = explain
        self._noise_variance = noise_variance
        self._full_output_cov = full_output_cov
        self._index = 0

    def condition(self, layer: Layer, inputs: tf.Tensor, below: Conditional | None) -> Conditional:
        del below
        index, self._index = self._index, self._index + 1
        explained = self._explain(index, layer, inputs)
        mean = explained.mean + layer.latent_mean(inputs)
        prior = layer.prior_covariance(inputs)
        self._at = layer, inputs, explained.removed.shape[-2]
        self._mean = mean
        self._covariance = explained.covariance(prior)
        if self._noise_variance is not None:
            diagonal = tf.linalg.diag_part(self._covariance) + self._noise_variance(index)
            self._covariance = tf.linalg.set_diag(self._covariance, diagonal)
        if self._full_output_cov:
            return Conditional(mean, explained.full_covariance(prior))
        return Conditional(mean, self._covariance)

    def sample(self, noise: TensorType | None) -> tf.Tensor:
        layer, inputs, num_inducing = self._at
        factor = layer.factorise_joint(self._covariance, inputs, num_inducing)  # [S or 1, K, N, N]
        draws = rows_times(tf.linalg.matrix_transpose(noise), factor, transpose=True)  # [S, T, N]
        return self._mean + tf.linalg.matrix_transpose(draws)


class PassageChain(Passage):
    """
    Passages one after another, each through some of the layers.

    :param passages: with the number of layers that each goes through.
    """

    def __init__(self, passages: Sequence[tuple[Passage, int]]) -> None:
        self.passages = [passage for passage, _ in passages]
        self._remaining = [passage for passage, number in passages for _ in range(number)]

    def condition(self, layer: Layer, inputs: Any, below: Conditional | None) -> Conditional:
        self._current = self._remaining.pop(0)
        return self._current.condition(layer, inputs, below)

    def sample(self, noise: TensorType | None) -> Any:
        return self._current.sample(noise)
