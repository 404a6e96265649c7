"""Several predictive densities as one."""

from __future__ import annotations

import numpy as np
from check_shapes import check_shapes
from scipy.special import softmax

__all__ = ["stacking_weights"]

_ITERATIONS = 500
_LEAST = 0.02  # a member of less weight costs more time in predictions than it is worth


@check_shapes(
    "log_densities: [N, K]",
    "weights: [N]",
    "return: [K]",
)
def stacking_weights(log_densities: np.ndarray, weights: np.ndarray | None = None) -> np.ndarray:
    r"""
    Weights of the mixture of K predictive densities that is best at held-out rows (Yao, Vehtari, Simpson &
    Gelman 2018, *Using stacking to average Bayesian predictive distributions*, Eq. 4),

    .. math:: \max_w \sum_n \log \sum_k w_k p_k(y_n),

    by expectation maximisation, which climbs this concave function. One row more, which all members explain
    alike, keeps few rows from deciding for one alone; members of less than 0.02 are then left out.

    :param log_densities: of held-out row n under member k.
    :param weights: how much each row counts.
    :return: at least 0, of sum 1.
    """
    N, K = log_densities.shape
    weights = np.ones(N) if weights is None else weights
    # A density of zero everywhere has no say; that of one member only must not spoil the others'.
    log_densities = np.nan_to_num(log_densities, nan=-1e300, neginf=-1e300)
    w = np.full(K, 1.0 / K)
    for _ in range(_ITERATIONS):
        shares = weights @ softmax(log_densities + np.log(w), axis=1)
        w = (shares + 1.0 / K) / (shares.sum() + 1.0)
    w[w < _LEAST] = 0.0
    return w / w.sum()
