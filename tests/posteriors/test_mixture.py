"""Mixtures of Gaussians over the last layer's functions."""

from __future__ import annotations

import numpy as np
import pytest

from gpflow_deep.posteriors.mixture import Mixture, joint_covariance


@pytest.mark.parametrize("full_output_cov", [False, True])
def test_joint_covariance_of_components_of_different_weights(full_output_cov: bool) -> None:
    """That within the components, and NumPy's of their weighted means."""
    rng = np.random.default_rng(0)
    S, N, P = 4, 3, 2
    weights, means = rng.dirichlet(np.ones(S)), rng.normal(size=(S, N, P))
    roots = rng.normal(size=(S, N * P, N * P) if full_output_cov else (S, P, N, N))
    within = roots @ np.swapaxes(roots, -1, -2)
    points = means.reshape([S, 1, N * P]) if full_output_cov else np.swapaxes(means, 1, 2)
    expected = np.average(within, axis=0, weights=weights) + [
        np.cov(points[:, p].T, aweights=weights, ddof=0) for p in range(points.shape[1])
    ]  # [1, N P, N P] or [P, N, N]
    variance = np.diagonal(expected, axis1=1, axis2=2)
    if full_output_cov:
        within = within.reshape([S, N, P, N, P])
        expected, variance = expected.reshape([N, P, N, P]), variance.reshape([N, P])
    else:
        variance = variance.T
    mixture = Mixture(means, within, np.log(weights))
    for factor in (1.0, 4.0):  # the correlations stay
        actual = joint_covariance(mixture, factor * variance, full_output_cov)
        np.testing.assert_allclose(actual, factor * expected, rtol=1e-12)
