from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from gpflow_deep.command_line.signals import Ended
from gpflow_deep.command_line.studies import STUDIES, benchmark, report
from gpflow_deep.experiments import splits
from gpflow_deep.experiments.results import Results, Run
from gpflow_deep.presets import Settings

from ..toys import QUICK


def _benchmark(output: Path, *arguments: str) -> Result:
    quick = [
        argument
        for entry in fields(Settings)
        if entry.name != "num_layers" and getattr(QUICK, entry.name) != entry.default
        for argument in (f"--{entry.name.replace('_', '-')}", str(getattr(QUICK, entry.name)))
    ]
    return CliRunner().invoke(
        benchmark, [*quick, "--no-progress", "--output", str(output), *arguments]
    )


@pytest.mark.parametrize("end", [KeyboardInterrupt(), Ended(143)])
def test_an_end_from_without_says_what_becomes_of_the_work(
    tmp_path: Path, toy_models: None, monkeypatch: pytest.MonkeyPatch, end: BaseException
) -> None:
    def interrupted(*arguments: Any, **options: Any) -> None:
        raise end

    monkeypatch.setattr("gpflow_deep.experiments.benchmark.run_all", interrupted)
    result = _benchmark(tmp_path / "r.jsonl", "--model", "toy-flat", "--splits", "0")
    assert "Interrupted. The same command goes on with what is not finished." in result.stderr
    assert result.exit_code == (143 if isinstance(end, Ended) else 1)


def test_from_command_to_report(tmp_path: Path, toy_models: None) -> None:
    output = tmp_path / "r.jsonl"
    command = ("--model", "toy-flat", "--layers", "2", "--layers", "3", "--splits", "0")
    first = _benchmark(output, *command)
    assert first.exit_code == 0, first.output
    (record,) = Results(output).read()
    assert record["model"] == "toy-flat"
    assert record["settings"]["batch_size"] == QUICK.batch_size
    assert record["settings"]["num_layers"] == 1
    again = _benchmark(output, *command)
    assert again.output.count("finished before") == 1

    printed = CliRunner().invoke(report, [str(output)])
    assert printed.exit_code == 0
    assert "| toy-flat (L=1) | 1 |" in printed.output
    written = CliRunner().invoke(report, [str(output), "--output", str(tmp_path / "out")])
    assert written.exit_code == 0
    assert (tmp_path / "out" / "report.md").read_text().startswith(printed.output.rstrip("\n"))


@pytest.mark.parametrize(
    "arguments, message",
    [
        (("--model", "nothing"), "got 'nothing'"),
        (("--model", "nothing"), "Invalid value for --model: expected one of"),
        (("--model", "toy-a", "--dataset", "nothing"), "Unknown data set 'nothing'"),
        (("--model", "toy-a", "--splits", "1-x"), "expected numbers and ranges"),
        (("--model", "toy-a", "--splits", "1-"), "expected numbers and ranges such as 0,2,5-7"),
        (("--model", "toy-a", "--splits", "3-1"), "ends before it begins"),
        (("--model", "toy-a", "--seed", str(2**63)), "--seed"),
        (("--model", "toy-a", "--steps", "0"), "steps: expected a positive integer"),
        (("--model", "toy-a", "--layers", "0"), "--layers"),
        (("--model", "toy-a", "--likelihood", "softmax"), "likelihood: expected that of numbers"),
        (("--model", "toy-a", "--num-classes", "2"), "num_classes: expected none"),
        ((), "--model"),
    ],
)
def test_a_wrong_argument_is_named(
    arguments: tuple[str, ...], message: str, tmp_path: Path, toy_models: None
) -> None:
    result = _benchmark(tmp_path / "r.jsonl", *arguments)
    assert result.exit_code != 0
    assert message in result.output
    assert not (tmp_path / "r.jsonl").exists()


def test_splits_are_numbers_and_ranges(
    tmp_path: Path, toy_models: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    monkeypatch.setattr(
        "gpflow_deep.experiments.benchmark.run_all",
        lambda runs, *_, **__: asked.extend(run.split for run in runs),
    )
    assert _benchmark(tmp_path / "r.jsonl", "--model", "toy-a", "--splits", "0,3-5").exit_code == 0
    assert asked == [0, 3, 4, 5]


def test_report_of_an_empty_file(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    path.touch()
    result = CliRunner().invoke(report, [str(path)])
    assert result.exit_code != 0
    assert "no finished run" in result.output


def test_report_imports_tensorflow_without_its_messages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "r.jsonl"
    path.touch()
    imported: list[bool] = []
    monkeypatch.setattr(
        "gpflow_deep.command_line.studies.import_tensorflow", lambda: imported.append(True)
    )
    CliRunner().invoke(report, [str(path)])
    assert imported


def test_report_that_cannot_be_written(tmp_path: Path, toy_models: None) -> None:
    run = Run("toy-a", "diabetes", "interpolation", 0, 0, Settings())
    metrics = dict.fromkeys(("test_log_likelihood", "rmse", "crps", "coverage95"), 1.0)
    Results(tmp_path / "r.jsonl").append(run, {"metrics": metrics, "seconds": 1.0}, {})
    (tmp_path / "file").touch()
    arguments = [str(tmp_path / "r.jsonl"), "--output", str(tmp_path / "file" / "out")]
    result = CliRunner().invoke(report, arguments)
    assert result.exit_code == 1 and "Not a directory" in result.output


@pytest.mark.parametrize("command", ["benchmark", "report"])
def test_help_says_what_can_be_set(command: str) -> None:
    result = CliRunner().invoke({"benchmark": benchmark, "report": report}[command], ["--help"])
    assert result.exit_code == 0
    if command == "benchmark":
        for entry in fields(Settings):
            option = "layers" if entry.name == "num_layers" else entry.name.replace("_", "-")
            assert f"--{option}" in result.output


def test_the_studies_named_are_those_there_are() -> None:
    assert STUDIES == tuple(splits.STUDIES)
