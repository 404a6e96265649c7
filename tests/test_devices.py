"""Training on a GPU: nothing in a step is for the CPU alone, and, where one is there, steps are the CPU's."""

from __future__ import annotations

import argparse
import importlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from gpflow.keras import tf_keras

from tests.models.contract import FAMILIES, X, Y, fix_draws, make_model, values

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
SMALL = argparse.Namespace(
    layers=2, num_inducing=5, batch_size=20, input_dim=2, compute_dtype="own", steps=1
)


@pytest.fixture
def devices(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(BENCHMARKS)
    return importlib.import_module("devices")


@pytest.mark.parametrize("name", ["mean-field", "global-inducing"])
def test_every_operation_has_a_gpu_kernel(devices: Any, name: str) -> None:
    step, batch = devices.training_step(name, SMALL)
    assert not devices.without_gpu_kernel(step.get_concrete_function(*batch).graph)


def test_operations_of_the_cpu_alone_are_found(devices: Any) -> None:
    @tf.function(autograph=False)
    def lengths(texts: tf.Tensor) -> tf.Tensor:
        return tf.cond(
            tf.size(texts) > 2, lambda: tf.strings.length(texts), lambda: tf.constant([0])
        )

    graph = lengths.get_concrete_function(tf.TensorSpec([None], tf.string)).graph
    assert devices.without_gpu_kernel(graph)["StringLength"] == 1


@pytest.mark.gpu
@pytest.mark.parametrize("family", FAMILIES)
def test_a_step_is_that_of_the_cpu(family: str) -> None:
    if not tf.config.list_logical_devices("GPU"):
        pytest.skip("needs a GPU")
    ends = []
    for device in ("/CPU:0", "/GPU:0"):
        with tf.device(device):
            model = make_model(family)
            fix_draws(model)
            adam = tf_keras.optimizers.Adam(0.01)
            compiled = tf.function(lambda m=model: m.training_loss((X, Y)), autograph=False)
            adam.minimize(compiled, model.trainable_variables)
            ends.append(values(model))
    np.testing.assert_allclose(ends[1], ends[0], rtol=1e-6, atol=1e-8)
