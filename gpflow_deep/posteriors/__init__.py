"""Approximate posteriors over the inducing outputs, and the cached predictive posterior."""

from .base import Conditional, InducingPosterior, Recursion
from .block_structured import BlockStructured, FullyCoupled
from .mean_field import MeanField
from .orthogonal import Orthogonal
from .stripes_and_arrow import StripesAndArrow

__all__ = [
    "BlockStructured",
    "Conditional",
    "FullyCoupled",
    "InducingPosterior",
    "MeanField",
    "Orthogonal",
    "Recursion",
    "StripesAndArrow",
]
