"""Deep GPs with a structured Gaussian posterior, marginalised analytically."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.base import InputData, Parameter, TensorType
from gpflow.likelihoods import Likelihood

from ..kernels.methods import has_methods_of
from ..layers import GPLayer, Layer
from ..layers.gp_layer import check_inducing_variables
from ..numerics.draws import standard_normals
from ..numerics.linalg import cast_all, in_sets, solve_rows
from ..posteriors.base import InducingPosterior, Moments, Recursion
from ..posteriors.block_structured import BlockStructured
from ..posteriors.explained import Explained, explain_by_outputs
from ..posteriors.mean_field import MeanField, direct_moments
from ..posteriors.monte_carlo import MonteCarloRecursion
from ..posteriors.stripes_and_arrow import StripesAndArrow
from ..validation import check_choice, check_finite
from .functions import DrawnFunctions, through_own_points
from .passage import JointPassage, MarginalPassage, Passage, PassageChain
from .variational import VariationalDeepGPModel

__all__ = ["DeepGP"]


class Prepared(NamedTuple):
    """All that a pass through the layers needs and that no input enters."""

    factors: list[tf.Tensor]  # per layer the Cholesky factor of K_MM
    moments: Moments  # of the inducing outputs
    draws: Sequence[tf.Tensor]  # per layer v [S, T, M], where they are sampled instead

    def cast(self, dtype: str) -> Prepared:
        """What a pass of points needs of it, in another dtype."""
        moments = self.moments._replace(layers=cast_all(self.moments.layers, dtype))
        return Prepared(cast_all(self.factors, dtype), moments, cast_all(self.draws, dtype))


class DeepGP(VariationalDeepGPModel):
    r"""
    A deep GP :math:`y \sim p(y | f^L), f^l = f_l(f^{l-1})` with a joint Gaussian posterior over the inducing
    outputs of all layers (Lindinger et al. 2020). Train it like GPflow's ``SVGP``, which it is with one
    layer.

    >>> layers = gd.layers.build_layers(X, hidden_dims=(2,), num_inducing=5)
    >>> model = gd.models.DeepGP(layers, gpflow.likelihoods.Gaussian(0.01), num_data=len(X))
    >>> result = gd.training.fit(model, (X, Y), steps=2, progress=False)
    >>> mean, variance = model.predict_y(X)
    >>> mean.shape, variance.shape
    (TensorShape([20, 1]), TensorShape([20, 1]))

    :param layers: the layers, input first; see :func:`gpflow_deep.layers.build_layers`.
    :param likelihood: any GPflow likelihood.
    :param posterior: the structure of the posterior: ``MeanField``, ``StripesAndArrow`` or
        ``FullyCoupled``, or an instance such as ``BlockStructured(layers, pattern)``.
    :param num_samples: draws of the hidden layers per point in training, S.
    :param num_data: size of the whole training set, for minibatches.
    :param marginalisation: "analytic" (Theorem 1), or "monte_carlo" to sample the inducing outputs in
        training: unbiased too, with noisier gradients. Predictions are analytic in any case.
    :param compute_dtype: of training's products over the batch's points, and of the covariances of whitened
        inducing outputs, "float32" or "float64": GPflow's default float by default. With "float32", under
        GPflow's float64, parameters, their gradients, factorisations, the likelihood and predictions keep
        their digits, and a step takes half the time (mixed precision). Where inducing points are many for
        the length scale and the noise is small, the bound does not keep them: see :doc:`/speed`.
    :param covariance_jitter: added to the variance of a layer's draws, J; GPflow's default jitter.
    :param num_prediction_samples: components of the predicted mixture.
    :param seed: of the draws that predictions are made with.
    :param num_sites: number of learned sites, by which points travel through the layers instead of being
        sampled; for ``MeanField`` (see :class:`DeepSigmaPointProcess`).
    :param predictive_objective: train for the log density of the predictive mixture rather than for the
        ELBO; a number is the weight of the KL divergence, beta.
    :raises ValueError: where layers, likelihood and posterior do not fit each other.
    """

    layer_type = GPLayer
    layers: list[GPLayer]

    def __init__(
        self,
        layers: Sequence[GPLayer],
        likelihood: Likelihood,
        posterior: type[InducingPosterior] | InducingPosterior = StripesAndArrow,
        *,
        num_samples: int = 5,
        num_data: int | None = None,
        marginalisation: str = "analytic",
        compute_dtype: str | None = None,
        covariance_jitter: float | None = None,
        num_prediction_samples: int = 100,
        seed: int = 0,
        num_sites: int | None = None,
        predictive_objective: bool | float = False,
        name: str | None = None,
    ) -> None:
        super().__init__(
            layers,
            likelihood,
            num_samples=num_samples,
            num_prediction_samples=num_prediction_samples,
            num_data=num_data,
            seed=seed,
            num_sites=num_sites,
            predictive_objective=predictive_objective,
            name=name,
        )
        self.inducing_posterior = _check_posterior(posterior, self.layers)
        check_choice(marginalisation, "marginalisation", ("analytic", "monte_carlo"))
        if num_sites is not None and marginalisation != "analytic":
            raise ValueError(
                f"marginalisation: expected 'analytic' with sites, got {marginalisation!r}."
            )
        if num_sites is not None and not isinstance(self.inducing_posterior, MeanField):
            raise ValueError(
                "posterior: expected MeanField with sites, which stand for independent draws, got"
                f" {type(self.inducing_posterior).__name__}."
            )
        self.marginalisation = marginalisation
        if compute_dtype is None:
            compute_dtype = gpflow.default_float().__name__
        self.compute_dtype = check_choice(compute_dtype, "compute_dtype", ("float32", "float64"))
        if covariance_jitter is None:
            covariance_jitter = gpflow.config.default_jitter()
        self.covariance_jitter = covariance_jitter
        self._name_parts()

    @property
    def _draws_can_be_learned(self) -> bool:  # type: ignore[override]
        return len(self.layers) > 1 and self.sites is None

    @property
    def _settings_of_predictions(self) -> tuple[Any, ...]:  # type: ignore[override]
        own = self.covariance_jitter, self._prediction_dtype
        return (*super()._settings_of_predictions, *own)

    @property
    def variational_params(self) -> list[tuple[Parameter, Parameter]]:
        """The (q_mu, q_sqrt) pairs of the posterior that ``gpflow.optimizers.NaturalGradient`` takes."""
        return self.inducing_posterior.variational_params

    @tf.autograph.experimental.do_not_convert
    def prior_kl(self) -> tf.Tensor:
        """KL divergence of the posterior of the inducing outputs from their prior."""
        return self._divergence(self._prepare())

    # What is prepared, and the passage.

    def _prepare(
        self, noise: Sequence[tf.Tensor] = (), compute_dtype: str | None = None
    ) -> Prepared:
        factors = [layer.factorise() for layer in self.layers]
        priors = self._prior_factors(factors)
        moments = self.inducing_posterior.moments(priors, compute_dtype or self._prediction_dtype)
        draws = self.inducing_posterior.sample(moments, noise) if noise else ()
        return Prepared(factors, moments, draws)

    def _prepare_training(self, noise: Sequence[tf.Tensor]) -> Prepared:
        return self._prepare(noise, self.compute_dtype)

    def _divergence(self, prepared: Prepared, passage: Passage | None = None) -> tf.Tensor:
        factors = self._prior_factors(prepared.factors)
        return self.inducing_posterior.prior_kl(factors, prepared.moments)

    def _prior_factors(self, factors: Sequence[tf.Tensor]) -> list[tf.Tensor | None]:
        """The prior's Cholesky factors of the inducing outputs: none where they are whitened."""
        return [None if layer.whiten else f for layer, f in zip(self.layers, factors)]

    def _as_inputs(self, X: InputData, name: str = "Xnew") -> tf.Tensor:
        X = super()._as_inputs(X, name)
        # Covariances of all points' hidden layers are factorised at once: one without a value would spoil the
        # others.
        is_coupled = len(self.layers) > 1 and isinstance(self.inducing_posterior, BlockStructured)
        return check_finite(X, name) if is_coupled else X

    def _sample_point_by_point(self, X: tf.Tensor, num_samples: int, prepared: Any) -> tf.Tensor:
        if not isinstance(self.inducing_posterior, MeanField):
            # To draw, covariances of all points are factorised at once, whatever the structure.
            X = check_finite(X, "Xnew")
        return super()._sample_point_by_point(X, num_samples, prepared)

    def _passage(self, prepared: Prepared, full_output_cov: bool = False) -> Passage:
        del full_output_cov
        return self._passage_in(self._prediction_dtype, prepared)

    def _training_passage(
        self, prepared: Prepared, X: tf.Tensor, Y: tf.Tensor, is_new: bool
    ) -> Passage:
        del Y, is_new
        return self._passage_in(self.compute_dtype, self._without_solves(prepared, X.shape[0]))

    def _without_solves(self, prepared: Prepared, num_data: int | None) -> Prepared:
        """
        With :func:`direct_moments` of the mean-field posterior in those layers above the first whose points
        take longer to solve for: in float64, as float32 leaves them no digits.
        """
        sites = self.num_samples if self.sites is None else self.sites.num_sites
        if (
            type(self.inducing_posterior) is not MeanField
            or prepared.draws
            or self.compute_dtype != "float64"
            or num_data is None
        ):
            return prepared
        prepared = prepared.cast(self.compute_dtype)
        moments, factors = list(prepared.moments.layers), list(prepared.factors)
        for index, layer in enumerate(self.layers):
            columns = 4 * layer.num_latent_gps * layer.num_inducing
            is_own = has_methods_of(layer, GPLayer, "project")
            if index and layer.whiten and is_own and columns <= sites * num_data:
                moments[index] = direct_moments(moments[index], factors[index])
                factors[index] = None
        return Prepared(factors, prepared.moments._replace(layers=moments), prepared.draws)

    @property
    def _prediction_dtype(self) -> str:
        """
        Not below the parameters': a variance that the data leave is what the prior's and that of the inducing
        outputs differ by, and of no digits in float32 where there are many inducing points.
        """
        return "float64" if gpflow.default_float() == np.float64 else self.compute_dtype

    def _passage_in(self, dtype: str, prepared: Prepared) -> Passage:
        recursion: Recursion
        prepared = prepared.cast(dtype)
        if prepared.draws:
            factors = self._prior_factors(prepared.factors)
            recursion = MonteCarloRecursion(prepared.draws, factors, self.covariance_jitter)
        else:
            moments, jitter = prepared.moments, self.covariance_jitter
            recursion = self.inducing_posterior.recursion(moments, jitter)
        return MarginalPassage(prepared.factors, recursion, dtype)

    def _inducing_shapes(
        self, num_samples: TensorType | None, num_layers: int, training: bool
    ) -> list[list[TensorType | None]]:
        if not training or self.marginalisation == "analytic":
            return []
        return self._all_inducing_shapes(num_samples)

    def _all_inducing_shapes(self, num_samples: TensorType | None) -> list[list[TensorType | None]]:
        return [[num_samples, layer.num_latent_gps, layer.num_inducing] for layer in self.layers]

    # Whole functions.

    def _joint_passage(
        self,
        prepared: Prepared,
        num_samples: int,
        seed: TensorType | None,
        marginal: bool,
        full_output_cov: bool = False,
    ) -> Passage:
        hidden = len(self.layers) - 1
        num_samples = 1 if self.sites is not None else num_samples
        noise = standard_normals(self._all_inducing_shapes(num_samples), seed)
        if marginal:
            # Given the other layers' inducing outputs those of the last one have the mean m + L e with no
            # noise of their own.
            noise[-1] = tf.zeros_like(noise[-1])
        if self.sites is not None:
            # Given a site the hidden layers are functions of the input, independent of the last one.
            noise = [tf.zeros_like(z) for z in noise]
        draws = self.inducing_posterior.sample(prepared.moments, noise)
        own = self.inducing_posterior.output_factor(prepared.moments) if marginal else None

        def explain(index: int, layer: Layer, inputs: tf.Tensor) -> Explained:
            index = max(index, hidden) if self.sites is not None else index
            factor = prepared.factors[index]
            output_factor = own if index == hidden else None
            return explain_by_outputs(layer, inputs, factor, draws[index], output_factor)

        passage = JointPassage(explain, full_output_cov=full_output_cov)
        if self.sites is None:
            return passage
        return PassageChain([(self._passage(prepared), hidden), (passage, 1)])

    def _draw_layer_functions(
        self, num_samples: int, seed: tf.Tensor, num_features: int
    ) -> DrawnFunctions:
        if self.sites is not None:
            return super()._draw_layer_functions(num_samples, seed, num_features)
        prepared, own = self._prepare(), tf.random.experimental.stateless_split(seed, 2)
        noise = standard_normals(self._all_inducing_shapes(num_samples), own[0])
        draws = self.inducing_posterior.sample(prepared.moments, noise)
        whitened = [
            v if layer.whiten else solve_rows(in_sets(factor), v)
            for layer, factor, v in zip(self.layers, prepared.factors, draws)
        ]
        return through_own_points(self.layers, prepared.factors, whitened, own[1], num_features)

    def _joint_noise(
        self, X: tf.Tensor, num_samples: int, num_layers: int, seed: TensorType | None = None
    ) -> list[TensorType]:
        if self.sites is not None:
            return self.sites.noise()
        return super()._joint_noise(X, num_samples, num_layers, seed)


def _check_posterior(
    posterior: type[InducingPosterior] | InducingPosterior, layers: Sequence[GPLayer]
) -> InducingPosterior:
    check_inducing_variables(layers)
    if isinstance(posterior, type) and issubclass(posterior, InducingPosterior):
        posterior = posterior(layers)
    if not isinstance(posterior, InducingPosterior):
        raise TypeError(
            "posterior: expected MeanField, FullyCoupled, StripesAndArrow, or an instance such as"
            f" BlockStructured(layers, pattern), got {posterior!r}."
        )
    instance = cast(InducingPosterior, posterior)
    sizes = [(layer.num_latent_gps, layer.num_inducing) for layer in layers]
    own_sizes = list(zip(instance.num_latent_gps, instance.num_inducing))
    if own_sizes != sizes:
        raise ValueError(
            "posterior: expected one over these layers, of (num_latent_gps, num_inducing) ="
            f" {sizes}, got one of {own_sizes}."
        )
    return instance
