from __future__ import annotations

import http.server
import io
import os
import socket
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from gpflow_deep.experiments import datasets


@pytest.fixture(autouse=True)
def _isolated(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No data folder, an empty cache, and no network."""
    monkeypatch.delenv(datasets.DATA_VARIABLE, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(datasets, "_SOURCE_URL", (tmp_path / "source").as_uri())


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    path = tmp_path / "data"
    path.mkdir()
    monkeypatch.setenv(datasets.DATA_VARIABLE, str(path))
    return path


def _arrays(num_data: int = 12) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.normal(size=(num_data, 3)), rng.normal(size=(num_data, 1))


def _publish(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, X: np.ndarray, Y: np.ndarray) -> Path:
    """A source in the format of the public one, the target before the features."""
    monkeypatch.setitem(
        datasets._SOURCES, "toy", datasets._Source("toy-set", 4, datasets._fingerprint(X, Y))
    )
    source = tmp_path / "source" / "toy-set" / "data"
    source.mkdir(parents=True)
    np.savetxt(source / "data.txt", np.hstack([Y, X]))
    np.savetxt(source / "index_features.txt", [1, 2, 3])
    np.savetxt(source / "index_target.txt", [0])
    return source


def test_the_bundled_set_needs_no_network() -> None:
    dataset = datasets.load("diabetes")
    assert dataset.X.shape == (442, 10)
    assert dataset.Y.shape == (442, 1)
    assert dataset.test_masks is None
    assert dataset.Y.std() > 10.0  # original units


def test_a_file_of_the_data_folder(folder: Path) -> None:
    X, Y = _arrays()
    masks = np.zeros((2, 12), dtype=bool)
    masks[0, :3] = masks[1, 5:6] = True
    np.savez(folder / "mine.npz", X=X, Y=Y, test_mask=masks)
    dataset = datasets.load("mine")
    np.testing.assert_array_equal(dataset.X, X)
    np.testing.assert_array_equal(dataset.Y, Y)
    np.testing.assert_array_equal(dataset.test_masks, masks)
    assert "mine" in datasets.available()


def test_the_data_folder_comes_before_the_download(folder: Path) -> None:
    X, Y = _arrays()
    np.savez(folder / "yacht.npz", X=X, Y=Y)
    np.testing.assert_array_equal(datasets.load("yacht").X, X)


def test_integer_data_become_floats(folder: Path) -> None:
    np.savez(folder / "ints.npz", X=np.arange(6).reshape(3, 2), Y=np.arange(3)[:, None])
    dataset = datasets.load("ints")
    assert dataset.X.dtype == dataset.Y.dtype == np.float64


def test_an_unknown_name_lists_what_there_is_and_how_to_have_more() -> None:
    with pytest.raises(ValueError, match="no-such.*diabetes.*yacht.*GPFLOW_DEEP_DATA.*not set"):
        datasets.load("no-such")


def test_a_data_folder_that_does_not_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(datasets.DATA_VARIABLE, "/no/such/folder")
    with pytest.raises(ValueError, match="GPFLOW_DEEP_DATA.*not a folder"):
        datasets.load("yacht")


@pytest.mark.parametrize(
    "change, message",
    [
        ({"Y": np.zeros(12)}, r"Y \[N, 1\]"),
        ({"X": np.full((12, 3), np.nan)}, "NaN"),
        ({"test_mask": np.ones((2, 11), dtype=bool)}, "test_mask"),
        ({"test_mask": np.full((2, 12), "False")}, "expected test_mask of booleans, or of 0 and 1"),
        ({"test_mask": np.full((2, 12), np.nan)}, "expected test_mask of booleans, or of 0 and 1"),
        ({"test_mask": np.ones((2, 12), dtype=bool)}, "without training or without test"),
        ({"test_mask": np.zeros((2, 12), dtype=bool)}, "without training or without test"),
    ],
)
def test_a_file_that_is_not_a_data_set(
    folder: Path, change: dict[str, np.ndarray], message: str
) -> None:
    X, Y = _arrays()
    np.savez(folder / "bad.npz", **{"X": X, "Y": Y, **change})
    with pytest.raises(ValueError, match=message):
        datasets.load("bad")


def test_a_file_without_targets(folder: Path) -> None:
    np.savez(folder / "bad.npz", X=np.zeros((3, 1)))
    with pytest.raises(ValueError, match="no array Y"):
        datasets.load("bad")


def test_download_is_parsed_verified_and_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, Y = _arrays(40)
    source = _publish(tmp_path, monkeypatch, X, Y)
    dataset = datasets.load("toy")
    np.testing.assert_allclose(dataset.X, X)
    np.testing.assert_allclose(dataset.Y, Y)
    assert dataset.test_masks is not None
    np.testing.assert_array_equal(dataset.test_masks.sum(axis=1), 4)
    (source / "data.txt").unlink()
    np.testing.assert_array_equal(datasets.load("toy").X, dataset.X)


@pytest.mark.parametrize("damage", ["value", "order"])
def test_a_download_with_other_numbers_is_refused_and_not_kept(
    damage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, Y = _arrays()
    source = _publish(tmp_path, monkeypatch, X, Y)
    table = np.loadtxt(source / "data.txt")
    if damage == "value":
        table[3, 2] += 0.01
    else:
        table = table[::-1]
    np.savetxt(source / "data.txt", table)
    for _ in range(2):
        with pytest.raises(ValueError, match="not those expected"):
            datasets.load("toy")


def test_no_network_says_what_to_do() -> None:
    with pytest.raises(ConnectionError, match="yacht.*GPFLOW_DEEP_DATA.*'diabetes'"):
        datasets.load("yacht")


def test_fingerprint_is_of_the_numbers_not_of_their_spelling() -> None:
    X, Y = _arrays()
    same = datasets._fingerprint(X * (1 + 1e-12), Y)
    assert datasets._fingerprint(X, Y) == same
    assert datasets._fingerprint(0.0 * X, Y) == datasets._fingerprint(-0.0 * np.abs(X), Y)


def test_published_splits_are_the_authors() -> None:
    # The first test rows of the first split of yacht (308 points), as papers use it.
    masks = datasets._published_masks(308, 20)
    np.testing.assert_array_equal(np.flatnonzero(masks[0])[:8], [1, 7, 22, 37, 50, 68, 71, 72])
    np.testing.assert_array_equal(masks.sum(axis=1), 31)


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A set that was downloaded: its file in the cache."""
    _publish(tmp_path, monkeypatch, *_arrays(40))
    datasets.load("toy")
    return tmp_path / "cache" / "gpflow_deep" / "toy.npz"


def _other_numbers(path: Path) -> None:
    X, Y = _arrays(40)
    np.savez(path, X=X + 0.01, Y=Y)


DAMAGES = {
    "cut": lambda path: os.truncate(path, path.stat().st_size // 2),
    "empty": lambda path: os.truncate(path, 0),
    "flipped": lambda path: path.write_bytes(
        bytes(byte ^ (80 <= i < 120) for i, byte in enumerate(path.read_bytes()))
    ),
    "another file": lambda path: path.write_text("<!DOCTYPE html>"),
    "a single array": lambda path: path.open("wb").write(_npy()),
    "objects": lambda path: np.savez(path, X=np.array([None]), Y=np.zeros((1, 1))),
    "texts": lambda path: np.savez(path, X=np.array([["a"]]), Y=np.zeros((1, 1))),
}


def _npy() -> bytes:
    file = io.BytesIO()
    np.save(file, np.zeros(3))
    return file.getvalue()


@pytest.mark.parametrize("damage", [*DAMAGES, "other numbers"])
def test_a_damaged_cache_is_downloaded_again(damage: str, toy: Path) -> None:
    expected = datasets.load("toy")
    DAMAGES.get(damage, _other_numbers)(toy)
    with pytest.warns(UserWarning, match="toy.npz: damaged; it is downloaded again"):
        dataset = datasets.load("toy")
    np.testing.assert_array_equal(dataset.X, expected.X)
    np.testing.assert_array_equal(dataset.test_masks, expected.test_masks)
    np.testing.assert_array_equal(datasets.load("toy").Y, expected.Y)


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_of_the_data_folder(damage: str, folder: Path) -> None:
    X, Y = _arrays()
    np.savez(folder / "mine.npz", X=X, Y=Y)
    DAMAGES[damage](folder / "mine.npz")
    with pytest.raises(ValueError, match="mine.npz: expected"):
        datasets.load("mine")


def test_a_cache_that_cannot_be_written_costs_no_download(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, Y = _arrays(40)
    _publish(tmp_path, monkeypatch, X, Y)
    (tmp_path / "cache").touch()
    with pytest.warns(UserWarning, match="toy could not be kept"):
        np.testing.assert_allclose(datasets.load("toy").X, X)


class _Misbehaving(http.server.BaseHTTPRequestHandler):
    """Answers as the first part of the path says."""

    def do_GET(self) -> None:
        how = self.path.split("/")[1]
        if how == "error":
            self.send_error(503)
            return
        body = (
            b"<!DOCTYPE html><p>Sign in"
            if how == "html"
            else b"\xff\xfe"
            if how == "bytes"
            else b"1 2"
        )
        if how == "ragged":
            body = b"1 2\n3\n"
        self.send_response(200)
        self.send_header("Content-Length", str(len(body) + (how in ("cut", "reset", "hang")) * 9))
        self.end_headers()
        self.wfile.write(body)
        if how == "reset":  # without the handshake of a proper end
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.close()
        if how == "hang":
            time.sleep(0.5)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Misbehaving) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.mark.parametrize(
    "how,error,named",
    [
        ("cut", ConnectionError, "could not download .*IncompleteRead"),
        ("reset", ConnectionError, "could not download .*data.txt"),
        ("hang", ConnectionError, "could not download .*timed out"),
        ("error", ConnectionError, "could not download .*503"),
        ("html", ValueError, "expected a table of numbers from .*begins with b'<!DOCTYPE html>"),
        ("bytes", ValueError, "expected a table of numbers from"),
        ("ragged", ValueError, "expected a table of numbers from"),
        ("other", ValueError, "do not fit together"),
    ],
)
def test_servers_that_misbehave(
    how: str, error: type[Exception], named: str, server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr(datasets, "_SOURCE_URL", f"{server}/{how}")
    monkeypatch.setattr(datasets, "_TIMEOUT_SECONDS", 0.2)
    with pytest.raises(error, match=f"^yacht: .*{named}"):
        datasets.load("yacht")
