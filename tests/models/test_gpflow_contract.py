"""What users of GPflow do with its models works with the models of every family."""

from __future__ import annotations

import copy
import pickle
import warnings
from pathlib import Path
from typing import Any

import gpflow
import keras
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.keras import tf_keras

import gpflow_deep as gd
from gpflow_deep.models import DeepGPModel
from gpflow_deep.models.variational import VariationalDeepGPModel
from gpflow_deep.posteriors.mixture import Noise
from tests.models.contract import (
    COMPILED_FAMILIES,
    GP_FAMILIES,
    LATENT,
    XNEW,
    X,
    Y,
    assert_close,
    differ,
    fix_draws,
    gradients,
    is_joint,
    make_model,
    predictions,
    randomise,
    values,
)

#: Sites in the place of draws are all that these differ by from a deep GP.
WITHOUT_SIGMA_POINTS = [name for name in COMPILED_FAMILIES if name != "sigma-points"]

# ---------------------------------------------------------------- training


def test_objective_and_loss(model: DeepGPModel) -> None:
    fix_draws(model)
    objective = model.maximum_log_likelihood_objective((X, Y))
    assert objective.shape == () and np.isfinite(objective)
    assert_close(model.training_loss((X, Y)), -objective)
    batches = iter(tf.data.Dataset.from_tensor_slices((X, Y)).repeat().batch(20))
    for source, compiled in (((X, Y), True), ((X, Y), False), (batches, False)):
        assert_close(model.training_loss_closure(source, compile=compiled)(), -objective)


def test_training_maximises_the_bound_that_a_subclass_overrides(model: DeepGPModel) -> None:
    """As with GPflow's models, for a term of one's own; what trains for something else does so still."""
    fix_draws(model)
    loss = model.training_loss((X, Y))

    class WithTerm(type(model)):  # type: ignore[misc]
        def elbo(self, data: gpflow.base.RegressionData, **draws: Noise) -> tf.Tensor:
            return super().elbo(data, **draws) - 1.5

    model.__class__ = WithTerm
    trains_for_the_bound = not getattr(model, "predictive_objective", True)
    assert_close(model.training_loss((X, Y)), loss + 1.5 * trains_for_the_bound)
    if trains_for_the_bound:
        assert_close(model.training_loss_closure((X, Y), compile=False)(), loss + 1.5)


def test_closures_of_a_seed_are_of_the_loss_that_a_subclass_overrides(model: DeepGPModel) -> None:
    """Which need not know of draws, as GPflow's do not."""
    kind = type(model)
    loss = model.training_loss_closure((X, Y), seed=3, compile=False)()

    class WithTerms(kind):  # type: ignore[misc, valid-type]
        def training_loss(self, data: gpflow.base.RegressionData) -> tf.Tensor:
            return super().training_loss(data) + 100.0

        def maximum_log_likelihood_objective(self, data: gpflow.base.RegressionData) -> tf.Tensor:
            return super().maximum_log_likelihood_objective(data) - 10.0

    model.__class__ = WithTerms
    batches = iter(tf.data.Dataset.from_tensor_slices((X, Y)).repeat().batch(20))
    for source in ((X, Y), batches):
        closure = model.training_loss_closure(source, seed=3, compile=False)
        assert_close([closure(), closure()], [loss + 110.0] * 2)


def test_each_bound_within_a_loss_of_a_seed_has_draws_of_its_own() -> None:
    class Twice(gd.models.DeepGP):
        def training_loss(self, data: gpflow.base.RegressionData) -> tf.Tensor:
            return tf.stack([self.elbo(data), self.elbo(data)])

    model = make_model("mean-field")
    model.__class__ = Twice
    first, second = model.training_loss_closure((X, Y), seed=3)().numpy()
    assert abs(first - second) > 1e-3
    np.testing.assert_array_equal(model.training_loss_closure((X, Y), seed=3)(), [first, second])
    assert_close(model.elbo((X, Y), noise=model.draw_noise(len(X), seed=3)), first)


