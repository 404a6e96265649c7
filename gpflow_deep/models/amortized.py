"""Deep GPs whose inducing points are functions of each layer's input."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf
from check_shapes import check_shapes
from gpflow.base import InputData, TensorType
from gpflow.likelihoods import Likelihood

from ..layers import AmortizedGPLayer
from ..numerics.linalg import leading_shape
from ..posteriors.base import Conditional
from ..posteriors.mixture import Noise, average
from ..validation import check_choice, check_finite
from .passage import Passage, sample_gaussians, walk
from .variational import VariationalDeepGPModel

__all__ = ["AmortizedDeepGP"]

_RULES = ("AR1", "AR2", "AR2P", "AR2PP")


class AmortizedDeepGP(VariationalDeepGPModel):
    r"""
    A deep GP whose inducing points and variational parameters are functions of each layer's input (Meng &
    Zhang 2024, *Amortized variational inference for deep Gaussian processes*). Few inducing points are
    enough, 4 to 16 a layer, and the prior does not degenerate with depth as that of a plain deep GP does.

    The rules of amortisation say what the networks of a layer see:

    ======== ==============================================================================================
    "AR1"    each sample of the layer below: inducing points of its own for every sample, the dearest rule
    "AR2"    the samples' mean of the layer's means: one set of inducing points for a point's samples
    "AR2P"   likewise, with learned sites and weights instead of samples: nothing is drawn
    ======== ==============================================================================================

    AR2P with the predictive objective is the paper's AR2PP, by which name it can be asked for too. The
    objective is that of the paper with all N points counted,
    :math:`\sum_n E[\log p(y_n | f^L_n)] - \tfrac1N \sum_n \sum_l KL_{nl}`. It is no bound on the evidence:
    each point pays an N-th of the price of inducing outputs that it has to itself. So ``elbo`` may be above
    the log evidence, and tells nothing beside that of another family.

    >>> layers = gd.layers.build_amortized_layers(1, hidden_dims=(2,), num_inducing=4)
    >>> model = gd.models.AmortizedDeepGP(
    ...     layers, gpflow.likelihoods.Gaussian(0.1), num_samples=8, predictive_objective=True
    ... )
    >>> model.predict_f_mixture(X).means.shape  # 8 learned sites are the components
    TensorShape([8, 20, 1])

    :param layers: the layers, input first.
    :param likelihood: any GPflow likelihood.
    :param amortization: the rule.
    :param num_samples: draws of the hidden layers per point in training, or sites, S. AR1 needs no more than
        one.
    :param num_data: size of the whole training set, for minibatches.
    :param predictive_objective: train for the log density of the predictive mixture rather than for the
        ELBO; a number is the weight of the KL divergence, beta. Of several outputs it is the joint density.
    :param num_prediction_samples: components of the predicted mixture where samples are drawn.
    :param seed: of the draws that predictions are made with, and of the initial sites.
    :raises ValueError: where layers, likelihood and rule do not fit each other.
    """

    layer_type = AmortizedGPLayer
    layers: list[AmortizedGPLayer]

    def __init__(
        self,
        layers: Sequence[AmortizedGPLayer],
        likelihood: Likelihood,
        amortization: str = "AR2P",
        *,
        num_samples: int = 32,
        num_data: int | None = None,
        predictive_objective: bool | float = False,
        num_prediction_samples: int = 32,
        seed: int = 0,
        name: str | None = None,
    ) -> None:
        check_choice(amortization, "amortization", _RULES)
        if amortization == "AR2PP":
            amortization = "AR2P"
            predictive_objective = predictive_objective if predictive_objective else True
        super().__init__(
            layers,
            likelihood,
            num_samples=num_samples,
            num_prediction_samples=num_prediction_samples,
            num_data=num_data,
            seed=seed,
            num_sites=num_samples if amortization == "AR2P" else None,
            predictive_objective=predictive_objective,
            name=name,
        )
        self.amortization = amortization
        self._name_parts()

    @tf.autograph.experimental.do_not_convert
    @check_shapes(
        "X: [N, D]",
        "return: [N]",
    )
    def prior_kl(self, X: InputData | None = None, noise: Noise = None) -> tf.Tensor:
        """
        KL divergences of each point's inducing outputs from their prior, summed over the layers.

        :param X: inputs.
        :param noise: as for :meth:`elbo`.
        :raises TypeError: without inputs, of which other models' divergences are no function.
        """
        if X is None:
            raise TypeError(
                "X: expected inputs [N, D], as every point has inducing outputs of its own, got None."
            )
        X = self._as_matrix(X, "X")
        points, _ = self._noise(noise, tf.shape(X)[0], len(self.layers) - 1)
        passage = self._passage(())
        walk(self.layers, passage, X, points)
        return tf.add_n(passage.divergences)

    # What is prepared, and the passage.

    def _prepare(self, noise: Sequence[tf.Tensor] = ()) -> tuple[()]:
        """Nothing: all that could be computed before is a function of the inputs."""
        return ()

    def _as_inputs(self, X: InputData, name: str = "Xnew") -> tf.Tensor:
        # All points' inducing inputs are factorised at once: one without a value would spoil the others.
        return check_finite(super()._as_inputs(X, name), name)

    def _passage(self, prepared: tuple[()], full_output_cov: bool = False) -> _Inferred:
        return _Inferred(self.amortization, self._log_weights)

    def _trained_divergence(self, prepared: tuple[()], passage: Passage) -> tf.Tensor:
        # Not by `prior_kl`, which is of some points here.
        return self._divergence(prepared, passage)

    def _divergence(self, prepared: tuple[()], passage: Passage) -> tf.Tensor:
        assert isinstance(passage, _Inferred)
        return tf.reduce_mean(tf.add_n(passage.divergences))

    def _joint_passage(self, *args: Any) -> Passage:
        raise NotImplementedError(
            "full_cov: expected False. Every point has inducing outputs of its own, and an amortised"
            " posterior does not say how those of two points depend on each other."
        )

    def _sample_f(
        self, X: tf.Tensor, num_samples: int, full_cov: bool, prepared: tuple[()]
    ) -> tf.Tensor:
        if full_cov:
            self._joint_passage()
        return self._sample_components(X, num_samples, full_cov, prepared)


class _Inferred(Passage):
    """Infer each layer's inducing outputs from its input, then condition on them."""

    def __init__(self, rule: str, log_weights: Callable[[TensorType], tf.Tensor]) -> None:
        self._rule = rule
        self._log_weights = log_weights
        self.divergences: list[tf.Tensor] = []  # of each layer passed, from the prior, [N]

    def condition(
        self, layer: AmortizedGPLayer, inputs: tf.Tensor, below: Conditional | None
    ) -> Conditional:
        if below is not None and self._rule == "AR1":
            return self._condition_samples(layer, inputs)
        local = layer.infer(inputs[0] if below is None else self._seen(below.mean))
        self.divergences.append(tf.reduce_sum(local.kl, axis=-1))
        self._conditional = Conditional(*layer.condition(inputs, local))
        return self._conditional

    def _condition_samples(self, layer: AmortizedGPLayer, inputs: tf.Tensor) -> Conditional:
        """Each sample has inducing outputs of its own."""
        rows = tf.reshape(inputs, [-1, inputs.shape[-1]])  # [S N, D]
        local = layer.infer(rows)
        shape = [*leading_shape(inputs), layer.num_latent_gps]
        moments = layer.condition(rows[None], local)
        kl = tf.reduce_sum(tf.reshape(local.kl, shape), axis=-1)
        self.divergences.append(tf.reduce_mean(kl, axis=0))
        self._conditional = Conditional(*(tf.reshape(x, shape) for x in moments))
        return self._conditional

    def _seen(self, mean: tf.Tensor) -> tf.Tensor:
        """The weighted mean [N, T] of the samples' means [S, N, T]."""
        if mean.shape[0] == 1:  # of the first layer, whose input is the same for all samples
            return mean[0]
        return average(mean, self._log_weights(tf.shape(mean)[0]))

    def sample(self, noise: TensorType | None) -> tf.Tensor:
        return sample_gaussians(self._conditional, noise)
