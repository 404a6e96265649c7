"""What becomes of a fit that was interrupted, under the same command and under others."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner, Result

from gpflow_deep.command_line.fitting import FittedTable
from gpflow_deep.command_line.interrupted import checkpoints_of, given_options
from gpflow_deep.command_line.main import main
from gpflow_deep.training.checkpoints import Checkpoints
from gpflow_deep.training.lock import Lock


def _fit(folder: Path, *options: object, data: str = "data.csv") -> Result:
    command = ["fit", folder / data, "--target", "y", "--output", folder / "fit", "--model", "svgp"]
    command += ["--num-inducing", 8, *([] if "--steps" in options else ["--steps", 5]), *options]
    return CliRunner().invoke(main, [str(argument) for argument in command])


def _predictions(folder: Path) -> str:
    result = CliRunner().invoke(main, ["predict", f"{folder / 'fit'}", f"{folder / 'data.csv'}"])
    assert result.exit_code == 0, result.output
    return result.stdout


def _data(folder: Path) -> None:
    x = np.linspace(-2.0, 2.0, 50)
    pd.DataFrame({"x": x, "y": np.sin(3.0 * x)}).to_csv(folder / "data.csv", index=False)


@pytest.fixture
def restored(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether trainings went on from a checkpoint."""
    found: list[bool] = []
    restore = Checkpoints.restore

    def watched(self: Checkpoints, steps: int) -> bool:
        found.append(restore(self, steps))
        return found[-1]

    monkeypatch.setattr(Checkpoints, "restore", watched)
    return found


def _interrupted(folder: Path, *options: object) -> None:
    """A fit that ends with its first checkpoint."""
    save = Checkpoints.save

    def saved(self: Checkpoints) -> None:
        save(self)
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Checkpoints, "save", saved)
        result = _fit(folder, *options)
    assert result.exit_code == 1 and "The same command goes on" in result.stderr
    assert (folder / "fit" / "checkpoints").is_dir()


@pytest.mark.parametrize("overwrite", [False, True])
def test_the_same_command_goes_on(tmp_path: Path, restored: list[bool], overwrite: bool) -> None:
    options = ["--overwrite"] if overwrite else []
    _data(tmp_path)
    assert _fit(tmp_path).exit_code == 0
    whole = _predictions(tmp_path)
    if not overwrite:
        (tmp_path / "fit" / "fit.zip").unlink()
    _interrupted(tmp_path, *options)
    result = _fit(tmp_path, *options)
    assert result.exit_code == 0, result.output
    assert restored == [False, False, True]
    assert _predictions(tmp_path) == whole
    assert [path.name for path in (tmp_path / "fit").iterdir()] == ["fit.zip"]


def test_another_command_is_told_what_differs_or_begins_anew(
    tmp_path: Path, restored: list[bool]
) -> None:
    _data(tmp_path)
    _interrupted(tmp_path)
    another = ("--kernel", "rbf", "--set", "batch_size=20", "--steps", 4)
    for _ in range(2):  # also the second time
        result = _fit(tmp_path, *another)
        told = (
            "there is an interrupted fit that cannot go on so: --kernel was not given and is now rbf, --set"
            " was not given and is now batch_size=20, --steps was 5 and is now 4. The command that began it"
            " goes on with it; --overwrite begins anew."
        )
        assert result.exit_code == 1 and told in result.stderr
        assert "checkpoint_dir" not in result.stderr
    result = _fit(tmp_path, *another, "--overwrite")
    assert result.exit_code == 0, result.output
    assert "An interrupted fit is removed: --kernel was not given and is now rbf" in result.stderr
    assert restored == [False, False]
    assert [path.name for path in (tmp_path / "fit").iterdir()] == ["fit.zip"]


def test_other_rows_are_told(tmp_path: Path) -> None:
    _data(tmp_path)
    _interrupted(tmp_path)
    table = pd.read_csv(tmp_path / "data.csv")
    table.assign(y=-table["y"]).to_csv(tmp_path / "data.csv", index=False)
    result = _fit(tmp_path)
    assert result.exit_code == 1 and "DATA was another file. The command" in result.stderr


def test_what_may_change_on_the_way_may_change(tmp_path: Path, restored: list[bool]) -> None:
    _data(tmp_path)
    _interrupted(tmp_path)
    result = _fit(tmp_path, "--set", "learning_rate=0.002", "--steps", 6)
    assert result.exit_code == 0 and restored == [False, True], result.output
    assert "is removed" not in result.stderr
    assert "Warning: the run in" in result.stderr and "checkpoint_dir" not in result.stderr


