"""Sampled deep GPs against posteriors that are known, and what their kept states are good for."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from scipy import stats

import gpflow_deep as gd
from gpflow_deep.models import SampledDeepGP
from gpflow_deep.optimizers import SGHMC
from tests.models.contract import XNEW, YNEW, X, Y, assert_close

NOISE = 0.09


def one_layer(num_chains: int, term: str, num_data: int, size: int = 5) -> SampledDeepGP:
    """On the interval from -2 to 2."""
    Z = np.linspace(-2.0, 2.0, size)[:, None]
    layer = gd.layers.GPLayer(gpflow.kernels.SquaredExponential(lengthscales=0.8), Z, 1)
    return SampledDeepGP(
        [layer],
        gpflow.likelihoods.Gaussian(NOISE),
        observation_term=term,
        num_chains=num_chains,
        num_data=num_data,
        num_prediction_samples=num_chains,
    )


def projection(model: SampledDeepGP, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """L_K^-1 K_MN [M, N], and the variances [N] of observations given v under the predictive term."""
    (layer,) = model.layers
    A = np.linalg.solve(layer.factorise(), layer.kernel(layer.inducing_variable.Z, X))
    return A, NOISE + 1.0 - np.sum(A**2, axis=0)


def sampled(
    model: SampledDeepGP, batch: Callable[[], tuple[Any, Any]], burn_in: int, **settings: Any
) -> Callable[[int], np.ndarray]:
    """A function that takes so many steps, then returns the chains' states [C, M]."""
    sampler = SGHMC(burn_in=burn_in, **settings)
    chains = model.inducing_posterior.variables_of_chains

    @tf.function(autograph=False)
    def take(count: tf.Tensor) -> None:
        def body(i: tf.Tensor) -> tf.Tensor:
            sampler.minimize(lambda: model.training_loss(batch()), chains)
            return i + 1

        tf.while_loop(lambda i: i < count, body, [0])

    def states(count: int) -> np.ndarray:
        take(tf.constant(count))
        return chains[0].numpy()[:, 0]

    return states


@pytest.mark.parametrize("term", ["variational", "predictive"])
def test_one_layer_has_the_exact_posterior(term: str) -> None:
    """Of SGPR and of FITC."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-2.0, 2.0, [30, 1])
    Y = np.sin(2.0 * X) + 0.3 * rng.standard_normal(X.shape)
    model = one_layer(100, term, len(X))
    data = tf.constant(X), tf.constant(Y)
    states = sampled(model, lambda: data, 200, step_size=0.07, momentum_decay=0.1)
    states(300)
    draws = np.concatenate([states(40) for _ in range(20)])
    A, variance = projection(model, X)
    scaled = A / (variance if term == "predictive" else NOISE)
    precision = np.eye(len(A)) + scaled @ A.T
    mean = np.linalg.solve(precision, scaled @ Y[:, 0])
    white = (draws - mean) @ np.linalg.cholesky(precision)
    # About a thousand of the states are independent.
    np.testing.assert_allclose(white.mean(axis=0), 0.0, atol=0.12)
    np.testing.assert_allclose(np.cov(white.T), np.eye(len(A)), atol=0.15)
    if term == "variational":
        sgpr = gpflow.models.SGPR(
            (X, Y), model.kernel, model.inducing_variable, noise_variance=NOISE
        )
        q = model.inducing_posterior
        for chain, draw in zip(q.variables_kept[:1], [draws[-100:]], strict=True):
            chain.assign(draw[None, :, None])
            q.times_kept.assign(1)
        ours, theirs = model.predict_f(X[:5]), sgpr.predict_f(X[:5])
        np.testing.assert_allclose(ours[0], theirs[0], atol=0.06)
        np.testing.assert_allclose(ours[1], theirs[1], rtol=0.4)


def test_noise_of_minibatches_does_not_bias_beyond_a_tenth() -> None:
    """A fifth of the data at a time: the deviations of v stay within a tenth of the exact ones."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-2.0, 2.0, [40, 1])
    Y = np.sin(2.0 * X) + 0.3 * rng.standard_normal(X.shape)
    model = one_layer(100, "variational", len(X))

    def batch() -> tuple[tf.Tensor, tf.Tensor]:
        rows = tf.random.shuffle(tf.range(len(X)))[:8]
        return tuple(tf.ensure_shape(tf.gather(a, rows), [8, 1]) for a in (X, Y))

    states = sampled(model, batch, 500, step_size=0.03, momentum_decay=0.05)
    states(1000)
    draws = np.concatenate([states(100) for _ in range(15)])
    A, _ = projection(model, X)
    precision = np.eye(len(A)) + A @ A.T / NOISE
    deviations = np.sqrt(np.diag(np.linalg.inv(precision)))
    np.testing.assert_allclose(draws.std(axis=0), deviations, rtol=0.1)


