from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

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
    ],
)
def test_files_that_are_no_tables(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_table(_file(tmp_path, text))


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
