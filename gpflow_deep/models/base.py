"""What the models of all families share: GPflow's training interface, and checks of the data."""

from __future__ import annotations

from collections.abc import Sequence

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.base import RegressionData
from gpflow.likelihoods import (
    Likelihood,
    MultiClass,
    ScalarLikelihood,
    Softmax,
    SwitchedLikelihood,
)
from gpflow.models import BayesianModel, ExternalDataTrainingLossMixin, GPModel

from ..layers import GPLayer
from ..prediction import MixturePredictor
from ..validation import check_positive_integer

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
        self.seed = seed

    def _check_data(self, data: RegressionData) -> RegressionData:
        """
        Inputs and targets in the types that the model takes, with shapes that fit it.

        :raises ValueError: where they do not, or a value is NaN or infinite, or no class.
        :raises tf.errors.InvalidArgumentError: for such values of tensors that are known only when a
            compiled function runs (compiled by XLA it has no such check).
        """
        if not isinstance(data, (tuple, list)) or len(data) != 2:
            raise TypeError(f"data: expected a pair (X, Y), got {type(data).__name__}.")
        X, Y = (_as_float_matrix(x, f"data[{i}]") for i, x in enumerate(data))
        if X.shape[0] is not None and Y.shape[0] is not None and X.shape[0] != Y.shape[0]:
            raise ValueError(
                f"data: expected as many inputs as targets, got {X.shape[0]} and {Y.shape[0]}."
            )
        input_dim = self.layers[0].input_dim
        if input_dim is not None and X.shape[1] != input_dim:
            raise ValueError(
                f"data[0]: expected [N, {input_dim}] like the first layer's inducing inputs, got"
                f" {X.shape}."
            )
        columns = _observation_dim(self.likelihood, self.num_latent_gps)
        if columns is not None and Y.shape[1] != columns:
            raise ValueError(
                f"data[1]: expected [N, {columns}] for {type(self.likelihood).__name__} of"
                f" {self.num_latent_gps} latent functions, got {Y.shape}."
            )
        if isinstance(self.likelihood, (Softmax, MultiClass)):
            _check_classes(data[1], self.num_latent_gps)
        return X, self._as_targets(Y)

    def _scale(self, batch_size: tf.Tensor) -> tf.Tensor:
        """By how much a batch's sum is to be multiplied to stand for all data."""
        float_type = gpflow.default_float()
        if self.num_data is None:
            return tf.ones([], float_type)
        return tf.cast(self.num_data, float_type) / tf.cast(batch_size, float_type)


def _as_float_matrix(x: object, name: str) -> tf.Tensor:
    tensor = tf.convert_to_tensor(x)
    if not (tensor.dtype.is_floating or tensor.dtype.is_integer or tensor.dtype.is_bool):
        raise TypeError(f"{name}: expected real numbers, got dtype {tensor.dtype.name}.")
    if tensor.shape.rank != 2:
        raise ValueError(f"{name}: expected a matrix, got shape {tensor.shape}.")
    known = tf.get_static_value(tensor)
    if known is not None and not np.isfinite(known).all():
        raise ValueError(f"{name}: expected finite values, got NaN or infinity.")
    tensor = tf.cast(tensor, gpflow.default_float())
    if known is None:
        tensor = tf.debugging.check_numerics(tensor, f"{name}: expected finite values")
    return tensor


def _check_classes(Y: object, num_classes: int) -> None:
    known = tf.get_static_value(tf.convert_to_tensor(Y))
    if known is None:
        return
    wrong = known[~np.isin(known, np.arange(num_classes))]
    if wrong.size:
        raise ValueError(
            f"data[1]: expected classes 0 to {num_classes - 1}, as many as the last layer has GPs, got"
            f" {wrong[0]:g}."
        )


def _observation_dim(likelihood: Likelihood, num_latent_gps: int) -> int | None:
    """How many columns the targets of a likelihood have, where it is known."""
    if isinstance(likelihood, SwitchedLikelihood):
        return num_latent_gps + 1  # the last one says which likelihood
    if isinstance(likelihood, ScalarLikelihood):
        return num_latent_gps
    if isinstance(likelihood, (Softmax, MultiClass)):
        return 1
    dim: int | None = likelihood.observation_dim
    return dim


def _check_layers(layers: Sequence[GPLayer]) -> list[GPLayer]:
    layers = list(layers)
    if not layers or not all(isinstance(layer, GPLayer) for layer in layers):
        raise TypeError(f"layers: expected a non-empty sequence of GPLayer, got {layers!r}.")
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
