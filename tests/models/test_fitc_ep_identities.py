"""What FITC-EP must agree with: other models, limits, sampling, itself in other guises."""

from __future__ import annotations

from functools import partial
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow.keras import tf_keras
from gpflow.likelihoods import Bernoulli, Gaussian, MultiClass, Softmax, StudentT
from hypothesis import given, settings
from hypothesis import strategies as st

import gpflow_deep as gd
from gpflow_deep.layers.covariances import Kuf, Kuu
from gpflow_deep.posteriors.tied_factor import small_perturbation
from tests.models.contract import XNEW, X, Y, make_model, randomise


def fitc(hidden_dims: tuple[int, ...] = (2,), likelihood: Any = None, **settings: Any) -> Any:
    layers = gd.layers.build_layers(X, hidden_dims, settings.pop("output_dim", 1), 5)
    settings = {"num_data": len(X), **settings}
    model = gd.models.FITCEPDeepGP(layers, likelihood or Gaussian(0.1), **settings)
    randomise(model)
    return model


# ---------------------------------------------------------------- one layer


def set_exact_factor(model: Any, alpha: float) -> None:
    """The product of the exact factors of power EP with a Gaussian likelihood and one layer."""
    (layer,) = model.layers
    K = Kuu(layer.inducing_variable, layer.kernel, gpflow.config.default_jitter()).numpy()
    k = Kuf(layer.inducing_variable, layer.kernel, tf.constant(X)).numpy()
    w = np.linalg.solve(K, k)  # [M, N]
    residual = layer.kernel(X, full_cov=False).numpy() - (k * w).sum(0)
    noise = alpha * residual + model.likelihood.variance.numpy()
    T1, T2 = (w / noise) @ w.T, (w / noise) @ (Y - layer.mean_function(X).numpy())
    model.inducing_posterior.assign_natural_parameters(0, T1[None], T2.T)


def one_layer(alpha: float = 1.0) -> Any:
    return fitc((), alpha=alpha)


def gpflow_model(model: Any, make: type) -> Any:
    (layer,) = model.layers
    return make(
        (X, Y),
        layer.kernel,
        layer.inducing_variable,
        noise_variance=float(model.likelihood.variance.numpy()),
    )


def test_exact_factor_is_fitc() -> None:
    """GPflow's FITC: its evidence, its predictions, and EP's and stochastic EP's fixed point."""
    model = one_layer()
    set_exact_factor(model, 1.0)
    theirs = gpflow_model(model, gpflow.models.GPRFITC)
    evidence = theirs.maximum_log_likelihood_objective()
    expected = theirs.predict_f(XNEW)
    ours = gd.models.collapsed_evidence(model.layers[0], model.likelihood, (X, Y))
    np.testing.assert_allclose(ours, evidence, rtol=1e-9)
    np.testing.assert_allclose(model.predict_f(XNEW), expected, rtol=1e-6, atol=1e-8)
    for full_cov in (False, True):
        np.testing.assert_allclose(
            model.predict_f(XNEW, full_cov=full_cov)[1],
            theirs.predict_f(XNEW, full_cov=full_cov)[1],
            rtol=1e-6,
            atol=1e-8,
        )

    randomise(model.inducing_posterior)
    sep = gd.optimizers.StochasticEP(model, damping=1.0)
    # The exact factors do not depend on the cavity: all points at once are there in one step, ...
    assert sep.step((X, Y)) == [1.0]
    np.testing.assert_allclose(model.predict_f(XNEW), expected, rtol=1e-6, atol=1e-8)
    # ... where they stay.
    assert sep.step((X, Y)) == [1.0]
    np.testing.assert_allclose(model.predict_f(XNEW), expected, rtol=1e-6, atol=1e-8)

    randomise(model.inducing_posterior)
    ep = gd.optimizers.ExpectationPropagation(model, (X, Y))
    assert ep.sweep() == 0
    np.testing.assert_allclose(ep.log_evidence(), evidence, rtol=1e-8)
    np.testing.assert_allclose(model.predict_f(XNEW), expected, rtol=1e-6, atol=1e-8)


def test_evidence_of_ep_has_the_gradients_of_fitc() -> None:
    """At fixed factors, as at EP's fixed point they may be."""
    model = one_layer()
    data = X[:6], Y[:6]
    ep = gd.optimizers.ExpectationPropagation(model, data)
    ep.sweep()
    for parameter in (*model.layers[0].kernel.trainable_parameters, model.likelihood.variance):
        ends = []
        before = parameter.numpy()
        for shift in (1e-4, -1e-4):
            parameter.assign(before * (1.0 + shift))
            exact = gd.models.collapsed_evidence(model.layers[0], model.likelihood, data)
            ends.append([float(ep.log_evidence()), float(exact)])
        parameter.assign(before)
        difference = np.subtract(*ends)
        np.testing.assert_allclose(*difference, rtol=1e-4, atol=1e-8)


