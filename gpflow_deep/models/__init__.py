"""Deep GP models, one file a family."""

from .base import DeepGPModel
from .collapsed import collapsed_evidence
from .deep_gp import DeepGP, LayerOutput
from .fitc_ep import FITCEPDeepGP, LayerMoments

__all__ = [
    "DeepGP",
    "DeepGPModel",
    "FITCEPDeepGP",
    "LayerMoments",
    "LayerOutput",
    "collapsed_evidence",
]
