from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.optimize import minimize
from scipy.special import logsumexp, softmax

from gpflow_deep.estimators.rows import Rows
from gpflow_deep.estimators.selection import Again, Budget, _further, _nearer_to_all, _Tried
from gpflow_deep.estimators.stacking import stacking_weights
from gpflow_deep.presets.registry import CONSTANT


def _two(density: Any) -> np.ndarray:
    """As of targets that are not rounded, whose densities are averaged over nothing."""
    return np.stack([density, density], axis=1)


_DENSITIES = arrays(np.float64, (30, 3), elements=st.floats(-5.0, 2.0))


@given(log_densities=_DENSITIES)
def test_the_mixture_is_as_good_as_the_best_member(log_densities: np.ndarray) -> None:
    weights = stacking_weights(log_densities)
    assert (weights >= 0.0).all()
    np.testing.assert_allclose(weights.sum(), 1.0)
    mixed = logsumexp(log_densities, axis=1, b=weights).sum()
    # The row that favours nobody, and the members that are too small to keep, may cost a little.
    assert mixed > log_densities.sum(axis=0).max() - 2.5


def test_weights_are_those_of_an_optimiser() -> None:
    log_densities = np.random.default_rng(0).normal(size=(2000, 3)) + [0.0, 0.3, -0.2]

    def loss(free: np.ndarray) -> float:
        return -logsumexp(log_densities, axis=1, b=softmax(free)).mean()

    expected = softmax(minimize(loss, np.zeros(3), tol=1e-12).x)
    np.testing.assert_allclose(stacking_weights(log_densities), expected, atol=2e-3)


def test_rows_count_as_their_weights_say() -> None:
    rng = np.random.default_rng(1)
    log_densities, times = rng.normal(size=(20, 2)), rng.integers(0, 4, 20)
    np.testing.assert_allclose(
        stacking_weights(log_densities, times.astype(float)),
        stacking_weights(np.repeat(log_densities, times, axis=0)),
    )


def test_a_member_that_cannot_explain_the_rows_is_left_out() -> None:
    log_densities = np.tile([0.0, -np.inf, np.nan], (50, 1))
    np.testing.assert_array_equal(stacking_weights(log_densities), [1.0, 0.0, 0.0])


def test_models_without_time_to_learn_have_no_weight_beside_others() -> None:
    """However well they do on the few rows that are held out."""

    def attempt(tried: _Tried, name: str, density: float, starved: bool) -> None:
        fitted: Any = SimpleNamespace(report={"seconds": 1.0, "starved": float(starved)})
        tried.attempt(name, lambda: (fitted, _two(np.full(5, density))))

    rows = Rows(np.zeros([5, 1]), np.zeros([5, 1]), np.ones(5))
    for beside, expected in ((True, [0.0, 1.0]), (False, [1.0])):
        tried = _Tried(rows, tell=lambda line: None)
        attempt(tried, "starved", 9.0, starved=True)
        if beside:
            attempt(tried, "trained", 1.0, starved=False)
        _, weights, candidates = tried.mixed()
        assert [candidate.weight for candidate in candidates] == expected
        np.testing.assert_array_equal(weights, [1.0])


def _fit(steps: int, best_step: int, seconds: float, starved: float = 0.0) -> Any:
    report = {"steps": steps, "best_step": best_step, "seconds": seconds, "starved": starved}
    return SimpleNamespace(report=report, settings=SimpleNamespace(steps=1000))


def test_fits_of_one_family_are_mixed_alike_where_that_is_better() -> None:
    rows = Rows(np.zeros([2, 1]), np.zeros([2, 1]), np.ones(2))
    tried = _Tried(rows, tell=lambda line: None)
    fits = [_fit(100, 10, 1.0) for _ in range(4)]
    tried.attempt("other", lambda: (fits[3], _two(np.full(2, -4.0))))
    # The first two err on different rows, and the third on both.
    for fit, density in zip(fits[:3], ([0.0, -9.0], [-9.0, 0.0], [-9.0, -9.0]), strict=True):
        tried.attempt("deep", lambda fit=fit, d=density: (fit, _two(d)), beside=fit is not fits[0])
    members, weights, candidates = tried.mixed()
    assert members[-2:] == fits[:2]
    assert weights[-2] == weights[-1] == pytest.approx(0.5 * candidates[1].weight)
    assert candidates[1].log_density == pytest.approx(np.log(0.5 * (1.0 + np.exp(-9.0))))
    assert candidates[1].seconds == 2.0


@pytest.mark.parametrize(
    "first, seconds, steps",
    [
        (_fit(400, 100, 40.0), None, [200, 200, 200]),
        (_fit(400, 100, 40.0), 50.0, [200, 200, 100]),
        (_fit(400, 100, 40.0), 15.0, [150]),
        (_fit(400, 100, 40.0), 9.0, []),
        (_fit(750, 100, 40.0), None, [200]),
        (_fit(1000, 1000, 40.0), None, []),
        (_fit(10, 5, 40.0, starved=1.0), None, []),
    ],
)
def test_there_are_as_many_further_fits_as_steps_and_time_allow(
    first: Any, seconds: float | None, steps: list[int]
) -> None:
    """A step takes a tenth of a second."""
    budget = Budget(seconds)
    taken = []
    for again in _further(first, budget):
        taken.append(again)
        budget.spend(0.1 * again.steps)
    assert taken == [Again(seed, number) for seed, number in enumerate(steps, start=1)]


