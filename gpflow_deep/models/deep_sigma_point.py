"""Deep sigma point processes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gpflow.likelihoods import Likelihood

from ..layers import GPLayer
from ..posteriors.base import InducingPosterior
from ..posteriors.mean_field import MeanField
from .deep_gp import DeepGP

__all__ = ["DeepSigmaPointProcess"]


class DeepSigmaPointProcess(DeepGP):
    """
    A mean-field ``DeepGP`` whose points travel by learned, weighted sites, trained for its predictive density
    (Jankowiak, Pleiss & Gardner 2020, *Deep sigma point processes*). Nothing is drawn. With one layer it is
    the PPGPR of Jankowiak, Pleiss & Gardner 2020, *Parametric Gaussian process regressors*.

    >>> layers = gd.layers.build_layers(X, hidden_dims=(2,), num_inducing=5)
    >>> model = gd.models.DeepSigmaPointProcess(layers, gpflow.likelihoods.Gaussian(0.1), num_sites=4)
    >>> model.predict_f_mixture(X).means.shape
    TensorShape([4, 20, 1])

    :param layers: the layers, input first.
    :param likelihood: any GPflow likelihood.
    :param num_sites: number of sites, S.
    :param predictive_objective: ``True`` or the weight beta of the KL divergence; ``False`` for the ELBO.
    :param posterior: ``MeanField`` or an instance of it.
    :param settings: others of :class:`DeepGP`; ``seed`` is of the initial sites.
    """

    def __init__(
        self,
        layers: Sequence[GPLayer],
        likelihood: Likelihood,
        *,
        num_sites: int = 8,
        predictive_objective: bool | float = True,
        posterior: type[InducingPosterior] | InducingPosterior = MeanField,
        **settings: Any,
    ) -> None:
        super().__init__(
            layers,
            likelihood,
            posterior,
            num_sites=num_sites,
            predictive_objective=predictive_objective,
            **settings,
        )
