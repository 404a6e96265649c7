"""Runs at a time are the runs one after the other."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpflow_deep.experiments.benchmark import execute, plan, run_all
from gpflow_deep.experiments.results import Results
from gpflow_deep.presets import registry

from ..toys import QUICK, build_svgp


def test_runs_in_two_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_MODELS", {**registry._MODELS})
    registry.register("of-this-process")(build_svgp)
    runs = plan(["svgp", "of-this-process"], ["diabetes"], settings=QUICK)
    good, bad = runs
    lines: list[str] = []
    output = tmp_path / "two.jsonl"
    assert run_all(runs, output, jobs=2, progress=False, echo=lines.append) == [bad]
    assert sum("failed: name: expected one of" in line for line in lines) == 1
    (record,) = Results(output).read()
    expected, _ = execute(good, progress=False)
    assert record["metrics"] == pytest.approx(expected["metrics"], rel=1e-9)
    assert run_all([good], output, jobs=2, progress=False, echo=lines.append) == []
    assert "finished before" in lines[-1]


def test_number_of_jobs(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="jobs"):
        run_all([], tmp_path / "r.jsonl", jobs=0)
