"""Training on several devices is training on one."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.models.contract import COMPILED_FAMILIES


def test_two_replicas_take_the_step_of_one() -> None:
    """Gradients summed over replicas, each with half of the batch and of the draws."""
    finished = subprocess.run(
        [sys.executable, "-m", "tests.models.mirrored"],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
    )
    assert finished.returncode == 0, finished.stderr[-2000:]
    results = [json.loads(line) for line in finished.stdout.splitlines()]
    assert [result["family"] for result in results] == list(COMPILED_FAMILIES)
    for result in results:
        assert result["gradient"] < 1e-9, result
        assert result["step"] > 1e-3, result
        assert result["parameters"] < 1e-9, result
