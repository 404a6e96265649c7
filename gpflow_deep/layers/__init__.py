"""The layers of a deep GP: one GP mapping each, without any coupling between them."""

from .amortized import AmortizedGPLayer, LocalPosterior
from .base import Layer
from .bayesian import BayesianConv2D, BayesianDense
from .build import build_amortized_layers, build_layers, build_separate_layers
from .gp_layer import GPLayer, Projection
from .networks import MLP, AffineMaps

__all__ = [
    "AffineMaps",
    "AmortizedGPLayer",
    "BayesianConv2D",
    "BayesianDense",
    "GPLayer",
    "Layer",
    "LocalPosterior",
    "MLP",
    "Projection",
    "build_amortized_layers",
    "build_layers",
    "build_separate_layers",
]
