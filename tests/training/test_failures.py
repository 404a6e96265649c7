"""Numerical failures are named, and the parameters before them given back."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow.keras import tf_keras
from gpflow.utilities import multiple_assign

from gpflow_deep.training import TrainingError
from gpflow_deep.training.scales import far_parameters
from tests.training.models import (
    Line,
    assert_same,
    make_data,
    quiet_fit,
)


def failed_assertion(objective: tf.Tensor, slope: tf.Variable) -> tf.Tensor:
    check = tf.debugging.Assert(False, ["K_MM of layer 2 is not positive definite"])
    with tf.control_dependencies([check] if check is not None else []):
        return tf.identity(objective)


FAILURES = {
    "loss": (lambda objective, slope: objective + np.nan, "the loss is not finite"),
    "gradient": (
        lambda objective, slope: (
            objective + tf.sqrt(tf.reduce_sum(tf.stop_gradient(slope) - slope))
        ),
        "the gradient is not finite",
    ),
    "factorisation": (failed_assertion, "K_MM of layer 2"),
}


@pytest.mark.parametrize("name", FAILURES)
@pytest.mark.parametrize("one_by_one", [True, False])
def test_failure_gives_back_the_parameters_before(name: str, one_by_one: bool) -> None:
    failure, named = FAILURES[name]
    model, expected = Line(7, failure), Line()
    callback = (lambda step, loss: None) if one_by_one else None
    with pytest.raises(
        TrainingError, match=f"(?s)failed at step 8: .*{named}.*learning rate"
    ) as info:
        quiet_fit(model, callback=callback)
    # The parameters at step 8 are those that failed, the last good ones those of step 7.
    quiet_fit(expected, steps=6)
    assert_same(model, expected)
    error = info.value
    assert error.step == 8
    assert "File" not in str(error)
    assert np.isfinite(error.loss) == (name == "gradient")
    restored = Line()
    multiple_assign(restored, error.parameters)
    assert_same(restored, model)
    assert model.num_data is None
    assert pickle.loads(pickle.dumps(error)).step == 8


def test_failure_names_what_is_too_large() -> None:
    model = Line(3, FAILURES["loss"][0])
    model.unused.assign([4e9])
    X, Y = make_data()
    X[:, 1] *= 1e7
    with pytest.raises(TrainingError, match="Far from one: .*unused reaches 4e.09; column 1 of X"):
        with pytest.warns(UserWarning, match="column 1 of X of data .* Scale each column"):
            quiet_fit(model, (X, Y))


def test_large_parameters_of_single_precision_are_named() -> None:
    """Parameters with a transform do not become float64 by being asked for it."""
    model = tf.Module()
    with gpflow.config.as_context(gpflow.config.Config(float=np.float32)):
        model.variance = gpflow.Parameter(1e7, transform=gpflow.utilities.positive())
    assert model.variance.dtype == tf.float32
    assert far_parameters(model) == ["parameter .variance reaches 1e+07"]


def test_failure_at_the_first_step_leaves_the_model_alone() -> None:
    model = Line(0, FAILURES["loss"][0])
    with pytest.raises(TrainingError, match="failed at step 1"):
        quiet_fit(model)
    assert_same(model, Line())


def test_update_to_parameters_that_are_not_finite_is_undone(tmp_path: Path) -> None:
    model = Line()
    with pytest.raises(TrainingError, match="step 1: its update"):
        quiet_fit(model, steps=1, optimizer=tf_keras.optimizers.SGD(1e308), checkpoint_dir=tmp_path)
    assert_same(model, Line())
    assert not list(tmp_path.glob("*.index"))


def test_validation_that_is_nan_is_a_failure() -> None:
    class NanPredictions(Line):
        def predict_log_density(self, data: Any) -> tf.Tensor:
            return super().predict_log_density(data) + np.nan

    with pytest.raises(TrainingError, match="step 4: the validation score is NaN"):
        quiet_fit(NanPredictions(), validation_fraction=0.2, validate_every=4)
