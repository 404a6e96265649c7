"""A killed run goes on to the result of one that was not; other runs are refused."""

from __future__ import annotations

import shutil
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
from gpflow.utilities import read_values, set_trainable

import gpflow_deep
from gpflow_deep.training import TrainingError, loop
from gpflow_deep.training.chains import moving_chains
from tests.training.models import (
    Killed,
    Line,
    N,
    Weights,
    WithTerm,
    assert_same,
    kill_at,
    make_data,
    make_svgp,
    quiet_fit,
)


@pytest.mark.parametrize(
    "make,settings",
    [
        (Line, {}),
        (Line, {"validation_fraction": 0.2, "validate_every": 6, "patience": 5}),
        (Line, {"batch_size": None}),
        (Weights, {"natural_gradient": 0.1, "validation_fraction": 0.2, "validate_every": 7}),
    ],
    ids=["adam", "validation", "full batch", "natural gradients"],
)
def test_killed_run_goes_on_to_the_same_result(
    make: Callable[[], Any], settings: dict[str, Any], tmp_path: Path
) -> None:
    settings = {"steps": 40, "learning_rate": 0.1, **settings}
    whole = make()
    expected = quiet_fit(whole, **settings)
    settings |= {"checkpoint_dir": tmp_path, "checkpoint_every": 10}
    with pytest.raises(Killed):
        quiet_fit(make(), callback=kill_at(25), **settings)
    steps: list[int] = []
    resumed = make()
    result = quiet_fit(resumed, callback=lambda step, _: steps.append(step), **settings)
    assert steps == list(range(21, expected.steps + 1))
    assert_same(whole, resumed)
    assert (result.best_step, result.best_score) == (expected.best_step, expected.best_score)
    for name in ("step", "loss", "validation"):
        np.testing.assert_array_equal(result.history[name], expected.history[name], err_msg=name)
    assert (np.diff(result.history["seconds"]) > 0.0).all()


