"""Probability distributions that TensorFlow Probability has not, as its own kind."""

from .inverse_wishart import Bartlett, InverseWishart

__all__ = ["Bartlett", "InverseWishart"]
