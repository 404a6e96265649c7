"""Errors that depend on the inputs: forests, where they are taken, and what predictions make of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from scipy.stats import norm
from sklearn.tree import DecisionTreeRegressor

from gpflow_deep import metrics
from gpflow_deep.estimators import DeepGPRegressor, base, load
from gpflow_deep.estimators import error_forest as forest_module
from gpflow_deep.estimators.calibration import calibrate, left_out, predicted
from gpflow_deep.estimators.completing import complete
from gpflow_deep.estimators.constant import fit_constant
from gpflow_deep.estimators.error_forest import ErrorForest
from gpflow_deep.estimators.evidence import fit_exact
from gpflow_deep.estimators.rows import Predicted, Rows
from gpflow_deep.estimators.tails import Tails
from gpflow_deep.presets import get, recommended
from gpflow_deep.presets.exact import ExactGP


def _standard(X: np.ndarray, errors: np.ndarray, weights: np.ndarray) -> Predicted:
    """Rows of which a standard normal was predicted."""
    return Predicted(X, 0.0 * errors, np.ones((len(X), 1)), errors, weights, 0.0 * errors)


def _grown(
    N: int = 400, P: int = 1, seed: int = 0, leaf: int = 3
) -> tuple[np.ndarray, np.ndarray, ErrorForest, np.ndarray]:
    """Errors whose deviation and mean jump with the first input."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, size=(N, 2))
    high = X[:, :1] > 0
    errors = np.where(high, 1.0, -0.5) + np.where(high, 1.0, 0.1) * rng.normal(size=(N, P))
    forest, densities = ErrorForest.grow(
        _standard(X, errors, np.ones(N)), predicted=False, leaf=leaf, seed=seed
    )
    return X, errors, forest, densities


@pytest.mark.parametrize("P", [1, 2])
def test_its_trees_are_scikit_learns(monkeypatch: pytest.MonkeyPatch, P: int) -> None:
    grown: list[DecisionTreeRegressor] = []
    fit = DecisionTreeRegressor.fit
    monkeypatch.setattr(
        DecisionTreeRegressor, "fit", lambda self, *a: grown.append(self) or fit(self, *a)
    )
    _, _, forest, _ = _grown(P=P)
    new = np.random.default_rng(1).uniform(-0.9, 0.9, size=(50, 2))
    means, variances, log_weights = forest.mixture(new, np.zeros((50, P)), np.ones((50, P)))
    means, variances = means[:-1], variances[:-1]  # without that of the prediction
    np.testing.assert_allclose(np.exp(log_weights[:-1]), 0.999 / len(means))
    theirs = np.stack([tree.predict(new).reshape(50, P) for tree in grown])
    np.testing.assert_allclose(means.mean(axis=0), theirs.mean(axis=0), atol=1e-12)
    if P == 1:
        spread = np.stack([tree.tree_.impurity[tree.apply(new)] for tree in grown])[..., None]
        total = spread.mean(axis=0) + theirs.var(axis=0)
        width = (variances + np.square(means)).mean(axis=0) - np.square(means.mean(axis=0)) - total
        np.testing.assert_allclose(width, width[0, 0], atol=1e-9)


def test_where_trees_are_sure_and_wrong_a_thousandth_is_the_predictions() -> None:
    rng = np.random.default_rng(0)
    X = rng.uniform(-1.0, 1.0, size=(400, 2))
    errors = np.where(X[:, :1] > 0.0, 1.0, -1.0) + 0.003 * rng.normal(size=(400, 1))
    forest, _ = ErrorForest.grow(
        _standard(X, errors, np.ones(400)), predicted=False, leaf=5, seed=0
    )
    wrong = np.array([[-1.0]])
    at = np.array([[0.5, 0.0]]), np.zeros((1, 1)), np.ones((1, 1))
    mixture = forest.mixture(*at)
    found = float(metrics.log_density(wrong, *mixture)[0])
    np.testing.assert_allclose(found, np.log(0.001) + norm.logpdf(-1.0), atol=0.3)
    mean, variance = metrics.mixture_moments(*mixture)
    again, covariance = forest.moments(*at[:2], np.ones((1, 1, 1)))
    np.testing.assert_allclose(again, mean, atol=1e-12)
    np.testing.assert_allclose(covariance[:, 0], variance, rtol=1e-9)


