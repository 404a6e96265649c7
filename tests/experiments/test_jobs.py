"""Runs at a time are the runs one after the other."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from distributed import LocalCluster

from gpflow_deep.experiments import workers
from gpflow_deep.experiments.benchmark import execute, plan, run_all
from gpflow_deep.experiments.results import Results
from gpflow_deep.presets import registry

from ..toys import QUICK, build_svgp


def test_runs_in_two_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    registry.names()  # which registers the library's own, not to be undone with the patch
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


def test_runs_on_a_cluster(tmp_path: Path) -> None:
    """Workers that are threads of this process, as the address of a scheduler has it."""
    runs = plan(["svgp"], ["diabetes"], splits=[0, 1], settings=QUICK)
    lines: list[str] = []
    output = tmp_path / "cluster.jsonl"
    with LocalCluster(
        n_workers=2, threads_per_worker=1, processes=False, dashboard_address=None
    ) as cluster:
        address = cluster.scheduler_address
        assert run_all(runs, output, scheduler=address, echo=lines.append) == []
    records = {record["split"]: record for record in Results(output).read()}
    expected, _ = execute(runs[1], progress=False)
    assert records.keys() == {0, 1}
    assert records[1]["metrics"] == pytest.approx(expected["metrics"], rel=1e-9)
    assert run_all(runs, output, echo=lines.append) == []
    assert "finished before" in lines[-1]


def test_schedulers_that_are_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = plan(["svgp"], ["diabetes"], settings=QUICK)
    output = tmp_path / "r.jsonl"
    with pytest.raises(ValueError, match="jobs: expected none beside a scheduler"):
        run_all(runs, output, jobs=2, scheduler="tcp://127.0.0.1:1")
    with pytest.raises(ValueError, match="scheduler: expected an address such as tcp://"):
        run_all(runs, output, scheduler="")
    with pytest.raises(ConnectionError, match="scheduler: expected the address of a Dask"):
        run_all(runs, output, scheduler="no address")
    with LocalCluster(n_workers=0, processes=False, dashboard_address=None) as cluster:
        with pytest.raises(ConnectionError, match="scheduler: expected one with workers"):
            run_all(runs, output, scheduler=cluster.scheduler_address)
    with LocalCluster(n_workers=1, processes=False, dashboard_address=None) as cluster:
        with pytest.raises(ConnectionError, match="of a Dask scheduler, .*: there is a worker"):
            run_all(runs, output, scheduler=cluster.workers[0].worker_address)
    monkeypatch.setattr(workers, "_SECONDS_TO_CONNECT", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"tcp://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(ConnectionError, match="scheduler: expected the address .*: .*[a-z]"):
            run_all(runs, output, scheduler=address)


def test_number_of_jobs(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="jobs"):
        run_all([], tmp_path / "r.jsonl", jobs=0)


_SLEEPERS = """
import os, sys, time
from pathlib import Path
from joblib import delayed
from gpflow_deep.experiments.workers import in_processes

def sleep(folder):
    Path(folder, str(os.getpid())).touch()
    time.sleep(600)

list(in_processes(2, (delayed(sleep)(sys.argv[1]) for _ in range(2))))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="there a process does not learn of it")
def test_processes_end_with_the_one_that_began_them(tmp_path: Path) -> None:
    """Else they hold the runs that the same command is to take up again."""
    command = [sys.executable, "-c", _SLEEPERS, str(tmp_path)]
    parent = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    end = time.monotonic() + 120
    while len(list(tmp_path.iterdir())) < 2 and time.monotonic() < end:
        time.sleep(0.1)
    assert len(list(tmp_path.iterdir())) == 2
    parent.kill()
    _, errors = parent.communicate(timeout=30)  # none of them has it open any more
    assert "oneDNN" not in errors  # TensorFlow's lines on its start
