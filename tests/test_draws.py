"""What this suite promises its tests: the same draws, whatever ran before."""

from __future__ import annotations

import weakref

import numpy as np
import pytest
import tensorflow as tf

from . import conftest


@pytest.fixture(autouse=True)
def functions_that_draw(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of these tests alone: those of others are forgotten here, and these are by others."""
    monkeypatch.setattr(conftest, "_functions_that_draw", weakref.WeakSet())


def _eager_draw() -> tf.Tensor:
    return tf.random.normal([])


_compiled_draw = tf.function(_eager_draw)


def _shuffle() -> tf.Tensor:
    return next(iter(tf.data.Dataset.range(1000).shuffle(1000)))


def _draw_with_another_seed() -> tf.Tensor:
    draw = tf.random.normal([])
    tf.random.set_seed(1)
    return draw


@pytest.mark.parametrize(
    "draw", [np.random.normal, _compiled_draw, _eager_draw, _shuffle, _draw_with_another_seed]
)
def test_every_test_starts_from_the_same_draws(draw):
    draws = []
    for _ in range(4):
        conftest.start_anew()
        draws.append([float(draw()), float(draw())])
    assert draws == [draws[0]] * 4
    assert draws[0][0] != draws[0][1]


def test_a_seed_of_its_own_is_not_left_to_the_next():
    first = float(tf.random.normal([]))
    conftest.start_anew()
    tf.random.set_seed(1)
    conftest.start_anew()
    assert float(tf.random.normal([])) == first
