"""Data that are read in passes: every row once, the same batches for a seed, and nothing kept."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import gpflow
import numpy as np
import pandas as pd
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from gpflow_deep.training import Stream, minibatches, read_files
from gpflow_deep.training.checks import check_data
from tests.training.models import (
    Killed,
    Line,
    N,
    Weights,
    assert_same,
    kill_at,
    make_data,
    quiet_fit,
)

DATA = make_data()


def pieces() -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """The rows of DATA, by uneven pieces."""
    return zip(*(np.split(array, [5, 6, 31]) for array in DATA), strict=True)


def mapped(folder: Path, mode: Any = "r") -> tuple[np.memmap, np.memmap]:
    """DATA in one file, as views of it."""
    # Written once: a killed run may still be reading ahead, and reading a mapped file cut short is a crash.
    if not (folder / "rows.npy").exists():
        np.save(folder / "rows.npy", np.hstack(DATA))
    rows = np.load(folder / "rows.npy", mmap_mode=mode)
    assert isinstance(rows[:, :2], np.memmap)
    return rows[:, :2], rows[:, 2:]


def batches(stream: Stream, size: int, start: int = 0, seed: int = 0) -> Iterator[Any]:
    return minibatches(stream, size, seed, start).as_numpy_iterator()


@given(
    sizes=st.lists(st.integers(1, 9), min_size=1, max_size=6),
    batch_size=st.integers(1, 12),
    buffer_size=st.integers(1, 30),
    start=st.integers(0, 20),
)
def test_batches_are_the_rows_of_each_pass(
    sizes: list[int], batch_size: int, buffer_size: int, start: int
) -> None:
    """Whatever the pieces: full batches of distinct rows, and the same ones from any start."""
    N = sum(sizes)
    batch_size = min(batch_size, N)
    rows = np.arange(float(N))[:, None]
    parts = np.split(rows, np.cumsum(sizes)[:-1])
    stream = Stream(lambda: zip(parts, parts, strict=True), buffer_size=buffer_size)
    per_pass = N // batch_size
    whole = list(islice(stream._groups(batch_size, 3, 0), 40))
    X = np.concatenate([X for X, _ in whole])[: 3 * per_pass]
    for number in range(len(X) // per_pass):
        one_pass = X[number * per_pass : (number + 1) * per_pass].ravel()
        assert len(np.unique(one_pass)) == per_pass * batch_size
    later, _ = next(stream._groups(batch_size, 3, start))
    everything = np.concatenate([X for X, _ in whole])
    if start < len(everything):
        np.testing.assert_array_equal(later[0], everything[start])


def test_inputs_and_targets_stay_together_and_are_mixed() -> None:
    stream = Stream(pieces)
    X, Y = (
        np.concatenate(parts) for parts in zip(*islice(batches(stream, 10), N // 10), strict=True)
    )
    order = np.argsort(X[:, 0])
    expected = np.argsort(DATA[0][:, 0])
    np.testing.assert_array_equal(X[order], DATA[0][expected])
    np.testing.assert_array_equal(Y[order], DATA[1][expected])
    assert not np.array_equal(X[:10], DATA[0][:10])
    other = next(batches(stream, 10, seed=1))
    assert not np.array_equal(other[0], X[:10])


def test_all_rows_at_once_are_the_rows_in_memory() -> None:
    halved = Stream(pieces).map(lambda X, Y: (X, 0.5 * Y))
    losses = [
        quiet_fit(Weights(), data, steps=1, batch_size=None).history["loss"][0]
        for data in (halved, (DATA[0], 0.5 * DATA[1]))
    ]
    assert losses[0] == pytest.approx(losses[1], rel=1e-12)


@pytest.mark.parametrize("source", ["function", "memmap", "dataset", "files"])
def test_a_killed_run_goes_on_to_the_same_result(source: str, tmp_path: Path) -> None:
    def data() -> Any:
        if source == "function":
            return pieces
        if source == "memmap":
            return mapped(tmp_path)
        if source == "dataset":
            return Stream(tf.data.Dataset.from_tensor_slices(DATA).batch(7).as_numpy_iterator)
        for number, (X, Y) in enumerate(pieces()):
            table = pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "y": Y[:, 0]})
            table.to_csv(tmp_path / f"part-{number}.csv", index=False)
        return read_files(tmp_path / "part-*.csv", targets=["y"])

    settings: dict[str, Any] = dict(learning_rate=0.1, validation_data=DATA, validate_every=5)
    whole, resumed = Line(), Line()
    expected = quiet_fit(whole, data(), **settings)
    settings |= dict(checkpoint_dir=tmp_path / "run", checkpoint_every=5)
    with pytest.raises(Killed):
        quiet_fit(Line(), data(), callback=kill_at(8), **settings)
    result = quiet_fit(resumed, data(), **settings)
    assert_same(whole, resumed)
    np.testing.assert_array_equal(result.history["loss"], expected.history["loss"])
    assert whole.slope.numpy() != Line().slope.numpy()
    assert whole.seen_num_data == [N]


def test_pages_of_private_copies_are_kept(tmp_path: Path) -> None:
    X, Y = mapped(tmp_path, mode="c")
    X[:] = 3.0
    stream = Stream((X, Y))
    for _ in range(2):
        assert all((piece == 3.0).all() for piece, _ in stream)
    X, Y = mapped(tmp_path, mode="r+")
    Y[:] = 4.0
    stream = Stream((X, Y))
    for _ in range(2):
        assert all((targets == 4.0).all() for _, targets in stream)


def test_sample_is_uniform_and_without_replacement() -> None:
    rows = np.arange(20.0)[:, None]
    stream = Stream((rows, -rows))
    counts = np.zeros(20)
    for seed in range(300):
        X, Y = stream.sample(5, seed)
        assert len(np.unique(X)) == 5 and (X == -Y).all()
        counts[X[:, 0].astype(int)] += 1
    # Each is drawn with probability 1/4: five standard deviations of a binomial.
    assert np.abs(counts - 75.0).max() < 5.0 * np.sqrt(300 * 0.25 * 0.75)
    assert len(stream.sample(50)[0]) == 20


def test_files(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    table = pd.DataFrame({"a": np.arange(7.0), "y": np.arange(7), "b": np.ones(7)})
    table[:3].to_parquet(tmp_path / "1.parquet")
    table[3:].to_parquet(tmp_path / "2.parquet")
    stream = read_files(tmp_path / "*.parquet", targets=["y"])
    assert stream.num_data == 7
    X, Y = (np.concatenate(parts) for parts in zip(*stream, strict=True))
    np.testing.assert_array_equal(X, table[["a", "b"]])
    np.testing.assert_array_equal(Y, table[["y"]])


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="pattern: expected the paths of files"):
        read_files(tmp_path / "*.csv", targets=["y"])
    (tmp_path / "1.csv").write_text("a,y\n1.0,2.0\n")
    with pytest.raises(ValueError, match=r"targets: expected a list .*\['a', 'y'\], got \['z'\]"):
        read_files(tmp_path / "*.csv", targets=["z"])
    with pytest.raises(ValueError, match="targets: expected a list .*got 'y'"):
        read_files(tmp_path / "*.csv", targets="y")
    with pytest.raises(ValueError, match="inputs: expected a list"):
        read_files(tmp_path / "*.csv", targets=["a", "y"])
    (tmp_path / "1.txt").write_text("a,y\n")
    with pytest.raises(ValueError, match="pattern: expected files of one kind.* got .csv, .txt"):
        read_files(tmp_path / "1.*", targets=["y"])
    (tmp_path / "1.csv").write_text("a,y\nred,2.0\n")
    with pytest.raises(TypeError, match=r"X of data: expected real numbers, got 'red' in .*1\.csv"):
        quiet_fit(Line(), read_files(tmp_path / "*.csv", targets=["y"]))
    with pytest.raises(ValueError, match=r"inputs: expected none of the targets, got \['y'\]"):
        read_files(tmp_path / "1.csv", targets=["y"], inputs=["a", "y"])
    with pytest.raises(TypeError, match="pattern: expected one string"):
        read_files([tmp_path / "1.csv"], targets=["y"])
    (tmp_path / "0.csv").write_text("")
    with pytest.raises(ValueError, match=r"pattern: expected files of rows .*0\.csv"):
        read_files(tmp_path / "*.csv", targets=["y"])
    (tmp_path / "0.csv").write_text("a,y\n1.0,2.0\n")
    (tmp_path / "1.csv").write_text("b,y\n1.0,2.0\n")
    with pytest.raises(ValueError, match=r"1\.csv: expected rows with these columns.*'a'"):
        quiet_fit(Line(), read_files(tmp_path / "*.csv", targets=["y"]))


@pytest.mark.parametrize("hole", [1, 2])
def test_the_file_of_what_is_missing_is_named(tmp_path: Path, hole: int) -> None:
    """Be it the first one, which is read before the others, or not."""
    for number in (1, 2):
        cell = "" if number == hole else "1.0"
        (tmp_path / f"{number}.csv").write_text(f"a,y\n{cell},2.0\n")
    stream = read_files(tmp_path / "*.csv", targets=["y"]).map(lambda X, Y: (X, Y))
    with pytest.raises(ValueError, match=rf"X of data: .* 1 of 1 rows\. They are in .*{hole}\.csv"):
        quiet_fit(Line(), stream)


def test_files_without_rows_and_compressed_ones(tmp_path: Path) -> None:
    table = pd.DataFrame({"a": np.arange(4.0), "y": np.arange(4.0)})
    table[:0].to_csv(tmp_path / "0.CSV.gz", index=False)
    table.to_csv(tmp_path / "1.csv.gz", index=False)
    stream = read_files(tmp_path / "*.gz", targets=["y"])
    assert stream.num_data == 4 and [len(X) for X, _ in stream] == [4]


def test_what_a_checkpoint_compares(tmp_path: Path) -> None:
    first, second = tmp_path / "1.csv", tmp_path / "2.csv"
    for path in (first, second):
        pd.DataFrame({"a": np.arange(30.0) / 30.0, "y": np.arange(30.0)}).to_csv(path, index=False)

    def go_on(buffer_size: int) -> None:
        stream = read_files(tmp_path / "*.csv", targets=["y"], buffer_size=buffer_size)
        quiet_fit(Line(), stream, steps=2, batch_size=5, checkpoint_dir=tmp_path / "run")

    go_on(10)
    go_on(10)
    with pytest.raises(ValueError, match="data was .*buffer_size 10.* is now .*buffer_size 20"):
        go_on(20)
    second.write_text(second.read_text().replace("29.0", "29.25"))
    with pytest.raises(ValueError, match="data was .*files.* is now .*files"):
        go_on(10)


class _Classifier(gpflow.models.SVGP):
    """Whose targets are 0 or 1."""

    def __init__(self) -> None:
        kernel, likelihood = gpflow.kernels.RBF(), gpflow.likelihoods.Bernoulli()
        super().__init__(kernel, likelihood, DATA[0][:3].copy())


def _fails() -> Iterator[Any]:
    yield DATA
    raise OSError("the disk is gone")


@pytest.mark.parametrize(
    "stream,error,message",
    [
        (Stream(_fails, num_data=2 * N), OSError, "the disk is gone"),
        (Stream(pieces, num_data=N + 5), ValueError, "num_data = 65 rows in every pass, got 60"),
        (Stream(pieces, num_data=N - 5), ValueError, "num_data = 55 rows in every pass, got 60"),
        (
            Stream(lambda: iter(lambda: DATA, None), num_data=N),
            ValueError,
            "num_data = 60 rows in every pass, got 120",
        ),
        (
            Stream(lambda: iter([DATA, (DATA[0] * np.nan, DATA[1])]), num_data=2 * N),
            ValueError,
            "X of data: expected values that are finite",
        ),
        (Stream(lambda: iter([])), ValueError, "expected a stream with rows, got none"),
        (Stream(lambda: iter([1])), TypeError, "expected a stream of pairs"),
        (
            Stream(lambda: None),
            TypeError,
            "data: expected a function that returns an it.* got None",
        ),
        (
            Stream(lambda: iter([DATA, (np.c_[DATA[0], DATA[0]], DATA[1])])),
            ValueError,
            r"data: expected pieces with the same columns, .* of \(4,\) and \(1,\) in piece 2",
        ),
        (
            Stream(lambda: iter([(DATA[0], DATA[1][1:])])),
            ValueError,
            "X and Y of the same length in each piece, got 60 and 59 rows in piece 1",
        ),
        (
            Stream(pieces).map(lambda X, Y: (X[1:], Y[1:])),
            ValueError,
            "function: expected as many rows as it was given",
        ),
    ],
    ids=["fails", "fewer", "more", "endless"]
    + ["nan", "empty", "no pairs", "none", "columns", "rows", "map"],
)
def test_streams_that_cannot_be_read(stream: Stream, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        quiet_fit(Line(), stream, steps=40)


def test_pieces_without_rows_are_passed_over() -> None:
    nothing = DATA[0][:0], DATA[1][:0]
    stream = Stream(lambda: iter([nothing, DATA, nothing]))
    assert stream.num_data == N and [len(X) for X, _ in stream] == [N]
    (X, Y), *_ = stream.minibatches(10 * N, 0).take(1)
    assert len(X) == len(Y) == N


def test_what_is_wrong_is_said_before_rows_are_counted(tmp_path: Path) -> None:
    def never_counted() -> Iterator[Any]:
        yield DATA
        raise AssertionError("counted")

    model = gpflow.models.SVGP(gpflow.kernels.RBF(), gpflow.likelihoods.Gaussian(), DATA[0][:3])
    (tmp_path / "file").write_text("")
    arguments: dict[str, tuple[Any, str]] = {
        "validation_fraction": (0.1, "validation_fraction: expected None for a stream"),
        "validation_data": ((np.ones([3, 7]), np.ones(3)), "X of validation_data"),
        "optimizer": ("adam", "optimizer: expected a Keras optimiser"),
        "natural_gradient": ("x", "natural_gradient: expected a step size"),
        "checkpoint_dir": (tmp_path / "file" / "run", "checkpoint_dir: expected a folder"),
    }
    for name, (value, message) in arguments.items():
        with pytest.raises((TypeError, ValueError, OSError), match=message):
            quiet_fit(model, never_counted, **{name: value})
    with pytest.raises(AssertionError, match="counted"):
        quiet_fit(model, never_counted)


def test_long_counting_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpflow_deep.training.streams._PATIENCE", -1.0)
    with pytest.warns(UserWarning, match="rows of the stream are being counted, .* so far"):
        assert Stream(pieces).num_data == N


@pytest.mark.parametrize("wrong", [pieces(), [DATA, DATA, DATA]])
def test_pieces_want_a_function(wrong: Any) -> None:
    with pytest.raises(TypeError, match="data: expected a pair .* give a function that returns"):
        quiet_fit(Line(), wrong)


def test_arguments_that_do_not_fit_a_stream() -> None:
    endless = tf.data.Dataset.from_tensor_slices(DATA).repeat()
    with pytest.raises(ValueError, match=r"source: expected passes with an end.*repeat\(\)"):
        Stream(endless.as_numpy_iterator)
    with pytest.raises(ValueError, match="num_data: expected 60, the arrays' rows, got 5"):
        Stream(DATA, num_data=5)
    with pytest.raises(ValueError, match="validation_fraction: expected None for a stream"):
        quiet_fit(Line(), pieces, validation_fraction=0.1)
    with pytest.raises(TypeError, match="source: expected a function"):
        Stream([1, 2, 3])
    with pytest.raises(ValueError, match="source: expected arrays of the same length"):
        Stream((DATA[0], DATA[1][1:]))
    with pytest.raises(ValueError, match=r"source: expected a matrix X \[N, D\], got shape \[60\]"):
        Stream((DATA[0][:, 0], DATA[1][:, 0]))
    with pytest.raises(ValueError, match="num_data"):
        Stream(pieces, num_data=0)
    half = np.full_like(DATA[1], 0.5)
    later = Stream(lambda: iter([(DATA[0], np.ones_like(half)), (DATA[0], half)]))
    with pytest.raises(ValueError, match="Y of data"):
        quiet_fit(_Classifier(), later, steps=9)


def test_rows_of_more_cells_than_names_are_refused(tmp_path: Path) -> None:
    """pandas takes the first cells for labels of the rows, and what follows for the columns before them."""
    (tmp_path / "1.csv").write_text("a,b,y\n1,10,20,30\n2,11,21,31\n")
    with pytest.raises(ValueError, match="1.csv: got more cells in its rows than names"):
        read_files(tmp_path / "*.csv", targets=["y"])
    (tmp_path / "0.csv").write_text("a,b,y\n1,2,3\n")
    with pytest.raises(ValueError, match="1.csv: expected rows.* got more cells"):
        list(read_files(tmp_path / "*.csv", targets=["y"], num_data=3))


def test_columns_of_several_kinds_of_numbers(tmp_path: Path) -> None:
    table = pd.DataFrame({"a": [0.5, 1.5, 2.5], "flag": [True, False, True], "i": [3, 4, 5]})
    table["nullable"] = pd.array([1, 2, 3], dtype="Int64")
    expected = table.to_numpy(dtype=float)
    kernel, likelihood = gpflow.kernels.SquaredExponential(), gpflow.likelihoods.Gaussian()
    model = gpflow.models.SVGP(kernel, likelihood, expected)
    (X, Y), _ = check_data(model, (table, table["i"]), None, None, 0)
    np.testing.assert_array_equal(X, expected)
    np.testing.assert_array_equal(Y[:, 0], table["i"])
    table.assign(y=1.0).to_csv(tmp_path / "1.csv", index=False)
    (piece,) = read_files(tmp_path / "*.csv", targets=["y"])
    np.testing.assert_array_equal(piece[0], expected)
    assert piece[0].dtype == float


def test_parquet_with_an_index(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    table = pd.DataFrame({"a": [1.0, 2.0, 3.0], "y": [4.0, 5.0, 6.0]})
    table[table.a > 1].to_parquet(tmp_path / "1.parquet")
    (piece,) = read_files(tmp_path / "1.parquet", targets=["y"])
    assert piece[0].tolist() == [[2.0], [3.0]]
    table.set_index(pd.Index([7, 9, 8], name="id")).to_parquet(tmp_path / "2.parquet")
    (piece,) = read_files(tmp_path / "2.parquet", targets=["y"], inputs=["id", "a"])
    assert piece[0].tolist() == [[7.0, 1.0], [9.0, 2.0], [8.0, 3.0]]


def test_row_numbers_that_pandas_wrote_are_no_input(tmp_path: Path) -> None:
    table = pd.DataFrame({"a": [1.0, 2.0], "y": [5.0, 6.0]})
    table.to_csv(tmp_path / "1.csv")
    X, Y = next(iter(read_files(tmp_path / "*.csv", targets=["y"])))
    np.testing.assert_array_equal(X, [[1.0], [2.0]])
    np.testing.assert_array_equal(Y, [[5.0], [6.0]])
