"""Fits: what they learn, call and leave alone; natural gradients and early stopping."""

from __future__ import annotations

import copy
import logging
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gpflow
import keras
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.keras import tf_keras
from gpflow.monitor import Monitor, MonitorTaskGroup
from gpflow.utilities import read_values, set_trainable

from gpflow_deep.optimizers import NaturalGradient
from gpflow_deep.training import FitResult, TrainingError, minibatches
from gpflow_deep.training.adam import Adam
from gpflow_deep.training.clock import Clock, Decay, Pace
from tests.training.models import (
    CountingSVGP,
    Killed,
    Line,
    N,
    Weights,
    assert_same,
    kill_at,
    make_data,
    make_svgp,
    quiet_fit,
)


def test_fit_learns_and_reports() -> None:
    data = make_data()
    model = make_svgp()
    before = float(model.training_loss(data))
    result = quiet_fit(model, data, steps=150, learning_rate=0.05)
    assert float(model.training_loss(data)) < 0.2 * before
    assert result.steps == 150
    assert not result.stopped_early
    assert result.best_step is None and result.best_score is None
    assert result.seconds > 0
    np.testing.assert_array_equal(result.history["step"], np.arange(1, 151))
    assert result.history["loss"].shape == (150,)
    assert np.isnan(result.history["validation"]).all()
    assert_same(copy.deepcopy(model), model)  # it holds nothing that cannot be copied


