"""Classes by an exact GP of the labels: its link, its forest, and what the classifier makes of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gpflow
import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.special import ndtr, softmax
from scipy.stats import norm
from sklearn.datasets import load_wine
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.tree import DecisionTreeClassifier

from gpflow_deep.estimators import DeepGPClassifier, load
from gpflow_deep.estimators import labels as labels_module
from gpflow_deep.estimators.calibration import left_out
from gpflow_deep.estimators.evidence import fit_exact
from gpflow_deep.estimators.few_rows import left_out_by_parts
from gpflow_deep.estimators.label_forest import Gain, LabelForest, Labelled
from gpflow_deep.estimators.labels import (
    Labels,
    Link,
    class_probabilities,
    grow_label_forest,
    link_of,
    own_log_probabilities,
)
from gpflow_deep.estimators.rows import Predicted, Rows, mean_and_error
from gpflow_deep.presets import Settings, build, recommended
from gpflow_deep.presets.exact import ExactGP


def _rules(N: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Three classes by rules about single inputs, a tenth of the labels drawn at random."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(size=(N, 5))
    y = ((X[:, 0] > 0.5) ^ (X[:, 1] > 0.3)).astype(int) + (X[:, 2] > 0.7)
    return X, np.where(rng.uniform(size=N) < 0.1, rng.integers(0, 3, N), y)


def _labelled(N: int, seed: int) -> Labelled:
    X, y = _rules(N, seed)
    before = np.random.default_rng(seed).dirichlet(np.ones(3), N)
    return Labelled(X, before, before, np.ones((N, 1)), y, np.ones(N))


@pytest.mark.parametrize("T", [1, 3])
def test_link_is_found_again(T: int) -> None:
    rng = np.random.default_rng(T)
    means, variances = rng.normal(size=(4000, T)), rng.uniform(0.0, 0.3, size=(4000, 1))
    true = Link(2.0, 1.0, tuple(np.linspace(-0.4, 0.4, T).tolist()) if T > 1 else (0.4,))
    m, v = true.functions(means, np.broadcast_to(variances, means.shape))
    probabilities = class_probabilities(m[None], v[None], np.zeros(1), 0)
    codes = (probabilities.cumsum(axis=1) < rng.uniform(size=(4000, 1))).sum(axis=1)
    link = Link.of(means, variances, codes, np.ones(4000))
    assert abs(link.slope - true.slope) < 0.25
    away = np.array(link.offsets) - np.array(true.offsets)
    np.testing.assert_allclose(away - away.mean() * (T > 1), 0.0, atol=0.15)


def test_link_of_two_classes_is_the_most_probable_one() -> None:
    """A second way: scipy's optimiser without gradients, on the formula."""
    rng = np.random.default_rng(0)
    means, variances = rng.normal(size=(200, 1)), rng.uniform(0.0, 1.0, size=(200, 1))
    codes, weights = (rng.normal(size=200) < means[:, 0]).astype(int), rng.uniform(0.5, 2.0, 200)

    def loss(p: np.ndarray) -> float:
        slope, width = np.exp(p[:2])
        inside = (slope * means + p[2]) / np.sqrt(1.0 + (slope * width) ** 2 * variances)
        second = 1e-3 + (1.0 - 2e-3) * ndtr(inside[:, 0])
        fit = weights @ np.log(np.where(codes == 1, second, 1.0 - second))
        return float(-fit - norm.logpdf(p - np.array([1.0, 0.0, 0.0])).sum())

    options = {"xatol": 1e-7, "fatol": 1e-9, "maxiter": 5000, "maxfev": 5000}
    expected = minimize(loss, np.array([1.0, 0.0, 0.0]), method="Nelder-Mead", options=options).x
    link = Link.of(means, variances, codes, weights)
    found = [np.log(link.slope), np.log(link.width), link.offsets[0]]
    np.testing.assert_allclose(found, expected, atol=1e-3)


