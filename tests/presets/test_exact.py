from __future__ import annotations

import gpflow
import numpy as np
import pytest

from gpflow_deep.presets import exact as exact_module
from gpflow_deep.presets import get, recommended
from gpflow_deep.presets.exact import ExactGP, let_inputs_go


@pytest.mark.parametrize("block", [1000, 20, 7, 1])
def test_it_is_gpflows_gpr(monkeypatch: pytest.MonkeyPatch, block: int) -> None:
    monkeypatch.setattr(exact_module, "_BLOCK", block)
    rng = np.random.default_rng(0)
    X, Y, Xnew = rng.normal(size=(20, 2)), rng.normal(size=(20, 2)), rng.normal(size=(5, 2))
    exact = ExactGP((X, Y), gpflow.kernels.Matern52(), gpflow.likelihoods.Gaussian(0.1))
    gpr = gpflow.models.GPR((X, Y), gpflow.kernels.Matern52(), noise_variance=0.1)
    np.testing.assert_allclose(
        exact.maximum_log_likelihood_objective(), gpr.maximum_log_likelihood_objective()
    )
    for model in (exact, exact.posterior()):
        for full_cov in (False, True):
            mean, variance = gpr.predict_f(Xnew, full_cov)
            for ours, theirs in zip(model.predict_f(Xnew, full_cov), (mean, variance), strict=True):
                np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-12)
        _, joint = model.predict_f(Xnew, full_cov=True, full_output_cov=True)  # [N, P, N, P]
        np.testing.assert_allclose(np.einsum("ipjp->pij", joint), variance, rtol=1e-6, atol=1e-12)
        np.testing.assert_allclose(joint[:, 0, :, 1], 0.0)
        np.testing.assert_allclose(
            model.predict_log_density((Xnew, Y[:5])), gpr.predict_log_density((Xnew, Y[:5]))
        )
    draws = exact.predict_f_samples(Xnew, 20_000)
    mean, covariance = gpr.predict_f(Xnew, full_cov=True)
    np.testing.assert_allclose(np.mean(draws, axis=0), mean, atol=0.03)
    np.testing.assert_allclose(np.cov(draws[..., 0], rowvar=False), covariance[0], atol=0.03)


@pytest.mark.parametrize("block", [1000, 70])
def test_float32_changes_variances_by_a_thousandth(
    monkeypatch: pytest.MonkeyPatch, block: int
) -> None:
    """Of an observation's, at about the least noise for which the estimators take it, at the data too."""
    monkeypatch.setattr(exact_module, "_BLOCK", block)
    rng = np.random.default_rng(3)
    X = rng.normal(size=(1500, 3))
    Y = np.sin(X[:, :2]) + 0.1 * rng.normal(size=(1500, 2))
    Xnew = np.concatenate([X[:100], rng.normal(size=(100, 3)), 5.0 * rng.normal(size=(100, 3))])
    for kernel in (gpflow.kernels.Matern52(2.0), gpflow.kernels.Matern12(2.0)):
        double, mixed = (
            ExactGP((X, Y), kernel, gpflow.likelihoods.Gaussian(0.01), compute_dtype=dtype)
            for dtype in ("float64", "float32")
        )
        assert len(mixed.posterior().cache.inverse) == 1500 and not len(
            double.posterior().cache.inverse
        )
        for ours in (mixed, mixed.posterior()):
            mean, variance = ours.predict_y(Xnew)
            expected_mean, expected_variance = double.predict_y(Xnew)
            np.testing.assert_allclose(mean, expected_mean, atol=1e-9)
            np.testing.assert_allclose(variance, expected_variance, rtol=1e-3)
            for mine, theirs in zip(
                ours.predict_f(Xnew, full_cov=True), double.predict_f(Xnew, full_cov=True)
            ):
                np.testing.assert_allclose(mine, theirs, atol=1e-5)


def test_a_wrong_precision() -> None:
    parts = gpflow.kernels.RBF(), gpflow.likelihoods.Gaussian()
    with pytest.raises(ValueError, match="compute_dtype: expected 'float32' or"):
        ExactGP((np.ones((2, 1)), np.ones((2, 1))), *parts, compute_dtype="float16")


