"""What the studies of benchmarks/ share."""

from __future__ import annotations

import importlib
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(Path(__file__).parents[1] / "benchmarks")
    return importlib.import_module("runs")


def test_a_study_goes_on_where_it_stopped(runs: Any, tmp_path: Path) -> None:
    results = runs.Results(tmp_path / "results.jsonl")
    executed = []

    def execute(split: int) -> dict[str, Any]:
        executed.append(split)
        return {"curve": [[1, 2.0]]}

    for split in (0, 1, 0, 1, 2):
        results.run({"method": "Adam", "split": split}, partial(execute, split))
    assert executed == [0, 1, 2]
    assert results.read()[1] == {"method": "Adam", "split": 1, "curve": [[1, 2.0]]}


def test_a_line_that_a_kill_cut_is_executed_again(runs: Any, tmp_path: Path) -> None:
    results = runs.Results(tmp_path / "results.jsonl")
    results.run({"split": 0}, lambda: {"score": 1.0})
    results.path.write_text(results.path.read_text() + '{"split": 1, "sco')
    results.run({"split": 1}, lambda: {"score": 2.0})
    assert [line["score"] for line in results.read()] == [1.0, 2.0]


def test_the_clock_stands_still_while_a_model_is_scored(
    runs: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0
    monkeypatch.setattr(time, "process_time", lambda: now)

    def passes(seconds: float) -> None:
        nonlocal now
        now += seconds

    recorder = runs.Recorder(lambda: [passes(100.0) or 7.0], at=[1, 3])
    for step in (1, 2, 3):
        passes(1000.0 if step == 1 else 2.0)  # the first step compiles
        recorder(step)
    assert recorder.curve == [(1, 0.0, 7.0), (3, 4.0, 7.0)]


def test_standard_error(runs: Any) -> None:
    assert runs.mean_and_error([1.0, 3.0], 1) == "2.0 (1.0)"
    assert runs.mean_and_error([1.25], 2) == "1.25"