def test_slow_steps_are_saved_by_the_clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that takes longer than a minute for `checkpoint_every` steps does not lose them."""
    settings: dict[str, Any] = dict(validation_fraction=0.2, validate_every=7, learning_rate=0.1)
    whole, resumed = Line(), Line()
    expected = quiet_fit(whole, steps=30, **settings)
    monkeypatch.setattr(loop, "_MOST_LOST", 0.0)
    with pytest.raises(Killed):
        quiet_fit(Line(), steps=30, checkpoint_dir=tmp_path, callback=kill_at(12), **settings)
    steps: list[int] = []
    result = quiet_fit(
        resumed,
        steps=30,
        checkpoint_dir=tmp_path,
        callback=lambda step, _: steps.append(step),
        **settings,
    )
    assert steps == list(range(13, 31))
    assert_same(whole, resumed)
    for name in ("step", "loss", "validation"):
        np.testing.assert_array_equal(result.history[name], expected.history[name], err_msg=name)


def test_fast_steps_are_saved_by_their_number_alone(tmp_path: Path) -> None:
    with pytest.raises(Killed):
        quiet_fit(Line(), steps=30, checkpoint_dir=tmp_path, callback=kill_at(12))
    assert not list(tmp_path.glob("step-*"))


@pytest.mark.parametrize("kind", [gpflow_deep.models.DeepGP, WithTerm])
def test_killed_deep_gp_goes_on_to_the_same_result(
    kind: type[gpflow_deep.models.DeepGP], tmp_path: Path
) -> None:
    def make() -> gpflow_deep.models.DeepGP:
        layers = gpflow_deep.layers.build_layers(
            X, hidden_dims=(1,), output_dim=1, num_inducing=4, seed=0
        )
        return kind(
            layers,
            gpflow.likelihoods.Gaussian(0.1),
            num_samples=2,
            num_prediction_samples=4,
            num_data=N,
        )

    def keep_step_four(step: int, loss: float) -> None:
        if step == 6:
            shutil.copytree(tmp_path / "whole", tmp_path / "killed")

    X, _ = make_data()
    settings: dict[str, Any] = dict(steps=8, checkpoint_every=4)
    whole, resumed = make(), make()
    expected = quiet_fit(
        whole, callback=keep_step_four, checkpoint_dir=tmp_path / "whole", **settings
    )
    result = quiet_fit(resumed, checkpoint_dir=tmp_path / "killed", **settings)
    assert expected.history["loss"][-1] < expected.history["loss"][0]
    assert_same(whole, resumed)
    for name in ("step", "loss", "validation"):
        np.testing.assert_array_equal(result.history[name], expected.history[name], err_msg=name)
    assert (np.diff(result.history["seconds"]) > 0.0).all()


def test_finished_run_gives_its_result_at_once(tmp_path: Path) -> None:
    settings = dict(checkpoint_dir=tmp_path, validation_fraction=0.2, validate_every=4, patience=1)
    first, second = Line(), Line()
    expected = quiet_fit(first, **settings)
    result = quiet_fit(second, **settings)
    assert first.seen_num_data and not second.seen_num_data  # the objective was not even built
    assert_same(first, second)
    assert result.seconds == expected.seconds
    assert result.history["loss"].tolist() == expected.history["loss"].tolist()


def test_finished_run_can_be_made_longer_not_shorter(tmp_path: Path) -> None:
    whole, longer = Line(), Line()
    quiet_fit(whole, steps=12)
    quiet_fit(Line(), steps=7, checkpoint_dir=tmp_path)
    assert quiet_fit(longer, steps=12, checkpoint_dir=tmp_path).steps == 12
    assert_same(whole, longer)
    shorter = Line()
    with pytest.raises(ValueError, match="steps: expected at least the 12"):
        quiet_fit(shorter, steps=7, checkpoint_dir=tmp_path)
    assert_same(shorter, Line())


@pytest.mark.parametrize("before, now", [(None, 0.1), (0.1, None)])
def test_natural_gradients_are_not_begun_or_ended_in_a_run(
    before: float | None, now: float | None, tmp_path: Path
) -> None:
    """Parameters would be another optimiser's. Another size is a setting that may change."""
    quiet_fit(Weights(), steps=2, checkpoint_dir=tmp_path, natural_gradient=before)
    model = Weights()
    with pytest.raises(ValueError, match="other settings: natural_gradient was .* and is now"):
        quiet_fit(model, steps=4, checkpoint_dir=tmp_path, natural_gradient=now)
    assert_same(model, Weights())
    if before is not None:
        with pytest.warns(UserWarning, match="goes on with other settings: natural_gradient"):
            quiet_fit(model, steps=4, checkpoint_dir=tmp_path, natural_gradient=0.2)


@pytest.fixture(scope="module")
def finished_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("finished")
    quiet_fit(Line(), steps=1, checkpoint_dir=directory)
    return directory


def fixed_intercept() -> Line:
    model = Line()
    set_trainable(model.intercept, False)
    return model


class BentLine(Line):
    """Of the same parameters."""

    def __init__(self, bend: float = 0.0) -> None:
        super().__init__()
        self.bend = bend


