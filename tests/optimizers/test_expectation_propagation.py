"""What a sweep leaves in the model, updates of factors that cannot be made, and what changes between them."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import gpflow_deep as gd
from gpflow_deep.layers.covariances import Kuf
from gpflow_deep.optimizers import ExpectationPropagation, StochasticEP
from gpflow_deep.optimizers.expectation_propagation import _moments, _whiten
from gpflow_deep.posteriors.tied_factor import TiedFactor

RNG = np.random.default_rng(0)
X = RNG.uniform(-2.0, 2.0, (30, 1))
Y = np.sin(3.0 * X) + 0.3 * RNG.normal(size=X.shape)


def make(likelihood: Any) -> gd.models.FITCEPDeepGP:
    layers = gd.layers.build_separate_layers(X, hidden_dims=(), num_inducing=5)
    return gd.models.FITCEPDeepGP(layers, likelihood, num_data=len(X))


def test_a_cavity_that_is_no_gaussian_is_a_rejected_update() -> None:
    model = make(gpflow.likelihoods.StudentT(0.1))
    ep = ExpectationPropagation(model, (X, Y))
    assert ep.sweep() == 0
    sites = [value.numpy() for value in ep.sites[0]]
    assert ep.sweep() == 1
    changed = [(value.numpy() != old).any(axis=(1, -1)) for value, old in zip(ep.sites[0], sites)]
    assert changed[1].sum() == len(X) - 1
    assert np.isfinite(model.predict_f(X)).all()


def test_a_batch_without_moments_is_a_rejected_update(monkeypatch: pytest.MonkeyPatch) -> None:
    model = make(gpflow.likelihoods.Gaussian(0.1))
    sep = StochasticEP(model)
    log_Z = sep._log_Z
    monkeypatch.setattr(sep, "_log_Z", lambda *args: np.nan * log_Z(*args))
    before = [value.numpy() for value in sep._old()[0]]
    (share,) = sep.step((X, Y))
    assert share.tolist() == [0.0]
    for value, old in zip(sep._old()[0], before):
        np.testing.assert_allclose(value, old, atol=1e-10)


def test_number_of_factors_is_the_present_one() -> None:
    model = make(gpflow.likelihoods.Gaussian(0.1))
    sep = StochasticEP(model)
    sep.propose((X, Y))
    model.num_data = 3000
    (natural,), (expected,) = sep.propose((X, Y)), StochasticEP(model).propose((X, Y))
    np.testing.assert_array_equal(natural.precision, expected.precision)


def test_number_of_factors_may_be_a_variable() -> None:
    model = make(gpflow.likelihoods.Gaussian(0.1))
    model.num_data = 3000
    (expected,) = StochasticEP(model).propose((X, Y))
    model.num_data = tf.Variable(3000, trainable=False)
    (natural,) = StochasticEP(model).propose((X, Y))
    np.testing.assert_array_equal(natural.precision, expected.precision)


def make_deep(likelihood: Any) -> gd.models.FITCEPDeepGP:
    """Whose factors make some functions of the hidden layer less certain than their prior."""
    layers = gd.layers.build_separate_layers(X, hidden_dims=(2,), num_inducing=5)
    return gd.models.FITCEPDeepGP(layers, likelihood, noise_variance=0.7, num_data=len(X))


@pytest.mark.parametrize(
    "likelihood", [gpflow.likelihoods.Gaussian(0.1), gpflow.likelihoods.StudentT(0.3)]
)
def test_the_model_has_the_posterior_of_all_factors(likelihood: Any) -> None:
    model = make_deep(likelihood)
    ep = ExpectationPropagation(model, (X, Y))
    evidence = []
    for _ in range(4):
        assert ep.sweep() == 0
        evidence.append(float(ep.log_evidence()))
        factors = ep._prior_factors()
        for site, factor, weights in zip(ep.sites, factors, model._prepare(), strict=True):
            product = _whiten(type(site)(*(tf.reduce_sum(x, axis=0) for x in site)), factor)
            expected = _moments(product)
            mean, covariance = weights.inducing_moments(factor, whiten=True)
            np.testing.assert_allclose(mean, expected.mean, atol=1e-9)
            np.testing.assert_allclose(covariance, expected.covariance, atol=1e-9)
    assert np.linalg.eigvalsh(_moments_of_hidden(model)).max() > 1.05  # the prior's are 1
    assert abs(evidence[-1] - evidence[-2]) < 0.1 * abs(evidence[1] - evidence[0])


def test_factors_that_are_shares_of_the_tied_one_have_its_energy() -> None:
    model = make_deep(gpflow.likelihoods.Gaussian(0.1))
    for layer, (T, M) in enumerate([(2, 5), (1, 5)]):
        root = np.tril(RNG.normal(size=[T, M, M])) + 2.0 * np.eye(M)
        precision = np.einsum("tij,tkj->tik", root, root)
        model.inducing_posterior.assign_natural_parameters(
            layer, precision, RNG.normal(size=[T, M])
        )
    ep = ExpectationPropagation(model, (X, Y), damping=0.5, from_tied_factor=True)
    np.testing.assert_allclose(ep.log_evidence(), model.energy((X, Y)), rtol=1e-9)
    # It goes where it goes without.
    other = ExpectationPropagation(make_deep(gpflow.likelihoods.Gaussian(0.1)), (X, Y), damping=0.5)
    for _ in range(25):
        ep.sweep(), other.sweep()
    np.testing.assert_allclose(ep.log_evidence(), other.log_evidence(), rtol=1e-5)


def _moments_of_hidden(model: gd.models.FITCEPDeepGP) -> np.ndarray:
    factor = np.linalg.cholesky(model._prior_covariances()[0])
    return np.asarray(model._prepare()[0].inducing_moments(factor, whiten=True)[1])


@pytest.mark.parametrize("num_data, num_inducing", [(30, 5), (30, 25), (4, 10)])
def test_one_layer_is_exact_with_any_number_of_inducing_points(
    num_data: int, num_inducing: int
) -> None:
    """Predictions of FITC by dense matrices, of inducing points that repeat each other, and of few data."""
    x, y = X[:num_data], Y[:num_data]
    layers = gd.layers.build_separate_layers(X, hidden_dims=(), num_inducing=num_inducing)
    likelihood = gpflow.likelihoods.Gaussian(0.05)
    model = gd.models.FITCEPDeepGP(layers, likelihood, num_data=num_data)
    ep = ExpectationPropagation(model, (x, y))
    assert ep.sweep() == 0
    np.testing.assert_allclose(
        ep.log_evidence(), gd.models.collapsed_evidence(layers[0], likelihood, (x, y)), rtol=1e-7
    )
    grid = np.linspace(-3.0, 3.0, 7)[:, None]
    (K,) = (np.asarray(k).reshape([num_inducing] * 2) for k in model._prior_covariances())
    cross = [
        np.asarray(Kuf(layers[0].inducing_variable, layers[0].kernel, tf.constant(points)))
        for points in (x, grid)
    ]
    A, B = (k.reshape([num_inducing, -1]) for k in cross)
    prior = float(layers[0].kernel.kernels[0].variance.numpy())
    noise = prior - np.sum(A * np.linalg.solve(K, A), axis=0) + 0.05
    precision = K + (A / noise) @ A.T
    mean, variance = model.predict_f(grid)
    np.testing.assert_allclose(mean, B.T @ np.linalg.solve(precision, (A / noise) @ y), atol=1e-6)
    explained = np.sum(B * (np.linalg.solve(K, B) - np.linalg.solve(precision, B)), axis=0)
    np.testing.assert_allclose(variance[:, 0], prior - explained, atol=1e-6)


_ENTRIES = arrays(np.float64, (4, 4), elements=st.floats(-3.0, 3.0))


@given(root=_ENTRIES, linear=arrays(np.float64, 4, elements=st.floats(-3.0, 3.0)))
def test_any_gaussian_can_be_assigned(root: np.ndarray, linear: np.ndarray) -> None:
    """Wider than the prior in some directions, narrower in others, and in some the same."""
    layers = gd.layers.build_separate_layers(X, hidden_dims=(), num_inducing=4)
    posterior = TiedFactor(layers)
    covariance = np.asarray(layers[0].kernel.kernels[0](X[:4]) + 1e-3 * np.eye(4))
    factor = np.linalg.cholesky(covariance)
    precision = root @ root.T + np.diag([0.0, 0.0, -0.5, 2.0])
    lowest = np.linalg.eigvalsh(precision)[0]
    precision += max(0.0, -0.9 - lowest) * np.eye(4)
    posterior.assign_product(0, factor[None], precision[None], linear[None])
    weights = posterior.weights(0, tf.constant(covariance[None]), 1.0)
    mean, own = weights.inducing_moments(factor[None], whiten=True)
    expected = np.linalg.inv(np.eye(4) + precision)
    np.testing.assert_allclose(own[0], expected, atol=1e-6)
    np.testing.assert_allclose(mean[0], expected @ linear, atol=1e-5)


def test_what_a_sweep_leaves_goes_with_the_model(tmp_path: Path) -> None:
    model, other = (make_deep(gpflow.likelihoods.Gaussian(0.1)) for _ in range(2))
    ExpectationPropagation(model, (X, Y)).sweep()
    _, variance = model.predict_f(X)
    path = tf.train.Checkpoint(model=model).write(str(tmp_path / "model"))
    tf.train.Checkpoint(model=other).restore(path)
    for same in (other, copy.deepcopy(model), gpflow.utilities.deepcopy(model)):
        np.testing.assert_array_equal(same.predict_f(X)[1], variance)
    # No free numbers: neither of them is for an optimiser, whatever is set trainable.
    numbers = len(model.trainable_variables), len(model.trainable_parameters)
    gpflow.set_trainable(model, False)
    gpflow.set_trainable(model, True)
    assert (len(model.trainable_variables), len(model.trainable_parameters)) == numbers
    # A factor of other parameters stands for itself again.
    posterior = model.inducing_posterior
    for layer in range(2):
        posterior.assign_natural_parameters(layer, *posterior.natural_parameters(layer))
    assert np.linalg.eigvalsh(_moments_of_hidden(model)).max() < 1.0 + 1e-6
