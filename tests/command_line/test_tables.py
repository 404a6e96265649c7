from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from gpflow_deep.command_line.cells import is_missing, numbers
from gpflow_deep.command_line.columns import Recipe
from gpflow_deep.command_line.fitting import task_of
from gpflow_deep.command_line.tables import Format, read_table, stream_table


def _file(tmp_path: Path, text: str, encoding: str = "utf-8") -> Path:
    path = tmp_path / "data.csv"
    path.write_bytes(text.encode(encoding))
    return path


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "cp1252"])
def test_separators_and_encodings_are_found(tmp_path: Path, separator: str, encoding: str) -> None:
    text = " größe ,b\r\n\r\n1,-2.5e3\r\n\r\n3,x\r\n".replace(",", separator)
    table = read_table(_file(tmp_path, text, encoding))
    assert list(table.columns) == ["größe", "b"]
    assert table.to_numpy().tolist() == [["1", "-2.5e3"], ["3", "x"]]


def test_compressed_files_and_given_formats(tmp_path: Path) -> None:
    path = tmp_path / "data.csv.gz"
    path.write_bytes(gzip.compress(b"a b,c\n1 2,3\n"))
    assert list(read_table(path).columns) == ["a b", "c"]
    assert list(read_table(path, separator=" ").columns) == ["a", "b,c"]
    assert Format.found(path, encoding="latin-1").encoding == "latin-1"


def test_a_stream_has_the_same_rows(tmp_path: Path) -> None:
    path = _file(tmp_path, "a,b\n" + "".join(f"{i},{-i}\n" for i in range(25)))
    parts = list(stream_table(path, rows=10))
    assert [len(part) for part in parts] == [10, 10, 5]
    pd.testing.assert_frame_equal(pd.concat(parts), read_table(path))


