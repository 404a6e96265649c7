"""A family of one's own: inducing outputs without uncertainty, at the maximum of their posterior."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf

import gpflow_deep as gd
from gpflow_deep.models.passage import Passage, sample_gaussians
from gpflow_deep.models.variational import VariationalDeepGPModel
from gpflow_deep.posteriors import Conditional


class PointEstimateDeepGP(VariationalDeepGPModel):
    r"""
    A deep GP with inducing outputs v that are numbers:
    :math:`f_n | v \sim N(m + a_n^T v,\; k_{nn} - |a_n|^2)`, trained for :math:`\log p(Y | v) - |v|^2 / 2`.

    :param layers: the layers, input first, of kernels that their GPs share.
    :param likelihood: any GPflow likelihood.
    :param num_data: size of the whole training set, for minibatches.
    """

    layer_type = gd.layers.GPLayer

    def __init__(
        self,
        layers: Sequence[gd.layers.GPLayer],
        likelihood: gpflow.likelihoods.Likelihood,
        *,
        num_data: int | None = None,
    ) -> None:
        super().__init__(
            layers,
            likelihood,
            num_samples=5,
            num_prediction_samples=100,
            num_data=num_data,
            seed=0,
        )
        self.inducing_outputs = [
            gpflow.Parameter(np.zeros([layer.num_latent_gps, layer.num_inducing]))
            for layer in self.layers
        ]

    def _prepare(self, noise: Sequence[tf.Tensor] = ()) -> list[tf.Tensor]:
        """What no input enters: the Cholesky factors of K_MM."""
        return [layer.factorise() for layer in self.layers]

    def _passage(self, prepared: list[tf.Tensor], full_output_cov: bool = False) -> Passage:
        return _GivenNumbers(prepared, self.inducing_outputs)

    def _divergence(self, prepared: Any, passage: Passage) -> tf.Tensor:
        """Minus the log prior density of v, but for a constant."""
        return 0.5 * tf.add_n([tf.reduce_sum(tf.square(v)) for v in self.inducing_outputs])

    def _joint_passage(self, *args: Any, **kwargs: Any) -> Passage:
        raise NotImplementedError("full_cov: expected False, this family predicts point by point.")


class _GivenNumbers(Passage):
    """Point by point: the prior given the inducing outputs."""

    def __init__(
        self, factors: Sequence[tf.Tensor], inducing_outputs: Sequence[gpflow.Parameter]
    ) -> None:
        self._below = iter(zip(factors, inducing_outputs))

    def condition(
        self, layer: gd.layers.GPLayer, inputs: tf.Tensor, below: Conditional | None
    ) -> Conditional:
        factor, v = next(self._below)
        basis, variance, mean = layer.project(inputs, factor)  # a [S, N, M]
        mean += tf.einsum("snm,tm->snt", basis, v)
        variance -= tf.reduce_sum(tf.square(basis), axis=-1, keepdims=True)
        variance = tf.broadcast_to(tf.maximum(variance, 0.0), tf.shape(mean))
        self._conditional = Conditional(mean, variance)
        return self._conditional

    def sample(self, noise: tf.Tensor) -> tf.Tensor:
        return sample_gaussians(self._conditional, noise)


@gd.presets.register("point-estimate")
def point_estimate(
    X: np.ndarray, Y: np.ndarray, settings: gd.presets.Settings, seed: int
) -> PointEstimateDeepGP:
    """Inducing outputs without uncertainty."""
    layers = gd.layers.build_layers(
        X,
        hidden_dims=settings.hidden_dims(X.shape[1]),
        output_dim=Y.shape[1],
        num_inducing=settings.num_inducing,
        seed=seed,
    )
    likelihood = gpflow.likelihoods.Gaussian(settings.likelihood_variance)
    return PointEstimateDeepGP(layers, likelihood, num_data=len(X))
