"""Predictive distributions with the tails that errors have: scale mixtures."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import softmax

from .rows import Mixture

__all__ = ["Tails"]

_FACTORS = (0.1, 1.0, 10.0)  # of the variances at the start
_ITERATIONS = 100
_LEAST = 1e-12  # of usual errors, which of targets that are all one are none


class Tails(NamedTuple):
    """
    A scale mixture: with probability w_k, variances are c_k times what a Gaussian prediction says. On average
    the factor is one, so that means and covariances are the Gaussian's.
    """

    factors: tuple[float, ...]
    weights: tuple[float, ...]

    @classmethod
    def of(cls, errors: np.ndarray, counts: np.ndarray) -> tuple[float, Tails]:
        """
        By expectation maximisation, in which every component has one error of usual size besides, so that
        none can shrink to a few errors of nearly nothing.

        :param errors: squared, in units of the predicted variances, [N, P]; a row has one factor.
        :param counts: how many observations each row is, [N].
        :return: the average factor, and the mixture of what is left.
        """
        usual = max(float(np.average(errors.mean(axis=1), weights=counts)), _LEAST)
        factors = usual * np.array(_FACTORS)
        weights = np.full(len(factors), 1.0 / len(factors))
        for _ in range(_ITERATIONS):
            fit = errors[:, :, None] / factors + np.log(factors)
            shares = counts[:, None] * softmax(np.log(weights) - 0.5 * fit.sum(axis=1), axis=1)
            totals = shares.sum(axis=0) + 1.0
            factors = (errors.mean(axis=1) @ shares + usual) / totals
            weights = totals / totals.sum()
        average = float(weights @ factors)
        return average, cls(tuple((factors / average).tolist()), tuple(weights.tolist()))

    def mixture(self, X: np.ndarray, means: np.ndarray, variances: np.ndarray) -> Mixture:
        """
        Of observations, from a Gaussian prediction of them, both [N, P]: means [K, N, P], variances
        [K, N, P], logarithms of weights [K].
        """
        factors = np.array(self.factors)[:, None, None]
        return (
            np.repeat(means[None], len(factors), axis=0),
            factors * variances,
            np.log(self.weights),
        )

    def draw(
        self,
        X: np.ndarray,
        means: np.ndarray,
        variances: np.ndarray,
        Y: np.ndarray,
        rng: np.random.RandomState,
    ) -> np.ndarray:
        """
        Of observations, from draws Y [S, N, P] of a Gaussian prediction of them: with one factor for all rows
        of a draw, so that their covariance stays what it is.
        """
        factors = rng.choice(self.factors, size=(len(Y), 1, 1), p=self.weights)
        return means + np.sqrt(factors) * (Y - means)

    def moments(
        self, X: np.ndarray, means: np.ndarray, covariance: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Mean [N, P] and covariance over the rows [P, N, N] of such draws: the prediction's."""
        return means, covariance
