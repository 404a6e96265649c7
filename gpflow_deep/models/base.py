"""What the models of all families share: GPflow's training interface, and checks of the data."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

import gpflow
import numpy as np
import tensorflow as tf
from check_shapes import check_shapes
from gpflow.base import InputData, RegressionData, TensorType
from gpflow.likelihoods import Likelihood
from gpflow.models import BayesianModel, ExternalDataTrainingLossMixin, GPModel
from gpflow.posteriors import PrecomputeCacheType

from ..layers import Layer
from ..numerics.draws import quasi_normals, standard_normals
from ..posteriors.mixture import Mixture, MixturePredictor, equal_log_weights
from ..posteriors.predictive import DeepGPPosterior
from ..validation import as_real_tensor, check_finite, check_positive_integer, check_targets
from .sites import QuadratureSites

__all__ = ["DeepGPModel", "LayerOutput", "SampledDeepGPModel"]


class LayerOutput(NamedTuple):
    """A layer's draws and the conditional they come from."""

    sample: tf.Tensor  # [S, N, T]
    mean: tf.Tensor  # [S, N, T]
    covariance: tf.Tensor  # [S, N, T, T], or its diagonal [S, N, T] where the rest is zero


class DeepGPModel(MixturePredictor, GPModel, ExternalDataTrainingLossMixin):
    """
    A model of layers of GPs with external data: GPflow's training interface over a mixture's predictions.

    :param layers: the layers, input first.
    :param likelihood: any GPflow likelihood.
    :param num_samples: draws per point in training.
    :param num_prediction_samples: components of the predicted mixture.
    :param num_data: size of the whole training set, for minibatches; as in SVGP, ``None`` means that
        every batch is all there is.
    :param seed: of the draws that predictions are made with.
    :param num_sites: number of learned sites, by which points travel through the layers; by default they
        are sampled.
    :param predictive_objective: train for the log density of the predictive mixture rather than for the
        evidence lower bound; a number is the weight of the KL divergence, beta.
    """

    layer_type: type[Layer] = Layer  # type: ignore[type-abstract]
    """The kind of layers that the model is made of."""

    def __init__(
        self,
        layers: Sequence[Layer],
        likelihood: Likelihood,
        *,
        num_samples: int,
        num_prediction_samples: int,
        num_data: int | None,
        seed: int,
        num_sites: int | None = None,
        predictive_objective: bool | float = False,
        name: str | None = None,
    ) -> None:
        # GPModel's own constructor wants one kernel and one mean function.
        BayesianModel.__init__(self, name=name)  # type: ignore[call-arg]
        self.layers = _check_layers(layers, self.layer_type)
        self.likelihood = _check_likelihood(likelihood, self.layers[-1].num_latent_gps)
        self.num_latent_gps = self.layers[-1].num_latent_gps
        self.num_samples = check_positive_integer(num_samples, "num_samples")
        self.num_prediction_samples = check_positive_integer(
            num_prediction_samples, "num_prediction_samples"
        )
        self.num_data = None if num_data is None else check_positive_integer(num_data, "num_data")
        if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or seed < 0:
            raise ValueError(f"seed: expected an integer of at least 0, got {seed!r}.")
        self.seed = int(seed)
        self.sites: QuadratureSites | None = None
        if num_sites is not None:
            widths = [layer.num_latent_gps for layer in self.layers[:-1]]
            self.sites = QuadratureSites(num_sites, widths, seed=self.seed)
        self.predictive_objective = predictive_objective is not False
        self.beta = float(predictive_objective) if self.predictive_objective else 1.0
        if not self.beta > 0:
            raise ValueError(
                f"predictive_objective: expected a bool or a positive weight of the KL divergence, got"
                f" {predictive_objective!r}."
            )

    @tf.autograph.experimental.do_not_convert
    @check_shapes(
        "X: [N, D]",
    )
    def sample_prior(
        self, X: InputData, num_samples: int = 1, seed: TensorType | None = None
    ) -> list[tf.Tensor]:
        """
        Draws of every layer from the prior, jointly over the points: what the model believes before it has
        seen targets, depth by depth.

        :param X: inputs.
        :param num_samples: number of draws, S.
        :param seed: ``None`` for new draws at each call, or two integers of which they are a pure function.
        :return: [S, N, T_l] for each layer.
        """
        X = self._as_inputs(X, "X")
        S = check_positive_integer(num_samples, "num_samples")
        F, draws = tf.broadcast_to(X, [S, *tf.unstack(tf.shape(X))]), []
        shapes = [[S, tf.shape(X)[0], layer.num_latent_gps] for layer in self.layers]
        for layer, noise in zip(self.layers, standard_normals(shapes, seed)):
            F = layer.sample_prior(F, noise)
            draws.append(F)
        return draws

    def posterior(
        self, precompute_cache: PrecomputeCacheType | None = PrecomputeCacheType.TENSOR
    ) -> DeepGPPosterior:
        """
        The predictive posterior, with all that does not depend on the inputs computed once: its
        predictions are the model's, and faster. After a change of the model call ``update_cache()``:
        until then, as with GPflow's posteriors, the old cache meets the new kernels.

        :param precompute_cache: see :class:`DeepGPPosterior`; ``None`` for no cache.
        """
        return DeepGPPosterior(self, precompute_cache)

    def _check_data(self, data: RegressionData) -> RegressionData:
        """
        Inputs and targets in the types that the model takes, with shapes that fit it.

        :raises ValueError: where they do not, or a value is NaN or infinite, or no class.
        :raises tf.errors.InvalidArgumentError: for such values of tensors that are known only when a
            compiled function runs (compiled by XLA it has no such check).
        """
        if not isinstance(data, (tuple, list)) or len(data) != 2:
            raise TypeError(f"data: expected a pair (X, Y), got {type(data).__name__}.")
        X, Y = (as_real_tensor(x, f"data[{i}]") for i, x in enumerate(data))
        for i, tensor in enumerate((X, Y)):
            if tensor.shape.rank != 2 or 0 in tensor.shape:
                raise ValueError(
                    f"data[{i}]: expected a non-empty matrix, got shape {tensor.shape}."
                )
        if X.shape[0] is not None and Y.shape[0] is not None and X.shape[0] != Y.shape[0]:
            raise ValueError(
                f"data: expected as many inputs as targets, got {X.shape[0]} and {Y.shape[0]}."
            )
        check_finite(Y, "data[1]")
        Y = check_targets(Y, self.likelihood, self.num_latent_gps, "data[1]")
        return self._as_inputs(check_finite(X, "data[0]"), "data[0]"), Y

    def _site_noise(self, noise: Sequence[TensorType] | None) -> list[tf.Tensor]:
        """The sites, [S, 1, T_l] for each hidden layer; there are no draws to be given."""
        if noise:
            raise ValueError(
                f"noise: expected none, as points travel by learned sites, got {len(noise)} tensors."
            )
        assert self.sites is not None
        return self.sites.noise()

    def _expected_log_likelihood(self, X: tf.Tensor, f: Mixture, Y: tf.Tensor) -> tf.Tensor:
        """Weighted average of the expected log-likelihood of each observation, [N]."""
        expectations = self._through_likelihood(
            self.likelihood.variational_expectations, X, f, Y
        )  # [S, N]
        return tf.linalg.matvec(expectations, tf.exp(f.log_weights), transpose_a=True)

    def _combine(
        self, X: tf.Tensor, Y: tf.Tensor, f: Mixture, kl: tf.Tensor, predictive: bool
    ) -> tf.Tensor:
        """The ELBO, or the predictive objective, of a batch and its model's KL divergence."""
        fit = self._log_density if predictive else self._expected_log_likelihood
        weight = self.beta if predictive else 1.0
        return tf.reduce_sum(fit(X, f, Y)) * self._scale(tf.shape(X)[0]) - weight * kl

    def _log_weights(self, num_samples: TensorType) -> tf.Tensor:
        """Of the components of a mixture."""
        if self.sites is None:
            return equal_log_weights(num_samples)
        return self.sites.log_weights()

    def _prediction_noise(self, num_samples: int | None) -> list[TensorType]:
        """
        Sites or draws [S, 1, T_l] for each hidden layer, the same for all points: each point's mixture is as
        good as with draws of its own, and a prediction does not depend on the points beside it.
        """
        S = self.num_prediction_samples
        if num_samples is not None:
            S = check_positive_integer(num_samples, "num_samples")
        if self.sites is not None:
            return self.sites.noise()
        widths = [layer.num_latent_gps for layer in self.layers[:-1]]
        return [z[:, None, :] for z in quasi_normals(S, widths, self.seed)] if widths else []

    def _scale(self, batch_size: tf.Tensor) -> tf.Tensor:
        """By how much a batch's sum is to be multiplied to stand for all data."""
        float_type = gpflow.default_float()
        if self.num_data is None:
            return tf.ones([], float_type)
        return tf.cast(self.num_data, float_type) / tf.cast(batch_size, float_type)

    def _sample_joint(
        self,
        X: tf.Tensor,
        inducing_outputs: Sequence[tf.Tensor],
        factors: Sequence[tf.Tensor],
        seed: TensorType | None = None,
    ) -> tf.Tensor:
        """
        Coherent draws [S, N, T_l] of the functions of the layers whose inducing outputs are given.

        :param X: [N, D].
        :param inducing_outputs: per layer [S, T, M].
        :param factors: of all layers, what :meth:`GPLayer.factorise` returned.
        """
        shapes = [[*v.shape[:2], tf.shape(X)[0], 1] for v in inducing_outputs]
        noise = standard_normals(shapes, seed)
        S = inducing_outputs[0].shape[0] if inducing_outputs else 1
        F = tf.broadcast_to(X, [S, *tf.unstack(tf.shape(X))])
        for index, (v, z) in enumerate(zip(inducing_outputs, noise)):
            mean, scale = self.layers[index].joint_conditional(F, factors[index], v)
            F = mean + tf.linalg.matrix_transpose(tf.matmul(scale, z)[..., 0])
        return F


