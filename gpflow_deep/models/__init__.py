"""Deep GP models, one file a family."""

from .amortized import AmortizedDeepGP
from .base import DeepGPModel
from .deep_gp import DeepGP, LayerOutput
from .deep_sigma_point import DeepSigmaPointProcess
from .input_dependent_svgp import InputDependentSVGP
from .orthogonal_svgp import OrthogonalSVGP

__all__ = [
    "AmortizedDeepGP",
    "DeepGP",
    "DeepGPModel",
    "DeepSigmaPointProcess",
    "InputDependentSVGP",
    "LayerOutput",
    "OrthogonalSVGP",
]