def test_full_batch_step_is_adams() -> None:
    data = make_data()
    fitted, reference = make_svgp(), make_svgp()
    result = quiet_fit(
        fitted, data, steps=5, batch_size=None, learning_rate=0.1, decay_rate=0.5, decay_steps=2
    )
    losses = []
    optimizer = Adam(0.1)
    for step in range(5):
        optimizer.learning_rate = 0.1 * 0.5 ** (step // 2)
        with tf.GradientTape() as tape:
            loss = reference.training_loss(data)
        variables = reference.trainable_variables
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        losses.append(float(loss))
    np.testing.assert_allclose(result.history["loss"], losses, rtol=1e-7)
    for path, value in read_values(reference).items():
        np.testing.assert_allclose(read_values(fitted)[path], value, rtol=1e-5, atol=1e-7)


def test_prior_is_part_of_the_loss() -> None:
    prior = tfp.distributions.Normal(np.float64(0.0), np.float64(2.0))
    without, model = Line(), Line()
    model.slope.prior = prior
    loss, expected = (quiet_fit(m, steps=1).history["loss"][0] for m in (model, without))
    np.testing.assert_allclose(loss, expected - prior.log_prob(np.float64(0.5)), rtol=1e-12)


def test_steps_are_compiled_once_with_the_objective_of_all_rows() -> None:
    data = make_data()
    model = make_svgp(CountingSVGP, num_data=None)
    result = quiet_fit(model, data, steps=70)
    assert model.num_traces == 1
    expected = make_svgp(num_data=N).training_loss(next(iter(minibatches(data, 16, 0))))
    np.testing.assert_allclose(result.history["loss"][0], expected, rtol=1e-12)


def test_many_runs_in_one_process_are_no_retracing() -> None:
    """Of which TensorFlow would warn from the fifth on."""
    messages: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: messages.append(record.getMessage())  # type: ignore[method-assign]
    logger = tf.get_logger()
    logger.addHandler(handler)
    try:
        for _ in range(6):
            quiet_fit(Line(), steps=1, validation_fraction=0.2)
    finally:
        logger.removeHandler(handler)
    assert messages == []


def test_results_do_not_depend_on_how_many_steps_a_call_takes() -> None:
    together, one_by_one = Line(), Line()
    seen: list[tuple[int, float]] = []
    result = quiet_fit(together)
    quiet_fit(one_by_one, callback=lambda step, loss: seen.append((step, loss)))
    assert_same(together, one_by_one)
    history = zip(result.history["step"].tolist(), result.history["loss"].tolist(), strict=True)
    assert seen == list(history)


def test_seed_decides() -> None:
    first, second, other = Line(), Line(), Line()
    for global_seed, (model, seed) in enumerate([(first, 5), (second, 5), (other, 6)]):
        tf.random.set_seed(global_seed)
        quiet_fit(model, seed=seed)
    assert_same(first, second)
    with pytest.raises(AssertionError):
        assert_same(first, other)


@pytest.mark.parametrize(
    "make_optimizer",
    [
        lambda: keras.optimizers.Adam(0.05),
        lambda: tf_keras.optimizers.Adam(0.05),
        lambda: tf_keras.optimizers.SGD(1e-4, momentum=0.9),
    ],
)
def test_optimisers_of_users(make_optimizer: Callable[[], Any], tmp_path: Path) -> None:
    whole, resumed = Line(), Line()
    quiet_fit(whole, optimizer=make_optimizer())
    assert whole.slope.numpy() != Line().slope.numpy()
    saved = dict(checkpoint_dir=tmp_path, checkpoint_every=5)
    with pytest.raises(Killed):
        quiet_fit(Line(), optimizer=make_optimizer(), callback=kill_at(9), **saved)
    quiet_fit(resumed, optimizer=make_optimizer(), **saved)
    assert_same(whole, resumed)


@pytest.mark.parametrize("optimizers", [keras.optimizers, tf_keras.optimizers])
def test_a_schedule_need_not_describe_itself(optimizers: Any, tmp_path: Path) -> None:
    class Falling(optimizers.schedules.LearningRateSchedule):
        def __call__(self, step: Any) -> tf.Tensor:
            return 0.1 / tf.cast(step + 1, tf.float32)

    for steps in (1, 2):
        settings = dict(steps=steps, checkpoint_dir=tmp_path)
        optimizer, natural = optimizers.SGD(Falling()), NaturalGradient(Falling())
        quiet_fit(Weights(), optimizer=optimizer, natural_gradient=natural, **settings)
    with pytest.raises(ValueError, match="optimizer.momentum was None and is now 0.0"):
        quiet_fit(Weights(), optimizer=optimizers.SGD(0.1), natural_gradient=natural, **settings)


@pytest.mark.parametrize("optimizers", [keras.optimizers, tf_keras.optimizers])
@pytest.mark.parametrize("validated", [False, True])
def test_averages_of_an_optimiser_are_the_result(
    optimizers: Any, validated: bool, tmp_path: Path
) -> None:
    slopes: list[float] = []
    model, resumed = Line(), Line()

    def run(model: Line, **settings: Any) -> FitResult:
        optimizer = optimizers.SGD(1e-4, use_ema=True, ema_momentum=0.5)
        if validated:
            settings |= dict(validation_data=make_data(5), validate_every=6)
        return quiet_fit(model, optimizer=optimizer, **settings)

    result = run(model, callback=lambda *_: slopes.append(float(model.slope.numpy()[0])))
    # tf_keras counts the initial value too.
    average = slopes[0] if optimizers is keras.optimizers else 0.5
    last = result.best_step or result.steps
    for slope in slopes[:last]:
        average += 0.5 * (slope - average)
    assert abs(average - slopes[last - 1]) > 1e-6
    np.testing.assert_allclose(model.slope.numpy(), average, rtol=1e-9)
    if validated:
        score = np.mean(model.predict_log_density(make_data(5)))
        np.testing.assert_allclose(result.best_score, score, rtol=1e-12)
    settings: dict[str, Any] = dict(checkpoint_dir=tmp_path, checkpoint_every=4)
    with pytest.raises(Killed):
        run(Line(), callback=kill_at(9), **settings)
    run(resumed, **settings)
    assert_same(resumed, model)


def _sgd(library: Any = keras, **settings: Any) -> Any:
    return library.optimizers.SGD(1e-3, momentum=0.5, global_clipnorm=20.0, **settings)


def _growing() -> Any:
    return keras.optimizers.LossScaleOptimizer(_sgd(), dynamic_growth_steps=2)


@pytest.mark.parametrize("natural_gradient", [None, 0.1])
@pytest.mark.parametrize(
    "make_optimizer",
    [
        lambda: _sgd(loss_scale_factor=1024.0),
        _growing,
        lambda: tf_keras.mixed_precision.LossScaleOptimizer(_sgd(tf_keras)),
    ],
    ids=["constant", "growing", "tf_keras"],
)
def test_an_optimiser_that_scales_the_loss_takes_the_steps_of_one_that_does_not(
    make_optimizer: Callable[[], Any], natural_gradient: float | None
) -> None:
    """It divides gradients, in Keras 3, by what they are multiplied by."""
    models = Weights(), Weights()
    for model, optimizer in zip(models, (make_optimizer(), _sgd()), strict=True):
        quiet_fit(model, optimizer=optimizer, natural_gradient=natural_gradient)
    scaled, expected = map(read_values, models)
    assert abs(expected[".log_noise"]) > 1e-3
    for path, value in expected.items():
        np.testing.assert_allclose(scaled[path], value, rtol=1e-10, atol=1e-14, err_msg=path)


def test_a_run_that_goes_on_has_the_loss_scale_it_had(tmp_path: Path) -> None:
    whole, resumed, optimizer = Line(), Line(), _growing()
    saved = dict(checkpoint_dir=tmp_path, checkpoint_every=5)
    quiet_fit(whole, optimizer=_growing())
    with pytest.raises(Killed):
        quiet_fit(Line(), optimizer=_growing(), callback=kill_at(9), **saved)
    quiet_fit(resumed, optimizer=optimizer, **saved)
    assert_same(resumed, whole)
    assert float(optimizer.dynamic_scale) == 2.0 ** (15 + 12 // 2)


def test_a_step_that_the_loss_scale_makes_overflow_is_skipped() -> None:
    slopes: list[float] = []
    sgd = keras.optimizers.SGD(1e-4)
    optimizer = keras.optimizers.LossScaleOptimizer(sgd, initial_scale=2.0**126)
    with gpflow.config.as_context(gpflow.config.Config(float=np.float32)):
        model = Line()
        quiet_fit(model, optimizer=optimizer, callback=lambda *_: slopes.append(_slope(model)))
    assert slopes[0] == 0.5 != slopes[-1]
    assert float(optimizer.dynamic_scale) < 2.0**126


def test_an_infinite_loss_scale_is_told() -> None:
    slopes: list[float] = []
    model, sgd = Line(), keras.optimizers.SGD(1e-4)
    optimizer = keras.optimizers.LossScaleOptimizer(
        sgd, initial_scale=2.0**127, dynamic_growth_steps=2
    )
    with pytest.raises(TrainingError, match="step 3: optimizer: its loss scale is not finite"):
        quiet_fit(model, optimizer=optimizer, callback=lambda *_: slopes.append(_slope(model)))
    assert len({0.5, *slopes}) == 3 and _slope(model) in slopes


def _slope(model: Line) -> float:
    return float(model.slope.numpy()[0])


@pytest.mark.parametrize("optimizers", [keras.optimizers, tf_keras.optimizers])
def test_an_optimiser_of_other_parameters_is_named(optimizers: Any) -> None:
    model, optimizer = Line(), optimizers.SGD(1e-3, momentum=0.9)
    set_trainable(model.intercept, False)
    quiet_fit(model, steps=1, optimizer=optimizer)
    set_trainable(model.intercept, True)
    with pytest.raises(ValueError, match="optimizer: expected one that can update all trainable"):
        quiet_fit(model, steps=1, optimizer=optimizer)


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({}, "GPflow's variables, got Muon: .* no attribute 'path'"),
        (dict(exclude_embeddings=False), "all trainable parameters, .* got Muon: .* type float32"),
    ],
)
def test_an_optimiser_of_other_kinds_of_variables_is_named(
    settings: dict[str, Any], told: str
) -> None:
    optimizer = keras.optimizers.Muon(0.01, **settings)
    with pytest.raises(ValueError, match=f"^optimizer: expected one that can update {told}"):
        quiet_fit(Weights(), steps=1, optimizer=optimizer)


