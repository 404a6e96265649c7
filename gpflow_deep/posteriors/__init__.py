"""Approximate posteriors over the inducing outputs, and the cached predictive posterior."""

from .base import Conditional, InducingPosterior, Recursion
from .block_structured import BlockStructured, FullyCoupled, transitive_closure
from .latent_variables import EncodedLatents, FreeLatents, LatentPosterior, Latents
from .layerwise import IndependentGaussian, LayerPosterior, Prior
from .mean_field import MeanField
from .orthogonal import Orthogonal
from .predictive import DeepGPPosterior
from .pseudo_observations import PseudoObservations
from .sampled import SampledPosterior
from .stripes_and_arrow import StripesAndArrow
from .tied_factor import TiedFactor
from .weights import (
    FactorisedWeights,
    GlobalInducingWeights,
    LocalInducingWeights,
    PriorWeights,
    WeightPosterior,
    WeightSpec,
)

__all__ = [
    "BlockStructured",
    "Conditional",
    "DeepGPPosterior",
    "EncodedLatents",
    "FactorisedWeights",
    "FreeLatents",
    "FullyCoupled",
    "GlobalInducingWeights",
    "IndependentGaussian",
    "InducingPosterior",
    "LatentPosterior",
    "Latents",
    "LayerPosterior",
    "LocalInducingWeights",
    "MeanField",
    "Orthogonal",
    "Prior",
    "PriorWeights",
    "PseudoObservations",
    "Recursion",
    "SampledPosterior",
    "StripesAndArrow",
    "TiedFactor",
    "WeightPosterior",
    "WeightSpec",
    "transitive_closure",
]
