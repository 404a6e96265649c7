"""Logistic regression among the families for classes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from sklearn import config_context
from sklearn.datasets import load_breast_cancer, load_iris
from sklearn.linear_model import LogisticRegressionCV
from sklearn.metrics import log_loss
from sklearn.model_selection import cross_val_score, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from gpflow_deep import presets
from gpflow_deep.estimators import DeepGPClassifier, base, load, logistic
from gpflow_deep.estimators.logistic import fit_logistic
from gpflow_deep.estimators.rows import Rows


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize("data", [load_breast_cancer, load_iris])
def test_it_is_that_of_scikit_learn(data: object) -> None:
    """Two classes by the probit that is nearest to the logistic function, three by the softmax."""
    X, y = data(return_X_y=True)  # type: ignore[operator]
    train_X, X, train_y, y = train_test_split(X, y, test_size=0.2, stratify=y, random_state=0)
    theirs = make_pipeline(
        StandardScaler(), LogisticRegressionCV(Cs=15, scoring="neg_log_loss", max_iter=1000)
    )
    expected = theirs.fit(train_X, train_y).predict_proba(X)
    ours = DeepGPClassifier("linear", random_state=0).fit(train_X, train_y)
    assert ours.report_[0]["weight"] == 1.0
    found = ours.predict_proba(X)
    assert log_loss(y, found) < log_loss(y, expected) + 0.01
    assert np.mean(ours.predict(X) == theirs.predict(X)) > 0.98


@pytest.mark.parametrize("num_classes", [2, 3])
def test_functions_are_linear_and_as_probable_as_can_be(num_classes: int) -> None:
    """The gradient of the penalised log-likelihood is zero for some penalty: it is along the weights."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 3))
    scores = X @ rng.normal(size=(3, num_classes)) + rng.gumbel(size=(300, num_classes))
    Y = np.argmax(scores, axis=1)[:, None].astype(float)
    likelihood = "bernoulli" if num_classes == 2 else "softmax"
    settings = presets.Settings(likelihood=likelihood, num_layers=1)
    model = presets.build("linear", X, Y, settings)
    fit_logistic(model, Rows(X, Y, np.ones(300)), num_classes, 0)
    F, variance = (array.numpy() for array in model.predict_f(X))
    assert variance.max() < 1e-3
    design = np.hstack([np.ones([300, 1]), X])
    weights, misfit, *_ = np.linalg.lstsq(design, F, rcond=None)
    assert misfit.max() < 1e-6
    if num_classes == 2:
        F = np.hstack([np.zeros([300, 1]), F * np.sqrt(8.0 / np.pi)])
    probabilities = np.exp(F) / np.exp(F).sum(axis=1, keepdims=True)
    gradient = design.T @ (np.eye(num_classes)[Y[:, 0].astype(int)] - probabilities)
    if num_classes == 2:
        gradient = gradient[:, 1:]
    else:
        weights -= weights.mean(axis=1, keepdims=True)
    np.testing.assert_allclose(gradient[0], 0.0, atol=0.05)  # the constant has no penalty
    factors = gradient[1:] / weights[1:]
    np.testing.assert_allclose(factors, factors.mean(), rtol=0.05, atol=0.05)
    assert factors.mean() > 0.0


def test_the_time_is_kept_and_wide_data_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fewer rows in less time; a model of the inducing outputs' covariances where they fit in memory."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(5000, 4))
    Y = (X[:, :1] + 0.5 * rng.normal(size=(5000, 1)) > 0.0).astype(float)
    seen = []

    class Counting(logistic.LogisticRegressionCV):  # type: ignore[misc]
        def fit(self, X: np.ndarray, *rest: object) -> LogisticRegressionCV:
            seen.append(len(X))
            return super().fit(X, *rest)

    monkeypatch.setattr(logistic, "LogisticRegressionCV", Counting)
    settings = presets.Settings(likelihood="bernoulli", num_layers=1)
    for seconds, expected in ((None, 5000), (0.01, 375), (1e-9, 200)):
        model = presets.build("linear", X, Y, settings)
        fit_logistic(model, Rows(X, Y, np.ones(5000)), 2, 0, seconds)
        assert seen[-1] == expected
        assert np.mean((model.predict_f(X)[0].numpy() > 0.0) == Y) > 0.8
    assert logistic.is_too_wide(20_000, 2) and not logistic.is_too_wide(784, 10)


