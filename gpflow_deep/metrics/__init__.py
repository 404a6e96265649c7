"""Scores of probabilistic predictions: mixtures of Gaussians, and classes."""

from .classification import (
    accuracy,
    brier_score,
    expected_calibration_error,
    log_loss,
    out_of_distribution_auroc,
    reliability_curve,
)
from .mixtures import (
    calibration_curve,
    coverage,
    crps,
    log_density,
    mixture_moments,
    negative_log_likelihood,
    pit,
    quantile,
    rmse,
)

__all__ = [
    "accuracy",
    "brier_score",
    "calibration_curve",
    "coverage",
    "crps",
    "expected_calibration_error",
    "log_density",
    "log_loss",
    "mixture_moments",
    "negative_log_likelihood",
    "out_of_distribution_auroc",
    "pit",
    "quantile",
    "reliability_curve",
    "rmse",
]
