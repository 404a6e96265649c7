from __future__ import annotations

import csv
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from gpflow_deep import metrics
from gpflow_deep.command_line.main import _POSTERIORS, main
from gpflow_deep.estimators.persistence import load_regression, save_regression
from gpflow_deep.estimators.regression import Regression
from gpflow_deep.presets import names


def _run(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def _write(path: Path, columns: dict[str, np.ndarray]) -> Path:
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))
    return path


def _columns(num_rows: int = 30) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(8)
    first, second = rng.normal(size=(2, num_rows))
    return {"first": first, "second": second, "y": 100.0 + 7.0 * np.sin(first)}


@pytest.mark.parametrize("arguments", [["--help"], ["fit", "--help"], ["benchmark", "--help"]])
def test_help_does_not_wait_for_tensorflow(arguments: list[str]) -> None:
    code = (
        "import sys\n"
        "from gpflow_deep.command_line.main import main\n"
        f"main({arguments!r}, standalone_mode=False)\n"
        "assert 'tensorflow' not in sys.modules, 'TensorFlow was imported'\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Usage:")


def test_fit_and_predict(tmp_path: Path) -> None:
    columns = _columns() | {"flat": np.ones(30), "name": np.arange(30.0)}
    data = _write(tmp_path / "data.csv", columns)
    options = "--layers 1 --posterior mean-field --num-inducing 10 --steps 20 --validate-every 10"
    output = tmp_path / "fit"
    command = ["fit", data, "--target", "y", "--output", output, "--exclude", "name"]
    result = _run(*command, *options.split(), "--seed", 4)
    assert result.exit_code == 0, result.output
    assert "Left out constant columns, which say nothing: flat." in result.stderr
    assert "Trained on 27 rows for 20 steps" in result.stderr
    assert f"Saved to {output}" in result.stderr
    saved = load_regression(output)
    assert saved.settings.steps == 20 and saved.seed == 4 and saved.model_name == "mean-field"

    again = _run(*command)
    assert again.exit_code == 1 and "holds an earlier fit" in again.stderr

    new = _write(tmp_path / "new.csv", {name: columns[name][:4] for name in ("second", "first")})
    result = _run("predict", output, new, "--quantiles", "0.25, 0.75")
    assert result.exit_code == 0, result.output
    header, *rows = csv.reader(result.stdout.splitlines())
    assert header == ["mean", "sd", "q0.25", "q0.75"]
    X = np.stack([columns["first"][:4], columns["second"][:4]], axis=1)
    mean, variance = metrics.mixture_moments(*saved.predict_y_mixture(X))
    np.testing.assert_allclose(
        np.array(rows, dtype=float)[:, :2], np.hstack([mean, np.sqrt(variance)]), rtol=1e-12
    )


def test_every_registered_model_can_be_chosen() -> None:
    assert set(_POSTERIORS) == set(names())


@pytest.mark.parametrize(
    "posterior", ["global-inducing", "fitc-gp", "fitc-ep-2", "ar2pp", "solve-gp"]
)
def test_other_families_are_fitted_saved_and_loaded(posterior: str, tmp_path: Path) -> None:
    data = _write(tmp_path / "data.csv", _columns())
    options = f"--layers 2 --hidden-dim 2 --posterior {posterior} --num-inducing 8 --steps 2"
    output = tmp_path / "fit"
    result = _run("fit", data, "--target", "y", "--output", output, *options.split())
    assert result.exit_code == 0, result.output
    result = _run("predict", output, data)
    assert result.exit_code == 0, result.output
    _, *rows = csv.reader(result.stdout.splitlines())
    predictions = np.array(rows, dtype=float)
    assert np.isfinite(predictions).all() and (predictions[:, 1] > 0).all()
    saved = load_regression(output)
    X = np.stack([_columns()["first"], _columns()["second"]], axis=1)
    mean, _ = metrics.mixture_moments(*saved.predict_y_mixture(X))
    np.testing.assert_allclose(predictions[:, :1], mean, rtol=1e-9)


def test_predictions_go_to_a_file(regression: Regression, tmp_path: Path) -> None:
    save_regression(regression, tmp_path / "fit")
    new = _write(tmp_path / "new.csv", _columns(3) | {"more": np.zeros(3)})
    result = _run("predict", tmp_path / "fit", new, "--output", tmp_path / "out.csv")
    assert result.exit_code == 0, result.output
    assert (
        result.stdout == "" and "Ignored columns that the model does not use: more" in result.stderr
    )
    lines = (tmp_path / "out.csv").read_text().splitlines()
    assert lines[0] == "mean,sd,q0.025,q0.5,q0.975" and len(lines) == 4


def test_where_predictions_go_is_tried_first(tmp_path: Path) -> None:
    new = _write(tmp_path / "new.csv", _columns(3))
    result = _run("predict", tmp_path, new, "--output", new / "out.csv")
    assert result.exit_code == 1 and "expected a folder that can be written to" in result.stderr


@pytest.mark.parametrize("change", [{"first": None}, {"first": "?"}])
def test_predict_says_what_is_wrong(
    regression: Regression, tmp_path: Path, change: dict[str, object]
) -> None:
    save_regression(regression, tmp_path / "fit")
    columns = _columns(3)
    if change["first"] is None:
        del columns["first"]
        message = "no column 'first'"
    else:
        columns["first"] = np.array([0.5, "?", 1.0], dtype=object)
        message = "new.csv, line 3, column 'first': expected a finite number, got '?'"
    new = _write(tmp_path / "new.csv", columns)
    result = _run("predict", tmp_path / "fit", new, "--output", tmp_path / "out.csv")
    assert result.exit_code == 1 and message in result.stderr
    assert not (tmp_path / "out.csv").exists()


@pytest.mark.parametrize("quantiles", ["0.5,1", "half", "nan"])
def test_quantiles_are_probabilities(tmp_path: Path, quantiles: str) -> None:
    new = _write(tmp_path / "new.csv", _columns(3))
    result = _run("predict", tmp_path, new, "--quantiles", quantiles)
    assert result.exit_code == 2 and "expected numbers in (0, 1)" in result.stderr


def test_predict_needs_a_fit(tmp_path: Path) -> None:
    result = _run("predict", tmp_path, _write(tmp_path / "new.csv", _columns(3)))
    assert result.exit_code == 1 and "expected a fit" in result.stderr


@pytest.mark.parametrize(
    "replace, options, message",
    [
        ({}, ["--target", "z"], "no column 'z'"),
        ({}, ["--target", "y", "--exclude", "z"], "no column 'z'"),
        ({"y": np.ones(30)}, ["--target", "y"], "'y' is constant"),
        ({"first": np.full(30, "")}, ["--target", "y"], "line 2, column 'first'.*cell is empty"),
        ({}, ["--target", "y", "--posterior", "star"], "'star' is not one of"),
        ({}, ["--target", "y", "--learning-rate", "0"], "learning_rate"),
    ],
)
def test_fit_says_what_is_wrong_before_it_trains(
    tmp_path: Path, replace: dict[str, np.ndarray], options: list[str], message: str
) -> None:
    data = _write(tmp_path / "data.csv", _columns() | replace)
    result = _run("fit", data, "--output", tmp_path / "fit", *options)
    assert result.exit_code != 0 and re.search(message, result.stderr), result.stderr
    assert not (tmp_path / "fit").exists()
    assert "Traceback" not in result.output


def test_version() -> None:
    assert _run("--version").exit_code == 0
