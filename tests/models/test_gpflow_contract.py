"""What users of GPflow do with its models works with the models of every family."""

from __future__ import annotations

import copy
import importlib.util
import pickle
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
from gpflow.posteriors import PrecomputeCacheType

from gpflow_deep.models import DeepGPModel
from tests.models.contract import (
    FAMILIES,
    data,
    fix_draws,
    gradients,
    make_model,
    randomise,
    values,
)

X, Y = data()
XNEW, YNEW = data(6, seed=2)
PREDICTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "predict_f": lambda model, X: model.predict_f(X),
    "predict_f full_cov": lambda model, X: model.predict_f(X, full_cov=True),
    "predict_f full_output_cov": lambda model, X: model.predict_f(X, full_output_cov=True),
    "predict_f_mixture": lambda model, X: model.predict_f_mixture(X),
    "predict_y": lambda model, X: model.predict_y(X),
    "predict_y_mixture": lambda model, X: model.predict_y_mixture(X),
    "predict_log_density": lambda model, X: model.predict_log_density((X, YNEW[: len(X)])),
}


@pytest.fixture(params=FAMILIES)
def family(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def model(family: str) -> DeepGPModel:
    return make_model(family)


def _assert_close(actual: Any, expected: Any, rtol: float = 1e-9, atol: float = 1e-10) -> None:
    actual, expected = tf.nest.flatten(actual), tf.nest.flatten(expected)
    assert len(actual) == len(expected)
    for one, other in zip(actual, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=rtol, atol=atol)


def _differ(one: Any, other: Any) -> bool:
    pairs = zip(tf.nest.flatten(one), tf.nest.flatten(other), strict=True)
    return any(not np.allclose(a, b, rtol=1e-6, atol=1e-8) for a, b in pairs)


# ---------------------------------------------------------------- training


def test_objective_and_loss(model: DeepGPModel) -> None:
    fix_draws(model)
    objective = model.maximum_log_likelihood_objective((X, Y))
    assert objective.shape == () and np.isfinite(objective)
    _assert_close(model.training_loss((X, Y)), -objective)
    batches = iter(tf.data.Dataset.from_tensor_slices((X, Y)).repeat().batch(20))
    for compiled in (True, False):
        for source in ((X, Y), batches):
            closure = model.training_loss_closure(source, compile=compiled)
            _assert_close(closure(), -objective)


@pytest.mark.parametrize("optimizer", [keras.optimizers.Adam, tf_keras.optimizers.Adam])
def test_adam_on_minibatches(model: DeepGPModel, optimizer: type) -> None:
    """Both generations of Keras, on batches from an iterator."""
    batches = iter(tf.data.Dataset.from_tensor_slices((X, Y)).repeat().shuffle(20).batch(10))
    loss = model.training_loss_closure(batches, compile=False)
    before = np.mean([model.training_loss((X, Y)) for _ in range(3)])
    adam = optimizer(0.05)
    for _ in range(8):
        if optimizer is tf_keras.optimizers.Adam:
            adam.minimize(loss, model.trainable_variables)
        else:
            _, slopes = gradients(loss, model.trainable_variables)
            adam.apply_gradients(zip(slopes, model.trainable_variables, strict=True))
    assert np.mean([model.training_loss((X, Y)) for _ in range(3)]) < before


def test_scipy_on_fixed_draws(model: DeepGPModel) -> None:
    fix_draws(model)
    loss = model.training_loss_closure((X, Y), compile=False)
    before = float(loss())
    result = gpflow.optimizers.Scipy().minimize(
        loss, model.trainable_variables, options={"maxiter": 10}
    )
    assert result.nit == 10
    assert result.fun < before - 1.0
    _assert_close(loss(), result.fun)


def test_training_is_reproduced_by_the_seed(family: str) -> None:
    ends = []
    for seed in (3, 3, 4):
        tf.random.set_seed(seed)
        model = make_model(family)
        adam = tf_keras.optimizers.Adam(0.1)
        for _ in range(2):
            adam.minimize(lambda m=model: m.training_loss((X, Y)), model.trainable_variables)
        ends.append(values(model))
    np.testing.assert_array_equal(ends[0], ends[1])
    if hasattr(model, "draw_noise"):
        assert np.abs(ends[0] - ends[2]).max() > 1e-6


def test_minibatches_are_unbiased(model: DeepGPModel) -> None:
    """Halves of the data stand for all of it, by `num_data`."""
    fix_draws(model)
    noise = getattr(model, "draw_noise", lambda: [])()
    whole = model.maximum_log_likelihood_objective((X, Y))
    halves = []
    for half in (slice(0, 10), slice(10, 20)):
        if noise:
            model.draw_noise = lambda *args, half=half, **kwargs: [z[:, half] for z in noise]
        halves.append(model.maximum_log_likelihood_objective((X[half], Y[half])))
    _assert_close(np.mean(halves), whole)


def test_what_is_not_trainable_does_not_change(model: DeepGPModel) -> None:
    count = len(model.trainable_variables)
    Z = model.layers[0].inducing_variable.Z
    gpflow.set_trainable(model.layers[0].inducing_variable, False)
    assert len(model.trainable_variables) == count - 1
    before = Z.numpy(), values(model)
    tf_keras.optimizers.Adam(0.1).minimize(
        lambda: model.training_loss((X, Y)), model.trainable_variables
    )
    np.testing.assert_array_equal(Z, before[0])
    assert np.abs(values(model) - before[1]).max() > 0.05


def test_every_trainable_parameter_has_a_gradient(model: DeepGPModel) -> None:
    fix_draws(model)
    _, slopes = gradients(lambda: model.training_loss((X, Y)), model.trainable_variables)
    for variable, slope in zip(model.trainable_variables, slopes, strict=True):
        assert np.isfinite(slope).all(), variable.name
        assert np.any(slope), variable.name


def test_priors_enter_the_loss(model: DeepGPModel) -> None:
    fix_draws(model)
    without = model.training_loss((X, Y))
    kernel = model.layers[0].kernel
    kernel.lengthscales.prior = tfp.distributions.Gamma(np.float64(2.0), np.float64(1.0))
    model.likelihood.variance.prior = tfp.distributions.LogNormal(np.float64(0.0), np.float64(1.0))
    log_prior = model.log_prior_density()
    expected = tf.reduce_sum(kernel.lengthscales.prior.log_prob(kernel.lengthscales))
    expected += model.likelihood.variance.prior.log_prob(model.likelihood.variance)
    assert log_prior != 0
    _assert_close(model.training_loss((X, Y)), without - log_prior)
    _assert_close(log_prior, expected)


def test_second_order_gradients(model: DeepGPModel) -> None:
    """A product of the Hessian and a vector equals finite differences of the gradient."""
    fix_draws(model)
    variables = model.trainable_variables
    rng = np.random.default_rng(0)
    direction = [tf.constant(rng.standard_normal(v.shape)) for v in variables]

    def loss() -> tf.Tensor:
        return model.training_loss((X, Y))

    with tf.GradientTape() as outer:
        _, slopes = gradients(loss, variables)
        along = tf.add_n([tf.reduce_sum(g * d) for g, d in zip(slopes, direction, strict=True)])
    product = [tf.convert_to_tensor(h) for h in outer.gradient(along, variables)]

    step, ends = 1e-5, []
    for sign in (1.0, -2.0):
        for variable, d in zip(variables, direction, strict=True):
            variable.assign_add(sign * step * d)
        ends.append(gradients(loss, variables)[1])
    for h, plus, minus in zip(product, *ends, strict=True):
        differences = (plus - minus) / (2 * step)
        scale = np.abs(differences).max()
        np.testing.assert_allclose(h, differences, rtol=1e-5, atol=1e-6 * scale + 1e-6)


def test_xla(model: DeepGPModel) -> None:
    fix_draws(model)

    def step() -> tuple[tf.Tensor, list[tf.Tensor]]:
        return gradients(lambda: model.training_loss((X, Y)), model.trainable_variables)

    _assert_close(
        tf.function(step, jit_compile=True, autograph=False)(), step(), rtol=1e-7, atol=1e-7
    )


# ---------------------------------------------------------------- parameters


def test_summary_names_every_parameter(model: DeepGPModel) -> None:
    summary = gpflow.utilities.tabulate_module_summary(model)
    for path in gpflow.utilities.parameter_dict(model):
        assert f"{type(model).__name__}{path} " in summary
    gpflow.utilities.print_summary(model)


def test_parameters_by_path(family: str, model: DeepGPModel) -> None:
    other = make_model(family)
    randomise(other, seed=5)
    assert _differ(other.predict_y(XNEW), model.predict_y(XNEW))
    parameters = gpflow.utilities.parameter_dict(model)
    read = gpflow.utilities.read_values(model)
    assert parameters.keys() == read.keys()
    for source in (parameters, read):
        randomise(other, seed=6)
        gpflow.utilities.multiple_assign(other, source)
        _assert_close(other.predict_y(XNEW), model.predict_y(XNEW))


@pytest.mark.parametrize("copied", [copy.deepcopy, gpflow.utilities.deepcopy])
def test_copies_are_independent(model: DeepGPModel, copied: Callable) -> None:
    before = model.predict_y(XNEW)
    other = copied(model)
    _assert_close(other.predict_y(XNEW), before, rtol=0, atol=0)
    randomise(other)
    assert _differ(other.predict_y(XNEW), before)
    _assert_close(model.predict_y(XNEW), before, rtol=0, atol=0)
    # What was trainable is, and trains the copy.
    assert len(other.trainable_variables) == len(model.trainable_variables)
    _, slopes = gradients(lambda: other.training_loss((X, Y)), other.trainable_variables)
    assert all(np.isfinite(slope).all() for slope in slopes)


def test_pickle(model: DeepGPModel) -> None:
    for original in (model, model.posterior()):
        other = pickle.loads(pickle.dumps(original))
        _assert_close(other.predict_y(XNEW), original.predict_y(XNEW), rtol=0, atol=0)
        assert len(other.trainable_variables) == len(original.trainable_variables)


def test_checkpoint(family: str, model: DeepGPModel, tmp_path: Path) -> None:
    path = tf.train.Checkpoint(model=model).save(str(tmp_path / "checkpoint"))
    other = make_model(family)
    randomise(other)
    tf.train.Checkpoint(model=other).restore(path).assert_consumed()
    _assert_close(values(other), values(model), rtol=0, atol=0)
    _assert_close(other.predict_y(XNEW), model.predict_y(XNEW), rtol=0, atol=0)


def test_monitor(model: DeepGPModel, tmp_path: Path) -> None:
    seen: list[float] = []
    callback = gpflow.monitor.ExecuteCallback(
        lambda: seen.append(float(model.predict_f(XNEW)[0][0, 0]))
    )
    tasks: list[gpflow.monitor.MonitorTask] = [callback]
    if importlib.util.find_spec("tensorboard"):
        tasks.append(gpflow.monitor.ModelToTensorBoard(str(tmp_path), model))
    monitor = gpflow.monitor.Monitor(gpflow.monitor.MonitorTaskGroup(tasks, period=2))
    for step in range(4):
        randomise(model, seed=step)
        monitor(step)
    assert len(set(seen)) == 2
    assert len(list(tmp_path.iterdir())) == len(tasks) - 1


# ---------------------------------------------------------------- float32


def test_single_precision(family: str) -> None:
    double = make_model(family)
    fix_draws(double)
    gpflow.config.set_default_float(np.float32)
    model = make_model(family)
    gpflow.utilities.multiple_assign(model, gpflow.utilities.read_values(double))
    assert {p.dtype for p in model.parameters} == {tf.float32}
    if hasattr(model, "draw_noise"):
        noise = [tf.cast(z, tf.float32) for z in double.draw_noise()]
        model.draw_noise = lambda *args, **kwargs: noise
    # Targets and inputs of either precision: they follow the model.
    loss = model.training_loss((X.astype(np.float32), Y))
    predictions = model.predict_y(XNEW)
    gpflow.config.set_default_float(np.float64)
    _assert_close(loss, double.training_loss((X, Y)), rtol=1e-4)
    _assert_close(predictions, double.predict_y(XNEW), rtol=1e-3, atol=1e-4)


def test_training_in_single_precision(family: str) -> None:
    gpflow.config.set_default_float(np.float32)
    model = make_model(family, random=False)
    batches = iter(tf.data.Dataset.from_tensor_slices((X, Y)).repeat().batch(20))
    loss = model.training_loss_closure(batches)
    adam = keras.optimizers.Adam(0.05)

    @tf.function(autograph=False)
    def step() -> tf.Tensor:
        value, slopes = gradients(loss, model.trainable_variables)
        adam.apply_gradients(zip(slopes, model.trainable_variables, strict=True))
        return value

    losses = np.array([step() for _ in range(50)])
    assert np.isfinite(losses).all()
    assert losses[-5:].mean() < losses[:5].mean()
    for predict in PREDICTIONS.values():
        for prediction in tf.nest.flatten(predict(model, XNEW)):
            assert prediction.dtype == tf.float32
            assert np.isfinite(prediction).all()


# ---------------------------------------------------------------- predictions


def test_predictions_are_deterministic(model: DeepGPModel) -> None:
    for predict in PREDICTIONS.values():
        _assert_close(predict(model, XNEW), predict(model, XNEW), rtol=0, atol=0)


@pytest.mark.parametrize("method", ["predict_f", "predict_y"])
def test_shapes_and_batches(family: str, method: str) -> None:
    model = make_model(family, output_dim=2)
    predict = getattr(model, method)
    whole = predict(XNEW)
    batched = predict(XNEW.reshape(2, 3, 2))
    for one, other in zip(whole, batched, strict=True):
        assert one.shape == (6, 2) and other.shape == (2, 3, 2)
        np.testing.assert_allclose(tf.reshape(other, [6, 2]), one, rtol=1e-9)
    # A point's prediction does not depend on the points beside it.
    _assert_close([x[2:3] for x in whole], predict(XNEW[2:3]))
    Ynew = data(6, output_dim=2)[1]
    densities = model.predict_log_density((XNEW, Ynew))
    assert densities.shape == (6,)
    batch = XNEW.reshape(2, 3, 2), Ynew.reshape(2, 3, 2)
    _assert_close(tf.reshape(model.predict_log_density(batch), [6]), densities)


def test_covariances_have_the_variances_on_their_diagonals(family: str) -> None:
    model = make_model(family, output_dim=2)
    variance = model.predict_f(XNEW)[1]
    outputs = model.predict_f(XNEW, full_output_cov=True)[1]
    assert outputs.shape == (6, 2, 2)
    _assert_close(tf.linalg.diag_part(outputs), variance)
    batch = model.predict_f(XNEW.reshape(2, 3, 2), full_output_cov=True)[1]
    _assert_close(tf.reshape(batch, [6, 2, 2]), outputs)
    points = model.predict_f(XNEW, full_cov=True)[1]
    assert points.shape == (2, 6, 6)
    _assert_close(points, tf.linalg.matrix_transpose(points))
    assert np.linalg.eigvalsh(points).min() > -1e-9
    with pytest.raises(NotImplementedError, match="full_cov and full_output_cov"):
        model.predict_f(XNEW, full_cov=True, full_output_cov=True)
    with pytest.raises(NotImplementedError, match="full_cov"):
        model.predict_y(XNEW, full_cov=True)
    with pytest.raises(NotImplementedError, match="full_cov"):
        model.predict_log_density((XNEW, YNEW), full_cov=True)


@pytest.mark.parametrize("full_cov", [False, True])
def test_function_draws(family: str, full_cov: bool) -> None:
    model = make_model(family, output_dim=2)
    assert model.predict_f_samples(XNEW, full_cov=full_cov).shape == (6, 2)
    draws = model.predict_f_samples(XNEW, num_samples=4, full_cov=full_cov)
    assert draws.shape == (4, 6, 2)
    assert np.isfinite(draws).all()
    assert _differ(draws, model.predict_f_samples(XNEW, num_samples=4, full_cov=full_cov))
    tf.random.set_seed(1)
    first = model.predict_f_samples(XNEW, 4, full_cov=full_cov)
    tf.random.set_seed(1)
    _assert_close(model.predict_f_samples(XNEW, 4, full_cov=full_cov), first, rtol=0, atol=0)


def test_mixture_has_the_moments_of_predictions(model: DeepGPModel) -> None:
    mixture = model.predict_f_mixture(XNEW, num_samples=5)
    S = mixture.means.shape[0]
    assert mixture.means.shape == mixture.variances.shape == (S, 6, 1)
    assert mixture.log_weights.shape == (S,)
    _assert_close(tf.reduce_logsumexp(mixture.log_weights), 0.0)
    for mixture, (mean, variance) in [
        (model.predict_f_mixture(XNEW), model.predict_f(XNEW)),
        (model.predict_y_mixture(XNEW), model.predict_y(XNEW)),
    ]:
        weights = np.exp(mixture.log_weights)[:, None, None]
        average = (weights * mixture.means).numpy().sum(0)
        second = (weights * (mixture.variances + mixture.means**2)).numpy().sum(0)
        _assert_close((average, second - average**2), (mean, variance))


def test_log_density_is_that_of_the_mixture(model: DeepGPModel) -> None:
    means, variances, log_weights = model.predict_y_mixture(XNEW)
    components = tfp.distributions.Normal(means, tf.sqrt(variances)).log_prob(YNEW)[..., 0]
    expected = tf.reduce_logsumexp(components + log_weights[:, None], axis=0)
    _assert_close(model.predict_log_density((XNEW, YNEW)), expected)


def test_predictions_in_parts_and_of_unknown_size(family: str) -> None:
    """More points than are carried through the layers at once, eager and compiled."""
    model = make_model(family, num_prediction_samples=4096)  # four points at once
    single = [model.predict_y(x[None]) for x in XNEW]
    expected = [np.concatenate(pieces) for pieces in zip(*single, strict=True)]
    _assert_close(model.predict_y(XNEW), expected)
    signature = [tf.TensorSpec([None, 2], tf.float64)]
    predict = tf.function(model.predict_y, input_signature=signature, autograph=False)
    _assert_close(predict(XNEW), expected)
    _assert_close(predict(XNEW[:4]), [x[:4] for x in expected])
    _assert_close(predict(XNEW[:1]), [x[:1] for x in expected])
    for mean_or_variance in predict(XNEW[:0]):
        assert mean_or_variance.shape == (0, 1)


def test_no_points(model: DeepGPModel) -> None:
    for mean_or_variance in model.predict_y(XNEW[:0]):
        assert mean_or_variance.shape == (0, 1)
    assert model.predict_log_density((XNEW[:0], YNEW[:0])).shape == (0,)


def test_saved_model(model: DeepGPModel, tmp_path: Path) -> None:
    module = tf.Module()
    module.model, module.posterior = model, model.posterior()
    signature = [tf.TensorSpec([None, 2], tf.float64)]
    for name in ("model", "posterior"):
        predict = getattr(module, name).predict_y
        compiled = tf.function(predict, input_signature=signature, autograph=False)
        setattr(module, f"predict_{name}", compiled)
    tf.saved_model.save(module, str(tmp_path))
    loaded = tf.saved_model.load(str(tmp_path))
    expected = model.predict_y(XNEW)
    _assert_close(loaded.predict_model(XNEW), expected)
    _assert_close(loaded.predict_posterior(XNEW), expected)


# ---------------------------------------------------------------- the cached posterior


def test_posterior_predicts_like_the_model(model: DeepGPModel) -> None:
    posteriors = [model.posterior(cache) for cache in PrecomputeCacheType]
    for predict in PREDICTIONS.values():
        expected = predict(model, XNEW)
        for posterior in posteriors:
            _assert_close(predict(posterior, XNEW), expected)
    for full_cov in (False, True):
        draws = []
        for predictor in (model, *posteriors):
            tf.random.set_seed(1)
            draws.append(predictor.predict_f_samples(XNEW, 3, full_cov=full_cov))
        for other in draws[1:]:
            _assert_close(other, draws[0])


def test_posterior_follows_the_model_when_told_to(model: DeepGPModel) -> None:
    tensor, variable, nothing = (
        model.posterior(cache)
        for cache in (
            PrecomputeCacheType.TENSOR,
            PrecomputeCacheType.VARIABLE,
            PrecomputeCacheType.NOCACHE,
        )
    )
    signature = [tf.TensorSpec([None, 2], tf.float64)]
    compiled = tf.function(variable.predict_f, input_signature=signature, autograph=False)
    before = model.predict_f(XNEW)
    _assert_close(compiled(XNEW), before)
    randomise(model.inducing_posterior)
    after = model.predict_f(XNEW)
    assert _differ(after, before)
    for posterior in (tensor, variable):
        _assert_close(posterior.predict_f(XNEW), before)
        _assert_close(posterior.fused_predict_f(XNEW), after)
    _assert_close(nothing.predict_f(XNEW), after)
    randomise(model)
    after = model.predict_f(XNEW)
    for posterior in (tensor, variable):
        posterior.update_cache()
        _assert_close(posterior.predict_f(XNEW), after)
    _assert_close(compiled(XNEW), after)
    assert compiled.experimental_get_tracing_count() == 1


def test_posterior_of_another_cache(model: DeepGPModel) -> None:
    expected = model.predict_f(XNEW)
    posterior = model.posterior("variable")
    for cache in (*PrecomputeCacheType, *reversed(PrecomputeCacheType)):
        posterior.update_cache(cache)
        _assert_close(posterior.predict_f(XNEW), expected)
    for act in (model.posterior, posterior.update_cache):
        with pytest.raises(ValueError, match="precompute_cache.*'tensor'.*'all'"):
            act("all")
