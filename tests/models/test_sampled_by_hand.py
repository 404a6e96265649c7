"""Sampled deep GPs under samplers of one's own, and loops over the samples, as in GPflow's notebooks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

import gpflow_deep as gd
from gpflow_deep.models import SampledDeepGP
from gpflow_deep.training import TrainingError
from tests.models.contract import XNEW, X, Y, assert_close

NOISE = 0.09


def deep(hidden_dims: tuple[int, ...] = (2,), **settings: Any) -> SampledDeepGP:
    layers = gd.layers.build_layers(X, hidden_dims, 1, 5)
    settings = {"num_data": len(X), "num_prediction_samples": 12, "keep_every": 3, **settings}
    return SampledDeepGP(layers, gpflow.likelihoods.Gaussian(0.1), **settings)


def fit(model: SampledDeepGP, steps: int = 40, **settings: Any) -> Any:
    return gd.training.fit(model, (X, Y), steps=steps, progress=False, **settings)


def fix(model: SampledDeepGP) -> None:
    """All but the chains."""
    for part in (*model.layers, model.likelihood):
        gpflow.set_trainable(part, False)


def conjugate(num_chains: int) -> tuple[SampledDeepGP, gpflow.models.GPR]:
    """One layer whose inducing outputs are the functions at the data, and the regression that is exact."""
    inputs = np.linspace(0.0, 1.0, 8)[:, None]
    targets = np.sin(6.0 * inputs) + 0.3 * np.random.default_rng(0).standard_normal(inputs.shape)
    kernel = gpflow.kernels.Matern32(lengthscales=0.5)
    model = SampledDeepGP(
        [gd.layers.GPLayer(kernel, inputs, 1)],
        gpflow.likelihoods.Gaussian(NOISE),
        num_chains=num_chains,
        observation_term="variational",
    )
    fix(model)
    return model, gpflow.models.GPR((inputs, targets), kernel, noise_variance=NOISE)


# The density.


def test_hamiltonian_samples_have_the_exact_posterior() -> None:
    """By GPflow's recipe, predictions included; tempered by four chains deviations were twice as wide."""
    model, exact = conjugate(num_chains=4)
    data = exact.data
    helper = gpflow.optimizers.SamplingHelper(
        lambda: model.log_posterior_density(data), model.trainable_parameters
    )
    kernel = tfp.mcmc.HamiltonianMonteCarlo(
        helper.target_log_prob_fn, step_size=tf.constant(0.15, tf.float64), num_leapfrog_steps=10
    )

    @tf.function
    def run() -> Any:
        return tfp.mcmc.sample_chain(
            num_results=500,
            num_burnin_steps=50,
            current_state=helper.current_state,
            kernel=kernel,
            trace_fn=lambda _, result: result.is_accepted,
            seed=[0, 4],
        )

    samples, accepted = run()
    assert np.mean(accepted) > 0.5
    predict = tf.function(lambda: model.predict_f_trace(data[0]))
    draws = []
    for index in range(500):
        for variable, sample in zip(helper.current_state, samples, strict=True):
            variable.assign(sample[index])
        draws.append(predict()[0, :, :, 0])
    f = tf.stack(draws)  # [R, C, N]
    mean, variance = (part[:, 0] for part in exact.predict_f(data[0]))
    standard = ((f - mean) / tf.sqrt(variance)).numpy()
    # Four standard errors, of means over points: as if these were one.
    size, squares = (
        float(tf.reduce_mean(tf.reduce_sum(tfp.mcmc.effective_sample_size(z), axis=0)))
        for z in (standard, standard**2)
    )
    assert min(size, squares) > 200.0
    assert abs(standard.mean()) < 4.0 / np.sqrt(size)
    assert abs(np.mean(standard**2) - 1.0) < 4.0 * np.sqrt(2.0 / squares)
    assert 4.0 * np.sqrt(2.0 / squares) < 1.0


