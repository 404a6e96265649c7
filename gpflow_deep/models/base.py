"""What the models of all families share: GPflow's training interface, and checks of the data."""

from __future__ import annotations

from collections.abc import Sequence

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.base import RegressionData, TensorType
from gpflow.likelihoods import Likelihood
from gpflow.models import BayesianModel, ExternalDataTrainingLossMixin, GPModel
from gpflow.posteriors import PrecomputeCacheType

from ..draws import standard_normals
from ..layers import GPLayer
from ..posteriors.predictive import DeepGPPosterior
from ..prediction import MixturePredictor
from ..validation import as_real_tensor, check_finite, check_positive_integer, check_targets

__all__ = ["DeepGPModel"]


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
    """

    def __init__(
        self,
        layers: Sequence[GPLayer],
        likelihood: Likelihood,
        *,
        num_samples: int,
        num_prediction_samples: int,
        num_data: int | None,
        seed: int,
        name: str | None = None,
    ) -> None:
        # GPModel's own constructor wants one kernel and one mean function.
        BayesianModel.__init__(self, name=name)  # type: ignore[call-arg]
        self.layers = _check_layers(layers)
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

    def posterior(
        self, precompute_cache: PrecomputeCacheType = PrecomputeCacheType.TENSOR
    ) -> DeepGPPosterior:
        """
        The predictive posterior, with all that does not depend on the inputs computed once: its
        predictions are the model's, and faster. After a change of the model call ``update_cache()``:
        until then, as with GPflow's posteriors, the old cache meets the new kernels.
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


def _check_layers(layers: Sequence[GPLayer]) -> list[GPLayer]:
    if (
        not isinstance(layers, Sequence)
        or not layers
        or not all(isinstance(layer, GPLayer) for layer in layers)
    ):
        raise TypeError(f"layers: expected a non-empty sequence of GPLayer, got {layers!r}.")
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
