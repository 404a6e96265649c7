"""A sparse GP whose inducing points are functions of the input."""

from __future__ import annotations

from typing import Any

from gpflow.kernels import Kernel
from gpflow.likelihoods import Likelihood
from gpflow.mean_functions import MeanFunction

from ..layers import MLP, AmortizedGPLayer
from ..validation import check_positive_integer
from .amortized import AmortizedDeepGP

__all__ = ["InputDependentSVGP"]


class InputDependentSVGP(AmortizedDeepGP):
    """
    An ``AmortizedDeepGP`` of one layer. With affine maps it is the SGP-AVI of Meng & Zhang 2024; with one
    joint network for inducing inputs, means and full covariances the IDSGP of Jafrasteh, Villacampa-Calvo
    & Hernández-Lobato 2022, *Input dependent sparse Gaussian processes*.

    >>> model = gd.models.InputDependentSVGP(
    ...     gpflow.kernels.Matern52(), gpflow.likelihoods.Gaussian(0.1), num_inducing=4, input_dim=1
    ... )
    >>> model.predict_f(X)[0].shape
    TensorShape([20, 1])

    :param kernel: any GPflow kernel, or ``None`` for Matérn-5/2.
    :param likelihood: any GPflow likelihood.
    :param num_inducing: inducing points of an input, M.
    :param input_dim: dimension of the inputs, Q.
    :param num_latent_gps: number of GPs.
    :param mean_function: zero by default.
    :param inference: "affine" or "joint".
    :param hidden_dims: hidden layers of the joint network; two of the smaller of twice the inputs and the
        number of its outputs by default.
    :param settings: ``num_data``, ``predictive_objective``, ``seed`` and ``name`` as for
        :class:`AmortizedDeepGP`.
    """

    def __init__(
        self,
        kernel: Kernel | None,
        likelihood: Likelihood,
        num_inducing: int,
        input_dim: int,
        num_latent_gps: int = 1,
        mean_function: MeanFunction | None = None,
        *,
        inference: str = "affine",
        hidden_dims: tuple[int, ...] | None = None,
        **settings: Any,
    ) -> None:
        if inference not in ("affine", "joint"):
            raise ValueError(f"inference: expected 'affine' or 'joint', got {inference!r}.")
        if inference == "affine" and hidden_dims is not None:
            raise ValueError("hidden_dims: expected None with affine maps.")
        Q = check_positive_integer(input_dim, "input_dim")
        M = check_positive_integer(num_inducing, "num_inducing")
        T = check_positive_integer(num_latent_gps, "num_latent_gps")
        networks, seed = None, settings.get("seed", 0)
        if inference == "joint":
            columns = M * Q + T * M + T * M * (M + 1) // 2
            width = min(2 * Q, columns)
            dims = [Q, *((width, width) if hidden_dims is None else hidden_dims), columns]
            networks = MLP(dims, seed=seed)
        layer = AmortizedGPLayer(
            kernel,
            M,
            Q,
            T,
            mean_function,
            networks=networks,
            full_covariance=inference == "joint",
            seed=seed,
        )
        super().__init__([layer], likelihood, **settings)
