"""Where predictions go, and what is computed for them."""

from __future__ import annotations

import errno
import io
import os
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner, Result

from gpflow_deep.command_line.main import main
from gpflow_deep.command_line.outputs import standard_output
from gpflow_deep.estimators import DeepGPClassifier


def _run(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def _table() -> pd.DataFrame:
    x = np.linspace(-2.0, 2.0, 60)
    return pd.DataFrame({"x": x, "label": np.where(np.sin(3.0 * x) > 0.0, "up", "down")})


@pytest.fixture(scope="module")
def fit_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fit for tests that only read it."""
    folder = tmp_path_factory.mktemp("fit")
    _table().to_csv(folder / "data.csv", index=False)
    command = ("fit", folder / "data.csv", "--target", "label", "--output", folder / "out")
    result = _run(*command, "--model", "svgp", "--steps", "5", "--num-inducing", "8")
    assert result.exit_code == 0, result.output
    return folder / "out"


@pytest.mark.parametrize("kind", ["link", "pipe", "descriptor"])
def test_predictions_go_to_what_the_output_stands_for(
    fit_folder: Path, tmp_path: Path, kind: str
) -> None:
    _table().to_csv(tmp_path / "new.csv", index=False)
    command = ("predict", fit_folder, tmp_path / "new.csv")
    expected = _run(*command).stdout
    output, target = tmp_path / "output", tmp_path / "target"
    if kind == "link":
        target.write_text("old")
        output.symlink_to("target")
        reader = os.open(target, os.O_RDONLY)
    elif kind == "pipe":
        os.mkfifo(output)
        reader = os.open(output, os.O_RDONLY | os.O_NONBLOCK)
    elif not Path("/proc/self/fd").exists():
        pytest.skip("there are no descriptors in the file system here")
    else:
        reader, writer = os.pipe()
        os.set_blocking(reader, False)
        output.symlink_to(f"/proc/self/fd/{writer}")
    before = sorted(tmp_path.iterdir())
    result = _run(*command, "--output", output)
    assert result.exit_code == 0, result.output
    if kind == "link":
        assert target.read_text() == expected
        os.lseek(reader, 0, os.SEEK_SET)
        assert os.read(reader, 10) == b"old"  # who reads the old file has all of it
    else:
        assert os.read(reader, 100_000).decode() == expected
    assert sorted(tmp_path.iterdir()) == before and output.is_symlink() == (kind != "pipe")
    os.close(reader)
    if kind == "descriptor":
        os.close(writer)


def test_a_folder_for_figures_that_cannot_be_written_is_told_first(
    fit_folder: Path, tmp_path: Path
) -> None:
    data, output = tmp_path / "new.csv", tmp_path / "out.csv"
    _table().to_csv(data, index=False)
    result = _run("predict", fit_folder, data, "--output", output, "--plots", data / "plots")
    assert result.exit_code == 1
    assert f"{data / 'plots'}: expected a folder that can be written to" in result.stderr
    assert not output.exists()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no full device here")
@pytest.mark.parametrize("size", [1, 100_000], ids=["what is kept until the end", "more"])
def test_a_standard_output_without_room_is_named(
    monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    with open("/dev/full", "w") as full:
        monkeypatch.setattr(sys, "stdout", full)
        with pytest.raises(OSError, match="No space left on device: 'standard output'"):
            with standard_output() as file:
                file.write(bytes(size))
        full.flush()  # as Python does at its end: the rest is gone


def test_what_fails_beside_the_standard_output_is_told_as_it_is() -> None:
    with pytest.raises(OSError, match="No space left on device: 'other'"), standard_output():
        raise OSError(errno.ENOSPC, "No space left on device", "other")


def test_classes_are_predicted_once_for_their_scores(
    fit_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = _table()
    table.loc[5:, "label"] = ["", "sideways"] * 27 + ["up"]  # of which but the last has a score
    table.to_csv(tmp_path / "new.csv", index=False)
    predict, sizes = DeepGPClassifier.predict_proba, []

    def watched(self: DeepGPClassifier, X: pd.DataFrame) -> np.ndarray:
        sizes.append(len(X))
        return predict(self, X)

    monkeypatch.setattr(DeepGPClassifier, "predict_proba", watched)
    result = _run("predict", fit_folder, tmp_path / "new.csv")
    assert result.exit_code == 0 and sizes == [60], result.output
    predicted, known = pd.read_csv(io.StringIO(result.stdout)), [*range(5), 59]
    right = predicted["class"] == table["label"]
    chosen = predicted["p(up)"].where(table["label"] == "up", predicted["p(down)"])
    told = f"accuracy {right[known].mean():.4g}, log loss {-np.log(chosen[known]).mean():.4g},"
    assert f"Scores: {told}" in result.stderr