def test_the_record_is_that_of_the_command_that_began(tmp_path: Path) -> None:
    """Another that was stopped before training looked at what is there has begun nothing."""
    _data(tmp_path)
    _interrupted(tmp_path)
    checkpoints = tmp_path / "fit" / "checkpoints"
    before = (checkpoints / "options.json").read_text()
    other = json.loads(before) | {"--kernel": "rbf"}
    with pytest.raises(KeyboardInterrupt):
        with checkpoints_of(checkpoints, other):
            raise KeyboardInterrupt
    assert (checkpoints / "options.json").read_text() == before
    with checkpoints_of(checkpoints, other, overwrite=True):
        assert [path.name for path in checkpoints.iterdir() if path.is_dir()] == []


def test_what_is_left_of_another_family_is_not_removed_unsaid(tmp_path: Path) -> None:
    _data(tmp_path)
    _interrupted(tmp_path)
    result = _fit(tmp_path, "--model", "gp")
    assert result.exit_code == 0, result.output
    assert "left of another fit is removed: --model was svgp and is now gp" in result.stderr


def test_what_an_earlier_version_left(tmp_path: Path, restored: list[bool]) -> None:
    """It has no record of its options."""
    _data(tmp_path)
    _interrupted(tmp_path)
    (tmp_path / "fit" / "checkpoints" / "options.json").unlink()
    result = _fit(tmp_path, "--kernel", "rbf")
    assert result.exit_code == 1 and "cannot go on so: it has other settings" in result.stderr
    assert _fit(tmp_path).exit_code == 0 and restored == [False, True]


@pytest.mark.parametrize(
    ("where", "error"),
    [
        ("Checkpoints.save", OSError("No space left on device")),
        ("Checkpoints.save", KeyboardInterrupt()),
        ("_flush", KeyboardInterrupt()),  # half of it is written
    ],
)
def test_a_fit_that_had_no_checkpoint_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str, error: BaseException
) -> None:
    """What comes after it is not told of another fit."""
    folder = tmp_path / "my fit"
    folder.mkdir()
    _data(folder)

    def failing(*arguments: object) -> None:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(f"gpflow_deep.training.checkpoints.{where}", failing)
        result = _fit(folder)
    assert result.exit_code != 0
    begins_anew = "The same command begins anew" in result.stderr
    assert begins_anew == isinstance(error, KeyboardInterrupt)
    assert not (folder / "fit").exists()
    result = _fit(folder, "--seed", 1)
    assert result.exit_code == 0, result.output
    assert "is removed" not in result.stderr
    assert f"Next: gpflow-deep predict '{folder / 'fit'}' NEW.csv" in result.stderr


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EACCES])
def test_a_fit_that_there_is_no_room_for_is_gone_on_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, restored: list[bool], number: int
) -> None:
    _data(tmp_path)
    path = str(tmp_path / "fit" / "fit.zip")

    def failing(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number), path)

    with monkeypatch.context() as patch:
        patch.setattr(FittedTable, "save", failing)
        result = _fit(tmp_path)
    assert result.exit_code == 1 and f"{os.strerror(number)}: '{path}'" in result.stderr
    advice = "The same command goes on from the last checkpoint, once there is room."
    assert (advice in result.stderr) == (number == errno.ENOSPC)
    result = _fit(tmp_path)
    assert result.exit_code == 0 and restored.count(False) == 1, result.output


def test_only_checkpoints_of_fits_are_removed(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoints"
    for name in (
        "svgp-whole/lock",
        "svgp-whole/step-5/variables",
        "gp-whole/member.npz",
        "svgp-mine/notes",
        "mine-1/lock",
    ):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    with checkpoints_of(folder, {}):
        pass
    assert sorted(path.name for path in folder.iterdir()) == ["mine-1", "svgp-mine"]
    (tmp_path / "gone" / "gp-fold-1" / "step-3").mkdir(parents=True)
    for name in ("gone", "never", "no/such/folder"):
        with checkpoints_of(tmp_path / name, {}):
            pass
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoints"]


def test_a_fit_that_another_process_is_at_is_left_alone(tmp_path: Path) -> None:
    _data(tmp_path)
    _interrupted(tmp_path)
    checkpoints = tmp_path / "fit" / "checkpoints"
    before = sorted(checkpoints.rglob("*"))
    lock = Lock(checkpoints / "lock")
    result = _fit(tmp_path, "--kernel", "rbf", "--overwrite")
    lock.release()
    assert result.exit_code == 1 and f"{checkpoints} is in use: process" in result.stderr
    assert "Training takes" not in result.stderr
    assert sorted(checkpoints.rglob("*")) == before


def test_options_are_those_that_decide(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("x")
    arguments = [__file__, "--target", "y", "--output", "out", "--set", "a=1"]
    context = main.commands["fit"].make_context("fit", arguments)
    options = given_options(context, tmp_path / "data")
    assert options["--set"] == ["a=1"] and options["--layers"] is None
    assert not {"--output", "--overwrite", "output", "data"} & options.keys()
