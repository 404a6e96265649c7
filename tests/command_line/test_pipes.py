"""Tables from pipes, and files that are not what their names say."""

from __future__ import annotations

import gzip
import io
import os
import tempfile
from pathlib import Path
from threading import Thread
from zipfile import ZipFile

import pandas as pd
import pytest
from click.testing import CliRunner

from gpflow_deep.command_line.main import main
from gpflow_deep.command_line.pipes import readable
from gpflow_deep.command_line.tables import read_table

_TABLE = "a,b\n" + "".join(f"{i},{i % 7}\n" for i in range(5000))  # more than a pipe holds


@pytest.fixture(autouse=True)
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where what comes from pipes is kept."""
    folder = tmp_path / "kept"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def _pipe(path: Path, content: bytes) -> Path:
    """A pipe into which something writes once."""
    os.mkfifo(path)
    Thread(target=path.write_bytes, args=(content,), daemon=True).start()
    return path


@pytest.mark.parametrize("compressed", [False, True])
def test_a_pipe_is_read_as_often_as_it_takes(tmp_path: Path, kept: Path, compressed: bool) -> None:
    content = gzip.compress(_TABLE.encode()) if compressed else _TABLE.encode()
    with readable(_pipe(tmp_path / "pipe", content)) as path:
        for _ in range(2):
            assert read_table(path).shape == (5000, 2)
        assert path.is_relative_to(kept)
    assert not list(kept.iterdir())


def test_a_column_may_have_the_name_that_parquet_begins_with(tmp_path: Path) -> None:
    content = b"PAR1,PAR2\n1,2\n"
    (tmp_path / "data.csv").write_bytes(content)
    for path in (tmp_path / "data.csv", _pipe(tmp_path / "pipe", content)):
        with readable(path) as file:
            assert read_table(file).columns.tolist() == ["PAR1", "PAR2"]


def test_a_file_is_read_where_it_is(tmp_path: Path) -> None:
    (tmp_path / "data.csv").write_text(_TABLE)
    (tmp_path / "link").symlink_to(tmp_path / "data.csv")
    for name in ("data.csv", "link"):
        with readable(tmp_path / name) as path:
            assert path == tmp_path / name


def test_what_is_wrong_with_a_pipe_names_it(tmp_path: Path, kept: Path) -> None:
    pipe = _pipe(tmp_path / "pipe", b"a,a\n1,2\n")
    with pytest.raises(ValueError, match=f"^{pipe}: expected each column name once"):
        with readable(pipe) as path:
            read_table(path)
    assert not list(kept.iterdir())


def test_fit_and_predict_from_pipes(tmp_path: Path, kept: Path) -> None:
    """What fit tells goes to standard error, predictions to standard output."""
    quick = ("--model", "svgp", "--steps", "3", "--num-inducing", "4")
    lines = _TABLE.encode().splitlines(keepends=True)[:40]
    command = [
        "fit",
        "-",
        "--target",
        "b",
        "--task",
        "regression",
        "--output",
        f"{tmp_path / 'fit'}",
    ]
    result = CliRunner().invoke(main, [*command, *quick], input=b"".join(lines))
    assert result.exit_code == 0, result.output
    assert result.stdout == "" and "svgp: training, whole." in result.stderr
    pipe = _pipe(tmp_path / "pipe", b"".join(lines))
    piped = CliRunner().invoke(main, ["predict", f"{tmp_path / 'fit'}", f"{pipe}"])
    assert piped.exit_code == 0, piped.output
    assert len(piped.stdout.splitlines()) == 40 and "Scores" in piped.stderr
    result = CliRunner().invoke(
        main, ["predict", f"{tmp_path / 'fit'}", "-"], input=b"".join(lines)
    )
    assert result.stdout == piped.stdout
    result = CliRunner().invoke(main, ["predict", f"{tmp_path / 'fit'}", "-"], input=b"")
    assert result.exit_code == 1 and "Error: standard input: expected a line of" in result.stderr
    assert not list(kept.iterdir())


@pytest.mark.parametrize("name", ["data.PARQUET", "data.Pq"])
def test_names_of_parquet_in_capitals(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    table = pd.DataFrame({"a": [1.0, 2.0]})
    monkeypatch.setattr(pd, "read_parquet", lambda path: table)
    pd.testing.assert_frame_equal(read_table(tmp_path / name), table)


def test_parquet_of_another_name(tmp_path: Path) -> None:
    path = tmp_path / "data.csv"
    path.write_bytes(b"PAR1\x15\x04")
    with pytest.raises(
        ValueError, match=r"data.csv: expected the name of a Parquet file to end in"
    ):
        read_table(path)


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_utf_16_without_a_mark(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "data.csv"
    path.write_bytes("größe,b\n1,2\n3,4\n".encode(encoding))
    with pytest.raises(
        ValueError, match=rf"expected text, got NUL bytes: .* \(--encoding {encoding}\)"
    ):
        read_table(path)
    assert list(read_table(path, encoding=encoding).columns) == ["größe", "b"]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16-le"])
@pytest.mark.parametrize("text", ["a,b\n1,2\n", 'sep=;\n"a";b\n1;2\n', '"a","b"\n1,2\n'])
def test_a_mark_that_the_named_encoding_leaves(tmp_path: Path, text: str, encoding: str) -> None:
    path = tmp_path / "data.csv"
    path.write_bytes(f"\ufeff{text}".encode(encoding))
    table = read_table(path, encoding=encoding)
    assert list(table.columns) == ["a", "b"] and table.to_numpy().tolist() == [["1", "2"]]


def _zip(members: dict[str, bytes]) -> bytes:
    content = io.BytesIO()
    with ZipFile(content, "w") as archive:
        for name, member in members.items():
            archive.writestr(name, member)
    return content.getvalue()


#: What workbooks begin with or have.
_XLS = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(512)
_XLSX = _zip({"xl/workbook.xml": b"\x81<", "xl/styles.xml": b"", "[Content_Types].xml": b""})
_ODS = _zip({"mimetype": b"", "content.xml": b"", "META-INF/manifest.xml": b""})


@pytest.mark.parametrize("encoding", [None, "latin-1"])
@pytest.mark.parametrize(
    ("name", "content", "kind"),
    [
        ("data.xlsx", _XLSX, "an Excel"),
        ("data.csv", _XLSX, "an Excel"),
        ("data.zip", _XLSX, "an Excel"),
        ("data.zip", _zip({"data.xlsx": _XLSX}), "an Excel"),
        ("pipe", _XLSX, "an Excel"),
        ("data.xls", _XLS, "an Excel"),
        ("pipe", _XLS, "an Excel"),
        ("data.ods", _ODS, "an OpenDocument"),
    ],
    ids=["xlsx", "csv", "zip", "zipped", "pipe", "xls", "old by a pipe", "ods"],
)
def test_workbooks_are_called_so(
    tmp_path: Path, name: str, content: bytes, kind: str, encoding: str | None
) -> None:
    path = tmp_path / name
    _pipe(path, content) if name == "pipe" else path.write_bytes(content)
    expected = f"^{path}: expected a CSV file, got {kind} workbook: save its sheet as CSV.$"
    with pytest.raises(ValueError, match=expected), readable(path) as file:
        read_table(file, encoding=encoding)


@pytest.mark.parametrize("piped", [False, True])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "cp1252"])
def test_what_macos_adds_to_an_archive_is_left_out(
    tmp_path: Path, piped: bool, encoding: str
) -> None:
    mac = {"d/": b"", "d/.DS_Store": b"\0", "__MACOSX/d/._data.csv": b"\0\5\x16\7"}
    content = _zip({**mac, "d/data.csv": "größe,b\r\n1,x\r\n3,y\r\n".encode(encoding)})
    path = tmp_path / "data.ZIP"
    _pipe(path, content) if piped else path.write_bytes(content)
    with readable(path) as file:
        table = read_table(file)
    assert list(table.columns) == ["größe", "b"] and table.to_numpy().tolist() == [
        ["1", "x"],
        ["3", "y"],
    ]


def test_archives_of_several_files_name_them(tmp_path: Path) -> None:
    path = tmp_path / "data.zip"
    for number, told in ((0, "0: "), (2, "2: '0.csv', '1.csv'"), (6, "6: '0.csv', .*'4.csv', ...")):
        path.write_bytes(_zip({f"{i}.csv": b"a,b\n1,2\n" for i in range(number)}))
        with pytest.raises(
            ValueError, match=rf"data.zip: expected an archive of one file, got {told}\.$"
        ):
            read_table(path)


def test_an_archive_of_another_name(tmp_path: Path) -> None:
    path = tmp_path / "data.csv"
    path.write_bytes(_zip({"data.csv": b"a,b\n1,2\n"}))
    with pytest.raises(ValueError, match=r"data.csv: expected the name of a zip archive to end in"):
        read_table(path)
    path.write_bytes(path.read_bytes()[:40])
    with pytest.raises(ValueError, match=r"data.csv: expected a whole compressed file"):
        read_table(path)