@pytest.mark.parametrize("num_rows, expected", [(50, 0.892), (5000, 0.794)])
def test_weights_of_few_rows_are_nearer_to_those_of_all(num_rows: int, expected: float) -> None:
    """
    The second is ahead by 2 nats on three rows of ten, and behind by 3 on the others: by themselves they say
    0.206 for it, and its mean, far behind, nothing. The third, with no weight, stays without.
    """
    rows = Rows(np.zeros([num_rows, 1]), np.zeros([num_rows, 1]), np.ones(num_rows))
    ahead = np.arange(num_rows) % 10 < 3
    tried = _Tried(rows, tell=lambda line: None)
    for name, density in zip(
        "abc", (np.zeros(num_rows), np.where(ahead, 2.0, -3.0), np.full(num_rows, -9.0))
    ):
        tried.attempt(name, lambda density=density: (_fit(10, 10, 1.0), _two(density)))
    _, weights, candidates = tried.mixed()
    np.testing.assert_allclose(
        [c.weight for c in candidates], [expected, 1.0 - expected, 0.0], atol=5e-3
    )
    assert np.sum(weights) == pytest.approx(1.0)


def test_the_constant_keeps_a_thousandth_for_rows_unlike_all_before() -> None:
    rows = Rows(np.zeros([60, 1]), np.zeros([60, 1]), np.ones(60))
    tried = _Tried(rows, tell=lambda line: None)
    for name, density in (("gp", 9.0), (CONSTANT, -1.0), ("deep", -1.0)):
        tried.attempt(name, lambda density=density: (_fit(10, 10, 1.0), _two(np.full(60, density))))
    members, weights, candidates = tried.mixed()
    assert len(members) == 2
    np.testing.assert_allclose(weights, [0.999, 0.001], rtol=2e-3)
    np.testing.assert_allclose([c.weight for c in candidates], [*weights, 0.0])


def test_of_classes_told_nearly_for_sure_a_small_gap_is_far() -> None:
    """A tenth of a nat is next to nothing of a density, and of a log loss of 0.05 twice what there is."""
    rows = Rows(np.zeros([50, 1]), np.zeros([50, 1]), np.ones(50))
    unsure = np.arange(50) < 2  # where the first is less likely than the second
    densities = np.where(unsure, [[-1.0], [-0.3]], [[-0.01], [-0.13]])
    alone = stacking_weights(densities.T)[1]
    for of_classes, kept in ((False, np.exp(-10.0 * (0.1368 - 0.0496))), (True, np.exp(-7.03))):
        tried = _Tried(rows, lambda line: None, of_classes)
        for name, density in zip(("good", "behind"), densities, strict=True):
            tried.attempt(name, lambda density=density: (_fit(10, 10, 1.0), _two(density)))
        share = tried.mixed()[1][1]
        np.testing.assert_allclose(share, 0.5 * (alone + kept / (1.0 + kept)), atol=2e-3)
    assert 0.01 < alone < 0.3


def test_of_few_rows_what_is_nearly_as_good_counts_nearly_as_much() -> None:
    """The second is ahead on three rows of ten by what it is behind on others, nearly."""
    ahead = np.arange(50) % 10 < 3
    densities = np.stack([np.zeros(50), np.where(ahead, 2.0, -1.0)], axis=1)
    means = densities.mean(axis=0)
    weights = _nearer_to_all(np.array([0.9, 0.1]), means, 50.0)
    level = np.exp(-10.0 * 0.1)
    np.testing.assert_allclose(
        weights, 0.5 * np.array([0.9, 0.1]) + 0.5 * np.array([1.0, level]) / (1 + level)
    )
    np.testing.assert_allclose(_nearer_to_all(np.array([1.0, 0.0]), means, 50.0), [1.0, 0.0])


@pytest.mark.parametrize("known", [False, True])
def test_of_rounded_targets_probabilities_count_until_they_are_known(known: bool) -> None:
    """The first names numbers, and is wrong in some; the second is unsure, and more likely on average."""
    rows = Rows(np.zeros([400, 1]), np.zeros([400, 1]), np.ones(400))
    wrong = np.arange(400) % 4 == 0
    names = np.stack([np.where(wrong, -9.0, 9.0), np.where(wrong, -9.0, 0.0)], axis=1)
    predicts = _two(np.full(400, -0.05 if known else -0.7))
    tried = _Tried(rows, lambda line: None, spacing=1.0)
    for name, density in (("names", names), ("predicts", predicts)):
        tried.attempt(name, lambda density=density: (_fit(10, 10, 1.0), density))
    weights = {candidate.name: candidate.weight for candidate in tried.mixed()[2]}
    assert (weights["predicts"] < 0.4) == known
    assert tried.best(["names", "predicts"]) == ("names" if known else "predicts")