class PenalisedLine(Line):
    def training_loss(self, data: Any) -> tf.Tensor:
        return super().training_loss(data) + 1e6


class PlainLine(Line):
    """With GPflow's signature of the objective."""

    def maximum_log_likelihood_objective(self, data: Any) -> tf.Tensor:
        return super().maximum_log_likelihood_objective(data) - 1e6


@pytest.mark.parametrize("make", [PenalisedLine, PlainLine])
def test_a_loss_of_the_models_own_is_the_one_used(make: Callable[[], Line]) -> None:
    result = quiet_fit(make(), steps=1, batch_size=None)
    assert result.history["loss"][0] == make().training_loss(make_data()).numpy()


def test_parameters_outside_the_objective_and_fixed_ones_stay() -> None:
    model = Line()
    set_trainable(model.intercept, False)
    quiet_fit(model)
    assert model.unused.numpy() == 3.0
    assert model.intercept.numpy() == 0.0
    assert model.slope.numpy() != 0.5


def test_progress_bar(capfd: pytest.CaptureFixture[str]) -> None:
    quiet_fit(Line(), validation_fraction=0.2)
    assert capfd.readouterr() == ("", "")
    quiet_fit(Line(), validation_fraction=0.2, progress=True)
    shown = capfd.readouterr().err
    assert "12/12" in shown and "elbo=" in shown and "validation=" in shown