def test_training_weighs_the_divergence_that_a_subclass_overrides(model: DeepGPModel) -> None:
    fix_draws(model)
    loss, kind = model.training_loss((X, Y)), type(model)
    weighs = isinstance(model, VariationalDeepGPModel) and not isinstance(
        model, gd.models.AmortizedDeepGP
    )
    beta = model.beta if weighs else 0.0

    class WithOther(kind):  # type: ignore[misc, valid-type]
        def prior_kl(self) -> tf.Tensor:
            return tf.constant(2.5, tf.float64)

    class WithTerm(WithOther):
        def prior_kl(self) -> tf.Tensor:
            return super().prior_kl() + 1.5

    model.__class__ = WithOther
    other = model.training_loss((X, Y))
    assert (abs(other - loss) > 0.01) == weighs
    model.__class__ = WithTerm
    assert_close(model.training_loss((X, Y)), other + 1.5 * beta)
    assert_close(model.training_loss_closure((X, Y), compile=False)(), other + 1.5 * beta)


def test_moments_that_a_subclass_overrides_are_what_the_likelihood_sees(model: DeepGPModel) -> None:
    """As of SVGP, in predictions and in training."""
    kind, data = type(model), (X, Y)
    bounded = isinstance(model, VariationalDeepGPModel)

    class WithTrend(kind):  # type: ignore[misc, valid-type]
        trend = 0.0

        def predict_f(
            self, Xnew: tf.Tensor, full_cov: bool = False, full_output_cov: bool = False
        ) -> tuple[tf.Tensor, tf.Tensor]:
            mean, variance = super().predict_f(Xnew, full_cov, full_output_cov)
            return mean + self.trend, variance

    model.__class__ = WithTrend
    likelihood, (mean, variance) = model.likelihood, model.predict_f(X)
    near = model.predict_y(X)[0]
    expected = likelihood.predict_log_density(X, mean, variance, Y)
    assert_close(model.predict_log_density(data), expected)
    if bounded:
        fit = tf.reduce_sum(likelihood.variational_expectations(X, mean, variance, Y))
        fix_draws(model)
        elbo = model.elbo(data)
    WithTrend.trend = 100.0
    assert_close(model.predict_y(X)[0], near + 100.0)
    posterior = model.posterior()
    for predictor in (model, posterior):
        assert_close(predictor.predict_y_mixture(X).means, predictor.predict_y(X)[0][None])
        assert_close(predictor.predict_y(X)[0], near + 100.0)
        assert_close(predictor.predict_log_density(data), model.predict_log_density(data))
    draws = model.predict_f_samples(X, 5, full_cov=False)
    assert draws.shape == (5, *mean.shape)
    assert abs(tf.reduce_mean(draws) - tf.reduce_mean(mean) - 100.0) < 10.0
    if bounded:
        far = tf.reduce_sum(likelihood.variational_expectations(X, mean + 100.0, variance, Y))
        assert_close(elbo - model.elbo(data), fit - far)
    if kind is gd.models.GlobalInducingDeepGP:  # of one: all are compiled alike
        assert_close(model.training_loss_closure(data)(), model.training_loss(data))


def test_moments_of_a_compiled_predict_f_are_no_other_ones() -> None:
    model = make_model("mean-field")
    density = model.predict_log_density((X, Y))
    model.predict_f = tf.function(model.predict_f)  # type: ignore[method-assign]
    assert_close(model.predict_log_density((X, Y)), density)


