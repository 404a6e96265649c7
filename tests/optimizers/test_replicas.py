"""Natural gradients on several devices."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path


def test_replicas_stay_equal_and_take_the_step_of_the_averaged_gradient() -> None:
    finished = subprocess.run(
        [sys.executable, "-m", "tests.optimizers.mirrored"],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
    )
    assert finished.returncode == 0, finished.stderr[-2000:]
    result = json.loads(finished.stdout.splitlines()[-1])
    assert result["equal"]
    assert result["difference"] < 1e-10
    assert result["step"] > 1e-2
    assert result["iterations"] == 3
    assert "made in the scope of the strategy" in result["shared"]
    assert "gpflow_deep.optimizers.NaturalGradient averages" in result["gpflows"]
