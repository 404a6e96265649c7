"""Deep GPs with a structured Gaussian posterior, marginalised analytically."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, cast

import gpflow
import tensorflow as tf
from check_shapes import check_shapes
from gpflow.base import InputData, RegressionData, TensorType
from gpflow.likelihoods import Likelihood

from ..layers import GPLayer
from ..numerics.draws import standard_normals
from ..posteriors.base import (
    Conditional,
    InducingPosterior,
    Moments,
    Recursion,
    diagonal_blocks,
)
from ..posteriors.mean_field import MeanField
from ..posteriors.mixture import (
    Mixture,
    in_parts,
    independent_outputs,
    sample_joint_mixture,
    sample_mixture,
)
from ..posteriors.monte_carlo import MonteCarloRecursion
from ..posteriors.stripes_and_arrow import StripesAndArrow
from ..validation import check_noise
from .base import LayerOutput, SampledDeepGPModel

__all__ = ["DeepGP"]


class Prepared(NamedTuple):
    """All that a pass through the layers needs and that no input enters."""

    factors: list[tf.Tensor]  # per layer the Cholesky factor of K_MM
    moments: Moments  # of the inducing outputs


class DeepGP(SampledDeepGPModel):
    r"""
    A deep GP :math:`y \sim p(y | f^L), f^l = f_l(f^{l-1})` with a joint Gaussian posterior over the inducing
    outputs of all layers (Lindinger et al. 2020). Train it like GPflow's ``SVGP``, which it is with one
    layer.

    :param layers: the layers, input first; see :func:`gpflow_deep.layers.build_layers`.
    :param likelihood: any GPflow likelihood.
    :param posterior: the structure of the posterior: ``MeanField``, ``StripesAndArrow`` or
        ``FullyCoupled``, or an instance such as ``BlockStructured(layers, pattern)``.
    :param num_samples: draws of the hidden layers per point in training, S.
    :param num_data: size of the whole training set, for minibatches.
    :param marginalisation: "analytic" (Theorem 1), or "monte_carlo" to sample the inducing outputs in
        training: unbiased too, with noisier gradients. Predictions are analytic in any case.
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
        if marginalisation not in ("analytic", "monte_carlo"):
            raise ValueError(
                f"marginalisation: expected 'analytic' or 'monte_carlo', got {marginalisation!r}."
            )
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
        if covariance_jitter is None:
            covariance_jitter = gpflow.config.default_jitter()
        if not covariance_jitter >= 0:
            raise ValueError(f"covariance_jitter: expected at least 0, got {covariance_jitter}.")
        self.covariance_jitter = covariance_jitter

    # The objective.

    @tf.autograph.experimental.do_not_convert
    def maximum_log_likelihood_objective(
        self, data: RegressionData, noise: Sequence[TensorType] | None = None
    ) -> tf.Tensor:
        """
        What training maximises: the ELBO, or the predictive objective.

        :param noise: as for :meth:`elbo`.
        """
        return self._evaluate(data, noise, self.predictive_objective)

    @tf.autograph.experimental.do_not_convert
    @check_shapes(
        "return: []",
    )
    def elbo(self, data: RegressionData, noise: Sequence[TensorType] | None = None) -> tf.Tensor:
        r"""
        The evidence lower bound
        :math:`\tfrac{N}{|B|} \sum_n \tfrac1S \sum_s E[\log p(y_n | f^L_{ns})] - KL[q(v) \| p(v)]`.

        :param data: inputs [N, D] and targets [N, P].
        :param noise: the draws of :meth:`draw_noise`; drawn if not given. Fix them for a
            deterministic objective (``gpflow.optimizers.Scipy``).
        """
        return self._evaluate(data, noise, predictive=False)

    def _evaluate(
        self, data: RegressionData, noise: Sequence[TensorType] | None, predictive: bool
    ) -> tf.Tensor:
        X, Y = self._check_data(data)
        prepared = self._prepare()
        if noise is None:
            noise = self.draw_noise(tf.shape(X)[0])
        if self.sites is not None:
            noise = self._site_noise(noise)
        else:
            L, inducing = len(self.layers), self.marginalisation == "monte_carlo"
            # Draws of the output layer, as `propagate` takes them, may be there: they are not used.
            num_layers = L if len(noise) == (2 * L if inducing else L) else L - 1
            noise = check_noise(noise, self._noise_shapes(X, num_layers, inducing))
        *_, output = self._walk(X, noise, prepared, self._training_recursion(noise, prepared))
        return self._combine(X, Y, self._as_mixture(output), self._prior_kl(prepared), predictive)

    @tf.autograph.experimental.do_not_convert
    def prior_kl(self) -> tf.Tensor:
        """KL divergence of the posterior of the inducing outputs from their prior."""
        return self._prior_kl(self._prepare())

    def _training_shapes(
        self, num_samples: int | None, num_data: TensorType
    ) -> list[list[TensorType | None]]:
        shapes = [[num_samples, num_data, layer.num_latent_gps] for layer in self.layers[:-1]]
        if self.marginalisation == "monte_carlo":
            shapes += self._inducing_shapes(num_samples)
        return shapes

    def _prepare(self) -> Prepared:
        factors = [layer.factorise() for layer in self.layers]
        return Prepared(factors, self.inducing_posterior.moments(self._prior_factors(factors)))

    def _prior_factors(self, factors: Sequence[tf.Tensor]) -> list[tf.Tensor | None]:
        """The prior's Cholesky factors of the inducing outputs: none where they are whitened."""
        return [None if layer.whiten else f for layer, f in zip(self.layers, factors)]

    def _prior_kl(self, prepared: Prepared) -> tf.Tensor:
        return self.inducing_posterior.prior_kl(
            self._prior_factors(prepared.factors), prepared.moments
        )

    def _training_recursion(self, noise: Sequence[TensorType], prepared: Prepared) -> Recursion:
        if self.marginalisation == "monte_carlo":
            inducing_noise = noise[-len(self.layers) :]
            draws = self.inducing_posterior.sample(prepared.moments, inducing_noise)
            prior_factors = self._prior_factors(prepared.factors)
            return MonteCarloRecursion(draws, prior_factors, self.covariance_jitter)
        return self._recursion(prepared)

    def _recursion(self, prepared: Prepared) -> Recursion:
        return self.inducing_posterior.recursion(prepared.moments, self.covariance_jitter)

    def _walk(
        self,
        X: tf.Tensor,
        noise: Sequence[TensorType],
        prepared: Prepared,
        recursion: Recursion,
    ) -> list[tuple[tf.Tensor | None, Conditional]]:
        """
        Carry the inputs through the layers: project, condition, sample.

        :param X: inputs [N, D].
        :param noise: [S, N or 1, T_l] for as many layers as are to be sampled.
        :return: for each layer its draws [N, S, T_l] (``None`` where there was no noise) and conditional.
            Points lead inside: the S draws of a point share the projections of its input.
        """
        outputs: list[tuple[tf.Tensor | None, Conditional]] = []
        F = X[:, None, :]  # [N, 1, D]
        for index, (layer, factor) in enumerate(zip(self.layers, prepared.factors)):
            conditional = recursion.condition(layer.project(F, factor))
            sampled = index < len(self.layers) - 1 or len(noise) == len(self.layers)
            if sampled:
                F = recursion.sample(tf.transpose(noise[index], [1, 0, 2]))
            outputs.append((F if sampled else None, conditional))
        return outputs

    def _as_mixture(self, output: tuple[tf.Tensor | None, Conditional]) -> Mixture:
        _, (mean, covariance) = output
        variance = covariance if covariance.shape.rank == 3 else tf.linalg.diag_part(covariance)
        means, variances = (tf.transpose(x, [1, 0, 2]) for x in (mean, variance))
        return Mixture(means, variances, self._log_weights(tf.shape(means)[0]))

    @tf.autograph.experimental.do_not_convert
    @check_shapes(
        "X: [N, D]",
    )
    def propagate(
        self, X: InputData, noise: Sequence[TensorType] | None = None
    ) -> list[LayerOutput]:
        """
        Draws of every layer, with the conditionals that they come from.

        :param X: inputs.
        :param noise: standard normal draws, [S, N, T_l] for each layer; drawn if not given.
        """
        X = self._as_inputs(X, "X")
        if self.sites is not None:
            sites = self._site_noise(noise)
            S, width = self.sites.num_sites, self.num_latent_gps
            noise = [*sites, *standard_normals([[S, tf.shape(X)[0], width]])]
        elif noise is None:
            S = self.num_samples
            noise = standard_normals(
                [[S, tf.shape(X)[0], layer.num_latent_gps] for layer in self.layers]
            )
        else:
            noise = check_noise(noise, self._noise_shapes(X, len(self.layers)))
        prepared = self._prepare()
        outputs = self._walk(X, noise, prepared, self._recursion(prepared))
        S = tf.shape(noise[-1])[0]
        return [
            LayerOutput(*(_samples_first(x, S) for x in (sample, *conditional)))
            for sample, conditional in outputs
        ]

    # Predictions.

    def _mixture(self, Xnew: tf.Tensor, num_samples: int | None, prepared: Prepared) -> Mixture:
        noise = self._prediction_noise(num_samples)

        def part(X: tf.Tensor) -> tuple[tf.Tensor, ...]:
            *_, output = self._walk(X, noise, prepared, self._recursion(prepared))
            return self._as_mixture(output)[:2]

        S = noise[0].shape[0] if noise else 1
        means, variances = in_parts(part, Xnew, S)
        return Mixture(means, variances, self._log_weights(S))

    def _output_mixture(self, Xnew: tf.Tensor, prepared: Prepared) -> Mixture:
        noise = self._prediction_noise(None)

        def part(X: tf.Tensor) -> tuple[tf.Tensor, ...]:
            _, (mean, covariance) = self._walk(X, noise, prepared, self._recursion(prepared))[-1]
            if covariance.shape.rank == 3:
                covariance = tf.linalg.diag(covariance)
            return tf.transpose(mean, [1, 0, 2]), tf.transpose(covariance, [1, 0, 2, 3])

        S = noise[0].shape[0] if noise else 1
        means, variances = in_parts(part, Xnew, S)
        return Mixture(means, variances, self._log_weights(S))

    def _joint_mixture(self, Xnew: tf.Tensor, prepared: Prepared) -> Mixture:
        mean, A, covariance = self._joint_output(Xnew, prepared)
        own = diagonal_blocks(self.inducing_posterior.output_covariance(prepared.moments))
        covariance += tf.matmul(A, tf.matmul(own, A), transpose_a=True)
        return Mixture(mean, covariance, self._log_weights(mean.shape[0]))

    def _full_mixture(self, Xnew: tf.Tensor, prepared: Prepared) -> Mixture:
        own = self.inducing_posterior.output_covariance(prepared.moments)
        if own.shape.rank == 3:
            return super()._full_mixture(Xnew, prepared)
        mean, A, residual = self._joint_output(Xnew, prepared)
        A = tf.broadcast_to(A, [*mean.shape[:1], *own.shape[1:3], tf.shape(A)[-1]])
        covariance = independent_outputs(residual, mean.shape[-1])
        covariance += tf.einsum("spmi,pqmk,sqkj->sipjq", A, own, A)
        return Mixture(mean, covariance, self._log_weights(mean.shape[0]))

    def _joint_inputs(self, Xnew: tf.Tensor, prepared: Prepared) -> tuple[tf.Tensor, tf.Tensor]:
        """
        Coherent over all points, the output layer's inputs [S, N, T] and the mean [S, P, M] of its inducing
        outputs given what the layers below were made of.
        """
        if self.sites is not None:
            # Given a site the hidden layers are functions of the input: those of its path.
            noise = self._site_noise(None)
            F = Xnew[:, None, :]
            if len(self.layers) > 1:
                F, _ = self._walk(Xnew, noise, prepared, self._recursion(prepared))[-2]
            zeros = [tf.zeros(s, F.dtype) for s in self._inducing_shapes(F.shape[1])]
            mean = self.inducing_posterior.sample(prepared.moments, zeros)
            return tf.transpose(F, [1, 0, 2]), mean[-1]
        S = 1 if len(self.layers) == 1 else self.num_prediction_samples
        # Only the output layer is marginalised: given the other layers' inducing outputs its own have
        # the mean m + L e with no noise of its own.
        seeds = tf.random.experimental.stateless_split([self.seed, 0], 2)
        noise = standard_normals(self._inducing_shapes(S), seeds[0])
        noise[-1] = tf.zeros_like(noise[-1])
        draws = self.inducing_posterior.sample(prepared.moments, noise)
        return self._sample_joint(Xnew, draws[:-1], prepared.factors, seeds[1]), draws[-1]

    def _joint_output(
        self, Xnew: tf.Tensor, prepared: Prepared
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """The output layer over all points: mean [S, N, P], its basis and its residual covariance."""
        F, inducing_mean = self._joint_inputs(Xnew, prepared)
        A, covariance = self.layers[-1].joint_projection(F, prepared.factors[-1])
        mean = tf.matmul(inducing_mean[:, :, None, :], A)[:, :, 0, :]  # [S, P, N]
        return tf.linalg.matrix_transpose(mean) + self.layers[-1].mean_function(F), A, covariance

    def _sample_f(
        self, Xnew: tf.Tensor, num_samples: int, full_cov: bool, prepared: Prepared
    ) -> tf.Tensor:
        if self.sites is not None:
            if full_cov:
                return sample_joint_mixture(self._joint_mixture(Xnew, prepared), num_samples)
            return sample_mixture(self._mixture(Xnew, None, prepared), num_samples)
        if full_cov:
            noise = standard_normals(self._inducing_shapes(num_samples))
            draws = self.inducing_posterior.sample(prepared.moments, noise)
            return self._sample_joint(Xnew, draws, prepared.factors)

        def part(X: tf.Tensor) -> tuple[tf.Tensor, ...]:
            shapes = [[num_samples, tf.shape(X)[0], layer.num_latent_gps] for layer in self.layers]
            noise = standard_normals(shapes)
            sample, _ = self._walk(X, noise, prepared, self._recursion(prepared))[-1]
            return (_samples_first(sample, num_samples),)

        return in_parts(part, Xnew, num_samples)[0]

    def _inducing_shapes(self, num_samples: int | None) -> list[list[int | None]]:
        return [[num_samples, layer.num_latent_gps, layer.num_inducing] for layer in self.layers]

    def _noise_shapes(
        self, X: tf.Tensor, num_layers: int, inducing: bool = False
    ) -> list[list[int | None]]:
        shapes = [[None, X.shape[0], layer.num_latent_gps] for layer in self.layers[:num_layers]]
        return shapes + self._inducing_shapes(None) if inducing else shapes


def _samples_first(x: tf.Tensor, num_samples: TensorType) -> tf.Tensor:
    """[N, S or 1, ...] as [S, N, ...]."""
    x = tf.transpose(x, [1, 0, *range(2, x.shape.rank)])
    return tf.broadcast_to(x, tf.concat([[num_samples], tf.shape(x)[1:]], axis=0))


def _check_posterior(
    posterior: type[InducingPosterior] | InducingPosterior, layers: Sequence[GPLayer]
) -> InducingPosterior:
    without = [layer.name for layer in layers if layer.inducing_variable is None]
    if without:
        raise ValueError(
            f"layers: expected inducing variables in all of them, got none in {without}."
        )
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