class SampledDeepGPModel(DeepGPModel):
    """A deep GP whose objective takes standard normal draws, unless its points travel by sites."""

    @abstractmethod
    def _training_shapes(
        self, num_samples: int | None, num_data: TensorType
    ) -> list[list[TensorType | None]]:
        """Of the draws that one evaluation of the objective takes."""

    @tf.autograph.experimental.do_not_convert
    def draw_noise(
        self,
        num_data: TensorType,
        num_samples: int | None = None,
        seed: TensorType | None = None,
    ) -> list[tf.Tensor]:
        """
        The standard normal draws that one evaluation of the objective takes.

        :param num_data: number of points N of the batch.
        :param num_samples: S; the model's own by default.
        :param seed: ``None`` for TensorFlow's global generator, or two integers of which the draws are
            a pure function.
        :return: [S, N, T_l] for each layer that training samples: the hidden ones, and the last one where a
            global inducing model does not integrate it out. Then, where training samples inducing outputs
            too, [S, T_l, M_l]: for each layer (``marginalisation="monte_carlo"``), or for each sampled layer
            of a global inducing model, once or, for pseudo-observations, twice (of the prior and of the
            pseudo-noise). None where points travel by sites.
        """
        if self.sites is not None:
            return []
        S = self.num_samples
        if num_samples is not None:
            S = check_positive_integer(num_samples, "num_samples")
        return standard_normals(self._training_shapes(S, num_data), seed)


def _check_layers(layers: Sequence[Layer], kind: type[Layer]) -> list[Layer]:
    if (
        not isinstance(layers, Sequence)
        or not layers
        or not all(isinstance(layer, kind) for layer in layers)
    ):
        raise TypeError(
            f"layers: expected a non-empty sequence of {kind.__name__}, got {layers!r}."
        )
    layers = list(layers)
    for index, (below, above) in enumerate(zip(layers, layers[1:]), start=1):
        if above.input_dim not in (None, below.num_latent_gps):
            raise ValueError(
                f"layers: layer {index} has inducing inputs of dimension {above.input_dim}, expected"
                f" {below.num_latent_gps}, the number of GPs of layer {index - 1}."
            )
    return layers


def _check_likelihood(likelihood: Likelihood, num_latent_gps: int) -> Likelihood:
    if not isinstance(likelihood, Likelihood):
        raise TypeError(f"likelihood: expected a GPflow likelihood, got {likelihood!r}.")
    if likelihood.latent_dim not in (None, num_latent_gps):
        raise ValueError(
            f"likelihood: {type(likelihood).__name__} takes {likelihood.latent_dim} latent functions,"
            f" the last layer has {num_latent_gps}."
        )
    return likelihood
