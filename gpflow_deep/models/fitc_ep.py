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

from ..layers import GPLayer, Layer
from ..layers.covariances import Kuu
from ..layers.moment_matching import at_points, under_gaussian
from ..likelihoods import log_normaliser
from ..numerics.draws import quasi_normals, standard_normals
from ..numerics.factorisations import cholesky
from ..numerics.linalg import leading_shape
from ..posteriors.base import Conditional
from ..posteriors.explained import Explained, explain_by_outputs
from ..posteriors.mixture import Noise
from ..posteriors.tied_factor import TiedFactor, Weights
from ..psi_statistics import Gaussian
from ..validation import (
    check_flag,
    check_noise,
    check_number,
    check_positive_integer,
    check_positive_number,
)
from .base import DeepGPModel, LayerOutput
from .checks import refuse_mixing
from .passage import JointPassage, Passage, sample_gaussians, walk

__all__ = ["FITCEPDeepGP", "LayerMoments"]


class LayerMoments(NamedTuple):
    """
    The Gaussian that a layer's outputs are matched with, its noise included.

    >>> layers = gd.layers.build_separate_layers(X, hidden_dims=(2,), num_inducing=5)
    >>> model = gd.models.FITCEPDeepGP(layers, gpflow.likelihoods.Gaussian(0.1))
    >>> hidden, output = model.propagate(X)
    >>> hidden.mean.shape, hidden.covariance.shape
    (TensorShape([1, 20, 2]), TensorShape([1, 20, 2]))
    """

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

    >>> layers = gd.layers.build_separate_layers(X, hidden_dims=(2,), num_inducing=5)
    >>> model = gd.models.FITCEPDeepGP(layers, gpflow.likelihoods.Gaussian(0.1))
    >>> bool(model.energy((X, Y)) == model.energy((X, Y)))  # nothing is drawn
    True

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
    :raises ValueError: where layers and likelihood do not fit each other, the last layer mixes its GPs
        (``LinearCoregionalization``), or alpha is not in [0, 1].
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
        refuse_mixing(self.layers[-1])
        self.alpha = check_number(alpha, "alpha", 0.0, 1.0)
        self.full_covariance = check_flag(full_covariance, "full_covariance")
        noise_variance = check_positive_number(noise_variance, "noise_variance")
        self.inducing_posterior = TiedFactor(self.layers, seed=seed)
        self.noise_variances = [
            Parameter(noise_variance, transform=positive(lower=1e-9)) for _ in self.layers[:-1]
        ]
        self._name_parts()

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
        fraction = self.alpha / self.num_points(X)
        cavity, site_energies = zip(
            *(
                self.inducing_posterior.cavity(index, covariance, fraction)
                for index, covariance in enumerate(self._prior_covariances())
            )
        )
        mean, covariance = self._match_moments(X, cavity)[-1]
        if noise is None:
            noise = self._likelihood_noise()
        log_Z = log_normaliser(self.likelihood, X, mean, covariance, Y, self.alpha, noise)
        sites = tf.cast(tf.add_n(site_energies), log_Z.dtype)
        return tf.reduce_sum(log_Z) * self._scale(tf.shape(X)[0]) + sites

    def num_points(self, X: tf.Tensor) -> int | tf.Tensor:
        """N of the energy: ``num_data``, which may be a variable, or as many as there are in ``X`` [N, D]."""
        num_points = X.shape[0] if self.num_data is None else self.num_data
        if isinstance(num_points, int):
            return num_points
        return tf.cast(tf.shape(X)[0] if num_points is None else num_points, tf.float64)

    @property
    def _noise_variances(self) -> Sequence[TensorType]:
        return self.noise_variances

    def _prior_covariances(self) -> list[tf.Tensor]:
        """Per layer K_MM with the default jitter, [M, M] or [T, M, M], in float64."""
        jitter = gpflow.config.default_jitter()
        return [Kuu(layer.inducing_variable, layer.kernel, jitter) for layer in self.layers]

    def _likelihood_noise(self) -> np.ndarray:
        return quasi_normals(self.num_samples, [self.num_latent_gps], self.seed)[0]

    def _prepare(self, noise: Sequence[tf.Tensor] = ()) -> list[Weights]:
        return self._weights(1.0)

    def _weights(self, power: float) -> list[Weights]:
        return [
            self.inducing_posterior.weights(index, covariance, power)
            for index, covariance in enumerate(self._prior_covariances())
        ]

    @tf.autograph.experimental.do_not_convert
    def prior_kl(self) -> tf.Tensor:
        """KL divergence of the posterior of the inducing outputs from their prior."""
        covariances = enumerate(self._prior_covariances())
        terms = [self.inducing_posterior.cavity(index, K, 0.0)[1] for index, K in covariances]
        return -tf.cast(tf.add_n(terms), gpflow.default_float())

    def _passage(self, prepared: Sequence[Weights], full_output_cov: bool = False) -> Passage:
        return _MomentMatching(
            prepared,
            self.noise_variances,
            [self.full_covariance] * len(self.noise_variances) + [full_output_cov],
        )

    def _match_moments(self, X: tf.Tensor, weights: Sequence[Weights]) -> list[Gaussian]:
        """A Gaussian of each layer's outputs, of the hidden ones with their noise: the points lead."""
        passage = self._passage(weights, self.full_covariance)
        steps = walk(self.layers, passage, X, [None] * (len(self.layers) - 1))
        outputs = [step.sample for step in steps[:-1]]
        return [*outputs, Gaussian(*(x[0] for x in steps[-1].conditional))]

    @tf.autograph.experimental.do_not_convert
    @check_shapes(
        "X: [N, D]",
    )
    def propagate(
        self, X: InputData, noise: Noise = None, *, cavity: bool = False
    ) -> list[LayerMoments] | list[LayerOutput]:
        """
        The Gaussians of all layers' outputs: the hidden ones' with their noise, the last one's without.

        :param X: inputs.
        :param noise: standard normal draws [S, N, T_l] for each layer, or for as many of the first ones as
            are to be fixed: points then travel by draws of every layer, as in other families, which shows
            what matching the moments leaves out.
        :param cavity: through the cavity, as in training, instead of the posterior; of ``num_data``
            points, or as many as there are inputs.
        """
        X = self._as_matrix(X, "X")
        weights = self._weights(1.0 - self.alpha / self.num_points(X) if cavity else 1.0)
        if noise is None:
            return [
                LayerMoments(mean[None], cov[None]) for mean, cov in self._match_moments(X, weights)
            ]
        given = check_noise(
            noise, self._point_shapes(None, X.shape[0], len(self.layers))[: len(noise)]
        )
        S = tf.shape(given[0])[0] if given else self.num_samples
        missing = self._point_shapes(S, tf.shape(X)[0], len(self.layers))[len(given) :]
        points = [*given, *standard_normals(missing)]
        return self._layer_outputs(walk(self.layers, self._drawing_passage(weights), X, points))

    @property
    def variational_params(self) -> list[tuple[Parameter, Parameter]]:
        return self.inducing_posterior.variational_params

    # Predictions.

    def _prediction(
        self, prepared: list[Weights], num_samples: int | None, noise: Noise
    ) -> tuple[list[Weights], list[TensorType], tf.Tensor]:
        """A mixture of one."""
        if num_samples is not None:
            check_positive_integer(num_samples, "num_samples")
        if noise:
            raise ValueError(
                f"noise: expected none, as predictions match moments, got {len(noise)} tensors."
            )
        return prepared, [None] * (len(self.layers) - 1), self._log_weights(1)

    def _joint_passage(
        self,
        prepared: list[Weights],
        num_samples: int,
        seed: TensorType | None,
        marginal: bool,
        full_output_cov: bool = False,
    ) -> Passage:
        """
        Beyond one layer the covariance of two points' functions has no closed form worth its cost: it is that
        of a mixture over draws of the layers below.
        """
        factors = [layer.factorise() for layer in self.layers]
        moments = [
            weights.inducing_moments(factor, layer.whiten)
            for layer, weights, factor in zip(self.layers, prepared, factors)
        ]
        shapes = [[num_samples, *mean.shape] for mean, _ in moments]
        scales = [
            cholesky(own, f"the covariance of the inducing outputs of {layer.name}", {})
            for layer, (_, own) in zip(self.layers, moments)
        ]
        draws = [
            mean + tf.linalg.matvec(scale, z)
            for (mean, _), scale, z in zip(moments, scales, standard_normals(shapes, seed))
        ]
        last = len(self.layers) - 1

        def explain(index: int, layer: Layer, inputs: tf.Tensor) -> Explained:
            if marginal and index == last:
                mean = moments[index][0][None]
                return explain_by_outputs(layer, inputs, factors[index], mean, scales[index])
            return explain_by_outputs(layer, inputs, factors[index], draws[index])

        def noise_variance(index: int) -> TensorType:
            return self.noise_variances[index] if index < last else 0.0

        return JointPassage(explain, noise_variance, full_output_cov)

    def _drawing_passage(self, weights: Sequence[Weights]) -> Passage:
        """Which shows what matching the moments leaves out."""
        return _Draws(weights, self.noise_variances)


