"""What the models of all families share: GPflow's training interface, and checks of the data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.base import RegressionData, TensorType
from gpflow.likelihoods import Likelihood
from gpflow.models import BayesianModel, ExternalDataTrainingLossMixin, GPModel
from gpflow.posteriors import PrecomputeCacheType

from ..draws import quasi_normals
from ..layers import GPLayer
from ..posteriors.predictive import DeepGPPosterior
from ..prediction import MixturePredictor
from ..validation import as_real_tensor, check_finite, check_positive_integer, check_targets

__all__ = ["DeepGPModel", "LayerOutput", "check_noise", "equal_log_weights"]


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

    def posterior(
        self, precompute_cache: PrecomputeCacheType = PrecomputeCacheType.TENSOR
    ) -> DeepGPPosterior:
        """
        The predictive posterior, with all that does not depend on the inputs computed once: its
        predictions are the model's, and faster. After a change of the model call ``update_cache()``:
        until then, as with GPflow's posteriors, the old cache meets the new kernels.
        """
        return DeepGPPosterior(self, precompute_cache)

    def _prediction_noise(self, num_samples: int | None) -> list[np.ndarray]:
        """
        Draws [S, 1, T_l] for each hidden layer, the same for all points: each point's mixture is as good
        as with draws of its own, and a prediction does not depend on the points beside it.
        """
        S = self.num_prediction_samples
        if num_samples is not None:
            S = check_positive_integer(num_samples, "num_samples")
        widths = [layer.num_latent_gps for layer in self.layers[:-1]]
        return [z[:, None, :] for z in quasi_normals(S, widths, self.seed)] if widths else []


def check_noise(
    noise: Sequence[TensorType], shapes: Sequence[Sequence[int | None]]
) -> list[tf.Tensor]:
    """
    Given draws in the default float.

    :param shapes: what is expected, as far as it is known by now: [S, ...] with one S for all.
    :raises ValueError: where the draws have other shapes.
    """
    noise = [tf.cast(z, gpflow.default_float()) for z in noise]
    sizes = {z.shape[0] for z in noise if z.shape.rank} - {None}
    fit = [z.shape.is_compatible_with(shape) for z, shape in zip(noise, shapes)]
    if len(noise) != len(shapes) or len(sizes) > 1 or not all(fit):
        expected = ", ".join(f"[S, {shape[1]}, {shape[2]}]" for shape in shapes)
        got = ", ".join(str(z.shape) for z in noise)
        raise ValueError(f"noise: expected tensors of shapes {expected}, got {got or 'none'}.")
    return noise


def equal_log_weights(num_samples: TensorType) -> tf.Tensor:
    """Log weights [S] of a mixture of equally probable components."""
    size = tf.cast(num_samples, gpflow.default_float())
    return tf.fill([num_samples], -tf.math.log(size))


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
