"""What becomes of inputs far from those of the training."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import BayesianRidge

from gpflow_deep.estimators import DeepGPClassifier, DeepGPRegressor, base, load
from gpflow_deep.estimators.error_forest import ErrorForest
from gpflow_deep.estimators.limits import Limits, limits_of

_QUICK: dict[str, Any] = dict(steps=5, num_inducing=8, random_state=0)
_FAR = np.array([0.5, 1e6, 1e12, 1e300, -1e300])[:, None]


def _line(num_rows: int = 80) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.uniform(0.0, 1.0, size=(num_rows, 1))
    return X, 2.0 * X[:, 0] + 0.01 * rng.normal(size=num_rows)


def _with_slip() -> tuple[pd.DataFrame, np.ndarray]:
    X, y = _line()
    X = np.hstack([X, X[::-1]])
    X[3, 1] = 1e12
    return pd.DataFrame(X, columns=["first", "second"]), y


@pytest.fixture(scope="module")
def slipped() -> DeepGPRegressor:
    """For tests that only read it."""
    with pytest.warns(UserWarning, match="X, column 'second': 1 of 80 values"):
        return DeepGPRegressor("linear", **_QUICK).fit(*_with_slip())


def test_a_trend_goes_on_far_from_the_training_data() -> None:
    X, y = _line()
    new = np.array([10.0, 37.0, 50.0, 1000.0])[:, None]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fitted = DeepGPRegressor("linear", **_QUICK).fit(X, y)
        mean, sd = fitted.predict(new, return_std=True)
    expected, expected_sd = BayesianRidge().fit(X, y).predict(new, return_std=True)
    np.testing.assert_allclose(mean, expected, rtol=1e-3)
    np.testing.assert_allclose(sd, expected_sd, rtol=0.2)


def test_what_is_no_slip_in_training_is_none_in_predictions() -> None:
    limits = limits_of(np.random.default_rng(0).normal(size=(200, 2)), "X")
    assert not limits.beyond(np.array([[1e9, -1e300]])).any()


def test_slips_in_predictions_are_clipped_as_in_training_and_told(
    slipped: DeepGPRegressor,
) -> None:
    low, high = slipped.input_limits_.low[1], slipped.input_limits_.high[1]
    assert np.isinf(slipped.input_limits_.high[0])
    frame = pd.DataFrame({"first": [0.5, 0.5, 70.0], "second": [0.4, 1e9, -2000.0]})
    nearest = frame.assign(second=[0.4, high, low])
    calls: list[Any] = [
        slipped.predict,
        slipped.predict_quantiles,
        slipped.predict_mixture,
        lambda X: slipped.log_density(X, np.ones(3)),
    ]
    for call in calls:
        with pytest.warns(UserWarning) as caught:
            clipped = call(frame)
        (warning,) = caught
        assert "X, column 'second': 2 of 3 values are too far" in str(warning.message)
        assert warning.filename == __file__
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            np.testing.assert_array_equal(clipped[0], call(nearest)[0])


def test_slips_in_predictions_of_classes_are_told() -> None:
    frame, y = _with_slip()
    with pytest.warns(UserWarning, match="column 'second'"):
        fitted = DeepGPClassifier("linear", **_QUICK).fit(frame, y > 1.0)
    with pytest.warns(UserWarning, match="column 'second': 80 of 80 values") as caught:
        probabilities = fitted.predict_proba(frame.assign(second=1e9))
    assert [warning.filename for warning in caught] == [__file__]
    expected = fitted.predict_proba(frame.assign(second=fitted.input_limits_.high[1]))
    np.testing.assert_array_equal(probabilities, expected)


@pytest.mark.parametrize("model", ["linear", "gp", "mean-field"])
@pytest.mark.parametrize("classes", [False, True])
def test_predictions_however_far_are_finite(model: str, classes: bool) -> None:
    X, y = _line()
    if classes:
        fitted: Any = DeepGPClassifier(model, **_QUICK).fit(X, np.digitize(y, [0.6, 1.3]))
    else:
        fitted = DeepGPRegressor(model, **_QUICK).fit(X, y)
    _check_far(fitted, y)


def test_predictions_of_a_forest_however_far_are_finite(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "candidates", lambda *_, **__: (("gp",), ""))
    X, y = _line(400)
    X = np.hstack([X, X[::-1]])
    y = np.where(X[:, 0] * X[:, 1] > 0.2, 1.0, 0.0) + 0.3 * X[:, 0] * (y > 2.0 * X[:, 0])
    fitted = DeepGPRegressor(warp=False, **_QUICK).fit(X, y)
    assert isinstance(fitted.members_[0].errors, ErrorForest)
    _check_far(fitted, y)


def _check_far(fitted: Any, y: np.ndarray) -> None:
    X = np.hstack([_FAR] * fitted.n_features_in_)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", "X, column .: 4 of 5 values are too far", UserWarning)
        if isinstance(fitted, DeepGPClassifier):
            np.testing.assert_allclose(fitted.predict_proba(X).sum(axis=1), 1.0)
            return
        mean, sd = fitted.predict(X, return_std=True)
        assert np.isfinite(fitted.log_density(X, y[:5])).all()
        assert np.isfinite(fitted.predict_quantiles(X)).all()
        assert np.isfinite(fitted.sample_y(X, 3)).all()
    assert np.isfinite(mean).all() and (sd[1:] > sd[0]).all() and np.isfinite(sd).all()


def test_values_beyond_ten_thousand_standard_deviations_are_told() -> None:
    X, y = _line()
    fitted = DeepGPRegressor("linear", **_QUICK).fit(X, y)
    with pytest.warns(UserWarning, match="X, column 0: 1 of 2 values") as caught:
        mean = fitted.predict([[1e8], [2.0]])
    assert [warning.filename for warning in caught] == [__file__]
    assert mean[0] > 5e3


def test_limits_are_saved(slipped: DeepGPRegressor, tmp_path: Path) -> None:
    slipped.save(tmp_path / "fit")
    again = load(tmp_path / "fit")
    frame = pd.DataFrame({"first": [70.0], "second": [1e9]})
    with pytest.warns(UserWarning, match="column 'second': 1 of 1") as caught:
        np.testing.assert_array_equal(again.predict(frame), slipped.predict(frame))
    assert len(caught) == 2


def test_a_fit_saved_with_limits_of_all_columns_clips_and_tells(tmp_path: Path) -> None:
    """As all were, when no column was without."""
    X, y = _line()
    fitted = DeepGPRegressor("linear", **_QUICK).fit(X, y)
    fitted.input_limits_ = Limits.fit(X)
    fitted.save(tmp_path / "fit")
    again = load(tmp_path / "fit")
    high = float(again.input_limits_.high[0])
    with pytest.warns(UserWarning, match="column 0: 1 of 1"):
        np.testing.assert_array_equal(again.predict([[1000.0]]), again.predict([[high]]))


def test_slips_in_a_fit_that_goes_on_are_told() -> None:
    X, y = _line()
    X = np.hstack([X, X[::-1]])
    fitted = DeepGPRegressor("svgp", warm_start=True, **_QUICK)
    fitted.fit(X, y)
    X[3, 1] = 1e12
    with pytest.warns(UserWarning, match="X, column 1: 1 of 80 values"):
        fitted.fit(X, y)
    with pytest.warns(UserWarning, match="X, column 1: 1 of 80 values"):
        fitted.predict(X)
