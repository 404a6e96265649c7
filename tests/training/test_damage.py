"""Damaged checkpoints, disks that cannot be written, and two processes at one run."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gpflow_deep.training import TrainingError
from tests.training.models import Killed, Line, assert_same, kill_at, make_data, quiet_fit

STEPS = {"steps": 12, "checkpoint_every": 3}


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


DAMAGES: dict[str, Callable[[Path], None]] = {
    "cut": cut,
    "flipped": flip,
    "empty": lambda path: os.truncate(path, 0),
    "missing": Path.unlink,
}
FILES = ["variables.index", "variables.data-00000-of-00001", "progress.json", "checksums.json"]


@pytest.fixture(scope="module")
def killed_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Killed at step 10: its checkpoints are of steps 6 and 9."""
    directory = tmp_path_factory.mktemp("killed")
    with pytest.raises(Killed):
        quiet_fit(Line(), callback=kill_at(10), checkpoint_dir=directory, **STEPS)
    return directory


@pytest.fixture(scope="module")
def whole() -> Line:
    model = Line()
    quiet_fit(model, steps=12)
    return model


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("damage", DAMAGES)
def test_the_checkpoint_before_a_damaged_one_is_gone_on_from(
    damage: str, name: str, killed_run: Path, whole: Line, tmp_path: Path
) -> None:
    directory = tmp_path / "run"
    shutil.copytree(killed_run, directory)
    DAMAGES[damage](directory / "step-9" / name)
    resumed, seen = Line(), []
    with pytest.warns(UserWarning, match=r"step-9 is damaged: .*\. It is passed over"):
        quiet_fit(
            resumed, callback=lambda step, _: seen.append(step), checkpoint_dir=directory, **STEPS
        )
    assert seen == list(range(7, 13))
    assert_same(resumed, whole)
    assert sorted(path.name for path in directory.iterdir()) == ["step-12", "step-9"]
    quiet_fit(Line(), checkpoint_dir=directory, **STEPS)  # which are whole again


def test_where_all_are_damaged_the_run_starts_anew(
    killed_run: Path, whole: Line, tmp_path: Path
) -> None:
    directory = tmp_path / "run"
    shutil.copytree(killed_run, directory)
    for step in (6, 9):
        flip(directory / f"step-{step}" / FILES[1])
    resumed = Line()
    with pytest.warns(UserWarning, match="step-6 is damaged"):
        quiet_fit(resumed, checkpoint_dir=directory, **STEPS)
    assert_same(resumed, whole)


def test_what_a_kill_left_unfinished_counts_for_nothing(
    killed_run: Path, whole: Line, tmp_path: Path
) -> None:
    directory = tmp_path / "run"
    shutil.copytree(killed_run, directory)
    shutil.copytree(directory / "step-9", directory / "step-12.partial")
    (directory / "step-12.partial" / FILES[3]).unlink()
    resumed = Line()
    quiet_fit(resumed, checkpoint_dir=directory, **STEPS)
    assert_same(resumed, whole)
    assert sorted(path.name for path in directory.iterdir()) == ["step-12", "step-9"]


def test_a_directory_that_cannot_be_written_is_found_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for directory in (tmp_path / "file", tmp_path / "file" / "run", "/proc/run"):
        model = Line()
        with pytest.raises(OSError, match="checkpoint_dir: expected a folder that can be written"):
            quiet_fit(model, checkpoint_dir=directory)
        assert not model.seen_num_data


def test_a_disk_without_room_is_found_at_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(100, 99, 1))
    with pytest.raises(OSError, match=r"checkpoint_dir: two checkpoints .* has room for 0.0 MiB"):
        quiet_fit(Line(), checkpoint_dir=tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(sys.platform == "win32", reason="sets a limit that POSIX systems have")
def test_a_disk_that_fills_costs_no_training(whole: Line, tmp_path: Path) -> None:
    """Writes fail from step 5 to 10, as of a full disk: the kernel refuses to let files grow."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)

    def fill_and_free(step: int, loss: float) -> None:
        if step in (5, 10):
            limit = 100 if step == 5 else soft
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))

    model = Line()
    try:
        with pytest.warns(
            UserWarning, match="step 6 could not be written .*model in memory"
        ) as got:
            quiet_fit(model, callback=fill_and_free, checkpoint_dir=tmp_path, **STEPS)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert len(got) == 1  # not of step 9 again
    assert_same(model, whole)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-12", "step-3"]


CHILD = """
import sys, time
from tests.training.models import Line, quiet_fit
def callback(step, loss):
    if step == 4:
        print("ready", flush=True)
        time.sleep(60)
quiet_fit(Line(), callback=callback, checkpoint_dir=sys.argv[1], steps=12, checkpoint_every=3)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="no file locks")
def test_two_processes_at_one_run(whole: Line, tmp_path: Path) -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(tmp_path)],
        cwd=Path(__file__).parents[2],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert child.stdout is not None and child.stdout.readline() == "ready\n"
        model = Line()
        with pytest.raises(RuntimeError, match=f"in use: process {child.pid} on .* since 20"):
            quiet_fit(model, checkpoint_dir=tmp_path, **STEPS)
        assert_same(model, Line())
    finally:
        child.send_signal(signal.SIGKILL)
        child.wait()
    assert json.loads((tmp_path / "lock").read_text())["pid"] == child.pid
    seen: list[int] = []
    quiet_fit(model, callback=lambda step, _: seen.append(step), checkpoint_dir=tmp_path, **STEPS)
    assert seen[0] == 4
    assert_same(model, whole)
    assert not (tmp_path / "lock").exists()


def test_the_lock_ends_with_a_failure(tmp_path: Path) -> None:
    failing = Line(2, lambda loss, slope: loss + float("nan"))
    for _ in range(2):
        with pytest.raises(TrainingError):
            quiet_fit(failing, make_data(), checkpoint_dir=tmp_path, checkpoint_every=3)
