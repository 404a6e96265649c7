"""What models with global inducing points share: the inducing points' own way through the layers."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import gpflow
import tensorflow as tf
from gpflow.base import InputData, TensorType
from gpflow.likelihoods import Likelihood, MultiClass

from ..layers import GPLayer, Layer
from ..numerics.draws import standard_normals
from ..numerics.linalg import cast_all, rows_times
from ..numerics.parts import in_parts, part_size
from ..posteriors.base import Conditional
from ..posteriors.explained import Explained
from ..posteriors.layerwise import LayerPosterior
from ..posteriors.mixture import Noise, equal_log_weights
from ..posteriors.mixture_predictor import Prediction
from ..posteriors.weights import FactorisedConditional
from ..validation import check_choice, check_number, check_positive_integer
from .functions import LayerFunctions
from .passage import Passage, sample_gaussians, walk
from .variational import VariationalDeepGPModel

__all__ = [
    "Chain",
    "GivenInducing",
    "InducingChainModel",
    "condition_gps",
    "explain_by_chain",
    "functions_of_chain",
    "in_default_float",
]

_ESTIMATORS = ("marginal", "analytic_kl", "monte_carlo")


class Chain(NamedTuple):
    """The inducing points on their way: all that no other input enters. Lists are in the layers' order."""

    inputs: list[tf.Tensor]  # of each layer of GPs its inducing inputs U_{l-1} [S or 1, M, D]
    conditionals: list[Any]  # q(inducing outputs or weights | what is below) of each random layer
    draws: list[Any]
    """Whitened inducing outputs [S, T, M], or weights [S, T, D], of all random layers but perhaps the last;
    ``None`` where a layer's outputs are drawn instead, point by point."""

    noise: list[tuple[tf.Tensor, ...]]  # the standard normals of each draw
    log_ratios: list[tf.Tensor]  # log p - log q of the prior precisions' draws, [S or 1]
    divergences: list[tf.Tensor]  # their KL divergences, [1]

    @property
    def num_samples(self) -> int:
        """S of the outputs: not that of prior precisions on which nothing depends."""
        drawn = [x for x in self.draws if x is not None]
        for log_ratio, q in zip(self.log_ratios, self.conditionals):
            if not isinstance(q, FactorisedConditional):
                drawn.append(log_ratio)
        return max([int(x.shape[0]) for x in drawn], default=1)


