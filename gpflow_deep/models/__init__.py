"""Deep GP models, one file a family."""

from .base import DeepGPModel
from .deep_gp import DeepGP, LayerOutput

__all__ = ["DeepGP", "DeepGPModel", "LayerOutput"]
