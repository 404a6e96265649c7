"""The yardstick itself: plain NumPy against the reference values and Monte Carlo."""

from __future__ import annotations

import numpy as np
import pytest

from tests import brute_force as bf
from tests.reference.structured_cases import CASE_NAMES, Case, load_case


@pytest.fixture(params=CASE_NAMES)
def case(request: pytest.FixtureRequest) -> Case:
    return load_case(request.param)


def _q(case: Case) -> tuple[np.ndarray, np.ndarray]:
    if case.meta["whitened"]:
        return bf.unwhiten(case.layers, case["q_mu"], case["q_sqrt"], case.meta["kuu_jitter"])
    return case["q_mu"], case["q_sqrt"]


def _chain(case: Case) -> bf.Chain:
    return bf.theorem_one(
        case.layers,
        case["X"],
        *_q(case),
        case.per_layer("z"),
        case.meta["kuu_jitter"],
        case.meta["cov_jitter"],
    )


def _assert_equal(actual: object, expected: np.ndarray) -> None:
    np.testing.assert_allclose(actual, expected, rtol=1e-10, atol=1e-10)


def test_moments_of_the_inducing_outputs(case: Case) -> None:
    mean, scale = _q(case)
    _assert_equal(mean, case["mu_u"])
    _assert_equal(scale @ scale.T, case["S_u"])


def test_samples_and_conditional_moments(case: Case) -> None:
    chain = _chain(case)
    for i in range(case.meta["L"]):
        _assert_equal(chain.sample[i], case[f"f_{i}"])
        _assert_equal(chain.mean[i], case[f"mu_hat_{i}"])
        _assert_equal(chain.covariance[i], case[f"Sigma_hat_{i}"])
    _assert_equal(chain.marginal_mean, case["mu_tilde"])
    _assert_equal(chain.marginal_covariance, case["S_tilde"])


def test_objective_and_prediction(case: Case) -> None:
    chain, (Y, noise_variance) = _chain(case), (case["Y"], case["lik_var"])
    kl = bf.kl_divergence(case.layers, *_q(case), case.meta["kuu_jitter"])
    variance = np.diagonal(chain.covariance[-1], axis1=-2, axis2=-1)
    expectations = bf.gaussian_variational_expectations(Y, chain.mean[-1], variance, noise_variance)
    _assert_equal(kl, case["KL"])
    _assert_equal(expectations, case["var_exp"])
    _assert_equal(bf.elbo(chain, Y, noise_variance, kl, case.meta["num_data"]), case["ELBO"])
    _assert_equal(bf.log_predictive_density(chain, Y, noise_variance), case["pred_logdens"])


@pytest.mark.parametrize("name", ["c05", "c10", "c13", "c15", "c17"])
def test_theorem_one_equals_the_integral_over_the_inducing_outputs(name: str) -> None:
    """
    The density of a whole chain: product of Theorem 1's conditionals, Gaussian integral over u in
    closed form, and u drawn.
    """
    case = load_case(name)
    q, jitter, x = _q(case), case.meta["kuu_jitter"], case["X"][0]
    result = bf.theorem_one(
        case.layers, x[None], *q, [z[:1, :1] for z in case.per_layer("z")], jitter
    )
    chain, means, covariances = (
        [values[0, 0] for values in field]
        for field in (result.sample, result.mean, result.covariance)
    )
    by_conditionals = bf.conditional_chain_log_density(chain, means, covariances)
    exact = bf.chain_log_density(case.layers, x, chain, *q, jitter)
    drawn, error = bf.monte_carlo_chain_log_density(
        case.layers, x, chain, *q, jitter, num_draws=200_000, seed=1
    )
    np.testing.assert_allclose(by_conditionals, exact, rtol=1e-10)
    assert error < 0.1
    np.testing.assert_allclose(drawn, exact, atol=4 * error)


@pytest.mark.parametrize("name", ["c04", "c17"])
def test_sampling_by_theorem_one_equals_the_generative_definition(name: str) -> None:
    """Moments of all layers' values: u drawn and kept through the layers, against Theorem 1."""
    case = load_case(name)
    q, jitter, X = _q(case), case.meta["kuu_jitter"], case["X"][:1]
    num_draws = 800
    rng = np.random.default_rng(2)
    noise = [rng.standard_normal((num_draws, 1, layer.num_gps)) for layer in case.layers]
    by_theorem = bf.theorem_one(case.layers, X, *q, noise, jitter).sample
    generative = bf.simulate(case.layers, X, *q, jitter, num_draws=20_000, seed=3)
    a, b = (np.concatenate(values, -1)[:, 0] for values in (by_theorem, generative))
    for features in (lambda f: f, lambda f: (f[:, :, None] * f[:, None, :]).reshape(len(f), -1)):
        A, B = features(a), features(b)
        error = np.sqrt(A.var(0) / len(A) + B.var(0) / len(B))
        np.testing.assert_array_less(np.abs(A.mean(0) - B.mean(0)), 4.5 * error)


def test_star_pattern_is_the_one_of_the_reference() -> None:
    for name in ("c07", "c10", "c11", "c12", "c18"):
        case = load_case(name)
        np.testing.assert_array_equal(bf.star_pattern(case.meta["T"]), case["block_mask"])
