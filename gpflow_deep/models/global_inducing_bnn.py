"""Bayesian neural networks with global inducing points (Ober & Aitchison 2021)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import gpflow
import tensorflow as tf
from gpflow.base import Module, TensorType
from gpflow.likelihoods import Likelihood

from ..layers import GPLayer
from ..layers.bayesian import BayesianLayer, NetworkLayer, random_layers
from ..layers.bayesian import walk as walk_network
from ..numerics.draws import standard_normals
from ..numerics.linalg import leading_shape, standard_deviation
from ..posteriors.base import Conditional
from ..posteriors.explained import independent_covariances
from ..posteriors.weights import GlobalInducingWeights
from ..validation import check_positive_integer
from .functions import DrawnFunctions, FunctionPassage
from .inducing_chain import (
    Chain,
    GivenInducing,
    InducingChainModel,
    condition_gps,
    explain_by_chain,
    functions_of_chain,
    in_default_float,
)
from .network_parts import (
    NetworkPosteriors,
    build_weight_posteriors,
    connect_layers,
    image_inputs,
    uses_inducing_inputs,
)
from .passage import JointPassage, Passage

__all__ = ["GlobalInducingBNN"]


class GlobalInducingBNN(InducingChainModel):
    r"""
    A Bayesian neural network whose posterior knows in each layer what the layers below it do: inducing inputs
    U_0 are carried through the network with the weights drawn, and
    :math:`q(W_l | U_{l-1}) \propto p(W_l) N(V_l; U_{l-1} W_l, \Lambda_l^{-1})` (Ober & Aitchison 2021,
    Algorithm 1). Other posteriors can take this one's place, layer by layer. The last layer can be one of
    GPs, whose inputs the network learns.

    >>> from gpflow_deep.layers.bayesian import Activation
    >>> layers = [gd.layers.BayesianDense(8), Activation(), gd.layers.BayesianDense(1)]
    >>> model = gd.models.GlobalInducingBNN(layers, gpflow.likelihoods.Gaussian(0.1), X[::4])
    >>> model.predict_f(X)[0].shape
    TensorShape([20, 1])

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
        :class:`GlobalInducingDeepGP`. The initial V, and Lambda of the last layer, are the
        model's own, whatever the function sets.
    :param pseudo_outputs: initial pseudo-observations at the output [M, P], such as the targets of inputs
        U_0; zero by default.
    :param estimator: of the bound. All three have one expectation. "marginal" (the default) integrates the
        last layer out and takes the divergences given the inducing inputs analytically; "analytic_kl" samples
        the last layer too; "monte_carlo" is the paper's: it samples everything, log ratios included.
        ``MultiClass``, whose density is all steps, takes the first alone.
    :param kl_weight: weight of the divergences in what training maximises: a number, or a function without
        arguments, which is called where a graph is made, so once in compiled training: let it read a
        ``tf.Variable``. :meth:`elbo` is the bound whatever it is. For a schedule
        :func:`gpflow_deep.training.fit` takes ``tempering``.
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
        inputs = image_inputs(inducing_inputs)
        layers, shape = connect_layers(layers, inputs, input_shape)
        super().__init__(
            layers,
            likelihood,
            estimator=estimator,
            kl_weight=kl_weight,
            num_samples=num_samples,
            num_prediction_samples=num_prediction_samples,
            num_data=num_data,
            seed=seed,
            name=name,
        )
        self.inducing_inputs = inputs
        self._input_shape = tf.TensorShape(shape)
        self.inducing_posteriors = build_weight_posteriors(
            posterior,
            self.layers,
            0 if inputs is None else inputs.shape[0],
            pseudo_outputs,
            self.seed,
        )
        used = any(uses_inducing_inputs(q) for q in self.inducing_posteriors)
        if inputs is not None and inputs is not inducing_inputs and not used:
            gpflow.set_trainable(inputs, False)  # else it would be one without a gradient

    @property
    def _random_layers(self) -> list[BayesianLayer | GPLayer]:
        return random_layers(self.layers)

    @property
    def _input_dim(self) -> int:
        return int(self._input_shape.num_elements())

    @property
    def _width(self) -> int:
        return max(self._input_dim, *(layer.num_latent_gps for layer in self._random_layers))

    # The draws. First those of points: in training for the layers with local reparameterisation, and for a
    # sampled layer of GPs. Then for each layer those of its prior precision, and of its weights or inducing
    # outputs where these are sampled.

    def _draws_points(self, num_layers: int, training: bool) -> list[bool]:
        """Of as many layers, which draw their outputs point by point."""
        pairs = zip(self._random_layers[:num_layers], self.inducing_posteriors)
        return [
            isinstance(layer, GPLayer) or (training and _draws_outputs(q)) for layer, q in pairs
        ]

    def _point_shapes(
        self,
        num_samples: int | None,
        num_data: TensorType | None,
        num_layers: int,
        training: bool = False,
    ) -> list[list[TensorType | None]]:
        pairs = zip(self._random_layers, self._draws_points(num_layers, training))
        return [[num_samples, num_data, layer.num_latent_gps] for layer, drawn in pairs if drawn]

    def _by_layer(
        self, points: Sequence[TensorType], num_layers: int, training: bool = False
    ) -> list[TensorType | None]:
        remaining = iter(points)
        drawn = self._draws_points(num_layers, training)
        return [next(remaining) if own else None for own in drawn]

    def _prediction_noise(self, num_samples: int | None) -> list[TensorType]:
        return []

    def _inducing_shapes(
        self, num_samples: TensorType | None, num_layers: int, training: bool
    ) -> list[list[TensorType | None]]:
        shapes: list[list[TensorType | None]] = []
        for index, (layer, q) in enumerate(zip(self._random_layers, self.inducing_posteriors)):
            if isinstance(layer, GPLayer):
                own = [[num_samples, q.num_latent_gps, q.num_inducing]] * q.num_noise
            else:
                shapes += layer.prior.noise_shapes(num_samples)
                own = q.noise_shapes(num_samples)
            if index < num_layers and not (training and _draws_outputs(q)):
                shapes += own
        return shapes

    # What is prepared.

    def _prepare_training(self, noise: Sequence[tf.Tensor]) -> Chain:
        return self._propagate_inducing(noise, training=True)

    def _propagate_inducing(self, noise: Sequence[tf.Tensor], training: bool = False) -> Chain:
        """Algorithm 1: condition, sample, apply."""
        remaining, chain = list(noise), Chain([], [], [], [], [], [])
        U0 = self.inducing_inputs
        path = None if U0 is None else walk_network(self.layers, tf.convert_to_tensor(U0)[None])
        outputs = None
        for index, (layer, q) in enumerate(zip(self._random_layers, self.inducing_posteriors)):
            U = None if path is None else path.send(outputs)
            if isinstance(layer, GPLayer):
                condition_gps(layer, q, U, remaining, chain)
                continue
            precision = layer.prior.draw(
                _take(remaining, layer.prior.noise_shapes(None)), layer.fan_in
            )
            design = layer.design(U) if q.uses_inducing_inputs else None
            conditional = q.condition(design, precision.precision)
            chain.conditionals.append(conditional)
            chain.log_ratios.append(precision.log_ratio)
            chain.divergences.append(precision.kl)
            if training and _draws_outputs(q) and index < self._num_sampled:
                chain.draws.append(None)
                chain.noise.append(())
                weights = conditional.mean  # no posterior above looks at what it makes of U
            elif remaining:
                own = _take(remaining, q.noise_shapes(None))
                weights = conditional.sample(own)
                chain.draws.append(weights)
                chain.noise.append(own)
            else:
                break
            outputs = None if U is None else layer.apply(U, weights)
        return chain

    def _draw_functions(self, num_samples: int, seed: TensorType | None = None) -> Chain:
        """With all weights drawn, functions are known everywhere; those of GPs are not."""
        L = len(self._random_layers)
        return self._draw_chain(num_samples, seed, L - isinstance(self.layers[-1], GPLayer))

    # The passage.

    def _passage(self, prepared: Chain, full_output_cov: bool = False) -> Passage:
        chain = in_default_float(prepared)
        return _GivenWeights(self.layers, self._input_shape, chain, GivenInducing(_of_gps(chain)))

    def _joint_passage(
        self,
        prepared: Chain,
        num_samples: int,
        seed: TensorType | None,
        marginal: bool,
        full_output_cov: bool = False,
    ) -> Passage:
        chain = prepared if marginal else self._draw_functions(num_samples, seed)
        chain = in_default_float(chain)
        explain = explain_by_chain(_of_gps(chain))
        gps = JointPassage(explain, full_output_cov=full_output_cov)
        return _GivenWeights(
            self.layers, self._input_shape, chain, gps, full_output_cov if marginal else None
        )

    def _draw_layer_functions(
        self, num_samples: int, seed: tf.Tensor, num_features: int
    ) -> DrawnFunctions:
        own = tf.random.experimental.stateless_split(seed, 2)
        chain = in_default_float(self._draw_chain(num_samples, own[0], len(self._random_layers)))
        gps = [layer for layer in self.layers if isinstance(layer, GPLayer)]
        functions = functions_of_chain(gps, _of_gps(chain), own[1], num_features) if gps else []

        def passage() -> Passage:
            top = FunctionPassage(functions)
            return _GivenWeights(self.layers, self._input_shape, chain, top)

        return DrawnFunctions(passage, max((function.width for function in functions), default=1))

    def _sample_f(
        self, X: tf.Tensor, num_samples: int, full_cov: bool, prepared: Chain
    ) -> tf.Tensor:
        # What is known everywhere is coherent, point by point.
        full_cov = full_cov and isinstance(self.layers[-1], GPLayer)
        return super()._sample_f(X, num_samples, full_cov, prepared)

    # What the posterior and the prior say of the weights.

    def weight_variances(self, num_samples: int = 100) -> list[tf.Tensor]:
        """
        Variance of each weight over the posterior, the prior precision and the layers below included.

        :return: [T, D] for each layer with weights.
        """
        S = check_positive_integer(num_samples, "num_samples")
        draws = self._draw_chain(S, [self.seed, 1], len(self._random_layers)).draws
        return [
            tf.math.reduce_variance(weights, axis=0)
            for layer, weights in zip(self._random_layers, draws)
            if not isinstance(layer, GPLayer)
        ]

    def _sample_prior(self, X: tf.Tensor, S: int, seed: TensorType | None) -> list[tf.Tensor]:
        shapes: list[list[Any]] = []
        for layer in self._random_layers:
            if isinstance(layer, GPLayer):
                shapes.append([S, tf.shape(X)[0], layer.num_latent_gps])
            else:
                shapes += [*layer.prior.noise_shapes(S), [S, layer.num_outputs, layer.fan_in]]
        remaining, draws = standard_normals(shapes, seed), []
        path, outputs = walk_network(self.layers, tf.reshape(X, [1, -1, *self._input_shape])), None
        for layer in self._random_layers:
            F = path.send(outputs)
            if isinstance(layer, GPLayer):
                F = tf.broadcast_to(F, [S, *tf.unstack(tf.shape(F)[1:])])
                outputs = layer.sample_prior(F, remaining.pop(0))
            else:
                noise = _take(remaining, layer.prior.noise_shapes(None))
                precision = layer.prior.draw(noise, layer.fan_in, from_prior=True).precision
                outputs = layer.apply(F, precision.unwhiten(remaining.pop(0)))
            draws.append(outputs)
        return draws