@pytest.mark.parametrize("num_chains", [1, 3])
def test_density_of_one_layer_is_exact(num_chains: int) -> None:
    """Up to a constant, which a second state takes away."""
    model, exact = conjugate(num_chains)
    (inputs, targets), (chain,) = exact.data, model.inducing_posterior.chains
    root = model.layers[0].factorise().numpy()
    rng, ours, expected = np.random.default_rng(1), [], []
    for _ in range(2):
        v = rng.standard_normal(chain.shape)
        chain.assign(v)
        ours.append(model.log_posterior_density((inputs, targets)).numpy())
        residuals = targets.numpy()[:, 0] - v[:, 0] @ root.T
        expected.append(-0.5 * np.sum(residuals**2) / NOISE - 0.5 * np.sum(v**2))
    # The variances of the data given the inducing outputs are jitter.
    assert ours[0] - ours[1] == pytest.approx(expected[0] - expected[1], rel=1e-6)


def test_density_is_a_function_of_the_state() -> None:
    """The draws of the hidden layers are the same at every call and for every chain."""
    model = deep(num_chains=3, num_samples=2, window=4)  # whose objective is of recalled states
    fix(model)
    rng = np.random.default_rng(0)
    states = [rng.standard_normal(chain.shape) for chain in model.inducing_posterior.chains]
    for chain, state in zip(model.inducing_posterior.chains, states, strict=True):
        chain.assign(state)
    before = model.log_posterior_density((X, Y)).numpy()
    tf.random.set_seed(1)
    compiled = tf.function(model.log_posterior_density)
    assert_close([compiled((X, Y)), model.log_posterior_density((X, Y))], [before, before])
    noise = [tf.tile(z, [3, 1, 1]) for z in model.draw_noise(len(X), 2, seed=[model.seed, 0])]
    log_joint = model.log_joint((X, Y), noise)
    assert_close(before, tf.reduce_sum(log_joint))
    for turned in range(3):
        for chain, state in zip(model.inducing_posterior.chains, states, strict=True):
            chain.assign(np.roll(state, turned, axis=0))
        assert_close(model.log_posterior_density((X, Y)), before)
        assert_close(model.log_joint((X, Y), noise), np.roll(log_joint, turned))
    other = model.draw_noise(len(X), seed=[5, 5])
    assert_close(
        model.log_posterior_density((X, Y), other), tf.reduce_sum(model.log_joint((X, Y), other))
    )


def test_hyperparameters_are_sampled_with_one_chain_alone() -> None:
    prior = tfp.distributions.LogNormal(np.float64(-2.0), np.float64(1.0))
    several, one = deep(num_chains=2), deep(num_chains=1)
    message = r"num_chains: expected 1 .*, got 2: .*\.layers\[0\]\.kernel.*set_trainable"
    with pytest.raises(ValueError, match=message):
        several.log_posterior_density((X, Y))
    fix(several)
    several.log_posterior_density((X, Y))
    gpflow.set_trainable(several.likelihood, True)
    with pytest.raises(ValueError, match=r"fix \.likelihood\.variance by"):
        several.log_posterior_density((X, Y))
    one.likelihood.variance.prior = prior
    noise = one.draw_noise(len(X), seed=[one.seed, 0])
    expected = one.log_joint((X, Y), noise)[0] + prior.log_prob(one.likelihood.variance)
    assert_close(one.log_posterior_density((X, Y)), expected)


# Predictions follow the chains.


def predictions(model: SampledDeepGP) -> list[Any]:
    return [np.asarray(part) for part in model.predict_f_mixture(XNEW)]


def of_present_states(model: SampledDeepGP) -> list[Any]:
    """By a copy that has kept none."""
    copy = gpflow.utilities.deepcopy(model)
    copy.inducing_posterior.forget()
    return predictions(copy)


def assert_equal(ours: list[Any], theirs: list[Any], equal: bool = True) -> None:
    same = [np.array_equal(*pair) for pair in zip(ours[:2], theirs[:2], strict=True)]
    assert same == [equal, equal]


