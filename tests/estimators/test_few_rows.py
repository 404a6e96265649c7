"""Exact GPs of few rows: what hyperparameters know by heart, and one lengthscale for all inputs."""

from __future__ import annotations

from dataclasses import replace

import gpflow
import numpy as np
import pytest
from gpflow.utilities import positive

from gpflow_deep import metrics
from gpflow_deep.estimators import evidence
from gpflow_deep.estimators.ascent import Objective, shared_objective
from gpflow_deep.estimators.calibration import calibrated_log_density, left_out
from gpflow_deep.estimators.evidence import fit_exact
from gpflow_deep.estimators.few_rows import are_few, each_left_out
from gpflow_deep.estimators.rows import Rows
from gpflow_deep.presets import get, recommended
from gpflow_deep.presets.exact import ExactGP


def _model(num_rows: int, num_inputs: int) -> ExactGP:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(num_rows, num_inputs))
    Y = np.sin(X[:, :1]) + 0.1 * rng.normal(size=(num_rows, 1))
    model: ExactGP = get("gp").build(X, Y, recommended("gp", num_rows, num_inputs), 0)
    return model


def test_alike_it_is_the_evidence_of_a_kernel_with_one_lengthscale() -> None:
    """With its gradient, which is that of finite differences."""
    model = _model(25, 4)
    model.kernel.lengthscales.prior = model.likelihood.variance.prior = None
    objective = Objective(model, alike=True)
    assert objective.values.size == 3
    values = objective.values + [0.3, -0.2, 0.5]
    loss, gradient = objective(values)
    single = gpflow.kernels.Matern52()
    for name in ("lengthscales", "variance"):
        parameter = gpflow.Parameter(1.0, transform=positive(base="exp"))
        setattr(single, name, parameter)
    one = ExactGP(tuple(map(np.asarray, model.data)), single, model.likelihood)
    assert np.unique(model.kernel.lengthscales).size == 1
    single.lengthscales.assign(model.kernel.lengthscales[0])
    single.variance.assign(model.kernel.variance)
    assert loss == pytest.approx(float(one.training_loss()), rel=1e-10)
    for index in range(3):
        step = 1e-5 * np.eye(3)[index]
        difference = (objective(values + step)[0] - objective(values - step)[0]) / 2e-5
        assert gradient[index] == pytest.approx(difference, rel=1e-5, abs=1e-7)
    objective.assign(values)
    np.testing.assert_allclose(objective.values, values, rtol=1e-12)


def _linear(rng: np.random.Generator, X: np.ndarray) -> np.ndarray:
    return X @ rng.normal(size=(X.shape[1], 1)) / X.shape[1] ** 0.5


def _of_one_input(rng: np.random.Generator, X: np.ndarray) -> np.ndarray:
    return np.sin(2.0 * X[:, :1])


@pytest.mark.parametrize(
    ("function", "deviation", "shape", "is_alike"),
    [
        (_linear, 0.7, (100, 15), True),
        (_linear, 1.0, (110, 10), True),  # not few: rows left out one by one
        (_of_one_input, 0.1, (60, 8), False),
        (_of_one_input, 0.1, (120, 8), False),
    ],
)
def test_one_lengthscale_is_taken_where_rows_left_out_are_more_likely(
    function: object,
    deviation: float,
    shape: tuple[int, int],
    is_alike: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And is more likely for new rows, where it is."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(shape[0] + 500, shape[1]))
    Y = function(rng, X) + deviation * rng.normal(size=(len(X), 1))  # type: ignore[operator]
    rows = Rows(X[: shape[0]], Y[: shape[0]], np.ones(shape[0]))
    settings = replace(recommended("gp", *shape), kernel="rbf")
    densities = []
    for threshold in (evidence._ROWS_AN_INPUT, 0):
        monkeypatch.setattr(evidence, "_ROWS_AN_INPUT", threshold)
        model, _, errors = fit_exact("gp", rows, settings, seed=0, forest=False)
        alike = np.ptp(model.kernel.lengthscales) < 1e-6 * np.max(model.kernel.lengthscales)
        assert alike == (is_alike and threshold > 0)
        mean, variance = (v.numpy() for v in model.predict_y(X[shape[0] :]))
        mixture = errors.mixture(X[shape[0] :], mean, variance)
        densities.append(metrics.log_density(Y[shape[0] :], *mixture).mean())
    if is_alike:
        assert densities[0] > densities[1] + 0.02
    else:
        np.testing.assert_allclose(*densities, atol=1e-6)


def test_rows_left_out_by_parts_of_few_rows_alone() -> None:
    few, many = _model(30, 4), _model(40, 4)
    assert are_few(few) and not are_few(many)
    np.testing.assert_allclose(each_left_out(many, 0, None).means, left_out(many).means)
    own = left_out(few)
    by_parts = each_left_out(few, 0, None, lambda part: shared_objective(part, "few"))
    assert np.max(np.abs(by_parts.means - own.means)) > 1e-3
    np.testing.assert_allclose(by_parts.means + by_parts.residuals, np.asarray(few.targets))
    assert np.isfinite(calibrated_log_density(by_parts))
