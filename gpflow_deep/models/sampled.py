"""Deep GPs whose inducing outputs are sampled by Markov chains."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import gpflow
import numpy as np
import tensorflow as tf
from check_shapes import check_shapes
from gpflow.base import InputData, Parameter, RegressionData, TensorType
from gpflow.likelihoods import Likelihood

from ..layers import GPLayer, Layer
from ..layers.gp_layer import check_inducing_variables
from ..likelihoods import predict_log_density, variational_expectations
from ..likelihoods.monte_carlo import new_nodes
from ..numerics.draws import standard_normals
from ..posteriors.explained import Explained, explain_by_outputs
from ..posteriors.mixture import Mixture, Noise, equal_log_weights
from ..posteriors.mixture_predictor import Prediction
from ..posteriors.monte_carlo import MonteCarloRecursion
from ..posteriors.records import Record
from ..posteriors.sampled import SampledPosterior, spread
from ..validation import (
    check_choice,
    check_noise,
    check_number,
    check_positive_integer,
    check_positive_number,
)
from .base import LayerOutput
from .convergence import JudgesConvergence
from .draws import DrawingDeepGPModel, draws_are_new
from .functions import DrawnFunctions, through_own_points
from .passage import JointPassage, MarginalPassage, Passage, walk

__all__ = ["SampledDeepGP"]

_OBSERVATION_TERMS = {"predictive": predict_log_density, "variational": variational_expectations}


class Prepared(NamedTuple):
    """All that a pass through the layers needs and that no input enters."""

    factors: list[tf.Tensor]  # per layer the Cholesky factor of K_MM
    states: list[tf.Tensor]  # per layer v [S, T, M], one for each component


class SampledDeepGP(JudgesConvergence, DrawingDeepGPModel):
    r"""
    A deep GP whose whitened inducing outputs v of all layers are sampled from their posterior (Havasi,
    Hernández-Lobato & Murillo-Fuentes 2018, *Inference in deep Gaussian processes using stochastic gradient
    Hamiltonian Monte Carlo*):

    .. math::
        \log p(v | Y) = \sum_n E_{f^{L-1}_n | v} [t(y_n, f^{L-1}_n, v^L)] + \log N(v; 0, I) + const .

    The observations' term t is either log p(y | f^{L-1}, v^L), the last layer integrated out, as in that
    paper, or E[log p(y | f^L)]. With the second the posterior is the best of all q(v), Gaussian or not, for
    the evidence lower bound of the other families (Hensman, Matthews, Filippone & Ghahramani 2015), and the
    hyperparameters are those of that bound; with the first, in the last layer, those of FITC, whose noise
    may fall to nothing (Bauer, van der Wilk & Rasmussen 2016).

    Several chains run side by side. :func:`gpflow_deep.training.fit` moves them by
    :class:`gpflow_deep.optimizers.SGHMC` and takes from the same gradient a step of Adam on the
    hyperparameters, at the present states or at earlier ones: Monte Carlo EM. Predictions are mixtures over
    the kept states, or over the present ones where the chains were assigned others since. For samplers of
    one's own there is :meth:`log_posterior_density`.

    >>> layers = gd.layers.build_layers(X, hidden_dims=(1,), num_inducing=5)
    >>> model = gd.models.SampledDeepGP(layers, gpflow.likelihoods.Gaussian(0.1), num_chains=3)
    >>> model.log_joint((X, Y)).shape  # of each chain's state
    TensorShape([3])

    :param layers: the layers, input first; see :func:`gpflow_deep.layers.build_layers`.
    :param likelihood: any GPflow likelihood.
    :param observation_term: "predictive", which predicts better on most data, or "variational", see above.
    :param num_chains: C.
    :param num_samples: draws of the hidden layers per point and chain in training.
    :param num_data: size of the whole training set, for minibatches.
    :param keep_every: steps from one kept state of a chain to the next. The last quarter of the steps that
        ``fit`` takes, after its burn-in, has ``num_chains / keep_every`` states a step: where
        ``num_prediction_samples`` are more, each predicts several times.
    :param burn_in_share: of the steps that ``fit`` takes, those of burn-in, where it makes the sampler: three
        quarters.
    :param window: of how many last states of a chain one, drawn at random, is where a step of the
        hyperparameters takes its gradient. At 1, the present state, it comes with the chains' own, and the
        hyperparameters follow soonest; at states that are older they can fit none in particular, for a second
        evaluation. The paper has 100.
    :param step_size: of the sampler that ``fit`` makes, see :class:`gpflow_deep.optimizers.SGHMC`.
    :param momentum_decay: likewise.
    :param num_prediction_samples: components of the predicted mixture, and kept states of all chains.
    :param covariance_jitter: added to the variance of a layer's draws; GPflow's default jitter.
    :param seed: of the draws that predictions are made with, and of the chains' start.
    :raises ValueError: where layers and likelihood do not fit each other.
    """

    layer_type = GPLayer
    layers: list[GPLayer]

    def __init__(
        self,
        layers: Sequence[GPLayer],
        likelihood: Likelihood,
        *,
        observation_term: str = "predictive",
        num_chains: int = 4,
        num_samples: int = 1,
        num_data: int | None = None,
        keep_every: int = 20,
        window: int = 1,
        step_size: float = 0.05,
        momentum_decay: float = 0.01,
        burn_in_share: float = 0.75,
        num_prediction_samples: int = 100,
        covariance_jitter: float | None = None,
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
        check_inducing_variables(self.layers)
        terms = list(_OBSERVATION_TERMS)
        self.observation_term = check_choice(observation_term, "observation_term", terms)
        self.keep_every = check_positive_integer(keep_every, "keep_every")
        self.window = check_positive_integer(window, "window")
        self.step_size = check_positive_number(step_size, "step_size")
        self.momentum_decay = check_number(momentum_decay, "momentum_decay", 0.0, 1.0)
        self.burn_in_share = check_number(burn_in_share, "burn_in_share", 0.0, 1.0)
        num_chains = check_positive_integer(num_chains, "num_chains")
        self.inducing_posterior = SampledPosterior(
            self.layers,
            num_chains,
            -(-self.num_prediction_samples // num_chains),
            window=self.window,
            seed=self.seed,
        )
        if covariance_jitter is None:
            covariance_jitter = gpflow.config.default_jitter()
        self.covariance_jitter = covariance_jitter
        self._name_parts()

    @property
    def _settings_of_predictions(self) -> tuple[Any, ...]:  # type: ignore[override]
        return (*super()._settings_of_predictions, self.covariance_jitter)

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """What is part of the model: not what is only kept with it."""
        return tuple(p for p in super().parameters if not isinstance(p, Record))

    # The objective.

    @tf.autograph.experimental.do_not_convert
    def maximum_log_likelihood_objective(
        self, data: RegressionData, noise: Noise = None
    ) -> tf.Tensor:
        """
        The mean of :meth:`log_joint` over the chains: what sampling, and learning of hyperparameters, follow.

        With a window it is that of the states which were recalled, and so is its gradient with respect to
        the hyperparameters; that with respect to the chains is the one at the present states.

        :param noise: as for :meth:`log_joint`.
        """
        q = self.inducing_posterior
        if not q.recalled:
            return tf.reduce_mean(self.log_joint(data, noise))
        if noise is None:
            noise = self.draw_noise(tf.shape(data[0])[0])
        states = [tf.convert_to_tensor(v) for v in q.chains]
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(states)
            objective = tf.reduce_mean(self._log_joint(data, noise, states))
        slopes = map(tf.stop_gradient, tape.gradient(objective, states))
        nothing = [tf.reduce_sum(g * (v - tf.stop_gradient(v))) for g, v in zip(slopes, states)]
        return tf.reduce_mean(self._log_joint(data, noise, q.recalled)) + tf.add_n(nothing)

    @tf.autograph.experimental.do_not_convert
    @check_shapes(
        "return: [C]",
    )
    def log_joint(self, data: RegressionData, noise: Noise = None) -> tf.Tensor:
        r"""
        Log density of data and inducing outputs at each chain's state, or an unbiased estimate of it:
        :math:`\tfrac{N}{|B|} \sum_n \tfrac1S \sum_s t(y_n, f^{L-1}_{ns}, v^L) + \log N(v; 0, I)`.

        :param data: inputs [N, D] and targets [N, P].
        :param noise: the draws of :meth:`draw_noise`; drawn if not given.
        """
        return self._log_joint(data, noise, self.inducing_posterior.chains)

    def _log_joint(
        self, data: RegressionData, noise: Noise, states: Sequence[TensorType]
    ) -> tf.Tensor:
        """Of each chain's state [C, T, M]."""
        X, Y = self._check_data(data)
        N, q = tf.shape(X)[0], self.inducing_posterior
        points = self.draw_noise(N) if noise is None else self._check_points(noise, X.shape[0])
        S = _per_chain(points[0], q.num_chains) if points else self.num_samples
        drawn = [tf.repeat(tf.convert_to_tensor(v), S, axis=0) for v in states]
        output = walk(self.layers, self._passage(Prepared(self._factors(), drawn)), X, points)[-1]
        mean, variance = self._marginals(output)
        f = Mixture(mean, variance, equal_log_weights(tf.shape(mean)[0]))
        with new_nodes(draws_are_new(noise)):
            terms = self._through_likelihood(_OBSERVATION_TERMS[self.observation_term], X, f, Y)
        by_chain = tf.reshape(tf.reduce_sum(terms, axis=-1), [q.num_chains, S])
        return tf.reduce_mean(by_chain, axis=-1) * self._scale(N) + q.log_prior(states)

    @tf.autograph.experimental.do_not_convert
    @check_shapes(
        "return: []",
    )
    def log_posterior_density(self, data: RegressionData, noise: Noise = None) -> tf.Tensor:
        """
        Log density, up to a constant, of all that is trainable given the data: the target of a Hamiltonian
        sampler, through ``gpflow.optimizers.SamplingHelper``. It is the sum of :meth:`log_joint` over the
        chains, each a sample of its own, and the log prior of the hyperparameters, if there is one chain.

        It is a function of the state, as such a sampler needs: hidden layers have the draws of the model's
        ``seed``, the same at every call and for all chains. The more of them (``num_samples``), the nearer it
        is to what training has new draws of at every step.

        :param data: inputs [N, D] and targets [N, P], all of them.
        :param noise: as for :meth:`log_joint`, in place of these draws.
        :raises ValueError: where several chains have trainable hyperparameters, which no density is right
            for: they would see the data once for each chain.
        """
        C = self.inducing_posterior.num_chains
        if C > 1 and (free := self._trainable_hyperparameters()):
            raise ValueError(
                f"num_chains: expected 1 where hyperparameters are sampled too, got {C}: each of the chains"
                " would count the data for them again. Make the model with num_chains=1, or fix"
                f" {', '.join(free[:3])}{', ...' if len(free) > 3 else ''} by"
                " gpflow.set_trainable(model.layers, False) and the like."
            )
        if noise is None:
            noise = self._same_draws(tf.shape(data[0])[0], self.num_samples, self.seed)
        return self._log_density_of_states(data, noise)

    def _log_density_of_states(self, data: RegressionData, noise: Noise) -> tf.Tensor:
        """Of the states of all chains, and of hyperparameters that are those of a single one."""
        return tf.reduce_sum(self.log_joint(data, noise)) + self.log_prior_density()

    def _same_draws(self, N: int | tf.Tensor, num_samples: int, seed: int) -> list[tf.Tensor]:
        """Draws of the hidden layers that are the same at every call and for all chains."""
        draws = self.draw_noise(N, num_samples, [seed, 0])
        return [tf.tile(z, [self.inducing_posterior.num_chains, 1, 1]) for z in draws]

    def _trainable_hyperparameters(self) -> list[str]:
        """Their names: of all that is trainable but the chains."""
        chains = {id(chain) for chain in self.inducing_posterior.chains}
        named = gpflow.utilities.parameter_dict(self).items()
        return [name for name, p in named if p.trainable and id(p) not in chains]

    @tf.autograph.experimental.do_not_convert
    def log_prior_density(self) -> tf.Tensor:
        """Of the hyperparameters; that of the chains' states is part of :meth:`log_joint`."""
        chains = {id(chain) for chain in self.inducing_posterior.chains}
        terms = [p.log_prior_density() for p in self.trainable_parameters if id(p) not in chains]
        return tf.add_n([tf.zeros([], gpflow.default_float()), *terms])

    @property
    def _num_training_draws(self) -> int:
        return self.inducing_posterior.num_chains * self.num_samples

    def _training_shapes(
        self, num_samples: int | None, num_data: TensorType | None
    ) -> list[list[TensorType | None]]:
        return self._point_shapes(num_samples, num_data, len(self.layers) - 1)

    def _check_points(self, noise: Sequence[TensorType], num_data: int | None) -> list[tf.Tensor]:
        return check_noise(noise, self._training_shapes(None, num_data))

    # What is prepared, and the passage.

    def _factors(self) -> list[tf.Tensor]:
        return [layer.factorise() for layer in self.layers]

    def _prepare(self, noise: Sequence[tf.Tensor] = ()) -> Prepared:
        q = self.inducing_posterior
        return Prepared(self._factors(), q.thinned(q.states(), self.num_prediction_samples))

    def _passage(self, prepared: Prepared, full_output_cov: bool = False) -> Passage:
        factors = [None if layer.whiten else f for layer, f in zip(self.layers, prepared.factors)]
        states = self._unwhitened(prepared)
        recursion = MonteCarloRecursion(states, factors, self.covariance_jitter)
        return MarginalPassage(prepared.factors, recursion)

    def _unwhitened(self, prepared: Prepared) -> list[tf.Tensor]:
        """The states in the layers' own coordinates, function values where these do not whiten."""
        return [
            v if layer.whiten else tf.linalg.matvec(factor, v)
            for layer, factor, v in zip(self.layers, *prepared)
        ]

    @tf.autograph.experimental.do_not_convert
    @check_shapes(
        "X: [N, D]",
    )
    def propagate(self, X: InputData, noise: Noise = None) -> list[LayerOutput]:
        """
        Draws of every layer at the states that predict, with the conditionals that they come from.

        :param X: inputs.
        :param noise: standard normal draws, [S, N, T_l] for each layer, or for as many of the first ones as
            are to be fixed; by default S is the number of prediction samples.
        """
        X = self._as_matrix(X, "X")
        given = list(noise or ())
        shapes = self._point_shapes(None, X.shape[0], len(self.layers))[: len(given)]
        given = check_noise(given, shapes)
        S = given[0].shape[0] if given else self.num_prediction_samples
        missing = self._point_shapes(S, tf.shape(X)[0], len(self.layers))[len(given) :]
        prepared = self._some(self._prepare(), S)
        points = [*given, *standard_normals(missing)]
        return self._layer_outputs(walk(self.layers, self._passage(prepared), X, points))

    # Predictions.

    def _prediction(self, prepared: Prepared, num_samples: int | None, noise: Noise) -> Prediction:
        S = self.num_prediction_samples
        if noise:
            given = self._check_points(noise, None)
            S = int(given[0].shape[0])
            return self._some(prepared, S), [*given], equal_log_weights(S)
        S = S if num_samples is None else check_positive_integer(num_samples, "num_samples")
        return self._some(prepared, S), self._prediction_noise(S), equal_log_weights(S)

    def _prediction_noise(self, num_samples: int | None) -> list[TensorType]:
        # States come in turn from every chain, and the draws in turn from every part of the space: a chain
        # would meet with one part only.
        even = super()._prediction_noise(num_samples)
        order = np.random.default_rng(self.seed).permutation(even[0].shape[0]) if even else None
        return [z[order] for z in even]

    @property
    def _num_joint_samples(self) -> int:
        return self.num_prediction_samples

    def _joint_passage(
        self,
        prepared: Prepared,
        num_samples: int,
        seed: TensorType | None,
        marginal: bool,
        full_output_cov: bool = False,
    ) -> Passage:
        del marginal  # given a state nothing is left of the last layer's inducing outputs
        prepared = self._some(prepared, num_samples, random=seed is None)
        states = self._unwhitened(prepared)

        def explain(index: int, layer: Layer, inputs: tf.Tensor) -> Explained:
            return explain_by_outputs(layer, inputs, prepared.factors[index], states[index])

        return JointPassage(explain, full_output_cov=full_output_cov)

    def _draw_layer_functions(
        self, num_samples: int, seed: tf.Tensor, num_features: int
    ) -> DrawnFunctions:
        factors, states = self._prepare()
        own = tf.random.experimental.stateless_split(seed, 2)
        index = tf.random.stateless_uniform([num_samples], own[0], 0, states[0].shape[0], tf.int32)
        drawn = [tf.gather(v, index) for v in states]
        return through_own_points(self.layers, factors, drawn, own[1], num_features)

    def _sample_f(
        self, X: tf.Tensor, num_samples: int, full_cov: bool, prepared: Prepared
    ) -> tf.Tensor:
        if not full_cov:
            prepared = self._some(prepared, num_samples, random=True)
        return super()._sample_f(X, num_samples, full_cov, prepared)

    def _some(self, prepared: Prepared, num_samples: int, random: bool = False) -> Prepared:
        """With as many of the states: new draws of them, or evenly spread ones."""
        if not random:
            return prepared._replace(states=[spread(v, num_samples) for v in prepared.states])
        index = tf.random.uniform([num_samples], maxval=prepared.states[0].shape[0], dtype=tf.int32)
        return prepared._replace(states=[tf.gather(v, index) for v in prepared.states])


def _per_chain(noise: tf.Tensor, num_chains: int) -> int:
    """How many of the draws are each chain's."""
    S = int(noise.shape[0])
    if S % num_chains:
        raise ValueError(
            f"noise: expected a multiple of {num_chains} draws, one for each chain, got {S}."
        )
    return S // num_chains
