"""Families mixed layer by layer: models stacked on one another."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Any

import tensorflow as tf
from gpflow.base import Parameter, TensorType

from ..numerics.draws import standard_normals
from ..posteriors.mixture import Noise
from ..posteriors.mixture_predictor import Prediction
from ..validation import check_positive_integer
from .amortized import AmortizedDeepGP
from .functions import DrawnFunctions
from .passage import Passage, PassageChain
from .variational import VariationalDeepGPModel

__all__ = ["StackedDeepGP"]


class StackedDeepGP(VariationalDeepGPModel):
    """
    A deep GP whose layers have approximate posteriors of several families: models on top of one another, each
    approximating its own layers. The passage goes through the parts' passages in turn, and the divergence
    is the sum of theirs.

    So a mean-field or an amortised layer may stand under global inducing ones: the lowest layer of a part has
    inducing inputs of its own.

    A mean-field layer under one with global inducing points:

    >>> likelihood = gpflow.likelihoods.Gaussian(0.1)
    >>> below = gd.layers.build_layers(X, hidden_dims=(), output_dim=2, num_inducing=5)
    >>> above = gd.layers.build_layers(np.hstack([X, Y]), hidden_dims=(), num_inducing=5)
    >>> parts = [
    ...     gd.models.DeepGP(below, likelihood, posterior=gd.posteriors.MeanField),
    ...     gd.models.GlobalInducingDeepGP(above, likelihood),
    ... ]
    >>> gd.models.StackedDeepGP(parts).predict_f(X)[0].shape
    TensorShape([20, 1])

    :param parts: the models, input first: ``DeepGP``, ``GlobalInducingDeepGP`` or ``AmortizedDeepGP``, built
        with one likelihood, which is that of the whole: where it takes a fixed number of functions, as
        ``Softmax`` does, each part ends in as many.
    :param num_samples: draws of the hidden layers per point in training, S.
    :param num_data: size of the whole training set, for minibatches.
    :param num_prediction_samples: components of the predicted mixture.
    :param seed: of the draws that predictions are made with.
    :raises TypeError: where a part is no such model.
    :raises ValueError: where the parts' layers or likelihoods do not fit each other, points travel through
        one by sites or have latent variables in it, or one is trained for another objective than its
        ``elbo``.
    """

    def __init__(
        self,
        parts: Sequence[VariationalDeepGPModel],
        *,
        num_samples: int = 5,
        num_data: int | None = None,
        num_prediction_samples: int = 100,
        seed: int = 0,
        name: str | None = None,
    ) -> None:
        if (
            not isinstance(parts, Sequence)
            or not parts
            or not all(isinstance(part, VariationalDeepGPModel) for part in parts)
        ):
            raise TypeError(
                "parts: expected models that travel by draws, such as DeepGP, GlobalInducingDeepGP and"
                f" AmortizedDeepGP, got {parts!r}."
            )
        if len({id(part) for part in parts}) < len(parts):
            raise ValueError(
                "parts: expected models of their own layers each, got one of them twice."
            )
        if any(part.likelihood is not parts[-1].likelihood for part in parts):
            raise ValueError(
                "parts: expected models built with one and the same likelihood, got several."
            )
        by_sites = [part.name for part in parts if part.sites is not None]
        if by_sites:
            raise ValueError(
                "parts: expected models whose points travel by draws (amortization='AR1' or 'AR2'), got"
                f" sites in {by_sites}."
            )
        walked = [part.name for part in parts if list(part._random_layers) != list(part.layers)]
        if walked:
            raise ValueError(
                "parts: expected models whose points travel through their layers of GPs and nothing else, got"
                f" others in {walked}: latent variables (LatentVariableDeepGP) or layers without GPs, which"
                " the whole, made of the parts' layers alone, would leave out."
            )
        sampled = [part.name for part in parts if part._num_sampled == len(part.layers)]
        if sampled:
            raise ValueError(
                "parts: expected models that integrate their last layer out (estimator='marginal'), got"
                f" others in {sampled}."
            )
        _check_objectives(parts)
        super().__init__(
            [layer for part in parts for layer in part.layers],
            parts[-1].likelihood,
            num_samples=num_samples,
            num_data=num_data,
            num_prediction_samples=num_prediction_samples,
            seed=seed,
            name=name,
        )
        self.parts = list(parts)

    @property
    def _settings_of_predictions(self) -> tuple[Any, ...]:  # type: ignore[override]
        parts = [setting for part in self.parts for setting in part._settings_of_predictions]
        return (*super()._settings_of_predictions, *parts)

    def _check_sharing(self) -> None:
        """The parts are this model's own."""

    @property
    def variational_params(self) -> list[tuple[Parameter, Parameter]]:
        """
        The (q_mu, q_sqrt) pairs of the parts, one after another, that ``gpflow.optimizers.NaturalGradient``
        takes.

        :raises NotImplementedError: where a part has none.
        """
        return [pair for part in self.parts for pair in part.variational_params]

    @tf.autograph.experimental.do_not_convert
    def prior_kl(self) -> tf.Tensor:
        """
        KL divergence of the posterior of the inducing outputs from their prior: the sum of the parts'.

        :raises NotImplementedError: where a part's depends on inputs (``AmortizedDeepGP``).
        """
        by_inputs = [part.name for part in self.parts if isinstance(part, AmortizedDeepGP)]
        if by_inputs:
            raise NotImplementedError(
                "prior_kl: expected parts whose divergence does not depend on inputs, got amortised ones in"
                f" {by_inputs}, every point of which has inducing outputs of its own. The elbo has that of"
                " its data."
            )
        return tf.add_n([part.prior_kl() for part in self.parts])

    # What is prepared, and the passage.

    def _inducing_shapes(
        self, num_samples: TensorType | None, num_layers: int, training: bool
    ) -> list[list[TensorType | None]]:
        return [shape for part in self._part_shapes(num_samples, training) for shape in part]

    def _part_shapes(
        self, num_samples: TensorType | None, training: bool
    ) -> list[list[list[TensorType | None]]]:
        """Likewise for each part. Its last layer passes no inducing points on."""
        return [
            part._inducing_shapes(num_samples, len(part.layers) - 1, training)
            for part in self.parts
        ]

    def _prepare(self, noise: Sequence[tf.Tensor] = ()) -> list[Any]:
        if not noise:
            return self._prepare_predictions(self.num_prediction_samples, [self.seed, 0])
        of_parts = self._noise_of_parts(noise, training=False)
        return [part._prepare(own) for part, own in zip(self.parts, of_parts)]

    def _prepare_training(self, noise: Sequence[tf.Tensor]) -> list[Any]:
        _check_objectives(self.parts)
        of_parts = self._noise_of_parts(noise, training=True)
        return [part._prepare_training(own) for part, own in zip(self.parts, of_parts)]

    def _noise_of_parts(
        self, noise: Sequence[tf.Tensor], training: bool
    ) -> list[Sequence[tf.Tensor]]:
        rest = iter(noise)
        return [list(islice(rest, len(shapes))) for shapes in self._part_shapes(None, training)]

    def _training_passage(
        self, prepared: Sequence[Any], X: tf.Tensor, Y: tf.Tensor, is_new: bool
    ) -> Passage:
        return self._chain(
            [part._training_passage(own, X, Y, is_new) for part, own in zip(self.parts, prepared)]
        )

    def _prepare_predictions(self, num_samples: int, seed: TensorType) -> list[Any]:
        # Parts have one seed by default, and would draw the same inducing outputs by it.
        seeds = tf.random.experimental.stateless_split(seed, len(self.parts))
        return [
            part._prepare_predictions(num_samples, seeds[index])
            for index, part in enumerate(self.parts)
        ]

    def _num_drawn(self, prepared: Sequence[Any]) -> int | None:
        sizes = [part._num_drawn(own) for part, own in zip(self.parts, prepared)]
        return next((size for size in sizes if size is not None), None)

    def _passage(self, prepared: Sequence[Any], full_output_cov: bool = False) -> Passage:
        return self._chain(
            [part._passage(own, full_output_cov) for part, own in zip(self.parts, prepared)]
        )

    def _chain(self, passages: Sequence[Passage]) -> PassageChain:
        sizes = [len(part.layers) for part in self.parts]
        return PassageChain(list(zip(passages, sizes)))

    def _divergence(self, prepared: Sequence[Any], passage: Passage) -> tf.Tensor:
        assert isinstance(passage, PassageChain)
        return tf.add_n(
            [
                part._trained_divergence(own, each)
                for part, own, each in zip(self.parts, prepared, passage.passages)
            ]
        )

    def _joint_passage(
        self,
        prepared: Sequence[Any],
        num_samples: int,
        seed: TensorType | None,
        marginal: bool,
        full_output_cov: bool = False,
    ) -> Passage:
        if marginal:
            prepared = self._drawn(prepared, num_samples)
        seeds: Any = [None] * len(self.parts)
        if seed is not None:
            seeds = tf.random.experimental.stateless_split(seed, len(self.parts))
        top = len(self.parts) - 1
        return self._chain(
            [
                part._joint_passage(
                    own,
                    num_samples,
                    seeds[index],
                    marginal and index == top,
                    full_output_cov and index == top,
                )
                for index, (part, own) in enumerate(zip(self.parts, prepared))
            ]
        )

    def _draw_layer_functions(
        self, num_samples: int, seed: tf.Tensor, num_features: int
    ) -> DrawnFunctions:
        seeds = tf.random.experimental.stateless_split(seed, len(self.parts))
        parts = [
            part._draw_layer_functions(num_samples, seeds[index], num_features)
            for index, part in enumerate(self.parts)
        ]
        width = max(part.width for part in parts)
        return DrawnFunctions(lambda: self._chain([part.make_passage() for part in parts]), width)

    def _prediction(
        self, prepared: Sequence[Any], num_samples: int | None, noise: Noise
    ) -> Prediction:
        S = self.num_prediction_samples
        if num_samples is not None:
            S = check_positive_integer(num_samples, "num_samples")
        if noise is None:
            points = self._prediction_noise(S)
            own = self._drawn(prepared, S)
        else:
            points, inducing = self._noise(noise, 1, len(self.layers) - 1)
            own = self._prepare(inducing) if inducing else list(prepared)
        return own, points, self._log_weights(int(points[0].shape[0]) if points else 1)

    def _drawn(self, prepared: Sequence[Any], num_samples: int) -> Sequence[Any]:
        """What was prepared, of this number of draws."""
        if self._num_drawn(prepared) in (None, num_samples):
            return prepared
        return self._prepare_predictions(num_samples, [self.seed, 0])

    def _sample_f(
        self, X: tf.Tensor, num_samples: int, full_cov: bool, prepared: Sequence[Any]
    ) -> tf.Tensor:
        shapes = self._inducing_shapes(num_samples, 0, training=False)
        if shapes and not full_cov:
            prepared = self._prepare(standard_normals(shapes))
        return super()._sample_f(X, num_samples, full_cov, prepared)


def _check_objectives(parts: Sequence[VariationalDeepGPModel]) -> None:
    """Of a whole, whose parts' attributes may have been set since."""
    weighted = [
        part.name
        for part in parts
        if part.predictive_objective or getattr(part, "kl_weight", 1.0) != 1.0
    ]
    if weighted:
        raise ValueError(
            "parts: expected models without kl_weight and predictive_objective, which the whole does not"
            f" take over from them (training.fit takes tempering), got others in {weighted}."
        )
