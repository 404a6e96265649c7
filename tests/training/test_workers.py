"""A fit by several processes is a fit by one, and outlives them."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.models.contract import values
from tests.training.models import Weights, quiet_fit
from tests.training.worker import SETTINGS


def _two_workers(folder: Path, killed: int = -1) -> list[tuple[dict[str, Any], str]]:
    """What each of two workers on this machine wrote, and what it showed; nothing of one that was killed."""
    sockets = [socket.create_server(("localhost", 0)) for _ in range(2)]
    cluster = {"worker": [f"localhost:{each.getsockname()[1]}" for each in sockets]}
    for each in sockets:
        each.close()
    workers = []
    for index in range(2):
        task = {"cluster": cluster, "task": {"type": "worker", "index": index}}
        workers.append(
            subprocess.Popen(
                [sys.executable, "-m", "tests.training.worker", str(folder), str(killed)],
                cwd=Path(__file__).parents[2],
                env={**os.environ, "TF_CONFIG": json.dumps(task)},
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
    try:
        written = [worker.communicate(timeout=300) for worker in workers]
    finally:
        for worker in workers:
            worker.kill()
    return [(json.loads(out) if out else {}, shown) for out, shown in written]


def test_two_workers_of_which_one_is_killed_come_to_the_result_of_one(tmp_path: Path) -> None:
    _, (left, _) = _two_workers(tmp_path, killed=0)  # the chief, who writes the checkpoints
    assert left["error"].startswith("Training ended after step 9: a worker is gone")
    assert left["step"] == 9
    assert [path.name for path in tmp_path.glob("step-*")] == ["step-6"]

    (chief, bar), (other, no_bar) = _two_workers(tmp_path)
    assert chief == other
    assert "15/15" in bar and "/15" not in no_bar

    alone = Weights()
    result = quiet_fit(alone, **SETTINGS)
    np.testing.assert_allclose(chief["losses"], result.history["loss"], rtol=1e-12)
    np.testing.assert_allclose(chief["values"], values(alone), rtol=1e-10, atol=1e-12)
    assert chief["score"] == pytest.approx(result.best_score, rel=1e-12)
