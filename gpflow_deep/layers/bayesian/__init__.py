"""Layers of Bayesian neural networks: random weights, and what stands between them."""

from .base import BayesianLayer, NetworkLayer, connect, random_layers, walk
from .convolution import BayesianConv2D
from .dense import BayesianDense
from .deterministic import (
    Activation,
    AveragePool2D,
    Flatten,
    GlobalAveragePool2D,
    GroupNormalization,
    MaxPool2D,
    Residual,
)
from .priors import (
    NealPrior,
    ScalePrior,
    SpatialInverseWishartPrior,
    StandardPrior,
    WeightPrior,
)

__all__ = [
    "Activation",
    "AveragePool2D",
    "BayesianConv2D",
    "BayesianDense",
    "BayesianLayer",
    "Flatten",
    "GlobalAveragePool2D",
    "GroupNormalization",
    "MaxPool2D",
    "NealPrior",
    "NetworkLayer",
    "Residual",
    "ScalePrior",
    "SpatialInverseWishartPrior",
    "StandardPrior",
    "WeightPrior",
    "connect",
    "random_layers",
    "walk",
]