def test_predictions_follow_the_chains_and_come_back() -> None:
    model = deep(num_chains=2)
    compiled = tf.function(lambda: model.predict_f_mixture(XNEW))
    posterior = model.posterior()
    fit(model, 41)  # kept states are of earlier steps than the last
    q = model.inducing_posterior
    kept = predictions(model)
    assert int(q.num_predicting()) == 3
    assert_equal(kept, of_present_states(model), equal=False)
    values = gpflow.utilities.read_values(model)
    values = {name: value for name, value in values.items() if ".chains[" in name}
    samples = [np.random.default_rng(0).standard_normal([3, *v.shape]) for v in q.chains]
    for index in range(3):  # as GPflow's notebooks have it
        for variable, sample in zip(q.variables_of_chains, samples, strict=True):
            variable.assign(sample[index])
        present = predictions(model)
        assert_equal(present, of_present_states(model))
        assert_equal(present, kept, equal=False)
        assert_close(compiled()[:2], present[:2])
        posterior.update_cache()
        assert_close(posterior.predict_f_mixture(XNEW)[:2], present[:2])
        assert model.predict_f_trace(XNEW).shape[0] == 1
    with pytest.raises(ValueError, match="at least 8 kept states of each chain, got 0"):
        model.convergence(XNEW)
    # One number of one layer is enough.
    gpflow.utilities.multiple_assign(model, values)
    assert_equal(predictions(model), kept)
    moved = values[".inducing_posterior.chains[1]"].copy()
    moved[0, 0, 0] += 1e-9
    gpflow.utilities.multiple_assign(model, {".inducing_posterior.chains[1]": moved})
    assert_equal(predictions(model), of_present_states(model))
    # What goes on from there has kept states again.
    fit(model, 6)
    assert int(q.num_predicting()) > 0


def test_fitted_states_are_copied_saved_and_restored(tmp_path: Path) -> None:
    model, again, assigned = (deep(num_chains=2) for _ in range(3))
    fit(model, 41)
    kept = predictions(model)
    tf.train.Checkpoint(model=model).write(str(tmp_path / "checkpoint"))
    tf.train.Checkpoint(model=again).read(str(tmp_path / "checkpoint")).assert_consumed()
    gpflow.utilities.multiple_assign(assigned, gpflow.utilities.read_values(model))
    frozen = gpflow.utilities.freeze(model)
    for copy in (again, gpflow.utilities.deepcopy(model)):
        assert_equal(predictions(copy), kept)
    for copy in (assigned, frozen):  # constrained values may differ in the last digit
        assert_close(predictions(copy), kept)
    shape = tf.TensorSpec([None, X.shape[1]], tf.float64)
    module = tf.Module()
    module.model = model
    module.predict = tf.function(lambda x: model.predict_f_mixture(x)[:2], input_signature=[shape])
    tf.saved_model.save(module, str(tmp_path / "saved"))
    loaded = tf.saved_model.load(str(tmp_path / "saved"))
    assert_close(loaded.predict(XNEW), kept[:2])


def test_states_kept_before_a_failure_predict() -> None:
    """The failed step's update is undone: the chains are still where training left them."""
    model, count = deep(num_chains=2), tf.Variable(0)

    def spoil(X: tf.Tensor, Y: tf.Tensor, seed: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return X, tf.where(count.assign_add(1) > 38, tf.constant(np.inf, Y.dtype), Y)

    with pytest.raises(TrainingError):
        fit(model, augmentation=spoil)
    assert int(model.inducing_posterior.num_predicting()) > 0
    assert_equal(predictions(model), of_present_states(model), equal=False)


def test_what_is_kept_is_named_and_is_no_parameter() -> None:
    """And what GPflow's notebooks make of a model's dictionary of parameters works."""
    model = deep(num_chains=2, window=3)
    names = {value: name for name, value in gpflow.utilities.parameter_dict(model).items()}
    part = ".inducing_posterior."
    records = ("left", "kept", "remembered", "recalled")
    expected = {f"{part}{name}[{layer}]" for name in records for layer in (0, 1)}
    parameters = set(model.parameters)
    kept = {name for value, name in names.items() if value not in parameters}
    assert kept == expected | {f"{part}times_kept"}
    gpflow.set_trainable(model, True)
    free = {name for value, name in names.items() if value in set(model.trainable_parameters)}
    assert free == set(names.values()) - kept
    fix(model)
    assert model.trainable_parameters == tuple(model.inducing_posterior.chains)
    helper = gpflow.optimizers.SamplingHelper(
        lambda: model.log_posterior_density((X, Y)), model.trainable_parameters
    )
    assert len(helper.current_state) == 2
    assert all(name in gpflow.utilities.tabulate_module_summary(model) for name in kept)
