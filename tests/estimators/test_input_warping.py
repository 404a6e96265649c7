from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.stats import kurtosis, norm, skew

from gpflow_deep.estimators import (
    DeepGPClassifier,
    DeepGPRegressor,
    ascent,
    base,
    input_warping,
    load,
)
from gpflow_deep.estimators.input_warping import (
    InputWarping,
    choose_input_warping,
    towards_normal,
)
from gpflow_deep.estimators.rows import Rows, distinct_rows
from gpflow_deep.estimators.scaling import Scaling, standardisation
from gpflow_deep.numerics.factorisations import FactorisationError


def _inputs(num_rows: int, seed: int = 0) -> np.ndarray:
    """Two log-normal inputs, a normal one, one that is one of two values, and a constant."""
    rng = np.random.default_rng(seed)
    X = np.exp(1.5 * rng.normal(size=(num_rows, 2)))
    others = rng.normal(size=num_rows), rng.uniform(size=num_rows) > 0.95, np.full(num_rows, 3.0)
    return np.column_stack([X, *others])


def _data(num_rows: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """A smooth function of the logarithms."""
    X, rng = _inputs(num_rows, seed), np.random.default_rng(100 + seed)
    f = np.sin(1.5 * np.log(X[:, 0])) + 0.5 * np.log(X[:, 1]) + X[:, 2]
    return X, f + 0.1 * rng.normal(size=num_rows)


def _standardised(X: np.ndarray) -> np.ndarray:
    mean, scale = standardisation(X)
    return (X - mean) / scale


@given(
    st.floats(-3.0, 5.0),
    st.floats(0.01, 10.0),
    st.lists(st.floats(-1e3, 1e3), min_size=2, max_size=9, unique=True),
)
@settings(max_examples=200, deadline=None)
def test_in_order_and_beyond_what_is_known_as_without(
    centre: float, width: float, values: list[float]
) -> None:
    X = np.sort(values)[:, None]
    parts = (centre, width, -3.0, 5.0, 0.2, 1.5)
    warping = InputWarping(*(np.array([part]) for part in parts))
    warped = warping.forward(X)
    assert (np.diff(warped, axis=0) >= -1e-12).all()
    np.testing.assert_allclose(
        np.diff(warped[X[:, 0] >= 5.0], axis=0), np.diff(X[X >= 5.0])[:, None], atol=1e-9
    )
    np.testing.assert_allclose(
        np.diff(warped[X[:, 0] <= -3.0], axis=0), np.diff(X[X <= -3.0])[:, None], atol=1e-9
    )


def test_skewed_columns_become_more_nearly_normal() -> None:
    X = _standardised(_inputs(500))
    warping = towards_normal(X)
    warped = warping.forward(X)
    np.testing.assert_array_equal(warped[:, 2:], X[:, 2:])
    assert (np.abs(skew(warped[:, :2])) < 0.5).all() and (kurtosis(warped[:, :2]) < 0.5).all()
    np.testing.assert_allclose(warped[:, :2].mean(0), 0.0, atol=1e-12)
    np.testing.assert_allclose(warped[:, :2].std(0), 1.0)
    np.testing.assert_array_equal(warping.columns, [0, 1])
    for d in (0, 1):
        # Nearly as probable as by any width and centre.
        def density(values: np.ndarray, x: np.ndarray = X[:, d]) -> float:
            centre, width = values[0], np.exp(values[1])
            step = 1e-6
            known = np.arcsinh((x[:, None] - centre + [0.0, -step, step]) / width)
            law = norm(known[:, 0].mean(), known[:, 0].std())
            slopes = (known[:, 2] - known[:, 1]) / (2 * step)
            return float(np.mean(law.logpdf(known[:, 0]) + np.log(slopes)))

        found = np.array([warping.centre[d], np.log(warping.width[d])])
        best = minimize(lambda v, f=density: -f(v), found, method="Nelder-Mead")
        assert -best.fun - 0.1 < density(found) <= -best.fun
    # Mirrored, the same.
    mirrored = towards_normal(-X).forward(-X)
    np.testing.assert_allclose(mirrored[:, :2], -warped[:, :2], atol=1e-9)
    assert towards_normal(X[:, 2:]) is None


def test_of_a_column_that_is_mostly_one_value() -> None:
    rng = np.random.default_rng(0)
    X = _standardised(np.where(rng.uniform(size=300) < 0.7, 0.0, rng.gamma(0.5, size=300))[:, None])
    warping = towards_normal(X)
    warped = warping.forward(X)
    assert warping.width[0] > 0.0 and np.isfinite(warped).all()
    assert len(np.unique(warped)) == len(np.unique(X))
    assert abs(skew(warped)[0]) < abs(skew(X)[0])


def _rows(X: np.ndarray, y: np.ndarray, weights: np.ndarray | None = None) -> Rows:
    return distinct_rows(X, y.reshape(len(X), -1), weights)


def test_it_is_taken_where_the_function_is_one_of_the_new_scale() -> None:
    X, y = _data(300)
    assert choose_input_warping(_rows(X, y), seed=0) is not None
    both = np.column_stack([y, -y])
    assert choose_input_warping(_rows(X, both), seed=0) is not None
    linear = X[:, 0] + X[:, 1] + np.random.default_rng(0).normal(size=300)
    assert choose_input_warping(_rows(X, linear), seed=0) is None
    noise = np.random.default_rng(0).normal(size=300)
    assert choose_input_warping(_rows(X, noise), seed=0) is None
    assert choose_input_warping(_rows(X[:80], y[:80]), seed=0) is not None
    assert choose_input_warping(_rows(X[:29], y[:29]), seed=0) is None


def test_of_few_rows_it_takes_a_larger_gain(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = _data(400)
    gains = {}
    for number in (50, 400):
        for gain in (0.04, 0.06, 0.19, 0.21):
            reached = iter([np.zeros(2), np.array([gain, 1.0])])
            monkeypatch.setattr(
                input_warping, "first_ascent", lambda *_, r=reached: (_noisy(1.0), next(r))
            )
            found = choose_input_warping(_rows(X[:number], y[:number]), seed=0)
            gains[number, gain] = found is not None
    assert [gain for gain, taken in gains.items() if taken] == [
        (50, 0.21),
        *((400, gain) for gain in (0.06, 0.19, 0.21)),
    ]


def _noisy(variance: float) -> Any:
    """What there is of a GP that has such noise."""
    return SimpleNamespace(likelihood=SimpleNamespace(variance=tf.constant(variance)))


def test_targets_that_are_named_tell_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whole numbers that come again, with less noise than rounding makes."""
    X, y = _data(100)
    for targets, noise, counts in (
        (y, 1e-9, True),
        (np.round(y), 1e-9, False),
        (np.round(y), 0.5, True),
    ):
        reached = iter([np.zeros(2), np.ones(2)])
        monkeypatch.setattr(
            input_warping, "first_ascent", lambda *_, n=noise, r=reached: (_noisy(n), next(r))
        )
        assert (choose_input_warping(_rows(X, targets), seed=0) is not None) == counts


def _labels(num_rows: int, num_classes: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Classes of equal frequency by the smooth function, those of a tenth of the rows at random."""
    X, f = _data(num_rows, seed)
    rng = np.random.default_rng(200 + seed)
    y = np.digitize(f, np.quantile(f, np.arange(1, num_classes) / num_classes))
    return X, np.where(
        rng.uniform(size=num_rows) < 0.1, rng.integers(num_classes, size=num_rows), y
    )


@pytest.mark.parametrize("num_classes", [2, 3])
def test_classes_take_it_where_probabilities_are_better(num_classes: int) -> None:
    def taken(X: np.ndarray, y: np.ndarray, **options: Any) -> bool:
        found = choose_input_warping(_rows(X, y), seed=0, num_classes=num_classes, **options)
        return found is not None

    X, y = _labels(400, num_classes)
    assert taken(X, y)
    if num_classes > 2:
        return
    assert taken(X, y, seconds=10.0)
    assert not taken(X, y, seconds=4.0)  # there is no time for the second opinion
    assert not taken(X[:29], y[:29])
    others = np.column_stack([X[:, 2:], np.random.default_rng(0).normal(size=400)])
    assert not taken(others, y)
    by_chance = np.random.default_rng(0).integers(num_classes, size=400)
    assert not taken(X, by_chance)
    linear = (X[:, 0] + X[:, 1] > np.median(X[:, 0] + X[:, 1])).astype(float)
    assert not taken(X, linear)


def test_both_opinions_have_to_be_clear(monkeypatch: pytest.MonkeyPatch) -> None:
    """More than a standard error, by the hyperparameters of all rows and by those of the others."""
    X, y = _labels(100, 2)
    gains = np.where(np.arange(100) % 2, 1.0, -1.0)  # of a standard error of 0.1
    for own, apart, expected in (
        *((0.15, 0.15, True), (0.15, 0.05, False)),
        *((0.05, 0.15, False), (-0.15, 0.15, False), (0.5, -0.5, False)),
    ):
        found = iter([np.zeros(100), gains + own, np.zeros(100), gains + apart])
        monkeypatch.setattr(input_warping, "own_log_probabilities", lambda *_, f=found: next(f))
        taken = choose_input_warping(_rows(X, y), seed=0, num_classes=2) is not None
        assert taken == expected, (own, apart)


def test_rows_of_one_class_alone_tell_nothing() -> None:
    X, _ = _labels(100, 3)
    assert choose_input_warping(_rows(X, np.ones(100)), seed=0, num_classes=3) is None


def test_a_choice_and_a_fit_have_one_compilation(
    monkeypatch: pytest.MonkeyPatch, evidence_is_compiled_anew: None
) -> None:
    """In the precision of the choice, which is that of GPflow."""
    compilations: list[int] = []
    compile_ = ascent.Objective._compile
    monkeypatch.setattr(
        ascent.Objective, "_compile", lambda self: compilations.append(0) or compile_(self)
    )
    monkeypatch.setattr(base, "candidates", lambda *_, **__: (("gp",), "svgp"))

    def number(make: Callable[..., Any], data: Any, **options: Any) -> int:
        compilations.clear()
        ascent._compiled.first.clear()
        make(steps=2, num_inducing=5, random_state=0, kernel="matern52", **options).fit(*data)
        return len(compilations)

    data = _labels(300, 2)
    without = number(DeepGPClassifier, data, warp=False)
    assert number(DeepGPClassifier, data) == without > 0
    assert number(DeepGPClassifier, data, float="float32") == 2 * without


def test_no_time_is_spent_where_nothing_is_skewed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(input_warping, "first_ascent", None)
    X, y = _data(300)
    assert choose_input_warping(_rows(X[:, 2:], y), seed=0) is None


def test_a_row_of_weight_two_is_the_row_twice() -> None:
    X, y = _data(120)
    twice = np.arange(120) % 3 == 0
    weighted = choose_input_warping(_rows(X, y, 1.0 + twice), seed=0)
    repeated = choose_input_warping(
        _rows(np.vstack([X, X[twice]]), np.concatenate([y, y[twice]])), seed=0
    )
    for ours, theirs in zip(weighted, repeated, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-9)


@pytest.fixture(scope="module")
def fits() -> tuple[DeepGPRegressor, DeepGPRegressor]:
    """With and without."""
    options: dict[str, Any] = dict(steps=10, num_inducing=20, random_state=0, kernel="rbf")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(base, "candidates", lambda *_, **__: (("gp",), "svgp"))
        with_it, without = (
            DeepGPRegressor(warp=warp, **options).fit(*_data(300)) for warp in (True, False)
        )
    return with_it, without


def test_classes_are_better_than_without(tmp_path: Path) -> None:
    (X, y), (test_X, test_y) = _labels(300, 3), _labels(500, 3, seed=1)
    options: dict[str, Any] = dict(steps=10, num_inducing=20, random_state=0, kernel="rbf")
    losses, columns = {}, {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(base, "candidates", lambda *_, **__: (("gp",), "svgp"))
        for warp in (True, False):
            fitted = DeepGPClassifier(warp=warp, **options).fit(X, y)
            columns[warp] = fitted.scaling_.X_warping
            losses[warp] = -np.mean(fitted.log_density(test_X, test_y))
            fitted.save(tmp_path / f"{warp}")
            loaded = load(tmp_path / f"{warp}")
            np.testing.assert_array_equal(
                loaded.predict_proba(test_X[:9]), fitted.predict_proba(test_X[:9])
            )
    assert columns[False] is None
    np.testing.assert_array_equal(columns[True].columns, [0, 1])
    assert losses[True] < losses[False] - 0.05


def test_it_is_better_than_without(fits: tuple[DeepGPRegressor, DeepGPRegressor]) -> None:
    test = _data(300, seed=1)
    with_it, without = fits
    assert without.scaling_.X_warping is None
    assert np.mean(with_it.log_density(*test)) > np.mean(without.log_density(*test)) + 0.3
    errors = [np.std(test[1] - fitted.predict(test[0])) for fitted in fits]
    assert errors[0] < 0.7 * errors[1]


def test_away_from_the_rows_it_knows_nothing(
    fits: tuple[DeepGPRegressor, DeepGPRegressor],
) -> None:
    """A logarithm would bring what is far out near to the largest row."""
    X, y = _data(300)
    mean, scale = standardisation(X)
    far = mean + 30.0 * scale * np.eye(5)[:2]
    _, sd = fits[0].predict(np.vstack([X[:50], far]), return_std=True)
    assert (sd[-2:] > 0.7 * y.std()).all() and np.median(sd[:50]) < 0.2 * y.std()


def test_it_is_saved(fits: tuple[DeepGPRegressor, DeepGPRegressor], tmp_path: Path) -> None:
    X, _ = _data(50, seed=2)
    for fitted in fits:
        fitted.save(tmp_path / "fit", overwrite=True)
        loaded = load(tmp_path / "fit")
        np.testing.assert_array_equal(loaded.predict(X), fitted.predict(X))


def test_a_failure_leaves_the_inputs_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: Any, **__: Any) -> None:
        raise FactorisationError("failed")

    monkeypatch.setattr(base, "choose_input_warping", failing)
    monkeypatch.setattr(base, "candidates", lambda *_, **__: (("linear",), "svgp"))
    fitted = DeepGPRegressor(steps=2, num_inducing=5, random_state=0).fit(*_data(300))
    assert fitted.scaling_.X_warping is None


def test_what_is_said(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def stop(self: Any, *_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(DeepGPRegressor, "_fit_members", stop)
    with pytest.raises(KeyboardInterrupt):
        DeepGPRegressor(random_state=0, verbose=1).fit(*_data(300))
    assert "inputs: less skewed on another scale, and learned so: column 0, column 1.\n" in (
        capsys.readouterr().out
    )


def test_scaling_has_it() -> None:
    X, y = _data(100)
    warping = towards_normal(_standardised(X))
    scaling = Scaling.fit(X, y[:, None], None, warping)
    np.testing.assert_array_equal(scaling.inputs(X), warping.forward(_standardised(X)))
