"""Kernels that GPflow does not have."""

from .spectral_mixture import SpectralMixture
from .stacked_stationary import StackedStationary

__all__ = ["SpectralMixture", "StackedStationary"]