@pytest.mark.parametrize("family", COMPILED_FAMILIES)
def test_adam_on_minibatches(family: str, model: DeepGPModel) -> None:
    """One generation of Keras or the other, which see gradients, and no model; batches of an iterator."""
    generations = tf_keras.optimizers.Adam, keras.optimizers.Adam
    optimizer = generations[COMPILED_FAMILIES.index(family) % 2]
    batches = iter(tf.data.Dataset.from_tensor_slices((X, Y)).repeat().shuffle(20).batch(10))
    loss = model.training_loss_closure(batches, compile=False)
    before = np.mean([model.training_loss((X, Y)) for _ in range(3)])
    adam = optimizer(0.05)
    for _ in range(5):
        if optimizer is tf_keras.optimizers.Adam:
            adam.minimize(loss, model.trainable_variables)
        else:
            _, slopes = gradients(loss, model.trainable_variables)
            adam.apply_gradients(zip(slopes, model.trainable_variables, strict=True))
    assert np.mean([model.training_loss((X, Y)) for _ in range(3)]) < before


@pytest.mark.parametrize("family", [name for name in COMPILED_FAMILIES if name != "sampled"])
def test_the_log_posterior_is_a_density(model: DeepGPModel) -> None:
    """For `SamplingHelper`: of the parameters alone, with the draws of the model's seed."""
    density = model.log_posterior_density((X, Y))
    assert_close(model.log_posterior_density((X, Y)), density, rtol=0, atol=0)
    if isinstance(model, (gd.models.LatentVariableDeepGP, gd.models.FITCEPDeepGP)):
        # Of those with most draws and with none: all are compiled alike.
        assert_close(tf.function(lambda: model.log_posterior_density((X, Y)))(), density)
    if hasattr(model, "draw_noise"):
        closure = model.training_loss_closure((X, Y), compile=False, seed=model.seed)
        assert_close(density, -closure())
        other = model.draw_noise(len(X), seed=5)
        other_density = model.log_posterior_density((X, Y), noise=other)
        assert_close(other_density, model.log_posterior_density((X, Y), noise=other))
        assert not other or abs(other_density - density) > 1e-6


def test_scipy_is_warned_of_new_draws() -> None:
    """It would soon take such a loss for at its minimum; who asks for fixed draws, or has none, is not."""
    scipy, options = gpflow.optimizers.Scipy(), {"maxiter": 1}

    def minimise(family: str, *, generic: bool = False, **settings: Any) -> None:
        model = make_model(family)
        if generic:
            closure = gpflow.models.training_loss_closure(model, (X, Y), **settings)
        else:
            closure = model.training_loss_closure((X, Y), **settings)
        # Compiled or not, one is asked for the loss from the same place.
        scipy.minimize(closure, model.trainable_variables, options=options, compile=generic)

    for settings in ({}, {"generic": True, "compile": False}):
        with pytest.warns(
            UserWarning, match=r"new draws.*training_loss_closure\(data, seed=0\)"
        ) as said:
            minimise("stripes-and-arrow", **settings)
        assert {warning.filename for warning in said} == {__file__}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        minimise("stripes-and-arrow", seed=0, compile=False)
        minimise("sigma-points", compile=False)
        # What is looked at after a step may be of new draws.
        model = make_model("stripes-and-arrow")
        scipy.minimize(
            model.training_loss_closure((X, Y), seed=0, compile=False),
            model.trainable_variables,
            step_callback=lambda *state: model.elbo((X, Y)),
            options=options,
            compile=False,
        )


@pytest.mark.parametrize("family", WITHOUT_SIGMA_POINTS)
def test_scipy_on_the_draws_of_a_seed(model: DeepGPModel) -> None:
    """Compiled by it, the loss is what it is here."""
    loss = model.training_loss_closure((X, Y), compile=False, seed=3)
    before = float(loss())
    result = gpflow.optimizers.Scipy().minimize(
        loss, model.trainable_variables, options={"maxiter": 5}
    )
    assert result.nit == 5
    assert result.fun < before - 1.0
    assert_close(loss(), result.fun)


