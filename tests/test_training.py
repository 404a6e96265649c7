"""Training in one call."""

from __future__ import annotations

import copy
import pickle
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
from gpflow.utilities import multiple_assign, read_values, set_trainable
from hypothesis import given
from hypothesis import strategies as st

import gpflow_deep
from gpflow_deep.training import FitResult, TrainingError, fit, minibatches
from gpflow_deep.training.data import split_validation

N, D, M = 60, 2, 8


def make_data(num_rows: int = N) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(1)
    X = rng.normal(size=(num_rows, D))
    return X, np.sin(2.0 * X[:, :1]) + 0.1 * rng.normal(size=(num_rows, 1))


class CountingSVGP(gpflow.models.SVGP):
    """Counts how often Python builds its objective: a step that is compiled once builds it once."""

    num_traces = 0

    def elbo(self, data: Any) -> tf.Tensor:
        self.num_traces += 1
        return super().elbo(data)


def make_svgp(model_class: type = gpflow.models.SVGP, **kwargs: Any) -> gpflow.models.SVGP:
    X, _ = make_data()
    kernel = gpflow.kernels.SquaredExponential(lengthscales=np.ones(D))
    likelihood = gpflow.likelihoods.Gaussian(0.1)
    kwargs = {"num_data": N, **kwargs}
    return model_class(kernel, likelihood, X[:M].copy(), **kwargs)


