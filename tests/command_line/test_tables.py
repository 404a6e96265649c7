from __future__ import annotations

import bz2
import gzip
import lzma
import sys
import unicodedata
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from gpflow_deep.command_line.cells import days, is_missing, numbers
from gpflow_deep.command_line.columns import Recipe
from gpflow_deep.command_line.files import SAMPLE, whole
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


#: Characters of two, three and four bytes.
_FOREIGN = "größe,東京\r\nstraße,🙂\r\nгод,é\r\n"


def test_utf_8_is_found_wherever_the_sample_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = _file(tmp_path, _FOREIGN)
    for size in range(1, path.stat().st_size + 2):
        monkeypatch.setattr("gpflow_deep.command_line.tables.SAMPLE", size)
        assert Format.found(path).encoding == "utf-8-sig"
    assert read_table(path).to_numpy().tolist() == [["straße", "🙂"], ["год", "é"]]


@pytest.mark.parametrize("end", ["grün\r\n", "é", "東", "🙂", "🙂\n", "a"])
def test_utf_8_is_found_in_files_of_any_length(tmp_path: Path, end: str) -> None:
    """Also shorter than a character has bytes, and about as long as the sample."""
    for size in (*range(6), *range(SAMPLE - 9, SAMPLE + 4)):
        assert Format.found(_file(tmp_path, "x" * size + end)).encoding == "utf-8-sig"


@pytest.mark.parametrize("encoding", ["cp1252", "latin-1"])
@pytest.mark.parametrize("end", ["grün\r\n", "caf\xe9", "\xe9\n", "\xe9", "\xe4\xf6\xfc"])
def test_what_is_no_utf_8_to_its_end_is_windows_1252(
    tmp_path: Path, end: str, encoding: str
) -> None:
    path = _file(tmp_path, f"a,b\r\n1,{end}", encoding)
    assert Format.found(path).encoding == "cp1252"
    assert read_table(path)["b"].tolist() == [end.strip()]
    rows = "größe,é\r\n" * SAMPLE
    for cut in range(10):
        path = _file(tmp_path, "x" * cut + rows, encoding)
        assert Format.found(path).encoding == "cp1252"


@pytest.mark.parametrize("form", ["NFC", "NFD"])
def test_letters_with_marks_are_read_as_one_character(tmp_path: Path, form: str) -> None:
    """In names and cells, of CSV and Parquet."""
    text = unicodedata.normalize(form, "Höhe,self\nüber,1\nunter,é\n")
    table = read_table(_file(tmp_path, text))
    assert list(table.columns) == ["Höhe", "self"]
    assert table.to_numpy().tolist() == [["über", "1"], ["unter", "é"]]
    with pytest.raises(ValueError, match="each column name once, got 'é' again"):
        read_table(_file(tmp_path, unicodedata.normalize("NFD", "é,b") + ",é\n1,2,3\n"))


