"""Deep GPs whose inducing inputs are propagated through the layers (Ober & Aitchison 2021)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import gpflow
import tensorflow as tf
from gpflow.base import InputData, Parameter, TensorType
from gpflow.likelihoods import Likelihood

from ..layers import GPLayer, Layer
from ..numerics.draws import standard_normals
from ..numerics.linalg import rows_times
from ..posteriors.base import Conditional
from ..posteriors.explained import Explained
from ..posteriors.layerwise import IndependentGaussian, LayerPosterior
from ..posteriors.mixture import Noise, equal_log_weights
from ..posteriors.pseudo_observations import PseudoObservations
from ..validation import check_positive_integer
from .global_inducing_parts import (
    LayerPosteriors,
    build_posteriors,
    inducing_points,
    place_inducing_inputs,
)
from .passage import JointPassage, Passage, sample_gaussians, walk
from .variational import VariationalDeepGPModel

__all__ = ["GlobalInducingDeepGP"]

_ESTIMATORS = ("marginal", "analytic_kl", "monte_carlo")


class Chain(NamedTuple):
    """The inducing points on their way through the layers: all that no other input enters."""

    inputs: list[tf.Tensor]  # per layer its inducing inputs U_{l-1} [S or 1, M, D]
    conditionals: list[Any]  # per layer q(U_l | U_{l-1}), an InducingConditional
    draws: list[tf.Tensor]  # whitened U_l [S, T, M], of all layers but perhaps the last


class GlobalInducingDeepGP(VariationalDeepGPModel):
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
        self._name_parts()

    @property
    def inducing_posterior(self) -> list[LayerPosterior]:
        """q(U_l | U_{l-1}) of each layer."""
        return self.inducing_posteriors

    @property
    def variational_params(self) -> list[tuple[Parameter, Parameter]]:
        """
        The (q_mu, q_sqrt) pairs that ``gpflow.optimizers.NaturalGradient`` takes, of the layers whose
        posterior is an ``IndependentGaussian``.

        :raises NotImplementedError: where none is.
        """
        pairs = [
            (q.q_mu, q.q_sqrt)
            for q in self.inducing_posteriors
            if isinstance(q, IndependentGaussian)
        ]
        if not pairs:
            raise NotImplementedError(
                "gpflow.optimizers.NaturalGradient updates q_mu and q_sqrt, which pseudo-observations have"
                " not: their parameters are pseudo-outputs and precisions. Train them with Adam."
            )
        return pairs

    @tf.autograph.experimental.do_not_convert
    def prior_kl(self, num_samples: int | None = None, seed: TensorType | None = None) -> tf.Tensor:
        """
        KL divergence of the posterior of all inducing outputs from their prior: exact for one layer, else
        averaged over S draws of those of the layers below each.

        :param num_samples: S; the model's own by default.
        :param seed: as for :meth:`draw_noise`.
        """
        S = self.num_samples
        if num_samples is not None:
            S = check_positive_integer(num_samples, "num_samples")
        chain = self._draw_chain(S, seed)
        return _average([q.prior_kl() for q in chain.conditionals])

    # What is prepared, and the passage.

    def _kl_weight(self) -> TensorType:
        return self.kl_weight() if callable(self.kl_weight) else self.kl_weight

    @property
    def _num_sampled(self) -> int:
        return len(self.layers) - (self.estimator == "marginal")

    def _inducing_shapes(
        self, num_samples: TensorType | None, num_layers: int, training: bool = False
    ) -> list[list[TensorType | None]]:
        return [
            [num_samples, q.num_latent_gps, q.num_inducing]
            for q in self.inducing_posteriors[:num_layers]
            for _ in range(q.num_noise)
        ]

    def _prepare(self, noise: Sequence[tf.Tensor] = ()) -> Chain:
        """The chain of given draws; that of predictions, whose draws are always the same, without them."""
        if noise or len(self.layers) == 1:
            return self._propagate_inducing(noise)
        return self._draw_chain(self.num_prediction_samples, [self.seed, 0])

    def _draw_chain(self, num_samples: int, seed: TensorType | None = None) -> Chain:
        shapes = self._inducing_shapes(num_samples, len(self.layers) - 1)
        return self._propagate_inducing(standard_normals(shapes, seed, tf.float64))

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
            mean = tf.cast(layer.latent_mean(tf.cast(U, gpflow.default_float())), U.dtype)
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

    def _divergence(self, prepared: Chain, passage: Passage) -> tf.Tensor:
        """KL divergence from the prior, or its estimate: summed over the layers, averaged over the draws."""
        if self.estimator == "monte_carlo":
            return _average(
                [-q.log_ratio(v) for q, v in zip(prepared.conditionals, prepared.draws)]
            )
        return _average([q.prior_kl() for q in prepared.conditionals])

    def _passage(self, prepared: Chain, full_output_cov: bool = False) -> Passage:
        return _GivenInducing(_in_default_float(prepared))

    def _joint_passage(
        self,
        prepared: Chain,
        num_samples: int,
        seed: TensorType | None,
        marginal: bool,
        full_output_cov: bool = False,
    ) -> Passage:
        # The chain at hand is of other draws: new functions need new ones. Given the draws of the layers
        # below, the last layer's inducing outputs are integrated out in any case.
        chain = prepared if marginal else self._draw_chain(num_samples, seed)
        chain = _in_default_float(chain)

        def explain(index: int, layer: Layer, inputs: tf.Tensor) -> Explained:
            Kuf, _ = layer.covariances(inputs, chain.inputs[index])
            return _explain(chain, index, Kuf)

        return JointPassage(explain, full_output_cov=full_output_cov)

    def _prediction(
        self, prepared: Chain, num_samples: int | None, noise: Noise
    ) -> tuple[Any, list[TensorType], tf.Tensor]:
        if noise is not None:
            points, inducing = self._noise(noise, 1, len(self.layers) - 1)
            if len(self.layers) > 1:
                prepared = self._propagate_inducing(inducing)
        else:
            if num_samples not in (None, _num_samples(prepared)) and prepared.draws:
                S = check_positive_integer(num_samples, "num_samples")
                prepared = self._draw_chain(S, [self.seed, 0])
            points = self._prediction_noise(_num_samples(prepared))
        return prepared, points, equal_log_weights(_num_samples(prepared))

    def _sample_f(
        self, X: tf.Tensor, num_samples: int, full_cov: bool, prepared: Chain
    ) -> tf.Tensor:
        if not full_cov:
            prepared = self._draw_chain(num_samples)
        return super()._sample_f(X, num_samples, full_cov, prepared)

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
        shapes = self._point_shapes(S, tf.shape(X)[0], L) + self._inducing_shapes(S, L)
        noise = standard_normals(shapes, [self.seed, 1])
        passage = self._passage(self._propagate_inducing(noise[L:]))
        return [
            tf.reduce_mean(tf.math.reduce_variance(mean, axis=0), axis=0)
            + tf.reduce_mean(variance, axis=[0, 1])
            for mean, variance in (
                step.conditional for step in walk(self.layers, passage, X, noise[:L])
            )
        ]


class _GivenInducing(Passage):
    """Point by point, given the inducing points' own way through the layers (Algorithm 2, its lines on F)."""

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


def _average(terms: Sequence[tf.Tensor]) -> tf.Tensor:
    """Of terms [S or 1] one a layer: summed over the layers, averaged over the draws."""
    total = tf.add_n([tf.reduce_mean(term) for term in terms])
    return tf.cast(total, gpflow.default_float())