def test_link_of_many_classes_takes_some_rows_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """And no longer than there is time for."""
    rng = np.random.default_rng(0)
    means, variances = rng.normal(size=(61, 5)), rng.uniform(0.0, 0.3, size=(61, 1))
    rows = means, variances, np.argmax(means + rng.normal(size=(61, 5)), axis=1), np.ones(61)
    whole = Link.of(*rows)
    monkeypatch.setattr(labels_module, "_MOST_NUMBERS", 32 * 5 * 20)
    found = Link.of(*rows)
    np.testing.assert_allclose([*found[:2], *found[2]], [*whole[:2], *whole[2]], atol=1e-4)
    early = Link.of(*rows, seconds=0.0)
    assert np.isfinite([*early[:2], *early[2]]).all() and abs(early.slope - whole.slope) > 1e-3


def test_a_forest_of_labels_that_takes_too_long_is_left_out() -> None:
    X, y = _rules(300, 0)
    model = build(
        "gp", X, y[:, None].astype(float), recommended("gp", 300, 5, likelihood="softmax")
    )
    known, link = left_out(model), Link(2.0, 1.0, (0.0, 0.0, 0.0))
    assert grow_label_forest(known, link, 0, seconds=0.0) is None
    assert grow_label_forest(known, link, 0, seconds=60.0) is not None


def test_probabilities_are_averages_of_the_softmax() -> None:
    rng = np.random.default_rng(0)
    means, variances = rng.normal(size=(2, 5, 3)), rng.uniform(0.1, 1.0, size=(2, 5, 3))
    weights = np.array([0.3, 0.7])
    draws = rng.normal(size=(100_000, 1, 3))
    expected = sum(
        w * softmax(m + draws * np.sqrt(v), axis=-1).mean(axis=0)
        for w, m, v in zip(weights, means, variances, strict=True)
    )
    found = class_probabilities(means, variances, np.log(weights), seed=0)
    np.testing.assert_allclose(found, expected, atol=0.01)


def test_probabilities_of_many_components_share_their_draws() -> None:
    """As near as for one, against many draws of each."""
    rng = np.random.default_rng(1)
    means, variances = rng.normal(size=(40, 6, 3)), rng.uniform(0.1, 2.0, size=(40, 6, 3))
    draws = rng.normal(size=(4000, 1, 1, 3))
    expected = softmax(means + draws * np.sqrt(variances), axis=-1).mean(axis=(0, 1))
    found = class_probabilities(means, variances, np.full(40, -np.log(40.0)), seed=0)
    np.testing.assert_allclose(found.sum(axis=1), 1.0)
    np.testing.assert_allclose(found, expected, atol=0.01)


def test_each_observation_is_predicted_from_the_others() -> None:
    """Rows that count twice, against the same rows twice, each left out by itself: dense algebra."""
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(12, 2)), rng.normal(size=(12, 1))
    weights = np.array([1.0] * 6 + [2.0] * 4 + [3.0] * 2)
    kernel, noise = gpflow.kernels.Matern52(), gpflow.likelihoods.Gaussian(0.2)
    known = left_out(ExactGP((X, Y), kernel, noise, weights))
    rows = np.repeat(np.arange(12), weights.astype(int))
    covariance = kernel(X[rows]).numpy() + 0.2 * np.eye(len(rows))
    for n in range(12):
        out = int(np.flatnonzero(rows == n)[0])
        others = np.delete(np.arange(len(rows)), out)
        gains = np.linalg.solve(covariance[np.ix_(others, others)], covariance[others, out])
        np.testing.assert_allclose(known.means[n], gains @ Y[rows][others], atol=1e-10)
        variance = covariance[out, out] - gains @ covariance[others, out]
        np.testing.assert_allclose(known.variances[n, 0], variance, atol=1e-10)
    assert known.one_by_one() is known  # numbers with digits do not come again
    known = known._replace(residuals=0.1 - known.means)  # targets of one value, up to rounding
    assert len(known.one_by_one().X) == len(rows)
    apart = known._replace(weights=weights + 0.5)
    assert apart.one_by_one().weights.tolist() == (weights + 0.5).tolist()


