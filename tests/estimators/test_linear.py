"""Bayesian linear regression among the families for numbers."""

from __future__ import annotations

import re
from pathlib import Path

import gpflow
import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from sklearn.linear_model import BayesianRidge
from sklearn.model_selection import train_test_split

from gpflow_deep.estimators import DeepGPRegressor, load
from gpflow_deep.estimators.linear import _left_out, fit_linear
from gpflow_deep.estimators.rows import Predicted, Rows
from gpflow_deep.presets import recommended
from gpflow_deep.presets.exact import ExactGP

_FEW_AND_MANY = [5, 40]  # rows, of eight inputs


def _rows(number: int, P: int = 1, weighted: bool = True) -> Rows:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(number, 8))
    Y = X @ rng.normal(size=(8, P)) + 0.5 * rng.normal(size=(number, P))
    return Rows(X, Y, 1.0 + np.arange(number) % 3 if weighted else np.ones(number))


def _fit(rows: Rows, **options: float) -> ExactGP:
    return fit_linear(rows, recommended("linear", *rows.X.shape), 0, **options)[0]


def _given_all(model: ExactGP, rows: Rows) -> ExactGP:
    return ExactGP((rows.X, rows.Y), model.kernel, model.likelihood, rows.weights)


@pytest.mark.parametrize("number", _FEW_AND_MANY)
@pytest.mark.parametrize("P", [1, 2])
def test_the_posterior_is_that_of_all_rows(number: int, P: int) -> None:
    rows = _rows(number, P)
    model = _fit(rows)
    assert model.inputs.shape[0] == min(number, 8)
    new = np.random.default_rng(1).normal(size=(6, 8))
    for full_cov in (False, True):
        ours, theirs = (m.predict_f(new, full_cov) for m in (model, _given_all(model, rows)))
        np.testing.assert_allclose(ours[0], theirs[0], atol=1e-9)
        np.testing.assert_allclose(ours[1], theirs[1], atol=1e-9)


@pytest.mark.parametrize("number", [12, 40])
def test_the_ratio_of_the_variances_has_most_evidence(number: int) -> None:
    """Of noise and function: all variances were scaled by errors of rows left out."""
    rows = _rows(number, weighted=False)
    model = _fit(rows)
    gram = rows.X @ rows.X.T

    def loss(log_ratio: float) -> float:
        """Minus twice the evidence, at the best scale of both."""
        K = gram + np.exp(log_ratio) * np.eye(number)
        square = float((rows.Y.T @ np.linalg.solve(K, rows.Y))[0, 0])
        return number * np.log(square / number) + np.linalg.slogdet(K)[1]

    best = minimize_scalar(loss, bounds=(-10.0, 10.0), method="bounded")
    ratio = model.likelihood.variance.numpy() / model.kernel.variance.numpy()
    assert loss(float(np.log(ratio))) < best.fun + 1e-3


def test_observations_left_out_are_those_of_a_fit_without() -> None:
    """One of those that a row is."""
    rows = _rows(40)
    model = _fit(rows)
    noise, slope = (p.numpy() for p in (model.likelihood.variance, model.kernel.variance))
    few = Rows(*(np.asarray(v) for v in (model.inputs, model.targets, model.weights)))
    found = _left_out(rows, few, noise, slope)
    for n in range(3):  # of weights 1, 2 and 3
        weights = rows.weights - np.eye(40)[n]
        others = rows._replace(weights=weights).take(np.flatnonzero(weights))
        mean, variance = _given_all(model, others).predict_y(rows.X[n : n + 1])
        np.testing.assert_allclose(found.means[n], mean[0], atol=1e-9)
        np.testing.assert_allclose(found.variances[n], variance[0], atol=1e-9)
    np.testing.assert_allclose(found.residuals, rows.Y - found.means)
    assert isinstance(found, Predicted)


@pytest.mark.parametrize("weight", [1.0, 2.0])
def test_rows_that_a_line_explains_or_that_are_very_many(weight: float) -> None:
    rows = _rows(40, weighted=False)
    exact = Rows(rows.X, rows.X[:, :1], weight * rows.weights)
    model = _fit(exact)
    np.testing.assert_allclose(model.predict_f(rows.X)[0], rows.X[:, :1], atol=1e-3)
    assert model.likelihood.variance.numpy() > model.likelihood.variance_lower_bound
    many = Rows(*(np.concatenate([v] * 20) for v in exact))
    np.testing.assert_allclose(  # five hundred of 800
        _fit(many, seconds=1e-9).predict_f(rows.X)[0], rows.X[:, :1], atol=1e-3
    )


def test_of_numbers_it_is_gpflows_exact_gp(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 2))
    y = X @ [1.0, -2.0] + 0.5 + 0.1 * rng.normal(size=40)
    fitted = DeepGPRegressor("linear", random_state=0).fit(X, y)
    with pytest.warns(UserWarning, match=re.escape("kernel: 'linear' has 'own' always")):
        DeepGPRegressor("linear", kernel="rbf", random_state=0).fit(X, y)
    model, scaling = fitted.model_, fitted.scaling_
    data = scaling.inputs(X), scaling.targets(y[:, None])
    exact = gpflow.models.GPR(data, model.kernel, None, model.likelihood.variance)
    new = rng.normal(size=(5, 2))
    for ours, theirs in zip(model.predict_f(new), exact.predict_f(new), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-9)
    np.testing.assert_allclose(fitted.predict(X), y, atol=0.4)
    fitted.save(tmp_path / "fit")
    np.testing.assert_array_equal(load(tmp_path / "fit").predict(new), fitted.predict(new))


def test_the_default_has_it_where_targets_are_linear() -> None:
    """Of few rows and many inputs, of which a GP with as many lengthscales learns too much."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 20))
    y = X @ rng.normal(size=20) / np.sqrt(20) + rng.normal(size=600)
    X, test_X, y, test_y = train_test_split(X, y, train_size=100, random_state=0)
    default = DeepGPRegressor(time_limit=3.0, random_state=0).fit(X, y)
    weights = {tried["name"]: tried["weight"] for tried in default.report_}
    assert weights["linear"] == max(weights.values())
    theirs = BayesianRidge().fit(X, y)
    errors = [model.predict(test_X) - test_y for model in (default, theirs)]
    ours, best = (float(np.sqrt(np.mean(np.square(e)))) for e in errors)
    assert ours < 1.05 * best


def test_weights_that_hardly_sum_to_one() -> None:
    """As boosting passes them: there is next to nothing to learn, and nothing fails."""
    rows = _rows(40)
    model = _fit(rows._replace(weights=rows.weights / (20.0 * rows.weights.sum())))
    assert np.isfinite(model.predict_y(rows.X)[0]).all()
    assert np.max(np.abs(model.predict_y(rows.X)[0])) < np.max(np.abs(rows.Y))


def test_fewer_rows_than_inputs_have_deviations_of_the_size_of_errors() -> None:
    """Of standardised rows the most evidence is for no noise at all, which has a floor."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(560, 200))
    Y = X @ rng.normal(size=(200, 1)) / np.sqrt(200) + 0.5 * rng.normal(size=(560, 1))
    X, Y = ((array - array[:60].mean(axis=0)) / array[:60].std(axis=0) for array in (X, Y))
    rows = Rows(X[:60], Y[:60], np.ones(60))
    mean, variance = (v.numpy() for v in _fit(rows).predict_y(X[60:]))
    ratio = np.mean(np.square(Y[60:] - mean) / variance)
    assert 0.5 < ratio < 2.0