def test_a_class_that_the_rows_for_the_penalty_lack() -> None:
    """One row of a hundred: of 200 there may be none."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1900, 2))
    Y = (np.arange(1900) < 19).astype(float)[:, None]
    X[:19] += 3.0
    settings = presets.Settings(likelihood="bernoulli", num_layers=1)
    for seed in range(12):
        model = presets.build("linear", X, Y, settings)
        fit_logistic(model, Rows(X, Y, np.ones(1900)), 2, seed, seconds=1e-9)
        f = model.predict_f(X)[0].numpy()[:, 0]
        assert np.median(f[:19]) > np.median(f[19:]) + 1.0


@pytest.mark.parametrize("float_name", ["float32", "float64"])
def test_weights_and_precision(float_name: str) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 2))
    y = X[:, 0] + 0.3 * rng.normal(size=200) > 0.0
    weights = np.where(rng.uniform(size=200) < 0.5, 1.0, 0.0)
    options = dict(float=float_name, random_state=0, validation_fraction=0.0)
    weighted = DeepGPClassifier("linear", **options).fit(X, y, sample_weight=weights)
    kept = DeepGPClassifier("linear", **options).fit(X[weights > 0.0], y[weights > 0.0])
    np.testing.assert_allclose(weighted.predict_proba(X), kept.predict_proba(X), atol=1e-4)


def test_classes_that_no_row_has_are_improbable() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 2))
    settings = presets.Settings(likelihood="softmax", num_layers=1, num_classes=4)
    for Y in (2.0 * (X[:, :1] > 0.0), np.full([60, 1], 3.0)):
        model = presets.build("linear", X, Y, settings)
        fit_logistic(model, Rows(X, Y, np.ones(60)), 4, 0)
        probabilities = model.predict_y(X)[0].numpy()
        np.testing.assert_allclose(probabilities.sum(axis=1), 1.0, atol=1e-6)
        if Y.max() == 2.0:
            assert probabilities[:, [1, 3]].max() < 0.1
            assert np.mean(np.argmax(probabilities, axis=1) == Y[:, 0]) > 0.9


def test_the_default_for_classes_has_it_where_classes_are_apart_by_a_plane(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    families, deep = base.candidates("bernoulli", predictive=False)
    assert "linear" in families
    # The exact GP takes its time, and is not needed here.
    few = [name for name in families if name != "gp"]
    monkeypatch.setattr(base, "candidates", lambda *_, **__: (few, deep))
    rng = np.random.default_rng(1)
    w = rng.normal(size=20)
    X = rng.normal(size=(2300, 20))
    y = np.where(X @ w > 0.0, "above", "below")
    fitted = DeepGPClassifier(steps=100, kernel="rbf", random_state=0).fit(X[:300], y[:300])
    weights = {tried["name"]: tried["weight"] for tried in fitted.report_}
    assert weights["linear"] > 0.5
    assert log_loss(y[300:], fitted.predict_proba(X[300:])) < 0.12  # GPs alone: 0.17
    fitted.save(tmp_path / "fit")
    np.testing.assert_array_equal(
        load(tmp_path / "fit").predict_proba(X[:9]), fitted.predict_proba(X[:9])
    )


def test_few_rows_say_little_of_the_penalty() -> None:
    """By chance they like none, or nothing but it; many are believed."""

    class Search:
        scores_ = {1: np.zeros([2, 15])}

    search = Search()
    for liked in (0, 14):
        scores = np.full(15, -0.8)
        scores[liked] = -0.6
        search.scores_ = {1: np.stack([scores, scores])}
        few, many = (
            logistic._most_probable(search, number)  # type: ignore[arg-type]
            for number in (10, 100)
        )
        np.testing.assert_allclose([few, many], [1.0, logistic._PENALTIES[liked]])


def test_it_is_the_same_where_metadata_are_routed() -> None:
    """Its search has rows' weights, which scikit-learn then wants to route to the scores too."""
    X, y = load_iris(return_X_y=True)
    weights = np.where(np.arange(len(y)) % 3 == 0, 2.0, 1.0)
    plain = DeepGPClassifier("linear", random_state=0).fit(X, y, weights)
    with config_context(enable_metadata_routing=True):
        routed = DeepGPClassifier("linear", random_state=0)
        routed.set_fit_request(sample_weight=True).set_score_request(sample_weight=True)
        scores = cross_val_score(
            routed, X, y, params={"sample_weight": weights}, error_score="raise"
        )
        routed.fit(X, y, weights)
    assert scores.mean() > 0.9
    np.testing.assert_array_equal(routed.predict_proba(X), plain.predict_proba(X))