def test_variational_limit_is_titsias() -> None:
    """At the optimal factor the energy of power 0 is the bound; elsewhere it is below."""
    model = one_layer(alpha=0.0)
    set_exact_factor(model, 0.0)
    theirs = gpflow_model(model, gpflow.models.SGPR)
    np.testing.assert_allclose(model.energy((X, Y)), theirs.elbo(), rtol=1e-7)
    collapsed = gd.models.collapsed_evidence(model.layers[0], model.likelihood, (X, Y), alpha=0.0)
    np.testing.assert_allclose(collapsed, theirs.elbo(), rtol=1e-9)
    np.testing.assert_allclose(model.predict_f(XNEW), theirs.predict_f(XNEW), rtol=1e-5, atol=1e-7)
    best = float(model.energy((X, Y)))
    for seed in range(3):
        randomise(model.inducing_posterior, seed=seed, scale=0.02)
        assert float(model.energy((X, Y))) < best


@pytest.mark.parametrize("alpha", [0.3, 1.0])
def test_identical_points_and_one_point(alpha: float) -> None:
    """With one point, or copies of one, the tied factor is no approximation."""
    model = one_layer(alpha)
    x, y = X[:1], Y[:1]
    exact = gd.models.collapsed_evidence(model.layers[0], model.likelihood, (x, y), 1.0)
    if alpha == 1.0:
        model.num_data = 1
        np.testing.assert_allclose(model.energy((x, y)), exact, rtol=1e-10)
    N = 6
    data = np.repeat(x, N, axis=0), np.repeat(y, N, axis=0)
    (layer,) = model.layers
    w = np.linalg.solve(
        Kuu(layer.inducing_variable, layer.kernel, gpflow.config.default_jitter()),
        Kuf(layer.inducing_variable, layer.kernel, tf.constant(x)),
    )
    covariance = (
        layer.kernel(x).numpy() - w.T @ Kuf(layer.inducing_variable, layer.kernel, x).numpy()
    )
    noise = alpha * covariance[0, 0] + model.likelihood.variance.numpy()
    T1 = N * w @ w.T / noise + 1e-8 * np.eye(len(w))
    model.inducing_posterior.assign_natural_parameters(0, T1[None], N * w.T * y / noise)
    model.num_data = N
    collapsed = gd.models.collapsed_evidence(layer, model.likelihood, data, alpha)
    np.testing.assert_allclose(model.energy(data), collapsed, rtol=1e-5)


# ---------------------------------------------------------------- several layers


@pytest.mark.parametrize("full", [False, True])
def test_two_layers_have_the_moments_of_samples(full: bool) -> None:
    """Exact under q: layer by layer sampling agrees, outputs' covariances too."""
    model = fitc(output_dim=2, full_covariance=full)
    S = 100_000
    mean, covariance = model.predict_f(XNEW[:3], full_output_cov=True)
    draws = model.predict_f_samples(XNEW[:3], S, full_cov=False).numpy()  # [S, N, P]
    error = draws.std(0) / S**0.5
    np.testing.assert_array_less(np.abs(draws.mean(0) - mean), 5 * error)
    centred = draws - draws.mean(0)
    products = centred[..., :, None] * centred[..., None, :]
    error = products.std(0) / S**0.5
    np.testing.assert_array_less(np.abs(products.mean(0) - covariance), 5 * error)


@pytest.mark.parametrize("noise_variance", [0.01, 0.5])
def test_joint_draws_have_the_moments_of_single_points(noise_variance: float) -> None:
    """The hidden layers' noise is part of them."""
    model = fitc(noise_variance=noise_variance)
    S = 4000
    mean, variance = model.predict_f(XNEW[:3])
    draws = model.predict_f_samples(XNEW[:3], S, full_cov=True).numpy()
    np.testing.assert_array_less(np.abs(draws.mean(0) - mean), 5 * draws.std(0) / S**0.5)
    np.testing.assert_allclose(draws.var(0), variance, rtol=0.15)
    joint = model._joint_mixture(tf.constant(XNEW[:3]), model._prepare())
    between = joint.means.numpy().var(0)[:, 0]
    within = np.diag(joint.variances.numpy().mean(0)[0])
    np.testing.assert_allclose(between + within, variance.numpy()[:, 0], rtol=0.3)


