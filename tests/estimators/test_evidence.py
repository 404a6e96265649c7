"""The exact GP's choices: what kernel, and which inputs count."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import count
from types import SimpleNamespace

import gpflow
import numpy as np
import pytest
import tensorflow as tf

from gpflow_deep import metrics
from gpflow_deep.estimators import ascent, evidence, few_rows
from gpflow_deep.estimators.evidence import fit_exact
from gpflow_deep.estimators.rows import Rows
from gpflow_deep.numerics.factorisations import FactorisationError
from gpflow_deep.presets import get, recommended


def fit(X, Y, kernel="own"):
    rows = Rows(X, (Y - Y.mean()) / Y.std(), np.ones(len(X)))
    settings = replace(recommended("gp", *X.shape), kernel=kernel)
    model, settings, _ = fit_exact("gp", rows, settings, seed=0, forest=False)
    return model, settings.kernel


@pytest.mark.parametrize(
    "name, kernel, deviation",
    [("rbf", gpflow.kernels.RBF, 0.05), ("matern32", gpflow.kernels.Matern32, 0.01)],
)
def test_kernel_is_the_one_that_drew_the_function(name, kernel, deviation):
    rng = np.random.default_rng(0)
    X = rng.uniform(size=[300, 2])
    root = np.linalg.cholesky(kernel(lengthscales=0.2)(X).numpy() + 1e-8 * np.eye(300))
    _, found = fit(X, root @ rng.normal(size=[300, 1]) + deviation * rng.normal(size=[300, 1]))
    assert found == name


@pytest.mark.parametrize("kernel", [gpflow.kernels.RBF, gpflow.kernels.Matern32])
def test_of_kernels_of_like_evidence_the_one_that_predicts_rows_left_out(monkeypatch, kernel):
    """Of a smooth function with noise all are within a twentieth of a nat."""
    monkeypatch.setattr(
        evidence, "_leave_one_out", lambda model: float(isinstance(model.kernel, kernel))
    )
    rng = np.random.default_rng(4)
    X = rng.uniform(size=[150, 1])
    model, _ = fit(X, np.sin(6.0 * X) + 0.5 * rng.normal(size=[150, 1]))
    assert isinstance(model.kernel, kernel)


@pytest.mark.parametrize(
    "num_rows, frequency, deviation, kernel", [(300, 2.0, 0.3, "rbf"), (400, 3.0, 0.1, "own")]
)
def test_two_inputs_of_thirty_are_found(num_rows, frequency, deviation, kernel):
    """From long lengthscales the evidence leads to nothing but noise."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=[num_rows, 30])
    Y = np.sin(frequency * X[:, :1]) * X[:, 1:2]
    model, _ = fit(X, Y + deviation * rng.normal(size=Y.shape), kernel)
    assert float(model.likelihood.variance.numpy()) < 0.2
    lengthscales = model.kernel.lengthscales.numpy()
    assert np.max(lengthscales[:2]) < 0.5 * np.min(lengthscales[2:])


