"""What a call of `fit` leaves: all or nothing, of every class, whatever the weights."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import gpflow
import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import NotFittedError
from tensorflow_probability.python.internal import cache_util

import gpflow_deep as gd
from gpflow_deep import training
from gpflow_deep.estimators import DeepGPClassifier, DeepGPRegressor, members
from gpflow_deep.estimators.data import checked_weights
from gpflow_deep.estimators.fitted import precision

_QUICK: dict[str, Any] = dict(model="svgp", steps=3, num_inducing=6, random_state=0)


def _data(num_rows: int = 30) -> tuple[np.ndarray, np.ndarray]:
    X = np.random.default_rng(1).normal(size=(num_rows, 2))
    return X, np.sin(2.0 * X[:, 0])


def test_a_share_that_leaves_no_rows_is_refused() -> None:
    X = np.linspace(0.0, 1.0, 300)[:, None]
    regressor = DeepGPRegressor("svgp", steps=2, validation_fraction=0.9999)
    with pytest.raises(ValueError, match="leaves two rows to train on, got 0.9999 of 300"):
        regressor.fit(X, X[:, 0])


@pytest.mark.parametrize("interrupt", [False, True])
def test_a_refit_that_ends_early_changes_nothing(
    interrupt: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, y = _data()
    fitted = DeepGPRegressor(**_QUICK).fit(X, y)
    before, attributes = fitted.predict(X), set(vars(fitted))
    if interrupt:
        monkeypatch.setattr(members, "fit_family", _interrupt)
    else:
        fitted.set_params(kernel="periodic")
    with pytest.raises(KeyboardInterrupt if interrupt else ValueError):
        fitted.fit(1000.0 * X[:, :1], 1e6 * y)
    np.testing.assert_array_equal(fitted.predict(X), before)
    assert set(vars(fitted)) == attributes


def _interrupt(*arguments: Any, **options: Any) -> Any:
    raise KeyboardInterrupt


def test_after_a_first_fit_that_fails_there_is_none() -> None:
    X, y = _data()
    for estimator, targets in (
        (DeepGPRegressor(**_QUICK, kernel="periodic"), y),
        (DeepGPClassifier(**_QUICK, kernel="periodic"), y > 0.0),
    ):
        with pytest.raises(ValueError, match="kernel: expected one of"):
            estimator.fit(X, targets)
        with pytest.raises(NotFittedError):
            estimator.predict(X)


def test_targets_that_are_all_one() -> None:
    X, _ = _data(40)
    for model in ("gp", "constant"):
        with pytest.warns(UserWarning, match="y, column 0: expected values that vary, got 0.3"):
            fitted = DeepGPRegressor(model, random_state=0).fit(X, np.full(40, 0.3))
        mean, sd = fitted.predict(X, return_std=True)
        np.testing.assert_allclose(mean, 0.3, rtol=1e-6)
        assert (0.0 < sd).all() and (sd < 0.01).all()


def test_a_further_fit_takes_the_columns_of_the_first() -> None:
    X, y = _data()
    fitted = DeepGPRegressor(**_QUICK, warm_start=True).fit(X, y)
    with pytest.raises(ValueError, match="X: expected 2 columns, .*warm_start.*, got 1"):
        fitted.fit(X[:, :1], y)
    with pytest.raises(ValueError, match="y: expected 1 columns, .*warm_start.*, got 2"):
        fitted.fit(X, np.stack([y, y], axis=1))
    classes = DeepGPClassifier(**_QUICK, warm_start=True).fit(X, y > 0.0)
    with pytest.raises(ValueError, match="y: expected 2 classes, .*warm_start.*, got 3"):
        classes.fit(X, np.arange(30) % 3)


def test_a_fit_that_goes_on_has_the_same_columns_and_classes() -> None:
    """Which it knows by their positions: as many others, or in another order, would be taken for them."""
    X, y = _data()
    table, labels = pd.DataFrame(X, columns=["age", "income"]), np.where(y > 0.0, "dog", "cat")
    fitted = DeepGPClassifier(**_QUICK, warm_start=True).fit(table, labels)
    before = fitted.predict_proba(table)
    told = r"X: expected \['age', 'income'\], .*warm_start.*, got \['income', 'age'\]"
    with pytest.raises(ValueError, match=told):
        fitted.fit(table[["income", "age"]], labels)
    told = r"y: expected \['cat', 'dog'\], .*warm_start.*, got \['yak', 'zebra'\]"
    with pytest.raises(ValueError, match=told):
        fitted.fit(table, np.where(y > 0.0, "zebra", "yak"))
    np.testing.assert_array_equal(fitted.predict_proba(table), before)
    assert list(fitted.classes_) == ["cat", "dog"]
    assert list(fitted.fit(table, labels).feature_names_in_) == ["age", "income"]


@pytest.mark.parametrize("model", ["svgp", "gp"])
def test_a_class_without_weight_has_a_probability(model: str) -> None:
    X, _ = _data(45)
    y = np.repeat([0, 1, 2], 15)
    fitted = DeepGPClassifier(**_QUICK | {"model": model}).fit(X, y, (y < 2).astype(float))
    probabilities = fitted.predict_proba(X)
    assert probabilities.shape == (45, 3)
    assert probabilities[:, 2].mean() < probabilities[:, :2].mean()


def test_weights_that_are_no_counts_of_observations() -> None:
    X, y = _data()
    with pytest.warns(UserWarning, match="sample_weight: 30 rows are 1 observations in all"):
        DeepGPRegressor(**_QUICK).fit(X, y, np.full(30, 1.0 / 30.0))
    with pytest.raises(ValueError, match="sample_weight: expected at most 1000000 observations"):
        DeepGPRegressor(**_QUICK | {"model": "dspp"}).fit(X, y, np.full(30, 1e5))


def test_rows_of_no_weight_are_no_observations_that_count_too_little() -> None:
    """As those that a bagging regressor has not drawn."""
    X, y = _data()
    drawn = np.bincount([0, 0, 1], minlength=30).astype(float)
    checked_weights(drawn, X)
    with pytest.warns(UserWarning, match="sample_weight: 2 rows are 0.03 observations in all"):
        checked_weights(0.01 * drawn, X)


@pytest.mark.parametrize("name", ["likelihood", "num_classes", "validation_fraction"])
def test_settings_that_the_estimator_has_itself(name: str) -> None:
    with pytest.raises(ValueError, match=f"settings: expected none that .* itself, got {name}"):
        DeepGPRegressor(**_QUICK, settings={name: 1}).fit(*_data())


def test_threads_of_either_precision() -> None:
    """Those of one precision are inside together; the process's own is there again in the end."""
    together, seen, outside = threading.Barrier(2, timeout=20), [], gpflow.default_float()

    def hold(name: str, meet: bool) -> None:
        with precision(name, 1e-3 if name == "float32" else None):
            with precision(name, None):  # as a prediction within a fit
                if meet:
                    together.wait()
            seen.append((name, gpflow.default_float().__name__, gpflow.default_jitter()))

    names = ["float32", "float64", "float64", "float32", "float32"]
    threads = [
        threading.Thread(target=hold, args=(name, name == "float64"), daemon=True) for name in names
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=20)
    jitter = gpflow.default_jitter()
    expected = [(name, name, 1e-3 if name == "float32" else jitter) for name in names]
    assert sorted(seen) == sorted(expected)
    assert gpflow.default_float() is outside


