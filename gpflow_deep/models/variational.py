"""Models with an evidence lower bound, whose points travel through the layers by draws or by sites."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import gpflow
import tensorflow as tf
from check_shapes import check_shapes
from gpflow.base import InputData, RegressionData, TensorType
from gpflow.likelihoods import Likelihood

from ..layers import Layer
from ..likelihoods import log_prob
from ..likelihoods.monte_carlo import have_seed, new_nodes
from ..numerics.draws import standard_normals
from ..posteriors.mixture import (
    Mixture,
    Noise,
    equal_log_weights,
    sample_joint_mixture,
    sample_mixture,
)
from ..posteriors.mixture_predictor import Prediction
from ..validation import as_draws, check_finite, check_noise, check_positive_number
from .base import LayerOutput
from .draws import DrawingDeepGPModel, draws_are_new
from .passage import Passage, walk
from .sites import QuadratureSites

__all__ = ["VariationalDeepGPModel"]

_PACKAGE = __name__.partition(".")[0] + "."


class VariationalDeepGPModel(DrawingDeepGPModel):
    """
    A deep GP whose objective takes standard normal draws, unless its points travel by sites.

    Draws are given, everywhere, in one order: [S, N, T_l] for each layer that is sampled, input first; then
    [S, T_l, M_l] for inducing outputs, where these are sampled too. A caller fixes all of them, or those of
    the points in as many of the first layers as it likes: the others are drawn.

    :param num_sites: number of learned sites, by which points travel through the layers; by default they
        are sampled.
    :param predictive_objective: train for the log density of the predictive mixture rather than for the
        evidence lower bound; a number is the weight of the KL divergence, beta.
    """

    def __init__(
        self,
        layers: Sequence[Layer],
        likelihood: Likelihood,
        *,
        num_sites: int | None = None,
        predictive_objective: bool | float = False,
        **settings: Any,
    ) -> None:
        super().__init__(layers, likelihood, **settings)
        self.sites: QuadratureSites | None = None
        if num_sites is not None:
            widths = [layer.num_latent_gps for layer in self.layers[:-1]]
            self.sites = QuadratureSites(num_sites, widths, seed=self.seed)
        self.predictive_objective, self.beta = predictive_objective is not False, 1.0
        if not isinstance(predictive_objective, bool):
            self.beta = check_positive_number(predictive_objective, "predictive_objective")

    # What a family says.

    @abstractmethod
    def _divergence(self, prepared: Any, passage: Passage) -> tf.Tensor:
        """KL divergence of the approximate posterior from the prior, after a passage of a batch."""

    @property
    def _num_sampled(self) -> int:
        """How many layers training samples."""
        return len(self._random_layers) - 1

    def _prepare_training(self, noise: Sequence[tf.Tensor]) -> Any:
        """What :meth:`_prepare` prepares, for the objective."""
        return self._prepare(noise)

    def _training_passage(self, prepared: Any, X: tf.Tensor, Y: tf.Tensor, is_new: bool) -> Passage:
        """
        A pass through the layers, for the objective.

        :param is_new: whether draws are new, and not to be the same when parameters change.
        """
        del X, Y, is_new  # by default as in predictions
        return self._passage(prepared)

    def _fit(
        self, passage: Any, X: tf.Tensor, f: Mixture, Y: tf.Tensor, predictive: bool
    ) -> tf.Tensor:
        """What the objective sums over the points, [N]: how well functions that a passage led to fit."""
        del passage
        term = self._log_density if predictive else self._expected_log_likelihood
        return term(X, f, Y)

    def _inducing_shapes(
        self, num_samples: TensorType | None, num_layers: int, training: bool
    ) -> list[list[TensorType | None]]:
        """Of the draws of inducing outputs that :meth:`_prepare` takes for as many layers."""
        del num_samples, num_layers, training
        return []

    # The objective.

    @tf.autograph.experimental.do_not_convert
    @check_shapes(
        "return: []",
    )
    def elbo(self, data: RegressionData, noise: Noise = None) -> tf.Tensor:
        r"""
        The evidence lower bound,
        :math:`\tfrac{N}{|B|} \sum_n \sum_s w_s E[\log p(y_n | f^L_{ns})] - KL`, with equal weights w unless
        points travel by sites. It is the bound whatever training maximises; a subclass's own is maximised in
        its place, where divergences are not weighted. A subclass's own ``prior_kl()`` is the divergence, and
        of its own ``predict_f`` the moments are what fits the data, whatever draws there are, as in SVGP. An
        ``AmortizedDeepGP`` has its paper's objective here, which is no bound on the evidence.

        :param data: inputs [N, D] and targets [N, P].
        :param noise: the draws of :meth:`draw_noise`; drawn if not given. None where points travel by sites.
        """
        return self._objective(data, noise, predictive=False, kl_weight=1.0)

    @tf.autograph.experimental.do_not_convert
    def maximum_log_likelihood_objective(
        self, data: RegressionData, noise: Noise = None, tempering: TensorType = 1.0
    ) -> tf.Tensor:
        """
        What training maximises: the ELBO, or the predictive objective.

        :param noise: as for :meth:`elbo`.
        :param tempering: factor of the divergence, [].
        """
        kl_weight = _weight(tempering) * _weight(self._kl_weight())
        if not self.predictive_objective and isinstance(kl_weight, float) and kl_weight == 1.0:
            # By its name, which a subclass may have given another meaning, as of GPflow's models.
            return self.elbo(data) if noise is None else self.elbo(data, noise=noise)
        return self._objective(data, noise, self.predictive_objective, kl_weight)

    def _kl_weight(self) -> TensorType:
        """Of the divergence in training."""
        return self.beta

    def _objective(
        self, data: RegressionData, noise: Noise, predictive: bool, kl_weight: TensorType
    ) -> tf.Tensor:
        X, Y = self._check_data(data)
        # A step of training knows the draws that it makes, too.
        N, is_new = _num_rows(X), draws_are_new(noise) or have_seed()
        noise = self.draw_noise(N) if noise is None else noise
        points, inducing = self._noise(noise, N, self._num_sampled, training=True)
        points = self._by_layer(points, self._num_sampled, training=True)
        prepared = self._prepare_training(inducing)
        passage = self._training_passage(prepared, X, Y, is_new)
        output = walk(self._random_layers, passage, X, points)[-1]
        if self._own_moments is not None:
            mean, variance = self.predict_f(X)
            f = Mixture(mean[None], variance[None], equal_log_weights(1))
            with new_nodes(is_new):
                fit = VariationalDeepGPModel._fit(self, passage, X, f, Y, predictive)
        elif output.sample is None:
            mean, variance = self._marginals(output)
            f = Mixture(mean, variance, self._log_weights(tf.shape(mean)[0]))
            with new_nodes(is_new):
                fit = self._fit(passage, X, f, Y, predictive)
        else:
            fit = self._log_density_of_draws(X, self._draws(output), Y)
        divergence = self._trained_divergence(prepared, passage)
        return tf.reduce_sum(fit) * self._scale(tf.shape(X)[0]) - kl_weight * divergence

    def _trained_divergence(self, prepared: Any, passage: Passage) -> tf.Tensor:
        """The divergence that training weighs: by the `prior_kl` of a user's class, as in GPflow."""
        own: Any = getattr(self, "prior_kl", None)
        if own is None or getattr(own, "__module__", "").startswith(_PACKAGE):
            return self._divergence(prepared, passage)
        return own()

    def _log_density_of_draws(self, X: tf.Tensor, F: tf.Tensor, Y: tf.Tensor) -> tf.Tensor:
        """Average over the draws [S, N, P] of the log density of each observation, [N]."""

        def density(
            likelihood: Likelihood, X: tf.Tensor, F: tf.Tensor, _: tf.Tensor, Y: tf.Tensor
        ) -> tf.Tensor:
            return log_prob(likelihood, X, F, Y)

        f = Mixture(F, tf.zeros_like(F), equal_log_weights(tf.shape(F)[0]))
        return tf.reduce_mean(self._through_likelihood(density, X, f, Y), axis=0)

    @tf.autograph.experimental.do_not_convert
    @check_shapes(
        "X: [N, D]",
    )
    def propagate(self, X: InputData, noise: Noise = None) -> list[LayerOutput]:
        """
        Draws of every layer, or its values at the sites, with the conditionals that they come from.

        :param X: inputs.
        :param noise: standard normal draws, [S, N, T_l] for each layer, or for as many of the first ones as
            are to be fixed; where inducing outputs are sampled too, then [S, T_l, M_l] for each of them. None
            where points travel by sites, but the output layer's are drawn.
        """
        X, L = check_finite(self._as_matrix(X, "X"), "X"), len(self._random_layers)
        points, inducing = self._noise(noise, _num_rows(X), L)
        passage = self._passage(self._prepare(inducing))
        steps = walk(self._random_layers, passage, X, self._by_layer(points, L))
        return self._layer_outputs(steps)

    # Predictions.

    def _prepare_predictions(self, num_samples: int, seed: TensorType) -> Any:
        """What predictions take; where inducing outputs are drawn, of so many draws with this seed."""
        del num_samples, seed  # by default none are
        return self._prepare()

    def _num_drawn(self, prepared: Any) -> int | None:
        """The number of draws of inducing outputs in what was prepared; ``None`` where none are drawn."""
        del prepared
        return None

    def _prediction(self, prepared: Any, num_samples: int | None, noise: Noise) -> Prediction:
        hidden = len(self._random_layers) - 1
        if noise is not None or self.sites is not None:
            points, inducing = self._noise(noise, 1, hidden)
            if inducing:
                prepared = self._prepare(inducing)
        else:
            points = self._prediction_noise(num_samples)
        S = next((z.shape[0] for z in points if z.shape[0]), 1)
        return prepared, points, self._log_weights(S)

    def _sample_f(self, X: tf.Tensor, num_samples: int, full_cov: bool, prepared: Any) -> tf.Tensor:
        if self.sites is not None:
            return self._sample_components(X, num_samples, full_cov, prepared)
        return super()._sample_f(X, num_samples, full_cov, prepared)

    def _sample_components(
        self, X: tf.Tensor, num_samples: int, full_cov: bool, prepared: Any
    ) -> tf.Tensor:
        """Draws [S, N, P] from the mixture that is predicted: of the GPs, mixed where their layer mixes."""
        if full_cov:
            step, sample = self._last_joint_step(X, prepared), sample_joint_mixture
        else:
            prediction = self._prediction(prepared, None, None)
            step, sample = self._last_step(X, prediction), sample_mixture
        mean, covariance = step.conditional
        log_weights = self._log_weights(tf.shape(mean)[0])
        mixture = Mixture(self._mixed(mean, step), covariance, log_weights)
        return sample(mixture, num_samples, self.layers[-1].mixing)

    def _log_weights(self, num_samples: TensorType) -> tf.Tensor:
        return super()._log_weights(num_samples) if self.sites is None else self.sites.log_weights()

    # Draws.

    def _training_shapes(
        self, num_samples: int, num_data: TensorType
    ) -> list[list[TensorType | None]]:
        if self.sites is not None:
            return []
        shapes = self._point_shapes(num_samples, num_data, self._num_sampled, training=True)
        return shapes + self._inducing_shapes(num_samples, self._num_sampled, training=True)

    def _noise(
        self,
        noise: Noise,
        num_data: TensorType,
        num_layers: int,
        training: bool = False,
    ) -> tuple[list[TensorType], list[TensorType]]:
        """
        The draws, or sites, of the points in as many layers, and the draws of inducing outputs.

        :param noise: those that a caller gives.
        :param num_data: number of points; 1 for draws that are the same for all of them.
        """
        if self.sites is not None:
            return self._site_noise(noise, num_data, num_layers), []
        given = as_draws(noise)
        known = num_data if isinstance(num_data, int) and num_data != 1 else None
        shapes = self._point_shapes(None, known, len(self._random_layers), training)
        inducing = self._inducing_shapes(None, num_layers, training)
        num_points = len(self._point_shapes(None, known, num_layers, training))
        count = len(given) - len(inducing)
        if count in (num_points, len(shapes)):  # there may be draws of the output layer, not used
            given = check_noise(given, [*shapes[:count], *inducing])
        else:
            count = len(given)
            points_alone = count <= len(shapes)
            given = check_noise(
                given, shapes[:count] if points_alone else [*shapes[:num_points], *inducing]
            )
        points, inducing_noise = given[:count][:num_points], given[count:]
        S = tf.shape(given[0])[0] if given else self.num_samples
        missing = self._point_shapes(S, num_data, num_layers, training)[len(points) :]
        split = len(missing)
        if not inducing_noise:
            missing += self._inducing_shapes(S, num_layers, training)
        drawn = standard_normals(missing)
        return [*points, *drawn[:split]], [*inducing_noise, *drawn[split:]]

    def _site_noise(self, noise: Noise, num_data: TensorType, num_layers: int) -> list[TensorType]:
        """The sites [S, 1, T_l] of hidden layers; draws for the last one, where it is sampled too."""
        assert self.sites is not None
        given = as_draws(noise)
        if given:
            raise ValueError(
                f"noise: expected none, as points travel by learned sites, got {len(given)} tensors."
            )
        shapes = self._point_shapes(self.sites.num_sites, num_data, num_layers)
        return [*self.sites.noise(), *standard_normals(shapes[len(self.layers) - 1 :])]


def _num_rows(X: tf.Tensor) -> TensorType:
    """Of a matrix: a number where it is known by now."""
    return tf.shape(X)[0] if X.shape[0] is None else int(X.shape[0])


def _weight(value: TensorType) -> TensorType:
    """A number as it is, since a cast would take it through float32; a tensor in the default float."""
    return value if isinstance(value, (int, float)) else tf.cast(value, gpflow.default_float())
