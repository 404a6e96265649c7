"""Stochastic gradient Hamiltonian Monte Carlo on densities that are known."""

from __future__ import annotations

from collections.abc import Callable

import gpflow
import numpy as np
import pytest
import tensorflow as tf

from gpflow_deep.numerics.draws import standard_normals
from gpflow_deep.optimizers import SGHMC

SCALES = np.array([0.1, 0.3, 1.0])
CENTRE = np.array([1.0, -2.0, 0.5])


def potential(v: tf.Tensor) -> tf.Tensor:
    """Of independent normals of these scales, about the centre."""
    return 0.5 * tf.reduce_sum(tf.square((v - CENTRE) / SCALES), axis=-1)


def run(
    sampler: SGHMC,
    loss: Callable[[tf.Tensor], tf.Tensor],
    v: tf.Variable,
    steps: int,
    every: int = 1,
) -> np.ndarray:
    """Every so many of the states of a compiled run, [steps / every, C, ...]."""

    @tf.function(autograph=False)
    def take() -> tf.Tensor:
        def body(i: tf.Tensor, states: tf.TensorArray) -> tuple[tf.Tensor, tf.TensorArray]:
            sampler.minimize(lambda: tf.reduce_mean(loss(tf.convert_to_tensor(v))), [v])
            return i + 1, states.write(i, tf.convert_to_tensor(v))

        states = tf.TensorArray(v.dtype, steps, element_shape=v.shape)
        return tf.while_loop(lambda i, _: i < steps, body, (0, states))[1].stack()

    return take().numpy()[every - 1 :: every]


def chains(count: int = 200) -> tf.Variable:
    return tf.Variable(np.zeros([count, len(SCALES)]))


def test_samples_scales_that_differ() -> None:
    sampler, v = SGHMC(0.1, 0.1, burn_in=200), chains()
    run(sampler, potential, v, 300)
    states = run(sampler, potential, v, 500, every=50).reshape(-1, 3)
    # Of the 2000 states of the widest coordinate some 400 are independent.
    np.testing.assert_allclose((states.mean(0) - CENTRE) / SCALES, 0.0, atol=0.15)
    np.testing.assert_allclose(states.std(0) / SCALES, 1.0, atol=0.1)
    assert np.abs(np.corrcoef(states.T) - np.eye(3)).max() < 0.15


@pytest.mark.parametrize("start", [0.0, 1e-4])
def test_chains_that_start_without_a_gradient_come_to_the_density(start: float) -> None:
    """Not so far away that they would never return."""
    sampler, v = SGHMC(0.1, 0.05, burn_in=300), tf.Variable(np.full([200, 1], start))
    states = run(sampler, lambda v: 0.5 * tf.reduce_sum(tf.square(v), -1), v, 1000)
    assert np.abs(states).max() < 10.0
    np.testing.assert_allclose(states[500:].std(), 1.0, atol=0.1)


def test_noise_is_not_what_a_model_draws_in_the_same_step() -> None:
    v = chains()
    # Without a gradient the first state is a multiple of the noise.
    SGHMC(seed=3).apply_gradients([(tf.zeros_like(v), v)])
    (draws,) = standard_normals([v.shape], [3, 0], v.dtype)
    assert abs(np.corrcoef(v.numpy().ravel(), draws.numpy().ravel())[0, 1]) < 0.5


def test_noise_of_gradients_does_not_spread_the_states() -> None:
    """Without the correction the deviations would be up to three times too large."""

    def noisy(v: tf.Tensor) -> tf.Tensor:
        return potential(v) + tf.reduce_sum(20.0 * tf.random.normal(v.shape, dtype=v.dtype) * v, -1)

    sampler, v = SGHMC(0.1, 0.02, burn_in=300), chains()
    run(sampler, noisy, v, 600)
    states = run(sampler, noisy, v, 600, every=100).reshape(-1, 3)
    np.testing.assert_allclose(states.std(0) / SCALES, 1.0, atol=0.15)