def test_copies_leave_what_other_threads_share_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """GPflow's deep copy empties the cache of all bijectors, and fails where a thread fills it meanwhile."""

    def clear(_: Any) -> None:
        raise AssertionError("the cache of all threads was emptied")

    monkeypatch.setattr(cache_util.BijectorCache, "clear", clear)
    X, y = _data()
    DeepGPRegressor("gp", time_limit=5.0).fit(X, y)
    kernel = gd.kernels.StackedStationary(2, gpflow.kernels.Matern32)
    assert len(kernel.latent_kernels) == 2
    layers = gd.layers.build_layers(X, (1,), kernel_factory=gpflow.kernels.Matern52())
    model = gd.models.DeepGP(layers, gpflow.likelihoods.Gaussian())
    assert model.sample_functions(2)(X).shape == (2, len(X), 1)


def test_threads_that_draw_at_once_have_the_draws_of_one() -> None:
    X, y = _data()
    fitted = DeepGPRegressor(**_QUICK | {"model": "mean-field"}).fit(X, y)
    alone = fitted.sample_y(X, 3, random_state=5)
    with ThreadPoolExecutor(4) as pool:
        for draws in pool.map(lambda _: fitted.sample_y(X, 3, random_state=5), range(8)):
            np.testing.assert_array_equal(draws, alone)


