"""Which targets are taken for numbers or classes, and which cells for nothing at all."""

from __future__ import annotations

import json
import re
import unicodedata
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from gpflow_deep.command_line import fitting
from gpflow_deep.command_line.cells import composed_names, is_missing
from gpflow_deep.command_line.columns import Recipe
from gpflow_deep.command_line.fitting import FittedTable, Task, fit_table, task_of


@pytest.mark.parametrize("slip", ["#DIV/0!", "--", "<0.01", "inf", "\u22121.2"])
def test_a_slip_makes_no_classes_of_numbers(slip: str) -> None:
    cells = pd.Series([f"{1.5 * i}" for i in range(100)], index=range(10, 110), name="y")
    cells[17] = slip
    told = f"target 'y': expected numbers or classes, got numbers, but also '{slip}', first in row 18: "
    for task in (task_of, lambda y: fit_table(y.to_frame().assign(x=y.index), "y")):
        with pytest.raises(ValueError, match=f"{told}.* --task classification"):
            task(cells)
    assert task_of(cells, "classification").targets(cells)[7] == slip


@pytest.mark.parametrize("form", ["#{:,}", "name {}", "{}-02-13"])
def test_text_that_each_row_has_its_own_of_is_no_class(form: str) -> None:
    cells = pd.Series([form.format(1000 + i) for i in range(60)], name="y")
    told = "target 'y': expected numbers or classes, got text of 60 different values in 60 rows, such as"
    with pytest.raises(ValueError, match=f"{told}.* --task classification"):
        task_of(cells)
    assert task_of(cells, "classification").name == "classification"
    assert task_of(cells[:15]).name == "classification"  # a table too small to tell
    assert task_of(pd.concat([cells] * 3)).name == "classification"  # each comes again


@pytest.mark.parametrize(
    ("cells", "labels"),
    [
        (["1", "1.0", "0", "0."], ["1", "1", "0", "0"]),
        (["-1,0", "-1", "2,00"], ["-1", "-1", "2"]),
        (["1,000", "1,000.0", "12,000"], ["1,000", "1,000", "12,000"]),
        (["01", "1e1", "10"], ["01", "1e1", "10"]),
        ([1.0, 0.0, 1.0], ["1", "0", "1"]),
    ],
)
def test_a_whole_number_is_one_label(cells: list[str], labels: list[str]) -> None:
    column = pd.Series(cells, name="y")
    task = task_of(column)
    assert task.targets(column).tolist() == labels
    assert f"only {len(set(labels))} values" in task.why
    assert task_of(column, "classification").targets(column).tolist() == [str(c) for c in cells]
    # Also of a fit that was read from a file, and of cells that are no numbers.
    assert Task(**vars(task)).targets(pd.Series(["7.0", "b", "0.5"]))[1:].tolist() == ["b", "0.5"]


@pytest.mark.parametrize("slip", ["(0.70)", "\u22120.5", "n.d."])
@pytest.mark.parametrize("every", [50, 3, 1.5], ids=["few", "many", "most"])
@pytest.mark.parametrize("mark", [".", ","])
def test_what_is_no_number_is_named_for_regression(slip: str, every: float, mark: str) -> None:
    """And not numbers beside it, which no way of reading them made numbers of all cells of."""
    slip = slip.replace(".7", f"{mark}7")
    cells = [slip if i % every < 1 else f"{i / 4:.3f}".replace(".", mark) for i in range(4, 104)]
    column = pd.Series(cells, index=range(10, 110), name="y")
    first = 11 + cells.index(slip)
    told = (
        f"target 'y': expected numbers for regression, got '{slip}', first in row {first}: correct"
    )
    with pytest.raises(ValueError, match=re.escape(told)):
        task_of(column, "regression")


