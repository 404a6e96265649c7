"""Deep GPs whose inducing points are functions of each layer's input."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf
from check_shapes import check_shapes
from gpflow.base import InputData, RegressionData, TensorType
from gpflow.likelihoods import Likelihood

from ..layers import AmortizedGPLayer
from ..numerics.draws import standard_normals
from ..posteriors.mixture import Mixture, in_parts, sample_mixture
from ..validation import check_noise
from .base import LayerOutput, SampledDeepGPModel

__all__ = ["AmortizedDeepGP"]

_RULES = ("AR1", "AR2", "AR2P")


class _Step(NamedTuple):
    """What a pass leaves at a layer."""

    sample: tf.Tensor  # [N, S, T]; the mean where there was no noise
    mean: tf.Tensor  # [N, S, T]
    variance: tf.Tensor  # [N, S, T]
    kl: tf.Tensor  # [N]


class AmortizedDeepGP(SampledDeepGPModel):
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

    AR2P with the predictive objective is the paper's AR2PP. The objective is that of the paper with all N
    points counted, :math:`\sum_n E[\log p(y_n | f^L_n)] - \tfrac1N \sum_n \sum_l KL_{nl}`.

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
        if amortization not in _RULES:
            raise ValueError(
                f"amortization: expected one of {', '.join(_RULES)}, got {amortization!r}."
            )
        self.amortization = amortization

    # The objective.

    @tf.autograph.experimental.do_not_convert
    def maximum_log_likelihood_objective(
        self, data: RegressionData, noise: Sequence[TensorType] | None = None
    ) -> tf.Tensor:
        """
        What training maximises: the ELBO, or the predictive objective.

        :param noise: as for :meth:`elbo`.
        """
        return self._evaluate(data, noise, self.predictive_objective)

    @tf.autograph.experimental.do_not_convert
    @check_shapes(
        "return: []",
    )
    def elbo(self, data: RegressionData, noise: Sequence[TensorType] | None = None) -> tf.Tensor:
        r"""
        The evidence lower bound
        :math:`\tfrac{N}{|B|} \sum_n \sum_s w_s E[\log p(y_n | f^L_{ns})]
        - \tfrac{1}{|B|} \sum_n \sum_l KL_{nl}`.

        :param data: inputs [N, D] and targets [N, P].
        :param noise: the draws of :meth:`draw_noise`; drawn if not given. None for AR2P.
        """
        return self._evaluate(data, noise, predictive=False)

    def _evaluate(
        self, data: RegressionData, noise: Sequence[TensorType] | None, predictive: bool
    ) -> tf.Tensor:
        X, Y = self._check_data(data)
        steps = self._walk(X, self._training_noise(X, noise))
        kl = tf.reduce_mean(tf.add_n([step.kl for step in steps]))
        return self._combine(X, Y, self._as_mixture(steps[-1]), kl, predictive)

    @tf.autograph.experimental.do_not_convert
    @check_shapes(
        "X: [N, D]",
        "return: [N]",
    )
    def prior_kl(self, X: InputData, noise: Sequence[TensorType] | None = None) -> tf.Tensor:
        """
        KL divergences of each point's inducing outputs from their prior, summed over the layers.

        :param X: inputs.
        :param noise: as for :meth:`elbo`.
        """
        X = self._as_inputs(X, "X")
        return tf.add_n([step.kl for step in self._walk(X, self._training_noise(X, noise))])

    def _training_shapes(
        self, num_samples: int | None, num_data: TensorType
    ) -> list[list[TensorType | None]]:
        return [[num_samples, num_data, layer.num_latent_gps] for layer in self.layers[:-1]]

    def _training_noise(self, X: tf.Tensor, noise: Sequence[TensorType] | None) -> list[tf.Tensor]:
        if self.sites is not None:
            return self._site_noise(noise)
        if noise is None:
            return self.draw_noise(tf.shape(X)[0])
        return check_noise(noise, self._training_shapes(None, X.shape[0]))

    def _walk(self, X: tf.Tensor, noise: Sequence[TensorType]) -> list[_Step]:
        """
        Carry the inputs through the layers: infer each layer's inducing outputs, condition, sample.

        :param X: inputs [N, D].
        :param noise: [S, N or 1, T_l] for as many layers as are to be sampled.
        """
        steps: list[_Step] = []
        F, seen = X[:, None, :], X  # the GPs' inputs [N, S, D], the networks' [N, D]
        for index, layer in enumerate(self.layers):
            if index and self.amortization == "AR1":
                S = F.shape[1]
                rows = tf.reshape(F, [-1, F.shape[-1]])  # [N S, D]
                local = layer.infer(rows)
                shape = [-1, S, layer.num_latent_gps]
                conditional = layer.condition(rows[:, None, :], local)
                mean, variance = (tf.reshape(x, shape) for x in conditional)
                kl = tf.reduce_mean(tf.reduce_sum(tf.reshape(local.kl, shape), axis=-1), axis=-1)
            else:
                local = layer.infer(seen)
                mean, variance = layer.condition(F, local)
                kl = tf.reduce_sum(local.kl, axis=-1)
            sample = mean
            if index < len(noise):
                sample = F = mean + tf.sqrt(variance) * tf.transpose(noise[index], [1, 0, 2])
                seen = self._seen(mean)
            steps.append(_Step(sample, mean, variance, kl))
        return steps

    def _seen(self, mean: tf.Tensor) -> tf.Tensor:
        """The weighted mean [N, T] of the samples' means [N, S, T]."""
        if mean.shape[1] == 1:  # of the first layer, whose input is the same for all samples
            return mean[:, 0, :]
        weights = tf.exp(self._log_weights(tf.shape(mean)[1]))
        return tf.linalg.matvec(mean, weights, transpose_a=True)

    def _as_mixture(self, step: _Step) -> Mixture:
        means, variances = (tf.transpose(x, [1, 0, 2]) for x in (step.mean, step.variance))
        return Mixture(means, variances, self._log_weights(tf.shape(means)[0]))

    @tf.autograph.experimental.do_not_convert
    @check_shapes(
        "X: [N, D]",
    )
    def propagate(
        self, X: InputData, noise: Sequence[TensorType] | None = None
    ) -> list[LayerOutput]:
        """
        Draws of every layer, or its values at the sites, with the variances of their GPs.

        :param X: inputs.
        :param noise: standard normal draws, [S, N, T_l] for each hidden layer; drawn if not given. None for
            AR2P. The output layer's are drawn.
        """
        X = self._as_inputs(X, "X")
        noise = self._training_noise(X, noise)
        S = noise[0].shape[0] if noise else 1
        output = standard_normals([[S, tf.shape(X)[0], self.num_latent_gps]])
        shape = [S, tf.shape(X)[0], -1]
        return [
            LayerOutput(
                *(
                    tf.broadcast_to(tf.transpose(x, [1, 0, 2]), [*shape[:2], x.shape[-1]])
                    for x in (step.sample, step.mean, step.variance)
                )
            )
            for step in self._walk(X, [*noise, *output])
        ]

    # Predictions.

    def _prepare(self) -> tuple[()]:
        """Nothing: all that could be computed before is a function of the inputs."""
        return ()

    def _mixture(self, Xnew: tf.Tensor, num_samples: int | None, prepared: tuple[()]) -> Mixture:
        del prepared
        noise = self._prediction_noise(num_samples)
        S = noise[0].shape[0] if noise else 1

        def part(X: tf.Tensor) -> tuple[tf.Tensor, ...]:
            return self._as_mixture(self._walk(X, noise)[-1])[:2]

        means, variances = in_parts(part, Xnew, S)
        return Mixture(means, variances, self._log_weights(S))

    def _output_mixture(self, Xnew: tf.Tensor, prepared: tuple[()]) -> Mixture:
        means, variances, log_weights = self._mixture(Xnew, None, prepared)
        return Mixture(means, tf.linalg.diag(variances), log_weights)

    def _joint_mixture(self, Xnew: tf.Tensor, prepared: tuple[()]) -> Mixture:
        raise NotImplementedError(
            "full_cov: expected False. Every point has inducing outputs of its own, and an amortised"
            " posterior does not say how those of two points depend on each other."
        )

    def _sample_f(
        self, Xnew: tf.Tensor, num_samples: int, full_cov: bool, prepared: tuple[()]
    ) -> tf.Tensor:
        if full_cov:
            self._joint_mixture(Xnew, prepared)
        return sample_mixture(self._mixture(Xnew, None, prepared), num_samples)