@pytest.mark.parametrize("predicted", [False, True])
def test_forest_adds_what_scikit_learns_trees_count(
    monkeypatch: pytest.MonkeyPatch, predicted: bool
) -> None:
    grown: list[tuple[DecisionTreeClassifier, np.ndarray, np.ndarray]] = []
    fit = DecisionTreeClassifier.fit

    def remember(tree: DecisionTreeClassifier, X: np.ndarray, y: np.ndarray, counts: np.ndarray):  # type: ignore[no-untyped-def]
        grown.append((tree, X, np.eye(3)[y] * counts[:, None]))
        return fit(tree, X, y, counts)

    monkeypatch.setattr(DecisionTreeClassifier, "fit", remember)
    rows = _labelled(300, 0)
    forest, _ = LabelForest.grow(rows, predicted=predicted, leaf=10, seed=0)
    rng = np.random.default_rng(1)
    new, before = rng.uniform(0.1, 0.9, size=(20, 5)), rng.dirichlet(np.ones(3), 20)
    inputs = np.hstack([new, before]) if predicted else new
    expected, prior = np.zeros((20, 3)), float(forest.prior)
    for tree, X, counts in grown:
        same = tree.apply(inputs)[:, None] == tree.apply(X)[None, :]
        here = same @ counts
        expected += (here + prior * before) / (here.sum(axis=1, keepdims=True) + prior)
    found = forest.probabilities(new, before, np.ones((20, 1)))
    np.testing.assert_allclose(found, expected / len(grown), atol=1e-6)


def test_gain_is_that_of_new_rows() -> None:
    rows, new = _labelled(2000, 0), _labelled(2000, 1)
    forest, judged = LabelForest.grow(rows, predicted=False, leaf=1, seed=0)
    after = forest.probabilities(new.X, new.probabilities, new.variances)
    codes = new.codes[:, None]
    gains = np.log(
        np.take_along_axis(after, codes, 1) / np.take_along_axis(new.probabilities, codes, 1)
    )
    assert judged.gain > 0.3
    assert abs(gains.mean() - judged.gain) < 4.0 * np.hypot(judged.error, gains.std() / 2000**0.5)


def test_noise_leaves_what_was_there() -> None:
    """Labels drawn from the probabilities that are known already."""
    rng = np.random.default_rng(0)
    before = rng.dirichlet(np.ones(3), 1000)
    codes = (before.cumsum(axis=1) < rng.uniform(size=(1000, 1))).sum(axis=1)
    rows = Labelled(
        rng.normal(size=(1000, 4)), before, before, np.ones((1000, 1)), codes, np.ones(1000)
    )
    forest, judged = LabelForest.grow(rows, predicted=False, leaf=1, seed=0)
    assert judged.gain < 2.0 * judged.error
    assert forest.prior == 128.0


@hypothesis_settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**16), st.floats(1e-3, 1e3), st.booleans())
def test_probabilities_are_probabilities_and_fade(seed: int, variance: float, inside: bool) -> None:
    rows = _labelled(100, seed % 7)
    forest, _ = LabelForest.grow(rows, predicted=True, leaf=10, seed=seed)
    rng = np.random.default_rng(seed)
    X = rng.uniform(size=(10, 5)) if inside else rng.normal(size=(10, 5)) * 1e4
    before = rng.dirichlet(np.ones(3), 10)
    after = forest.probabilities(X, before, np.full((10, 1), variance))
    np.testing.assert_allclose(after.sum(axis=1), 1.0, atol=1e-9)
    assert (after >= 0.0).all()
    if not inside:
        np.testing.assert_allclose(after, before, atol=1e-4)


def test_damaged_arrays_are_told() -> None:
    forest, _ = LabelForest.grow(_labelled(100, 0), predicted=False, leaf=10, seed=0)
    labels = Labels(Link(1.0, 1.0, (0.0, 0.0, 0.0)), forest)
    arrays = labels.arrays()
    again = Labels.of_arrays(arrays, 5, 3)
    assert again.link == labels.link
    for name, array in again.forest.arrays().items():  # type: ignore[union-attr]
        np.testing.assert_array_equal(array, arrays[name])
    damages = {
        "link": np.array([1.0, 1.0, np.nan, 0.0, 0.0]),
        "counts": -1.0 - arrays["counts"],
        "limits": arrays["limits"][:, 1:],
        "children": np.zeros_like(arrays["children"]),
        "prior": np.array(np.inf),
    }
    for name, damaged in damages.items():
        with pytest.raises(ValueError, match="expected"):
            Labels.of_arrays({**arrays, name: damaged}, 5, 3)
    with pytest.raises(ValueError, match="offsets"):
        Labels.of_arrays(arrays, 5, 4)


