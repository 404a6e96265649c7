"""Properties of the structured posteriors alone: what they store, count and refuse."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gpflow_deep as gd
from tests import brute_force as bf
from tests.models.structured_problem import (
    STRUCTURES,
    M,
    block_pattern,
    expand,
    make_posterior,
    make_problem,
)

_widths = st.lists(st.integers(1, 3), min_size=1, max_size=4).map(tuple)


@st.composite
def _posteriors(draw: st.DrawFn) -> tuple[tuple[int, ...], str, np.ndarray, int]:
    widths, structure = draw(_widths), draw(st.sampled_from(STRUCTURES))
    seed = draw(st.integers(0, 2**16))
    return widths, structure, block_pattern(structure, widths, seed), seed


@settings(max_examples=12, deadline=None)
@given(_posteriors())
def test_posterior_is_the_gaussian_that_was_assigned(
    drawn: tuple[tuple[int, ...], str, np.ndarray, int],
) -> None:
    widths, structure, pattern, seed = drawn
    problem = make_problem(widths, pattern, seed=seed)
    q = make_posterior(structure, pattern)(problem.gp_layers())
    q.assign_dense(problem.mean, problem.factor)
    mean, scale_tril = (np.asarray(part) for part in q.dense())
    np.testing.assert_allclose(mean, problem.mean, rtol=1e-12)
    np.testing.assert_allclose(scale_tril, problem.factor, rtol=1e-12, atol=1e-12)
    entries = expand(pattern, np.full(len(pattern), M))
    np.testing.assert_array_equal(scale_tril, np.tril(scale_tril))
    assert np.all(np.diag(scale_tril) > 0)
    assert not np.any(scale_tril[~entries])

    kl = float(q.prior_kl())
    identity = np.eye(len(mean))
    assert kl >= 0
    np.testing.assert_allclose(
        kl, bf.gaussian_kl(mean, scale_tril @ scale_tril.T, identity), rtol=1e-8
    )

    assert q.num_parameters == len(mean) + np.count_nonzero(np.tril(entries))
    q.assign_dense(np.zeros_like(mean), identity)
    np.testing.assert_allclose(q.prior_kl(), 0.0, atol=1e-9)


@pytest.mark.parametrize("structure", STRUCTURES)
def test_assigning_outside_the_pattern_is_refused(structure: str) -> None:
    widths = (2, 2, 1)
    pattern = block_pattern(structure, widths)
    problem = make_problem(widths, pattern)
    q = make_posterior(structure, pattern)(problem.gp_layers())
    outside = problem.factor.copy()
    outside[0, -1] = 0.1
    with pytest.raises(ValueError, match="scale_tril"):
        q.assign_dense(problem.mean, outside)
    if structure in ("mean-field", "stripes-and-arrow"):
        outside = problem.factor.copy()
        outside[M, 0] = 0.1  # between two GPs of the first layer
        with pytest.raises(ValueError, match="scale_tril"):
            q.assign_dense(problem.mean, outside)


@pytest.mark.parametrize(
    "pattern",
    [
        np.ones((3, 3), dtype=bool),
        np.tri(4, dtype=bool),
        np.tri(3, 4, dtype=bool),
        np.tri(3, k=-1, dtype=bool),
        np.ones(3, dtype=bool),
    ],
    ids=["upper", "too-large", "not-square", "no-diagonal", "one-axis"],
)
def test_pattern_that_is_no_lower_triangular_matrix_of_gps_is_refused(pattern: np.ndarray) -> None:
    layers = make_problem((2, 1), block_pattern("mean-field", (2, 1))).gp_layers()
    with pytest.raises(ValueError, match="pattern"):
        gd.posteriors.BlockStructured(layers, pattern=pattern)
