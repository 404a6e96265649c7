"""The optimiser of `fit`: Kingma and Ba's equations, as tf_keras has them, in fewer operations."""

import numpy as np
import pytest
import tensorflow as tf
from gpflow.keras import tf_keras

from gpflow_deep.training.adam import Adam
from gpflow_deep.training.clock import Decay

_SHAPES = ((3, 2), (4,), ())


def _gradients(dtype, steps=12):
    rng = np.random.default_rng(0)
    return [
        [
            (10.0 ** rng.uniform(-3, 3) * rng.standard_normal(shape)).astype(dtype)
            for shape in _SHAPES
        ]
        for _ in range(steps)
    ]


def _descend(optimizer, dtype, eager=False):
    """Where each of several variables comes to."""
    variables = [tf.Variable(np.ones(shape, dtype)) for shape in _SHAPES]
    optimizer.build(variables)

    def step(*gradients):
        optimizer.apply_gradients(zip(gradients, variables, strict=True))

    step = step if eager else tf.function(step)
    for gradients in _gradients(dtype):
        step(*map(tf.constant, gradients))
    return [variable.numpy() for variable in variables]


def _by_hand(dtype, learning_rate, decay_rate, decay_steps):
    """Algorithm 1 of Kingma and Ba (2015), in the form before its section 2.1, which has another epsilon."""
    found = []
    for k, shape in enumerate(_SHAPES):
        x, m, v = np.ones(shape), np.zeros(shape), np.zeros(shape)
        for t, gradients in enumerate(_gradients(dtype), start=1):
            g = gradients[k].astype(np.float64)
            m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g**2
            rate = learning_rate * decay_rate ** ((t - 1) // decay_steps)
            x = x - rate * np.sqrt(1 - 0.999**t) / (1 - 0.9**t) * m / (np.sqrt(v) + 1e-7)
        found.append(x)
    return found


@pytest.mark.parametrize("eager", [False, True])
@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float64, 1e-7), (np.float32, 2e-5)])
def test_it_is_adam(dtype, tolerance, eager):
    found = _descend(Adam(Decay(0.1, 5, 0.5)), dtype, eager)
    for own, expected in zip(found, _by_hand(dtype, 0.1, 0.5, 5), strict=True):
        np.testing.assert_allclose(own, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_it_is_that_of_keras_which_rounds_its_constants_to_float32(dtype):
    ours, theirs = (
        _descend(kind(Decay(0.1, 5, 0.5)), dtype) for kind in (Adam, tf_keras.optimizers.Adam)
    )
    for own, expected in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(own, expected, rtol=2e-5, atol=2e-5)


def test_it_takes_few_operations():
    def operations(kind, count):
        variables = [tf.Variable(np.ones(2)) for _ in range(count)]
        optimizer = kind(Decay(0.1, 5, 0.5))
        optimizer.build(variables)

        @tf.function
        def step():
            optimizer.apply_gradients([(tf.ones(2, v.dtype), v) for v in variables])

        return len(step.get_concrete_function().graph.get_operations())

    ours, theirs = (
        operations(kind, 12) - operations(kind, 2) for kind in (Adam, tf_keras.optimizers.Adam)
    )
    assert ours <= 80  # eight each, gradients among them
    assert theirs > 4 * ours