def test_preset_is_a_gp_of_labels() -> None:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(30, 2)), rng.integers(0, 3, size=(30, 1)).astype(float)
    model = build("gp", X, y, Settings(likelihood="softmax"))
    targets = model.targets.numpy()
    np.testing.assert_array_equal(np.argmax(targets, axis=1), y[:, 0])
    np.testing.assert_allclose(targets.mean(axis=0), 0.0, atol=1e-12)
    np.testing.assert_allclose(np.square(targets).mean(), 1.0)
    two = build("gp", X, (y > 1).astype(float), Settings(likelihood="bernoulli"))
    np.testing.assert_array_equal(two.targets.numpy()[:, 0] > 0, y[:, 0] > 1)


def test_gp_of_labels_classifies_saves_and_counts(tmp_path: Path) -> None:
    X, y = load_wine(return_X_y=True)
    X = X[:, [0, 6, 9, 12]]
    order = np.random.default_rng(0).permutation(len(y))
    train, test = order[:80], order[80:]
    names = np.array(["a", "b", "c"])[y]
    options: dict[str, Any] = dict(model="gp", kernel="matern52", random_state=0)
    counts = 1 + (np.arange(80) < 30)
    classifier = DeepGPClassifier(**options).fit(X[train], names[train], sample_weight=counts)
    probabilities = classifier.predict_proba(X[test])
    own = np.log(probabilities[np.arange(len(test)), y[test]])
    assert -own.mean() < 0.35
    np.testing.assert_allclose(classifier.log_density(X[test], names[test]), own, atol=1e-9)
    classifier.save(tmp_path / "fit.zip")
    np.testing.assert_array_equal(load(tmp_path / "fit.zip").predict_proba(X[test]), probabilities)
    rows = np.repeat(train, counts)
    twice = DeepGPClassifier(**options).fit(X[rows], names[rows])
    np.testing.assert_allclose(twice.predict_proba(X[test]), probabilities, atol=1e-6)


def test_forest_takes_rules_up() -> None:
    """What trees are made for: better than the GP alone, and than boosting."""
    X, y = _rules(600, 0)
    new, truth = _rules(1000, 1)
    settings = recommended("gp", 600, 5, likelihood="softmax")
    model = build("gp", X, y[:, None].astype(float), settings)
    model.kernel.lengthscales.assign(np.array([0.4, 0.4, 0.6, 3.0, 3.0]))
    model.likelihood.variance.assign(0.3)
    link = link_of(left_out(model))
    forest = grow_label_forest(left_out(model), link, 0)
    assert forest is not None
    mean, variance = (np.asarray(array) for array in model.predict_y(new))

    def loss(probabilities: np.ndarray) -> float:
        return float(-np.log(probabilities[np.arange(1000), truth]).mean())

    alone = Labels(link, None).probabilities(new, mean, variance, 0)
    both = Labels(link, forest).probabilities(new, mean, variance, 0)
    boosting = HistGradientBoostingClassifier(random_state=0).fit(X, y)
    assert loss(both) < loss(alone) - 0.01
    assert loss(both) < loss(boosting.predict_proba(new))


def test_default_has_them(tmp_path: Path) -> None:
    X, y = _rules(250, 0)
    options: dict[str, Any] = dict(time_limit=0.5, num_inducing=8, kernel="matern52")
    classifier = DeepGPClassifier(random_state=0, **options).fit(X, y > 0)
    labels = {member.name: member.labels for member in classifier.members_}
    assert labels.pop("gp") is not None
    assert all(other is None for other in labels.values())
    tried = {row["name"] for row in classifier.report_}
    assert tried == {"gp", "svgp", "linear", "mean-field"}
    probabilities = classifier.predict_proba(X)
    classifier.save(tmp_path / "fit.zip")
    np.testing.assert_array_equal(load(tmp_path / "fit.zip").predict_proba(X), probabilities)