class _MomentMatching(Passage):
    """Points travel as Gaussians."""

    def __init__(
        self,
        weights: Sequence[Weights],
        noise_variances: Sequence[TensorType],
        full: Sequence[bool],
    ) -> None:
        self._weights = iter(weights)
        self._noise_variances = iter(noise_variances)
        self._full = iter(full)

    def condition(
        self, layer: GPLayer, inputs: tf.Tensor | Gaussian, below: Conditional | None
    ) -> Conditional:
        weights, full = next(self._weights), next(self._full)
        if isinstance(inputs, Gaussian):
            self._output = under_gaussian(layer, inputs, *weights, full)
        else:
            self._output = at_points(layer, inputs[0], *weights, full)
        return Conditional(self._output.mean[None], self._output.covariance[None])

    def sample(self, noise: TensorType | None) -> Gaussian:
        """The layer's outputs with their noise."""
        mean, covariance = self._output
        variance = next(self._noise_variances)
        if covariance.shape.rank == 2:
            return Gaussian(mean, covariance + variance)
        diagonal = tf.linalg.diag_part(covariance) + variance
        return Gaussian(mean, tf.linalg.set_diag(covariance, diagonal))


class _Draws(Passage):
    """Points travel as draws from every layer."""

    def __init__(self, weights: Sequence[Weights], noise_variances: Sequence[TensorType]) -> None:
        self._weights = iter(weights)
        self._noise_variances = iter([*noise_variances, 0.0])

    def condition(
        self, layer: GPLayer, inputs: tf.Tensor, below: Conditional | None
    ) -> Conditional:
        rows = tf.reshape(inputs, [-1, inputs.shape[-1]])
        shape = [*leading_shape(inputs), layer.num_latent_gps]
        mean, variance = (
            tf.reshape(x, shape) for x in at_points(layer, rows, *next(self._weights))
        )
        self._conditional = Conditional(mean, variance + next(self._noise_variances))
        return self._conditional

    def sample(self, noise: TensorType | None) -> tf.Tensor:
        return sample_gaussians(self._conditional, noise)
