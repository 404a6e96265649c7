"""Random draws: reproducible, independent where they must be, and standard normal."""

from __future__ import annotations

from functools import partial

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from gpflow_deep.numerics.draws import quasi_normals, standard_normals

SHAPES = [[50, 20, 2], [50, 20, 2], [50, 3]]


def _assert_equal(one: list, other: list) -> None:
    for a, b in zip(one, other, strict=True):
        np.testing.assert_array_equal(a, b)


def test_shapes_and_precision() -> None:
    for precision in (np.float64, np.float32):
        gpflow.config.set_default_float(precision)
        for seed in (None, [1, 2]):
            draws = standard_normals(SHAPES, seed)
            assert [x.shape.as_list() for x in draws] == SHAPES
            assert all(x.dtype == precision for x in draws)
        assert all(x.dtype == precision for x in quasi_normals(8, [2, 1], seed=0))
    assert standard_normals([], None) == standard_normals([], [1, 2]) == []


@pytest.mark.parametrize("dtype", [tf.float64, tf.float32])
def test_global_seed(dtype: tf.DType) -> None:
    draw = partial(standard_normals, SHAPES, dtype=dtype)
    runs = []
    for seed in (1, 1, 2):
        tf.random.set_seed(seed)
        runs.append(draw() + draw())
    _assert_equal(runs[0], runs[1])
    assert not np.any(runs[0][0] == runs[2][0])
    assert not np.any(runs[0][0] == runs[0][3])  # another call, other draws


@pytest.mark.parametrize("dtype", [tf.float64, tf.float32])
def test_draws_are_a_function_of_their_seed(dtype: tf.DType) -> None:
    draw = partial(standard_normals, SHAPES, dtype=dtype)
    first = draw([1, 2])
    assert [x.dtype for x in first] == [dtype] * len(SHAPES)
    tf.random.set_seed(99)
    _assert_equal(draw(tf.constant([1, 2])), first)
    compiled = tf.function(draw)(tf.constant([1, 2]))
    # Compiled arithmetic in float32 may round otherwise.
    tolerance = 0 if dtype == tf.float64 else 1e-5
    for ours, theirs in zip(compiled, first, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=tolerance, atol=tolerance)
    for seed in ([1, 3], [2, 2], [2, 1]):
        assert not np.any(draw(seed)[0] == first[0])


@pytest.mark.parametrize("dtype", [tf.float64, tf.float32])
@pytest.mark.parametrize("seed", [None, [1, 2]])
def test_draws_are_standard_normal_and_independent(seed: list[int] | None, dtype: tf.DType) -> None:
    """Of one tensor, between its halves, and between tensors of the same shape."""
    first, second, third = (np.ravel(x) for x in standard_normals(SHAPES, seed, dtype))
    for draws in (first, second, third):
        assert np.all(np.isfinite(draws))
        assert stats.kstest(draws, "norm").pvalue > 1e-3
    half = len(first) // 2
    for a, b in ((first, second), (first[:half], first[half : 2 * half])):
        for one, other in ((a, b), (a**2, b**2)):
            assert abs(np.corrcoef(one, other)[0, 1]) < 4 / np.sqrt(len(a))


@given(
    shape=st.lists(st.integers(0, 5), max_size=4),
    known=st.booleans(),
    seed=st.sampled_from([None, (1, 2)]),
)
def test_any_shape_is_drawn(shape: list[int], known: bool, seed: tuple[int, int] | None) -> None:
    sizes = shape if known else [tf.constant(n) for n in shape]
    for dtype in (tf.float32, tf.float64):
        (draw,) = standard_normals([sizes], seed, dtype)
        assert draw.shape == tuple(shape)


@given(
    num_samples=st.integers(1, 70),
    dims=st.lists(st.integers(0, 4), min_size=1, max_size=4),
    seed=st.integers(0, 10),
)
def test_quasi_random_draws(num_samples: int, dims: list[int], seed: int) -> None:
    draws = quasi_normals(num_samples, dims, seed)
    assert [x.shape for x in draws] == [(num_samples, d) for d in dims]
    joint = np.concatenate(draws, axis=1)
    assert np.isfinite(joint).all()
    _assert_equal(quasi_normals(num_samples, dims, seed), draws)
    if joint.size:
        assert np.any(np.concatenate(quasi_normals(num_samples, dims, seed + 1), axis=1) != joint)


def test_quasi_random_draws_fill_the_space_more_evenly() -> None:
    """What they are for: averages of smooth functions nearer to the truth than random draws'."""
    errors = {"quasi": [], "random": []}
    rng = np.random.default_rng(0)
    for seed in range(20):
        for name, draws in [
            ("quasi", np.concatenate(quasi_normals(128, [2, 3], seed), axis=1)),
            ("random", rng.standard_normal((128, 5))),
        ]:
            averages = [
                draws.mean(0),
                (draws**2).mean(0) - 1,
                np.exp(0.5 * draws).mean(0) - np.exp(1 / 8),
            ]
            errors[name].append(np.square(averages).mean())
    assert np.sqrt(np.mean(errors["quasi"])) < 0.25 * np.sqrt(np.mean(errors["random"]))