class _GivenWeights(Passage):
    """
    Inputs on their way through the network with a chain's weights; what is between the random layers is
    passed on the way from one to the next.

    :param input_shape: of a point.
    :param gps: the passage through a last layer of GPs.
    :param joint: whether to have for a last layer of weights that are integrated out the covariance of the
        points and, if True, of the outputs; ``None`` for the variances.
    """

    def __init__(
        self,
        layers: Sequence[NetworkLayer | GPLayer],
        input_shape: tf.TensorShape,
        chain: Chain,
        gps: Passage,
        joint: bool | None = None,
    ) -> None:
        self._layers, self._input_shape, self._chain = layers, input_shape, chain
        self._gps, self._joint = gps, joint
        self._conditionals, self._draws = iter(chain.conditionals), iter(chain.draws)

    def condition(
        self, layer: BayesianLayer | GPLayer, inputs: tf.Tensor, below: Conditional | None
    ) -> Conditional:
        if below is None:
            shape = [*leading_shape(inputs), *self._input_shape]
            self._path = walk_network(self._layers, tf.reshape(inputs, shape))
            inputs = next(self._path)
        else:
            inputs = self._path.send(inputs)
        self._at_gps = isinstance(layer, GPLayer)
        if isinstance(layer, GPLayer):
            return self._gps.condition(layer, inputs, below)
        self._conditional = Conditional(*self._moments(layer, inputs))
        return self._conditional

    def _moments(self, layer: BayesianLayer, inputs: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        conditional, weights = next(self._conditionals), next(self._draws, _INTEGRATED_OUT)
        if weights is _INTEGRATED_OUT:
            features = layer.features(inputs)
            if self._joint is None:
                return conditional.moments(features)
            mean, covariance = conditional.joint_moments(
                features
            )  # of the points, [S, 1 or T, N, N]
            if self._joint:
                covariance = independent_covariances(covariance, layer.num_outputs)
            return mean, covariance
        if weights is None:
            variance = layer.apply(tf.square(inputs), conditional.variance)
            return layer.apply(inputs, conditional.mean), variance
        mean = layer.apply(inputs, weights)
        return mean, tf.zeros_like(mean)

    def sample(self, noise: TensorType | None) -> tf.Tensor:
        if self._at_gps:
            return self._gps.sample(noise)
        mean, variance = self._conditional
        if noise is None:
            return mean
        noise = tf.reshape(noise, [-1, *tf.unstack(tf.shape(mean)[1:])])
        return mean + standard_deviation(variance) * noise


_INTEGRATED_OUT = object()


def _of_gps(chain: Chain) -> Chain:
    """A chain from the last layer on."""
    last = len(chain.conditionals) - 1
    return chain._replace(conditionals=chain.conditionals[last:], draws=chain.draws[last:])


def _draws_outputs(q: Any) -> bool:
    """Whether training draws outputs rather than weights."""
    return getattr(q, "local_reparameterisation", False)


def _take(noise: list[tf.Tensor], shapes: Sequence[Any]) -> tuple[tf.Tensor, ...]:
    return tuple(tf.cast(noise.pop(0), gpflow.default_float()) for _ in shapes)
