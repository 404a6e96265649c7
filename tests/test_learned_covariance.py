"""The decomposition of what a posterior couples, of benchmarks/learned_covariance.py."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
LAYERS, M = (2, 2, 2, 1), 2
T = sum(LAYERS)
LAYER = np.repeat(np.arange(len(LAYERS)), LAYERS)
INDEX = np.concatenate([np.arange(width) for width in LAYERS])
HIDDEN = LAYER < len(LAYERS) - 1
# Which GPs are of one chain, or of which one is the output's; and which are of neighbouring layers.
STAR = (INDEX[:, None] == INDEX) & HIDDEN[:, None] & HIDDEN | ~HIDDEN[:, None] | ~HIDDEN
NEIGHBOURS = np.abs(LAYER[:, None] - LAYER) <= 1


@pytest.fixture
def parts(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(BENCHMARKS)
    return importlib.import_module("learned_covariance").parts


def factor(kept: np.ndarray, seed: int = 0) -> np.ndarray:
    """A lower-triangular one of the GPs' blocks that are kept, [T M, T M]."""
    L = np.random.default_rng(seed).normal(size=(T * M, T * M))
    return np.tril(np.where(np.kron(kept, np.ones((M, M), bool)), L, 0.0)) + 3.0 * np.eye(T * M)


def covariance_factor(precision: np.ndarray) -> np.ndarray:
    return np.linalg.cholesky(np.linalg.inv(precision))


def kl(from_factor: np.ndarray, to_factor: np.ndarray) -> float:
    """Between Gaussians of mean zero."""
    ratio = np.linalg.solve(to_factor, from_factor)
    return 0.5 * (np.sum(ratio**2) - len(ratio)) - np.linalg.slogdet(ratio)[1]


def nearest(L: np.ndarray) -> np.ndarray:
    """The factor of stripes and arrow with the least divergence from q."""
    hidden = np.repeat(HIDDEN, M)
    S = (L @ L.T)[np.ix_(hidden, hidden)]
    chains = np.kron(STAR[np.ix_(HIDDEN, HIDDEN)], np.ones((M, M), bool))
    new = L.copy()
    new[np.ix_(hidden, hidden)] = np.linalg.cholesky(np.where(chains, S, 0.0))
    regression = np.linalg.solve(L[np.ix_(hidden, hidden)].T, L[np.ix_(~hidden, hidden)].T).T
    new[np.ix_(~hidden, hidden)] = regression @ new[np.ix_(hidden, hidden)]
    return new


def test_no_coupling_is_nothing(parts: Any) -> None:
    nats = parts(factor(np.eye(T, dtype=bool)), LAYERS)
    assert max(abs(value) for name, value in nats.items() if name != "pairs") < 1e-10


def test_parts_add_up_to_the_divergence_from_no_coupling(parts: Any) -> None:
    L = factor(np.ones((T, T), bool))
    own = np.kron(np.eye(T, dtype=bool), np.ones((M, M), bool))
    nats = parts(L, LAYERS)
    independent = np.linalg.cholesky(np.where(own, L @ L.T, 0.0))
    assert nats["total"] == pytest.approx(kl(L, independent))
    assert nats["stripes"] + nats["arrow"] + nats["lost"] == pytest.approx(nats["total"])


def test_lost_is_the_least_divergence_from_stripes_and_arrow(parts: Any) -> None:
    L = factor(np.ones((T, T), bool))
    best = nearest(L)
    assert not best[~np.kron(STAR, np.ones((M, M), bool))].any()
    assert parts(L, LAYERS)["lost"] == pytest.approx(kl(L, best))
    for seed in range(20):
        step = 1e-2 * factor(np.tril(STAR), seed)
        assert kl(L, best + step) > kl(L, best)


def test_structures_lose_nothing_of_their_own(parts: Any) -> None:
    star = parts(factor(STAR), LAYERS)
    assert abs(star["lost"]) < 1e-10 < 1e-2 < star["lost_given_output"]
    # Chains that depend on each other through the output alone: stripes and arrow on the precision.
    given_output = parts(covariance_factor(factor(STAR) @ factor(STAR).T), LAYERS)
    assert abs(given_output["lost_given_output"]) < 1e-10 < 1e-2 < given_output["lost"]
    markov = factor(NEIGHBOURS)
    neighbours = parts(covariance_factor(markov @ markov.T), LAYERS)
    assert abs(neighbours["lost_beyond_neighbours"]) < 1e-10 < 1e-2 < neighbours["lost"]


def test_pairs_are_mutual_informations(parts: Any) -> None:
    L = factor(np.ones((T, T), bool))
    S = L @ L.T
    i, j = slice(3 * M, 4 * M), slice(M, 2 * M)
    conditional = S[i, i] - S[i, j] @ np.linalg.solve(S[j, j], S[j, i])
    expected = 0.5 * (np.linalg.slogdet(S[i, i])[1] - np.linalg.slogdet(conditional)[1])
    assert parts(L, LAYERS)["pairs"][3][1] == pytest.approx(expected)
