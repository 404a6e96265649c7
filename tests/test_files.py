from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from gpflow_deep.validation.files import check_writable


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