def test_hyperparameters_know_nothing_of_the_labels_that_they_are_judged_by() -> None:
    """Labels that are all noise, of many inputs: what was fitted to them would say otherwise."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 15)), rng.integers(0, 2, size=(60, 1)).astype(float)
    rows = Rows(X, y, np.ones(60))
    settings = replace(recommended("gp", 60, 15, likelihood="bernoulli"), kernel="matern52")
    model, _, errors = fit_exact("gp", rows, settings, seed=0)
    assert errors is None
    before = model.kernel.lengthscales.numpy()
    honest = left_out_by_parts(model, left_out(model), 2, seed=0)
    np.testing.assert_array_equal(model.kernel.lengthscales.numpy(), before)
    np.testing.assert_array_equal(honest.X, model.inputs.numpy())
    np.testing.assert_allclose(honest.means + honest.residuals, model.targets.numpy(), atol=1e-9)
    squares = [np.square(known.residuals).mean() for known in (left_out(model), honest)]
    assert squares[1] > squares[0]
    link = link_of(honest)
    after = Labels(link, None).probabilities(
        honest.X, honest.means, np.broadcast_to(honest.variances, honest.means.shape), 0
    )
    assert np.abs(after - 0.5).mean() < 0.25


@pytest.mark.parametrize("num_classes", [2, 3])
def test_own_rows_are_in_the_order_of_the_rows(num_classes: int) -> None:
    """A GP has them in another one; of equal inputs the classes tell."""
    rng = np.random.default_rng(0)
    X = rng.integers(0, 3, size=(40, 2)).astype(float)
    codes = rng.integers(0, num_classes, size=(40, 1)).astype(float)
    rows = Rows(*np.split(np.unique(np.hstack([X, codes]), axis=0), [2], axis=1), np.ones(0))
    N, T = len(rows.X), 1 if num_classes == 2 else num_classes
    means, variances = rng.normal(size=(N, T)), rng.uniform(0.1, 1.0, size=(N, 1))
    own = rows.Y == (np.ones(1) if T == 1 else np.arange(T))
    residuals = np.where(own, 1.0, -1.0) - means
    known = Predicted(rows.X, means, variances, residuals, np.ones(N), means)
    link = Link(2.0, 1.0, (0.0,) * T)
    spread = np.broadcast_to(variances, means.shape)
    probabilities = Labels(link, None).probabilities(rows.X, means, spread, 0)
    expected = np.log(np.take_along_axis(probabilities, rows.Y.astype(int), axis=1))[:, 0]
    found = own_log_probabilities(known.take(rng.permutation(N)), link, rows, 0)
    np.testing.assert_allclose(found, expected)


@pytest.mark.parametrize(("more", "expected"), [(0.1, False), (0.5, True), (-0.5, False)])
def test_predictions_as_inputs_have_to_gain_two_standard_errors(
    more: float, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a difference whose standard error is a tenth, over the rows that both tell of."""
    plain = np.full(110, 1.0)
    apart = np.where(np.arange(110) % 2, 1.0, -1.0)
    plain[100:105], apart[105:] = np.nan, np.nan

    def grow(rows: Labelled, *, predicted: bool, leaf: int, **_: Any) -> tuple[Any, Gain]:
        each = plain + predicted * (more + apart) if predicted else plain
        each = each - (leaf > 1)
        return SimpleNamespace(predicted=predicted), Gain(*mean_and_error(each, rows.weights), each)

    monkeypatch.setattr(LabelForest, "grow", grow)
    rng = np.random.default_rng(0)
    means, ones = rng.normal(size=(110, 1)), np.ones((110, 1))
    known = Predicted(rng.normal(size=(110, 2)), means, ones, ones - means, np.ones(110), means)
    grown = grow_label_forest(known, Link(1.0, 1.0, (0.0,)), seed=0)
    assert grown is not None and grown.predicted == expected
