from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import integrate, stats

from gpflow_deep import metrics

Mixture = tuple[np.ndarray, np.ndarray, np.ndarray]


def _mixture(seed: int, S: int = 4, N: int = 7, P: int = 2) -> tuple[np.ndarray, Mixture]:
    rng = np.random.default_rng(seed)
    log_weights = np.log(rng.dirichlet(np.ones(S)))
    means = rng.normal(scale=2.0, size=(S, N, P))
    variances = rng.gamma(2.0, 0.5, size=(S, N, P)) + 0.05
    return rng.normal(scale=3.0, size=(N, P)), (means, variances, log_weights)


@st.composite
def _problems(draw: st.DrawFn) -> tuple[np.ndarray, Mixture]:
    S, N, P = draw(st.integers(1, 5)), draw(st.integers(1, 3)), draw(st.integers(1, 2))
    number = st.floats(-10.0, 10.0)
    Y = draw(hnp.arrays(float, (N, P), elements=number))
    means = draw(hnp.arrays(float, (S, N, P), elements=number))
    variances = draw(hnp.arrays(float, (S, N, P), elements=st.floats(0.01, 10.0)))
    weights = draw(hnp.arrays(float, (S,), elements=st.floats(0.05, 1.0)))
    return Y, (means, variances, np.log(weights / weights.sum()))


def _crps_by_quadrature(y: float, m: np.ndarray, v: np.ndarray, w: np.ndarray) -> float:
    def cdf(x: float) -> float:
        return float(w @ stats.norm.cdf(x, m, np.sqrt(v)))

    below, _ = integrate.quad(lambda x: cdf(x) ** 2, -40.0, y, limit=200)
    above, _ = integrate.quad(lambda x: (1.0 - cdf(x)) ** 2, y, 40.0, limit=200)
    return below + above


def test_crps_is_the_integral_of_the_squared_cdf_error() -> None:
    Y, (means, variances, log_weights) = _mixture(seed=0, N=3)
    closed = metrics.crps(Y, means, variances, log_weights)
    for n, p in np.ndindex(Y.shape):
        expected = _crps_by_quadrature(
            Y[n, p], means[:, n, p], variances[:, n, p], np.exp(log_weights)
        )
        np.testing.assert_allclose(closed[n, p], expected, rtol=1e-6)


def test_crps_is_the_monte_carlo_energy_form() -> None:
    Y, (means, variances, log_weights) = _mixture(seed=1, N=1, P=1)
    rng = np.random.default_rng(2)
    which = rng.choice(len(log_weights), p=np.exp(log_weights), size=(2, 400_000))
    draws = means[which, 0, 0] + np.sqrt(variances[which, 0, 0]) * rng.normal(size=which.shape)
    terms = np.abs(draws[0] - Y[0, 0]) - 0.5 * np.abs(draws[0] - draws[1])
    error = 5.0 * terms.std() / math.sqrt(terms.size)
    assert abs(metrics.crps(Y, means, variances, log_weights)[0, 0] - terms.mean()) < error


def test_crps_of_one_gaussian() -> None:
    """sigma (z (2 Phi(z) - 1) + 2 phi(z) - 1 / sqrt(pi)): Gneiting and Raftery 2007, Eq. 21."""
    Y = np.linspace(-3.0, 4.0, 9)[:, None]
    mean, sigma = 0.7, 1.9
    z = (Y - mean) / sigma
    expected = sigma * (
        z * (2 * stats.norm.cdf(z) - 1) + 2 * stats.norm.pdf(z) - 1 / math.sqrt(math.pi)
    )
    got = metrics.crps(Y, np.full((1, 9, 1), mean), np.full((1, 9, 1), sigma**2), np.zeros(1))
    np.testing.assert_allclose(got, expected, rtol=1e-12)


def test_expected_crps_of_a_calibrated_gaussian() -> None:
    """E CRPS = sigma / sqrt(pi) = 0.5642 sigma, by Gauss-Hermite quadrature over the targets."""
    sigma = 2.5
    x, w = np.polynomial.hermite_e.hermegauss(100)
    shape = (1, len(x), 1)
    scores = metrics.crps(
        sigma * x[:, None], np.zeros(shape), np.full(shape, sigma**2), np.zeros(1)
    )
    expected = float(w @ scores[:, 0] / w.sum())
    assert expected == pytest.approx(0.5642 * sigma, abs=1e-3)