def test_propagated_draws_have_the_matched_moments() -> None:
    model = fitc(noise_variance=0.2)
    (hidden, output), S = model.propagate(XNEW[:3]), 4000
    drawn = model.propagate(XNEW[:3], noise=[np.random.default_rng(0).standard_normal((S, 3, 2))])
    np.testing.assert_allclose(drawn[0].sample.numpy().var(0), hidden.covariance[0], rtol=0.15)
    np.testing.assert_allclose(drawn[1].sample.numpy().var(0), output.covariance[0], rtol=0.15)


def test_prior_kl_is_that_of_the_variational_limit() -> None:
    model = fitc(alpha=0.0)
    expectation = model.energy((X, Y)) + model.prior_kl()
    mean, variance = model.predict_f(X)
    expected = model.likelihood.variational_expectations(X, mean, variance, Y)
    np.testing.assert_allclose(expectation, tf.reduce_sum(expected), rtol=1e-8)
    model.inducing_posterior = gd.posteriors.TiedFactor(model.layers)
    for index, (T, M) in enumerate([(2, 5), (1, 5)]):
        small = np.broadcast_to(1e-8 * np.eye(M), (T, M, M))
        model.inducing_posterior.assign_natural_parameters(index, small, np.zeros((T, M)))
    np.testing.assert_allclose(model.prior_kl(), 0.0, atol=1e-10)
    assert np.isfinite(expectation)


def test_draws_of_the_prior_have_the_noise_of_the_hidden_layer() -> None:
    """Through a linear kernel the last layer's variance is that of the hidden outputs, summed."""
    layers = [
        gd.layers.GPLayer(gpflow.kernels.SquaredExponential(variance=0.5), X[:5], 2),
        gd.layers.GPLayer(gpflow.kernels.Linear(), np.eye(2), 1),
    ]
    model = gd.models.FITCEPDeepGP(layers, Gaussian(0.1), noise_variance=0.7)
    hidden, output = model.sample_prior(XNEW[:4], 20_000, seed=0)
    np.testing.assert_allclose(np.var(hidden, axis=0), 1.2, rtol=0.05)
    np.testing.assert_allclose(np.var(output, axis=0), 2.4, rtol=0.07)


def test_full_covariance_of_an_unknown_number_of_points() -> None:
    model = fitc(full_covariance=True)
    posterior, expected = model.posterior(), model.predict_y(XNEW)
    for _ in range(2):  # compiled from the second call on
        np.testing.assert_allclose(posterior.predict_y(XNEW), expected, rtol=1e-9)


def test_full_covariance_matters_from_the_third_layer() -> None:
    for hidden, same in (((2,), True), ((2, 2), False)):
        diagonal, full = (
            fitc(hidden, full_covariance=choice).predict_f(XNEW)[1] for choice in (False, True)
        )
        assert np.allclose(diagonal, full, rtol=1e-9) == same


def test_energy_tends_to_its_variational_limit() -> None:
    """Linearly in the power, for regression and classification."""
    for make, targets in ((lambda: Gaussian(0.1), Y), (Bernoulli, (Y > 0).astype(float))):
        energies = {}
        for alpha in (0.0, 1e-4, 2e-4):
            model = fitc(likelihood=make(), alpha=alpha)
            energies[alpha] = float(model.energy((X, targets)))
        first, second = (energies[a] - energies[0.0] for a in (1e-4, 2e-4))
        assert abs(first) < 0.1
        np.testing.assert_allclose(second, 2 * first, rtol=0.02)


@pytest.mark.parametrize("name", ["softmax", "multiclass", "student"])
def test_other_likelihoods_train(name: str) -> None:
    likelihood, outputs, targets = {
        "softmax": (Softmax(3), 3, np.digitize(Y, [-0.3, 0.3])),
        "multiclass": (MultiClass(3), 3, np.digitize(Y, [-0.3, 0.3]).astype(float)),
        "student": (StudentT(0.3), 1, Y),
    }[name]
    model = fitc(likelihood=likelihood, output_dim=outputs)
    before = float(model.energy((X, targets)))
    assert before == float(model.energy((X, targets)))
    gd.training.fit(model, (X, targets), steps=60, learning_rate=0.05, progress=False)
    assert float(model.energy((X, targets))) > before + 1.0


