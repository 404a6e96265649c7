from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from gpflow_deep.validation.files import check_file, check_writable, written_whole


def _write(path: Path, content: bytes) -> None:
    check_file(path)
    with written_whole(path) as file:
        file.write(content)


@pytest.mark.parametrize("there", [True, False])
@pytest.mark.parametrize("steps", [0, 1, 2])
def test_a_link_stays_one_and_what_it_leads_to_is_written(
    tmp_path: Path, steps: int, there: bool
) -> None:
    file = path = tmp_path / "a" / "file"
    for name in ("b", "c")[:steps]:
        (tmp_path / name).mkdir()
        link = tmp_path / name / "link"
        link.symlink_to(Path("..", *path.relative_to(tmp_path).parts))
        path = link
    if there:
        file.parent.mkdir()
        file.write_bytes(b"old")
    with pytest.raises(KeyError), written_whole(path) as whole:
        whole.write(b"half")
        raise KeyError
    assert path.exists() == there and (not there or file.read_bytes() == b"old")
    _write(path, b"new")
    assert path.is_symlink() == bool(steps) and path.read_bytes() == file.read_bytes() == b"new"
    assert [p.name for p in file.parent.iterdir()] == ["file"]


def test_links_are_checked_where_they_lead(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/proc/below/file")
    with pytest.raises(OSError, match="^/proc/below: expected a folder that can be written to"):
        check_file(tmp_path / "link")


def test_the_reader_of_a_pipe_has_what_is_written(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("pipe")
    for name in ("pipe", "link"):
        reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
        with closing(os.fdopen(reader, "rb")) as file:
            _write(tmp_path / name, b"all of it")
            assert file.read() == b"all of it"
    assert (tmp_path / "pipe").is_fifo() and (tmp_path / "link").is_symlink()
    assert {path.name for path in tmp_path.iterdir()} == {"pipe", "link"}


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="as Linux has it")
@pytest.mark.parametrize("kind", ["pipe", "file without a name"])
def test_what_is_open_is_written_to_as_it_is(tmp_path: Path, kind: str) -> None:
    """As `>(gzip)` of shells: nothing can be made in the folder of its name, and nothing is."""
    if kind == "pipe":
        reader, writer = os.pipe()
        os.set_blocking(reader, False)
    else:
        reader = writer = os.open(tmp_path / "gone", os.O_RDWR | os.O_CREAT)
        (tmp_path / "gone").unlink()
    (tmp_path / "link").symlink_to(f"/proc/self/fd/{writer}")
    for path in (Path(f"/proc/self/fd/{writer}"), tmp_path / "link"):
        _write(path, b"all of it")
        assert os.read(reader, 100) == b"all of it"
        if kind != "pipe":
            os.lseek(reader, 0, os.SEEK_SET)
    assert [path.name for path in tmp_path.iterdir()] == ["link"]
    for number in {reader, writer}:
        os.close(number)


def test_what_may_not_be_written_to_is_told_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkfifo(tmp_path / "pipe")
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK)
    with pytest.raises(PermissionError, match="pipe: expected a file that can be written to"):
        check_file(tmp_path / "pipe")


def test_a_check_leaves_nothing_behind(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "not" / "there" / "yet"):
        check_writable(folder)
        assert not list(tmp_path.iterdir())


def test_checks_at_the_same_time_do_not_disturb_each_other(tmp_path: Path) -> None:
    folders = [tmp_path / "a" / "b", tmp_path / "a", tmp_path / "a" / "b" / "c"] * 400
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(check_writable, folders))
    assert not list(tmp_path.iterdir())


def test_what_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "nowhere").symlink_to(tmp_path / "gone")
    for folder in (
        tmp_path / "file",
        tmp_path / "file" / "below",
        tmp_path / "nowhere",
        tmp_path / ("long" * 100),
        Path("/proc/below"),
    ):
        with pytest.raises(OSError, match="expected a folder that can be written to"):
            check_writable(folder)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no full device here")
def test_a_full_disk_is_told_with_the_name_of_the_file() -> None:
    with pytest.raises(OSError, match="No space left on device: '/dev/full'"):
        _write(Path("/dev/full"), b"content")