def test_crps_of_point_masses_is_the_ensemble_score() -> None:
    rng = np.random.default_rng(3)
    means = rng.normal(size=(5, 2, 1))
    Y = np.array([[0.3], [means[0, 1, 0]]])
    got = metrics.crps(Y, means, np.zeros_like(means), np.full(5, -math.log(5.0)))
    pairs = np.abs(means[:, None] - means[None, :]).mean(axis=(0, 1))
    np.testing.assert_allclose(got, np.abs(Y - means).mean(axis=0) - 0.5 * pairs, atol=1e-12)


def test_crps_does_not_depend_on_the_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    Y, mixture = _mixture(seed=4, N=11)
    whole = metrics.crps(Y, *mixture)
    monkeypatch.setattr(metrics.mixtures, "_CHUNK_ELEMENTS", 20)
    np.testing.assert_allclose(metrics.crps(Y, *mixture), whole, rtol=1e-13)


def _scores(Y: np.ndarray, mixture: Mixture) -> list[np.ndarray]:
    return [
        metrics.crps(Y, *mixture),
        metrics.log_density(Y, *mixture),
        metrics.pit(Y, *mixture),
        *metrics.mixture_moments(*mixture),
        metrics.quantile([0.05, 0.7], *mixture),
    ]


@settings(max_examples=25, deadline=None)
@given(problem=_problems(), seed=st.integers(0, 1000), share=st.floats(0.1, 0.9))
def test_order_and_split_of_components_do_not_matter(
    problem: tuple[np.ndarray, Mixture], seed: int, share: float
) -> None:
    Y, (means, variances, log_weights) = problem
    order = np.random.default_rng(seed).permutation(len(log_weights))
    permuted = (means[order], variances[order], log_weights[order])
    halves = np.array([math.log(share), math.log1p(-share)])
    split = (
        np.concatenate([means[1:], means[:1], means[:1]]),
        np.concatenate([variances[1:], variances[:1], variances[:1]]),
        np.concatenate([log_weights[1:], log_weights[0] + halves]),
    )
    reference = _scores(Y, (means, variances, log_weights))
    for other in (permuted, split):
        for got, expected in zip(_scores(Y, other), reference, strict=True):
            np.testing.assert_allclose(got, expected, rtol=1e-9, atol=1e-9)