def test_rows_count_as_often_as_they_are() -> None:
    """A row that counts for nothing, nearly, changes nothing."""
    rng = np.random.default_rng(0)
    X, errors = rng.uniform(size=(300, 1)), rng.normal(size=(300, 1))
    wild = X[:, 0] > 0.5
    errors[wild] += 10.0 * (np.arange(wild.sum()) % 2)[:, None]
    weights = np.where(errors[:, 0] > 5.0, 1e-9, 1.0)
    rows = _standard(X, errors, weights)
    forest, _ = ErrorForest.grow(rows, predicted=False, leaf=10, seed=0)
    means, _, _ = forest.mixture(np.array([[0.75]]), np.zeros((1, 1)), np.ones((1, 1)))
    assert abs(means.mean()) < 1.0


def test_what_unseen_rows_say_holds_for_new_ones() -> None:
    _, _, forest, densities = _grown(2000)
    X, errors, _, _ = _grown(2000, seed=1)
    new = metrics.log_density(errors, *forest.mixture(X, 0.0 * errors, np.ones_like(errors)))
    assert np.isnan(densities).sum() < 5
    # The true ones are -1.42 and 0.88.
    assert abs(np.nanmean(densities) - new.mean()) < 0.05 and new.mean() > -0.45


@hypothesis_settings(max_examples=10, deadline=None)
@given(P=st.integers(1, 2), seed=st.integers(0, 2), scale=st.floats(0.1, 10.0))
def test_mixture_draws_and_moments_agree(P: int, seed: int, scale: float) -> None:
    X, _, forest, _ = _grown(100, P, seed, leaf=10)
    rng = np.random.RandomState(seed)
    X, means = X[:4], rng.normal(size=(4, P))
    root = scale * rng.normal(size=(P, 4, 4))
    covariance = root @ np.swapaxes(root, 1, 2)
    variances = np.diagonal(covariance, axis1=1, axis2=2).T
    mixture = forest.mixture(X, means, variances)
    mean, joint = forest.moments(X, means, covariance)
    for ours, theirs in zip(
        metrics.mixture_moments(*mixture),
        (mean, np.diagonal(joint, axis1=1, axis2=2).T),
        strict=True,
    ):
        np.testing.assert_allclose(ours, theirs)
    assert np.linalg.eigvalsh(joint).min() > -1e-9 * scale**2
    S = 20_000
    Y = means + np.einsum("pij,spj->sip", root, rng.normal(size=(S, P, 4)))
    draws = forest.draw(X, means, variances, Y, rng)
    for p in range(P):
        found = np.cov(draws[..., p], rowvar=False)
        np.testing.assert_allclose(found, joint[p], atol=0.06 * joint.max())