def test_a_float_that_is_set_later_is_that_of_the_next_fit() -> None:
    X, y = _data()
    fitted = DeepGPRegressor(**_QUICK | {"model": "svgp"}, warm_start=True).fit(X, y)
    before = *fitted.predict(X, return_std=True), fitted.log_density(X, y)
    fitted.set_params(float="float32")
    after = *fitted.predict(X, return_std=True), fitted.log_density(X, y)
    # Not to the bit: a sum's last digit may differ with its place in memory.
    np.testing.assert_allclose(after, before, rtol=1e-12)
    fitted.fit(X, y)
    assert fitted.members_[0].float_name == "float32"
    assert fitted.log_density(X, y).mean() > before[2].mean() - 0.01


def test_labels_to_score() -> None:
    X, y = _data()
    fitted = DeepGPClassifier(**_QUICK).fit(X, np.where(y > 0.0, "up", "down"))
    labels = fitted.predict(X)
    np.testing.assert_array_equal(
        fitted.log_density(X, labels[:, None]), fitted.log_density(X, labels)
    )
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        fitted.log_density(X, labels[:3])
    with pytest.raises(ValueError, match="y: expected labels among .*, got 1"):
        fitted.log_density(X, np.ones(30, int))


@pytest.mark.parametrize("number", [0, -1, 2.5])
def test_numbers_of_draws(number: Any) -> None:
    X, y = _data()
    with pytest.raises(ValueError, match="n_samples: expected a positive integer"):
        DeepGPRegressor(**_QUICK).fit(X, y).sample_y(X, number)


@pytest.mark.parametrize("model", ["svgp", "mean-field", "dspp"])
def test_held_out_rows_count_as_often_as_they_were_observed(
    model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the mean over observations the best parameters are chosen, as models are."""
    rng = np.random.default_rng(0)
    times = np.where(rng.random(220) < 0.6, 1, rng.integers(1, 9, size=220))
    X = np.repeat(rng.uniform(-2.0, 2.0, size=(220, 1)), times, axis=0)
    y = np.round(np.sin(3.0 * X[:, 0]), 1)  # a value that comes again
    scores: list[tuple[float, float]] = []
    actual = training.fit

    def fit(model: Any, data: Any, validation_data: Any, **options: Any) -> Any:
        result = actual(model, data, validation_data=validation_data, **options)
        if validation_data is not None:
            inputs, targets = validation_data
            weights = targets[:, 1] if targets.shape[1] == 2 else np.ones(len(targets))
            assert weights.sum() == round(0.3 * len(X))
            likelihood = model.likelihood
            model.likelihood = getattr(likelihood, "base", likelihood)
            densities = model.predict_log_density((inputs, targets[:, :1])).numpy()
            model.likelihood = likelihood
            assert len(np.unique(inputs)) < weights.sum()
            expected = np.average(densities, weights=weights)
            assert np.abs(densities - expected).max() > 0.05  # so that rows differ
            scores.append((result.best_score, expected))
        return result

    monkeypatch.setattr(training, "fit", fit)
    DeepGPRegressor(model, steps=3, num_inducing=5, validation_fraction=0.3, random_state=0).fit(
        X, y
    )
    assert scores
    np.testing.assert_allclose(*np.transpose(scores), rtol=1e-4)


@pytest.mark.parametrize("estimator", [DeepGPClassifier, DeepGPRegressor])
def test_masked_values_are_refused(estimator: Any) -> None:
    """Fits were to what the mask hides."""
    X, y = _data()
    y = (y > 0.0).astype(float)
    masked_X, masked_y = np.ma.masked_greater(X, 1.0), np.ma.masked_array(y, np.arange(30) < 3)
    of_inputs = r"X: expected no masked values, got \d+.*X\.filled\(np\.nan\)"
    with pytest.raises(ValueError, match=of_inputs):
        estimator(**_QUICK).fit(masked_X, y)
    with pytest.raises(
        ValueError, match="y: expected no masked values, got 3.*Leave their rows out"
    ):
        estimator(**_QUICK).fit(X, masked_y)
    with pytest.raises(ValueError, match="sample_weight: expected no masked values, got 3"):
        estimator(**_QUICK).fit(X, y, sample_weight=masked_y + 1.0)
    fitted = estimator(**_QUICK).fit(np.ma.masked_array(X), y)  # without a mask
    with pytest.raises(ValueError, match=of_inputs):
        fitted.predict(masked_X)
    with pytest.raises(ValueError, match="y: expected no masked values, got 3"):
        fitted.log_density(X, masked_y)