@pytest.mark.parametrize(
    "text, message",
    [
        ("", "got nothing"),
        ("a,b\n", "got no rows"),
        ("1,2\n3,4\n", "names of the columns in the first line"),
        ("a,b\n1,2\n3,4,5\n", "Expected 2 fields.*saw 3"),
        ("a,a,b\n1,2,3\n", "each column name once, got 'a'"),
        ("a,b\n1,2,3\n4,5,6\n", "as many cells in each row as in the line of names"),
        ("a,b\n,\n\n", "got no rows"),
    ],
)
def test_files_that_are_no_tables(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_table(_file(tmp_path, text))


def test_blank_rows_are_left_out_and_counted(tmp_path: Path) -> None:
    path = _file(tmp_path, "\n\nx,y\n1,2\n,\n\n3,4\n" + ",\n" * 20)
    (part,) = stream_table(path, rows=5)
    assert part.to_numpy().tolist() == [["1", "2"], ["3", "4"]]
    assert part.index.tolist() == [0, 3]


@pytest.mark.parametrize(
    "given, message",
    [
        ({"separator": "::"}, "--separator: expected one character, or tab.* got '::'"),
        ({"encoding": "utf8x"}, "--encoding: expected one that Python knows.* got 'utf8x'"),
    ],
)
def test_formats_that_are_none(tmp_path: Path, given: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_table(_file(tmp_path, "a,b\n1,2\n"), **given)


@pytest.mark.parametrize("separator", ["\\t", "tab", "\t"])
def test_a_tab_can_be_typed(tmp_path: Path, separator: str) -> None:
    table = read_table(_file(tmp_path, "a,b\tc\n1,2\t3\n"), separator=separator)
    assert table.to_numpy().tolist() == [["1,2", "3"]]


def _table() -> pd.DataFrame:
    days = pd.date_range("2024-01-30", periods=40).strftime("%Y-%m-%d")
    return pd.DataFrame(
        {
            "number": [f"{i / 4}" for i in range(39)] + ["?"],
            "comma": [f"1.{i:03d},5" for i in range(40)],
            "flag": ["yes", "no"] * 20,
            "when": days,
            "colour": ["red", "green", "blue", ""] * 10,
            "id": [f"name {i}" for i in range(40)],
            "flat": ["7"] * 40,
            "typo": [f"{i}" for i in range(39)] + ["1_000"],
        }
    )


def test_what_is_done_with_each_kind_of_column() -> None:
    table = _table()
    recipe = Recipe.of(table, list(table.columns))
    kinds = {column.name: column.kind for column in recipe.columns}
    assert kinds == dict(
        number="number", comma="number", flag="boolean", when="date", colour="category"
    )
    told = "\n".join(recipe.notes)
    assert "flat: left out, it is constant" in told
    assert "id: left out, it is text of 40 different values" in told
    assert "typo: left out, it has numbers, but also '1_000'" in told
    inputs = recipe.inputs(table)
    assert inputs["number"].iloc[-1] == np.median(np.arange(39) / 4)
    assert inputs["missingindicator_number"].tolist() == [0.0] * 39 + [1.0]
    assert inputs["comma"].tolist() == [1000.5 + i for i in range(40)]
    np.testing.assert_allclose(np.diff(inputs["when"]), 1.0)
    assert inputs[["colour_blue", "colour_green", "colour_red"]].sum(axis=1).tolist()[:4] == [
        1,
        1,
        1,
        0,
    ]
    assert np.isfinite(inputs.to_numpy(dtype=float)).all()


def test_a_recipe_is_saved_without_pickle_and_meets_new_cells() -> None:
    table = _table()
    recipe = Recipe.of(table, ["number", "flag", "when", "colour"])
    again = Recipe.from_json(recipe.to_json())
    pd.testing.assert_frame_equal(again.inputs(table), recipe.inputs(table))
    new = table.iloc[:2].assign(number=["", "2"], colour=["violet", "red"])[::-1]
    inputs = again.inputs(new)
    assert inputs.filter(like="colour").to_numpy().sum(axis=1).tolist() == [1.0, 0.0]
    with pytest.raises(ValueError, match="column 'number', row 1: expected a number, got 'two'"):
        again.inputs(table.iloc[:1].assign(number="two"))
    with pytest.raises(ValueError, match="no column 'when'"):
        again.inputs(table.drop(columns="when"))


@pytest.mark.parametrize(
    "cells, values, note",
    [
        (
            ["1,234", "12,500", "950", "-2,100"],
            [1234, 12500, 950, -2100],
            "commas between thousands",
        ),
        (["1,234.50", "2,100.00", "950.25"], [1234.5, 2100.0, 950.25], "commas between thousands"),
        (["1,234,567", "2,000", "3,000"], [1234567, 2000, 3000], "commas between thousands"),
        (["6,096", "7,123", "8,500"], [6.096, 7.123, 8.5], "decimal comma"),
        (["6,096", "0,123", "8"], [6.096, 0.123, 8.0], "decimal comma"),
        (["1234", "1,125", "3,250"], [1234.0, 1.125, 3.25], "decimal comma"),
        (["1.234,5", "2.000", "3,5e1"], [1234.5, 2000.0, 35.0], "points between thousands"),
        (["1.234.567", "2.000", "5"], [1234567, 2000, 5], "points between thousands"),
    ],
)
def test_numbers_are_what_all_cells_together_say(
    cells: list[str], values: list[float], note: str
) -> None:
    table = pd.DataFrame({"x": cells})
    recipe = Recipe.of(table, ["x"])
    assert note in recipe.notes[0]
    assert recipe.inputs(table)["x"].tolist() == values
    assert Recipe.from_json(recipe.to_json()).inputs(table)["x"].tolist() == values
    target = pd.Series([*cells, *("1,5" if note == "decimal comma" else "7" for _ in range(9))])
    found = task_of(target, "regression")
    assert found.targets(target)[: len(values)].tolist() == values


def test_points_and_commas_are_not_mixed_up() -> None:
    """A number of another notation than the column's is none; it is not read as a thousand times itself."""
    assert numbers(pd.Series([1.5, 2.25]), decimal_comma=True).tolist() == [1.5, 2.25]
    recipe = Recipe.of(pd.DataFrame({"x": ["6,096", "7,5"]}), ["x"])
    with pytest.raises(ValueError, match="column 'x', row 1: expected a number, got '6.096'"):
        recipe.inputs(pd.DataFrame({"x": ["6.096"]}))
    with pytest.raises(ValueError, match="expected numbers for regression, got '2.5'"):
        task_of(pd.Series(["1,5", "2.5"], name="y"), "regression")


@pytest.mark.parametrize(
    "dates, expected, note",
    [
        (
            ["01/02/2020", "12/02/2020", "13/02/2020"],
            ["2020-02-01", "2020-02-12", "2020-02-13"],
            "day first",
        ),
        (["01/02/2020", "02/13/2020"], ["2020-01-02", "2020-02-13"], "month first"),
        (["01/02/2020", "03/04/2020"], ["2020-01-02", "2020-03-04"], "month first"),
        (["01.02.2020", "5.3.2020 12:00"], ["2020-02-01", "2020-03-05 12:00"], "day first"),
        (["01-02-20", "13-02-69"], ["2020-02-01", "1969-02-13"], "day first"),
        (["2020-02-03", "2020-02-04"], ["2020-02-03", "2020-02-04"], "date, as days"),
        (["3 Feb 2020", "4 Mar 2020"], ["2020-02-03", "2020-03-04"], "date, as days"),
    ],
)
def test_dates_of_a_column_have_one_order(dates: list[str], expected: list[str], note: str) -> None:
    table = pd.DataFrame({"when": dates})
    recipe = Recipe.of(table, ["when"])
    assert note in recipe.notes[0]
    epoch = pd.Timestamp("1970-01-01")
    days = [(pd.Timestamp(date) - epoch) / pd.Timedelta(days=1) for date in expected]
    assert recipe.inputs(table)["when"].tolist() == days
    # A single new row says nothing of the order.
    again = Recipe.from_json(recipe.to_json())
    assert again.inputs(table.iloc[:1])["when"].tolist() == days[:1]


def test_dates_that_contradict_each_other() -> None:
    table = pd.DataFrame({"x": ["1", "2"], "when": ["13/02/2020", "02/13/2020"]})
    assert "the day comes first in some of its dates" in Recipe.of(table, ["x", "when"]).notes[1]
    recipe = Recipe.of(table.assign(when=["13/02/2020", "14/02/2020"]), ["when"])
    with pytest.raises(ValueError, match="expected a date, got '02/13/2020'"):
        recipe.inputs(table.iloc[1:])


def test_a_class_may_be_called_none() -> None:
    cells = pd.Series(["none", "-", "NA", "", "mild"])
    assert is_missing(cells).tolist() == [True, True, True, True, False]
    assert is_missing(cells, labels=True).tolist() == [False, False, True, True, False]


@pytest.mark.parametrize(
    "cells, task, why",
    [
        (["a", "b", "a"], "classification", "text of 2 values"),
        (["1", "0", "1"], "classification", "--task regression"),
        ([str(i) for i in range(40)], "regression", "--task classification"),
        (["1.5", "2", "3"], "regression", "numbers"),
        (["1,5", "2,5", "3,5"], "regression", "numbers"),
    ],
)
def test_the_task_is_found_and_explained(cells: list[str], task: str, why: str) -> None:
    found = task_of(pd.Series(cells, name="y"))
    assert found.name == task and why in found.why
    assert len(found.targets(pd.Series(cells, name="y"))) == len(cells)


def test_text_is_no_quantity() -> None:
    with pytest.raises(ValueError, match="target 'y': expected numbers for regression, got 'b'"):
        task_of(pd.Series(["1", "b"], name="y"), "regression")