class InducingChainModel(VariationalDeepGPModel):
    """
    A model whose posterior knows in each layer what the layers below do to its inducing points (Ober &
    Aitchison 2021): it is prepared by carrying these through the layers.

    :param estimator: of the bound: "marginal", "analytic_kl" or "monte_carlo".
    :param kl_weight: weight of the KL divergences in what training maximises: a number, or a function without
        arguments that is called where a graph is made.
    """

    inducing_posteriors: list[Any]

    def __init__(
        self,
        layers: Sequence[Any],
        likelihood: Likelihood,
        *,
        estimator: str,
        kl_weight: float | Callable[[], TensorType],
        **settings: Any,
    ) -> None:
        super().__init__(layers, likelihood, **settings)
        self.estimator = check_choice(estimator, "estimator", _ESTIMATORS)
        if self.estimator != "marginal" and isinstance(likelihood, MultiClass):
            raise ValueError(
                "estimator: expected 'marginal' for MultiClass, whose density has no gradient in a draw, got"
                f" {estimator!r}."
            )
        if not callable(kl_weight):
            kl_weight = check_number(kl_weight, "kl_weight", low=0.0)
        self.kl_weight = kl_weight

    @abstractmethod
    def _propagate_inducing(self, noise: Sequence[tf.Tensor], training: bool = False) -> Chain:
        """
        Carry the inducing points through the layers: condition, sample.

        :param noise: of :meth:`_inducing_shapes`, for as many layers as are to be sampled.
        """

    @property
    def inducing_posterior(self) -> list[Any]:
        """The posterior of each layer, given its inducing inputs."""
        return self.inducing_posteriors

    @tf.autograph.experimental.do_not_convert
    def prior_kl(self, num_samples: int | None = None, seed: TensorType | None = None) -> tf.Tensor:
        """
        KL divergence of the posterior from the prior: exact for one layer whose prior has no parameter that
        is drawn ("scale", "spatial"), else averaged over S draws of these and of the layers below each.

        :param num_samples: S; the model's own by default.
        :param seed: as for :meth:`draw_noise`.
        """
        S = self.num_samples
        if num_samples is not None:
            S = check_positive_integer(num_samples, "num_samples")
        return _analytic_divergence(self._draw_chain(S, seed))

    def function_variances(self, X: InputData, num_samples: int = 100) -> list[tf.Tensor]:
        """
        How uncertain the function of each layer is: the variance of its values over the posterior, the law of
        its inputs included, averaged over the points (compositional uncertainty, Ober & Aitchison 2021,
        Appendix I). Near zero in a layer whose posterior has collapsed to one function.

        :param X: inputs [N, D].
        :return: [T_l] for each layer, or [H, W, C] of images.
        """
        X, layers = self._as_matrix(X), self._random_layers
        S, L = check_positive_integer(num_samples, "num_samples"), len(layers)
        shapes = self._point_shapes(S, tf.shape(X)[0], L)
        count = len(shapes)
        shapes += self._inducing_shapes(S, L, training=False)
        noise = standard_normals(shapes, [self.seed, 1])
        prepared = self._propagate_inducing(noise[count:])

        def of_points(X: tf.Tensor, *points: tf.Tensor) -> tuple[tf.Tensor, ...]:
            draws = self._by_layer([tf.transpose(x, [1, 0, 2]) for x in points], L)
            steps = walk(layers, self._passage(prepared), X, draws)
            return tuple(
                tf.math.reduce_variance(mean, axis=0) + tf.reduce_mean(variance, axis=0)
                for mean, variance in (step.conditional for step in steps)
            )

        rows = [X, *(tf.transpose(x, [1, 0, 2]) for x in noise[:count])]
        each = in_parts(of_points, rows, part_size(S, self._width), L)
        return [tf.reduce_mean(variances, axis=0) for variances in each]

    # What is prepared.

    def _kl_weight(self) -> TensorType:
        return self.kl_weight() if callable(self.kl_weight) else self.kl_weight

    @property
    def _num_sampled(self) -> int:
        return len(self._random_layers) - (self.estimator == "marginal")

    def _prepare(self, noise: Sequence[tf.Tensor] = ()) -> Chain:
        """The chain of given draws; that of predictions, whose draws are always the same, without them."""
        if noise:
            return self._propagate_inducing(noise)
        return self._prepare_predictions(self.num_prediction_samples, [self.seed, 0])

    def _prepare_predictions(self, num_samples: int, seed: TensorType) -> Chain:
        return self._draw_chain(num_samples, seed)

    def _num_drawn(self, prepared: Chain) -> int | None:
        hidden = len(self._random_layers) - 1
        is_drawn = bool(self._inducing_shapes(None, hidden, training=False))
        return prepared.num_samples if is_drawn else None

    def _draw_chain(
        self, num_samples: int, seed: TensorType | None = None, num_sampled: int | None = None
    ) -> Chain:
        """
        A new chain.

        :param num_sampled: layers that are sampled; by default all but the last.
        """
        num_sampled = len(self._random_layers) - 1 if num_sampled is None else num_sampled
        shapes = self._inducing_shapes(num_samples, num_sampled, training=False)
        return self._propagate_inducing(standard_normals(shapes, seed, tf.float64))

    def _draw_functions(self, num_samples: int, seed: TensorType | None = None) -> Chain:
        """Likewise of new functions. Given the draws below, the last layer is integrated out in any case."""
        return self._draw_chain(num_samples, seed)

    def _divergence(self, prepared: Chain, passage: Passage | None = None) -> tf.Tensor:
        """KL divergence from the prior, or its estimate: summed over the layers, averaged over the draws."""
        if self.estimator != "monte_carlo":
            return _analytic_divergence(prepared)
        terms = [-ratio for ratio in prepared.log_ratios]
        for q, draws, noise in zip(prepared.conditionals, prepared.draws, prepared.noise):
            terms.append(q.prior_kl() if draws is None else -q.log_ratio(draws, noise))
        return _average(terms)

    # Predictions.

    def _prediction(self, prepared: Chain, num_samples: int | None, noise: Noise) -> Prediction:
        hidden = len(self._random_layers) - 1
        if noise is not None:
            points, inducing = self._noise(noise, 1, hidden)
            prepared = self._prepare(inducing) if inducing else prepared
        else:
            if num_samples is not None and self._num_drawn(prepared) not in (None, num_samples):
                S = check_positive_integer(num_samples, "num_samples")
                prepared = self._prepare_predictions(S, [self.seed, 0])
            points = self._prediction_noise(prepared.num_samples)
        log_weights = equal_log_weights(prepared.num_samples)
        return prepared, self._by_layer(points, hidden), log_weights

    def _sample_f(
        self, X: tf.Tensor, num_samples: int, full_cov: bool, prepared: Chain
    ) -> tf.Tensor:
        # The chain at hand is of other draws: new functions need new ones.
        if not full_cov:
            prepared = self._draw_functions(num_samples)
        return super()._sample_f(X, num_samples, full_cov, prepared)


