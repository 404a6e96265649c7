from __future__ import annotations

from pathlib import Path

import numpy as np
from scipy import stats

from gpflow_deep import metrics
from gpflow_deep.estimators import DeepGPRegressor, load
from gpflow_deep.estimators.tails import Tails


def _heavy(num_rows: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_t(2.5, size=(num_rows, 1))


def test_tails_of_heavy_errors_predict_new_ones() -> None:
    Y, new = _heavy(3000, 0), _heavy(3000, 1)
    factor, tails = Tails.of(Y**2, np.ones(3000))
    np.testing.assert_allclose(np.dot(tails.factors, tails.weights), 1.0)
    assert 0.5 * np.mean(Y**2) < factor < 1.5 * np.mean(Y**2)
    mixture = tails.mixture(Y, np.zeros((3000, 1)), np.full((3000, 1), factor))
    density = metrics.log_density(new, *mixture).mean()
    gaussian = stats.norm.logpdf(new, scale=np.sqrt(factor)).mean()
    assert density > gaussian + 0.15
    assert density > stats.t.logpdf(new, 2.5).mean() - 0.02
    assert 0.94 < metrics.coverage(new, *mixture, level=0.95) < 0.96


def test_tails_of_gaussian_errors_are_gaussian() -> None:
    Y = np.random.default_rng(0).normal(size=(2000, 1))
    factor, tails = Tails.of(Y**2, np.ones(2000))
    mixture = tails.mixture(Y, np.zeros((2000, 1)), np.full((2000, 1), factor))
    new = np.random.default_rng(1).normal(size=(2000, 1))
    assert metrics.log_density(new, *mixture).mean() > stats.norm.logpdf(new).mean() - 0.01


def test_a_few_errors_of_nothing_do_not_take_a_component_along() -> None:
    errors = np.concatenate([np.zeros(3), np.ones(20)])[:, None]
    _, tails = Tails.of(errors, np.ones(23))
    assert min(tails.factors) > 0.05


def test_rows_count_as_often_as_they_are() -> None:
    errors = _heavy(50, 2) ** 2
    times = np.random.default_rng(3).integers(1, 4, 50)
    one, many = (
        Tails.of(errors, times.astype(float)),
        Tails.of(np.repeat(errors, times, axis=0), np.ones(times.sum())),
    )
    np.testing.assert_allclose(one[0], many[0])
    np.testing.assert_allclose(one[1].factors, many[1].factors)


def test_exact_gps_have_tails_in_all_their_predictions(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, size=(150, 1))
    y = np.sin(2 * X[:, 0]) + 0.1 * rng.standard_t(2.0, size=150)
    fitted = DeepGPRegressor("gp", validation_fraction=0.0, random_state=0).fit(X, y)
    means, variances, log_weights = fitted.predict_mixture(X)
    assert len(log_weights) == 3
    np.testing.assert_allclose(means[0], means[2])
    np.testing.assert_allclose(
        fitted.log_density(X, y),
        metrics.log_density(y[:, None], means, variances, log_weights),
        rtol=1e-6,
    )
    _, sd = fitted.predict(X[:4], return_std=True)
    _, covariance = fitted.predict(X[:4], return_cov=True)
    np.testing.assert_allclose(np.diag(covariance), sd**2)
    draws = fitted.sample_y(X[:4], 100_000, random_state=0)
    np.testing.assert_allclose(draws.std(axis=1), sd, rtol=0.1)
    quantiles = fitted.predict_quantiles(X[:4], (0.01, 0.5, 0.99))
    np.testing.assert_allclose(
        np.quantile(draws, (0.01, 0.5, 0.99), axis=1).T, quantiles, atol=0.2 * sd.max()
    )
    fitted.save(tmp_path / "fit")
    again = load(tmp_path / "fit").predict_mixture(X)
    for ours, theirs in zip(again, (means, variances, log_weights), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_draws_have_the_covariance_of_the_prediction() -> None:
    X = np.linspace(-2.0, 2.0, 60)[:, None]
    y = np.sin(2.0 * X[:, 0]) + 0.05 * np.random.default_rng(3).standard_t(2.0, size=60)
    fitted = DeepGPRegressor("gp", random_state=0).fit(X, y)
    apart = np.linspace(2.5, 3.0, 4)[:, None]  # where functions are uncertain
    _, covariance = fitted.predict(apart, return_cov=True)
    draws = np.cov(fitted.sample_y(apart, 20_000, random_state=0))
    np.testing.assert_allclose(draws, covariance, rtol=0.06)


def test_quantiles_of_student_t_noise_are_those_of_its_draws() -> None:
    X = np.random.default_rng(0).normal(size=(60, 1))
    fitted = DeepGPRegressor(
        "svgp", steps=50, likelihood="student-t", num_inducing=10, random_state=0
    ).fit(X, np.sin(X[:, 0]))
    levels = (0.05, 0.25, 0.75, 0.95)
    draws = np.quantile(fitted.sample_y(X[:2], 40_000, random_state=0), levels, axis=1).T
    quantiles = fitted.predict_quantiles(X[:2], levels)
    spread = quantiles[:, -1:] - quantiles[:, :1]
    np.testing.assert_allclose((draws - quantiles) / spread, 0.0, atol=0.02)
    mixture = fitted.predict_mixture(X)
    exact = fitted.log_density(X, np.sin(X[:, 0]))
    np.testing.assert_allclose(
        metrics.log_density(np.sin(X), *mixture).mean(), exact.mean(), atol=0.02
    )