def test_motion_is_not_taken_for_noise() -> None:
    """Of exact gradients: those of precise coordinates change much from one step to the next."""
    precisions = np.array([1.0, 1e2, 1e3, 1e4, 1e5])
    sampler, v = SGHMC(burn_in=800), tf.Variable(np.full([100, 5], 0.01))

    def exact(v: tf.Tensor) -> tf.Tensor:
        return 0.5 * tf.reduce_sum(precisions * tf.square(v), axis=-1)

    run(sampler, exact, v, 1000)
    states = run(sampler, exact, v, 1500, every=50).reshape(-1, 5)
    np.testing.assert_allclose(states.std(0) * np.sqrt(precisions), 1.0, atol=0.1)


def test_a_chain_does_not_depend_on_those_beside_it() -> None:
    """But for its noise: without any, one of two chains moves as it does alone."""
    ends = []
    for count in (1, 2):
        v = tf.Variable(np.arange(3.0 * count).reshape(count, 3))
        sampler = SGHMC(0.1, 1e-12, burn_in=1)
        run(sampler, lambda v: tf.reduce_sum(v**4, -1), v, 20)
        ends.append(v.numpy()[0])
    np.testing.assert_allclose(ends[1], ends[0], rtol=1e-4)


def test_a_run_goes_on_to_the_same_numbers(tmp_path: object) -> None:
    whole, v = SGHMC(0.1, burn_in=15, seed=3), chains(2)
    run(whole, potential, v, 10)
    path = tf.train.Checkpoint(sampler=whole, v=v).write(f"{tmp_path}/checkpoint")
    expected = run(whole, potential, v, 20)
    other, w = SGHMC(0.1, burn_in=15, seed=3), chains(2)
    other.build([w])
    tf.train.Checkpoint(sampler=other, v=w).read(path).assert_consumed()
    np.testing.assert_array_equal(run(other, potential, w, 20), expected)
    another = SGHMC(0.1, burn_in=15, seed=4)
    assert np.abs(run(another, potential, chains(2), 20) - expected).min() > 0


def test_averages_are_short_of_what_points_one_way_and_long_of_what_turns() -> None:
    """At their ends: the last gradient alone, and all of them alike."""
    sampler, v = SGHMC(burn_in=200), tf.Variable(np.zeros([1, 2]))

    def step(one_way: float, turning: float) -> None:
        sampler.apply_gradients([(tf.constant([[one_way, turning]], v.dtype), v)])

    for k in range(50):
        step(3.0, 3.0 * (-1.0) ** k)
    (slot,) = sampler._slots
    np.testing.assert_allclose(slot.windows[0, 0], 1.0, rtol=1e-9)
    np.testing.assert_allclose(slot.means[0], [3.0, 0.0], atol=0.1)
    assert 45.0 < slot.windows[0, 1] < 51.0
    for _ in range(12):
        step(30.0, 3.0)
    np.testing.assert_allclose(slot.squares[0], [30.0**2, 3.0**2], rtol=0.02)


def test_scales_are_frozen_after_burn_in() -> None:
    sampler, v = SGHMC(0.1, burn_in=10), chains(2)
    run(sampler, potential, v, 10)
    (slot,) = sampler._slots
    before = [x.numpy() for x in (slot.squares, slot.means, slot.variances, slot.windows)]
    run(sampler, potential, v, 5)
    for old, new in zip(before, (slot.squares, slot.means, slot.variances, slot.windows)):
        np.testing.assert_array_equal(new, old)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_parameters_of_gpflow_and_their_precision(dtype: type) -> None:
    gpflow.config.set_default_float(dtype)
    parameter = gpflow.Parameter(np.zeros([2, 3], dtype))
    sampler = SGHMC(0.1)
    loss = sampler.minimize(lambda: tf.reduce_sum(tf.square(parameter - 1.0)), [parameter])
    assert loss.numpy() == pytest.approx(6.0)
    assert parameter.numpy().dtype == dtype and (parameter.numpy() != 0).all()


def test_bad_input() -> None:
    for settings, message in (
        ({"step_size": 0.0}, "step_size: expected"),
        ({"momentum_decay": 1.5}, "momentum_decay: expected"),
        ({"burn_in": 0}, "burn_in: expected"),
    ):
        with pytest.raises(ValueError, match=message):
            SGHMC(**settings)
    sampler, v = SGHMC(), chains(1)
    sampler.minimize(lambda: potential(v)[0], [v])
    with pytest.raises(ValueError, match="variables: expected the 1 of the first step, got 2"):
        sampler.minimize(lambda: potential(v)[0], [v, chains(1)])