@pytest.mark.parametrize("family", ["mean-field"])
def test_a_compiled_step_takes_no_batches_of_a_python_iterator(model: DeepGPModel) -> None:
    """It would ask for one while it is traced, and train on that for ever."""
    batches = [(X[i : i + 5], Y[i : i + 5]) for i in range(4)]
    for seed in (None, 0):
        closure = model.training_loss_closure(iter(batches), seed=seed)
        closure()
        with pytest.raises(TypeError, match="data: expected iter.dataset. .* got list_iterator"):
            tf.function(closure, autograph=False)()
    own = tf.function(model.training_loss_closure(iter(tf.data.Dataset.from_tensors((X, Y)))))
    assert np.isfinite(own())


@pytest.mark.parametrize("family", ["stripes-and-arrow"])
def test_batches_of_many_sizes_share_a_tracing(
    model: DeepGPModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes, traced, loss = list(range(5, 12)), [], model.training_loss

    def counted(data: gpflow.base.RegressionData) -> tf.Tensor:
        traced.append(data[0].shape[0])
        return loss(data)

    monkeypatch.setattr(model, "training_loss", counted)
    closure = model.training_loss_closure(iter([(X[:size], Y[:size]) for size in sizes]))
    losses = [closure() for _ in sizes]
    assert np.isfinite(losses).all() and traced == [5, None]


def test_a_seed_makes_the_closure_a_function_of_the_parameters(model: DeepGPModel) -> None:
    batches = iter(tf.data.Dataset.from_tensors((X, Y)).repeat())
    eager, of_batches, other = (
        model.training_loss_closure(source, compile=False, seed=seed)
        for source, seed in (((X, Y), 3), (batches, 3), ((X, Y), 4))
    )
    loss = eager()
    assert_close([eager(), of_batches(), of_batches()], [loss] * 3, rtol=0, atol=0)
    if getattr(model, "draw_noise", lambda _: [])(len(X)):
        assert differ(other(), loss)


@pytest.mark.parametrize("family", ["stripes-and-arrow", "fitc-ep"])  # with draws, and without
def test_closures_of_a_seed_are_compiled(model: DeepGPModel) -> None:
    loss = model.training_loss_closure((X, Y), compile=False, seed=3)()
    batches = iter(tf.data.Dataset.from_tensors((X, Y)).repeat())
    for source in ((X, Y), batches):
        closure = model.training_loss_closure(source, seed=3)
        assert_close([closure(), closure()], [loss] * 2, rtol=1e-12)


@pytest.mark.parametrize("family", ["stripes-and-arrow", "fitc-ep", "bayesian-network", "sampled"])
def test_fit(model: DeepGPModel) -> None:
    """The package's own training loop, on minibatches: with draws, without, and with a sampler."""
    before = values(model)
    result = gd.training.fit(model, (X, Y), steps=2, batch_size=10, progress=False)
    assert result.steps == 2
    assert np.isfinite(values(model)).all()
    assert differ(values(model), before)


def test_training_is_reproduced_by_the_seed(family: str) -> None:
    ends = []
    for seed in (3, 3, 4):
        tf.random.set_seed(seed)
        model = make_model(family)
        step = tf_keras.optimizers.SGD(0.01)
        step.minimize(lambda m=model: m.training_loss((X, Y)), model.trainable_variables)
        ends.append(values(model))
    np.testing.assert_array_equal(ends[0], ends[1])
    if getattr(model, "draw_noise", lambda _: [])(len(X)):
        assert np.abs(ends[0] - ends[2]).max() > 1e-6
    else:
        np.testing.assert_array_equal(ends[0], ends[2])


def test_minibatches_are_unbiased(model: DeepGPModel) -> None:
    """Halves of the data stand for all of it, by `num_data`."""
    fix_draws(model)
    noise = getattr(model, "draw_noise", lambda: [])()
    whole = model.maximum_log_likelihood_objective((X, Y))
    halves = []
    for half in (slice(0, 10), slice(10, 20)):
        if noise:
            part = [z[:, half] if z.shape[1] == len(X) else z for z in noise]
            model.draw_noise = lambda *args, part=part, **kwargs: part
        halves.append(model.maximum_log_likelihood_objective((X[half], Y[half])))
    assert_close(np.mean(halves), whole)


def test_what_is_not_trainable_does_not_change(model: DeepGPModel) -> None:
    """Parts of layers alike in every family, where it has layers with such parts."""
    if isinstance(model, gd.models.GlobalInducingBNN):
        parts = [model.inducing_inputs]
    else:
        parts = [getattr(model.layers[0], name) for name in ("inducing_variable", "kernel")]
    for part in parts:
        count, number = len(model.trainable_variables), len(part.trainable_variables)
        assert number > 0
        gpflow.set_trainable(part, False)
        assert len(model.trainable_variables) == count - number
    before = [values(part) for part in parts], values(model)
    tf_keras.optimizers.Adam(0.1).minimize(
        lambda: model.training_loss((X, Y)), model.trainable_variables
    )
    for part, fixed in zip(parts, before[0], strict=True):
        np.testing.assert_array_equal(values(part), fixed)
    assert np.abs(values(model) - before[1]).max() > 0.05


def test_every_trainable_parameter_has_a_gradient(model: DeepGPModel) -> None:
    fix_draws(model)
    _, slopes = gradients(lambda: model.training_loss((X, Y)), model.trainable_variables)
    for variable, slope in zip(model.trainable_variables, slopes, strict=True):
        assert np.isfinite(slope).all(), variable.name
        assert np.any(slope), variable.name


@pytest.mark.parametrize("family", GP_FAMILIES)
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
    assert_close(model.training_loss((X, Y)), without - log_prior)
    assert_close(log_prior, expected)


@pytest.mark.parametrize("family", [name for name in COMPILED_FAMILIES if name != LATENT])
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


def test_jacobians_of_a_prediction_of_any_number_of_rows() -> None:
    """As loops of experimental design ask for, compiled once for all their batches."""
    model = make_model("fully-coupled", (1,), output_dim=2)

    def jacobian(points: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            tape.watch(points)
            outputs = tf.concat(model.predict_y(points), axis=-1)
        return tape.batch_jacobian(outputs, points)

    def one_by_one(points: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape(persistent=True) as tape:
            tape.watch(points)
            outputs = tf.unstack(tf.concat(model.predict_y(points), axis=-1), axis=-1)
        return tf.stack([tape.gradient(output, points) for output in outputs], axis=1)

    compiled = tf.function(jacobian, input_signature=[tf.TensorSpec([None, 2], tf.float64)])
    for points in (tf.constant(X[:4]), tf.constant(X[:1])):
        assert_close(compiled(points), one_by_one(points))


def test_forward_derivatives_of_a_compiled_prediction() -> None:
    model, points = make_model("fully-coupled"), tf.constant(X[:3])

    def derivative() -> tf.Tensor:
        with tf.autodiff.ForwardAccumulator(points, tf.ones_like(points)) as forward:
            outputs = tf.concat(model.predict_y(points), axis=-1)
        return forward.jvp(outputs)

    assert_close(tf.function(derivative)(), derivative())
    assert np.abs(derivative()).max() > 1e-3


@pytest.mark.parametrize("family", WITHOUT_SIGMA_POINTS)
def test_xla(model: DeepGPModel) -> None:
    fix_draws(model)

    def step() -> tuple[tf.Tensor, list[tf.Tensor]]:
        return gradients(lambda: model.training_loss((X, Y)), model.trainable_variables)

    assert_close(
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
    assert differ(other.predict_y(XNEW), model.predict_y(XNEW))
    parameters = gpflow.utilities.parameter_dict(model)
    read = gpflow.utilities.read_values(model)
    assert parameters.keys() == read.keys()
    for source in (parameters, read):
        randomise(other, seed=6)
        gpflow.utilities.multiple_assign(other, source)
        assert_close(other.predict_y(XNEW), model.predict_y(XNEW))


def test_copies_are_independent(model: DeepGPModel) -> None:
    before = model.predict_y(XNEW)
    for copied in (copy.deepcopy, gpflow.utilities.deepcopy):
        other = copied(model)
        assert_close(other.predict_y(XNEW), before, rtol=0, atol=0)
        randomise(other)
        assert differ(other.predict_y(XNEW), before)
        assert_close(model.predict_y(XNEW), before, rtol=0, atol=0)
        # What was trainable is, and trains the copy.
        assert len(other.trainable_variables) == len(model.trainable_variables)
    _, slopes = gradients(lambda: other.training_loss((X, Y)), other.trainable_variables)
    assert all(np.isfinite(slope).all() for slope in slopes)


def test_pickle(model: DeepGPModel) -> None:
    for original in (model, model.posterior()):
        other = pickle.loads(pickle.dumps(original))
        assert_close(other.predict_y(XNEW), original.predict_y(XNEW), rtol=0, atol=0)
        assert len(other.trainable_variables) == len(original.trainable_variables)


def test_checkpoint(family: str, model: DeepGPModel, tmp_path: Path) -> None:
    path = tf.train.Checkpoint(model=model).save(str(tmp_path / "checkpoint"))
    other = make_model(family)
    randomise(other)
    tf.train.Checkpoint(model=other).restore(path).assert_consumed()
    assert_close(values(other), values(model), rtol=0, atol=0)
    assert_close(other.predict_y(XNEW), model.predict_y(XNEW), rtol=0, atol=0)


def test_monitor(model: DeepGPModel, tmp_path: Path) -> None:
    seen: list[float] = []
    callback = gpflow.monitor.ExecuteCallback(
        lambda: seen.append(float(model.predict_f(XNEW)[0][0, 0]))
    )
    tasks = gpflow.monitor.MonitorTaskGroup(
        [callback, gpflow.monitor.ModelToTensorBoard(str(tmp_path), model)], period=2
    )
    monitor = gpflow.monitor.Monitor(tasks)
    for step in range(4):
        randomise(model, seed=step)
        monitor(step)
    assert len(set(seen)) == 2
    assert len(list(tmp_path.iterdir())) == 1


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
    loss, slopes = gradients(
        lambda: model.training_loss((X.astype(np.float32), Y)), model.trainable_variables
    )
    assert all(np.isfinite(slope).all() for slope in slopes)
    predictions = model.predict_y(XNEW)
    gpflow.config.set_default_float(np.float64)
    assert_close(loss, double.training_loss((X, Y)), rtol=1e-4)
    assert_close(predictions, double.predict_y(XNEW), rtol=1e-3, atol=1e-4)


def test_another_default_float_than_that_of_the_model_is_told(family: str) -> None:
    """As in a new process, which knows nothing of the first one's."""
    model = make_model(family)
    posterior = model.posterior()
    gpflow.config.set_default_float(np.float32)
    for call in (
        lambda: model.predict_y(XNEW),
        lambda: posterior.predict_f(XNEW),
        lambda: model.training_loss((X, Y)),
        lambda: gd.training.fit(model, (X, Y), steps=1, progress=False),
    ):
        with pytest.raises(ValueError, match="default_float: expected float64, .* got float32"):
            call()


@pytest.mark.parametrize("family", WITHOUT_SIGMA_POINTS)
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
    for predict in predictions(model).values():
        for prediction in tf.nest.flatten(predict(model, XNEW)):
            assert prediction.dtype == tf.float32
            assert np.isfinite(prediction).all()
    close = np.linspace(-1.0, 1.0, 200)[:, None] * [1.0, 0.5]
    full_cov = is_joint(model)
    assert np.isfinite(model.predict_f_samples(close, 2, full_cov=full_cov)).all()
