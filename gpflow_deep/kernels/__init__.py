"""Kernels that GPflow does not have."""

from .spectral_mixture import SpectralMixture

__all__ = ["SpectralMixture"]