@pytest.mark.parametrize("cells", [["7"] * 30, ["a"] * 30, ["1.5"] * 30])
def test_a_target_that_is_constant_is_refused_before_its_task_is_told(cells: list[str]) -> None:
    told: list[str] = []
    table = pd.DataFrame({"x": range(30), "y": cells})
    with pytest.raises(ValueError, match="target 'y': expected values that vary, got one"):
        fit_table(table, "y", tell=told.append)
    assert not told


def test_fits_of_before_letters_were_composed(monkeypatch: pytest.MonkeyPatch) -> None:
    def apart(text: str) -> str:
        return unicodedata.normalize("NFD", text)

    table = pd.DataFrame({"Höhe": range(40), "Maß": ["groß", "übergroß"] * 20, "Å": ["5 Å"] * 40})
    recipe = Recipe.of(table.assign(Å=[f"{i} Å" for i in range(40)]), [*table])
    notes = json.loads(apart(json.dumps({"columns": recipe.to_json()}, ensure_ascii=False)))
    notes |= {"target": apart("Größe"), "task": {"name": "classification", "why": ""}}
    notes |= {"low": [0.0], "high": [1.0]}
    names = np.array([apart(name) for name in recipe.inputs(table)], dtype=object)
    classes = np.array([apart("groß"), apart("übergroß")], dtype=object)
    old = SimpleNamespace(feature_names_in_=names, classes_=classes)
    monkeypatch.setattr(fitting, "load", lambda path: old)
    monkeypatch.setattr(fitting, "load_notes", lambda path: notes)
    fitted = FittedTable.load(Path("fit.zip"))
    assert fitted.target == "Größe" and fitted.estimator.classes_.tolist() == ["groß", "übergroß"]
    assert list(fitted.recipe.inputs(table)) == fitted.estimator.feature_names_in_.tolist()
    assert fitted.recipe.columns == recipe.columns


def test_categories_of_before_letters_were_composed_stay_apart() -> None:
    """Where two of them look the same, each has its column."""
    assert composed_names(["e\u0301", "e"]) == ("é", "e")
    assert composed_names(["e\u0301", "é"]) == ("e\u0301", "é")


def test_a_text_among_few_numbers_is_a_class() -> None:
    cells = pd.Series(["1", "2", "other"] * 20)
    assert task_of(cells).why == "the target is text of 3 values"


@pytest.mark.parametrize(
    "nothing",
    ["<NA>", "NaT", "-nan", "-NaN", "#NA", "#N/A N/A", "\\N", "(null)", "1.#QNAN", "-1.#IND"],
)
def test_marks_of_missing_values_leave_a_column_of_numbers(nothing: str) -> None:
    cells = pd.Series([nothing, *(f"{1.5 * i}" for i in range(30))])
    recipe = Recipe.of(pd.DataFrame({"x": cells}), ["x"])
    assert recipe.columns[0].kind == "number" and recipe.columns[0].missing
    assert is_missing(cells).sum() == 1
    assert is_missing(cells, labels=True)[0] == (nothing != "NaT")  # which may be a name


def test_binary_cells_are_no_text() -> None:
    """As Parquet has them: most are no UTF-8."""
    table = pd.DataFrame({"x": np.arange(30.0), "u": [bytes([255, i]) for i in range(29)] + [None]})
    recipe = Recipe.of(table, ["x", "u"])
    assert [column.name for column in recipe.columns] == ["x"]
    assert recipe.notes[1] == "u: left out, it is binary: write it as numbers or text"
    with pytest.raises(
        ValueError, match="target 'u': expected numbers or classes, got binary cells"
    ):
        fit_table(table, "u", tell=lambda line: None)
    with pytest.raises(ValueError, match="column 'x': expected a number, got binary cells"):
        recipe.inputs(table.assign(x=table["u"]))


def test_a_likelihood_of_numbers_is_not_for_classes() -> None:
    table = pd.DataFrame({"x": range(6), "y": ["a", "b"] * 3})
    with pytest.raises(ValueError, match="likelihood: expected none for classes, .*'student-t'"):
        fit_table(table, "y", tell=lambda line: None, likelihood="student-t")
