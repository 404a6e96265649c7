from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats

from gpflow_deep import metrics
from gpflow_deep.estimators import DeepGPRegressor, base, calibration, load, warping
from gpflow_deep.estimators import regressor as regressor_module
from gpflow_deep.estimators.rows import Rows
from gpflow_deep.estimators.warping import Warping, choose_warping
from gpflow_deep.numerics.factorisations import FactorisationError

_numbers = st.floats(-50.0, 50.0)
_warpings = st.builds(
    lambda centre, width: Warping(centre, width, -200.0, 200.0), _numbers, st.floats(0.01, 100.0)
)


def _skewed(num_rows: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(num_rows, 2))
    return X, np.exp(1.5 * np.sin(X[:, 0]) + 0.3 * rng.normal(size=num_rows))


def _over_decades(num_rows: int, decades: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Inputs, logarithms of targets, which are linear, and these given the inputs in log density."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(num_rows, 2))
    law = stats.norm(0.5 * decades * np.log(10) * X[:, 0], 0.5)
    logarithms = law.rvs(random_state=rng)
    return X, logarithms, law.logpdf(logarithms) - logarithms


def _rows(X: np.ndarray, y: np.ndarray) -> Rows:
    return Rows(X, y[:, None], np.ones(len(X)))


def _share_nearer(found: Warping, y: np.ndarray) -> float:
    return float(np.mean(np.abs(y - found.centre) < found.width))


@given(_warpings, _numbers, _numbers)
@settings(max_examples=100, deadline=None)
def test_there_and_back_in_order(warping: Warping, first: float, second: float) -> None:
    y = np.sort([first, second])
    w = warping.forward(y)
    np.testing.assert_allclose(warping.inverse(w), y, rtol=1e-9, atol=1e-9)
    assert w[0] <= w[1]
    step = 1e-5 * np.hypot(warping.width, y - warping.centre)
    slope = (warping.forward(y + step) - warping.forward(y - step)) / (2 * step)
    np.testing.assert_allclose(np.exp(warping.log_slope(y)), slope, rtol=1e-5)


def test_formula_is_one() -> None:
    assert Warping(-2.0, 0.25, -9.0, 9.0).formula() == "asinh((y - -2) / 0.25)"


def test_no_target_beyond_the_limits_is_predicted() -> None:
    warping = Warping(0.0, 0.1, -1.0, 5.0)
    np.testing.assert_allclose(warping.inverse(np.array([-1e9, 1e9])), [-1.0, 5.0])
    mean, variance, _ = warping.mixture(np.array([[[30.0]]]), np.array([[[4.0]]]), np.array([0.0]))
    assert (mean <= 5.0).all() and (variance > 0.0).all()


@pytest.mark.parametrize("deviation", [0.02, 0.1, 0.25])
def test_mixture_of_the_parts_is_the_warped_gaussian(deviation: float) -> None:
    warping = Warping(0.0, 0.3, -100.0, 100.0)
    mean = 0.9  # where the logarithm begins
    mixture = warping.mixture(
        np.full([1, 1, 1], mean), np.full([1, 1, 1], deviation**2), np.zeros(1)
    )
    law = stats.norm(mean, deviation)
    y = warping.inverse(law.ppf([0.01, 0.1, 0.3, 0.5, 0.7, 0.9, 0.99]))
    means, variances, log_weights = mixture
    sd = np.sqrt(variances[:, 0, 0])
    cdf = stats.norm.cdf((y[:, None] - means[:, 0, 0]) / sd) @ np.exp(log_weights)
    np.testing.assert_allclose(cdf, law.cdf(warping.forward(y)), atol=0.01)
    moments = [
        integrate.quad(
            lambda w, p=power: float(warping.inverse(w)) ** p * law.pdf(w), -6, 6, limit=200
        )[0]
        for power in (1, 2)
    ]
    own_mean, own_variance = (float(m[0, 0]) for m in metrics.mixture_moments(*mixture))
    np.testing.assert_allclose(own_mean, moments[0], rtol=1e-3)
    np.testing.assert_allclose(own_variance, moments[1] - moments[0] ** 2, rtol=0.02)


@pytest.mark.parametrize("size", [1e-6, 1.0, 1e6])
def test_mixture_is_as_near_for_small_targets_as_for_large_ones(size: float) -> None:
    warping = Warping(0.0, 1e-6, -1e6, 2e7)
    deviation = 0.2 * warping.width
    law = stats.norm(warping.forward(np.array(size)), deviation)
    w = law.ppf([0.05, 0.5, 0.95])
    mixture = warping.mixture(
        np.full([1, 3, 1], law.mean()), np.full([1, 3, 1], deviation**2), np.zeros(1)
    )
    y = warping.inverse(w)
    expected = law.logpdf(w) + warping.log_slope(y)
    np.testing.assert_allclose(metrics.log_density(y[:, None], *mixture), expected, atol=0.02)


def test_evidence_is_that_of_the_dense_gaussian() -> None:
    X, y = _skewed(40)
    rows = Rows(X, y[:, None], np.array([1.0, 2.0] * 20))
    candidate = Warping(0.1, 0.2, -50.0, 50.0)
    model = warping._fit(rows, candidate, seed=0)
    covariance = model.kernel(X).numpy() + np.diag(model.likelihood.variance.numpy() / rows.weights)
    W, scale = warping._standardised(rows, candidate)

    def evidence(factor: float) -> float:
        """Of all observations, those repeated given their row's mean, for `factor` times the covariance."""
        law = stats.multivariate_normal(np.zeros(40), factor * covariance)
        repeats = -0.5 * np.sum(rows.weights - 1.0) * np.log(factor)
        return law.logpdf(W[:, 0]) + repeats - rows.weights.sum() * np.log(scale)

    best = max(evidence(factor) for factor in np.geomspace(0.2, 5.0, 2001))
    slopes = np.sum(rows.weights * candidate.log_slope(y))
    number = rows.weights.sum()
    constant = -0.5 * 40 * np.log(2 * np.pi) - 0.5 * number
    expected = (best + slopes - constant) / number
    np.testing.assert_allclose(warping._evidence(model, rows, [candidate]), [expected], atol=1e-4)


def test_the_logarithm_is_found_and_gaussian_targets_are_left() -> None:
    X, y = _skewed(300)
    found = choose_warping(_rows(X, y), seed=0)
    assert found is not None and found.width < y.std() and found.centre < np.quantile(y, 0.2)
    mirrored = choose_warping(_rows(X, -y), seed=0)
    assert mirrored is not None and mirrored.centre > np.quantile(-y, 0.8)
    assert choose_warping(_rows(X, np.log(y)), seed=0) is None
    assert choose_warping(_rows(X, np.ones(300)), seed=0) is None


def test_a_jump_to_a_few_high_targets_is_no_wild_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both are unlikely under a Gaussian; warped, the means of rows next to the jump are far off."""
    rng = np.random.default_rng(1000)
    X = rng.uniform(-1.0, 1.0, (300, 3))
    high = 10.0 * (X[:, 0] > 0.93)
    noise = 0.1 * rng.normal(size=300)
    wild = 10.0 * (rng.uniform(size=300) < 0.035)
    jump = _rows(X, high + noise)
    assert choose_warping(jump, seed=0) is None
    assert choose_warping(_rows(X, X[:, 0] + wild + noise), seed=0) is not None
    monkeypatch.setattr(warping, "_MOST_ERROR", np.inf)
    assert choose_warping(jump, seed=0) is not None


def test_limits_are_of_all_targets() -> None:
    """Also of those that are not drawn to choose by."""
    X, y = _skewed(2000)
    found = choose_warping(_rows(X, y), seed=1)
    assert found is not None
    assert (found.low, found.high) == pytest.approx((2 * y.min() - y.max(), 2 * y.max() - y.min()))


def test_of_rounded_targets_no_value_stands_apart() -> None:
    X, y = _skewed(300)
    whole = np.round(20.0 * y)
    found = choose_warping(_rows(X, whole), seed=0)
    assert found is not None and found.width > 1.0


@given(st.integers(0, 99), st.floats(0.5, 12.0), st.sampled_from([1.0, -1.0, 1e-6, -1e6]))
@settings(max_examples=50, deadline=None)
def test_widths_reach_the_least_of_targets_over_decades(
    seed: int, decades: float, factor: float
) -> None:
    y = factor * 10.0 ** np.random.default_rng(seed).uniform(0.0, decades, size=200)
    deviations = [y.std() / c for c in warping._STEEPNESS]
    for centre in np.quantile(y, warping._CENTRES):
        away = np.abs(y - centre)
        widths = warping._widths(y, centre)
        assert widths[: len(deviations)] == deviations
        if np.mean(away < deviations[-1]) < 0.3:
            assert len(widths) == len(deviations)
        elif np.mean(away < deviations[-1]) > 0.35:
            assert np.mean(away < widths[-1]) <= 0.05 < np.mean(away < 4.0 * widths[-1])


@pytest.mark.parametrize(
    "made",
    [
        lambda rng: rng.normal(size=400),
        lambda rng: rng.exponential(size=400),
        lambda rng: rng.standard_t(2, size=400),
        lambda rng: np.exp(1.5 * rng.normal(size=400)),  # over three decades
        # Many zeros, which are nearer than any width.
        lambda rng: np.exp(9.0 * rng.uniform(-1, 1, 400)) * (rng.uniform(size=400) < 0.5),
    ],
)
def test_other_targets_have_the_same_few_widths(made: Any) -> None:
    y = made(np.random.default_rng(0))
    assert warping._widths(y, y.min()) == [y.std() / c for c in warping._STEEPNESS]


@pytest.mark.parametrize("kind", ["few decades", "negative and zeros", "both signs"])
def test_over_decades_it_is_the_logarithm(kind: str) -> None:
    X, logarithms, _ = _over_decades(100, 4.0 if kind == "few decades" else 10.0)
    y = np.exp(logarithms)
    if kind == "negative and zeros":
        y[np.argsort(y)[:3]] = 0.0
        y *= -1.0
    elif kind == "both signs":
        y[X[:, 1] > 0] *= -1.0
    found = choose_warping(_rows(X, y), seed=0)
    assert found is not None and _share_nearer(found, y) < 0.15
    if kind != "both signs":
        assert abs(found.centre) == np.abs(y).min()


def test_over_decades_densities_are_nearly_the_true_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "candidates", lambda *_, **__: (("linear",), "svgp"))
    X, logarithms, true = _over_decades(400, 8.0)
    y = np.exp(logarithms)
    fitted = DeepGPRegressor(steps=10, num_inducing=10, random_state=0).fit(X[:300], y[:300])
    density = fitted.log_density(X[300:], y[300:])
    assert np.mean(density) > np.mean(true[300:]) - 0.2
    approximate = metrics.log_density(y[300:, None], *fitted.predict_mixture(X[300:]))
    assert abs(np.mean(density - approximate)) < 0.02
    low, median, high = fitted.predict_quantiles(X[300:]).T
    assert (median > 0.0).all()
    small = logarithms[300:] < 0.0
    assert 0.85 < np.mean((low < y[300:]) & (y[300:] < high), where=small) < 1.0


@pytest.fixture(scope="module")
def regressor() -> DeepGPRegressor:
    """For tests that only read it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(base, "candidates", lambda *_, **__: (("gp",), "svgp"))
        return DeepGPRegressor(steps=10, num_inducing=20, random_state=0).fit(*_skewed(300))


def test_predictions_are_in_the_units_of_the_targets(regressor: DeepGPRegressor) -> None:
    assert regressor.warping_ is not None
    X, y = _skewed(200, seed=1)
    density = regressor.log_density(X, y)
    mixture = regressor.predict_mixture(X)
    approximate = metrics.log_density(y[:, None], *mixture)
    assert abs(np.mean(density - approximate)) < 0.02
    # A density: it integrates to one.
    grid = np.geomspace(1e-4, 1e3, 4000)
    one = np.exp(regressor.log_density(np.repeat(X[:1], len(grid), axis=0), grid))
    low = np.exp(regressor.log_density(np.repeat(X[:1], 2000, axis=0), np.linspace(-1, 1e-4, 2000)))
    total = integrate.trapezoid(one, grid) + low.mean() * (1.0 + 1e-4)
    np.testing.assert_allclose(total, 1.0, atol=0.01)
    levels = (0.05, 0.5, 0.95)
    quantiles = regressor.predict_quantiles(X, levels)
    np.testing.assert_allclose(metrics.pit(quantiles[:, 1:2], *mixture), 0.5, atol=0.02)
    assert 0.85 < np.mean((quantiles[:, 0] < y) & (y < quantiles[:, 2])) <= 0.99
    mean, sd = regressor.predict(X, return_std=True)
    for together, alone in zip(regressor.predict_summary(X, levels), (mean, sd, quantiles)):
        np.testing.assert_allclose(together, alone, rtol=1e-5)
    draws = regressor.sample_y(X[:50], 2000)
    np.testing.assert_allclose(np.quantile(draws, levels, axis=1).T, quantiles[:50], rtol=0.25)
    np.testing.assert_allclose(draws.mean(axis=1), mean[:50], rtol=0.1)
    _, covariance = regressor.predict(X[:20], return_cov=True)
    np.testing.assert_allclose(np.diag(covariance), sd[:20] ** 2, rtol=1e-5)
    assert (np.linalg.eigvalsh(covariance) > 0.0).all()


def test_covariances_are_those_of_draws(regressor: DeepGPRegressor) -> None:
    # Among the data and, where next to nothing is known, away from them.
    new = np.array([[0, 0], [0.1, 0], [2, 1], [4, 0], [4.1, 0], [8, 8], [8.1, 8]], float)
    _, covariance = regressor.predict(new, return_cov=True)
    draws = regressor.sample_y(new, 40_000, random_state=1)
    deviations = np.sqrt(np.diag(covariance))
    correlations = covariance / (deviations[:, None] * deviations)
    np.testing.assert_allclose(correlations, np.corrcoef(draws), atol=0.03)
    assert correlations[5, 6] > 0.5
    assert (np.linalg.eigvalsh(correlations) > 0.0).all()


@given(st.floats(0.1, 3.0), st.floats(-2.0, 2.0), st.floats(0.05, 2.0), st.floats(-0.99, 0.99))
@settings(max_examples=25, deadline=None)
def test_joint_moments_by_quadrature(
    width: float, mean: float, deviation: float, correlation: float
) -> None:
    warping = Warping(0.0, width, -1e9, 1e9)
    means, scales = np.array([mean, -0.5]), width * np.array([deviation, 0.7])
    normals = np.array([[1.0, correlation], [correlation, 1.0]])
    moments = warping.joint_moments(means, normals * scales[:, None] * scales)
    nodes, weights = np.polynomial.hermite_e.hermegauss(100)
    weights = weights / weights.sum()
    # The second given the first: both are sums of the nodes' values.
    first, second = warping.inverse(means[:, None] + scales[:, None] * nodes)
    grid = correlation * nodes[:, None] + np.sqrt(1.0 - correlation**2) * nodes
    given_first = warping.inverse(means[1] + scales[1] * grid) @ weights
    expected = np.array([weights @ first, weights @ second])
    squares = np.array([weights @ first**2, weights @ second**2]) - expected**2
    cross = weights @ (first * given_first) - expected[0] * expected[1]
    size = np.sqrt(squares[0] * squares[1])
    np.testing.assert_allclose(moments[0], expected, rtol=1e-6, atol=1e-6 * size**0.5)
    np.testing.assert_allclose(moments[1][0, 1], cross, rtol=1e-3, atol=1e-4 * size)
    np.testing.assert_allclose(np.diag(moments[1]), squares, rtol=1e-3)


def test_it_is_better_than_without(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of GPs without forests of their errors, which know that noise grows with what is predicted."""
    monkeypatch.setattr(base, "candidates", lambda *_, **__: (("gp",), "svgp"))
    monkeypatch.setattr(calibration, "_FEWEST_ROWS", 10**9)
    options: dict[str, Any] = dict(steps=10, num_inducing=20, random_state=0, kernel="rbf")
    warped, plain = (
        DeepGPRegressor(warp=warp, **options).fit(*_skewed(300)) for warp in (True, False)
    )
    assert plain.warping_ is None
    test = _skewed(200, seed=1)
    assert np.mean(warped.log_density(*test)) > np.mean(plain.log_density(*test)) + 0.2
    assert warped.score(*test) > plain.score(*test) - 0.05


def test_a_failure_leaves_the_targets_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: Any, **__: Any) -> None:
        raise FactorisationError("failed")

    monkeypatch.setattr(regressor_module, "choose_warping", failing)
    monkeypatch.setattr(base, "candidates", lambda *_, **__: (("linear",), "svgp"))
    fitted = DeepGPRegressor(steps=2, num_inducing=5, random_state=0).fit(*_skewed(300))
    assert fitted.warping_ is None


def test_it_is_saved(regressor: DeepGPRegressor, tmp_path: Path) -> None:
    regressor.save(tmp_path / "fit")
    again = load(tmp_path / "fit")
    assert again.warping_ == regressor.warping_
    X, y = _skewed(20, seed=2)
    np.testing.assert_allclose(again.log_density(X, y), regressor.log_density(X, y), rtol=1e-5)
    np.testing.assert_allclose(again.predict(X), regressor.predict(X), rtol=1e-5)
