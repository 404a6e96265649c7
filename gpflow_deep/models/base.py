"""What the models of all families share: GPflow's training interface and predictions."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import gpflow
import tensorflow as tf
from check_shapes import check_shapes
from gpflow.base import InputData, Parameter, TensorType
from gpflow.likelihoods import Likelihood
from gpflow.models import BayesianModel, ExternalDataTrainingLossMixin, GPModel
from gpflow.posteriors import PrecomputeCacheType

from ..layers import Layer
from ..likelihoods import variational_expectations
from ..numerics.draws import quasi_normals, standard_normals
from ..numerics.parts import in_parts, part_size
from ..posteriors.base import Conditional
from ..posteriors.mixture import Mixture, equal_log_weights
from ..posteriors.mixture_predictor import MixturePredictor, Prediction
from ..posteriors.predictive import DeepGPPosterior
from ..posteriors.records import Record
from ..validation import (
    as_num_data,
    check_finite,
    check_number,
    check_positive_integer,
    check_seed,
)
from .checks import check_layers, check_likelihood, mark_in_use
from .closures import check_source, over_batches
from .functions import SamplesFunctions
from .one_layer import OneLayerNames
from .passage import Passage, Step, walk
from .sharing import warn_of_shared_parameters

__all__ = ["DeepGPModel", "LayerOutput"]

#: What numbers have to be, whenever they are assigned.
_CHECKED: dict[str, Callable[[Any], Any]] = {
    "num_samples": partial(check_positive_integer, name="num_samples"),
    "num_prediction_samples": partial(check_positive_integer, name="num_prediction_samples"),
    "num_data": as_num_data,
    "seed": check_seed,
    "covariance_jitter": partial(check_number, name="covariance_jitter", low=0.0),
}


class LayerOutput(NamedTuple):
    """
    A layer's draws and the conditional they come from.

    >>> layers = gd.layers.build_layers(X, hidden_dims=(2,), num_inducing=5)
    >>> model = gd.models.DeepGP(layers, gpflow.likelihoods.Gaussian(0.01), num_samples=3)
    >>> hidden, output = model.propagate(X)
    >>> hidden.sample.shape, output.mean.shape
    (TensorShape([3, 20, 2]), TensorShape([3, 20, 1]))
    """

    sample: tf.Tensor  # [S, N, T]
    mean: tf.Tensor  # [S, N, T]
    covariance: tf.Tensor  # [S, N, T, T], or its diagonal [S, N, T] where the rest is zero


class DeepGPModel(
    MixturePredictor, SamplesFunctions, OneLayerNames, GPModel, ExternalDataTrainingLossMixin
):
    """
    A model of layers of GPs with external data: GPflow's training interface over a mixture's predictions.

    A family says what it prepares that no input enters, and what a passage of points through the layers is
    (:mod:`gpflow_deep.models.passage`). Layers are the caller's own: a model does not copy them, as GPflow's
    models do not copy kernels, and says so once where another model uses them too.

    >>> layers = gd.layers.build_layers(X, hidden_dims=(2,), num_inducing=5)
    >>> model = gd.models.DeepGP(layers, gpflow.likelihoods.Gaussian(0.01))
    >>> isinstance(model, gd.models.DeepGPModel), isinstance(model, gpflow.models.GPModel)
    (True, True)
    >>> model.predict_f_samples(X, num_samples=3).shape
    TensorShape([3, 20, 1])
    >>> [draws.shape for draws in model.sample_prior(X, num_samples=3)]
    [TensorShape([3, 20, 2]), TensorShape([3, 20, 1])]

    :param layers: the layers, input first.
    :param likelihood: any GPflow likelihood.
    :param num_samples: draws per point in training.
    :param num_prediction_samples: components of the predicted mixture.
    :param num_data: size of the whole training set, for minibatches; as in SVGP, ``None`` means that
        every batch is all there is, and a scalar variable may change.
    :param seed: of the draws that predictions are made with.
    """

    layer_type: type[Layer] = Layer  # type: ignore[type-abstract]
    """The kind of layers that the model is made of."""

    def __init__(
        self,
        layers: Sequence[Layer],
        likelihood: Likelihood,
        *,
        num_samples: int,
        num_prediction_samples: int,
        num_data: int | None,
        seed: int,
        name: str | None = None,
    ) -> None:
        # GPModel's own constructor wants one kernel and one mean function.
        BayesianModel.__init__(self, name=name)  # type: ignore[call-arg]
        self._made_in = gpflow.default_float()
        self.layers = check_layers(layers, self.layer_type)
        self.likelihood = likelihood
        self.num_latent_gps = self.layers[-1].num_latent_gps
        self.num_samples, self.num_prediction_samples = num_samples, num_prediction_samples
        self.num_data, self.seed = num_data, seed
        self._check_sharing()

    def __setattr__(self, name: str, value: Any) -> None:
        # Whenever they are assigned: what does not fit would fail in the midst of training, or not at all.
        if name in _CHECKED:
            value = _CHECKED[name](value)
        elif name == "likelihood" and hasattr(self, "layers"):
            check_likelihood(value, self._output_dim)
        elif name == "layers":
            mark_in_use(value)
        super().__setattr__(name, value)

    @property
    def trainable_variables(self) -> tuple[tf.Variable, ...]:
        """What an optimiser or a sampler moves: none that is only kept, whatever was set trainable."""
        records = self._flatten(predicate=lambda part: isinstance(part, Record))
        kept = {id(record.unconstrained_variable) for record in records}
        return tuple(v for v in super().trainable_variables if id(v) not in kept)

    def _check_sharing(self) -> None:
        warn_of_shared_parameters(self)

    @property
    def _random_layers(self) -> Sequence[Any]:
        """The layers that points are walked through: those with GPs, or weights, of their own."""
        return self.layers

    @property
    def variational_params(self) -> list[tuple[Parameter, Parameter]]:
        """
        The (q_mu, q_sqrt) pairs that ``gpflow.optimizers.NaturalGradient`` takes.

        :raises NotImplementedError: where the posterior is no Gaussian by such pairs.
        """
        raise NotImplementedError(
            f"gpflow.optimizers.NaturalGradient updates q_mu and q_sqrt: {type(self).__name__} has other"
            " parameters. Train it with Adam, as gpflow_deep.training.fit does."
        )

    # What a family says.

    @abstractmethod
    def _prepare(self, noise: Sequence[tf.Tensor] = ()) -> Any:
        """
        All that a pass through the layers needs and that no input enters.

        :param noise: standard normal draws for what is sampled here, where something is.
        """

    @abstractmethod
    def _passage(self, prepared: Any, full_output_cov: bool = False) -> Passage:
        """
        A pass through the layers, point by point.

        :param full_output_cov: whether the last layer's covariance over its outputs is asked for.
        """

    def _drawing_passage(self, prepared: Any) -> Passage:
        """Likewise, by draws of every layer, for families whose points travel in another way."""
        return self._passage(prepared)

    @abstractmethod
    def _joint_passage(
        self,
        prepared: Any,
        num_samples: int,
        seed: TensorType | None,
        marginal: bool,
        full_output_cov: bool = False,
    ) -> Passage:
        """
        A pass of whole functions through the layers, coherent over all points.

        :param seed: of the draws of inducing outputs; ``None`` for new ones.
        :param marginal: whether the last layer's inducing outputs are integrated out, or drawn.
        """

    # Predictions.

    def posterior(
        self, precompute_cache: PrecomputeCacheType | None = PrecomputeCacheType.TENSOR
    ) -> DeepGPPosterior:
        """
        The predictive posterior, with all that does not depend on the inputs computed once: its
        predictions are the model's, and faster. After a change of the model call ``update_cache()``:
        until then, as with GPflow's posteriors, the old cache meets the new kernels.

        :param precompute_cache: see :class:`DeepGPPosterior`; ``None`` for no cache.
        """
        return DeepGPPosterior(self, precompute_cache)

    def _mixture(
        self,
        X: tf.Tensor,
        prediction: Prediction,
        full_output_cov: bool = False,
    ) -> Mixture:
        step, log_weights = self._last_step(X, prediction, full_output_cov), prediction[2]
        if not full_output_cov:
            return Mixture(*self._marginals(step), log_weights)
        mean, covariance = self._output(step)
        if covariance.shape.rank == 3:
            covariance = tf.linalg.diag(covariance)
        return Mixture(mean, covariance, log_weights)

    def _joint_mixture(self, X: tf.Tensor, prepared: Any, full_output_cov: bool = False) -> Mixture:
        W = self.layers[-1].mixing
        step = self._last_joint_step(X, prepared, full_output_cov or W is not None)
        mean, covariance = self._mixed(step.conditional.mean, step), step.conditional.covariance
        if W is not None:
            covariance = tf.einsum("pt,sitju,qu->sipjq", W, covariance, W)
            if not full_output_cov:
                covariance = tf.einsum("sipjp->spij", covariance)
        return Mixture(mean, covariance, self._log_weights(tf.shape(mean)[0]))

    def _last_step(
        self, X: tf.Tensor, prediction: Prediction, full_output_cov: bool = False
    ) -> Step:
        """What a prediction's passage leaves at the last layer."""
        prepared, noise, _ = prediction
        return walk(self._random_layers, self._passage(prepared, full_output_cov), X, noise)[-1]

    def _last_joint_step(self, X: tf.Tensor, prepared: Any, full_output_cov: bool = False) -> Step:
        """Likewise one of whole functions, always the same ones."""
        S = self._num_joint_samples
        seeds = tf.random.experimental.stateless_split([self.seed, 0], 2)
        passage = self._joint_passage(prepared, S, seeds[0], True, full_output_cov)
        noise = self._joint_noise(X, S, len(self._random_layers) - 1, seeds[1])
        step = walk(self._random_layers, passage, X, noise)[-1]
        mean, covariance = step.conditional
        # Draws of one layer's inducing outputs have one covariance given them.
        shape = tf.concat([tf.shape(mean)[:1], tf.shape(covariance)[1:]], axis=0)
        return step._replace(conditional=Conditional(mean, tf.broadcast_to(covariance, shape)))

    @property
    def _num_joint_samples(self) -> int:
        """How many draws of whole functions a covariance over points is made of."""
        return self.num_prediction_samples if len(self._random_layers) > 1 else 1

    def _log_weights(self, num_samples: TensorType) -> tf.Tensor:
        """Of the components of a mixture."""
        return equal_log_weights(num_samples)

    def _joint_noise(
        self, X: tf.Tensor, num_samples: int, num_layers: int, seed: TensorType | None = None
    ) -> list[TensorType | None]:
        """Of the functions of as many layers, given their inducing outputs: [S, N, T_l] each."""
        shapes = self._point_shapes(num_samples, tf.shape(X)[0], num_layers)
        return self._by_layer(standard_normals(shapes, seed), num_layers)

    def _sample_f(self, X: tf.Tensor, num_samples: int, full_cov: bool, prepared: Any) -> tf.Tensor:
        sample = self._sample_jointly if full_cov else self._sample_point_by_point
        return sample(X, num_samples, prepared)

    def _sample_jointly(self, X: tf.Tensor, num_samples: int, prepared: Any) -> tf.Tensor:
        """New draws [S, N, P] of the last layer's functions, coherent over the points."""
        passage = self._joint_passage(prepared, num_samples, None, False)
        noise = self._joint_noise(X, num_samples, len(self._random_layers))
        return self._draws(walk(self._random_layers, passage, X, noise)[-1])

    def _sample_point_by_point(self, X: tf.Tensor, num_samples: int, prepared: Any) -> tf.Tensor:
        """Likewise each point by itself."""
        L = len(self._random_layers)

        def part(X: tf.Tensor) -> tuple[tf.Tensor, ...]:
            shapes = self._point_shapes(num_samples, tf.shape(X)[0], L)
            points = self._by_layer(standard_normals(shapes), L)
            passage = self._drawing_passage(prepared)
            return (self._draws(walk(self._random_layers, passage, X, points)[-1]),)

        return in_parts(part, [X], part_size(num_samples, self._width), 1, axis=1)[0]

    def _output(self, step: Step) -> Conditional:
        """The last layer's outputs: its GPs, mixed where its kernel says so."""
        W, (mean, covariance) = self.layers[-1].mixing, step.conditional
        if W is None:
            return step.conditional
        if covariance.shape.rank == 3:
            covariance = tf.linalg.diag(covariance)
        return Conditional(self._mixed(mean, step), tf.einsum("pt,sntu,qu->snpq", W, covariance, W))

    def _mixed(self, functions: tf.Tensor, step: Step) -> tf.Tensor:
        """Likewise values [S, N, P] of them, for those of the GPs, [S, N, T]."""
        layer = self.layers[-1]
        if layer.mixing is None:
            return functions
        return tf.matmul(functions, layer.mixing, transpose_b=True) + layer.prior_mean(step.inputs)

    def _marginals(self, step: Step) -> tuple[tf.Tensor, tf.Tensor]:
        """Likewise mean and variances, [S, N, P] both."""
        mean, covariance = self._output(step)
        if covariance.shape.rank == 3:
            return mean, covariance
        # Not `diag_part`: TensorFlow cannot vectorise its gradient for unknown numbers of rows.
        P = covariance.shape[-1]
        flat = tf.reshape(covariance, tf.concat([tf.shape(covariance)[:2], [P * P]], axis=0))
        return mean, flat[..., :: P + 1]

    def _draws(self, step: Step) -> tf.Tensor:
        """Likewise the draws."""
        return self._mixed(step.sample, step)

    def _layer_outputs(self, steps: Sequence[Step]) -> list[LayerOutput]:
        """What a walk that drew all layers left at them, for all S samples."""
        S = tf.shape(steps[-1].sample)[0]

        def broadcast(x: tf.Tensor) -> tf.Tensor:
            return tf.broadcast_to(x, tf.concat([[S], tf.shape(x)[1:]], axis=0))

        outputs = [(step.sample, *step.conditional) for step in steps[:-1]]
        outputs.append((self._draws(steps[-1]), *self._output(steps[-1])))
        return [LayerOutput(*map(broadcast, output)) for output in outputs]

    @tf.autograph.experimental.do_not_convert
    @check_shapes(
        "X: [N, D]",
    )
    def sample_prior(
        self, X: InputData, num_samples: int = 1, seed: TensorType | None = None
    ) -> list[tf.Tensor]:
        """
        Draws of every layer from the prior, jointly over the points: what the model believes before it has
        seen targets, depth by depth.

        :param X: inputs.
        :param num_samples: number of draws, S.
        :param seed: ``None`` for new draws at each call, or an integer, or two, of which they are a pure
            function; compiled by XLA, whose generator is another one, another function.
        :return: [S, N, T_l] for each layer, or [S, N, H, W, C] of images.
        """
        X = check_finite(self._as_matrix(X, "X"), "X")
        return self._sample_prior(X, check_positive_integer(num_samples, "num_samples"), seed)

    def _sample_prior(self, X: tf.Tensor, S: int, seed: TensorType | None) -> list[tf.Tensor]:
        inputs, draws = tf.broadcast_to(X, [S, *tf.unstack(tf.shape(X))]), []
        shapes = self._point_shapes(S, tf.shape(X)[0], len(self._random_layers))
        variances = self._noise_variances
        noise = standard_normals([*shapes, *shapes[: len(variances)]], seed)
        for index, layer in enumerate(self._random_layers):
            below = inputs
            inputs = layer.sample_prior(below, noise[index])
            if index < len(variances):
                inputs += tf.sqrt(variances[index]) * noise[len(shapes) + index]
            draws.append(inputs)
        draws[-1] = self._draws(Step(inputs, Conditional(inputs, inputs), below))
        return draws

    @property
    def _noise_variances(self) -> Sequence[TensorType]:
        """Of the noise that outputs of the first layers have on top, where they have any."""
        return []

    def _point_shapes(
        self,
        num_samples: int | None,
        num_data: TensorType | None,
        num_layers: int,
        training: bool = False,
    ) -> list[list[TensorType | None]]:
        """Of the draws that points take on their way through as many layers."""
        del training  # by default the same as in predictions
        layers = self._random_layers[:num_layers]
        return [[num_samples, num_data, layer.num_latent_gps] for layer in layers]

    def _by_layer(
        self, points: Sequence[TensorType], num_layers: int, training: bool = False
    ) -> list[TensorType | None]:
        """Such draws as a walk takes them, one for each layer: ``None`` where a layer has none."""
        del num_layers, training  # by default every layer has one
        return list(points)

    def _prediction_noise(self, num_samples: int | None) -> list[TensorType]:
        """
        Draws [S, 1, T_l] for each layer but the last, the same for all points: each point's mixture is as
        good as with draws of its own, and a prediction does not depend on the points beside it.
        """
        S = self.num_prediction_samples
        if num_samples is not None:
            S = check_positive_integer(num_samples, "num_samples")
        widths = [layer.num_latent_gps for layer in self._random_layers[:-1]]
        return [z[:, None, :] for z in quasi_normals(S, widths, self.seed)] if widths else []

    @property
    def _settings_of_predictions(self) -> tuple[Any, ...]:  # type: ignore[override]
        return self.num_prediction_samples, self.seed

    # Training.

    def training_loss_closure(
        self, data: Any, *, compile: bool = True, seed: int | None = None
    ) -> Callable[[], tf.Tensor]:
        """
        GPflow's closure of the training loss.

        :param data: inputs and targets, or an iterator over batches of them.
        :param compile: whether to wrap it in a ``tf.function``.
        :param seed: of draws that are the same at every call: the loss is then a function of the parameters
            alone, as ``gpflow.optimizers.Scipy`` needs it, which on fresh draws stops after a few steps
            and reports success. By default every call has new draws; where a family draws nothing it has
            no effect.
        """
        if seed is not None:
            check_seed(seed)
        check_source(data)
        if isinstance(data, Iterator) and not isinstance(data, tf.data.Iterator):
            return over_batches(self.training_loss, data, compile)
        return ExternalDataTrainingLossMixin.training_loss_closure(self, data, compile=compile)

    def _expected_log_likelihood(self, X: tf.Tensor, f: Mixture, Y: tf.Tensor) -> tf.Tensor:
        """Weighted average of the expected log-likelihood of each observation, [N]."""
        expectations = self._through_likelihood(variational_expectations, X, f, Y)  # [S, N]
        return tf.linalg.matvec(expectations, tf.exp(f.log_weights), transpose_a=True)

    def _scale(self, batch_size: tf.Tensor) -> tf.Tensor:
        """By how much a batch's sum is to be multiplied to stand for all data."""
        float_type = gpflow.default_float()
        if self.num_data is None:
            return tf.ones([], float_type)
        return tf.cast(self.num_data, float_type) / tf.cast(batch_size, float_type)
