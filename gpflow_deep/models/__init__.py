"""Deep GP models, one file a family."""

from .amortized import AmortizedDeepGP
from .base import DeepGPModel, LayerOutput
from .collapsed import collapsed_evidence
from .convergence import Convergence
from .deep_gp import DeepGP
from .deep_sigma_point import DeepSigmaPointProcess
from .fitc_ep import FITCEPDeepGP, LayerMoments
from .functions import FunctionDraws
from .global_inducing import GlobalInducingDeepGP
from .global_inducing_bnn import GlobalInducingBNN
from .input_dependent_svgp import InputDependentSVGP
from .latent_variable import LatentVariableDeepGP
from .orthogonal_svgp import OrthogonalSVGP
from .sampled import SampledDeepGP
from .stacked import StackedDeepGP

__all__ = [
    "AmortizedDeepGP",
    "Convergence",
    "DeepGP",
    "DeepGPModel",
    "DeepSigmaPointProcess",
    "FITCEPDeepGP",
    "FunctionDraws",
    "GlobalInducingBNN",
    "GlobalInducingDeepGP",
    "InputDependentSVGP",
    "LatentVariableDeepGP",
    "LayerMoments",
    "LayerOutput",
    "OrthogonalSVGP",
    "SampledDeepGP",
    "StackedDeepGP",
    "collapsed_evidence",
]
