from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gpflow_deep import metrics
from gpflow_deep.estimators.regression import fit_regression
from gpflow_deep.presets import Settings

_SETTINGS = Settings(
    num_layers=2, hidden_dim=2, num_inducing=6, steps=30, validate_every=15, learning_rate=0.02
)


def _data(num_rows: int = 40) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(5)
    X = rng.normal(size=(num_rows, 2))
    return X, np.sin(2.0 * X[:, :1]) + 0.1 * rng.normal(size=(num_rows, 1))


def test_units_change_nothing_but_the_units() -> None:
    X, Y = _data()
    fit = fit_regression(X, Y, "stripes-and-arrow", _SETTINGS, progress=False)
    other = fit_regression(
        X * [10.0, 0.01] + [3.0, -7.0],
        1000.0 * Y + 50.0,
        "stripes-and-arrow",
        _SETTINGS,
        progress=False,
    )
    mean, variance = metrics.mixture_moments(*fit.predict_y_mixture(X))
    other_mean, other_variance = metrics.mixture_moments(
        *other.predict_y_mixture(X * [10.0, 0.01] + [3.0, -7.0])
    )
    np.testing.assert_allclose(other_mean, 1000.0 * mean + 50.0, rtol=1e-5)
    np.testing.assert_allclose(other_variance, 1e6 * variance, rtol=1e-5)
    np.testing.assert_allclose(other.report["held_out_rmse"], 1000.0 * fit.report["held_out_rmse"])
    np.testing.assert_allclose(
        other.report["held_out_log_density"],
        fit.report["held_out_log_density"] - np.log(1000.0),
        rtol=1e-5,
    )


def test_training_helps_and_is_repeatable() -> None:
    X, Y = _data(80)
    settings = Settings(num_layers=1, num_inducing=20, steps=200, learning_rate=0.05)
    fit = fit_regression(X, Y, "mean-field", settings, progress=False, seed=3)
    again = fit_regression(X, Y, "mean-field", settings, progress=False, seed=3)
    X_test, Y_test = _data(200)
    mixture = fit.predict_y_mixture(X_test)
    assert metrics.rmse(Y_test, metrics.mixture_moments(*mixture)[0]) < 0.5 * Y_test.std()
    np.testing.assert_array_equal(mixture[0], again.predict_y_mixture(X_test)[0])
    assert fit.report["training_rows"] + fit.report["held_out_rows"] == 80


def test_scaling_knows_nothing_of_the_held_out_rows() -> None:
    X, Y = _data()
    fit = fit_regression(X, Y, "mean-field", _SETTINGS, progress=False)
    order = np.random.default_rng(0).permutation(len(X))
    train = order[fit.report["held_out_rows"] :]
    np.testing.assert_allclose(fit.scaling.X_mean, X[train].mean(axis=0))
    np.testing.assert_allclose(fit.scaling.Y_scale, Y[train].std(axis=0))


def test_without_a_hold_out_all_rows_train() -> None:
    X, Y = _data()
    settings = Settings(num_layers=1, num_inducing=6, steps=10, validation_fraction=0.0)
    fit = fit_regression(X, Y, "mean-field", settings, progress=False)
    np.testing.assert_allclose(fit.scaling.X_mean, X.mean(axis=0))
    assert (fit.report["training_rows"], fit.report["best_step"]) == (40, 10)
    assert "held_out_rmse" not in fit.report


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda X, Y: (X[:9], Y[:9]), "at least 10 rows of data, got 9"),
        (lambda X, Y: (X, 0.0 * Y + 2.5), "a target that varies, got 2.5"),
        (lambda X, Y: (X[:, :0], Y), "at least one column"),
        (lambda X, Y: (X, 1e200 * Y), "Y: expected targets with standard deviations"),
        (lambda X, Y: (np.where(X > 2.0, np.nan, X), Y), "X: expected finite values"),
        (lambda X, Y: (X, np.where(Y > 0.5, np.inf, Y)), "Y: expected finite values"),
    ],
)
def test_data_that_cannot_be_fitted(change: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        fit_regression(*change(*_data()), "mean-field", _SETTINGS, progress=False)  # type: ignore


def test_a_hold_out_leaves_rows_to_train_on() -> None:
    settings = replace(_SETTINGS, validation_fraction=0.999)
    with pytest.raises(
        ValueError, match="validation_fraction: expected to leave rows.*0.999 of 40"
    ):
        fit_regression(*_data(), "mean-field", settings, progress=False)


def test_unknown_models_are_named() -> None:
    with pytest.raises(ValueError, match="'mean field'"):
        fit_regression(*_data(), "mean field", _SETTINGS, progress=False)
