"""Updates of posteriors that are not gradient descent on a loss."""

from .expectation_propagation import ExpectationPropagation, StochasticEP
from .natural_gradient import NaturalGradient
from .no_u_turn import NoUTurnSamples, sample_no_u_turn
from .sghmc import SGHMC

__all__ = [
    "SGHMC",
    "ExpectationPropagation",
    "NaturalGradient",
    "NoUTurnSamples",
    "StochasticEP",
    "sample_no_u_turn",
]
