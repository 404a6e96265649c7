"""Updates of posteriors that are not gradient descent on a loss."""

from .expectation_propagation import ExpectationPropagation, StochasticEP

__all__ = ["ExpectationPropagation", "StochasticEP"]
