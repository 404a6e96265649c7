"""Deep GP models, one file a family."""

from .base import DeepGPModel
from .deep_gp import DeepGP, LayerOutput
from .fitc_ep import FITCEPDeepGP, LayerMoments

__all__ = ["DeepGP", "DeepGPModel", "FITCEPDeepGP", "LayerMoments", "LayerOutput"]
