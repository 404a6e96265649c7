"""Kernels that GPflow does not have."""

from .stacked_stationary import StackedStationary

__all__ = ["StackedStationary"]