def test_progress_of_a_predictive_objective_is_not_called_a_bound(
    capfd: pytest.CaptureFixture[str],
) -> None:
    model = Line()
    model.predictive_objective = True
    quiet_fit(model, progress=True)
    shown = capfd.readouterr().err
    assert "objective=" in shown and "elbo" not in shown


def test_progress_is_told_seldom_where_every_line_is_kept(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refreshes() -> int:
        quiet_fit(Line(), steps=50, progress=True, callback=lambda *_: time.sleep(0.01))
        return capfd.readouterr().err.count("\r")

    monkeypatch.delitem(sys.modules, "ipykernel", raising=False)
    seldom = refreshes()
    monkeypatch.setitem(sys.modules, "ipykernel", sys)
    assert seldom <= 2 < refreshes()


def test_monitor_is_called_with_every_step() -> None:
    class Recorder(gpflow.monitor.MonitorTask):
        def run(self, **kwargs: Any) -> None:
            steps.append(self.current_step)

    steps: list[int] = []
    group = gpflow.monitor.MonitorTaskGroup(Recorder(), period=2)
    quiet_fit(Line(), steps=5, monitor=gpflow.monitor.Monitor(group))
    assert steps == [2, 4]


def test_one_natural_gradient_step_solves_a_conjugate_problem() -> None:
    X, Y = make_data()
    model = make_svgp(whiten=True)
    for part in (model.kernel, model.likelihood, model.inducing_variable):
        set_trainable(part, False)
    quiet_fit(model, steps=1, batch_size=None, natural_gradient=1.0)
    exact = gpflow.models.SGPR(
        (X, Y), model.kernel, model.inducing_variable, noise_variance=model.likelihood.variance
    )
    np.testing.assert_allclose(model.elbo((X, Y)), exact.elbo(), rtol=1e-7)


@pytest.mark.parametrize("schedule", [False, True])
def test_natural_gradients_and_optimiser_share_one_evaluation(schedule: bool) -> None:
    """The step is one of both, at the same parameters."""
    data = make_data()
    fitted, reference = make_svgp(CountingSVGP), make_svgp()
    gammas = [0.3, 0.15, 0.1]
    natural = NaturalGradient(lambda steps: 0.3 / tf.cast(steps + 1, tf.float64))
    quiet_fit(
        fitted,
        data,
        steps=3 if schedule else 1,
        batch_size=None,
        learning_rate=0.1,
        natural_gradient=natural if schedule else 0.3,
    )
    assert fitted.num_traces == 1
    adam = Adam(0.1)
    for gamma in gammas if schedule else gammas[:1]:
        optimizer = NaturalGradient(gamma)
        q_variables = optimizer.variables_of(reference)
        q_ids = {id(variable) for variable in q_variables}
        others = [v for v in reference.trainable_variables if id(v) not in q_ids]
        with tf.GradientTape() as tape:
            loss = reference.training_loss(data)
        gradients = tape.gradient(loss, [*others, *q_variables])
        adam.apply_gradients(zip(gradients[: len(others)], others, strict=True))
        optimizer.apply_gradients(gradients[len(others) :], reference)
    for path, value in read_values(reference).items():
        np.testing.assert_allclose(read_values(fitted)[path], value, rtol=1e-6, atol=1e-8)


def test_natural_gradients_leave_trainability_as_it_was() -> None:
    model = Weights()
    set_trainable(model.q_sqrt, False)
    before = read_values(model)
    quiet_fit(model, natural_gradient=0.1)
    assert model.q_mu.trainable and not model.q_sqrt.trainable
    for path in (".q_mu", ".q_sqrt", ".log_noise"):
        assert not np.array_equal(read_values(model)[path], before[path])


@pytest.mark.parametrize(
    "make", [lambda: make_svgp(q_diag=True), lambda: Line()], ids=["q_diag", "no q"]
)
def test_natural_gradients_need_a_full_covariance(make: Callable[[], Any]) -> None:
    with pytest.raises(ValueError, match="natural_gradient: expected"):
        quiet_fit(make(), natural_gradient=0.1)


def test_best_parameters_are_kept() -> None:
    X, Y = make_data()
    held_out = (X[:20], 0.6 * X[:20, :1])  # the slope passes through 0.6 on its way
    model = Line()
    result = quiet_fit(
        model,
        (X[20:], Y[20:]),
        steps=400,
        learning_rate=0.01,
        validation_data=held_out,
        validate_every=5,
        patience=4,
    )
    scores = result.history["validation"]
    assert result.stopped_early and result.steps < 400
    assert result.best_step is not None and result.steps == result.best_step + 4 * 5
    assert result.best_score == np.nanmax(scores) == scores[result.best_step - 1]
    assert np.count_nonzero(~np.isnan(scores)) == result.steps // 5
    score = np.mean(model.predict_log_density(held_out))
    np.testing.assert_allclose(score, result.best_score, rtol=1e-12)


def test_last_step_is_validated_and_patience_can_be_endless() -> None:
    result = quiet_fit(Line(), steps=7, validation_fraction=0.1, validate_every=5, patience=None)
    assert np.flatnonzero(~np.isnan(result.history["validation"])).tolist() == [4, 6]


def test_validation_in_parts_is_the_mean_over_all() -> None:
    model = Line()
    held_out = make_data(1100)
    result = quiet_fit(model, steps=2, validation_data=held_out, learning_rate=1e-9)
    expected = np.mean(model.predict_log_density(held_out))
    np.testing.assert_allclose(result.best_score, expected, rtol=1e-10)


def test_num_data_is_that_of_the_rows_trained_on() -> None:
    for num_data in (N, None):
        model = Line()
        model.num_data = num_data
        quiet_fit(model, steps=1, validation_fraction=0.25)
        assert set(model.seen_num_data) == {45}
        assert model.num_data == num_data
    with pytest.raises(ValueError, match="model.num_data: expected .* 60, .* got 59"):
        quiet_fit(make_svgp(num_data=59))


def test_a_run_out_of_time_ends_in_order(tmp_path: Path) -> None:
    """It is scored and saved like one that took its last step, and a longer limit goes on with it."""
    settings: dict[str, Any] = dict(
        steps=10**6, validation_fraction=0.2, validate_every=200_000, patience=None
    )
    model = Line()
    first = quiet_fit(model, time_limit=1.0, checkpoint_dir=tmp_path, **settings)
    assert first.out_of_time and not first.stopped_early
    assert 1 <= first.steps < 10**6 and 1.0 <= first.seconds < 5.0
    scores = first.history["validation"]
    assert 2 <= np.count_nonzero(~np.isnan(scores)) <= 5 and np.isfinite(scores[-1])
    assert first.best_score == np.nanmax(scores)
    times = first.history["seconds"]
    assert times.shape == (first.steps,) and (np.diff(times) > 0).all()
    assert 0.0 < times[0] and times[-1] <= first.seconds
    again = Line()
    assert (
        quiet_fit(again, time_limit=1.0, checkpoint_dir=tmp_path, **settings).steps == first.steps
    )
    assert_same(again, model)
    longer = quiet_fit(Line(), time_limit=1.5, checkpoint_dir=tmp_path, **settings)
    assert longer.steps > first.steps and longer.seconds >= 1.5
    np.testing.assert_array_equal(longer.history["loss"][: first.steps], first.history["loss"])


def test_without_need_of_it_a_time_limit_changes_nothing() -> None:
    limited, free = Line(), Line()
    result = quiet_fit(limited, steps=12, time_limit=1000.0, decay_steps=3, decay_rate=0.5)
    quiet_fit(free, steps=12, decay_steps=3, decay_rate=0.5)
    assert result.steps == 12 and not result.out_of_time
    assert_same(limited, free)


def test_the_rate_falls_by_the_clock() -> None:
    """Half of the time counts as half of the steps."""
    clock = Clock(100, 10.0)
    assert [clock.place(3, seconds) for seconds in (0.0, 0.5, 5.0, 10.0, 12.0)] == [
        3,
        5,
        50,
        100,
        100,
    ]
    assert Clock(100, None).place(3, 1e9) == 3
    decay = Decay(0.1, 10, 0.5)
    np.testing.assert_allclose(decay(25), 0.1 * 0.5**2)
    decay.place.assign(50)
    np.testing.assert_allclose([decay(25), decay(60)], [0.1 * 0.5**5, 0.1 * 0.5**6], rtol=1e-6)


def test_progress_bar_of_limited_time(capfd: pytest.CaptureFixture[str]) -> None:
    quiet_fit(Line(), time_limit=100.0, progress=True)
    shown = capfd.readouterr().err
    assert "100%" in shown and "limit=100 s" in shown and "steps=12" in shown


@pytest.mark.parametrize(
    "wall,own,count",
    [
        (0.0099, 0.0099, 10),  # alone on its core
        (0.099, 0.0099, 10),  # ten others on it
        (0.0099, 0.02, 10),  # two threads
        (0.099, 0.001, 10),  # on an accelerator: calls of a second at most
        (5.0, 5.0, 1),
        (1e-5, 1e-5, 200),
    ],
)
def test_steps_of_a_call_do_not_depend_on_the_load(
    wall: float, own: float, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    pace = Pace()
    clocks = iter([np.zeros(2), np.array([wall, own])])
    monkeypatch.setattr(pace, "_now", lambda: next(clocks))
    pace.start()
    assert pace.count(pace.seconds()) == count


@pytest.mark.parametrize(
    ("name", "function", "told"),
    [
        ("callback", 3, "expected a function, got int"),
        ("callback", lambda step: None, r"expected a function of \(step, loss\), got function: "),
        ("callback", Monitor(MonitorTaskGroup([])), ".* got Monitor: .* That is for `monitor`"),
        ("monitor", lambda step, loss: None, r"expected a function of \(step\), got function: "),
    ],
)
def test_a_function_that_cannot_be_called_is_told_before_work(
    name: str, function: Any, told: str
) -> None:
    model = Line()
    before = model.slope.numpy()
    with pytest.raises(TypeError, match=f"^{name}: {told}"):
        quiet_fit(model, **{name: function})
    np.testing.assert_array_equal(model.slope.numpy(), before)


@pytest.mark.parametrize("function", [print, max, lambda *_: None, lambda step, loss=0.0: None])
def test_a_function_that_can_be_called_is(function: Callable[..., Any]) -> None:
    quiet_fit(Line(), steps=2, callback=function)