@pytest.mark.parametrize("batch_size,tolerance", [(None, 0.15), (100, 0.4)])
def test_chains_of_many_points_are_as_wide_as_the_posterior(
    batch_size: int | None, tolerance: float
) -> None:
    """And apart from each other, though a minibatch is the same for all of them."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-2.0, 2.0, [1000, 1])
    Y = np.sin(2.0 * X) + 0.3 * rng.standard_normal(X.shape)
    model = one_layer(16, "variational", len(X))
    model.keep_every, model.num_prediction_samples = 40, 400
    for part in (model.layers[0], model.likelihood):
        gpflow.set_trainable(part, False)
    gd.training.fit(model, (X, Y), steps=4000, batch_size=batch_size, progress=False)
    A, _ = projection(model, X)
    at, _ = projection(model, X[:20])
    covariance = np.linalg.inv(np.eye(len(A)) + A @ A.T / NOISE)
    expected = np.sqrt(np.sum(at * (covariance @ at), axis=0))
    trace = model.predict_f_trace(X[:20]).numpy()[..., 0]  # [R, C, N]
    for axes in ((0, 1), 1):
        ratio = trace.std(axis=axes).mean() / expected.mean()
        np.testing.assert_allclose(ratio, 1.0, atol=tolerance)


def test_simulation_based_calibration() -> None:
    """Talts et al. 2018: the rank of what data were made of among its posterior's draws is uniform."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-2.0, 2.0, [12, 1])
    model = one_layer(49, "predictive", len(X), size=3)
    A, variance = projection(model, X)
    Y = tf.Variable(np.zeros_like(X))
    states = sampled(
        model,
        lambda: (tf.constant(X), tf.convert_to_tensor(Y)),
        10**6,
        step_size=0.1,
        momentum_decay=0.1,
    )
    ranks = []
    for _ in range(40):
        v = rng.standard_normal(len(A))
        Y.assign((v @ A + np.sqrt(variance) * rng.standard_normal(len(X)))[:, None])
        ranks.append(np.sum(states(150) < v, axis=0))
    assert stats.kstest(np.ravel(ranks) / 49.0, "uniform").pvalue > 0.01


def deep(**settings: Any) -> SampledDeepGP:
    layers = gd.layers.build_layers(X, (2,), 1, 5)
    settings = {"num_data": len(X), "num_prediction_samples": 12, "keep_every": 3, **settings}
    return SampledDeepGP(layers, gpflow.likelihoods.Gaussian(0.1), **settings)


def fit(model: SampledDeepGP, steps: int = 30, **settings: Any) -> Any:
    return gd.training.fit(
        model, (X, Y), steps=steps, batch_size=10, progress=False, learning_rate=0.02, **settings
    )