@pytest.mark.parametrize(
    "other,named",
    [
        ({"seed": 1}, "seed was 0 and is now 1"),
        ({"batch_size": 15}, "batch_size was 16 and is now 15"),
        ({"optimizer": tf_keras.optimizers.SGD(0.005)}, "momentum"),
        ({"validation_fraction": 0.1}, "validation_data was None"),
        ({"data": make_data(N - 1)}, "data was"),
        ({"data": (make_data()[0], make_data()[1] + 1.0)}, "data was"),
        (
            {"model": fixed_intercept()},
            r"intercept was '\(1,\) trainable' and is now '\(1,\) fixed'",
        ),
        ({"model": make_svgp()}, r"parameters\.\.q_sqrt was None"),
        ({"model": BentLine()}, r"model\.parts was 'Line.*' and is now 'BentLine.*'"),
        ({"model": BentLine(0.5)}, r"model\.bend was None and is now 0.5"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_checkpoint_of_other_settings_is_refused(
    other: dict[str, Any], named: str, finished_run: Path
) -> None:
    model = other.get("model", Line())
    before = read_values(model)
    with pytest.raises(ValueError, match=named):
        quiet_fit(**{"model": model, **other, "steps": 2, "checkpoint_dir": finished_run})
    for path, value in read_values(model).items():
        np.testing.assert_array_equal(value, before[path])


def _student(
    df: float = 3.0, scale: float = 0.1, prior: float | None = None, column: int = 0
) -> Any:
    kernel = gpflow.kernels.SquaredExponential(active_dims=[column])
    if prior is not None:
        kernel.lengthscales.prior = tfp.distributions.LogNormal(np.float64(prior), np.float64(0.1))
    likelihood = gpflow.likelihoods.StudentT(scale, df)
    set_trainable(likelihood.scale, False)
    return gpflow.models.SVGP(kernel, likelihood, np.linspace(-1, 1, 10).reshape(5, 2))


@pytest.mark.parametrize(
    "other, named",
    [
        ({"df": 300.0}, "StudentT 3.df was 3.0 and is now 300.0"),
        ({"scale": 0.5}, "likelihood.scale was .*fixed at 0.1' and is now .*fixed at 0.5'"),
        ({"prior": 3.0}, r"lengthscales was .* and is now .*prior LogNormal\(loc=3, scale=0.1\)"),
        ({"column": 1}, r"active_dims was '\[0\]' and is now '\[1\]'"),
    ],
    ids=["settings", "fixed", "prior", "columns"],
)
def test_checkpoint_of_a_model_with_the_same_parameters_is_refused(
    other: dict[str, Any], named: str, tmp_path: Path
) -> None:
    X = np.random.default_rng(0).normal(size=(20, 2))
    run = dict(data=(X, X[:, :1]), checkpoint_dir=tmp_path)
    quiet_fit(_student(), steps=1, **run)
    quiet_fit(_student(), steps=2, **run)
    model = _student(**other)
    before = read_values(model)
    with pytest.raises(ValueError, match=named):
        quiet_fit(model, steps=3, **run)
    for path, value in read_values(model).items():
        np.testing.assert_array_equal(value, before[path])


def test_checkpoint_of_others_is_refused(tmp_path: Path) -> None:
    checkpoint = tf.train.Checkpoint(variable=tf.Variable(1.0))
    tf.train.CheckpointManager(checkpoint, str(tmp_path), max_to_keep=1).save()
    with pytest.raises(ValueError, match="not written by fit"):
        quiet_fit(Line(), checkpoint_dir=tmp_path)


def test_two_checkpoints_are_kept(tmp_path: Path) -> None:
    quiet_fit(Line(), checkpoint_dir=tmp_path, checkpoint_every=3)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-12", "step-9"]


def test_a_failed_run_goes_on_with_smaller_steps(tmp_path: Path) -> None:
    def grows(objective: tf.Tensor, slope: tf.Variable) -> tf.Tensor:
        return objective + np.inf

    arguments: dict[str, Any] = dict(checkpoint_dir=tmp_path, checkpoint_every=4)
    with pytest.raises(TrainingError, match="(?s)learning rate.*goes on from the last checkpoint"):
        quiet_fit(Line(7, grows), learning_rate=0.1, **arguments)
    seen: list[int] = []
    with pytest.warns(UserWarning, match=r"initial_learning_rate was 0.1 and is now 0.01"):
        quiet_fit(
            Line(), learning_rate=0.01, callback=lambda step, _: seen.append(step), **arguments
        )
    assert seen == list(range(5, 13))


@pytest.mark.parametrize("optimizers", [keras.optimizers, tf_keras.optimizers])
def test_another_step_size_is_the_one_used(optimizers: Any, tmp_path: Path) -> None:
    quiet_fit(Line(), steps=1, optimizer=optimizers.SGD(0.01), checkpoint_dir=tmp_path)
    before, after = Line(), Line()
    quiet_fit(before, steps=1, optimizer=optimizers.SGD(0.01), checkpoint_dir=tmp_path)
    with pytest.warns(UserWarning, match="learning_rate was .* and is now .*e-30"):
        quiet_fit(after, steps=2, optimizer=optimizers.SGD(1e-30), checkpoint_dir=tmp_path)
    assert_same(before, after)


@pytest.mark.parametrize("optimizers", [keras.optimizers, tf_keras.optimizers])
def test_a_rate_changed_by_a_callback_stays(optimizers: Any, tmp_path: Path) -> None:
    def run(killed: int = 0, **settings: Any) -> Line:
        optimizer = optimizers.SGD(1e-3)

        def callback(step: int, loss: float) -> None:
            if step == 2:
                optimizer.learning_rate.assign(1e-4)
            if step == killed:
                raise Killed

        model = Line()
        quiet_fit(model, optimizer=optimizer, callback=callback, **settings)
        return model

    settings = dict(checkpoint_dir=tmp_path, checkpoint_every=4)
    with pytest.raises(Killed):
        run(killed=6, **settings)
    assert_same(run(**settings), run())


def test_an_optimiser_of_another_resumes_in_the_same_process(tmp_path: Path) -> None:
    """Keras numbers the inner one's name too."""
    for steps in (1, 2):
        optimizer = keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(1e-3))
        quiet_fit(Line(), steps=steps, optimizer=optimizer, checkpoint_dir=tmp_path)


def _sampled() -> gpflow_deep.models.SampledDeepGP:
    X, _ = make_data()
    layers = gpflow_deep.layers.build_layers(X, hidden_dims=(), output_dim=1, num_inducing=4)
    return gpflow_deep.models.SampledDeepGP(layers, gpflow.likelihoods.Gaussian(0.1), num_chains=1)


def test_sampling_can_be_made_longer_and_keeps_its_burn_in(tmp_path: Path) -> None:
    sampler = gpflow_deep.optimizers.SGHMC(
        _sampled().step_size, _sampled().momentum_decay, burn_in=3
    )
    longer, whole = _sampled(), _sampled()
    quiet_fit(_sampled(), steps=4, checkpoint_dir=tmp_path)
    quiet_fit(longer, steps=12, checkpoint_dir=tmp_path)
    quiet_fit(whole, steps=12, sampler=sampler)
    assert_same(longer, whole)
    with pytest.raises(ValueError, match="sampler was '.*burn_in=None.*' and is now '.*burn_in=3"):
        quiet_fit(_sampled(), steps=13, sampler=sampler, checkpoint_dir=tmp_path)


def test_a_sampled_model_itself_goes_on(tmp_path: Path) -> None:
    """What it has kept by then is no setting."""
    model, whole = _sampled(), _sampled()
    for steps in (4, 12):
        model.keep_every = whole.keep_every = 1
        quiet_fit(model, steps=steps, checkpoint_dir=tmp_path)
    assert int(model.inducing_posterior.times_kept) > 0
    burn_in = gpflow_deep.optimizers.SGHMC(model.step_size, model.momentum_decay, burn_in=3)
    quiet_fit(whole, steps=12, sampler=burn_in)
    assert_same(model, whole)


def test_states_are_due_by_the_place_of_the_run_that_goes_on() -> None:
    """In limited time it is further on than the steps, and what was due before was kept then."""
    model = _sampled()
    model.keep_every = 1000
    chains = moving_chains(gpflow_deep.optimizers.SGHMC(), model, 10, 0)
    assert chains is not None
    chains.start(2998, None)
    kept = []
    for place in (2998, 2999, 3000):
        chains.place.assign(place)
        chains.apply_gradients([tf.zeros_like(v) for v in chains.variables], model)
        kept.append(int(model.inducing_posterior.times_kept))
    assert kept == [0, 1, 1]
