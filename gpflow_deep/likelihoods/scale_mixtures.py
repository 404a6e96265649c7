"""Noise with heavy tails as a mixture of Gaussians of several scales."""

from __future__ import annotations

import numpy as np
from gpflow.likelihoods import Likelihood, StudentT
from scipy.special import gammainc, gammaincinv

from .missing import MissingOutputs

__all__ = ["noise_scales"]

# Of draws of a Student-t's precision, those of the smallest the fewest: a density of 3 degrees of freedom is
# then off by 1e-4 nats.
_QUANTILES = np.array([0.0, 0.002, 0.01, 0.04, 0.12, 0.3, 0.55, 0.8, 1.0])


def noise_scales(likelihood: Likelihood) -> tuple[np.ndarray, np.ndarray] | None:
    """
    What a noise's variance is multiplied by, with which probabilities, to have its tails by Gaussians: a
    Student-t is a scale mixture, of which eight are taken here, each of the average variance of its share.

    :param likelihood: any; outputs of which some may be missing have the noise of those that are there.
    :return: factors and probabilities, both [K]; ``None`` where the noise is no Student-t with a variance.
    """
    if isinstance(likelihood, MissingOutputs):
        likelihood = likelihood.likelihood
    if not isinstance(likelihood, StudentT) or float(likelihood.df) <= 2.0:
        return None
    shape, shares = float(likelihood.df) / 2.0, np.diff(_QUANTILES)
    below = gammainc(shape - 1.0, gammaincinv(shape, _QUANTILES))
    return np.diff(below) / shares, shares
