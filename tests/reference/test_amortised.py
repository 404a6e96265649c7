"""Amortised deep GPs and their baselines against the reference values, through the public interface."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from gpflow_deep import metrics
from gpflow_deep.experiments.scores import published_crps
from tests.reference.amortised_cases import (
    CASES,
    along,
    amortized_model,
    draws,
    orthogonal_model,
    parameters,
    sparse_model,
)

SPARSE = [name for name, case in CASES.items() if case.meta["kind"] == "dgp"]
SOLVE = [name for name, case in CASES.items() if case.meta["kind"] == "solve"]
CRPS = [name for name, case in CASES.items() if case.meta["kind"] == "crps"]
AMORTIZED = [name for name, case in CASES.items() if case.meta["kind"] == "avdgp"]


def _close(actual: tf.Tensor, expected: np.ndarray, rtol: float = 1e-8) -> None:
    np.testing.assert_allclose(actual, expected, rtol=rtol, atol=1e-10)


@pytest.mark.parametrize("name", AMORTIZED)
def test_variational_parameters(name: str) -> None:
    case = CASES[name]
    layer = amortized_model(case).layers[0]
    Z, mean, scale = layer.variational_parameters(case["in/x"])
    covariance = tf.matmul(scale, scale, transpose_b=True) if layer.full_covariance else None
    _close(Z, case["out/layer0/Z"])
    _close(mean, case["out/layer0/mu"])
    if covariance is None:
        covariance = tf.linalg.diag(scale**2)
    _close(covariance, case["out/layer0/Sigma"])


@pytest.mark.parametrize("name", AMORTIZED)
def test_layers(name: str) -> None:
    case = CASES[name]
    model = amortized_model(case)
    for i, (_, mean, variance) in enumerate(model.propagate(case["in/x"], draws(case))):
        expected = case[f"out/layer{i}/mean"]
        _close(mean, np.broadcast_to(expected, mean.shape))
        _close(variance, np.broadcast_to(case[f"out/layer{i}/var"], variance.shape))
    _close(model.prior_kl(case["in/x"], draws(case)), case["out/kl"])


@pytest.mark.parametrize("name", AMORTIZED)
def test_objective_and_its_gradient(name: str) -> None:
    case = CASES[name]
    model = amortized_model(case)
    variables = model.trainable_variables
    with tf.GradientTape() as tape:
        objective = model.maximum_log_likelihood_objective(case.data, draws(case))
    _close(objective, case["out/obj_total"])
    slopes = dict(zip((v.ref() for v in variables), tape.gradient(objective, variables)))
    names = case.keys("out/dirderiv/")
    assert len(names) >= 4
    for parameter in names:
        variable = parameters(case, model)[parameter][0].unconstrained_variable
        actual = along(case, model, parameter, slopes[variable.ref()])
        np.testing.assert_allclose(
            actual, case[f"out/dirderiv/{parameter}"], rtol=1e-6, atol=1e-7, err_msg=parameter
        )


@pytest.mark.parametrize("name", SPARSE)
def test_sparse_models(name: str) -> None:
    """Deep sigma point processes, parametric predictive GPs and mean-field deep GPs."""
    case = CASES[name]
    model = sparse_model(case)
    noise = draws(case)
    for i, (_, mean, variance) in enumerate(
        model.propagate(case["in/x"], noise and [*noise, noise[-1][..., :1]])
    ):
        _close(mean, np.broadcast_to(case[f"out/layer{i}/mean"], mean.shape))
        _close(variance, np.broadcast_to(case[f"out/layer{i}/var"], variance.shape))
    _close(model.prior_kl(), case["out/kl"])
    _close(model.maximum_log_likelihood_objective(case.data, noise), case["out/obj_total"])


@pytest.mark.parametrize("name", SOLVE)
def test_orthogonal_inducing_points(name: str) -> None:
    case = CASES[name]
    model = orthogonal_model(case)
    mean, variance = model.predict_f(case["in/x"])
    _close(mean, case["out/mean"])
    _close(variance, case["out/var"])
    _close(model.prior_kl(), case["out/kl"])
    _close(model.elbo(case.data), case["out/obj_total"])


@pytest.mark.parametrize("name", [n for n in AMORTIZED + SPARSE if "out/pred/logp" in CASES[n]])
def test_predictions(name: str) -> None:
    """Of the paths that the reference has: with draws, the mixture is theirs."""
    case = CASES[name]
    model = amortized_model(case) if name in AMORTIZED else sparse_model(case)
    noise = draws(case)
    X, Y = case.data
    _close(model.predict_f(X, noise=noise)[0], case["out/pred/mean"])
    _close(model.predict_y(X, noise=noise)[1], case["out/pred/var_y"])
    mixture = model.predict_y_mixture(X, noise=noise)
    _close(metrics.crps(Y, *mixture), case["out/pred/crps"])
    for d in range(Y.shape[1]):
        marginal = [
            mixture.means[..., d : d + 1],
            mixture.variances[..., d : d + 1],
            mixture.log_weights,
        ]
        _close(metrics.log_density(Y[:, d : d + 1], *marginal), case["out/pred/logp"][:, d])
    if Y.shape[1] == 1:
        _close(model.predict_log_density((X, Y), noise=noise), case["out/pred/logp"][:, 0])


def test_probabilities_of_classes() -> None:
    """By the likelihood's quadrature; exact in the reference."""
    case = CASES["c07_ar2p_probit"]
    probability, _ = amortized_model(case).predict_y(case["in/x"])
    np.testing.assert_allclose(probability, case["out/pred/p1"], atol=2e-4)


@pytest.mark.parametrize("name", CRPS)
def test_crps(name: str) -> None:
    case = CASES[name]
    variances = case["in/sd"].T[..., None] ** 2
    mixture = case["in/mu"].T[..., None], variances, np.log(case["in/weights"])
    Y = case["in/y"][:, None]
    _close(metrics.crps(Y, *mixture)[:, 0], case["out/crps"])
    _close(published_crps(Y, *mixture)[:, 0], case["out/crps_as_published_code_WRONG"])