def test_variational_term_is_the_bound_of_a_point_mass() -> None:
    """With q(v) at a state the bound's data term is that state's log joint, less its prior."""
    model = deep(num_chains=2, observation_term="variational")
    fit(model)
    noise = model.draw_noise(len(X), seed=[1, 2])
    for chain in range(2):
        q = gd.posteriors.MeanField(model.layers)
        means = [v[chain].numpy() for v in model.inducing_posterior.chains]
        tiny = 1e-9 * np.eye(sum(m.size for m in means))
        q.assign_dense(np.concatenate([m.ravel() for m in means]), tiny)
        layers, likelihood = gpflow.utilities.deepcopy((model.layers, model.likelihood))
        bound = gd.models.DeepGP(layers, likelihood, q, num_data=len(X))
        expected = bound.elbo((X, Y), noise=[z[chain : chain + 1] for z in noise]) + q.prior_kl()
        ours = model.log_joint((X, Y), noise) - model.inducing_posterior.log_prior()
        assert_close(ours[chain], expected, rtol=1e-6)


def test_log_prior_is_a_standard_normal() -> None:
    q = deep().inducing_posterior
    expected = sum(stats.norm.logpdf(v.numpy()).sum(axis=(1, 2)) for v in q.chains)
    assert_close(q.log_prior(), expected)


def test_kept_states_are_the_last_ones_oldest_first() -> None:
    model = deep(num_chains=2)
    q = model.inducing_posterior
    assert q.num_kept == 6
    assert_close(q.states(), [tf.convert_to_tensor(v)[None] for v in q.chains])
    for kept in range(1, 9):
        for v in q.variables_of_chains:
            v.assign(tf.fill(v.shape, tf.cast(kept, v.dtype)))
        q.keep()
        times = np.arange(max(1, kept - 5), kept + 1)
        for v in q.states():
            np.testing.assert_array_equal(v[:, 0, 0, 0], times)
    assert model.predict_f_trace(XNEW).shape == (6, 2, 6, 1)
    q.forget()
    assert q.states()[0].shape[0] == 1


def test_components_are_the_kept_states() -> None:
    model = deep(num_chains=3, num_prediction_samples=12)
    fit(model, steps=60)
    means, variances, _ = model.predict_f_mixture(XNEW, noise=[np.zeros([12, 1, 2])])
    assert means.shape == variances.shape == (12, 6, 1)
    assert_close(tf.reshape(model.predict_f_trace(XNEW), means.shape), means)
    # One state after the other as the only one.
    q, states = model.inducing_posterior, model.inducing_posterior.states()
    for index in (0, 5, 11):
        q.forget()
        for v, kept in zip(q.variables_of_chains, states, strict=True):
            flat = tf.reshape(kept, [-1, 1, *kept.shape[2:]])
            v.assign(tf.repeat(flat[index], 3, axis=0))
        assert_close(
            model.predict_f_mixture(XNEW, noise=[np.zeros([3, 1, 2])]).means[0], means[index]
        )


def gradients_of(model: SampledDeepGP, noise: list[tf.Tensor]) -> tuple[list[Any], list[Any]]:
    """Of the objective: with respect to the chains, and its value with those of the hyperparameters."""
    chains = model.inducing_posterior.variables_of_chains
    others = [v for v in model.trainable_variables if all(v is not chain for chain in chains)]
    with tf.GradientTape() as tape:
        objective = model.maximum_log_likelihood_objective((X, Y), noise)
    gradients = tape.gradient(objective, [*chains, *others])
    return gradients[: len(chains)], [objective, *gradients[len(chains) :]]


def test_hyperparameters_learn_at_recalled_states_and_chains_at_their_own() -> None:
    model, plain = deep(num_chains=2, window=5), deep(num_chains=2)
    fit(model, 7)
    q, noise = model.inducing_posterior, model.draw_noise(len(X), seed=[1, 2])
    q.remember(tf.constant(7, tf.int64), seed=1)
    assert all(not np.allclose(*pair) for pair in zip(q.recalled, q.chains, strict=True))
    values = gpflow.utilities.read_values(model)
    names = gpflow.utilities.parameter_dict(plain)
    gpflow.utilities.multiple_assign(plain, {name: values[name] for name in names})
    of_chains, of_others = gradients_of(model, noise)
    assert_close(of_chains, gradients_of(plain, noise)[0])
    for chain, recalled in zip(plain.inducing_posterior.chains, q.recalled, strict=True):
        chain.assign(recalled)
    assert_close(of_others, gradients_of(plain, noise)[1])