def test_a_kernel_that_mixes_is_refused() -> None:
    """Moments do not go through its W."""
    parts = [gpflow.kernels.Matern52(), gpflow.kernels.Matern32()]
    mixing = gpflow.kernels.LinearCoregionalization(parts, np.eye(2))
    layers = [gd.layers.GPLayer(mixing, X[:5].copy(), 2)]
    with pytest.raises(ValueError, match="layers: .* does not mix its GPs, got LinearCoreg"):
        gd.models.FITCEPDeepGP(layers, Gaussian())


def test_stochastic_ep_of_a_deep_model() -> None:
    """Goes on from where a few steps of Adam have led, to a better fit; rejects what it must."""
    model = fitc()
    sep = gd.optimizers.StochasticEP(model, damping=0.9)
    assert sep.step((X, Y))[0].min() < 0.9
    gd.training.fit(model, (X, Y), steps=50, learning_rate=0.05, progress=False)
    before = float(model.energy((X, Y)))
    sep = gd.optimizers.StochasticEP(model, damping=0.1)
    for _ in range(20):
        shares = np.concatenate(sep.step((X, Y)))
    assert shares.max() == 0.1
    assert float(model.energy((X, Y))) > before + 0.2


def test_stochastic_ep_alternates_with_steps_for_the_rest() -> None:
    """Each leaves the other's parameters alone, sees what it did, and the energy rises with both."""
    model = fitc()
    gd.training.fit(model, (X, Y), steps=50, learning_rate=0.05, progress=False)
    gpflow.set_trainable(model.inducing_posterior, False)
    sep, adam = gd.optimizers.StochasticEP(model), tf_keras.optimizers.Adam(0.02)
    loss = model.training_loss_closure((X, Y), compile=True)
    kernel, factor = model.layers[0].kernel, model.inducing_posterior
    before = float(model.energy((X, Y)))
    for _ in range(10):
        held = gpflow.utilities.read_values(kernel)
        sep.step((X, Y))
        assert_same_values(kernel, held)
        held = gpflow.utilities.read_values(factor)
        adam.minimize(loss, model.trainable_variables)
        assert_same_values(factor, held)
    assert float(model.energy((X, Y))) > before + 0.2


def assert_same_values(module: tf.Module, values: dict[str, np.ndarray]) -> None:
    now = gpflow.utilities.read_values(module)
    assert all(np.array_equal(now[name], value) for name, value in values.items())


