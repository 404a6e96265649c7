"""A fit on several replicas is a fit on one."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest


# The program takes half a minute: it runs once, for all that asks for what it found.
@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """What the program that has two devices found, by name; its progress bars as "bars"."""
    finished = subprocess.run(
        [sys.executable, "-m", "tests.training.replicated", tmp_path_factory.mktemp("run")],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
    )
    assert finished.returncode == 0, finished.stderr[-2000:]
    results = [json.loads(line) for line in finished.stdout.splitlines()]
    return {"bars": {"text": finished.stderr}, **{result["name"]: result for result in results}}


@pytest.mark.parametrize("family", ["stripes-and-arrow", "global-inducing", "sampled"])
def test_two_replicas_take_the_steps_of_one(found: dict[str, Any], family: str) -> None:
    """Draws and minibatches are those of one, and the divergence is counted once."""
    result = found[family]
    assert result["equal"]
    assert result["losses"] < 1e-12
    assert result["parameters"] < 1e-10 and result["step"] > 1e-2


def test_a_whole_run_on_two_replicas(found: dict[str, Any]) -> None:
    """Natural gradients, validation, early stopping and a resumed run."""
    result = found["run"]
    assert result["equal"]
    steps, on_two = result["stopped"]
    assert on_two == steps < 60
    assert result["scores"] < 1e-12 and result["parameters"] < 1e-12
    assert result["resumed"]


def test_one_progress_bar(found: dict[str, Any]) -> None:
    text = found["bars"]["text"]
    assert text.count("  0%|") == 1 and "validation=" in text


def test_replicas_have_draws_of_their_own_for_a_bound_that_is_not_given_any(
    found: dict[str, Any],
) -> None:
    result = found["own bound"]
    np.testing.assert_allclose(result["losses"], result["by_hand"], rtol=1e-12)


def test_set_trainable_reaches_the_replicas(found: dict[str, Any]) -> None:
    assert found["set_trainable"]["fixed"] and found["set_trainable"]["freed"]


def test_failure_gives_back_the_parameters_before_it(found: dict[str, Any]) -> None:
    result = found["failure"]
    assert result["equal"] and result["step"] == 4
    assert np.isfinite(result["slope"]) and result["slope"] != 0.5


@pytest.mark.parametrize(
    "what,message",
    {
        "no strategy": "model: expected one made for a single device",
        "another strategy": "model: expected one made, .*in the scope of the strategy",
        "model outside": "model: expected one made, .*in the scope of the strategy",
        "optimizer outside": "optimizer: expected one made, .*in the scope of the strategy",
        "natural outside": "natural_gradient: expected one made, .*in the scope of the strategy",
        "keras 3": "optimizer: expected one of gpflow.keras.tf_keras.optimizers",
        "odd batch": "batch_size: expected a multiple of 2, .*got 7",
        "no strategy at all": "strategy: expected .*MirroredStrategy.*got str",
        "sampler outside": "sampler: expected one made, .*in the scope of the strategy",
    }.items(),
)
def test_refusals(found: dict[str, Any], what: str, message: str) -> None:
    assert re.match(message, found["refusals"][what]), found["refusals"][what]
