"""Bayesian neural networks with global inducing points (Ober & Aitchison 2021)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import gpflow
import tensorflow as tf
from check_shapes import check_shapes
from gpflow.base import InputData, Module, RegressionData, TensorType
from gpflow.likelihoods import Likelihood

from ..layers import GPLayer
from ..layers.bayesian import BayesianLayer, NetworkLayer, random_layers
from ..layers.bayesian import walk as walk_network
from ..likelihoods import log_prob
from ..numerics.draws import standard_normals
from ..numerics.linalg import cholesky, leading_shape, rows_times
from ..numerics.parts import ROWS, in_parts
from ..posteriors.base import Conditional
from ..posteriors.explained import Explained
from ..posteriors.layerwise import LayerPosterior
from ..posteriors.mixture import Mixture, Noise, equal_log_weights
from ..posteriors.weights import GlobalInducingWeights
from ..validation import check_noise, check_positive_integer
from .base import DeepGPModel, LayerOutput
from .network_parts import (
    NetworkPosteriors,
    build_weight_posteriors,
    connect_layers,
    image_inputs,
)
from .passage import Passage, walk

__all__ = ["GlobalInducingBNN"]

_ESTIMATORS = ("marginal", "analytic_kl", "monte_carlo")


class Chain(NamedTuple):
    """What was drawn on the inducing points' way through the network; each list in the order of visits."""

    conditionals: list[Any]  # q(weights or inducing outputs | what is below) of each random layer
    draws: list[tf.Tensor]  # weights [S, T, D], of all random layers but perhaps the last
    inputs: list[tf.Tensor]  # inducing inputs of the last layer [S, M, D], where it is one of GPs
    log_ratios: list[tf.Tensor]  # log p - log q of the prior precisions' draws, [S or 1]
    divergences: list[tf.Tensor]  # their KL divergences, [1]


