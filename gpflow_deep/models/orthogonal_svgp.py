"""SOLVE-GP: a sparse GP with orthogonal inducing points."""

from __future__ import annotations

from typing import Any

import gpflow
import numpy as np
from gpflow.base import TensorType
from gpflow.inducing_variables import InducingPoints
from gpflow.kernels import Kernel
from gpflow.likelihoods import Likelihood
from gpflow.mean_functions import MeanFunction

from ..layers import GPLayer
from ..posteriors.orthogonal import Orthogonal
from ..validation import check_inputs
from .deep_gp import DeepGP

__all__ = ["OrthogonalSVGP"]


class OrthogonalSVGP(DeepGP):
    """
    The SOLVE-GP of Shi, Titsias & Mnih 2020, *Sparse orthogonal variational inference for Gaussian
    processes*: a ``DeepGP`` of one layer over both sets of inducing points, with the posterior
    :class:`gpflow_deep.posteriors.Orthogonal`.

    >>> model = gd.models.OrthogonalSVGP(
    ...     gpflow.kernels.Matern52(), gpflow.likelihoods.Gaussian(0.1), X[::4], X[2::4]
    ... )
    >>> model.predict_f(X)[0].shape
    TensorShape([20, 1])

    :param kernel: any GPflow kernel of independent GPs.
    :param likelihood: any GPflow likelihood.
    :param inducing_variable: inducing inputs [M, D], or ``InducingPoints`` of them, of which a copy is
        trained, or not, as they are.
    :param orthogonal_inducing_variable: inducing inputs [M2, D] of what remains of the GP given its values at
        the first ones.
    :param num_latent_gps: number of GPs.
    :param mean_function: zero by default.
    :param settings: ``num_data``, ``compute_dtype``, ``predictive_objective``, ``seed`` and ``name`` as for
        :class:`DeepGP`.
    :raises ValueError: where the two sets have not as many columns, or one alone is to be trained.
    """

    def __init__(
        self,
        kernel: Kernel,
        likelihood: Likelihood,
        inducing_variable: TensorType | InducingPoints,
        orthogonal_inducing_variable: TensorType | InducingPoints,
        num_latent_gps: int = 1,
        mean_function: MeanFunction | None = None,
        **settings: Any,
    ) -> None:
        Z, orthogonal = (
            check_inputs(given.Z.numpy() if type(given) is InducingPoints else given, name)
            for given, name in (
                (inducing_variable, "inducing_variable"),
                (orthogonal_inducing_variable, "orthogonal_inducing_variable"),
            )
        )
        if Z.shape[1] != orthogonal.shape[1]:
            raise ValueError(
                f"orthogonal_inducing_variable: expected [M2, {Z.shape[1]}] like inducing_variable, got"
                f" {orthogonal.shape}."
            )
        layer = GPLayer(kernel, np.concatenate([Z, orthogonal]), num_latent_gps, mean_function)
        is_fixed = [
            isinstance(given, InducingPoints) and not given.Z.trainable
            for given in (inducing_variable, orthogonal_inducing_variable)
        ]
        if is_fixed[0] != is_fixed[1]:
            raise ValueError(
                "inducing_variable, orthogonal_inducing_variable: expected both trainable or neither, as one"
                " parameter holds them, got one of each."
            )
        gpflow.set_trainable(layer.own_inducing_variable, not is_fixed[0])
        super().__init__([layer], likelihood, Orthogonal([layer], len(Z)), **settings)
