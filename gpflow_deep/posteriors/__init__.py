"""Approximate posteriors over the inducing outputs, and the cached predictive posterior."""

from .base import Conditional, InducingPosterior, Recursion
from .block_structured import BlockStructured, FullyCoupled
from .mean_field import MeanField
from .stripes_and_arrow import StripesAndArrow
from .tied_factor import TiedFactor

__all__ = [
    "BlockStructured",
    "Conditional",
    "FullyCoupled",
    "InducingPosterior",
    "MeanField",
    "Recursion",
    "StripesAndArrow",
    "TiedFactor",
]