def test_rows_that_count_several_times() -> None:
    rng = np.random.default_rng(1)
    X, Y, times = (
        rng.normal(size=(8, 2)),
        rng.normal(size=(8, 1)),
        np.array([1, 2, 3, 1, 1, 4, 1, 2]),
    )
    parts = gpflow.kernels.RBF(), gpflow.likelihoods.Gaussian(0.3)
    weighted = ExactGP((X, Y), *parts, weights=times.astype(float))
    rows = np.repeat(np.arange(8), times)
    repeated = ExactGP((X[rows], Y[rows]), *parts)
    np.testing.assert_allclose(
        weighted.maximum_log_likelihood_objective(), repeated.maximum_log_likelihood_objective()
    )
    for ours, theirs in zip(weighted.predict_y(X), repeated.predict_y(X), strict=True):
        np.testing.assert_allclose(ours, theirs)


@pytest.mark.parametrize("compute_dtype", ["float64", "float32"])
def test_a_posterior_predicts_again(compute_dtype: str) -> None:
    """By compiled functions, from the second call on."""
    rng = np.random.default_rng(4)
    X, Y = rng.normal(size=(12, 2)), rng.normal(size=(12, 1))
    parts = gpflow.kernels.Matern32(), gpflow.likelihoods.Gaussian(0.2)
    model = ExactGP((X, Y), *parts, compute_dtype=compute_dtype)
    posterior = model.posterior()
    for _ in range(3):
        for ours, theirs in zip(posterior.predict_y(X), model.predict_y(X), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-6)


def test_each_row_predicted_from_the_others() -> None:
    rng = np.random.default_rng(2)
    X, Y, weights = rng.normal(size=(12, 2)), rng.normal(size=(12, 2)), rng.uniform(1.0, 3.0, 12)
    parts = gpflow.kernels.Matern32(), gpflow.likelihoods.Gaussian(0.2)
    residuals, variances = ExactGP((X, Y), *parts, weights).leave_one_out()
    for row in range(12):
        others = np.arange(12) != row
        mean, variance = ExactGP((X[others], Y[others]), *parts, weights[others]).predict_f(
            X[[row]]
        )
        total = variance[0] + 0.2 / weights[row]
        np.testing.assert_allclose(residuals[row], Y[row] - mean[0])
        np.testing.assert_allclose(variances[row], total[:1])


def test_each_part_predicted_from_the_others() -> None:
    rng = np.random.default_rng(3)
    X, Y, weights = rng.normal(size=(12, 2)), rng.normal(size=(12, 2)), rng.uniform(1.0, 3.0, 12)
    parts = gpflow.kernels.Matern32(), gpflow.likelihoods.Gaussian(0.2)
    model, part = ExactGP((X, Y), *parts, weights), rng.permutation(12) % 5
    residuals, variances, apart = model.leave_parts_out(part)
    for found, expected in zip((residuals, variances), model.leave_one_out(), strict=True):
        np.testing.assert_array_equal(found, expected)
    for number in range(5):
        own, others = part == number, part != number
        known = ExactGP((X[others], Y[others]), *parts, weights[others])
        np.testing.assert_allclose(apart[own], Y[own] - known.predict_f(X[own])[0])


def test_a_prior_that_gives_way_to_long_lengthscales() -> None:
    """Below the median it is the normal one of the logarithm, above constant; where there is none, none."""
    X, Y = np.random.default_rng(0).normal(size=(2, 20, 3))
    model = get("gp").build(X, Y[:, :1], recommended("gp", 20, 3), 0)
    before = model.kernel.lengthscales.prior
    assert let_inputs_go(model)
    prior = model.kernel.lengthscales.prior
    short, long = np.array([0.1, 3.0, 5.9]), np.array([6.0, 60.0, 1e6])
    normal = before.log_prob(short) + np.log(short)
    np.testing.assert_allclose(np.diff(prior.log_prob(short)), np.diff(normal))
    np.testing.assert_allclose(prior.log_prob(long), 0.0, atol=1e-12)
    model.kernel.lengthscales.assign(3.0 * np.ones(3))
    assert np.isfinite(model.training_loss())
    rough = get("rough-gp").build(X, Y[:, :1], recommended("rough-gp", 20, 3), 0)
    assert not let_inputs_go(rough) and rough.kernel.lengthscales.prior is None
