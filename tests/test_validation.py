"""Numbers, arrays and observations at the door."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow.likelihoods import (
    Bernoulli,
    Beta,
    Exponential,
    Gamma,
    Gaussian,
    Likelihood,
    Ordinal,
    Poisson,
    ScalarLikelihood,
    Softmax,
    SwitchedLikelihood,
)

import gpflow_deep as gd
from gpflow_deep.initialisation import (
    greedy_inducing_inputs,
    inducing_data,
    kmeans_inducing_inputs,
    linear_mean_function,
)
from gpflow_deep.likelihoods import MissingOutputs
from gpflow_deep.validation import (
    as_num_data,
    as_real_tensor,
    check_inputs,
    check_number,
    check_positive_number,
    check_targets,
)

NAN, INF = np.nan, np.inf
WRONG: list[tuple[Callable[[], Likelihood], list[float], str]] = [
    (Bernoulli, [2.0, -1.0, 0.5], "labels 0 and 1"),
    (Poisson, [-1.0, 1.5], "counts"),
    (Beta, [0.0, 1.0, -0.1], "between 0 and 1"),
    (Gamma, [0.0, -1.0], "positive values for Gamma"),
    (Exponential, [-1.0], "values from 0 on for Exponential"),
    (lambda: Ordinal(np.array([0.0, 1.0])), [3.0, -1.0, 0.5], "levels 0 to 2"),
    (Gaussian, [NAN, INF, -INF], "finite values, not NaN or infinity"),
    (lambda: MissingOutputs(Poisson()), [-1.0, INF], "or NaN"),
]


@pytest.mark.parametrize("case", WRONG, ids=lambda case: case[2])
def test_observations_that_a_likelihood_cannot_have(case: Any) -> None:
    make, values, words = case
    likelihood = make()

    @tf.function(autograph=False)
    def compiled(Y: tf.Tensor) -> tf.Tensor:
        return check_targets(Y, likelihood, 1, "Y")

    right = np.full([4, 1], {Beta: 0.5, Bernoulli: 0.0}.get(type(likelihood), 1.0))
    np.testing.assert_array_equal(check_targets(right, likelihood, 1, "Y"), right)
    np.testing.assert_array_equal(compiled(right), right)
    np.testing.assert_array_equal(
        tf.function(compiled, autograph=False, jit_compile=True)(right), right
    )
    for value in values:
        wrong = np.where(np.arange(4)[:, None] == 2, value, right)
        with pytest.raises(ValueError, match=f"Y: expected .*{words}.*got {value:g}"):
            check_targets(wrong, likelihood, 1, "Y")
        with pytest.raises(tf.errors.InvalidArgumentError, match=words):
            compiled(wrong)


def test_missing_observations_are_let_through_by_name() -> None:
    Y = np.array([[1.0, NAN], [0.0, 1.0]])
    with pytest.raises(ValueError, match="Y.*NaN.*gpflow_deep.likelihoods.MissingOutputs"):
        check_targets(Y, Bernoulli(), 2, "Y")
    np.testing.assert_array_equal(check_targets(Y, MissingOutputs(Bernoulli()), 2, "Y"), Y)


def test_values_at_the_end_of_a_support() -> None:
    np.testing.assert_array_equal(check_targets([[0.0]], Exponential(), 1, "Y"), [[0.0]])


def test_of_densities_of_users_nothing_is_known() -> None:
    class ZeroInflated(Gamma):
        def _scalar_log_prob(self, X: tf.Tensor, F: tf.Tensor, Y: tf.Tensor) -> tf.Tensor:
            positive = np.log(0.7) + super()._scalar_log_prob(X, F, tf.maximum(Y, 1e-9))
            return tf.where(Y > 0.0, positive, np.log(0.3) * tf.ones_like(F))

    np.testing.assert_array_equal(check_targets([[0.0]], ZeroInflated(), 1, "Y"), [[0.0]])
    with pytest.raises(ValueError, match="finite"):
        check_targets([[NAN]], ZeroInflated(), 1, "Y")


def test_labels_of_a_softmax_of_users_are_whole() -> None:
    class Own(Softmax):
        def _log_prob(self, X: tf.Tensor, F: tf.Tensor, Y: tf.Tensor) -> tf.Tensor:
            return tf.reduce_sum(F, axis=-1)

    np.testing.assert_array_equal(check_targets([[7.0]], Own(2), 2, "Y"), [[7]])
    with pytest.raises(ValueError, match="whole numbers for Softmax, got 0.7"):
        check_targets([[0.7]], Own(2), 2, "Y")


def test_labels_of_any_type() -> None:
    for labels in (np.array([[True], [False]]), np.array([[1], [0]], np.uint8), [[1], [0]]):
        np.testing.assert_array_equal(check_targets(labels, Bernoulli(), 1, "Y"), [[1.0], [0.0]])


def test_two_labels_of_a_bernoulli() -> None:
    """GPflow's takes any label but 1 for the negative class."""
    parts = SwitchedLikelihood([Gaussian(), Bernoulli()])
    for known in (True, False):

        def check(Y: Any, likelihood: Likelihood, columns: int = 1, known: bool = known) -> Any:
            checked = partial(
                check_targets, likelihood=likelihood, num_latent_gps=columns, name="Y"
            )
            return (checked if known else tf.function(checked, autograph=False))(Y)

        for labels in ([[-1.0], [1.0]], [[-1.0], [-1.0]], np.array([[1], [-1]])):
            np.testing.assert_array_equal(check(tf.constant(labels), Bernoulli()), labels)
        missing = tf.constant([[-1.0, NAN], [1.0, 1.0]], tf.float64)
        np.testing.assert_array_equal(check(missing, MissingOutputs(Bernoulli()), 2), missing)
        # Another likelihood's values are no labels.
        switched = tf.constant([[0.0, 0.0], [-1.0, 1.0], [1.0, 1.0]], tf.float64)
        np.testing.assert_array_equal(check(switched, parts), switched)
        for labels in ([[-1.0], [0.0]], [[1.0], [2.0]], [[-1.0], [2.0]], [[-1.0], [0.5]]):
            with pytest.raises(
                (ValueError, tf.errors.InvalidArgumentError), match="labels -1 and 1"
            ):
                check(tf.constant(labels), Bernoulli())