class GlobalInducingBNN(DeepGPModel):
    r"""
    A Bayesian neural network whose posterior knows in each layer what the layers below it do: inducing inputs
    U_0 are carried through the network with the weights drawn, and
    :math:`q(W_l | U_{l-1}) \propto p(W_l) N(V_l; U_{l-1} W_l, \Lambda_l^{-1})` (Ober & Aitchison 2021,
    Algorithm 1). Other posteriors can take this one's place, layer by layer. The last layer can be one of
    GPs, whose inputs the network learns.

    :param layers: :class:`~gpflow_deep.layers.BayesianDense`, ``BayesianConv2D``, what is in
        :mod:`gpflow_deep.layers.bayesian` beside them; input first. The last one is ``BayesianDense``, or a
        :class:`~gpflow_deep.layers.GPLayer` without an inducing variable.
    :param likelihood: any GPflow likelihood; ``Softmax`` or ``MultiClass`` for classes.
    :param inducing_inputs: U_0 [M, D], or images [M, H, W, C]; data then have rows of H W C numbers. ``None``
        where no posterior uses them.
    :param input_shape: (D,) or (H, W, C), without ``inducing_inputs``.
    :param posterior: of the weights of every random layer, or a sequence of them: a function of a
        :class:`~gpflow_deep.posteriors.WeightSpec` such as
        :class:`~gpflow_deep.posteriors.GlobalInducingWeights`, ``LocalInducingWeights``,
        ``FactorisedWeights`` or ``PriorWeights``, or ``functools.partial`` of one. For layers of GPs as in
        :class:`GlobalInducingDeepGP`.
    :param pseudo_outputs: initial pseudo-observations at the output [M, P], such as the targets of inputs
        U_0; zero by default.
    :param estimator: of the bound. All three have one expectation. "marginal" (the default) integrates the
        last layer out and takes the divergences given the inducing inputs analytically; "analytic_kl" samples
        the last layer too; "monte_carlo" is the paper's: it samples everything, log ratios included.
    :param kl_weight: weight of the divergences in what training maximises, for tempering: a number, or a
        function without arguments that is called in every evaluation, for a schedule. :meth:`elbo` is the
        bound whatever it is.
    :param num_samples: draws S of the weights in training.
    :param num_data: size of the whole training set, for minibatches.
    :param num_prediction_samples: components of the predicted mixture.
    :param seed: of the initial values, and of the draws that predictions are made with.
    :raises TypeError: for layers or posteriors of other kinds.
    :raises ValueError: where the arguments do not fit each other.
    """

    layer_type = Module

    def __init__(
        self,
        layers: Sequence[NetworkLayer | GPLayer],
        likelihood: Likelihood,
        inducing_inputs: TensorType | None = None,
        *,
        input_shape: int | Sequence[int] | None = None,
        posterior: NetworkPosteriors = GlobalInducingWeights,
        pseudo_outputs: TensorType | None = None,
        estimator: str = "marginal",
        kl_weight: float | Callable[[], TensorType] = 1.0,
        num_samples: int = 1,
        num_data: int | None = None,
        num_prediction_samples: int = 100,
        seed: int = 0,
        name: str | None = None,
    ) -> None:
        if estimator not in _ESTIMATORS:
            raise ValueError(f"estimator: expected one of {_ESTIMATORS}, got {estimator!r}.")
        if not callable(kl_weight) and not kl_weight >= 0:
            raise ValueError(f"kl_weight: expected at least 0 or a function, got {kl_weight!r}.")
        inputs = image_inputs(inducing_inputs)
        layers, shape = connect_layers(layers, inputs, input_shape)
        super().__init__(
            layers,
            likelihood,
            num_samples=num_samples,
            num_prediction_samples=num_prediction_samples,
            num_data=num_data,
            seed=seed,
            name=name,
        )
        self.inducing_inputs = inputs
        self._input_shape = tf.TensorShape(shape)
        self._random_layers = random_layers(layers)
        self.inducing_posteriors = build_weight_posteriors(
            posterior,
            self._random_layers,
            0 if inputs is None else inputs.shape[0],
            pseudo_outputs,
            self.seed,
        )
        self.estimator = estimator
        self.kl_weight = kl_weight

    # The objective.

    @tf.autograph.experimental.do_not_convert
    def maximum_log_likelihood_objective(
        self, data: RegressionData, noise: Sequence[TensorType] | None = None
    ) -> tf.Tensor:
        """The ELBO, its divergences times ``kl_weight``: what training maximises."""
        fit, divergence = self._bound(data, noise)
        weight = self.kl_weight() if callable(self.kl_weight) else self.kl_weight
        return fit - tf.cast(weight, gpflow.default_float()) * divergence

    @tf.autograph.experimental.do_not_convert
    @check_shapes(
        "return: []",
    )
    def elbo(self, data: RegressionData, noise: Sequence[TensorType] | None = None) -> tf.Tensor:
        r"""
        The evidence lower bound, an average over S draws of
        :math:`\tfrac{N}{|B|} \sum_n E[\log p(y_n | f_n)] - \sum_l KL[q(W_l | U_{l-1}) \| p(W_l)]`, by the
        model's ``estimator``.

        :param data: inputs [N, D] and targets [N, P].
        :param noise: the draws of :meth:`draw_noise`; drawn if not given.
        """
        fit, divergence = self._bound(data, noise)
        return fit - divergence

    def _bound(
        self, data: RegressionData, noise: Sequence[TensorType] | None
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """The data's term and the divergences' of the bound."""
        X, Y = self._check_data(data)
        if noise is None:
            noise = self.draw_noise(tf.shape(X)[0])
        else:
            noise = check_noise(noise, self._training_shapes(None, X.shape[0]))
        count = len(self._point_shapes(None, None, self._num_sampled, training=True))
        chain = self._propagate_inducing(noise[count:], self._num_sampled, training=True)
        passage = _GivenWeights(self, chain, noise[:count], training=True)
        sample, mean, variance = self._forward(X, passage)[-1]
        if self.estimator == "marginal":
            f = Mixture(mean, variance, equal_log_weights(tf.shape(mean)[0]))
            fit = self._expected_log_likelihood(X, f, Y)
        else:
            f = Mixture(sample, tf.zeros_like(sample), equal_log_weights(tf.shape(sample)[0]))
            fit = tf.reduce_mean(self._through_likelihood(_density, X, f, Y), axis=0)
        return tf.reduce_sum(fit) * self._scale(tf.shape(X)[0]), self._divergence(chain)

    def _divergence(self, chain: Chain) -> tf.Tensor:
        """KL divergence from the prior, or its estimate: summed over the layers, averaged over the draws."""
        terms = []
        if self.estimator == "monte_carlo":
            terms += [-ratio for ratio in chain.log_ratios]
            for q, conditional, draws in zip(
                self.inducing_posteriors, chain.conditionals, chain.draws
            ):
                locally = _draws_outputs(q, training=True)
                terms.append(conditional.prior_kl() if locally else -conditional.log_ratio(draws))
        else:
            terms += chain.divergences
            terms += [conditional.prior_kl() for conditional in chain.conditionals]
        means = [tf.cast(tf.reduce_mean(term), gpflow.default_float()) for term in terms]
        return tf.add_n(means)

    # The draws.

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
        :param seed: ``None`` for TensorFlow's global generator, or two integers of which the draws are a pure
            function.
        :return: first [S, N, outputs] for each layer that draws its outputs point by point: those with local
            reparameterisation, and a sampled layer of GPs. Then for each layer those of its prior precision,
            and where it is sampled those of its weights or inducing outputs.
        """
        S = self.num_samples
        if num_samples is not None:
            S = check_positive_integer(num_samples, "num_samples")
        return standard_normals(self._training_shapes(S, num_data), seed)

    def _check_sharing(self) -> None:
        """Layers of networks have no kernels; their priors are the layer's own."""

    @property
    def _num_sampled(self) -> int:
        """How many random layers training samples."""
        return len(self._random_layers) - (self.estimator == "marginal")

    def _training_shapes(
        self, num_samples: int | None, num_data: TensorType
    ) -> list[list[TensorType | None]]:
        return self._noise_shapes(num_samples, num_data, self._num_sampled, training=True)

    def _noise_shapes(
        self, num_samples: int | None, num_data: TensorType, num_sampled: int, training: bool
    ) -> list[list[TensorType | None]]:
        """
        First those of points, [S, N, outputs] for each layer that has any: in training those with local
        reparameterisation, and a sampled layer of GPs. Then for each layer those of its prior precision, and
        those of its weights or inducing outputs.
        """
        points = self._point_shapes(num_samples, num_data, num_sampled, training)
        return points + self._inducing_shapes(num_samples, num_sampled, training)

    def _point_shapes(
        self,
        num_samples: int | None,
        num_data: TensorType | None,
        num_layers: int,
        training: bool = False,
    ) -> list[list[TensorType | None]]:
        pairs = zip(self._random_layers[:num_layers], self.inducing_posteriors)
        return [
            [num_samples, num_data, layer.num_latent_gps]
            for layer, q in pairs
            if isinstance(layer, GPLayer) or _draws_outputs(q, training)
        ]

    def _inducing_shapes(
        self, num_samples: int | None, num_sampled: int, training: bool
    ) -> list[list[int | None]]:
        shapes = []
        for index, (layer, q) in enumerate(zip(self._random_layers, self.inducing_posteriors)):
            sampled = index < num_sampled and not _draws_outputs(q, training)
            if isinstance(layer, GPLayer):
                own = [[num_samples, q.num_latent_gps, q.num_inducing]] * q.num_noise
            else:
                shapes += layer.prior.noise_shapes(num_samples)
                own = q.noise_shapes(num_samples)
            shapes += own if sampled else []
        return shapes

    def _propagate_inducing(
        self, noise: Sequence[tf.Tensor], num_sampled: int, training: bool = False
    ) -> Chain:
        """
        Carry the inducing points through the network: condition, sample.

        :param noise: of :meth:`_inducing_shapes`.
        :param num_sampled: random layers to be sampled, from below.
        """
        remaining = iter(noise)
        chain = Chain([], [], [], [], [])

        def visit(layer: BayesianLayer | GPLayer, U: tf.Tensor | None) -> tf.Tensor | None:
            index = len(chain.conditionals)
            q = self.inducing_posteriors[index]
            sampled = index < num_sampled
            if isinstance(layer, GPLayer):
                _condition_gps(layer, q, U, remaining if sampled else None, chain)
                return U
            hyper = layer.prior.draw(_take(remaining, layer.prior.noise_shapes(None)), layer.fan_in)
            design = layer.design(U) if q.uses_inducing_inputs else None
            conditional = q.condition(design, hyper.precision)
            chain.conditionals.append(conditional)
            chain.log_ratios.append(hyper.log_ratio)
            chain.divergences.append(hyper.kl)
            if not sampled:
                return U
            if _draws_outputs(q, training):
                weights = conditional.mean
            else:
                weights = conditional.sample(_take(remaining, q.noise_shapes(None)))
            chain.draws.append(weights)
            return None if U is None else layer.apply(U, weights)

        if self.inducing_inputs is None:
            for layer in self._random_layers:
                visit(layer, None)
        else:
            walk_network(self.layers, tf.convert_to_tensor(self.inducing_inputs)[None], visit)
        return chain

    # The passage.

    def _passage(self, prepared: Chain, full_output_cov: bool = False) -> _GivenWeights:
        return _GivenWeights(self, prepared)

    def _joint_passage(
        self,
        prepared: Chain,
        num_samples: int,
        seed: TensorType | None,
        marginal: bool,
        full_output_cov: bool = False,
    ) -> _GivenWeights:
        return _GivenWeights(self, prepared, joint=True)

    def _forward(self, X: tf.Tensor, passage: _GivenWeights) -> list[_Outputs]:
        """What a passage of inputs [N, D] leaves at the random layers."""
        walk(self.layers, passage, X, [None] * (len(self.layers) - 1))
        return passage.outputs

    @tf.autograph.experimental.do_not_convert
    @check_shapes(
        "X: [N, D]",
    )
    def propagate(
        self, X: InputData, noise: Sequence[TensorType] | None = None
    ) -> list[LayerOutput]:
        """
        Draws of every random layer's outputs [S, N, ...], with their mean and variance given what is below:
        the variance is zero where the weights are drawn.

        :param X: inputs.
        :param noise: as in :meth:`draw_noise` with "analytic_kl" and without local reparameterisation; drawn
            if not given.
        """
        X, L = self._as_matrix(X, "X"), len(self._random_layers)
        if noise is None:
            shapes = self._noise_shapes(self.num_samples, tf.shape(X)[0], L, training=False)
            noise = standard_normals(shapes)
        else:
            noise = check_noise(noise, self._noise_shapes(None, X.shape[0], L, training=False))
        count = len(self._point_shapes(None, None, L, training=False))
        chain = self._propagate_inducing(noise[count:], L)
        passage = _GivenWeights(self, chain, noise[:count])
        return [LayerOutput(*output) for output in self._forward(X, passage)]

    # What the posterior says, layer by layer.

    def function_variances(self, X: InputData, num_samples: int = 100) -> list[tf.Tensor]:
        """
        How uncertain the outputs of each random layer are: their variance over the posterior, the law of the
        layer's inputs included, averaged over the points (compositional uncertainty, Ober & Aitchison 2021,
        Appendix I).

        :param X: inputs [N, D].
        :return: [*output_shape] for each random layer.
        """
        X, L = self._as_matrix(X), len(self._random_layers)
        S = check_positive_integer(num_samples, "num_samples")
        shapes = self._noise_shapes(S, tf.shape(X)[0], L, training=False)
        noise = standard_normals(shapes, [self.seed, 1])
        count = len(self._point_shapes(None, None, L, training=False))
        chain = self._propagate_inducing(noise[count:], L)
        return [
            tf.reduce_mean(tf.math.reduce_variance(mean, axis=0) + tf.reduce_mean(variance, 0), 0)
            for _, mean, variance in self._forward(X, _GivenWeights(self, chain, noise[:count]))
        ]

    def weight_variances(self, num_samples: int = 100) -> list[tf.Tensor]:
        """
        Variance of each weight over the posterior, the prior precision and the layers below included.

        :return: [T, D] for each layer with weights.
        """
        S = check_positive_integer(num_samples, "num_samples")
        draws = self._draw_chain(S, len(self._random_layers), [self.seed, 1]).draws
        return [
            tf.math.reduce_variance(weights, axis=0)
            for layer, weights in zip(self._random_layers, draws)
            if not isinstance(layer, GPLayer)
        ]

    @tf.autograph.experimental.do_not_convert
    @check_shapes(
        "X: [N, D]",
    )
    def sample_prior(
        self, X: InputData, num_samples: int = 1, seed: TensorType | None = None
    ) -> list[tf.Tensor]:
        """
        Draws of every random layer's outputs from the prior.

        :param X: inputs.
        :param num_samples: number of draws, S.
        :param seed: ``None`` for new draws at each call, or two integers of which they are a pure function.
        :return: [S, N, ...] for each random layer.
        """
        X = self._as_matrix(X, "X")
        S = check_positive_integer(num_samples, "num_samples")
        shapes: list[list[Any]] = []
        for layer in self._random_layers:
            if isinstance(layer, GPLayer):
                shapes.append([S, tf.shape(X)[0], layer.num_latent_gps])
            else:
                shapes += [*layer.prior.noise_shapes(S), [S, layer.num_outputs, layer.fan_in]]
        remaining, outputs = iter(standard_normals(shapes, seed)), []

        def visit(layer: BayesianLayer | GPLayer, F: tf.Tensor) -> tf.Tensor:
            if isinstance(layer, GPLayer):
                F = tf.broadcast_to(F, [S, *tf.unstack(tf.shape(F)[1:])])
                F = layer.sample_prior(F, next(remaining))
            else:
                noise = _take(remaining, layer.prior.noise_shapes(None))
                hyper = layer.prior.draw(noise, layer.fan_in, from_prior=True)
                F = layer.apply(F, hyper.precision.unwhiten(next(remaining)))
            outputs.append(F)
            return F

        walk_network(self.layers, tf.reshape(X, [1, -1, *self._input_shape]), visit)
        return outputs

    # Predictions: the last layer is integrated out, whatever the estimator.

    def _prepare(self, noise: Sequence[tf.Tensor] = ()) -> Chain:
        """The chain of given draws; that of predictions, whose draws are always the same, without them."""
        hidden = len(self._random_layers) - 1
        if noise:
            return self._propagate_inducing(noise, hidden)
        return self._draw_chain(self.num_prediction_samples, hidden, [self.seed, 0])

    def _draw_chain(
        self, num_samples: int, num_sampled: int, seed: TensorType | None = None
    ) -> Chain:
        shapes = self._inducing_shapes(num_samples, num_sampled, training=False)
        return self._propagate_inducing(standard_normals(shapes, seed), num_sampled)

    def _prediction(
        self, prepared: Chain, num_samples: int | None, noise: Noise
    ) -> tuple[Any, list[TensorType], tf.Tensor]:
        hidden = len(self._random_layers) - 1
        if noise is not None:
            shapes = self._inducing_shapes(None, hidden, training=False)
            prepared = self._propagate_inducing(check_noise(noise, shapes), hidden)
        elif num_samples not in (None, _num_samples(prepared)):
            S = check_positive_integer(num_samples, "num_samples")
            prepared = self._draw_chain(S, hidden, [self.seed, 0])
        return prepared, [], equal_log_weights(_num_samples(prepared))

    def _mixture(
        self,
        X: tf.Tensor,
        prediction: tuple[Any, list[TensorType], tf.Tensor],
        full_output_cov: bool = False,
    ) -> Mixture:
        prepared, _, log_weights = prediction
        _, mean, variance = self._forward(X, _GivenWeights(self, prepared))[-1]
        # Given their inputs, the outputs are independent.
        return Mixture(mean, tf.linalg.diag(variance) if full_output_cov else variance, log_weights)

    def _joint_mixture(
        self, X: tf.Tensor, prepared: Chain, full_output_cov: bool = False
    ) -> Mixture:
        _, mean, covariance = self._forward(X, _GivenWeights(self, prepared, joint=True))[-1]
        S, N = leading_shape(mean)
        covariance = tf.broadcast_to(covariance, [S, self.num_latent_gps, N, N])
        if full_output_cov:
            covariance = tf.linalg.diag(tf.transpose(covariance, [0, 2, 3, 1]))  # [S, N, N, P, P]
            covariance = tf.transpose(covariance, [0, 1, 3, 2, 4])
        return Mixture(mean, covariance, equal_log_weights(tf.shape(mean)[0]))

    def _sample_f(
        self, X: tf.Tensor, num_samples: int, full_cov: bool, prepared: Chain
    ) -> tf.Tensor:
        # The chain at hand is of other draws: new functions need new ones.
        if not isinstance(self.layers[-1], GPLayer):
            # With all weights drawn, the functions are known everywhere.
            chain = self._draw_chain(num_samples, len(self._random_layers))

            def part(X: tf.Tensor) -> tuple[tf.Tensor, ...]:
                return (self._forward(X, _GivenWeights(self, chain))[-1].mean,)

            return in_parts(part, [X], max(1, ROWS // num_samples), 1, axis=1)[0]
        chain = self._draw_chain(num_samples, len(self._random_layers) - 1)
        _, mean, covariance = self._forward(X, _GivenWeights(self, chain, joint=full_cov))[-1]
        N = leading_shape(mean)[1]
        (noise,) = standard_normals([[num_samples, N, self.num_latent_gps]])
        if not full_cov:
            return mean + tf.sqrt(covariance) * noise
        jitter = gpflow.config.default_jitter() * tf.reduce_max(covariance)
        diagonal = tf.linalg.diag_part(covariance) + jitter
        covariance = tf.linalg.set_diag(covariance, diagonal)
        factor = cholesky(covariance, "the covariance at the inputs", {})
        draws = rows_times(tf.linalg.matrix_transpose(noise), factor, transpose=True)
        return mean + tf.linalg.matrix_transpose(draws)


class _Outputs(NamedTuple):
    """Of one random layer."""

    sample: tf.Tensor | None  # [S, N, *output_shape]; None where none was drawn
    mean: tf.Tensor  # given what is below: [S, N, *output_shape]
    variance: (
        tf.Tensor
    )  # likewise; of the last layer perhaps the covariance of points [S, 1 or T, N, N]


class _GivenWeights(Passage):
    """
    Inputs on their way through the network with a chain's weights; what is between the random layers belongs
    to the layer that it is in.

    :param noise: of points, for the layers that draw their outputs.
    :param training: whether layers with local reparameterisation do.
    :param joint: whether to have the covariance of the points for the last layer.
    """

    def __init__(
        self,
        model: GlobalInducingBNN,
        chain: Chain,
        noise: Sequence[TensorType] = (),
        *,
        training: bool = False,
        joint: bool = False,
    ) -> None:
        self._model, self._chain, self._noise = model, chain, iter(noise)
        self._training, self._joint = training, joint
        self.outputs: list[_Outputs] = []

    def condition(
        self, layer: NetworkLayer | GPLayer, inputs: tf.Tensor, below: Conditional | None
    ) -> Conditional:
        if below is None:
            inputs = tf.reshape(inputs, [1, -1, *self._model._input_shape])
        self._values = walk_network([layer], inputs, self._visit)
        last = self.outputs[-1] if self.outputs else None
        if layer is self._model.layers[-1] and last is not None:
            return Conditional(last.mean, last.variance)
        return Conditional(self._values, tf.zeros_like(self._values))

    def sample(self, noise: TensorType | None) -> tf.Tensor:
        return self._values

    def _visit(self, layer: BayesianLayer | GPLayer, F: tf.Tensor) -> tf.Tensor:
        index, chain = len(self.outputs), self._chain
        q, conditional = self._model.inducing_posteriors[index], chain.conditionals[index]
        drawn = chain.draws[index] if index < len(chain.draws) else None
        sample = None
        if isinstance(layer, GPLayer):
            mean, variance = _gp_moments(layer, F, chain, self._joint)
        elif drawn is None:
            moments = conditional.joint_moments if self._joint else conditional.moments
            mean, variance = moments(layer.features(F))
        elif _draws_outputs(q, self._training):
            mean = layer.apply(F, conditional.mean)
            variance = layer.apply(tf.square(F), conditional.variance)
        else:
            sample = mean = layer.apply(F, drawn)
            variance = tf.zeros_like(mean)
        if drawn is not None and sample is None:
            normals = tf.reshape(next(self._noise), [-1, *tf.unstack(tf.shape(mean)[1:])])
            sample = mean + tf.sqrt(variance) * normals
        self.outputs.append(_Outputs(sample, mean, variance))
        return mean if sample is None else sample


def _density(
    likelihood: Likelihood, X: tf.Tensor, F: tf.Tensor, _: tf.Tensor, Y: tf.Tensor
) -> tf.Tensor:
    return log_prob(likelihood, X, F, Y)


def _draws_outputs(q: Any, training: bool) -> bool:
    """Whether outputs are drawn rather than weights."""
    return training and getattr(q, "local_reparameterisation", False)


def _take(noise: Iterator[tf.Tensor], shapes: Sequence[Any]) -> tuple[tf.Tensor, ...]:
    return tuple(next(noise) for _ in shapes)


def _condition_gps(
    layer: GPLayer,
    q: LayerPosterior,
    U: tf.Tensor,
    noise: Iterator[tf.Tensor] | None,
    chain: Chain,
) -> None:
    """
    Condition the GPs' inducing outputs on their inducing inputs, in float64; draw them if there is
    noise.
    """
    U = tf.cast(U, tf.float64)
    mean = tf.cast(layer.latent_mean(tf.cast(U, gpflow.default_float())), U.dtype)
    K, factor = layer.factorise_at(U)
    conditional = q.condition(K, factor, tf.linalg.matrix_transpose(mean))
    chain.inputs.append(tf.cast(U, gpflow.default_float()))
    if noise is not None:
        normals = tuple(tf.cast(next(noise), U.dtype) for _ in range(q.num_noise))
        chain.draws.append(tf.cast(conditional.sample(normals), gpflow.default_float()))
    chain.conditionals.append(
        tf.nest.map_structure(lambda x: tf.cast(x, gpflow.default_float()), conditional)
    )


def _gp_moments(
    layer: GPLayer, F: tf.Tensor, chain: Chain, joint: bool
) -> tuple[tf.Tensor, tf.Tensor]:
    """Mean and variance, or covariance over the points, of the last layer's GPs."""
    conditional = chain.conditionals[-1]
    Kuf, prior = layer.covariances(F, chain.inputs[-1])
    explained = conditional.explain(Kuf)
    if len(chain.draws) == len(chain.conditionals):
        A = tf.linalg.triangular_solve(conditional.prior_factor, Kuf)
        mean = tf.linalg.matrix_transpose(rows_times(chain.draws[-1], A))
        explained = Explained(mean, A, None)
    mean = explained.mean + layer.latent_mean(F)
    if joint:
        return mean, explained.covariance(layer.prior_covariance(F))
    return mean, explained.variance(prior)


def _num_samples(chain: Chain) -> int:
    return max(int(x.shape[0]) for x in [*chain.draws, *chain.log_ratios, tf.zeros([1])])
