from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from gpflow_deep.command_line.tables import read_csv, write_csv


def _file(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "data.csv"
    path.write_text(text, encoding="utf-8")
    return path


def test_columns_come_in_the_order_asked_for(tmp_path: Path) -> None:
    table = read_csv(_file(tmp_path, "a,b,c\n1,2,x\n3,4,y\n"))
    assert table.columns == ("a", "b", "c")
    np.testing.assert_array_equal(table.numbers(["b", "a"]), [[2.0, 1.0], [4.0, 3.0]])


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_delimiters_byte_order_mark_and_blank_lines(tmp_path: Path, delimiter: str) -> None:
    text = "\ufeff a ,b\r\n\r\n1,-2.5e3\r\n\r\n".replace(",", delimiter)
    table = read_csv(_file(tmp_path, text))
    np.testing.assert_array_equal(table.numbers(["a", "b"]), [[1.0, -2500.0]])


@given(values=arrays(np.float64, array_shapes(min_dims=2, max_dims=2), elements=st.floats(-1e300)))
def test_written_numbers_are_read_again(
    tmp_path_factory: pytest.TempPathFactory, values: np.ndarray
) -> None:
    values = np.nan_to_num(values)
    columns = [f"column {j}" for j in range(values.shape[1])]
    file = io.StringIO()
    write_csv(file, columns, values)
    table = read_csv(_file(tmp_path_factory.mktemp("tables"), file.getvalue()))
    np.testing.assert_array_equal(table.numbers(columns), values)


@pytest.mark.parametrize(
    "cell, found",
    [
        ("abc", "got 'abc'"),
        ("1_000", "got '1_000'"),
        ("nan", "got 'nan'"),
        ("inf", "got 'inf'"),
        ("", "the cell is empty"),
    ],
)
def test_a_cell_that_is_no_number_is_found(tmp_path: Path, cell: str, found: str) -> None:
    table = read_csv(_file(tmp_path, f'a,b\n"1\n",2\n\n3,{cell}\n'))
    with pytest.raises(ValueError, match=f"data.csv, line 5, column 'b'.*{found}"):
        table.numbers(["a", "b"])
    np.testing.assert_array_equal(table.numbers(["a"]), [[1.0], [3.0]])


def test_missing_columns_are_named(tmp_path: Path) -> None:
    table = read_csv(_file(tmp_path, "a,b\n1,2\n"))
    with pytest.raises(ValueError, match="no column 'z', 'y'. The file has the columns 'a', 'b'"):
        table.numbers(["a", "z", "y"])


@pytest.mark.parametrize(
    "text, message",
    [
        ("", "got no rows"),
        ("a,b\n", "got no rows"),
        ("1,2\n3,4\n", "names of the columns in the first line"),
        ("a,b\n1,2\n3\n", "line 3: expected 2 cells.*got 1"),
        ("a,a,b\n1,2,3\n", "each column name once, got 'a'"),
    ],
)
def test_files_that_are_no_tables(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_csv(_file(tmp_path, text))


def test_a_file_that_is_no_text(tmp_path: Path) -> None:
    path = tmp_path / "data.csv"
    path.write_bytes(b"a,b\n\xff\xfe\x00,1\n")
    with pytest.raises(ValueError, match="UTF-8"):
        read_csv(path)
