from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.stats import kurtosis, norm, skew

from gpflow_deep.estimators import DeepGPRegressor, base, evidence, input_warping, load
from gpflow_deep.estimators import regressor as regressor_module
from gpflow_deep.estimators.ascent import Objectives
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
            monkeypatch.setattr(input_warping, "first_ascent", lambda *_, r=reached: next(r))
            found = choose_input_warping(_rows(X[:number], y[:number]), seed=0)
            gains[number, gain] = found is not None
    assert [gain for gain, taken in gains.items() if taken] == [
        (50, 0.21),
        *((400, gain) for gain in (0.06, 0.19, 0.21)),
    ]


def test_targets_that_are_named_tell_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whole numbers that come again, with less noise than rounding makes."""
    X, y = _data(100)
    for targets, noise, counts in (
        (y, 0.0, True),
        (np.round(y), 0.0, False),
        (np.round(y), 0.5, True),
    ):
        monkeypatch.setattr(evidence._Rival, "noise", noise)
        rows = Rows(_standardised(X[:, :3]), _standardised(targets[:, None]), np.ones(100))
        reached = evidence.first_ascent(rows, 0, Objectives())
        assert np.isfinite(reached).all() if counts else np.isnan(reached).all()
    monkeypatch.setattr(evidence._Rival, "noise", 0.0)
    assert choose_input_warping(_rows(X, np.round(y)), seed=0) is None


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
    options: dict[str, Any] = dict(steps=30, num_inducing=20, random_state=0, kernel="rbf")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(base, "candidates", lambda *_, **__: (("gp",), "svgp"))
        with_it, without = (
            DeepGPRegressor(warp=warp, **options).fit(*_data(300)) for warp in (True, False)
        )
    return with_it, without


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
    def failing(*_: Any) -> None:
        raise FactorisationError("failed")

    monkeypatch.setattr(regressor_module, "choose_input_warping", failing)
    monkeypatch.setattr(base, "candidates", lambda *_, **__: (("gp",), "svgp"))
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