def test_why_parquet_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is there may be for another NumPy."""

    def failing(path: Path) -> None:
        raise ImportError("pyarrow requires NumPy 2.0 or newer")

    monkeypatch.setattr(pd, "read_parquet", failing)
    with pytest.raises(
        ValueError, match=r"install 'pyarrow<22'.*What failed: .*NumPy 2.0 or newer"
    ):
        read_table(tmp_path / "data.parquet")


def test_letters_with_marks_in_parquet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    apart = unicodedata.normalize("NFD", "é")
    cells = {apart: [apart, "é", None], "n": [1.0, np.nan, 2.0], "mixed": [apart, 1, b"e"]}
    table = pd.DataFrame(cells).assign(kind=pd.Categorical([apart, "é", None]))
    monkeypatch.setattr(pd, "read_parquet", lambda path: table)
    read = read_table(tmp_path / "data.parquet")
    assert list(read.columns) == ["é", "n", "mixed", "kind"]
    for name in ("é", "kind"):
        assert read[name][:2].tolist() == ["é", "é"] and pd.isna(read[name][2])
    assert read["mixed"].tolist() == ["é", 1, b"e"]
    assert read["n"].dtype == float


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
        ("a,b\n", "expected rows below the names of the columns, got none"),
        ("1,2\n3,4\n", "names of the columns in the first line"),
        ("a,b\n1,2\n3,4,5\n", r"line of names \(line 1: 2\), got 3 in line 3 "),
        ('\n"a\n",b\n1,2\n\n3,4,5\n', r"line of names \(line 2: 2\), got 3 in line 6 "),
        ("# a\n# b\na,b\n1,2\n", r"\(line 1: 1\), got 2 in line 3 .a title or comments above"),
        ("A title\na,b,c\n1,2,3\n", r"\(line 1: 1\), got 3 in line 2 .a title or comments above"),
        ('a,b\n1,"2\n3,4\n', "expected a CSV file: EOF inside string starting at row 1\\.$"),
        ("a,a,b\n1,2,3\n", "each column name once, got 'a'"),
        ("(column 2),,b\n1,2,3\n", "expected other names than .*column 2"),
        ("a,b\n1,2,3\n4,5,6\n", "as many cells in each row as in the line of names"),
        ("a,b\n,\n\n", "expected rows below the names of the columns, got none"),
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
        ({"separator": "\n"}, "--separator: expected one character"),
        ({"separator": ""}, "--separator: expected one character.* got ''"),
        ({"encoding": "utf8x"}, "--encoding: expected one that Python knows.* got 'utf8x'"),
        ({"encoding": "rot13"}, "--encoding: expected one that Python knows.* got 'rot13'"),
        ({"encoding": "base64"}, "--encoding: expected one that Python knows.* got 'base64'"),
    ],
)
def test_formats_that_are_none(tmp_path: Path, given: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_table(_file(tmp_path, "a,b\n1,2\n"), **given)


@pytest.mark.parametrize("separator", ["\\t", "tab", "\t"])
def test_a_tab_can_be_typed(tmp_path: Path, separator: str) -> None:
    table = read_table(_file(tmp_path, "a,b\tc\n1,2\t3\n"), separator=separator)
    assert table.to_numpy().tolist() == [["1,2", "3"]]


@pytest.mark.parametrize(
    "text, columns",
    [
        ('"Weight, kg";"Height, m";price\n70,5;1,8;3\n', ["Weight, kg", "Height, m", "price"]),
        ("Weight, kg;Height, m;price\n70,5;1,8;3\n", ["Weight, kg", "Height, m", "price"]),
        ("size|a,b\n1|2\n3|4\n", ["size", "a,b"]),
        ("a;b,c,d\n1,2,3\n4,5,6\n", ["a;b", "c", "d"]),
        ("sep=;\na,b;c\n1,5;2\n", ["a,b", "c"]),
        ('"sep=\t"\r\na;b\tc\r\n1;2\t3\r\n', ["a;b", "c"]),
    ],
)
def test_the_separator_is_what_makes_a_table(tmp_path: Path, text: str, columns: list[str]) -> None:
    table = read_table(_file(tmp_path, text))
    assert list(table.columns) == columns
    assert len(table) == text.count("\n") - 1 - text.lower().count("sep=")


def test_columns_of_parquet_may_be_numbered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = pd.DataFrame({1: [1.0, 2.0], "b": [3.0, 4.0]})
    monkeypatch.setattr(pd, "read_parquet", lambda path: table)
    assert list(read_table(tmp_path / "data.parquet").columns) == ["1", "b"]


def test_a_line_of_names_of_any_length_and_with_any_character(tmp_path: Path) -> None:
    names = [f"a column of a long name {i}" for i in range(4000)]
    names[7] = "form\x0cfeed \u2028 and two\nlines"
    text = "\n" + ",".join(f'"{name}"' for name in names) + "\n" + ",".join("1" * 4000) + "\n"
    table = read_table(_file(tmp_path, text))
    assert list(table.columns) == names and table.shape == (1, 4000)


@pytest.mark.parametrize("ending", ["gz", "bz2", "xz", "zip", "tar", "zst"])
def test_damaged_compressed_files_are_named(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"data.csv.{ending}"
    path.write_bytes(b"no such file")
    with pytest.raises(ValueError, match=rf"data\.csv\.{ending}: "):
        read_table(path)
    if ending == "gz":
        rows = "".join(f"{i},{i**3}\n" for i in range(50_000)).encode()
        whole = gzip.compress(b"a,b\n" + rows)
        for damaged in (whole[:-100_000], whole[:99] + b"?" * 99 + whole[198:]):
            path.write_bytes(damaged)
            with pytest.raises(ValueError, match=r"data\.csv\.gz: expected a whole compressed"):
                read_table(path)


@pytest.mark.parametrize("ending", ["gz", "bz2", "xz"])
def test_compressed_files_of_another_name(tmp_path: Path, ending: str) -> None:
    path = tmp_path / "data.csv"
    compress = {"gz": gzip.compress, "bz2": bz2.compress, "xz": lzma.compress}[ending]
    path.write_bytes(compress(b"a,b\n1,2\n"))
    with pytest.raises(ValueError, match=rf"data\.csv: expected the name .* to end in \.{ending}"):
        read_table(path)


@pytest.mark.parametrize("line", [1, 3, 2 * SAMPLE])
def test_a_cell_is_not_cut_where_a_file_is_damaged(tmp_path: Path, line: int) -> None:
    lines = [b"a,b", *[b"1,2"] * 2 * SAMPLE]
    lines[line - 1] = lines[line - 1][:1] + b"\x0005" + lines[line - 1][1:]
    path = tmp_path / "data.csv"
    path.write_bytes(b"\n".join(lines))
    with pytest.raises(ValueError, match=f"data.csv: expected text, got a NUL byte in line {line}"):
        for _ in stream_table(path):
            pass


def test_damage_that_zstandard_finds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = SimpleNamespace(ZstdError=type("ZstdError", (Exception,), {}))
    monkeypatch.setitem(sys.modules, "zstandard", module)
    with pytest.raises(ValueError, match="data.zst: expected a whole compressed file: bad magic"):
        with whole(tmp_path / "data.zst"):
            raise module.ZstdError("bad magic")


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
    with pytest.raises(
        ValueError, match="column 'x', row 1: expected a number, decimal comma.*, got '6.096'"
    ):
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
        (["Feb 03, 2020", "Mar 4,2020"], ["2020-02-03", "2020-03-04"], "date, as days"),
        (["September 3rd, 2020", "May 4 2020"], ["2020-09-03", "2020-05-04"], "date, as days"),
        (["Feb-03-2020", "MAR-04-2020"], ["2020-02-03", "2020-03-04"], "date, as days"),
        (
            ["Mon, Feb. 03, 2020 1:30 PM", "Mar 4, 2020"],
            ["2020-02-03 13:30", "2020-03-04"],
            "date, as days",
        ),
        (["2020-02", "2021/03"], ["2020-02-01", "2021-03-01"], "months without days, as days"),
        (["02/2020", "03-2021"], ["2020-02-01", "2021-03-01"], "months without days, as days"),
        (
            ["Feb 2020", "Sept. 2021", "MAY-1890", "June, 2021"],
            ["2020-02-01", "2021-09-01", "1890-05-01", "2021-06-01"],
            "months without days, as days",
        ),
        (["2009-10", "2010-12"], ["2009-10-01", "2010-12-01"], "months without days, as days"),
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


@pytest.mark.parametrize(
    "cells",
    [
        ["1234-01", "1234-12"],  # no year that data are of
        ["2018-01", "2018-13"],
        ["2018-1", "2018-2"],
        ["2009-10", "2010-11", "2011-12"],  # seasons
        ["1/2000", "2/2000"],
        ["2018-01", "2018-02-03"],
        ["2018-01", "May"],
        ["Jan-18", "Feb-18"],
        ["Jan 05", "Feb 31"],
        ["Mayor 2018", "Decor 2018"],
        ["Room 05, 2018", "Jan 05, 18"],
        ["Jan 2018 A", "Feb 2018 A"],
    ],
)
def test_what_may_be_no_date_is_text(cells: list[str]) -> None:
    (column,) = Recipe.of(pd.DataFrame({"x": cells * 5}), ["x"]).columns
    assert column.kind == "category" and column.categories == tuple(sorted(cells))


@pytest.mark.parametrize(
    ("cells", "later"),
    [
        (["2020-02", "2020-03"], "2020-02-03"),
        (["02/2020", "03/2020"], "2020-13"),
        (["2020-02-03", "2020-02-04"], "2020-02"),
        (["2020-02-03", "2020-02-04"], "Feb 2020"),
        (["13/02/2020", "14/02/2020"], "02/2020"),
    ],
)
def test_months_and_days_are_told_apart_later(cells: list[str], later: str) -> None:
    recipe = Recipe.of(pd.DataFrame({"when": cells}), ["when"])
    new = pd.DataFrame({"when": [cells[0], later]})
    with pytest.raises(ValueError, match=f"'when', row 2: expected a date, got '{later}'"):
        Recipe.from_json(recipe.to_json()).inputs(new)


def test_seasons_of_training_do_not_decide_about_months_later() -> None:
    recipe = Recipe.of(pd.DataFrame({"when": ["2020-02", "2020-03"]}), ["when"])
    assert recipe.inputs(pd.DataFrame({"when": ["2009-10"]}))["when"].tolist() == [14518.0]


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


def test_a_task_that_was_said_is_told_in_a_sentence() -> None:
    assert task_of(pd.Series(["1", "2"]), "classification").why == "you say so"


def test_text_is_no_quantity() -> None:
    with pytest.raises(ValueError, match="target 'y': expected numbers for regression, got 'b'"):
        task_of(pd.Series(["1", "b"], name="y"), "regression")


@pytest.mark.parametrize(
    "cells, expected",
    [
        (["10:30:00", "1:30:00.5"], [37800.0, 5400.5]),
        (["10:30:00 PM", "12:00 am"], [81000.0, 0.0]),
        (["9:30", "09:31"], [34200.0, 34260.0]),
    ],
)
def test_times_of_day_are_no_dates_of_today(cells: list[str], expected: list[float]) -> None:
    table = pd.DataFrame({"at": cells})
    recipe = Recipe.of(table, ["at"])
    assert recipe.notes == ("at: time of day, as seconds",)
    again = Recipe.from_json(recipe.to_json())
    assert again.inputs(table)["at"].tolist() == expected
    with pytest.raises(ValueError, match="expected a time of day, got '25:00:00'"):
        again.inputs(table.assign(at="25:00:00"))


@pytest.mark.parametrize("cells", [["2020-02-13", "2021-03-04"], ["3 Feb 2020", "4 Mar 2021"]])
@pytest.mark.parametrize("later", ["03/02/2020", "13/02/2020", "03.02.2020", "3-2-20"])
def test_dates_written_another_way_later_are_refused(cells: list[str], later: str) -> None:
    """Whether the day comes first in them, no date in training has told."""
    recipe = Recipe.of(pd.DataFrame({"when": cells}), ["when"])
    new = pd.DataFrame({"when": ["2020-02-03", later]})
    with pytest.raises(ValueError, match=f"'when', row 2: expected a date, got '{later}'"):
        Recipe.from_json(recipe.to_json()).inputs(new)


@pytest.mark.parametrize("cell", ["1:2:3", "10:30:00 +0200", "Jan 5 10:30", "5/1 10:30"])
def test_what_has_no_year_is_no_date(cell: str) -> None:
    dates = days(pd.Series([cell, "2020-02-03T10:30:00+02:00"]))
    assert dates.isna().tolist() == [True, False]


def test_dates_and_durations_that_are_types_of_their_own() -> None:
    """As in Parquet: pandas would count their nanoseconds, and take none for the least number."""
    when = pd.Series(pd.to_datetime(["2020-01-01", None, "2020-01-04"]))
    table = pd.DataFrame({"when": when, "zone": when.dt.tz_localize("UTC"), "lag": when - when[0]})
    recipe = Recipe.of(table, ["when", "zone", "lag"])
    assert [column.kind for column in recipe.columns] == ["date", "date", "duration"]
    inputs = recipe.inputs(table)
    assert inputs["when"].tolist() == inputs["zone"].tolist() == [18262.0, 18263.5, 18265.0]
    assert inputs["lag"].tolist() == [0.0, 129600.0, 259200.0]
    assert inputs["missingindicator_lag"].tolist() == [0.0, 1.0, 0.0]
    # The same as text.
    pd.testing.assert_frame_equal(recipe.inputs(table.astype(str)), inputs)
    assert numbers(when).isna().all() and numbers(table["lag"]).isna().all()
    with pytest.raises(ValueError, match="expected a number, got Timestamp"):
        Recipe.of(pd.DataFrame({"x": ["1", "2"]}), ["x"]).inputs(
            table.rename(columns={"when": "x"})
        )


def test_any_name_of_a_column_will_do() -> None:
    names = [
        "remainder",
        "verbose",
        "n_jobs",
        "transformers",
        "a__b",
        "a_ _b",
        "missingindicator_a",
    ]
    table = pd.DataFrame({name: ["1", "2", "3"] for name in names}).assign(
        a=["1", "2", ""], color=["red", "blue", "red"], color_red=["5", "6", "7"]
    )
    table["odd"] = ["(missing)", "x", ""]
    recipe = Recipe.of(table, list(table.columns))
    inputs = recipe.inputs(table)
    assert list(inputs.columns) == [
        *names,
        *("a", "missingindicator_a (2)", "color_blue", "color_red", "color_red (2)"),
        *("odd_x", "odd_(missing)"),
    ]
    assert inputs["color_red (2)"].tolist() == [5.0, 6.0, 7.0]
    assert inputs["odd_(missing)"].tolist() == [1.0, 0.0, 1.0]
