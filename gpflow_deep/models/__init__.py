"""Deep GP models, one file a family."""

from .base import DeepGPModel, LayerOutput
from .deep_gp import DeepGP
from .global_inducing import GlobalInducingDeepGP

__all__ = ["DeepGP", "DeepGPModel", "GlobalInducingDeepGP", "LayerOutput"]