def functions_of_chain(
    layers: Sequence[GPLayer], chain: Chain, seed: tf.Tensor, num_features: int
) -> list[LayerFunctions]:
    """Draws of the layers' functions, given those of all of their inducing outputs."""
    seeds = tf.random.experimental.stateless_split(seed, len(layers))
    return [
        LayerFunctions(layer, q.prior_factor, v, seeds[index], num_features, U)
        for index, (layer, q, v, U) in enumerate(
            zip(layers, chain.conditionals, chain.draws, chain.inputs)
        )
    ]


class GivenInducing(Passage):
    """
    Through layers of GPs, point by point, given the inducing points' own way (Algorithm 2, its lines on F).
    """

    def __init__(self, chain: Chain) -> None:
        self._chain = chain
        self._index = 0

    def condition(
        self, layer: GPLayer, inputs: tf.Tensor, below: Conditional | None
    ) -> Conditional:
        index, self._index = self._index, self._index + 1
        Kuf, prior_variance = layer.covariances(inputs, self._chain.inputs[index])
        explained = _explain(self._chain, index, Kuf)
        mean = explained.mean + layer.latent_mean(inputs)
        self._conditional = Conditional(mean, explained.variance(prior_variance))
        return self._conditional

    def sample(self, noise: TensorType | None) -> tf.Tensor:
        return sample_gaussians(self._conditional, noise)


def explain_by_chain(chain: Chain) -> Callable[[int, Layer, tf.Tensor], Explained]:
    """What a chain says of whole functions, as :class:`JointPassage` asks it."""

    def explain(index: int, layer: Layer, inputs: tf.Tensor) -> Explained:
        Kuf, _ = layer.covariances(inputs, chain.inputs[index])
        return _explain(chain, index, Kuf)

    return explain


def _explain(chain: Chain, index: int, Kuf: tf.Tensor) -> Explained:
    """What a layer's inducing outputs say of other values: given their draws where they were drawn."""
    conditional = chain.conditionals[index]
    if index == len(chain.draws):
        return conditional.explain(Kuf)
    A = tf.linalg.triangular_solve(conditional.prior_factor, Kuf)
    mean = rows_times(chain.draws[index], A)
    return Explained(tf.linalg.matrix_transpose(mean), A, None)


def condition_gps(
    layer: GPLayer, q: LayerPosterior, U: tf.Tensor, noise: list[tf.Tensor], chain: Chain
) -> tf.Tensor | None:
    """
    Condition a layer's inducing outputs on its inducing inputs, in float64, and draw them.

    :param U: inducing inputs [S or 1, M, D].
    :param noise: standard normals, of which it takes its own; it draws nothing where none is left.
    :param chain: gets what was found.
    :return: the draw [S, M, T], if there is one.
    """
    U = tf.cast(U, tf.float64)
    mean = tf.linalg.matrix_transpose(layer.latent_mean(U))
    K, factor = layer.factorise_at(U)
    conditional = q.condition(K, factor, mean)
    chain.inputs.append(U)
    chain.conditionals.append(conditional)
    if not noise:
        return None
    own = tuple(tf.cast(noise.pop(0), U.dtype) for _ in range(q.num_noise))
    v = conditional.sample(own)
    chain.draws.append(v)
    chain.noise.append(own)
    u = mean + rows_times(v, conditional.prior_factor, transpose=True)
    return tf.linalg.matrix_transpose(u)


def in_default_float(chain: Chain) -> Chain:
    """The chain as the data's path takes it."""
    return cast_all(chain, gpflow.default_float())


def _analytic_divergence(chain: Chain) -> tf.Tensor:
    return _average([*chain.divergences, *(q.prior_kl() for q in chain.conditionals)])


def _average(terms: Sequence[tf.Tensor]) -> tf.Tensor:
    """Of terms [S or 1] one a layer: summed over the layers, averaged over the draws."""
    return tf.add_n([tf.cast(tf.reduce_mean(term), gpflow.default_float()) for term in terms])
