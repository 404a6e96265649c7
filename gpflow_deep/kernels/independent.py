"""Which kernels are those of independent GPs, as a layer has them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from gpflow.kernels import (
    Combination,
    Coregion,
    Kernel,
    LinearCoregionalization,
    MultioutputKernel,
    SeparateIndependent,
    SharedIndependent,
)

from .methods import has_methods_of
from .stacked_stationary import StackedStationary

__all__ = ["check_kernel", "index_columns", "latent_kernels", "takes_indices"]


def check_kernel(kernel: Any, num_latent_gps: int) -> Kernel:
    """
    ``kernel`` as one of independent GPs, which ``LinearCoregionalization`` mixes only after them.

    :raises TypeError: where it is no GPflow kernel.
    :raises ValueError: where it has another number of GPs than ``num_latent_gps``, or they are not
        independent.
    """
    if not isinstance(kernel, Kernel):
        raise TypeError(f"kernel: expected a GPflow kernel, got {kernel!r}.")
    if not isinstance(kernel, MultioutputKernel):
        _check_single_output(kernel)
        return kernel
    if not (
        isinstance(kernel, (SharedIndependent, SeparateIndependent, StackedStationary))
        or has_methods_of(kernel, LinearCoregionalization)
    ):
        raise ValueError(
            "kernel: expected a single-output kernel, SharedIndependent, SeparateIndependent,"
            " StackedStationary or LinearCoregionalization with the methods that GPflow gave it, got"
            f" {type(kernel).__name__}, whose outputs are not known to be independent GPs."
        )
    if kernel.num_latent_gps != num_latent_gps:
        raise ValueError(
            f"kernel: expected {num_latent_gps} GPs (num_latent_gps), got a {type(kernel).__name__}"
            f" kernel of {kernel.num_latent_gps}."
        )
    for latent in latent_kernels(kernel) or ():
        _check_single_output(latent)
    return kernel


def _check_single_output(kernel: Kernel) -> None:
    """A sum of multi-output kernels, say, is no ``MultioutputKernel``, but of several outputs."""
    if isinstance(kernel, MultioutputKernel):
        raise ValueError(
            f"kernel: expected single-output kernels to be combined, got a {type(kernel).__name__} kernel;"
            " combine the kernels of its GPs instead."
        )
    for part in kernel.kernels if isinstance(kernel, Combination) else ():
        _check_single_output(part)


def takes_indices(kernel: Kernel) -> bool:
    """Whether a part of the kernel is a ``Coregion``: a column of its inputs counts outputs, 0, 1, ..."""
    return bool(_coregions(kernel))


def index_columns(kernel: Kernel, input_dim: int) -> np.ndarray:
    """
    Which columns of inputs a part of the kernel, a ``Coregion``, takes for the numbers of outputs.

    :raises ValueError: where there are no such columns.
    """
    found = [np.empty(0, int)]
    for part in _coregions(kernel):
        try:
            found.append(np.arange(input_dim)[part.active_dims].ravel())
        except IndexError as error:
            raise ValueError(
                f"active_dims: expected some of {input_dim} inputs, got {part.active_dims}."
            ) from error
    return np.unique(np.concatenate(found))


def _coregions(kernel: Kernel) -> list[Coregion]:
    return [part for part in (kernel, *kernel.submodules) if isinstance(part, Coregion)]


def latent_kernels(kernel: Kernel) -> Sequence[Kernel] | None:
    """
    The single-output kernels of independent GPs, each to be called by itself, with its own ``active_dims``:
    one where the GPs share it. ``None`` for a multi-output kernel that has its own way to evaluate them
    (``StackedStationary``, or a user's subclass): call that one.
    """
    if not isinstance(kernel, MultioutputKernel):
        return [kernel]
    if has_methods_of(kernel, SharedIndependent):
        return [kernel.kernel]
    if has_methods_of(kernel, SeparateIndependent) or has_methods_of(
        kernel, LinearCoregionalization
    ):
        return list(kernel.kernels)
    return None