@settings(max_examples=25, deadline=None)
@given(problem=_problems(), shift=st.floats(-5.0, 5.0), scale=st.floats(0.1, 10.0))
def test_shift_and_scale(problem: tuple[np.ndarray, Mixture], shift: float, scale: float) -> None:
    Y, (means, variances, log_weights) = problem
    Y2 = shift + scale * Y
    moved = (shift + scale * means, scale**2 * variances, log_weights)
    score = metrics.crps(Y, means, variances, log_weights)
    assert np.all(score >= 0.0)
    np.testing.assert_allclose(metrics.crps(Y2, *moved), scale * score, rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(
        metrics.log_density(Y2, *moved),
        metrics.log_density(Y, means, variances, log_weights) - Y.shape[1] * math.log(scale),
        rtol=1e-8,
        atol=1e-8,
    )
    np.testing.assert_allclose(
        metrics.quantile([0.3], *moved),
        shift + scale * metrics.quantile([0.3], means, variances, log_weights),
        rtol=1e-9,
        atol=1e-9,
    )


def test_log_density_is_a_density_and_factorises_within_a_component() -> None:
    Y, (means, variances, log_weights) = _mixture(seed=5)
    density = stats.norm.pdf(Y, means, np.sqrt(variances)).prod(axis=-1)
    expected = np.log(np.exp(log_weights) @ density)
    np.testing.assert_allclose(metrics.log_density(Y, means, variances, log_weights), expected)
    nll = metrics.negative_log_likelihood(Y, means, variances, log_weights)
    np.testing.assert_allclose(nll, -expected.mean())


def test_log_density_far_in_the_tail_is_finite() -> None:
    means, ones = np.zeros((3, 1, 1)), np.ones((3, 1, 1))
    got = metrics.log_density(np.full((1, 1), 1e3), means, ones, np.full(3, -math.log(3.0)))
    np.testing.assert_allclose(got, -0.5e6 - 0.5 * math.log(2 * math.pi))


def test_moments_are_those_of_the_mixture() -> None:
    _, (means, variances, log_weights) = _mixture(seed=6)
    mean, variance = metrics.mixture_moments(means + 1e7, variances, log_weights)
    w = np.exp(log_weights)[:, None, None]
    np.testing.assert_allclose(mean - 1e7, (w * means).sum(0), atol=1e-7)
    expected = (w * (variances + means**2)).sum(0) - (w * means).sum(0) ** 2
    np.testing.assert_allclose(variance, expected, rtol=1e-6)


@pytest.mark.parametrize("level", [1e-12, 0.025, 0.5, 0.9, 1 - 1e-9])
def test_quantile_inverts_pit(level: float) -> None:
    _, mixture = _mixture(seed=7)
    value = metrics.quantile([level], *mixture)[0]
    np.testing.assert_allclose(metrics.pit(value, *mixture), level, rtol=1e-9)


@pytest.mark.parametrize("far", [5.0, 1e8, 1e300, -1e300])
def test_quantiles_know_nothing_of_components_without_weight(far: float) -> None:
    levels, half = [0.01, 0.5, 0.9], np.log(0.5)
    means, variances = np.array([0.0, far, 1.0])[:, None, None], np.ones([3, 1, 1])
    of_three = metrics.quantile(levels, means, variances, [half, -np.inf, half])
    of_two = metrics.quantile(levels, means[::2], variances[::2], [half, half])
    np.testing.assert_array_equal(of_three, of_two)


def test_coverage_agrees_with_the_interval_of_the_quantiles() -> None:
    Y, mixture = _mixture(seed=8, N=200)
    low, high = metrics.quantile([0.1, 0.9], *mixture)
    inside = np.mean((low <= Y) & (Y <= high))
    assert 0.0 < inside < 1.0
    np.testing.assert_allclose(metrics.coverage(Y, *mixture, level=0.8), inside)


def test_a_point_mass_on_the_target_covers_it() -> None:
    """As its quantiles do; beside a normal the mass counts for what is at, and on either side of it."""
    Y, zeros = np.array([[0.0], [1.0]]), np.zeros([1, 2, 1])
    assert metrics.coverage(Y, zeros, zeros, np.zeros(1)) == 0.5
    means, variances = np.array([0.0, 3.0]), np.array([0.0, 1.0])
    # P[Y <= 0] = 0.5 + Phi(-3) / 2, and P[Y >= 0] = 0.5 + Phi(3) / 2.
    mixture = means.reshape(2, 1, 1), variances.reshape(2, 1, 1), np.log([0.5, 0.5])
    assert metrics.coverage([[0.0]], *mixture, level=0.01) == 1.0
    assert metrics.coverage([[-1e-9]], *mixture, level=0.95) == 0.0


def test_calibration_curve_of_calibrated_predictions_is_the_diagonal() -> None:
    # Targets at equally spaced quantiles: perfectly calibrated up to 1/N.
    N = 1000
    Y = stats.norm.ppf((np.arange(N) + 0.5) / N)[:, None]
    nominal, observed = metrics.calibration_curve(
        Y, np.zeros((1, N, 1)), np.ones((1, N, 1)), np.zeros(1)
    )
    assert nominal[0] == pytest.approx(0.05) and nominal[-1] == pytest.approx(0.95)
    np.testing.assert_allclose(observed, nominal, atol=2.0 / N)


def test_rmse() -> None:
    assert metrics.rmse(np.array([[1.0], [5.0]]), np.array([[1.0], [1.0]])) == pytest.approx(
        math.sqrt(8.0)
    )


@pytest.mark.parametrize(
    "argument, value, message",
    [
        ("Y", np.full((7, 2), np.nan), "Y: expected finite"),
        ("means", np.full((4, 7, 2), np.inf), "means: expected finite"),
        ("variances", np.full((4, 7, 2), -1.0), "variances: expected none below 0"),
        ("log_weights", np.zeros(4), "log_weights: .* sum of 4"),
        ("log_weights", np.full(4, np.nan), "log_weights: "),
        ("log_weights", np.full(4, 1000.0), "log_weights: expected logarithms of weights"),
    ],
)
@pytest.mark.parametrize("metric", [metrics.crps, metrics.pit, metrics.log_density])
def test_bad_values_are_named(
    metric: Callable[..., np.ndarray], argument: str, value: np.ndarray, message: str
) -> None:
    Y, (means, variances, log_weights) = _mixture(seed=9)
    arguments = {"Y": Y, "means": means, "variances": variances, "log_weights": log_weights}
    arguments[argument] = value
    with pytest.raises(ValueError, match=message):
        metric(**arguments)


def test_zero_variance_has_no_density() -> None:
    Y, (means, variances, log_weights) = _mixture(seed=10)
    with pytest.raises(ValueError, match="positive variances"):
        metrics.log_density(Y, means, 0.0 * variances, log_weights)


@pytest.mark.parametrize("level", [0.0, 1.0, -0.5, math.nan])
def test_levels_outside_the_open_interval_are_refused(level: float) -> None:
    Y, mixture = _mixture(seed=11)
    with pytest.raises(ValueError, match=r"level: expected a number in \(0, 1\), got [^\[]"):
        metrics.coverage(Y, *mixture, level=level)