def _gone(num_rows):
    """Of twelve inputs, two of which count, how many lengthscales are without end."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=[num_rows, 12])
    Y = np.sin(X[:, :1]) + 0.5 * X[:, :1] * X[:, 1:2]
    model, _ = fit(X, Y + 0.1 * rng.normal(size=Y.shape), "rbf")
    lengthscales = model.kernel.lengthscales.numpy()
    assert np.max(lengthscales[:2]) < 10.0
    return np.sum(lengthscales > 200.0)


@pytest.mark.parametrize("num_rows, gone", [(200, 10), (60, 0)])
def test_inputs_that_do_not_count_go_where_rows_are_enough(num_rows, gone):
    assert _gone(num_rows) == gone


def test_inputs_stay_where_rows_left_out_are_not_better_off(monkeypatch):
    monkeypatch.setattr(evidence, "_FREER", 10.0)
    assert _gone(200) == 0


def test_of_few_rows_of_many_inputs_variances_are_honest(monkeypatch):
    """Hyperparameters fit the noise of their own rows: others of these tell how wide errors are."""
    rng = np.random.default_rng(2)
    X, noise = rng.normal(size=[460, 20]), 0.3 * rng.normal(size=[460, 1])
    Y = np.sin(2.0 * X[:, :1]) * X[:, 1:2] + noise
    rows = Rows(X[:60], Y[:60], np.ones(60))
    settings = replace(recommended("gp", 60, 20), kernel="matern52")
    monkeypatch.setattr(evidence, "_ROWS_AN_INPUT", 0)  # a lengthscale for each input in any case

    def density_and_deviation():
        model, _, errors = fit_exact("gp", rows, settings, seed=0, forest=False)
        mean, variance = (v.numpy() for v in model.predict_y(X[60:]))
        mixture = errors.mixture(X[60:], mean, variance)
        return metrics.log_density(Y[60:], *mixture).mean(), np.sqrt(variance).mean(), mean

    density, deviation, mean = density_and_deviation()
    monkeypatch.setattr(few_rows, "left_out_by_parts", lambda model, known, *_: known)
    before, narrower, same = density_and_deviation()
    np.testing.assert_allclose(mean, same, atol=1e-3)
    assert density > before + 0.05 and deviation > 1.1 * narrower


def test_of_two_maxima_the_one_with_little_noise_is_found():
    """A third input of six values matters a little: from one start it is taken for noise."""
    rng = np.random.default_rng(0)
    points, levels = rng.uniform(-1.0, 1.0, size=[12, 2]), rng.normal(size=6)
    X = np.array([[*point, level] for point in points for level in range(6)])
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    Y = (
        np.sin(3.0 * X[:, :1])
        + X[:, 1:2]
        + 0.1 * np.sin(2.0 * X[:, :1]) * np.tile(levels, 12)[:, None]
    )
    settings = replace(recommended("gp", *X.shape), kernel="matern52")
    rows = Rows(X, Y / Y.std(), np.ones(len(X)))
    noise = []
    for start in (ascent.START, evidence._OTHER_STARTS[0]):
        rival = evidence._Rival.of(get("gp").build(rows.X, rows.Y, settings, 0), settings)
        rival.climb_from(start, np.inf, 1.0)
        noise.append(float(rival.model.likelihood.variance.numpy()))
    assert noise[0] > 20.0 * noise[1]
    model, _, _ = fit_exact("gp", rows, settings, seed=0)
    assert float(model.likelihood.variance.numpy()) < 2.0 * noise[1]


def test_function_without_noise_is_fitted():
    """Its noise ends at the floor."""
    X = np.linspace(-1.0, 1.0, 60)[:, None]
    model, _ = fit(X, np.sin(3.0 * X), "rbf")
    assert float(model.likelihood.variance.numpy()) < 1e-4


@pytest.mark.parametrize("float_type", [np.float64, np.float32])
def test_objective_is_the_loss_with_its_gradient(float_type):
    """Of one vector in float64, whatever the model's float; the model has the values afterwards."""
    gpflow.config.set_default_float(float_type)
    X = np.linspace(-1.0, 1.0, 20)[:, None] ** [1, 2]
    rows = Rows(X, np.sin(3.0 * X[:, :1]), np.ones(20))
    model = get("gp").build(rows.X, rows.Y, recommended("gp", 20, 2), 0)
    objective = ascent.Objective(model)
    values = objective.values + np.linspace(-0.1, 0.1, objective.values.size)
    loss, gradient = objective(values)
    assert gradient.dtype == np.float64
    np.testing.assert_array_equal(objective.values, values.astype(float_type))
    with tf.GradientTape() as tape:
        expected = model.training_loss()
    expected_gradient = tape.gradient(expected, model.trainable_variables)
    tolerance = 1e-10 if float_type == np.float64 else 1e-3
    assert loss == pytest.approx(float(expected), rel=tolerance)
    flat = np.concatenate([np.ravel(part) for part in expected_gradient])
    np.testing.assert_allclose(gradient, flat, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("sizes, compilations", [((20, 31, 7), 1), ((20, 210, 211, 210), 3)])
def test_objectives_of_one_name_are_compiled_once_and_leave_models_alone(
    monkeypatch, sizes, compilations, evidence_is_compiled_anew
):
    """But for each number of many rows, whose matrices are worked on by halves."""
    traced, real = [], ascent._loss_and_gradient
    monkeypatch.setattr(ascent, "_loss_and_gradient", lambda *a: traced.append(1) or real(*a))
    rng = np.random.default_rng(0)
    for num_rows in sizes:
        X = rng.normal(size=(num_rows, 2))
        model = get("gp").build(X, np.sin(X[:, :1]), recommended("gp", num_rows, 2), 0)
        model.weights.assign(rng.uniform(0.5, 2.0, size=num_rows))
        shared, own = ascent.shared_objective(model, "gp"), ascent.Objective(model)
        start = shared.values
        values = start + rng.normal(size=start.size)
        traces = len(traced)
        loss, gradient = shared(values)
        compilations -= len(traced) - traces
        np.testing.assert_array_equal(own.values, start)
        expected, expected_gradient = own(values)
        assert loss == pytest.approx(expected, rel=1e-12)
        np.testing.assert_allclose(gradient, expected_gradient, rtol=1e-10, atol=1e-12)
    assert compilations == 0


def test_fits_share_compilations_where_nothing_but_numbers_differs(
    monkeypatch, evidence_is_compiled_anew
):
    """Not between threads, whose evaluations would meet in the same variables."""
    traced, real = [], ascent._loss_and_gradient
    monkeypatch.setattr(ascent, "_loss_and_gradient", lambda *a: traced.append(1) or real(*a))
    rng = np.random.default_rng(0)

    def evaluate(num_columns=2, name=("gp",), num_rows=30):
        X = rng.normal(size=(num_rows, num_columns))
        model = get("gp").build(X, np.sin(X[:, :1]), recommended("gp", num_rows, num_columns), 0)
        objective = ascent.shared_objective(model, *name)
        before = len(traced)
        loss, _ = objective(objective.values)
        assert loss == pytest.approx(model.training_loss().numpy(), rel=1e-12)
        return len(traced) - before

    assert [evaluate(), evaluate(num_rows=40), evaluate(3), evaluate(3)] == [1, 0, 1, 0]
    assert [evaluate(name="ab"), evaluate(name="ab"), evaluate(name="ba")] == [1, 0, 1]
    with gpflow.config.as_context():
        gpflow.config.set_default_jitter(1e-4)
        assert evaluate() == 1
    with ThreadPoolExecutor(1) as threads:
        assert threads.submit(evaluate).result() == 1
    monkeypatch.setattr(ascent, "_MOST_COMPILED", 2)
    assert [evaluate(4), evaluate(5), evaluate(), evaluate(5)] == [1, 1, 1, 0]


def _slow(num_rows):
    """Settings with which functions without noise gain for long: not by logarithms."""
    return replace(recommended("gp", num_rows, 2), positive_bijector="own")


@pytest.mark.parametrize("deviation, fewest, most", [(0.0, 20, 22), (0.5, 2, 13)])
def test_more_time_goes_to_what_still_gains_much(monkeypatch, deviation, fewest, most):
    """An iteration takes a second by this clock, and ten are given: without noise twenty are taken."""
    clock = count()
    monkeypatch.setattr(ascent, "time", SimpleNamespace(perf_counter=lambda: next(clock)))
    rng = np.random.default_rng(2)
    X = rng.uniform(-1.0, 1.0, size=[200, 2])
    Y = np.sin(4.0 * X[:, :1]) * X[:, 1:] + deviation * rng.normal(size=[200, 1])
    rows = Rows(X, Y / Y.std(), np.ones(200))
    model = get("gp").build(rows.X, rows.Y, _slow(200), 0)
    ascent.maximise(ascent.Objective(model), 60, seconds=10, longer=2.0)
    assert fewest <= next(clock) <= most


@pytest.mark.parametrize("failing", [{1}, {15}, {12, 20}])
def test_fit_goes_on_where_a_factorisation_failed(failing):
    """L-BFGS ends with the error; only where it had made no step is there nothing to go on from."""
    rng = np.random.default_rng(3)
    X = rng.uniform(-1.0, 1.0, size=[100, 2])
    Y = np.sin(4.0 * X[:, :1]) * X[:, 1:]
    rows = Rows(X, Y / Y.std(), np.ones(100))
    model = get("gp").build(rows.X, rows.Y, _slow(100), 0)
    start = float(model.training_loss())
    calls, reached = count(1), []

    class Failing(ascent.Objective):
        def __call__(self, values):
            if next(calls) in failing:
                raise FactorisationError("")
            value, gradient = super().__call__(values)
            reached.append(value)
            return value, gradient

    ascent.maximise(Failing(model), 40, seconds=np.inf, longer=1.0)
    end = float(model.training_loss())
    if failing == {1}:
        assert end == start
    else:
        assert end < reached[10] - 20.0
        assert end == pytest.approx(min(reached), abs=1e-6)
