"""Deep GPs whose inducing inputs are propagated through the layers (Ober & Aitchison 2021)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import tensorflow as tf
from gpflow.base import Parameter, TensorType
from gpflow.likelihoods import Likelihood

from ..layers import GPLayer
from ..posteriors.layerwise import IndependentGaussian
from ..posteriors.pseudo_observations import PseudoObservations
from .functions import DrawnFunctions, drawn
from .global_inducing_parts import (
    LayerPosteriors,
    build_posteriors,
    inducing_points,
    place_inducing_inputs,
)
from .inducing_chain import (
    Chain,
    GivenInducing,
    InducingChainModel,
    condition_gps,
    explain_by_chain,
    functions_of_chain,
    in_default_float,
)
from .passage import JointPassage, Passage

__all__ = ["GlobalInducingDeepGP"]


class GlobalInducingDeepGP(InducingChainModel):
    r"""
    A deep GP with inducing inputs U_0 at the bottom only: those of every other layer are the inducing outputs
    of the layer below, sampled from
    :math:`q(U_l | U_{l-1}) \propto p(U_l | U_{l-1}) N(V_l; U_l, \Lambda_l^{-1})` (Ober & Aitchison 2021,
    Algorithm 2). The posterior of a layer so depends on what the layers below it do.

    >>> U0, V = gd.initialisation.inducing_data(X, Y, num_inducing=5)
    >>> model = gd.models.GlobalInducingDeepGP(
    ...     gd.layers.build_layers(X, hidden_dims=(1,), num_inducing=5),
    ...     gpflow.likelihoods.Gaussian(0.01),
    ...     U0,
    ...     pseudo_outputs=V,
    ... )
    >>> model.elbo((X, Y)).shape
    TensorShape([])

    :param layers: the layers, input first; see :func:`gpflow_deep.layers.build_layers`. Mean functions other
        than zero in hidden layers are skip connections, without which five layers hardly train.
    :param likelihood: any GPflow likelihood.
    :param inducing_inputs: U_0 [M, D]; the first layer's own inducing inputs by default.
    :param inducing: "global", inducing inputs propagated from U_0, whatever inducing points the layers
        above the first may have; or "local", every layer its own, with the same kind of posterior (layers
        built without any have them propagated all the same).
    :param posterior: q(U_l | U_{l-1}) of every layer, or a sequence of them, one a layer: a function of
        (number of GPs, number of inducing points) such as
        :class:`~gpflow_deep.posteriors.PseudoObservations`, ``IndependentGaussian`` (Ustyuzhaninov et al.
        2020) or ``Prior``, or ``functools.partial`` of one. The initial V, and Lambda of the last layer, are
        the model's own, whatever the function sets.
    :param pseudo_outputs: initial pseudo-observations at the output [M, P], such as the targets of inputs
        U_0; zero by default.
    :param estimator: of the bound. All three have one expectation. "marginal" (the default) integrates the
        last layer out and takes the KL divergences given the inducing inputs analytically: the gradients of
        the last layer's V and Lambda are far less noisy (see the tests for by how much).
        "analytic_kl" samples the last layer too; for the hidden layers the analytic divergence hardly changes
        the noise. "monte_carlo" is the paper's: it samples everything, log ratios included.
        ``MultiClass``, whose density is all steps, takes the first alone.
    :param kl_weight: weight of the KL divergences in what training maximises: a number, or a function without
        arguments, which is called where a graph is made, so once in compiled training: let it read a
        ``tf.Variable``. For a schedule :func:`gpflow_deep.training.fit` takes ``tempering``.
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
            estimator=estimator,
            kl_weight=kl_weight,
            num_samples=num_samples,
            num_prediction_samples=num_prediction_samples,
            num_data=num_data,
            seed=seed,
            name=name,
        )
        self.layers = place_inducing_inputs(self.layers, inducing_inputs, inducing)
        self.inducing_posteriors = build_posteriors(
            posterior, self.layers, pseudo_outputs, self.seed
        )
        self._name_parts()

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

    # What is prepared, and the passage.

    def _inducing_shapes(
        self, num_samples: TensorType | None, num_layers: int, training: bool = False
    ) -> list[list[TensorType | None]]:
        return [
            [num_samples, q.num_latent_gps, q.num_inducing]
            for q in self.inducing_posteriors[:num_layers]
            for _ in range(q.num_noise)
        ]

    def _propagate_inducing(self, noise: Sequence[tf.Tensor], training: bool = False) -> Chain:
        """Algorithm 2, its lines on U."""
        remaining, chain = list(noise), Chain([], [], [], [], [], [])
        U = None
        for layer, q in zip(self.layers, self.inducing_posteriors):
            if layer.inducing_variable is not None:
                U = inducing_points(layer)[None]
            U = condition_gps(layer, q, U, remaining, chain)
        return chain

    def _passage(self, prepared: Chain, full_output_cov: bool = False) -> Passage:
        return GivenInducing(in_default_float(prepared))

    def _joint_passage(
        self,
        prepared: Chain,
        num_samples: int,
        seed: TensorType | None,
        marginal: bool,
        full_output_cov: bool = False,
    ) -> Passage:
        chain = in_default_float(prepared if marginal else self._draw_functions(num_samples, seed))
        return JointPassage(explain_by_chain(chain), full_output_cov=full_output_cov)

    def _draw_layer_functions(
        self, num_samples: int, seed: tf.Tensor, num_features: int
    ) -> DrawnFunctions:
        own = tf.random.experimental.stateless_split(seed, 2)
        chain = in_default_float(self._draw_chain(num_samples, own[0], len(self.layers)))
        return drawn(functions_of_chain(self.layers, chain, own[1], num_features))
