"""Expectations of kernels under Gaussian inputs, for propagating moments through a GP."""

from .dense import psi0, psi1, psi1_slope, psi2
from .gaussian import Gaussian
from .terms import LinearTerm, LinearWave, NoClosedForm, Term, Wave, WhiteTerm, terms

__all__ = [
    "Gaussian",
    "LinearTerm",
    "LinearWave",
    "NoClosedForm",
    "Term",
    "Wave",
    "WhiteTerm",
    "psi0",
    "psi1",
    "psi1_slope",
    "psi2",
    "terms",
]
