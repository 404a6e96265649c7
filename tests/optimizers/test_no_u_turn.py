"""The no-U-turn sampler on sampled deep GPs: against SGHMC, an exact posterior, and with hyperparameters."""

from __future__ import annotations

import gpflow
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

import gpflow_deep as gd
from gpflow_deep.models import SampledDeepGP
from gpflow_deep.optimizers import SGHMC, sample_no_u_turn

RNG = np.random.default_rng(0)
X = np.linspace(-1.5, 1.5, 12)[:, None]
Y = np.sin(3.0 * X) + 0.2 * RNG.standard_normal(X.shape)


def make(
    num_chains: int, hidden_dims: tuple[int, ...] = (), noise: float = 0.1, **settings: object
) -> SampledDeepGP:
    layers = gd.layers.build_layers(X, hidden_dims, 1, 4)
    return SampledDeepGP(
        layers,
        gpflow.likelihoods.Gaussian(noise),
        num_chains=num_chains,
        num_data=len(X),
        **settings,
    )


def moments(model: SampledDeepGP) -> tuple[np.ndarray, np.ndarray]:
    """Of the functions at the inputs, over the kept states."""
    trace = tf.reshape(model.predict_f_trace(X), [-1, len(X)]).numpy()
    return trace.mean(axis=0), trace.std(axis=0)


def test_two_layers_agree_with_sghmc() -> None:
    """
    The same target, hidden draws and all, by both: means and deviations of the functions. With that much
    noise it has one mode only.
    """
    C, S = 16, 2
    model = make(C, (1,), noise=1.0, num_prediction_samples=1600)
    samples = sample_no_u_turn(
        model, (X, Y), num_states=100, num_burn_in=100, num_draws=S, max_tree_depth=5
    )
    assert 0.6 < samples.acceptance <= 1.0
    assert samples.divergences < 5
    mean, deviation = moments(model)

    other = make(C, (1,), noise=1.0, num_prediction_samples=1600)
    noise = [tf.tile(z, [C, 1, 1]) for z in model.draw_noise(len(X), num_samples=S, seed=[0, 0])]
    sampler = SGHMC(0.05, 0.1, burn_in=300)

    @tf.function(autograph=False)
    def take() -> None:
        def body(i: tf.Tensor) -> tf.Tensor:
            sampler.minimize(
                lambda: -other.maximum_log_likelihood_objective((X, Y), noise),
                other.inducing_posterior.variables_of_chains,
            )
            return i + 1

        tf.while_loop(lambda i: i < 20, body, [0])

    for step in range(120):
        take()
        if step >= 20:
            other.inducing_posterior.keep()
    other_mean, other_deviation = moments(other)
    np.testing.assert_allclose((other_mean - mean) / deviation, 0.0, atol=0.15)
    np.testing.assert_allclose(other_deviation / deviation, 1.0, atol=0.12)


def test_hyperparameters_have_the_exact_marginal() -> None:
    """The noise of one layer, whose posterior is a quadrature of SGPR's bound."""
    model = make(1, observation_term="variational")
    prior = tfp.distributions.LogNormal(np.float64(-2.0), np.float64(1.0))
    model.likelihood.variance.prior = prior
    samples = sample_no_u_turn(
        model, (X, Y), hyperparameters=True, num_states=500, num_burn_in=150, max_tree_depth=4
    )
    assert samples.parameters[-1] is model.likelihood.variance
    log_noise = np.log(samples.values[-1])
    sgpr = gpflow.models.SGPR((X, Y), model.kernel, model.inducing_variable, noise_variance=0.1)
    grid = np.linspace(-6.0, 1.0, 100)
    density = []
    for value in np.exp(grid):
        sgpr.likelihood.variance.assign(value)
        density.append(sgpr.elbo() + prior.log_prob(value) + np.log(value))
    weights = np.exp(np.array(density) - np.max(density))
    weights /= weights.sum()
    mean = weights @ grid
    deviation = np.sqrt(weights @ (grid - mean) ** 2)
    assert abs(log_noise.mean() - mean) < 0.3 * deviation
    assert abs(log_noise.std() - deviation) < 0.3 * deviation
    # Predictions mix over the hyperparameters, and leave them as they were.
    last = model.likelihood.variance.numpy()
    mixture = samples.mixture(lambda: model.predict_y_mixture(X, num_samples=2), num_states=20)
    assert mixture.means.shape == (40, len(X), 1)
    np.testing.assert_allclose(tf.reduce_logsumexp(mixture.log_weights), 0.0, atol=1e-12)
    assert len(np.unique(np.round(mixture.variances[:, 0, 0], 12))) > 15
    assert model.likelihood.variance.numpy() == pytest.approx(last, rel=1e-12)


def test_chains_that_are_not_trainable_stay() -> None:
    model = make(1, (1,))
    chains = model.inducing_posterior.chains
    before = [chain.numpy() for chain in chains]
    gpflow.set_trainable(chains[0], False)
    options = dict(num_states=3, num_burn_in=3, num_draws=2, max_tree_depth=2)
    samples = sample_no_u_turn(model, (X, Y), **options)
    assert samples.parameters == [chains[1]]
    np.testing.assert_array_equal(chains[0], before[0])
    assert np.abs(chains[1].numpy() - before[1]).max() > 0.0
    assert [chain.trainable for chain in chains] == [False, True]
    gpflow.set_trainable(chains[1], False)
    with pytest.raises(
        ValueError, match="model: expected trainable chains, or hyperparameters=True"
    ):
        sample_no_u_turn(model, (X, Y), **options)


def test_bad_input() -> None:
    with pytest.raises(ValueError, match="hyperparameters: expected some trainable parameter"):
        sample_no_u_turn(make(1), (X, Y), hyperparameters=True)
    with pytest.raises(ValueError, match="hyperparameters: expected a model with num_chains=1"):
        sample_no_u_turn(make(2), (X, Y), hyperparameters=True)
    with pytest.raises(ValueError, match="num_states: expected"):
        sample_no_u_turn(make(1), (X, Y), num_states=0)
    for settings, message in (
        (
            {"target_acceptance": 80.0},
            "target_acceptance: expected a number between 0 and 1, got 80",
        ),
        ({"target_acceptance": 1.0}, "target_acceptance: expected a number between 0 and 1, got 1"),
        ({"seed": -1}, "seed: expected an integer"),
        (
            {"data": (X[1:], Y[1:])},
            "model.num_data: expected the number of rows of data, 11, or None",
        ),
    ):
        with pytest.raises(ValueError, match=message):
            sample_no_u_turn(make(1), **{"data": (X, Y), **settings})
    model = gd.models.DeepGP(make(1).layers, gpflow.likelihoods.Gaussian())
    with pytest.raises(TypeError, match="model: expected a SampledDeepGP, got DeepGP"):
        sample_no_u_turn(model, (X, Y))