def test_integers_known_only_when_a_function_runs() -> None:
    for likelihood in (Bernoulli(), Softmax(2), Gaussian(), Poisson()):
        for dtype in (np.int32, np.int64, np.uint8, bool):
            labels = np.array([[1], [0]], dtype)
            width = 2 if isinstance(likelihood, Softmax) else 1
            check = partial(check_targets, likelihood=likelihood, num_latent_gps=width, name="Y")
            check = tf.function(check, autograph=False)
            np.testing.assert_array_equal(check(tf.constant(labels)), [[1], [0]])


def test_the_index_of_a_likelihood() -> None:
    switched = SwitchedLikelihood([Gaussian(), Gaussian()])
    check_targets([[0.3, 0.0], [5.0, 1.0]], switched, 1, "Y")
    for wrong in (2.0, -1.0, 0.5):
        with pytest.raises(ValueError, match="Y.*index of a likelihood, 0 to 1.*last column"):
            check_targets([[0.3, wrong]], switched, 1, "Y")


@pytest.mark.parametrize(
    "part, good, bad, message",
    [
        (Poisson(), 2.0, -1.0, "expected counts for Poisson where the last column is 1, got -1"),
        (Poisson(), 2.0, 0.5, "expected counts for Poisson where the last column is 1, got 0.5"),
        (Bernoulli(), 0.0, -1.0, "labels 0 and 1 for Bernoulli where the last column is 1, got -1"),
        (Bernoulli(), -1.0, 2.0, "labels 0 and 1 for Bernoulli where the last column is 1, got 2"),
        (Gamma(), 0.1, -1.0, "positive values for Gamma where the last column is 1, got -1"),
    ],
)
def test_each_of_several_likelihoods_has_observations_that_it_can_have(
    part: ScalarLikelihood, good: float, bad: float, message: str
) -> None:
    switched = SwitchedLikelihood([Gaussian(), part])
    rows = [[-0.5, -1.5, 0.0], [good, good, 1.0]]
    np.testing.assert_array_equal(check_targets(rows, switched, 2, "Y"), rows)
    with pytest.raises(ValueError, match=message):
        check_targets([*rows, [good, bad, 1.0]], switched, 2, "Y")
    compiled = tf.function(
        lambda Y: check_targets(Y, switched, 2, "Y"),
        input_signature=[tf.TensorSpec([None, 3], tf.float64)],
        autograph=False,
    )
    np.testing.assert_array_equal(compiled(rows), rows)
    with pytest.raises(tf.errors.InvalidArgumentError, match="where the last column is 1"):
        compiled([*rows, [good, bad, 1.0]])


