"""What is compiled for a run does not outlive it."""

from __future__ import annotations

import gc

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.framework.func_graph import FuncGraph

from gpflow_deep.numerics.compiled import compiled
from tests.training.models import make_svgp, quiet_fit

pytestmark = pytest.mark.usefixtures("bijectors_remember")


def count_graphs() -> int:
    for _ in range(2):  # the first ends the function, which then gives up what holds its graphs
        gc.collect()
    return sum(isinstance(thing, FuncGraph) for thing in gc.get_objects())


def test_graphs_end_with_their_fit() -> None:
    """They were held by TensorFlow's registry of custom gradients and by the bijectors' cache."""
    counts = []
    for _ in range(3):
        quiet_fit(make_svgp(), steps=2, validation_fraction=0.2)
        counts.append(count_graphs())
    assert counts[0] == counts[1] == counts[2]


def test_functions_traced_meanwhile_keep_their_gradients() -> None:
    parameter = gpflow.Parameter(2.0, transform=gpflow.utilities.positive())
    users = tf.function(lambda: 3.0 * parameter)
    np.testing.assert_allclose(users(), 6.0)
    ours = compiled(lambda: parameter**2)
    np.testing.assert_allclose(ours(), 4.0)
    del ours
    count_graphs()
    with tf.GradientTape() as tape:
        value = users()
    gradient = tape.gradient(value, parameter.unconstrained_variable)
    np.testing.assert_allclose(gradient, 3.0 * (1.0 - np.exp(-2.0)), rtol=1e-6)


def test_gradient_through_a_compiled_function() -> None:
    parameter = gpflow.Parameter(2.0, transform=gpflow.utilities.positive())
    square = compiled(lambda: parameter**2)
    with tf.GradientTape() as tape:
        value = square()
    gradient = tape.gradient(value, parameter.unconstrained_variable)
    np.testing.assert_allclose(gradient, 4.0 * (1.0 - np.exp(-2.0)), rtol=1e-6)


def test_gradient_through_a_function_around_a_compiled_one_that_is_gone() -> None:
    parameter = gpflow.Parameter(2.0, transform=gpflow.utilities.positive())
    around = tf.function(lambda: compiled(lambda: parameter**2)(), autograph=False)
    around()
    count_graphs()
    with tf.GradientTape() as tape:
        value = around()
    gradient = tape.gradient(value, parameter.unconstrained_variable)
    np.testing.assert_allclose(gradient, 4.0 * (1.0 - np.exp(-2.0)), rtol=1e-6)