def test_recalled_states_are_drawn_from_the_window() -> None:
    q = deep(num_chains=2, window=4).inducing_posterior
    recalled = []
    for step in range(60):
        for v in q.variables_of_chains:
            v.assign(tf.fill(v.shape, tf.cast(step, v.dtype)))
        q.remember(tf.constant(step, tf.int64), seed=0)
        values = np.concatenate([v.numpy().ravel() for v in q.recalled])
        assert np.all(values == values[0])
        recalled.append(step - values[0])
    assert recalled[0] == 0
    assert set(recalled) == {0, 1, 2, 3}


def test_fit_goes_on_to_the_same_numbers(tmp_path: Path) -> None:
    """Also those of the states that a window remembers."""

    class Stopped(Exception):
        pass

    def stop(step: int, loss: float) -> None:
        if step == 25:
            raise Stopped

    settings = dict(steps=40, validation_fraction=0.2, validate_every=10)
    whole, resumed, stopped = (deep(window=7) for _ in range(3))
    expected = fit(whole, **settings)
    settings |= dict(checkpoint_dir=tmp_path, checkpoint_every=10)
    with pytest.raises(Stopped):
        fit(stopped, callback=stop, **settings)
    result = fit(resumed, **settings)
    np.testing.assert_array_equal(result.history["loss"], expected.history["loss"])
    ends = [gpflow.utilities.read_values(model) for model in (whole, resumed)]
    for name, value in ends[0].items():
        np.testing.assert_array_equal(ends[1][name], value, err_msg=name)
    assert ends[0][".inducing_posterior.times_kept"] > 0


def test_all_may_be_frozen_and_set_trainable_again() -> None:
    """The states that were kept do not become free numbers."""
    model = deep(window=3)
    gpflow.set_trainable(model, False)
    assert not model.trainable_variables
    gpflow.set_trainable(model, True)
    free = {id(parameter.unconstrained_variable) for parameter in model.parameters}
    assert {id(variable) for variable in model.trainable_variables} == free
    assert np.isfinite(fit(model, steps=3).history["loss"]).all()


def test_chains_that_are_not_trainable_stay() -> None:
    model = deep()
    q = model.inducing_posterior
    before = [chain.numpy() for chain in q.chains]
    gpflow.set_trainable(q.chains[0], False)
    fit(model)
    moved = [np.abs(chain.numpy() - start).max() for chain, start in zip(q.chains, before)]
    assert moved[0] == 0.0 and moved[1] > 0.1
    gpflow.set_trainable(q, False)
    scales = model.layers[0].kernel.lengthscales.numpy()
    after = [chain.numpy() for chain in q.chains]
    fit(model)
    np.testing.assert_array_equal(q.chains[1], after[1])
    assert np.abs(model.layers[0].kernel.lengthscales.numpy() - scales).max() > 0.0
    with pytest.raises(ValueError, match="sampler: expected a model with trainable chains"):
        fit(model, sampler=SGHMC())
    gpflow.set_trainable(model, False)
    with pytest.raises(ValueError, match="expected trainable parameters, got none"):
        fit(model)


def test_every_chain_meets_with_draws_of_the_whole_space() -> None:
    """States come in turn from each, and even draws in turn from every part of the space."""
    model = deep(num_chains=4, num_prediction_samples=100)
    for seed in range(5):
        model.seed = seed
        (draws,) = model._prediction_noise(None)
        assert draws.shape == (100, 1, 2)
        for chain in range(4):
            own = draws[chain::4, 0]
            assert (own.min(axis=0) < -0.7).all() and (own.max(axis=0) > 0.7).all()
            assert np.abs(own.mean(axis=0)).max() < 0.7
    means = model.predict_f_mixture(XNEW)[0]
    given = model.predict_f_mixture(XNEW, noise=[draws])[0]
    assert_close(means, given)


