"""Deep GPs with a FITC prior, trained on the energy of expectation propagation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import gpflow
import numpy as np
import tensorflow as tf
from check_shapes import check_shapes
from gpflow.base import InputData, Parameter, RegressionData, TensorType
from gpflow.likelihoods import Likelihood
from gpflow.utilities import positive

from ..layers import GPLayer
from ..layers.covariances import Kuu
from ..layers.moment_matching import at_points, under_gaussian
from ..likelihoods import log_normaliser
from ..numerics.draws import quasi_normals, standard_normals
from ..numerics.linalg import cholesky
from ..posteriors.mixture import Mixture, equal_log_weights, in_parts
from ..posteriors.tied_factor import TiedFactor, Weights
from ..psi_statistics import Gaussian
from ..validation import check_positive_integer
from .base import DeepGPModel

__all__ = ["FITCEPDeepGP", "LayerMoments"]


class LayerMoments(NamedTuple):
    """The Gaussian that a layer's outputs are matched with, its noise included."""

    mean: tf.Tensor  # [1, N, T]
    covariance: tf.Tensor  # [1, N, T], or [1, N, T, T] where the covariance is propagated


class FITCEPDeepGP(DeepGPModel):
    r"""
    A deep GP with a FITC prior and one tied EP factor (Bui et al. 2016; power EP: Bui, Yan & Turner 2017):

    .. math::
        h_{l,n} | u_l \sim N(m_l + k_{nu} K_{uu}^{-1} u_l,
        \; k_{nn} - k_{nu} K_{uu}^{-1} k_{un} + \sigma_l^2), \quad q(u) \propto p(u) g(u)^N.

    Points travel through the layers as Gaussians whose moments are matched layer by layer: training and
    prediction are deterministic, and one pass suffices. The last layer's noise is the likelihood's.

    :param layers: the layers, input first; see :func:`gpflow_deep.layers.build_separate_layers`, whose
        initial values are the better ones for this model, and :func:`gpflow_deep.layers.build_layers`.
        Their ``whiten`` is of no importance: the factor is one of the function values u.
    :param likelihood: any GPflow likelihood.
    :param alpha: the power, from 0 (the variational limit) to 1 (EP).
    :param num_data: size of the whole training set, for minibatches.
    :param full_covariance: whether to propagate the covariance of a layer's outputs (Appendix G) or their
        variances (main text).
    :param num_samples: draws, always the same, for likelihoods whose normaliser has neither a closed form
        nor a quadrature (``Softmax``).
    :param num_prediction_samples: function draws that the covariance over points is estimated with, in
        models of several layers.
    :param noise_variance: of each hidden layer, at the start.
    :param seed: of all draws.
    :raises ValueError: where layers and likelihood do not fit each other, or alpha is not in [0, 1].
    """

    layer_type = GPLayer

    def __init__(
        self,
        layers: Sequence[GPLayer],
        likelihood: Likelihood,
        alpha: float = 1.0,
        num_data: int | None = None,
        *,
        full_covariance: bool = False,
        num_samples: int = 64,
        num_prediction_samples: int = 100,
        noise_variance: float = 0.01,
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
        if isinstance(alpha, bool) or not isinstance(alpha, (int, float)) or not 0 <= alpha <= 1:
            raise ValueError(f"alpha: expected a number from 0 to 1, got {alpha!r}.")
        self.alpha = float(alpha)
        self.full_covariance = bool(full_covariance)
        if not noise_variance > 0:
            raise ValueError(f"noise_variance: expected a positive number, got {noise_variance!r}.")
        self.inducing_posterior = TiedFactor(self.layers, seed=seed)
        self.noise_variances = [
            Parameter(noise_variance, transform=positive(lower=1e-9)) for _ in self.layers[:-1]
        ]

    # The objective.

    @tf.autograph.experimental.do_not_convert
    def maximum_log_likelihood_objective(self, data: RegressionData) -> tf.Tensor:
        """The EP energy, which training maximises."""
        return self.energy(data)

    @tf.autograph.experimental.do_not_convert
    @check_shapes(
        "return: []",
    )
    def energy(self, data: RegressionData, noise: TensorType | None = None) -> tf.Tensor:
        r"""
        The (power) EP energy, an approximation of the log evidence that is to be maximised
        (Bui et al. 2016, Eq. 9),

        .. math::
            (1 - \tfrac N\alpha) \phi(q) + \tfrac N\alpha \phi(q^{\setminus 1}) - \phi(p)
            + \tfrac{N}{\alpha |B|} \sum_{n \in B} \log Z_n.

        :param data: inputs [N, D] and targets [N, P].
        :param noise: standard normal draws [S, P] for likelihoods that need them; the model's by default.
        """
        X, Y = self._check_data(data)
        num_data = self.num_data or X.shape[0] or tf.shape(X)[0]
        fraction = self.alpha / (
            num_data if isinstance(num_data, int) else tf.cast(num_data, tf.float64)
        )
        cavity, site_energies = zip(
            *(
                self.inducing_posterior.cavity(index, covariance, fraction)
                for index, covariance in enumerate(self._prior_covariances())
            )
        )
        *_, (mean, covariance) = self._walk(X, cavity)
        if noise is None:
            noise = self._likelihood_noise()
        log_Z = log_normaliser(self.likelihood, X, mean, covariance, Y, self.alpha, noise)
        sites = tf.cast(tf.add_n(site_energies), log_Z.dtype)
        return tf.reduce_sum(log_Z) * self._scale(tf.shape(X)[0]) + sites

    def _prior_covariances(self) -> list[tf.Tensor]:
        """Per layer K_MM with the default jitter, [M, M] or [T, M, M], in float64."""
        jitter = gpflow.config.default_jitter()
        return [Kuu(layer.inducing_variable, layer.kernel, jitter) for layer in self.layers]

    def _likelihood_noise(self) -> np.ndarray:
        return quasi_normals(self.num_samples, [self.num_latent_gps], self.seed)[0]

    def _prepare(self) -> list[Weights]:
        return [
            self.inducing_posterior.weights(index, covariance, 1.0)
            for index, covariance in enumerate(self._prior_covariances())
        ]

    def _walk(
        self, X: tf.Tensor, weights: Sequence[Weights], full_output_cov: bool | None = None
    ) -> list[Gaussian]:
        """
        Carry the inputs through the layers: match the moments of each, add its noise.

        :param X: [N, D].
        :param full_output_cov: of the last layer; as for the hidden ones by default.
        :return: per layer a Gaussian of its outputs, of the last layer without noise.
        """
        outputs: list[Gaussian] = []
        for index, (layer, (A, W)) in enumerate(zip(self.layers, weights)):
            hidden = index < len(self.layers) - 1
            full = self.full_covariance if hidden or full_output_cov is None else full_output_cov
            A, W = (tf.cast(x, gpflow.default_float()) for x in (A, W))
            if index == 0:
                output = at_points(layer, X, A, W, full)
            else:
                output = under_gaussian(layer, outputs[-1], A, W, full)
            if hidden:
                output = _add_noise(output, self.noise_variances[index])
            outputs.append(output)
        return outputs

    @tf.autograph.experimental.do_not_convert
    @check_shapes(
        "X: [N, D]",
    )
    def propagate(self, X: InputData, cavity: bool = False) -> list[LayerMoments]:
        """
        The Gaussians of all layers' outputs: the hidden ones' with their noise, the last one's without.

        :param X: inputs.
        :param cavity: through the cavity, as in training, instead of the posterior; of ``num_data``
            points, or as many as there are inputs.
        """
        X = self._as_inputs(X, "X")
        weights: Sequence[Weights] = self._prepare()
        if cavity:
            power = 1.0 - self.alpha / float(self.num_data or len(X))
            weights = [
                self.inducing_posterior.weights(index, covariance, power)
                for index, covariance in enumerate(self._prior_covariances())
            ]
        return [LayerMoments(mean[None], cov[None]) for mean, cov in self._walk(X, weights)]

    # Predictions.

    def _mixture(
        self, Xnew: tf.Tensor, num_samples: int | None, prepared: list[Weights]
    ) -> Mixture:
        if num_samples is not None:
            check_positive_integer(num_samples, "num_samples")
        return self._one_pass(Xnew, prepared, full_output_cov=False)

    def _output_mixture(self, Xnew: tf.Tensor, prepared: list[Weights]) -> Mixture:
        return self._one_pass(Xnew, prepared, full_output_cov=True)

    def _one_pass(self, Xnew: tf.Tensor, prepared: list[Weights], full_output_cov: bool) -> Mixture:
        """A mixture of one."""

        def part(X: tf.Tensor) -> tuple[tf.Tensor, ...]:
            output = self._walk(X, prepared, full_output_cov)[-1]
            return output.mean[None], output.covariance[None]

        means, variances = in_parts(part, Xnew, 1)
        return Mixture(means, variances, equal_log_weights(1))

    def _joint_mixture(self, Xnew: tf.Tensor, prepared: list[Weights]) -> Mixture:
        # Beyond one layer the covariance of two points' functions has no closed form worth its cost: it is
        # that of a mixture over draws of the layers below.
        S = self.num_prediction_samples if len(self.layers) > 1 else 1
        factors = [layer.factorise() for layer in self.layers]
        seeds = tf.random.experimental.stateless_split([self.seed, 0], 2)
        shapes = [[S, layer.num_latent_gps, layer.num_inducing] for layer in self.layers[:-1]]
        draws = self._draw_inducing_outputs(prepared, factors, standard_normals(shapes, seeds[0]))
        F = self._sample_joint(Xnew, draws, factors, seeds[1])  # [S, N, D]
        layer = self.layers[-1]
        basis, covariance = layer.joint_projection(F, factors[-1])
        mean, own = _inducing_moments(layer, prepared[-1], factors[-1])
        f_mean = tf.transpose(tf.matmul(mean[:, None, :], basis)[:, :, 0, :], [0, 2, 1])
        covariance += tf.matmul(basis, tf.matmul(own, basis), transpose_a=True)
        return Mixture(f_mean + layer.prior_mean(F), covariance, equal_log_weights(S))

    def _sample_f(
        self, Xnew: tf.Tensor, num_samples: int, full_cov: bool, prepared: list[Weights]
    ) -> tf.Tensor:
        """Draws layer by layer, which show what matching the moments leaves out."""
        if full_cov:
            factors = [layer.factorise() for layer in self.layers]
            sizes = [[layer.num_latent_gps, layer.num_inducing] for layer in self.layers]
            noise = standard_normals([[num_samples, *size] for size in sizes])
            draws = self._draw_inducing_outputs(prepared, factors, noise)
            return self._sample_joint(Xnew, draws, factors)

        def part(X: tf.Tensor) -> tuple[tf.Tensor, ...]:
            N, rows = tf.shape(X)[0], X
            for index, (layer, weights) in enumerate(zip(self.layers, prepared)):
                A, W = (tf.cast(x, gpflow.default_float()) for x in weights)
                output = at_points(layer, rows, A, W)
                if index < len(self.layers) - 1:
                    output = _add_noise(output, self.noise_variances[index])
                shape = [num_samples, N, layer.num_latent_gps]
                (z,) = standard_normals([shape])
                mean, variance = (x[None] if index == 0 else tf.reshape(x, shape) for x in output)
                rows = tf.reshape(mean + tf.sqrt(variance) * z, [-1, shape[-1]])
            return (tf.reshape(rows, shape),)

        return in_parts(part, Xnew, num_samples)[0]

    def _draw_inducing_outputs(
        self,
        prepared: Sequence[Weights],
        factors: Sequence[tf.Tensor],
        noise: Sequence[tf.Tensor],
    ) -> list[tf.Tensor]:
        """Draws from q per layer [S, T, M], in the layer's own coordinates (whitened or not)."""
        draws = []
        for index, z in enumerate(noise):
            layer = self.layers[index]
            mean, own = _inducing_moments(layer, prepared[index], factors[index])
            scale = cholesky(own, f"the covariance of the inducing outputs of {layer.name}", {})
            draws.append(mean + tf.linalg.matvec(scale, z))
        return draws


def _inducing_moments(
    layer: GPLayer, weights: Weights, factor: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Mean [T, M] and covariance [T, M, M] of q in the layer's coordinates: of L_K^-1 u where it whitens."""
    factor = tf.cast(factor, tf.float64)
    mean = tf.linalg.matvec(factor, weights.mean, transpose_a=True)
    reduction = tf.matmul(factor, tf.matmul(weights.reduction, factor), transpose_a=True)
    own = tf.eye(layer.num_inducing, dtype=tf.float64) - reduction
    if not layer.whiten:
        mean = tf.linalg.matvec(factor, mean)
        own = tf.matmul(factor, tf.matmul(own, factor, transpose_b=True))
    float_type = gpflow.default_float()
    return tf.cast(mean, float_type), tf.cast(own, float_type)


def _add_noise(output: Gaussian, variance: TensorType) -> Gaussian:
    mean, covariance = output
    if covariance.shape.rank == 3:
        diagonal = tf.linalg.diag_part(covariance) + variance
        return Gaussian(mean, tf.linalg.set_diag(covariance, diagonal))
    return Gaussian(mean, covariance + variance)