def test_masks_are_refused() -> None:
    masked = np.ma.masked_values([[1.0, 1e20], [2.0, 3.0]], 1e20)
    for check in (check_inputs, as_real_tensor):
        with pytest.raises(ValueError, match="Z.*mask.*1 of 4"):
            check(masked, "Z")
        np.testing.assert_array_equal(check(np.ma.array(np.eye(2)), "Z"), np.eye(2))


def test_lists_keep_their_digits() -> None:
    values = [[1e9 + k] for k in range(5)]
    np.testing.assert_array_equal(as_real_tensor(values, "X"), np.array(values))


def test_values_that_single_precision_merges() -> None:
    gpflow.config.set_default_float(np.float32)
    times = np.c_[1.7e9 + np.arange(100.0), np.arange(100.0)]
    for check in (
        lambda: check_inputs(times, "X"),
        lambda: check_targets(times[:, :1], Gaussian(), 1, "X"),
    ):
        with pytest.raises(ValueError, match=r"X.*float32.*column \(0\).*subtract its mean"):
            check()
    assert check_inputs(times - times.mean(0), "X").dtype == np.float32
    assert check_inputs(np.random.default_rng(0).normal(size=(1000, 1)), "X").dtype == np.float32


@pytest.mark.parametrize("wrong", [0, -1, NAN, INF, "1", None, True, 1j, [1.0], np.ones(2)])
def test_numbers(wrong: Any) -> None:
    for right in (1, 0.5, np.float32(0.5), np.array(0.5), tf.constant(0.5)):
        assert check_positive_number(right, "scale") == float(right)
    with pytest.raises(ValueError, match="scale: expected a positive number, got"):
        check_positive_number(wrong, "scale")
    if wrong != 0 if np.ndim(wrong) == 0 else True:
        with pytest.raises(ValueError, match="alpha: expected a number from 0 to 0.9, got"):
            check_number(wrong, "alpha", 0.0, 0.9)


@pytest.mark.parametrize("wrong", [0, -3, NAN, "7", 1.5, None, True])
def test_initial_values_of_impossible_sizes(wrong: Any) -> None:
    X = np.random.default_rng(0).normal(size=(9, 2))
    for act in (
        kmeans_inducing_inputs,
        lambda X, M: greedy_inducing_inputs(X, M, gpflow.kernels.Matern52()),
        lambda X, M: inducing_data(X, X, M),
        linear_mean_function,
    ):
        with pytest.raises(
            ValueError, match="(num_inducing|output_dim): expected a positive integer"
        ):
            act(X, wrong)
        with pytest.raises(ValueError, match="X.*NaN"):
            act(np.where(X == X[0, 0], NAN, X), 2)


def test_impossible_numbers_of_models() -> None:
    X = np.random.default_rng(0).normal(size=(9, 2))
    (layer,) = gd.layers.build_layers(X, (), 1, 3)
    for alpha in (2, -0.1, NAN, "1"):
        with pytest.raises(ValueError, match="alpha: expected a number from 0 to 1"):
            gd.models.collapsed_evidence(layer, Gaussian(), (X, X[:, :1]), alpha)
    for scale in (0.0, INF, "big"):
        with pytest.raises(ValueError, match="scale: expected a positive number"):
            gd.posteriors.TiedFactor([layer], scale=scale)


def test_checks_put_no_infinity_into_graphs() -> None:
    """TensorFlow's check of numerics would take it for one of the data's."""
    tf.debugging.enable_check_numerics()
    try:
        for likelihood in (Gaussian(), MissingOutputs(Gaussian())):
            check = partial(check_targets, likelihood=likelihood, num_latent_gps=1, name="Y")
            compiled = tf.function(check, autograph=False, reduce_retracing=True)
            np.testing.assert_array_equal(compiled(tf.constant([[0.5]], tf.float64)), [[0.5]])
    finally:
        tf.debugging.disable_check_numerics()


def test_numbers_of_rows_are_taken_as_gpflows_models_take_them() -> None:
    variable = tf.Variable(7, trainable=False)
    assert as_num_data(None) is None and as_num_data(variable) is variable
    for value in (1e5, np.float64(1e5), 100_000, np.int64(100_000)):
        number = as_num_data(value)
        assert number == 100_000 and isinstance(number, int)
    for wrong in (1.5, 0, -3.0, np.inf, np.nan, True, "7"):
        with pytest.raises(ValueError, match="num_data: expected a positive integer"):
            as_num_data(wrong)
    with pytest.raises(ValueError, match="num_data: expected one number"):
        as_num_data(tf.ones([2]))
