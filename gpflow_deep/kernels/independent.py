"""Which kernels are those of independent GPs, as a layer has them."""

from __future__ import annotations

from typing import Any

from gpflow.kernels import Kernel, MultioutputKernel, SeparateIndependent, SharedIndependent

from .stacked_stationary import StackedStationary

__all__ = ["check_kernel"]


def check_kernel(kernel: Any, num_latent_gps: int) -> Kernel:
    """
    ``kernel`` as one of independent GPs.

    :raises TypeError: where it is no GPflow kernel.
    :raises ValueError: where it has another number of GPs than ``num_latent_gps``, or mixes them.
    """
    if not isinstance(kernel, Kernel):
        raise TypeError(f"kernel: expected a GPflow kernel, got {kernel!r}.")
    if not isinstance(kernel, MultioutputKernel):
        return kernel
    if not isinstance(kernel, (SharedIndependent, SeparateIndependent, StackedStationary)):
        raise ValueError(
            "kernel: expected a single-output kernel, SharedIndependent, SeparateIndependent or"
            f" StackedStationary, got {type(kernel).__name__}, whose outputs are not independent GPs."
        )
    if kernel.num_latent_gps != num_latent_gps:
        raise ValueError(
            f"kernel: expected {num_latent_gps} GPs (num_latent_gps), got a {type(kernel).__name__}"
            f" kernel of {kernel.num_latent_gps}."
        )
    return kernel
