"""The layers of a deep GP: one GP mapping each, without any coupling between them."""

from .build import build_layers, build_separate_layers
from .gp_layer import GPLayer, Projection

__all__ = ["GPLayer", "Projection", "build_layers", "build_separate_layers"]
