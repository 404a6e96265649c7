"""What deep GPs need of likelihoods beyond GPflow's own."""

from .normalisers import log_normaliser, probit

__all__ = ["log_normaliser", "probit"]
