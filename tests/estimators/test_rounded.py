"""Targets rounded to a few numbers: members are judged by probabilities of these, not by densities."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.integrate import quad

from gpflow_deep import metrics
from gpflow_deep.estimators import DeepGPRegressor


def _scores(num_rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Five levels of a smooth function, none of which is sure."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(num_rows, 3))
    f = np.sin(2.0 * X[:, 0]) + 0.5 * X[:, 1] ** 2
    return X, np.clip(np.round(f + 0.4 * rng.normal(size=num_rows) + 1.0), 0.0, 4.0)


@pytest.mark.parametrize("model", ["gp", "constant"])
def test_means_are_integrals_of_densities(model: str) -> None:
    X, y = _scores(60)
    fitted = DeepGPRegressor(model, steps=3, random_state=0).fit(X, y)
    (member,) = fitted.members_
    inputs = fitted._inputs(X[:4])
    targets = fitted.scaling_.targets(y[:4, None])
    means, variances, log_weights = member.predict_y_mixture(inputs)
    for width in (1e-3, 0.7):
        found = member.log_mean_density(inputs, targets, width)
        for row, (target, log_mean) in enumerate(zip(targets[:, 0], found, strict=True)):

            def density(value: float, row: int = row) -> float:
                at = slice(row, row + 1)
                parts = means[:, at], variances[:, at], log_weights
                return float(np.exp(metrics.log_density([[value]], *parts))[0])

            ends = target - 0.5 * width, target + 0.5 * width
            expected, _ = quad(density, *ends, points=[target], epsrel=1e-9, limit=500)
            np.testing.assert_allclose(np.exp(log_mean), expected / width, rtol=1e-6)
    far = targets + 1e3
    np.testing.assert_array_equal(
        member.log_mean_density(inputs, far, 0.7), member.log_density(inputs, far)
    )


def test_the_default_does_not_name_numbers_where_it_could_predict() -> None:
    X, y = _scores(800)
    exact = DeepGPRegressor("gp", random_state=0).fit(X[:300], y[:300])
    default = DeepGPRegressor(steps=100, random_state=0).fit(X[:300], y[:300])

    def error_and_mass(fitted: DeepGPRegressor) -> tuple[float, float]:
        mixture = fitted.predict_mixture(X[300:])
        ends = (metrics.pit(y[300:, None] + end, *mixture) for end in (0.5, -0.5))
        mass = np.subtract(*ends)
        error = metrics.rmse(y[300:, None], fitted.predict(X[300:])[:, None])
        return float(error), float(np.mean(np.log(mass)))

    (error, mass), (error_of_gp, mass_of_gp) = map(error_and_mass, (default, exact))
    assert error < 1.05 * error_of_gp and mass > mass_of_gp - 0.03