class Line(gpflow.models.BayesianModel, gpflow.models.ExternalDataTrainingLossMixin):
    """
    A straight line with a random objective, as deep GPs have, and failures on demand.

    `failure` is applied to the loss of step number `fails_at` (from 0).
    """

    def __init__(
        self,
        fails_at: int = -1,
        failure: Callable[[tf.Tensor, tf.Tensor], tf.Tensor] = lambda loss, slope: loss,
    ) -> None:
        super().__init__()
        self.slope = gpflow.Parameter([0.5])
        self.intercept = gpflow.Parameter([0.0])
        self.unused = gpflow.Parameter([3.0])
        self.num_data: int | None = None
        self.seen_num_data: list[int | None] = []
        self._fails_at = fails_at
        self._failure = failure

    def draw_noise(self, num_data: int, num_samples: Any = None, seed: Any = None) -> Any:
        return seed, tf.random.stateless_normal([num_data], seed, dtype=gpflow.default_float())

    def elbo(self, data: Any, noise: Any) -> tf.Tensor:
        (X, Y), (seed, draws) = data, noise
        self.seen_num_data.append(self.num_data)
        errors = Y[:, 0] - X[:, 0] * self.slope - self.intercept - 0.1 * draws
        objective = -tf.reduce_sum(errors**2)
        return tf.cond(
            tf.equal(seed[1], self._fails_at),
            lambda: self._failure(objective, self.slope.unconstrained_variable),
            lambda: objective,
        )

    def maximum_log_likelihood_objective(self, data: Any) -> tf.Tensor:
        return self.elbo(data, self.draw_noise(len(data[0]), seed=[0, 0]))

    def predict_f(self, Xnew: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        mean = Xnew[:, :1] * self.slope + self.intercept
        return mean, tf.ones_like(mean)

    def predict_log_density(self, data: Any) -> tf.Tensor:
        X, Y = data
        return -0.5 * (Y - self.predict_f(X)[0])[:, 0] ** 2


class Weights(gpflow.models.BayesianModel, gpflow.models.ExternalDataTrainingLossMixin):
    """Bayesian linear regression: q_mu and q_sqrt as an SVGP has them, at a small cost."""

    def __init__(self) -> None:
        super().__init__()
        self.q_mu = gpflow.Parameter(np.zeros((D, 1)))
        self.q_sqrt = gpflow.Parameter(np.eye(D)[None], transform=gpflow.utilities.triangular())
        self.log_noise = gpflow.Parameter(0.0)

    def maximum_log_likelihood_objective(self, data: Any) -> tf.Tensor:
        X, Y = data
        mean, variance = self.predict_f(X)
        error = (Y - mean) ** 2 + variance
        fit = -0.5 * tf.reduce_mean(error * tf.exp(-self.log_noise) + self.log_noise)
        return N * fit - gpflow.kullback_leiblers.gauss_kl(self.q_mu, self.q_sqrt)

    def predict_f(self, Xnew: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        spread = tf.matmul(Xnew, self.q_sqrt[0])
        return tf.matmul(Xnew, self.q_mu), tf.reduce_sum(spread**2, axis=1, keepdims=True)

    def predict_log_density(self, data: Any) -> tf.Tensor:
        X, Y = data
        mean, variance = self.predict_f(X)
        variance += tf.exp(self.log_noise)
        return gpflow.logdensities.gaussian(Y, mean, variance)[:, 0]


def assert_same(left: tf.Module, right: tf.Module) -> None:
    left_values, right_values = read_values(left), read_values(right)
    assert left_values.keys() == right_values.keys()
    for path, value in left_values.items():
        np.testing.assert_array_equal(value, right_values[path], err_msg=path)


def quiet_fit(model: Any, data: Any = None, **kwargs: Any) -> FitResult:
    kwargs = {"steps": 12, "batch_size": 16, "progress": False, **kwargs}
    return fit(model, make_data() if data is None else data, **kwargs)


class Killed(Exception):
    """What ends a run that is to be resumed."""


def kill_at(step_killed: int) -> Callable[[int, float], None]:
    def callback(step: int, loss: float) -> None:
        if step == step_killed:
            raise Killed

    return callback


# Minibatches


@given(
    num_rows=st.integers(1, 30),
    batch_size=st.integers(1, 40),
    seed=st.integers(0, 2**63 - 1),
    start=st.integers(0, 50),
)
def test_batch_depends_on_seed_and_number_only(
    num_rows: int, batch_size: int, seed: int, start: int
) -> None:
    X = np.arange(num_rows, dtype=float)[:, None]
    data = (X, -X)
    whole = list(minibatches(data, batch_size, seed).take(start + 3).as_numpy_iterator())
    part = list(minibatches(data, batch_size, seed, start).take(3).as_numpy_iterator())
    for (X_whole, Y_whole), (X_part, Y_part) in zip(whole[start:], part, strict=True):
        assert X_part.shape == (min(batch_size, num_rows), 1)
        np.testing.assert_array_equal(X_whole, X_part)
        np.testing.assert_array_equal(Y_whole, Y_part)
        np.testing.assert_array_equal(Y_part, -X_part)


@given(num_rows=st.integers(1, 30), batch_size=st.integers(1, 30))
def test_an_epoch_has_no_row_twice(num_rows: int, batch_size: int) -> None:
    X = np.arange(num_rows, dtype=float)[:, None]
    num_batches = max(1, num_rows // batch_size)
    batches = minibatches((X, X), batch_size).take(num_batches).as_numpy_iterator()
    rows = np.concatenate([batch for batch, _ in batches])
    assert len(np.unique(rows)) == len(rows) == min(num_rows, num_batches * batch_size)


def test_epochs_and_seeds_have_permutations_of_their_own() -> None:
    X = np.arange(50.0)[:, None]
    first, second = (x for x, _ in minibatches((X, X), 25, 0).batch(2).take(2).as_numpy_iterator())
    other, _ = next(minibatches((X, X), 25, 1).batch(2).as_numpy_iterator())
    assert sorted(first.ravel()) == sorted(second.ravel()) == sorted(other.ravel())
    assert not np.array_equal(first, second)
    assert not np.array_equal(first, other)


def test_full_batch_is_the_data_in_order() -> None:
    X, Y = make_data()
    for batch_size in (None, N, 10 * N):
        X_batch, Y_batch = next(minibatches((X, Y), batch_size, 3, 7).as_numpy_iterator())
        np.testing.assert_array_equal(X_batch, X)
        np.testing.assert_array_equal(Y_batch, Y)


# The fit itself


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
    optimizer = tf_keras.optimizers.Adam(0.1)
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


def test_monitor_is_called_with_every_step() -> None:
    class Recorder(gpflow.monitor.MonitorTask):
        def run(self, **kwargs: Any) -> None:
            steps.append(self.current_step)

    steps: list[int] = []
    group = gpflow.monitor.MonitorTaskGroup(Recorder(), period=2)
    quiet_fit(Line(), steps=5, monitor=gpflow.monitor.Monitor(group))
    assert steps == [2, 4]


# Natural gradients


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


# Validation


@given(
    num_rows=st.integers(2, 40),
    fraction=st.floats(0.01, 0.6),
    seed=st.integers(0, 2**32),
)
def test_split_is_a_partition(num_rows: int, fraction: float, seed: int) -> None:
    X = np.arange(num_rows, dtype=float)[:, None]
    if max(1, round(fraction * num_rows)) == num_rows:
        with pytest.raises(ValueError, match="validation_fraction"):
            split_validation((X, -X), fraction, seed)
        return
    parts = split_validation((X, -X), fraction, seed)
    again = split_validation((X, -X), fraction, seed)
    for (X_part, Y_part), (X_again, _) in zip(parts, again, strict=True):
        np.testing.assert_array_equal(Y_part, -X_part)
        np.testing.assert_array_equal(X_part, X_again)
        assert len(X_part) > 0
    np.testing.assert_array_equal(np.sort(np.concatenate([part for part, _ in parts]), axis=0), X)
    assert abs(len(parts[1][0]) - max(1.0, fraction * num_rows)) <= 0.5


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


# Checkpoints


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
    for name, values in expected.history.items():
        np.testing.assert_array_equal(result.history[name], values, err_msg=name)


def test_killed_deep_gp_goes_on_to_the_same_result(tmp_path: Path) -> None:
    def make() -> gpflow_deep.models.DeepGP:
        layers = gpflow_deep.layers.build_layers(
            X, hidden_dims=(1,), output_dim=1, num_inducing=4, seed=0
        )
        return gpflow_deep.models.DeepGP(
            layers,
            gpflow.likelihoods.Gaussian(0.1),
            posterior=gpflow_deep.posteriors.MeanField,
            num_samples=2,
            num_prediction_samples=4,
            num_data=N,
        )

    def keep_step_four(step: int, loss: float) -> None:
        if step == 6:
            shutil.copytree(tmp_path / "whole", tmp_path / "killed")

    X, _ = make_data()
    settings = dict(natural_gradient=0.1, validation_fraction=0.2, validate_every=3)
    settings |= dict(steps=8, checkpoint_every=4)
    whole, resumed = make(), make()
    expected = quiet_fit(
        whole, callback=keep_step_four, checkpoint_dir=tmp_path / "whole", **settings
    )
    result = quiet_fit(resumed, checkpoint_dir=tmp_path / "killed", **settings)
    assert expected.history["loss"][-1] < expected.history["loss"][0]
    assert_same(whole, resumed)
    for name, values in expected.history.items():
        np.testing.assert_array_equal(result.history[name], values, err_msg=name)


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
    with pytest.raises(ValueError, match="steps: expected at least the 12"):
        quiet_fit(Line(), steps=7, checkpoint_dir=tmp_path)


@pytest.fixture(scope="module")
def finished_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("finished")
    quiet_fit(Line(), steps=1, checkpoint_dir=directory)
    return directory


def fixed_intercept() -> Line:
    model = Line()
    set_trainable(model.intercept, False)
    return model


@pytest.mark.parametrize(
    "other,named",
    [
        ({"seed": 1}, "seed was 0 and is now 1"),
        ({"batch_size": 15}, "batch_size was 16 and is now 15"),
        ({"learning_rate": 0.1}, r"learning_rate\S* was 0.005 and is now 0.1"),
        ({"optimizer": tf_keras.optimizers.SGD(0.005)}, "momentum"),
        ({"validation_fraction": 0.1}, "validation_data was None"),
        ({"data": make_data(N - 1)}, "data was"),
        ({"data": (make_data()[0], make_data()[1] + 1.0)}, "data was"),
        (
            {"model": fixed_intercept()},
            r"intercept was '\(1,\) trainable' and is now '\(1,\) fixed'",
        ),
        ({"model": make_svgp()}, r"parameters\.\.q_sqrt was None"),
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


def test_checkpoint_of_others_is_refused(tmp_path: Path) -> None:
    checkpoint = tf.train.Checkpoint(variable=tf.Variable(1.0))
    tf.train.CheckpointManager(checkpoint, str(tmp_path), max_to_keep=1).save()
    with pytest.raises(ValueError, match="not written by fit"):
        quiet_fit(Line(), checkpoint_dir=tmp_path)


def test_two_checkpoints_are_kept(tmp_path: Path) -> None:
    quiet_fit(Line(), checkpoint_dir=tmp_path, checkpoint_every=3)
    assert sorted(path.stem for path in tmp_path.glob("*.index")) == ["step-12", "step-9"]


# Failures


def failed_assertion(objective: tf.Tensor, slope: tf.Variable) -> tf.Tensor:
    check = tf.debugging.Assert(False, ["K_MM of layer 2 is not positive definite"])
    with tf.control_dependencies([check] if check is not None else []):
        return tf.identity(objective)


FAILURES = {
    "loss": (lambda objective, slope: objective + np.nan, "the loss is not finite"),
    "gradient": (
        lambda objective, slope: (
            objective + tf.sqrt(tf.reduce_sum(tf.stop_gradient(slope) - slope))
        ),
        "the gradient is not finite",
    ),
    "factorisation": (failed_assertion, "K_MM of layer 2"),
}


@pytest.mark.parametrize("name", FAILURES)
@pytest.mark.parametrize("one_by_one", [True, False])
def test_failure_gives_back_the_parameters_before(name: str, one_by_one: bool) -> None:
    failure, named = FAILURES[name]
    model, expected = Line(7, failure), Line()
    callback = (lambda step, loss: None) if one_by_one else None
    with pytest.raises(
        TrainingError, match=f"(?s)failed at step 8: .*{named}.*learning rate"
    ) as info:
        quiet_fit(model, callback=callback)
    # The parameters at step 8 are those that failed, the last good ones those of step 7.
    quiet_fit(expected, steps=6)
    assert_same(model, expected)
    error = info.value
    assert error.step == 8
    assert "File" not in str(error)
    assert np.isfinite(error.loss) == (name == "gradient")
    restored = Line()
    multiple_assign(restored, error.parameters)
    assert_same(restored, model)
    assert model.num_data is None
    assert pickle.loads(pickle.dumps(error)).step == 8


def test_failure_at_the_first_step_leaves_the_model_alone() -> None:
    model = Line(0, FAILURES["loss"][0])
    with pytest.raises(TrainingError, match="failed at step 1"):
        quiet_fit(model)
    assert_same(model, Line())


def test_update_to_parameters_that_are_not_finite_is_undone(tmp_path: Path) -> None:
    model = Line()
    with pytest.raises(TrainingError, match="step 1: its update"):
        quiet_fit(model, steps=1, optimizer=tf_keras.optimizers.SGD(1e308), checkpoint_dir=tmp_path)
    assert_same(model, Line())
    assert not list(tmp_path.glob("*.index"))


def test_validation_that_is_nan_is_a_failure() -> None:
    class NanPredictions(Line):
        def predict_log_density(self, data: Any) -> tf.Tensor:
            return super().predict_log_density(data) + np.nan

    with pytest.raises(TrainingError, match="step 4: the validation score is NaN"):
        quiet_fit(NanPredictions(), validation_fraction=0.2, validate_every=4)


# Data and arguments


def with_bad_rows(bad: float) -> np.ndarray:
    X = make_data()[0]
    X[[3, 7]] = bad
    return X


@pytest.mark.parametrize(
    "data,error,named",
    [
        (lambda X, Y: X, TypeError, r"data: expected a pair \(X, Y\)"),
        (lambda X, Y: (X,), TypeError, r"data: expected a pair \(X, Y\)"),
        (lambda X, Y: (X, Y[:-1]), ValueError, "data: .* 60 and 59 rows"),
        (lambda X, Y: (X, Y[:, 0]), ValueError, r"Y of data: .* got shape \(60,\)"),
        (lambda X, Y: (X[:0], Y[:0]), ValueError, r"X of data: .* got shape \(0, 2\)"),
        (lambda X, Y: (X.astype(str), Y), TypeError, "X of data: expected real numbers"),
        (lambda X, Y: (X, Y + 1j), TypeError, "Y of data: expected real numbers"),
        (lambda X, Y: (with_bad_rows(np.nan), Y), ValueError, "X of data: .* 2 of 60 rows"),
        (lambda X, Y: (with_bad_rows(np.inf), Y), ValueError, "X of data: .* 2 of 60 rows"),
        (lambda X, Y: (X[:, :1], Y), ValueError, "X of data: .* 1 columns"),
        (lambda X, Y: (X, np.hstack([Y, Y])), ValueError, "Y of data: expected 1 columns .* got 2"),
    ],
)
@pytest.mark.parametrize("argument", ["data", "validation_data"])
def test_bad_data_is_refused(
    argument: str, data: Callable[..., Any], error: type[Exception], named: str
) -> None:
    model = make_svgp(CountingSVGP)
    good, bad = make_data(), data(*make_data())
    kwargs = {"data": bad} if argument == "data" else {"data": good, "validation_data": bad}
    with pytest.raises(error, match=named.replace("data", argument)):
        quiet_fit(model, **kwargs)
    assert model.num_traces == 0


@pytest.mark.parametrize(
    "kwargs,named",
    [
        ({"steps": 0}, "steps: .* got 0"),
        ({"steps": 10.5}, "steps"),
        ({"batch_size": 0}, "batch_size"),
        ({"batch_size": True}, "batch_size"),
        ({"seed": -1}, "seed"),
        ({"seed": 1.0}, "seed"),
        ({"learning_rate": 0.0}, "learning_rate"),
        ({"learning_rate": float("nan")}, "learning_rate"),
        ({"learning_rate": "fast"}, "learning_rate: .* got 'fast'"),
        ({"decay_rate": 1.5}, "decay_rate"),
        ({"decay_steps": 0}, "decay_steps"),
        ({"natural_gradient": 2.0}, "natural_gradient"),
        ({"natural_gradient": 0.0}, "natural_gradient"),
        ({"validation_fraction": 1.5}, "validation_fraction"),
        ({"validation_fraction": 1.0}, "validation_fraction"),
        ({"validation_fraction": 0.1, "validation_data": make_data()}, "validation_data"),
        ({"validate_every": 0}, "validate_every"),
        ({"patience": 0}, "patience"),
        ({"checkpoint_every": 0}, "checkpoint_every"),
        ({"optimizer": "adam"}, "optimizer: expected a Keras optimiser, got str"),
        ({"callback": 1}, "callback"),
        ({"monitor": 1}, "monitor"),
    ],
)
def test_bad_arguments_are_refused(kwargs: dict[str, Any], named: str) -> None:
    model = make_svgp(CountingSVGP)
    with pytest.raises((ValueError, TypeError), match=named):
        quiet_fit(model, **kwargs)
    assert model.num_traces == 0


def test_models_that_cannot_be_fitted_are_refused() -> None:
    data = make_data()
    with pytest.raises(TypeError, match="model: expected one with training_loss"):
        quiet_fit(gpflow.models.GPR(data, gpflow.kernels.RBF()), data)
    fixed = make_svgp()
    set_trainable(fixed, False)
    with pytest.raises(ValueError, match="trainable parameters"):
        quiet_fit(fixed, data)


def test_integers_and_narrow_floats_are_widened_exactly() -> None:
    X, Y = make_data()
    X, Y = np.round(10.0 * X), np.round(Y)
    expected = Line()
    quiet_fit(expected, (X, Y))
    for dtype in (np.int64, np.int8, np.float32, np.float16):
        model = Line()
        quiet_fit(model, (X.astype(dtype), tf.constant(Y.astype(dtype))))
        assert_same(model, expected)


def test_float32_model() -> None:
    X, Y = make_data()
    with gpflow.config.as_context(gpflow.config.Config(float=np.float32)):
        wide, narrow = Line(), Line()
        quiet_fit(wide, (X, Y), validation_fraction=0.2)
        quiet_fit(narrow, (X.astype(np.float32), Y.astype(np.float32)), validation_fraction=0.2)
        assert wide.slope.dtype == tf.float32
        assert_same(wide, narrow)
        X[4] = 1e39
        with pytest.raises(ValueError, match="X of data: .* finite in float32, .* 1 of 60 rows"):
            quiet_fit(wide, (X, Y))
