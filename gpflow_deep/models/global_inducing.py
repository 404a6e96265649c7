"""Deep GPs whose inducing inputs are propagated through the layers (Ober & Aitchison 2021)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import gpflow
import tensorflow as tf
from check_shapes import check_shapes
from gpflow.base import InputData, RegressionData, TensorType
from gpflow.likelihoods import Likelihood

from ..layers import GPLayer
from ..numerics.draws import standard_normals
from ..numerics.linalg import rows_times
from ..posteriors.layerwise import Explained
from ..posteriors.mixture import Mixture, equal_log_weights, in_parts
from ..posteriors.pseudo_observations import PseudoObservations
from ..validation import check_noise, check_positive_integer
from .base import LayerOutput, SampledDeepGPModel
from .global_inducing_parts import (
    LayerPosteriors,
    build_posteriors,
    inducing_points,
    place_inducing_inputs,
)

__all__ = ["GlobalInducingDeepGP"]

_ESTIMATORS = ("marginal", "analytic_kl", "monte_carlo")


class Chain(NamedTuple):
    """The inducing points on their way through the layers: all that no other input enters."""

    inputs: list[tf.Tensor]  # per layer its inducing inputs U_{l-1} [S or 1, M, D]
    conditionals: list[Any]  # per layer q(U_l | U_{l-1}), an InducingConditional
    draws: list[tf.Tensor]  # whitened U_l [S, T, M], of all layers but perhaps the last


class GlobalInducingDeepGP(SampledDeepGPModel):
    r"""
    A deep GP with inducing inputs U_0 at the bottom only: those of every other layer are the inducing outputs
    of the layer below, sampled from
    :math:`q(U_l | U_{l-1}) \propto p(U_l | U_{l-1}) N(V_l; U_l, \Lambda_l^{-1})` (Ober & Aitchison 2021,
    Algorithm 2). The posterior of a layer so depends on what the layers below it do.

    :param layers: the layers, input first; see :func:`gpflow_deep.layers.build_layers`. Mean functions other
        than zero in hidden layers are skip connections, without which five layers hardly train.
    :param likelihood: any GPflow likelihood.
    :param inducing_inputs: U_0 [M, D]; the first layer's own inducing inputs by default.
    :param inducing: "global", inducing inputs propagated from U_0, whatever inducing variables the layers
        above the first may have; or "local", every layer its own, with the same kind of posterior (layers
        built without any have them propagated all the same).
    :param posterior: q(U_l | U_{l-1}) of every layer, or a sequence of them, one a layer: a function of
        (number of GPs, number of inducing points) such as
        :class:`~gpflow_deep.posteriors.PseudoObservations`, ``IndependentGaussian`` (Ustyuzhaninov et al.
        2020) or ``Prior``, or ``functools.partial`` of one.
    :param pseudo_outputs: initial pseudo-observations at the output [M, P], such as the targets of inputs
        U_0; zero by default.
    :param estimator: of the bound. All three have one expectation. "marginal" (the default) integrates the
        last layer out and takes the KL divergences given the inducing inputs analytically: the gradients of
        the last layer's V and Lambda are far less noisy (see the tests for by how much).
        "analytic_kl" samples the last layer too; for the hidden layers the analytic divergence hardly changes
        the noise. "monte_carlo" is the paper's: it samples everything, log ratios included.
    :param kl_weight: weight of the KL divergences, for tempering: a number, or a function without arguments
        that is called in every evaluation, for a schedule.
    :param num_samples: draws S of the inducing outputs and of each point in training.
    :param num_data: size of the whole training set, for minibatches.
    :param num_prediction_samples: components of the predicted mixture.
    :param seed: of the initial pseudo-observations, and of the draws that predictions are made with.
    :raises ValueError: where the arguments do not fit each other.
    """

    layer_type = GPLayer

    def __init__(
        self,
        layers: Sequence[GPLayer],
        likelihood: Likelihood,
        inducing_inputs: TensorType | None = None,
        *,
        inducing: str = "global",
        posterior: LayerPosteriors = PseudoObservations,
        pseudo_outputs: TensorType | None = None,
        estimator: str = "marginal",
        kl_weight: float | Callable[[], TensorType] = 1.0,
        num_samples: int = 1,
        num_data: int | None = None,
        num_prediction_samples: int = 100,
        seed: int = 0,
        name: str | None = None,
    ) -> None:
        super().__init__(
            layers,
            likelihood,
            num_samples=num_samples,
            num_prediction_samples=num_prediction_samples,
            num_data=num_data,
            seed=seed,
            name=name,
        )
        if estimator not in _ESTIMATORS:
            raise ValueError(f"estimator: expected one of {_ESTIMATORS}, got {estimator!r}.")
        if not callable(kl_weight) and not kl_weight >= 0:
            raise ValueError(f"kl_weight: expected at least 0 or a function, got {kl_weight!r}.")
        self.layers = place_inducing_inputs(self.layers, inducing_inputs, inducing)
        self.inducing_posteriors = build_posteriors(
            posterior, self.layers, pseudo_outputs, self.seed
        )
        self.estimator = estimator
        self.kl_weight = kl_weight

    # The objective.

    @tf.autograph.experimental.do_not_convert
    def maximum_log_likelihood_objective(
        self, data: RegressionData, noise: Sequence[TensorType] | None = None
    ) -> tf.Tensor:
        """The ELBO, which training maximises."""
        return self.elbo(data, noise)

    @tf.autograph.experimental.do_not_convert
    @check_shapes(
        "return: []",
    )
    def elbo(self, data: RegressionData, noise: Sequence[TensorType] | None = None) -> tf.Tensor:
        r"""
        The evidence lower bound, an average over S draws of
        :math:`\tfrac{N}{|B|} \sum_n E[\log p(y_n | f^L_n)] - \sum_l KL[q(U_l | U_{l-1}) \| p(U_l | U_{l-1})]`
        (Ober & Aitchison 2021, Eq. 23), by the model's ``estimator``.

        :param data: inputs [N, D] and targets [N, P].
        :param noise: the draws of :meth:`draw_noise`; drawn if not given. Fix them for a
            deterministic objective (``gpflow.optimizers.Scipy``).
        """
        X, Y = self._check_data(data)
        sampled = self._num_sampled
        if noise is None:
            noise = self.draw_noise(tf.shape(X)[0])
        else:
            noise = check_noise(noise, self._training_shapes(None, X.shape[0]))
        chain = self._propagate_inducing(noise[sampled:])
        F, mean, variance = self._walk(X, _in_default_float(chain), noise[:sampled])[-1]
        log_weights = equal_log_weights(tf.shape(mean)[0])
        if F is None:
            fit = self._expected_log_likelihood(X, Mixture(mean, variance, log_weights), Y)
        else:
            draws = Mixture(F, tf.zeros_like(F), log_weights)
            densities = self._through_likelihood(self._density_of_draws, X, draws, Y)
            fit = tf.reduce_mean(densities, axis=0)
        weight = self.kl_weight() if callable(self.kl_weight) else self.kl_weight
        weight = tf.cast(weight, gpflow.default_float())
        return tf.reduce_sum(fit) * self._scale(tf.shape(X)[0]) - weight * self._divergence(chain)

    def _density_of_draws(
        self, X: tf.Tensor, F: tf.Tensor, _: tf.Tensor, Y: tf.Tensor
    ) -> tf.Tensor:
        return self.likelihood.log_prob(X, F, Y)

    def _divergence(self, chain: Chain) -> tf.Tensor:
        """KL divergence from the prior, or its estimate: summed over the layers, averaged over the draws."""
        if self.estimator == "monte_carlo":
            terms = [-q.log_ratio(v) for q, v in zip(chain.conditionals, chain.draws)]
        else:
            terms = [q.prior_kl() for q in chain.conditionals]
        total = tf.add_n([tf.reduce_mean(term) for term in terms])
        return tf.cast(total, gpflow.default_float())

    @property
    def _num_sampled(self) -> int:
        """How many layers training samples."""
        return len(self.layers) - (self.estimator == "marginal")

    def _training_shapes(
        self, num_samples: int | None, num_data: TensorType
    ) -> list[list[TensorType | None]]:
        return self._noise_shapes(num_samples, num_data, self._num_sampled)

    def _noise_shapes(
        self, num_samples: int | None, num_data: TensorType, num_layers: int
    ) -> list[list[TensorType | None]]:
        layers = self.layers[:num_layers]
        points = [[num_samples, num_data, layer.num_latent_gps] for layer in layers]
        return points + self._inducing_shapes(num_samples, num_layers)

    def _inducing_shapes(self, num_samples: int | None, num_layers: int) -> list[list[int | None]]:
        return [
            [num_samples, q.num_latent_gps, q.num_inducing]
            for q in self.inducing_posteriors[:num_layers]
            for _ in range(q.num_noise)
        ]

    def _propagate_inducing(self, noise: Sequence[tf.Tensor]) -> Chain:
        """
        Carry the inducing points through the layers: condition, sample (Algorithm 2, its lines on U). In
        float64.

        :param noise: [S, T_l, M], for as many layers as are to be sampled.
        """
        remaining = [tf.cast(z, tf.float64) for z in noise]
        chain = Chain([], [], [])
        for layer, q in zip(self.layers, self.inducing_posteriors):
            if layer.inducing_variable is not None:
                U = tf.cast(inducing_points(layer), tf.float64)[None]
            mean = tf.cast(layer.prior_mean(tf.cast(U, gpflow.default_float())), U.dtype)
            mean = tf.linalg.matrix_transpose(mean)
            K, factor = layer.factorise_at(U)
            conditional = q.condition(K, factor, mean)
            chain.inputs.append(U)
            chain.conditionals.append(conditional)
            if remaining:
                own, remaining = tuple(remaining[: q.num_noise]), remaining[q.num_noise :]
                v = conditional.sample(own)
                chain.draws.append(v)
                U = mean + rows_times(v, conditional.prior_factor, transpose=True)
                U = tf.linalg.matrix_transpose(U)
        return chain

    def _walk(
        self, X: tf.Tensor, chain: Chain, noise: Sequence[TensorType]
    ) -> list[tuple[tf.Tensor | None, tf.Tensor, tf.Tensor]]:
        """
        Carry the inputs through the layers: condition on the inducing points, sample.

        :param X: inputs [N, D].
        :param noise: [S, N or 1, T_l] for as many layers as are to be sampled.
        :return: for each layer its draws [S, N, T_l] (``None`` where there was no noise), their mean and
            variance.
        """
        outputs: list[tuple[tf.Tensor | None, tf.Tensor, tf.Tensor]] = []
        F = X[None]
        for index, layer in enumerate(self.layers):
            Kuf, prior_variance = layer.covariances(F, chain.inputs[index])
            explained = _explain(chain, index, Kuf)
            mean = explained.mean + layer.prior_mean(F)
            variance = explained.variance(prior_variance)
            sampled = index < len(noise)
            if sampled:
                F = mean + tf.sqrt(variance) * noise[index]
            outputs.append((F if sampled else None, mean, variance))
        return outputs

    @tf.autograph.experimental.do_not_convert
    @check_shapes(
        "X: [N, D]",
    )
    def propagate(
        self, X: InputData, noise: Sequence[TensorType] | None = None
    ) -> list[LayerOutput]:
        """
        Draws of every layer, with the conditionals given the inducing outputs that they come from.

        :param X: inputs.
        :param noise: standard normal draws: [S, N, T_l] for each layer, then for each layer [S, T_l, M] as in
            :meth:`draw_noise`; drawn if not given.
        """
        X, L = self._as_inputs(X, "X"), len(self.layers)
        if noise is None:
            noise = standard_normals(self._noise_shapes(self.num_samples, tf.shape(X)[0], L))
        else:
            noise = check_noise(noise, self._noise_shapes(None, X.shape[0], L))
        chain = _in_default_float(self._propagate_inducing(noise[L:]))
        S = tf.shape(noise[0])[0]
        return [
            LayerOutput(*(tf.broadcast_to(x, [S, *tf.unstack(tf.shape(x)[1:])]) for x in output))
            for output in self._walk(X, chain, noise[:L])
        ]

    def function_variances(self, X: InputData, num_samples: int = 100) -> list[tf.Tensor]:
        """
        How uncertain the function of each layer is: the variance of its values over the posterior, the law of
        its inputs included, averaged over the points (compositional uncertainty, Ober & Aitchison 2021,
        Appendix I). Near zero in a layer whose posterior has collapsed to one function.

        :param X: inputs [N, D].
        :return: [T_l] for each layer.
        """
        X, L = self._as_matrix(X), len(self.layers)
        S = check_positive_integer(num_samples, "num_samples")
        noise = standard_normals(self._noise_shapes(S, tf.shape(X)[0], L), [self.seed, 1])
        chain = _in_default_float(self._propagate_inducing(noise[L:]))
        return [
            tf.reduce_mean(tf.math.reduce_variance(mean, axis=0), axis=0)
            + tf.reduce_mean(variance, axis=[0, 1])
            for _, mean, variance in self._walk(X, chain, noise[:L])
        ]

    # Predictions: the last layer is integrated out, whatever the estimator.

    def _prepare(self, num_samples: int | None = None) -> Chain:
        S = self.num_prediction_samples
        if num_samples is not None:
            S = check_positive_integer(num_samples, "num_samples")
        return self._draw_chain(S, [self.seed, 0])

    def _draw_chain(self, num_samples: int, seed: TensorType | None = None) -> Chain:
        shapes = self._inducing_shapes(num_samples, len(self.layers) - 1)
        noise = standard_normals(shapes, seed, tf.float64)
        return _in_default_float(self._propagate_inducing(noise))

    def _mixture(self, Xnew: tf.Tensor, num_samples: int | None, prepared: Chain) -> Mixture:
        if num_samples not in (None, _num_samples(prepared)) and prepared.draws:
            prepared = self._prepare(num_samples)
        S = _num_samples(prepared)
        noise = self._prediction_noise(S)

        def part(X: tf.Tensor) -> tuple[tf.Tensor, ...]:
            return self._walk(X, prepared, noise)[-1][1:]

        means, variances = in_parts(part, Xnew, S)
        return Mixture(means, variances, equal_log_weights(S))

    def _output_mixture(self, Xnew: tf.Tensor, prepared: Chain) -> Mixture:
        # Given their inputs, the outputs are independent.
        means, variances, log_weights = self._mixture(Xnew, None, prepared)
        return Mixture(means, tf.linalg.diag(variances), log_weights)

    def _joint_mixture(self, Xnew: tf.Tensor, prepared: Chain) -> Mixture:
        F, mean, covariance = self._walk_jointly(Xnew, prepared, [self.seed, 2])
        return Mixture(mean, covariance, equal_log_weights(_num_samples(prepared)))

    def _sample_f(
        self, Xnew: tf.Tensor, num_samples: int, full_cov: bool, prepared: Chain
    ) -> tf.Tensor:
        # The chain at hand is of other draws: new functions need new ones.
        chain = self._draw_chain(num_samples)
        if full_cov:
            F, mean, covariance = self._walk_jointly(Xnew, chain)
            M = chain.inputs[-1].shape[1]
            return self._draw_jointly(self.layers[-1], F, mean, covariance, M, num_samples)

        def part(X: tf.Tensor) -> tuple[tf.Tensor, ...]:
            N, layers = tf.shape(X)[0], self.layers
            noise = standard_normals([[num_samples, N, layer.num_latent_gps] for layer in layers])
            return (self._walk(X, chain, noise)[-1][0],)

        return in_parts(part, Xnew, num_samples)[0]

    def _walk_jointly(
        self, X: tf.Tensor, chain: Chain, seed: TensorType | None = None
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """
        Coherent draws of the hidden functions over all points, and the last layer's joint distribution.

        :return: the last layer's inputs [S or 1, N, D], mean [S or 1, N, P] and covariance
            [S or 1, P or 1, N, N].
        """
        F, S = X[None], _num_samples(chain)
        seeds = [None] * len(self.layers)
        if seed is not None:
            seeds = tf.unstack(tf.random.experimental.stateless_split(seed, len(self.layers)))
        for index, layer in enumerate(self.layers):
            Kuf, _ = layer.covariances(F, chain.inputs[index])
            explained = _explain(chain, index, Kuf)
            mean = explained.mean + layer.prior_mean(F)
            covariance = explained.covariance(layer.prior_covariance(F))
            if index < len(self.layers) - 1:
                M = Kuf.shape[2]
                F = self._draw_jointly(layer, F, mean, covariance, M, S, seeds[index])
        return F, mean, covariance

    @staticmethod
    def _draw_jointly(
        layer: GPLayer,
        F: tf.Tensor,
        mean: tf.Tensor,
        covariance: tf.Tensor,
        num_inducing: int,
        num_samples: int,
        seed: TensorType | None = None,
    ) -> tf.Tensor:
        """Draws [S, N, T] of a layer's functions over all points."""
        factor = layer.factorise_joint(covariance, F, num_inducing)  # [S or 1, K, N, N]
        shape = [num_samples, layer.num_latent_gps, tf.shape(mean)[1]]
        (noise,) = standard_normals([shape], seed)
        return mean + tf.linalg.matrix_transpose(rows_times(noise, factor, transpose=True))


def _explain(chain: Chain, index: int, Kuf: tf.Tensor) -> Explained:
    """What a layer's inducing outputs say of other values: given their draws where they were drawn."""
    conditional = chain.conditionals[index]
    if index == len(chain.draws):
        return conditional.explain(Kuf)
    A = tf.linalg.triangular_solve(conditional.prior_factor, Kuf)
    mean = rows_times(chain.draws[index], A)
    return Explained(tf.linalg.matrix_transpose(mean), A, Kuf[:, :, :0])


def _num_samples(chain: Chain) -> int:
    return int(chain.draws[0].shape[0]) if chain.draws else 1


def _in_default_float(chain: Chain) -> Chain:
    return tf.nest.map_structure(lambda x: tf.cast(x, gpflow.default_float()), chain)