def test_fit_restores_the_states_with_the_best_score() -> None:
    model, scores = deep(), []

    def watch(step: int, loss: float) -> None:
        if step % 10 == 0:
            density = model.predict_log_density((XNEW, YNEW))
            scores.append(float(np.mean(density)))

    result = fit(
        model, 40, validation_data=(XNEW, YNEW), validate_every=10, callback=watch, patience=None
    )
    assert result.best_score == pytest.approx(max(scores))
    assert np.mean(model.predict_log_density((XNEW, YNEW))) == pytest.approx(result.best_score)


def test_states_are_kept_over_the_time_where_that_is_limited(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And scales adapt for three quarters of it: by the steps neither would come. The clock is made up."""
    ticks = itertools.count()
    monkeypatch.setattr(time, "perf_counter", lambda: 0.01 * next(ticks))
    model, sampler = deep(keep_every=10**5, num_prediction_samples=8), SGHMC(burn_in=750_000)
    windows = []

    def watch(step: int, loss: float) -> None:
        windows.append(sampler._slots[0].windows.numpy().sum())

    result = fit(model, 10**6, sampler=sampler, time_limit=2.0, callback=watch)
    assert 40 < result.steps < 200
    assert 8 <= int(model.inducing_posterior.times_kept) <= 10
    quarter = result.steps // 4
    assert np.ptp(windows[-quarter + 2 :]) == 0.0 < np.ptp(windows[-quarter - 3 :])


def test_convergence(recwarn: pytest.WarningsRecorder) -> None:
    model = deep(num_prediction_samples=80, num_chains=4)
    q, rng = model.inducing_posterior, np.random.default_rng(0)
    with pytest.raises(ValueError, match="at least 8 kept states of each chain, got 0"):
        model.convergence(XNEW)
    for kept in q.kept:
        kept.assign(0.1 * rng.standard_normal(kept.shape))
    q.times_kept.assign(q.num_kept)
    trace = model.predict_f_trace(XNEW)
    r_hat, size = model.convergence(XNEW)
    assert not recwarn.list
    assert r_hat.shape == size.shape == (6, 1)
    # Gelman et al. 2013, equation 11.4, of split chains.
    halves = np.concatenate(np.split(trace, 2), axis=1)
    within = halves.var(axis=0, ddof=1).mean(axis=0)
    between = halves.mean(axis=0).var(axis=0, ddof=1)
    assert_close(r_hat, np.sqrt(0.9 + between / within))
    assert np.mean(size) == pytest.approx(80, rel=0.5)
    # One chain elsewhere.
    q.kept[-1].assign(q.kept[-1] + np.arange(4.0)[:, None, None])
    with pytest.warns(UserWarning, match="chains have not converged.*R-hat is above"):
        assert np.all(model.convergence(XNEW).r_hat > 1.3)


@pytest.mark.parametrize("num_states", [10, 11])
def test_convergence_of_one_chain(num_states: int, recwarn: pytest.WarningsRecorder) -> None:
    """Its halves are compared."""
    model = deep(num_prediction_samples=num_states, num_chains=1)
    q, rng = model.inducing_posterior, np.random.default_rng(0)
    for kept in q.kept:
        kept.assign(0.1 * rng.standard_normal(kept.shape))
    q.times_kept.assign(q.num_kept)
    trace = np.asarray(model.predict_f_trace(XNEW))
    r_hat, size = model.convergence(XNEW)
    halves = np.concatenate([trace[:5], trace[-5:]], axis=1)
    within = halves.var(axis=0, ddof=1).mean(axis=0)
    between = halves.mean(axis=0).var(axis=0, ddof=1)
    assert_close(r_hat, np.sqrt(0.8 + between / within))
    assert size.shape == (6, 1) and np.all(np.isfinite(size))


def test_likelihoods_and_layers_that_do_not_whiten() -> None:
    layers = gd.layers.build_layers(X, (2,), 1, 5, whiten=False)
    whitened = gd.layers.build_layers(X, (2,), 1, 5)
    labels = (Y > 0).astype(float)
    ends = []
    for each in (layers, whitened):
        model = SampledDeepGP(each, gpflow.likelihoods.Bernoulli(), num_data=len(X))
        noise = model.draw_noise(len(X), seed=[1, 2])
        ends.append((model.log_joint((X, labels), noise), model.predict_y(XNEW)))
    assert_close(*ends, rtol=1e-6)


def test_bad_input() -> None:
    with pytest.raises(
        ValueError, match="observation_term: expected 'predictive' or 'variational'"
    ):
        deep(observation_term="exact")
    for name in ("num_chains", "window"):
        with pytest.raises(ValueError, match=f"{name}: expected"):
            deep(**{name: 0})
    layers = gd.layers.build_layers(X, (2,), 1, 5)
    layers[1].inducing_variable = None
    with pytest.raises(ValueError, match="inducing variables in all of them"):
        SampledDeepGP(layers, gpflow.likelihoods.Gaussian())
    with pytest.raises(
        TypeError, match="sampler: expected gpflow_deep.optimizers.SGHMC, got float"
    ):
        fit(deep(), sampler=0.1)
    other = gd.models.DeepGP(gd.layers.build_layers(X, (2,), 1, 5), gpflow.likelihoods.Gaussian())
    with pytest.raises(ValueError, match="sampler: expected none for DeepGP"):
        fit(other, sampler=SGHMC())


@pytest.mark.parametrize("own_burn_in", [None, 6000])
def test_predictions_have_no_states_of_burn_in(own_burn_in: int | None) -> None:
    """Of a posterior that is known, while scales adapt variances are half as wide again."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-2.0, 2.0, [30, 1])
    Y = np.sin(2.0 * X) + 0.3 * rng.standard_normal(X.shape)
    Z = np.linspace(-2.0, 2.0, 7)[:, None]
    layer = gd.layers.GPLayer(gpflow.kernels.SquaredExponential(lengthscales=0.7), Z, 1)
    model = SampledDeepGP(
        [layer],
        gpflow.likelihoods.Gaussian(NOISE),
        observation_term="variational",
        num_data=30,
        num_prediction_samples=2000,
    )
    gpflow.set_trainable(layer, False)
    gpflow.set_trainable(model.likelihood, False)
    sampler = None if own_burn_in is None else SGHMC(0.05, 0.01, burn_in=own_burn_in)
    result = gd.training.fit(model, (X, Y), steps=12_000, sampler=sampler, progress=False)
    A, _ = projection(model, X)
    K = np.linalg.inv(np.eye(7) + A @ A.T / NOISE)
    Xnew = np.linspace(-2.0, 2.0, 9)[:, None]
    Anew, prior = projection(model, Xnew)
    variance = prior - NOISE + np.sum(Anew * (K @ Anew), axis=0)
    np.testing.assert_allclose(model.predict_f(Xnew)[1][:, 0], variance, rtol=0.2)
    assert int(model.inducing_posterior.times_kept) == (150 if own_burn_in is None else 300)
    assert len(result.history["loss"]) == 12_000


def test_few_steps_keep_the_states_of_their_last_quarter() -> None:
    model = deep(num_prediction_samples=100, keep_every=1, num_chains=2)
    gd.training.fit(model, (X, Y), steps=20, progress=False)
    assert int(model.inducing_posterior.times_kept) == 5
    assert model.predict_f_mixture(XNEW)[0].shape[0] == 100