def test_neighbours_that_are_merged_keep_moments_and_density(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    X, errors, forest, _ = _grown()
    merged = forest.mixture(X, 0.0 * errors, np.ones_like(errors))
    monkeypatch.setattr(forest_module, "_COMPONENTS", 64)
    whole = forest.mixture(X, 0.0 * errors, np.ones_like(errors))
    assert (len(merged[0]), len(whole[0])) == (16 + 1, 64 + 1)
    for ours, theirs in zip(
        metrics.mixture_moments(*merged), metrics.mixture_moments(*whole), strict=True
    ):
        np.testing.assert_allclose(ours, theirs)
    difference = metrics.log_density(errors, *merged) - metrics.log_density(errors, *whole)
    assert -0.06 < difference.mean() < 0.02


def test_arrays_are_all_there_is() -> None:
    X, errors, forest, _ = _grown()
    again = ErrorForest.of_arrays(forest.arrays(), 2, 1)
    for ours, theirs in zip(
        forest.mixture(X, 0.0 * errors, np.ones_like(errors)),
        again.mixture(X, 0.0 * errors, np.ones_like(errors)),
        strict=True,
    ):
        np.testing.assert_array_equal(ours, theirs)


def test_damaged_arrays_are_told() -> None:
    _, _, forest, _ = _grown(100)
    arrays = forest.arrays()
    for name, value, told in (
        ("children", 0 * arrays["children"], "lead nowhere"),
        ("children", arrays["children"] + 10**6, "lead nowhere"),
        ("features", arrays["features"] + 2, "lead nowhere"),
        ("variances", -arrays["variances"], "negative"),
        ("means", np.nan * arrays["means"], "NaN"),
        ("thresholds", arrays["thresholds"][:, :3], "shapes"),
    ):
        with pytest.raises(ValueError, match=f"errors: .*{told}"):
            ErrorForest.of_arrays({**arrays, name: value}, 2, 1)


def _rows(N: int, noise: object, seed: int = 0) -> Rows:
    """A sine with an error whose deviation is a function of the first input."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, size=(N, 2))
    Y = np.sin(3 * X[:, :1]) + noise(X[:, :1]) * rng.normal(size=(N, 1))
    return Rows(X, Y, np.ones(N))


def test_a_forest_is_taken_where_errors_depend_on_inputs() -> None:
    for noise, kind in (
        (lambda x: 0.3 + 0.0 * x, Tails),
        (lambda x: np.where(x > 0, 0.5, 0.02), ErrorForest),
    ):
        rows = _rows(300, noise)
        settings = replace(recommended("gp", *rows.X.shape), kernel="rbf")
        _, _, errors = fit_exact("gp", rows, settings, seed=0)
        assert isinstance(errors, kind)


def test_predictions_do_not_tell_the_targets_that_they_were_left_out_of() -> None:
    """
    A mean that lacks a row tells its target to who knows the means around it: of nothing but noise a forest
    of such means made predictions that were sure of themselves.
    """
    for seed in range(3):
        rng = np.random.default_rng(seed)
        rows = Rows(rng.normal(size=(600, 3)), rng.normal(size=(600, 1)), np.ones(600))
        settings = replace(recommended("gp", 600, 3), kernel="matern52")
        model = get("gp").build(rows.X, rows.Y, settings, 0)
        model.likelihood.variance.assign(1.0)
        model.kernel.variance.assign(1e-3)
        model.kernel.lengthscales.assign(np.full(3, 10.0))
        known = left_out(model)
        assert isinstance(calibrate(model, known, seed=0), Tails)
        leaking = known._replace(means_apart=known.means)
        assert isinstance(calibrate(model, leaking, seed=0), ErrorForest)


def test_a_forest_is_grown_again_beside_a_gp_that_takes_in_more_rows() -> None:
    """One of two values by a coin: the errors that it knows are those of the GP that it was grown beside."""
    rng = np.random.default_rng(0)

    def draw(N: int) -> Rows:
        X = rng.uniform(-1, 1, size=(N, 2))
        branch = rng.choice([-1.0, 1.0], size=(N, 1)) * (1.0 + X[:, :1])
        return Rows(X, branch + 0.05 * rng.normal(size=(N, 1)), np.ones(N))

    some, more, test = draw(400), draw(100), draw(2000)
    rows = Rows(*map(np.concatenate, zip(some, more, strict=True)))
    settings = replace(recommended("gp", 400, 2), kernel="matern32")
    model = get("gp").build(some.X, some.Y, settings, 0)
    model.likelihood.variance.assign(0.5)
    errors = calibrate(model, left_out(model), seed=0)
    assert isinstance(errors, ErrorForest)

    def score(model: ExactGP, errors: ErrorForest) -> float:
        mixture = errors.mixture(test.X, *(np.asarray(x) for x in model.predict_y(test.X)))
        return float(np.mean(metrics.log_density(test.Y, *mixture)))

    whole, grown = complete("gp", model, errors, rows, settings, seed=0)
    assert whole.inputs.shape[0] == 500
    assert score(whole, grown) > max(score(model, errors), score(whole, errors)) + 0.02
    tails = Tails((1.0,), (1.0,))
    assert complete("gp", model, tails, rows, settings, seed=0)[1] is tails


def test_a_forest_that_takes_too_long_is_left_out() -> None:
    """Of a fit in next to no time; in time it is the one that there is without a limit."""
    rows = _rows(300, lambda x: np.where(x > 0, 0.5, 0.02))
    settings, kinds = recommended("constant", 300, 2), {}
    for seconds in (1e-6, 60.0, None):
        _, kinds[seconds] = fit_constant(rows, settings, seed=0, seconds=seconds)
    assert isinstance(kinds[1e-6], Tails) and isinstance(kinds[None], ErrorForest)
    np.testing.assert_array_equal(kinds[60.0].means, kinds[None].means)


def test_errors_that_the_predictions_tell_of() -> None:
    """The deviation grows with what is predicted, and with the predicted deviation."""
    rng = np.random.default_rng(0)
    means, deviations = rng.normal(size=(1000, 1)), rng.uniform(0.5, 2.0, size=(1000, 1))
    residuals = deviations * np.exp(means) * rng.normal(size=(1000, 1))
    rows = Predicted(
        rng.normal(size=(1000, 3)), means, deviations**2, residuals, np.ones(1000), means
    )
    model, _ = fit_constant(_rows(100, np.ones_like), recommended("constant", 100, 2), seed=0)
    forest = calibrate(model, rows, seed=0)
    assert isinstance(forest, ErrorForest) and forest.predicted
    _, variances, _ = forest.mixture(rows.X[:2], np.array([[-1.0], [1.0]]), np.ones((2, 1)))
    assert variances[:-1, 1].mean() > 10.0 * variances[:-1, 0].mean()


def test_rows_left_out_and_other_rows() -> None:
    rows, more = _rows(40, np.ones_like), _rows(30, np.ones_like, seed=1)
    settings = recommended("gp", *rows.X.shape)
    model = get("gp").build(rows.X, rows.Y, settings, 0)
    model.weights.assign(1.0 + np.arange(40.0) % 3)
    own, others = left_out(model), predicted(model, more)
    without = get("gp").build(rows.X, rows.Y, settings, 0)
    without.weights.assign(
        model.weights.numpy() - (np.arange(40) == 7)
    )  # row 7 has two: one is left
    for found, X, Y, row in ((own, rows.X[[7]], rows.Y[7], 7), (others, more.X[[3]], more.Y[3], 3)):
        mean, variance = (without if found is own else model).predict_y(X)
        np.testing.assert_allclose(found.means[row], mean[0])
        np.testing.assert_allclose(found.residuals[row], Y - mean[0])
        np.testing.assert_allclose(found.variances[row], variance[0])


def test_a_constant_of_rows_that_count_several_times() -> None:
    rows = _rows(50, np.ones_like)
    weighted = rows._replace(weights=1.0 + np.arange(50.0) % 2)
    settings = recommended("constant", *rows.X.shape)
    model, errors = fit_constant(weighted, settings, seed=0)
    mean, variance = model.predict_y(rows.X[:3])
    expected = np.average(rows.Y[:, 0], weights=weighted.weights)
    np.testing.assert_allclose(mean, np.full((3, 1), expected), rtol=0.03)
    spread = np.average(np.square(rows.Y[:, 0] - expected), weights=weighted.weights)
    np.testing.assert_allclose(variance, np.full((3, 1), spread), rtol=0.05)
    assert isinstance(errors, Tails)


@pytest.mark.parametrize("P, float_name", [(1, "float64"), (2, "float64"), (1, "float32")])
def test_constant_on_boxes(
    P: int, float_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What trees are made for: all predictions agree, and are the same when loaded."""
    monkeypatch.setattr(base, "candidates", lambda *likelihood, **rows: (("constant",), ""))
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(400, 3))
    f = 2.0 * (X[:, 0] > 0.3) - 1.5 * (X[:, 1] > X[:, 2])
    y = np.squeeze(f[:, None] * (1.0 + np.arange(P)) + 0.1 * rng.normal(size=(400, P)))
    options = dict(float=float_name, random_state=0, validation_fraction=0.0)
    model = DeepGPRegressor(**options).fit(X[:300], y[:300])
    new, observed = X[300:], y[300:]
    mixture = model.predict_mixture(new)
    np.testing.assert_allclose(
        model.log_density(new, observed),
        metrics.log_density(observed.reshape(-1, P), *mixture),
        rtol=1e-4,
        atol=1e-4,
    )
    assert model.score(new, observed) > 0.8
    mean, sd = model.predict(new[:5], return_std=True)
    _, covariance = model.predict(new[:5], return_cov=True)
    np.testing.assert_allclose(np.sqrt(np.einsum("ii...->i...", covariance)), sd, rtol=1e-5)
    draws = model.sample_y(new[:5], 5000, random_state=0)
    np.testing.assert_allclose(draws.mean(axis=-1), mean, atol=0.1)
    np.testing.assert_allclose(draws.std(axis=-1), sd, rtol=0.1)
    model.save(tmp_path / "fit")
    for ours, theirs in zip(load(tmp_path / "fit").predict_mixture(new), mixture, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_away_from_the_rows_there_is_the_prediction() -> None:
    X, _, forest, _ = _grown()
    near, far = np.array([[-0.5, 0.0]]), np.array([[-5.0, 0.0]])
    mean, one = np.full((1, 1), 3.0), np.ones((1, 1))

    def moments(X: np.ndarray, variance: float) -> tuple[float, float]:
        found = metrics.mixture_moments(*forest.mixture(X, mean, variance * one))
        return float(found[0][0, 0]), float(found[1][0, 0])

    inside, outside, uncertain = moments(near, 1.0), moments(far, 1.0), moments(near, 100.0)
    assert abs(inside[0] - 2.5) < 0.1 and inside[1] < 0.1
    assert abs(outside[0] - 3.0) < 0.1 and 0.9 < outside[1] < 1.1
    assert abs(uncertain[0] - 3.0) < 0.1 and 99.0 < uncertain[1] < 100.0
