"""Updates of posteriors that are not gradient descent on a loss."""

from .expectation_propagation import ExpectationPropagation, StochasticEP
from .natural_gradient import NaturalGradient
from .sghmc import SGHMC

__all__ = ["SGHMC", "ExpectationPropagation", "NaturalGradient", "StochasticEP"]
