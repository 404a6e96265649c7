"""The layers of a deep GP: one GP mapping each, without any coupling between them."""

from .base import Layer
from .build import build_layers
from .gp_layer import GPLayer, Projection

__all__ = ["GPLayer", "Layer", "Projection", "build_layers"]
