"""Which categories have a column each, and which numbers are read with what stands beside them."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest

from gpflow_deep.command_line.columns import Recipe
from gpflow_deep.command_line.fitting import Task, task_of


def _states(each: int, number: int) -> list[str]:
    return [f"s{i:03d}" for i in range(number)] * each


@pytest.mark.parametrize(
    ("each", "number", "kept"),
    [(10, 40, 40), (3, 15, 15), (3, 60, 22), (5, 400, 100)],
    ids=["rows for all", "few", "a column for each eight rows", "the most"],
)
def test_categories_have_columns_where_there_are_rows(each: int, number: int, kept: int) -> None:
    table = pd.DataFrame({"state": _states(each, number)})
    recipe = Recipe.of(table, ["state"])
    assert recipe.inputs(table).shape == (each * number, kept)
    if kept == number:
        assert recipe.notes[0].startswith(f"state: {number} categories (s000, ")
        assert recipe.notes[0].endswith(", ...), a column each")


def test_categories_without_a_column_are_told_and_known_later() -> None:
    """What was not in training is told apart from them, no matter how many there are."""
    table = pd.DataFrame({"state": [*_states(10, 20), *_states(2, 40)]})
    recipe = Recipe.of(table, ["state"])
    assert recipe.notes == (
        "state: the 35 commonest of 40 categories (s000, s001, s002, s003, s004, ...), a column each; the"
        " other 5 (3.57% of rows) are taken for none",
    )
    recipe = Recipe.from_json(recipe.to_json())
    new = pd.DataFrame({"state": ["s000", "s039", "zzz", "", "(missing)"]})
    assert recipe.inputs(new).sum(axis=1).tolist() == [1.0, 0.0, 0.0, 0.0, 0.0]
    assert {name: cells.tolist() for name, cells in recipe.unseen(new).items()} == {
        "state": ["zzz"]
    }


@pytest.mark.parametrize("number", [3, 20])
def test_fits_of_before_rare_categories_were_kept(number: int) -> None:
    """Those of 20 columns cannot tell what is new from what was rare."""
    table = pd.DataFrame({"state": _states(3, number), "x": range(3 * number)})
    recipe = Recipe.of(table, ["state", "x"])
    old = [
        {
            key: value
            for key, value in column.items()
            if key not in ("rare", "rare_share", "prefix", "suffix")
        }
        for column in recipe.to_json()
    ]
    again = Recipe.from_json(old)
    pd.testing.assert_frame_equal(again.inputs(table), recipe.inputs(table))
    new = table.assign(state="zzz")
    assert list(again.unseen(new)) == (["state"] if number == 3 else [])


def test_a_column_of_categories_that_is_missing() -> None:
    table = pd.DataFrame({"state": _states(3, 3), "x": range(9)})
    recipe = Recipe.of(table, ["state", "x"])
    assert recipe.unseen(table[["x"]]) == {}
    with pytest.raises(ValueError, match="no column 'state'. The table has the columns 'x'"):
        recipe.inputs(table[["x"]])


def test_whole_numbers_among_categories_are_known_without_decimals() -> None:
    """Parquet has 1.0 for 1 where cells are missing."""
    recipe = Recipe.of(pd.DataFrame({"size": ["1", "2", "10+", "?"] * 3}), ["size"])
    inputs = recipe.inputs(pd.DataFrame({"size": [1.0, 2.0, np.nan]}))
    assert inputs.columns[inputs.to_numpy().argmax(axis=1)].tolist() == [
        "size_1",
        "size_2",
        "size_(missing)",
    ]


def test_numbers_that_had_decimals_among_categories_keep_them() -> None:
    recipe = Recipe.of(pd.DataFrame({"size": ["1.0", "2.0", "A"] * 4}), ["size"])
    table = pd.DataFrame({"size": [1.0, 2.0]})
    assert recipe.inputs(table)[["size_1.0", "size_2.0"]].to_numpy().tolist() == [[1, 0], [0, 1]]
    assert not recipe.unseen(table)


def test_long_texts_are_told_by_their_beginnings() -> None:
    cells = [f"{'long ' * 500}{i % 2}" for i in range(60)]
    assert len(Recipe.of(pd.DataFrame({"text": cells}), ["text"]).notes[0]) < 200
    slip = pd.DataFrame({"x": [*map(str, range(59)), cells[0]], "y": range(60)})
    assert len(Recipe.of(slip, ["x", "y"]).notes[0]) < 200


@pytest.mark.parametrize(
    ("cells", "values", "note"),
    [
        (["12.3%", "-4 %", "1e2%"], [12.3, -4.0, 100.0], "number before '%'"),
        (
            ["$1,234.56", "-$5.00", "$-7.10"],
            [1234.56, -5.0, -7.1],
            "number after '$', commas between thousands",
        ),
        (["$1,234", "$12,500"], [1234.0, 12500.0], "number after '$', commas between thousands"),
        (["US$ 5", "US$6"], [5.0, 6.0], "number after 'US$'"),
        (["€5", "€6,5"], [5.0, 6.5], "number after '€', decimal comma"),
        (
            ["1.234,50 €", "7,00 €"],
            [1234.5, 7.0],
            "number before '€', decimal comma, points between thousands",
        ),
        (["1.5 kg", "2kg", "3.\u00a0kg"], [1.5, 2.0, 3.0], "number before 'kg'"),
        (["36 months", "60 months"], [36.0, 60.0], "number before 'months'"),
        ([".5 W/m²", "7 W/m²"], [0.5, 7.0], "number before 'W/m²'"),
        (["+20.5°C", "-3°C"], [20.5, -3.0], "number before '°C'"),
    ],
)
def test_numbers_with_money_or_a_unit_beside_all_of_them(
    cells: list[str], values: list[float], note: str
) -> None:
    table = pd.DataFrame({"x": [*cells, "?"]})
    recipe = Recipe.of(table, ["x"])
    assert recipe.notes[0].startswith(f"x: {note}, missing cells")
    recipe = Recipe.from_json(recipe.to_json())
    assert recipe.inputs(table)["x"].tolist() == [*values, np.median(values)]
    expected = re.escape(f"'x', row 1: expected a {note}, got ")
    for other in ("5", "5 lb", "£5"):
        with pytest.raises(ValueError, match=f"{expected}'{other}'"):
            recipe.inputs(pd.DataFrame({"x": [other]}))
    target = pd.Series(cells * 10, name="y")
    task = task_of(target, "regression")
    assert Task(**vars(task)).targets(target)[: len(cells)].tolist() == values


@pytest.mark.parametrize(
    "cells",
    [
        ["A12", "B7", "A9"],
        ["A12", "A7", "A9"],
        ["Room 12", "Room 7"],
        ["1 kg", "2 lb", "3 kg"],
        ["1st", "2nd", "3rd"],
        ["9 PM", "12 PM", "1 PM"],
        ["0", "1", "2", "3+"],
        ["1-5", "6-9"],
        ["x1.2", "x1.3"],
        ["#12", "#7"],
        ["5%", "5"],
    ],
)
def test_names_with_numbers_in_them_are_none(cells: list[str]) -> None:
    (column,) = Recipe.of(pd.DataFrame({"x": cells * 5}), ["x"]).columns
    assert column.kind == "category" and column.categories == tuple(sorted(cells))
    assert task_of(pd.Series(cells * 5)).name == "classification"


def test_codes_of_digits_stay_what_they_were() -> None:
    table = pd.DataFrame({"code": ["007", "012", "123"]})
    recipe = Recipe.of(table, ["code"])
    assert recipe.notes == ("code: number",)
    assert recipe.inputs(table)["code"].tolist() == [7.0, 12.0, 123.0]


@pytest.mark.parametrize("slip", ["n.d.", "5 lb"])
@pytest.mark.parametrize("every", [50, 5], ids=["few", "many"])
def test_slips_among_numbers_are_named(slip: str, every: int) -> None:
    """Also where there are many: the column is no text."""
    for beside, told in (("", ""), ("%", " before '%'")):
        cells = [slip if i % every == 0 else f"{i / 4}{beside}" for i in range(100)]
        recipe = Recipe.of(pd.DataFrame({"x": cells, "z": range(100)}), ["x", "z"])
        assert recipe.notes[0] == (
            f"x: left out, it has numbers{told}, but also '{slip}', first in row 1: correct them, or write ?"
            " for missing"
        )


@pytest.mark.parametrize(
    ("kind", "form", "slip"),
    [
        ("dates", "{year}-{month:02}-{day:02}", "0000-00-00"),
        ("dates", "{day:02}/{month:02}/{year}", "31/02/2020"),
        ("dates", "{day:02}/{month:02}/{year}", "31/31/2020"),
        ("dates", "{month}/{day}/{year} 10:30", "0/0/2020"),
        ("dates", "{day}.{month}.{year}", "nie"),
        ("dates", "{year}-{month:02}", "2018-00"),
        ("dates", "{month:02}/{year}", "13/2018"),
        ("times of day", "{day}:{month:02}", "24:00"),
    ],
)
def test_slips_among_dates_and_times_are_named(kind: str, form: str, slip: str) -> None:
    parts = [dict(year=1990 + i % 30, month=1 + i % 12, day=1 + i % 23) for i in range(300)]
    cells = pd.Series([form.format(**part) for part in parts])
    assert "left out" not in Recipe.of(pd.DataFrame({"x": cells}), ["x"]).notes[0]
    cells[17] = slip
    recipe = Recipe.of(pd.DataFrame({"x": cells, "z": range(300)}), ["x", "z"])
    assert recipe.notes[0] == (
        f"x: left out, it has {kind}, but also '{slip}', first in row 18: correct them, or write ? for"
        " missing"
    )


def test_many_slips_among_dates_are_named() -> None:
    """No date is what databases write as 0000-00-00."""
    cells = pd.date_range("2020-01-01", periods=100).strftime("%Y-%m-%d").tolist()
    cells[5::5] = ["0000-00-00"] * 19
    recipe = Recipe.of(pd.DataFrame({"x": cells, "z": range(100)}), ["x", "z"])
    assert "x: left out, it has dates, but also '0000-00-00', first in row 6" in recipe.notes[0]


def test_a_target_with_a_unit() -> None:
    prices = pd.Series([f"${1000 + i:,}" for i in range(60)], name="y")
    task = task_of(prices)
    assert task.name == "regression"
    assert task.why.startswith(
        "the target is whole numbers after '$', commas between thousands (60 values;"
    )
    assert task.targets(prices).tolist() == [1000.0 + i for i in range(60)]
    with pytest.raises(
        ValueError, match=r"row 1: expected a finite number after '\$', got '1,000'"
    ):
        task.targets(pd.Series(["1,000"], name="y"))
    with pytest.raises(
        ValueError, match=r"numbers after '\$' for regression, got 'sold', first in row 61"
    ):
        task_of(pd.Series([*prices, "sold"], name="y"), "regression")
    terms = pd.Series(["36 months", "60 months"] * 20)
    assert task_of(terms).targets(terms).tolist() == terms.tolist()
    assert "--task regression takes them for quantities" in task_of(terms).why
    floats = pd.Series(["36 months", "60 months", "36.0 months"] * 20)
    assert set(task_of(floats).targets(floats)) == {"36 months", "60 months"}