# ---------------------------------------------------------------- numerics


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 1000),
    log_fraction=st.floats(-9.0, -0.01),
    log_scale=st.floats(-6.0, 0.0),
)
def test_small_perturbations(seed: int, log_fraction: float, log_scale: float) -> None:
    """Both ways of a fraction give what its eigenvalues do, without loss."""
    rng = np.random.default_rng(seed)
    Q, _ = np.linalg.qr(rng.normal(size=(6, 6)))
    values = rng.uniform(0.0, 1.0, 6) * 10.0**log_scale
    fraction = 10.0**log_fraction
    D, x = tf.constant(((Q * values) @ Q.T)[None]), rng.normal(size=(1, 6))
    rate, solution = small_perturbation(D, fraction, tf.constant(x))
    np.testing.assert_allclose(
        rate, np.sum(np.log1p(fraction * values)) / fraction, rtol=1e-11, atol=1e-12
    )
    expected = (Q / (1.0 + fraction * values)) @ Q.T @ x[0]
    np.testing.assert_allclose(solution[0], expected, rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize("fraction", [1.0 / 64.0, 1e-3, 1e-8])
def test_small_perturbations_to_the_last_digit(fraction: float) -> None:
    """Of an identity matrix, of which rounding takes nothing."""
    D, x = tf.eye(3, batch_shape=[1], dtype=tf.float64), tf.ones([1, 3], tf.float64)
    rate, solution = small_perturbation(D, fraction, x)
    np.testing.assert_allclose(rate, 3.0 * np.log1p(fraction) / fraction, rtol=1e-14)
    np.testing.assert_allclose(solution, x / (1.0 + fraction), rtol=1e-14)


def test_half_a_million_points_in_single_precision() -> None:
    double = fitc(num_data=500_000)
    expected = double.energy((X, Y))
    gpflow.config.set_default_float(np.float32)
    single = fitc(num_data=500_000)
    gpflow.utilities.multiple_assign(single, gpflow.utilities.read_values(double))
    actual = single.energy((X, Y))
    gpflow.config.set_default_float(np.float64)
    np.testing.assert_allclose(actual, expected, rtol=1e-5)


def test_number_of_points_may_be_a_variable() -> None:
    """As of a pipeline whose data grow: what is compiled follows it."""
    model = fitc()
    values = gpflow.utilities.read_values(model)
    model.num_data = tf.Variable(10.0, trainable=False)
    loss = model.training_loss_closure((X, Y))
    for number in (len(X), 500):
        model.num_data.assign(number)
        plain = fitc(num_data=number)
        gpflow.utilities.multiple_assign(plain, values)
        np.testing.assert_allclose(loss(), plain.training_loss((X, Y)), rtol=1e-12)
        moments = model.propagate(X, cavity=True)[-1], plain.propagate(X, cavity=True)[-1]
        np.testing.assert_allclose(moments[0].mean, moments[1].mean, rtol=1e-12)


# ---------------------------------------------------------------- bad input


def test_collapsed_evidence_with_any_gaussian_noise() -> None:
    x, y = X[:8], Y[:8]
    layer = gd.layers.GPLayer(gpflow.kernels.Matern32(), x.copy(), 1)
    evidence = partial(gd.models.collapsed_evidence, layer, data=(x, y))
    expected = evidence(Gaussian(0.09))
    for noise in (Gaussian(scale=0.3), Gaussian(variance=gpflow.functions.Constant(0.09))):
        np.testing.assert_allclose(evidence(noise), expected, rtol=1e-9)
    # Inducing inputs at all points: the exact GP's, also where the noise differs from point to point.
    noise = Gaussian(scale=gpflow.functions.Linear([[0.2], [-0.1]], [1.0]))
    exact = gpflow.models.GPR((x, y), layer.kernel, layer.mean_function, likelihood=noise)
    np.testing.assert_allclose(evidence(noise), exact.log_marginal_likelihood(), rtol=1e-5)


def test_collapsed_evidence_of_columns_with_noise_of_their_own() -> None:
    """The sum of the columns' own, and the bound that a model of one layer has at its best."""
    x, y = X[:20], np.hstack([Y[:20], np.cos(Y[:20])])
    layer = partial(gd.layers.GPLayer, gpflow.kernels.Matern52(), x[::3].copy())
    for alpha in (0.0, 0.5, 1.0):
        together = gd.models.collapsed_evidence(
            layer(2), Gaussian(np.array([[0.1, 0.7]])), (x, y), alpha
        )
        each = [
            gd.models.collapsed_evidence(layer(1), Gaussian(noise), (x, y[:, p : p + 1]), alpha)
            for p, noise in enumerate([0.1, 0.7])
        ]
        np.testing.assert_allclose(together, sum(each))


def test_collapsed_evidence_of_data_that_do_not_fit() -> None:
    (layer,) = one_layer().layers
    mixing = gpflow.kernels.LinearCoregionalization([layer.kernel] * 2, np.eye(2))
    mixed = gd.layers.GPLayer(mixing, X[:5].copy(), 2)
    cases = [
        (mixed, (X, np.c_[Y, Y]), "layer: .* does not mix its GPs, got LinearCoregionalization"),
        (layer, (X, Y[:1]), "data: expected as many inputs as targets, got 20 and 1"),
        (layer, (np.c_[X, X], Y), r"data\[0\]: expected \[N, 2\].*\(20, 4\)"),
        (layer, (X, np.c_[Y, Y]), r"data\[1\]: expected \[N, 1\].*\(20, 2\)"),
    ]
    for one, data, match in cases:
        with pytest.raises(ValueError, match=match):
            gd.models.collapsed_evidence(one, Gaussian(), data)


def test_bad_arguments() -> None:
    layers = gd.layers.build_layers(X, (2,), 1, 5)
    for alpha in (-0.1, 1.5, "1", True):
        with pytest.raises(ValueError, match="alpha.*from 0 to 1"):
            gd.models.FITCEPDeepGP(layers, Gaussian(), alpha=alpha)
    with pytest.raises(ValueError, match="noise_variance.*positive.*0"):
        gd.models.FITCEPDeepGP(layers, Gaussian(), noise_variance=0.0)
    model = fitc()
    with pytest.raises(ValueError, match="positive definite.*layer 1.*eigenvalue"):
        model.inducing_posterior.assign_natural_parameters(1, -np.eye(5)[None], np.zeros([1, 5]))
    with pytest.raises(ValueError, match="damping.*0"):
        gd.optimizers.StochasticEP(model, damping=0.0)
    with pytest.raises(ValueError, match="alpha=1"):
        gd.optimizers.StochasticEP(fitc(alpha=0.5))
    with pytest.raises(TypeError, match="FITCEPDeepGP.*DeepGP"):
        gd.optimizers.StochasticEP(make_model("mean-field"))
