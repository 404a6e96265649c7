"""Deep GPs whose points have latent variables beside their inputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf
from gpflow.base import InputData, TensorType
from gpflow.likelihoods import Likelihood

from ..layers import GPLayer
from ..likelihoods import variational_expectations
from ..posteriors.base import InducingPosterior
from ..posteriors.latent_variables import EncodedLatents, LatentPosterior
from ..posteriors.mean_field import MeanField
from ..posteriors.mixture import Mixture, Noise
from ..validation import as_real_tensor, check_positive_integer, observation_dim
from .base import DeepGPModel
from .deep_gp import DeepGP, Prepared
from .functions import DrawnFunctions
from .importance import AppendedLatents, ImportanceLatents, LatentPassage, SharedFunctions
from .passage import Passage, PassageChain

__all__ = ["LatentVariableDeepGP"]


class LatentVariableDeepGP(DeepGP):
    r"""
    A deep GP of inputs and latent variables, :math:`y_n \sim p(y_n | f(x_n, w_n)), w_n \sim N(0, I)`
    (Salimbeni, Dutordoir, Hensman & Deisenroth 2019): given the input its outputs need not be Gaussian, but
    may be skewed, or have several modes, or a noise that changes. Trained by an importance-weighted bound,

    .. math::
        \sum_n E_{f, w_1 \dots w_K} \log \tfrac1K \sum_k \exp(E[\log p(y_n | f^L_{nk})])
        \frac{p(w_k)}{q(w_k | x_n, y_n)} - KL

    with functions f of the hidden layers that the K samples of a point share. The last layer is integrated
    out in the sum.

    >>> layers = gd.layers.build_layers(X, hidden_dims=(2,), num_inducing=5, latent_dim=1)
    >>> model = gd.models.LatentVariableDeepGP(layers, gpflow.likelihoods.Gaussian(0.1), num_data=len(X))
    >>> model.predict_y_mixture(X).means.shape  # of the latent variables, and the hidden layer, too
    TensorShape([100, 20, 1])

    Draws, ``noise``, begin with those of the latent variables, [S, N, W], in training as in predictions; in
    training S is ``num_samples`` times ``num_importance_samples``, those of one draw one after another.

    :param layers: the layers, the first of D + W inputs: see ``latent_dim`` of
        :func:`gpflow_deep.layers.build_layers`.
    :param likelihood: any GPflow likelihood.
    :param latents: q(w_n): a :class:`~gpflow_deep.posteriors.LatentPosterior`, or W for an
        :class:`~gpflow_deep.posteriors.EncodedLatents` of so many.
    :param posterior: of the inducing outputs. Other than ``MeanField`` only with one importance sample.
    :param num_importance_samples: K; 1 for the plain bound. More are a tighter bound, for K times the work.
    :param num_samples: draws of the hidden layers in training, S, with K importance samples each.
    :param num_data: size of the whole training set, for minibatches.
    :param num_prediction_samples: components of the predicted mixture: draws of the latent variables from
        their prior, and of the hidden layers.
    :param settings: ``compute_dtype``, ``covariance_jitter``, ``seed`` and ``name``, as of
        :class:`DeepGP`.
    :raises ValueError: where layers, likelihood, latents and posterior do not fit each other.
    """

    def __init__(
        self,
        layers: Sequence[GPLayer],
        likelihood: Likelihood,
        latents: LatentPosterior | int = 1,
        posterior: type[InducingPosterior] | InducingPosterior = MeanField,
        *,
        num_importance_samples: int = 5,
        num_samples: int = 1,
        num_data: int | None = None,
        num_prediction_samples: int = 100,
        compute_dtype: str | None = None,
        covariance_jitter: float | None = None,
        seed: int = 0,
        name: str | None = None,
    ) -> None:
        super().__init__(
            layers,
            likelihood,
            posterior,
            num_samples=num_samples,
            num_data=num_data,
            num_prediction_samples=num_prediction_samples,
            compute_dtype=compute_dtype,
            covariance_jitter=covariance_jitter,
            seed=seed,
            name=name,
        )
        self.num_importance_samples = check_positive_integer(
            num_importance_samples, "num_importance_samples"
        )
        mean_field = isinstance(self.inducing_posterior, MeanField)
        if self.num_importance_samples > 1 and not mean_field:
            raise ValueError(
                "posterior: expected MeanField with several importance samples, got"
                f" {type(self.inducing_posterior).__name__}; others go with num_importance_samples=1."
            )
        self.latents = self._check_latents(latents)
        self._name_parts()

    def _check_latents(self, latents: LatentPosterior | int) -> LatentPosterior:
        inputs = self.layers[0].input_dim
        if isinstance(latents, LatentPosterior):
            W = latents.latent_dim
        else:
            W = check_positive_integer(latents, "latents")
        if inputs is not None and inputs <= W:
            raise ValueError(
                f"layers: expected a first layer of the inputs and {W} latent variables, got one of {inputs}"
                " inputs; see latent_dim of gpflow_deep.layers.build_layers."
            )
        if isinstance(latents, EncodedLatents) and inputs not in (None, latents.input_dim + W):
            raise ValueError(
                f"latents: expected an encoder of {inputs - W} inputs, as the first layer has beside"
                f" {W} latent variables, got input_dim={latents.input_dim}."
            )
        if isinstance(latents, LatentPosterior):
            return latents
        if inputs is None:
            raise ValueError(
                "latents: expected a LatentPosterior, as the first layer does not tell the number of inputs,"
                f" got {latents!r}."
            )
        columns = observation_dim(self.likelihood, self._output_dim) or self._output_dim
        return EncodedLatents(inputs - W, columns, W, seed=self.seed)

    # What the walk through the layers begins with.

    @property
    def _random_layers(self) -> Sequence[Any]:
        return [AppendedLatents(self.latents.latent_dim), *self.layers]

    @property
    def _input_dim(self) -> int | None:
        inputs = self.layers[0].input_dim
        return None if inputs is None else inputs - self.latents.latent_dim

    def _as_inputs(self, X: InputData, name: str = "Xnew") -> tf.Tensor:
        shape, D = as_real_tensor(X, name).shape, self._input_dim
        if D is not None and shape.rank and shape[-1] not in (None, D):
            raise ValueError(
                f"{name}: expected [..., {D}], as the first layer is of so many inputs and"
                f" {self.latents.latent_dim} latent variables, got {shape}; see latent_dim of"
                " gpflow_deep.layers.build_layers."
            )
        return super()._as_inputs(X, name)

    @property
    def _draws_can_be_learned(self) -> bool:  # type: ignore[override]
        return True

    def _passage(self, prepared: Prepared, full_output_cov: bool = False) -> Passage:
        return self._after_latents(super()._passage(prepared, full_output_cov))

    def _joint_passage(
        self,
        prepared: Prepared,
        num_samples: int,
        seed: TensorType | None,
        marginal: bool,
        full_output_cov: bool = False,
    ) -> Passage:
        functions = super()._joint_passage(prepared, num_samples, seed, marginal, full_output_cov)
        return self._after_latents(functions)

    def _after_latents(
        self, functions: Passage, latents: LatentPassage | None = None
    ) -> PassageChain:
        latents = latents or LatentPassage(self.latents.latent_dim)
        return PassageChain([(latents, 1), (functions, len(self.layers))])

    # The objective.

    @property
    def _num_training_draws(self) -> int:
        return self.num_samples * self.num_importance_samples

    def _noise(
        self,
        noise: Noise,
        num_data: TensorType,
        num_layers: int,
        training: bool = False,
    ) -> tuple[list[TensorType], list[TensorType]]:
        points, inducing = super()._noise(noise, num_data, num_layers, training)
        S, K = points[0].shape[0], self.num_importance_samples
        if training and S is not None and S % K:
            raise ValueError(
                f"noise: expected {K} importance samples of each draw, a multiple of {K} in all, got {S}."
            )
        return points, inducing

    def _training_passage(
        self, prepared: Prepared, X: tf.Tensor, Y: tf.Tensor, is_new: bool
    ) -> Passage:
        K = self.num_importance_samples
        latents = ImportanceLatents(
            self.latents.condition(X, Y), self.latents.latent_dim, K, is_new
        )
        functions = (
            super()._training_passage(prepared, X, Y, is_new)
            if K == 1
            else SharedFunctions(
                prepared.factors,
                prepared.cast(self.compute_dtype).moments,
                K,
                self.covariance_jitter,
                self.compute_dtype,
                is_new,
            )
        )
        return self._after_latents(functions, latents)

    def _fit(
        self, passage: Any, X: tf.Tensor, f: Mixture, Y: tf.Tensor, predictive: bool
    ) -> tf.Tensor:
        del predictive
        expectations = self._through_likelihood(variational_expectations, X, f, Y)  # [S K, N]
        return passage.passages[0].log_average(expectations)

    def _draw_layer_functions(
        self, num_samples: int, seed: tf.Tensor, num_features: int
    ) -> DrawnFunctions:
        return DeepGPModel._draw_layer_functions(self, num_samples, seed, num_features)
