"""A handful of rows: noise is not known for certain, and what is smooth is learned."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from gpflow_deep.estimators import DeepGPRegressor, load
from gpflow_deep.estimators.averaged import Posterior, _model
from gpflow_deep.estimators.rows import Rows
from gpflow_deep.presets import recommended
from gpflow_deep.presets.registry import LINEAR

_KERNELS = (LINEAR, "rbf", "matern12", "matern32", "matern52")


@settings(max_examples=10, deadline=None)
@given(
    seed=st.integers(0, 1000),
    num_rows=st.integers(1, 9),
    shape=st.tuples(st.integers(1, 3), st.integers(1, 2)),
)
def test_its_evidence_is_that_of_the_exact_gps(
    seed: int, num_rows: int, shape: tuple[int, int]
) -> None:
    """But for a constant."""
    rng = np.random.default_rng(seed)
    D, P = shape
    weights = rng.integers(1, 4, size=num_rows).astype(float)
    rows = Rows(rng.normal(size=(num_rows, D)), rng.normal(size=(num_rows, P)), weights)
    posterior = Posterior(rows, _KERNELS, 1e-5)
    values, kernel = rng.normal(size=(len(_KERNELS), 2 + D)), np.arange(len(_KERNELS))
    found = posterior.log_evidence(values, kernel)
    expected = []
    for point, number in zip(values, kernel, strict=True):
        drawn = posterior.hyperparameters(point, int(number))
        name = LINEAR if drawn.kernel == LINEAR else "gp"
        chosen = recommended(name, num_rows, D)
        if name != LINEAR:
            chosen = replace(chosen, kernel=drawn.kernel)
        model = _model(name, chosen, rows, drawn, 0)
        expected.append(float(model.maximum_log_likelihood_objective()))
    apart = found - expected
    np.testing.assert_allclose(apart, apart[0], rtol=0.0, atol=1e-6 * (1.0 + np.abs(found).max()))


def test_draws_are_of_the_posterior() -> None:
    """Of one row, whose evidence a sum over a grid normalises."""
    rows = Rows(np.zeros([1, 1]), np.array([[3.0]]), np.ones(1))
    posterior = Posterior(rows, ("rbf",), 1e-9)
    grid = np.linspace(-5.0, 5.0, 201)
    noise, variance = (axis.ravel() for axis in np.meshgrid(grid, grid))
    values = np.stack([noise, variance, np.zeros_like(noise)], axis=1)
    log_density = posterior.log_evidence(values, np.zeros(len(values), int))
    density = np.exp(log_density - 0.5 * (noise**2 + variance**2))
    drawn = posterior.draw(2000, np.random.default_rng(0))
    natural = [posterior.hyperparameters(value, 0) for value in (np.zeros(3), np.ones(3))]
    for name, axis in (("noise", noise), ("variance", variance)):
        mean, deviation = (np.log(getattr(one, name)) for one in natural)
        found = (np.log([getattr(one, name) for one in drawn]) - mean) / (deviation - mean)
        expected = float(np.average(axis, weights=density))
        assert np.mean(found) == pytest.approx(expected, abs=0.1)


@pytest.mark.parametrize("num_rows", [8, 29])
def test_noise_is_not_known(num_rows: int) -> None:
    gains, covered = [], []
    for seed in range(3):
        rng = np.random.default_rng(seed)
        X, y = rng.normal(size=(num_rows + 300, 1)), rng.normal(size=num_rows + 300)
        own, new = slice(num_rows), slice(num_rows, None)
        fitted = DeepGPRegressor(random_state=0).fit(X[own], y[own])
        plain = norm.logpdf(y[new], y[own].mean(), y[own].std(ddof=1))
        gains.append(np.mean(fitted.log_density(X[new], y[new]) - plain))
        low, high = fitted.predict_quantiles(X[new], (0.025, 0.975)).T
        covered.append(np.mean((low <= y[new]) & (y[new] <= high)))
    assert np.mean(gains) > -0.15  # one GP of the most evidence: -1 to -4
    assert np.mean(covered) > 0.88


@pytest.mark.parametrize("seed", [3, 13])
def test_next_to_a_jump_it_is_not_sure_without_end(seed: int) -> None:
    """Draws alone come to -217 and -140 there, -3.7 and -2.2 on average."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1.0, 1.0, (320, 2))
    y = (X[:, 0] > 0.0) + 0.02 * rng.normal(size=320)
    regressor = DeepGPRegressor(random_state=0).fit(X[:20], y[:20])
    assert {row["name"]: row["weight"] for row in regressor.report_}["constant"] == 0.001
    density = regressor.log_density(X[20:], y[20:])
    assert density.min() > -10.0 and density.mean() > 0.0


def test_lines_and_smooth_functions_are_told_apart() -> None:
    X, new = np.linspace(-1.0, 1.0, 12)[:, None], np.linspace(-0.9, 0.9, 50)[:, None]
    smooth = DeepGPRegressor(random_state=0).fit(X, np.sin(3.0 * X[:, 0]))
    mean, deviation = smooth.predict(new, return_std=True)
    assert np.max(np.abs(mean - np.sin(3.0 * new[:, 0]))) < 0.02
    assert np.max(deviation) < 0.05
    assert {member.name for member in smooth.members_} == {"gp", "constant"}
    rng = np.random.default_rng(0)
    line = DeepGPRegressor(random_state=0).fit(X, X[:, 0] + 0.2 * rng.normal(size=12))
    weights = {tried["name"]: tried["weight"] for tried in line.report_}
    assert weights["linear"] > 0.4  # of at most a half


def test_rows_of_all_kinds(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(9, 2)), rng.normal(size=(9, 2))
    fitted = DeepGPRegressor(random_state=0, float="float32", kernel="matern32", time_limit=0.01)
    fitted.fit(X[:2], Y[:2], [1.0, 2.5])
    assert {member.settings.kernel for member in fitted.members_} <= {"own", "matern32"}
    fitted.save(tmp_path / "fit")
    for numbers in (fitted.predict(X), fitted.predict_quantiles(X), fitted.sample_y(X, 20)):
        assert np.isfinite(numbers).all()
    np.testing.assert_array_equal(load(tmp_path / "fit").predict(X), fitted.predict(X))
    # In units in which rows of before are next to one another.
    again = DeepGPRegressor(random_state=0, warm_start=True).fit(X, Y)
    assert np.isfinite(again.fit(1e6 * X + 1e7, Y).predict(X)).all()
