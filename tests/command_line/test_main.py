from __future__ import annotations

import io
import subprocess
import sys
import unicodedata
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner, Result

from gpflow_deep.command_line.fitting import FittedTable, predict_table
from gpflow_deep.command_line.main import _plain_errors, main
from gpflow_deep.command_line.plots import write_plots
from gpflow_deep.command_line.scoring import Scores
from gpflow_deep.estimators import DeepGPClassifier, DeepGPRegressor, given, load
from gpflow_deep.presets import names
from gpflow_deep.presets.settings import OWN_SETTINGS

_QUICK = ("--model", "svgp", "--steps", "5", "--num-inducing", "8")


def _run(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def _table(num_rows: int = 60) -> pd.DataFrame:
    rng = np.random.default_rng(1)
    first, second = rng.normal(size=(2, num_rows))
    colour = rng.choice(["red", "green"], num_rows)
    table = pd.DataFrame({"first": first, "second": second, "colour": colour})
    return table.assign(
        y=np.sin(first) + 2.0 * (colour == "red"), label=np.where(first > 0, "up", "down")
    )


@pytest.fixture(scope="module")
def fit_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fit for tests that only read it."""
    folder = tmp_path_factory.mktemp("fit")
    _table().drop(columns="label").to_csv(folder / "data.csv", index=False)
    result = _run("fit", folder / "data.csv", "--target", "y", "--output", folder / "out", *_QUICK)
    assert result.exit_code == 0, result.output
    return folder / "out"


@pytest.mark.parametrize("arguments", [["--help"], ["fit", "--help"], ["benchmark", "--help"]])
def test_help_does_not_wait_for_tensorflow(arguments: list[str]) -> None:
    code = (
        "import sys\n"
        "from gpflow_deep.command_line.main import main\n"
        f"main({arguments!r}, standalone_mode=False)\n"
        "for name in ('tensorflow', 'pandas', 'sklearn', 'scipy'):\n"
        "    assert name not in sys.modules, f'{name} was imported'\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Usage:")


def test_fit_and_predict_numbers(tmp_path: Path) -> None:
    table = _table()
    table.loc[3, "first"] = np.nan
    table.drop(columns="label").to_csv(tmp_path / "data.csv", index=False)
    output = tmp_path / "fit"
    command = ("fit", tmp_path / "data.csv", "--target", "y", "--output", output, *_QUICK)
    result = _run(*command, "--seed", 4, "--kernel", "rbf", "--set", "learning_rate=0.2")
    assert result.exit_code == 0, result.output
    assert "Task: regression" in result.stderr
    assert "colour: 2 categories (green, red), a column each" in result.stderr
    assert "first: number, missing cells as" in result.stderr
    assert [path.name for path in output.iterdir()] == ["fit.zip"]
    saved = load(output / "fit.zip")
    assert isinstance(saved, DeepGPRegressor) and saved.random_state == 4
    assert saved.members_[0].settings.kernel == "rbf"
    assert saved.members_[0].settings.learning_rate == 0.2

    again = _run(*command)
    assert again.exit_code == 1 and "there is an earlier fit" in again.stderr

    result = _run(
        "predict", output, tmp_path / "data.csv", "--quantiles", "0.25, 0.75", "--keep", "second"
    )
    assert result.exit_code == 0, result.output
    predicted = pd.read_csv(io.StringIO(result.stdout))
    assert list(predicted.columns) == ["second", "mean", "sd", "q0.25", "q0.75"]
    assert "Scores: RMSE" in result.stderr and "in the 95% interval" in result.stderr
    inputs = pd.DataFrame(
        {
            "first": table["first"].fillna(table["first"].median()),
            "missing": table["first"].isna().astype(float),
            "second": table["second"],
            "green": (table["colour"] == "green").astype(float),
            "red": (table["colour"] == "red").astype(float),
        }
    ).to_numpy()
    del saved.feature_names_in_
    mean, sd = saved.predict(inputs, return_std=True)
    np.testing.assert_allclose(predicted["mean"], mean, rtol=1e-6)
    np.testing.assert_allclose(predicted["sd"], sd, rtol=1e-6)


def test_fit_and_predict_classes(tmp_path: Path) -> None:
    _table().drop(columns="y").to_csv(tmp_path / "data.csv", index=False, sep=";")
    output = tmp_path / "fit"
    result = _run(
        "fit",
        tmp_path / "data.csv",
        "--target",
        "label",
        "--output",
        output,
        *_QUICK,
        "--dtype",
        "float32",
    )
    assert result.exit_code == 0, result.output
    assert "Task: classification, as the target is text of 2 values" in result.stderr
    assert isinstance(load(output / "fit.zip"), DeepGPClassifier)
    written = tmp_path / "out.csv"
    result = _run(
        "predict", output, tmp_path / "data.csv", "--output", written, "--plots", tmp_path / "plots"
    )
    assert result.exit_code == 0, result.output
    assert result.stdout == "" and "Scores: accuracy" in result.stderr
    predicted = pd.read_csv(written)
    assert list(predicted.columns) == ["class", "p(down)", "p(up)"]
    np.testing.assert_allclose(predicted["p(down)"] + predicted["p(up)"], 1.0)
    names = sorted(path.name for path in (tmp_path / "plots").iterdir())
    assert names == ["importance.png", "predictions.png"]


def test_classes_called_none_and_columns_kept_beside_predictions(tmp_path: Path) -> None:
    """A column that has the name of a prediction is kept all the same."""
    table = _table().drop(columns="y")
    table = table.assign(label=["none", "mild"] * 30, mean=range(60)).rename(
        columns={"label": "class"}
    )
    table.loc[0, "class"] = "?"
    table.to_csv(tmp_path / "data.csv", index=False)
    command = ("fit", tmp_path / "data.csv", "--target", "class", "--output", tmp_path / "fit")
    result = _run(*command, *_QUICK)
    assert result.exit_code == 0, result.output
    assert "1 rows without a target are left out" in result.stderr
    keep = ("--keep", "class", "--keep", "mean")
    result = _run("predict", tmp_path / "fit", tmp_path / "data.csv", *keep)
    assert result.exit_code == 0 and "Scores: accuracy" in result.stderr, result.output
    predicted = pd.read_csv(io.StringIO(result.stdout), keep_default_na=False)
    assert list(predicted.columns) == ["class (given)", "mean", "class", "p(mild)", "p(none)"]
    assert predicted["class (given)"].tolist() == table["class"].tolist()
    assert predicted["mean"].tolist() == list(range(60))


@pytest.mark.parametrize("keep", [("mean", "mean (given)"), ("mean (given)", "mean", "mean")])
def test_columns_kept_beside_predictions_each_have_a_name(
    fit_folder: Path, tmp_path: Path, keep: tuple[str, ...]
) -> None:
    table = _table(3).assign(**{"mean": [1, 2, 3], "mean (given)": [7, 8, 9]})
    table.to_csv(tmp_path / "new.csv", index=False)
    options = [f"--keep={name}" for name in keep]
    result = _run("predict", fit_folder, tmp_path / "new.csv", *options, "--quantiles", "")
    assert result.exit_code == 0, result.output
    predicted = pd.read_csv(io.StringIO(result.stdout))
    assert list(predicted.columns[-2:]) == ["mean", "sd"] and predicted.shape == (3, 4)
    assert predicted["mean (given) (2)"].tolist() == [1, 2, 3]
    assert predicted["mean (given)"].tolist() == [7, 8, 9]


def test_blank_rows_among_others_are_told(fit_folder: Path, tmp_path: Path) -> None:
    lines = _table(3).to_csv(index=False).splitlines()
    blank = "," * lines[0].count(",")
    (tmp_path / "new.csv").write_text("\n".join([*lines[:2], blank, "", *lines[2:], blank, blank]))
    result = _run("predict", fit_folder, tmp_path / "new.csv")
    assert result.exit_code == 0, result.output
    assert len(result.stdout.splitlines()) == 4
    assert "Warning: 2 blank rows among the others have no prediction." in result.stderr


def test_rows_far_from_the_training_data_are_told(fit_folder: Path, tmp_path: Path) -> None:
    _table(3).assign(first=[0.0, 100.0, 0.1]).to_csv(tmp_path / "new.csv", index=False)
    result = _run("predict", fit_folder, tmp_path / "new.csv")
    assert "Warning: 1 of 3 rows are out of the ranges of the training data" in result.stderr


def test_inputs_that_are_clipped_are_told_once(tmp_path: Path) -> None:
    """And a slip in the training data makes no range of it."""
    table = _table().drop(columns=["label", "colour"])
    table.loc[3, "first"] = 1e12
    table.to_csv(tmp_path / "data.csv", index=False)
    output = ("--output", tmp_path / "fit")
    result = _run("fit", tmp_path / "data.csv", "--target", "y", *output, *_QUICK)
    assert result.exit_code == 0, result.output
    assert "Warning: X, column 'first': 1 of 60 values" in result.stderr
    new = _table(4).assign(first=[0.0, 10.0, 1e9, 0.1], second=[0.0, 0.1, 0.2, 1e300])
    new.to_csv(tmp_path / "new.csv", index=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        command = ("predict", tmp_path / "fit", tmp_path / "new.csv")
        result = _run(*command, "--plots", tmp_path / "plots")
    assert result.exit_code == 0, result.output
    assert result.stderr.count("Warning") == 1
    assert "Warning: 3 of 4 rows are out of the ranges of the training data" in result.stderr


@pytest.mark.parametrize("output", [True, False])
def test_targets_that_are_missing_or_strange(
    fit_folder: Path, tmp_path: Path, output: bool
) -> None:
    """Predictions are made all the same, and what can be compared is."""
    written = ["--output", tmp_path / "out.csv"] if output else []
    command = ("predict", fit_folder, tmp_path / "new.csv", *written)
    _table(4).assign(y="").to_csv(tmp_path / "new.csv", index=False)
    result = _run(*command, "--plots", tmp_path / "plots")
    assert result.exit_code == 0, result.output
    assert "No row has a target: no scores." in result.stderr
    _table(4).assign(y=["", "n.d.", "1.5", "unknown"]).to_csv(tmp_path / "new.csv", index=False)
    result = _run(*command)
    assert result.exit_code == 0, result.output
    assert (
        "Warning: 2 targets are no finite numbers (first: row 2: 'n.d.') and have no scores."
        in result.stderr
    )
    assert "Scores: RMSE" in result.stderr
    predictions = (tmp_path / "out.csv").read_text() if output else result.stdout
    assert len(predictions.splitlines()) == 5


def _scores(fitted: FittedTable, parts: list[pd.DataFrame]) -> dict[str, float]:
    scores = Scores(fitted)
    for part, (predicted, _) in zip(parts, predict_table(fitted, parts), strict=True):
        scores.add(part, predicted)
    return dict(scores.values())


def test_scores_are_those_of_all_rows_together(fit_folder: Path) -> None:
    fitted, table = FittedTable.load(fit_folder / "fit.zip"), _table(31)
    whole = _scores(fitted, [table])
    parts = _scores(fitted, [table.iloc[start : start + 10] for start in range(0, 31, 10)])
    assert parts == pytest.approx(whole, rel=1e-6)
    inputs = fitted.recipe.inputs(table)
    mean = fitted.estimator.predict(inputs)
    assert whole["RMSE"] == pytest.approx(np.sqrt(np.mean((mean - table["y"]) ** 2)))
    density = fitted.estimator.log_density(inputs, table["y"].to_numpy())
    assert whole["log density"] == pytest.approx(np.mean(density))


def test_errors_name_rows_of_the_file(fit_folder: Path, tmp_path: Path) -> None:
    """Not of the part that is read at once."""
    table = _table(5010).astype(object)
    table.loc[5004, "first"] = "oops"
    table.to_csv(tmp_path / "new.csv", index=False)
    result = _run("predict", fit_folder, tmp_path / "new.csv", "--output", tmp_path / "out.csv")
    assert result.exit_code == 1
    assert "column 'first', row 5005: expected a number, got 'oops'" in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["new.csv"]


def test_figures_of_numbers(fit_folder: Path, tmp_path: Path) -> None:
    _table(20).to_csv(tmp_path / "new.csv", index=False)
    result = _run("predict", fit_folder, tmp_path / "new.csv", "--plots", tmp_path / "plots")
    assert result.exit_code == 0, result.output
    assert (tmp_path / "plots" / "predictions.png").stat().st_size > 10_000


def test_names_with_dollars_in_figures(fit_folder: Path, tmp_path: Path) -> None:
    fitted = FittedTable.load(fit_folder / "fit.zip")
    (first, *others), name = fitted.recipe.columns, "cost_$ of {$_"
    recipe = replace(fitted.recipe, columns=(replace(first, name=name), *others))
    fitted.estimator.feature_names_in_[0] = name
    table = _table(20).rename(columns={"first": name, "y": "price ($_, %$)"})
    fitted = replace(fitted, target="price ($_, %$)", recipe=recipe)
    assert all(path.exists() for path in write_plots(fitted, table, tmp_path))


def test_cells_that_were_never_missing_are_told(fit_folder: Path, tmp_path: Path) -> None:
    table = _table(4).assign(first=["", "1", "", "2"], colour=["red", "", "red", "red"])
    table.to_csv(tmp_path / "new.csv", index=False)
    result = _run("predict", fit_folder, tmp_path / "new.csv", "--quantiles", "0.9999999")
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("mean,sd,q0.9999999\n")
    for name, count in (("first", 2), ("colour", 1)):
        assert (
            f"column {name!r} has {count} missing cells, and had none in training" in result.stderr
        )
    assert "'second'" not in result.stderr


def test_categories_that_were_not_in_training_are_told(fit_folder: Path, tmp_path: Path) -> None:
    table = _table(4).assign(colour=["red", "Red", "", "purple"])
    table.to_csv(tmp_path / "new.csv", index=False)
    result = _run("predict", fit_folder, tmp_path / "new.csv")
    assert result.exit_code == 0, result.output
    told = "column 'colour' has 2 cells of categories that it had not in training, such as 'Red'"
    assert told in result.stderr
    _table(4).to_csv(tmp_path / "known.csv", index=False)
    assert "categories" not in _run("predict", fit_folder, tmp_path / "known.csv").stderr


def test_predictions_that_nobody_reads_to_the_end() -> None:
    """`head` closes its end of the pipe."""
    with pytest.raises(BrokenPipeError), _plain_errors():
        raise BrokenPipeError(32, "Broken pipe")


def test_models_are_explained() -> None:
    result = _run("models")
    told = [line.partition("  ") for line in result.output.splitlines()]
    assert [name for name, _, _ in told] == ["auto", *names()]
    assert all(description for _, _, description in told)


@pytest.mark.parametrize(
    "change, message",
    [
        ({"first": None}, "no column 'first'"),
        ({"colour": None}, "no column 'colour'"),
        ({"first": "abc"}, "column 'first', row 1: expected a number, got 'abc'"),
    ],
)
def test_predict_says_what_is_wrong(
    fit_folder: Path, tmp_path: Path, change: dict[str, object], message: str
) -> None:
    table = _table(3)
    table = table.assign(**change).dropna(axis="columns")
    table.to_csv(tmp_path / "new.csv", index=False)
    result = _run("predict", fit_folder, tmp_path / "new.csv", "--output", tmp_path / "out.csv")
    assert result.exit_code == 1 and message in result.stderr
    assert not (tmp_path / "out.csv").exists()


@pytest.mark.parametrize("quantiles", ["0.5,1", "half", "nan"])
def test_quantiles_are_probabilities(tmp_path: Path, quantiles: str) -> None:
    _table(3).to_csv(tmp_path / "new.csv")
    result = _run("predict", tmp_path, tmp_path / "new.csv", "--quantiles", quantiles)
    assert result.exit_code == 2 and "expected numbers in (0, 1)" in result.stderr


@pytest.mark.parametrize("link", ["", "symbolic", "hard"])
@pytest.mark.parametrize("plots", [False, True])
def test_predict_does_not_write_over_what_it_reads(
    fit_folder: Path, tmp_path: Path, link: str, plots: bool
) -> None:
    data = output = tmp_path / "data.csv"
    _table(3).to_csv(data, index=False)
    before = data.read_bytes()
    if link:
        output = tmp_path / "link.csv"
        (output.symlink_to if link == "symbolic" else output.hardlink_to)(data)
    options = ("--keep", "y", *(("--plots", tmp_path / "plots") if plots else ()))
    result = _run("predict", fit_folder, data, "--output", output, *options)
    assert result.exit_code == 2
    assert f"expected another file than {data}, which is read" in " ".join(result.stderr.split())
    assert data.read_bytes() == before and not (tmp_path / "plots").exists()
    fit = fit_folder / "fit.zip"
    before = fit.read_bytes()
    assert _run("predict", fit_folder, data, "--output", fit).exit_code == 2
    assert fit.read_bytes() == before


def test_predict_reads_a_table_called_partial(fit_folder: Path, tmp_path: Path) -> None:
    data = tmp_path / "out.csv.partial"
    _table(3).to_csv(data, index=False)
    before = data.read_bytes()
    result = _run("predict", fit_folder, data, "--output", tmp_path / "out.csv")
    assert result.exit_code == 0, result.output
    assert len(pd.read_csv(tmp_path / "out.csv")) == 3 and data.read_bytes() == before


@pytest.mark.parametrize("ending", ["parquet", "csv.gz"])
def test_predictions_are_not_written_to_files_of_other_kinds(
    fit_folder: Path, tmp_path: Path, ending: str
) -> None:
    _table(3).to_csv(tmp_path / "new.csv", index=False)
    output = tmp_path / f"out.{ending}"
    result = _run("predict", fit_folder, tmp_path / "new.csv", "--output", output)
    assert result.exit_code == 2 and "expected the name of a CSV file" in result.stderr
    assert not output.exists()


def test_fit_does_not_write_over_its_data(tmp_path: Path) -> None:
    data = tmp_path / "fit.zip"
    _table().to_csv(data, index=False)
    before = data.read_bytes()
    command = ("fit", data, "--target", "y", "--output", tmp_path, "--overwrite", *_QUICK)
    result = _run(*command)
    assert result.exit_code == 2 and "which is read and would be lost" in result.stderr
    assert data.read_bytes() == before


def test_predict_needs_a_fit(tmp_path: Path) -> None:
    _table(3).to_csv(tmp_path / "new.csv")
    result = _run("predict", tmp_path, tmp_path / "new.csv")
    assert result.exit_code == 1 and "expected the file of a fit" in result.stderr


@pytest.mark.parametrize(
    "change, options, message",
    [
        ({}, ["--target", "z"], "no column 'z'"),
        ({}, ["--target", "y", "--exclude", "z"], "no column 'z'"),
        ({"y": 1.0}, ["--target", "y"], "expected values that vary"),
        ({"y": "?"}, ["--target", "y"], "target 'y': expected values, got only missing ones"),
        (
            {},
            [
                "--target",
                "y",
                *(f"--exclude={name}" for name in ("first", "second", "colour", "label")),
            ],
            "expected an input column that says something, got none besides the target",
        ),
        ({}, ["--target", "label", "--task", "regression"], "expected numbers for regression"),
        ({}, ["--target", "y", "--model", "star"], "Error: model: expected one of 'auto', "),
        ({}, ["--target", "y", "--set", "rate=1"], "expected a name among"),
        ({}, ["--target", "y", "--set", "rate"], "expected NAME=VALUE, got 'rate'"),
        ({}, ["--target", "y", "--set", "steps=many"], "steps: expected int"),
        ({}, ["--target", "y", "--set", "steps=4", "--steps", "5"], "expected one number, got 5"),
        ({}, ["--target", "y", "--set", "likelihood=softmax"], "expected a name among num_layers"),
        ({}, ["--target", "y", "--time-limit", "0"], "time-limit"),
        ({}, ["--target", "y", "--steps", str(2**40)], "steps: expected a positive integer of at"),
    ],
)
def test_fit_says_what_is_wrong_before_it_trains(
    tmp_path: Path, change: dict[str, object], options: list[str], message: str
) -> None:
    _table().assign(**change).to_csv(tmp_path / "data.csv", index=False)
    result = _run("fit", tmp_path / "data.csv", "--output", tmp_path / "fit", *options)
    assert result.exit_code != 0 and message in result.stderr, result.stderr
    assert not (tmp_path / "fit").exists()
    assert "Traceback" not in result.output


@pytest.mark.parametrize(
    "options, message",
    [
        (["--set", "steps=-5"], "--set: steps: expected a positive integer, got -5"),
        (["--set", "steps=0"], "--set: steps: expected a positive integer, got 0"),
        (["--set", "patience=-5"], "--set: patience: expected a positive integer"),
        (["--set", "batch-size=0"], "--set: batch_size: expected a positive integer"),
        (["--set", "learning_rate=nan"], "--set: learning_rate: expected a positive number"),
        (
            ["--set", "steps=4", "--steps", "5"],
            "steps: expected one number, got 5 by --steps and 4",
        ),
        (["--time-limit", "nan"], "time-limit': expected a finite number, got 'nan'"),
        (["--time-limit", "inf"], "time-limit': expected a finite number, got 'inf'"),
        (["--jitter", "nan"], "jitter': expected a finite number"),
        (["--validation-fraction", "nan"], "validation-fraction': expected a finite number"),
        ([], "fit.zip: there is an earlier fit; --overwrite replaces it."),
    ],
)
def test_what_is_wrong_whatever_the_data_is_told_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str], message: str
) -> None:
    """Nothing is said before, the data are not read, and TensorFlow is not waited for."""
    data = tmp_path / "data.csv"
    data.write_text("no table")
    (tmp_path / "fit.zip").touch()

    def unexpected(*_: object) -> None:
        raise AssertionError("it should have ended before")

    monkeypatch.setattr("gpflow_deep.command_line.main.import_tensorflow", unexpected)
    monkeypatch.setattr("gpflow_deep.command_line.tables.read_table", unexpected)
    result = _run("fit", data, "--target", "y", "--output", tmp_path, *options)
    told = result.stderr.splitlines()[-1]
    assert message in told and result.exit_code == (2 if options else 1)
    assert "Training takes" not in result.output


def test_settings_that_are_options_are_those_of_the_estimators() -> None:
    assert OWN_SETTINGS == given.OWN_SETTINGS


@pytest.mark.parametrize("form", ["NFC", "NFD"])
def test_names_of_columns_may_have_their_marks_apart(form: str) -> None:
    name = unicodedata.normalize(form, "Höhe")
    for command, options in (("fit", ("--target", "--exclude")), ("predict", ("--keep",))):
        arguments = [__file__, "--output", "o", *(x for option in options for x in (option, name))]
        folder = [str(Path(__file__).parent)] if command == "predict" else []
        context = main.commands[command].make_context(command, [*folder, *arguments])
        found = [context.params[option.removeprefix("--")] for option in options]
        assert all(x in ("Höhe", ("Höhe",)) for x in found)


def test_version() -> None:
    assert _run("--version").exit_code == 0
