"""What deep GPs need of likelihoods beyond GPflow's own."""

from .expectations import predict_log_density, predict_mean_and_var, variational_expectations
from .log_probs import log_prob, probit
from .missing import MissingOutputs
from .normalisers import log_normaliser

__all__ = [
    "MissingOutputs",
    "log_normaliser",
    "log_prob",
    "predict_log_density",
    "predict_mean_and_var",
    "probit",
    "variational_expectations",
]
