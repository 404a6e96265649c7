"""Data that need not fit into memory: rows that are read in passes, a piece at a time."""

from __future__ import annotations

__all__ = ["Source", "Stream", "as_rows", "as_stream"]

import mmap
import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import tensorflow as tf

from gpflow_deep.validation import as_array, check_positive_integer, check_seed

Piece = tuple[np.ndarray, np.ndarray]  # X [n, D], Y [n, P]

_BUFFER_BYTES = 2**24  # of the rows that minibatches are drawn from
_PATIENCE = 10.0  # seconds of counting before a word
_BLOCK_BYTES = 2**18  # of the rows that lie together in an array on the disk and are read at once


class Source(ABC):
    """Where the rows of a stream come from."""

    num_data: int | None = None
    """Rows of a pass, where that is known."""

    identity = ""
    """What tells it from others that begin with the same rows, where that is known."""

    place = ""
    """The file of the piece that was read last, where there is one."""

    @abstractmethod
    def read(self, rng: np.random.Generator | None) -> Iterator[Any]:
        """A pass over all rows, as pairs (X, Y): in their order, or as far as can be in one drawn."""


class Stream:
    """
    Rows for :func:`fit` that are never all in memory.

    As an iterable it is one pass over its pieces, X [n, D] and Y [n, P], in their order: for scikit-learn's
    `partial_fit`, which scales columns and finds inducing inputs in one pass. For training, each pass reads
    blocks of an array, or files, in an order of its own, and draws minibatches from a buffer of rows: what
    a function gives comes in its own order but for the buffer, so it should not be sorted by its targets.
    Batch i depends on the seed and i only, if the source gives the same in every pass.

    >>> def pieces():
    ...     for part in np.split(np.arange(20.0), 4):
    ...         yield part[:, None], np.sin(part)
    >>> stream = gd.training.Stream(pieces)
    >>> stream.num_data, [len(piece) for piece, _ in stream]
    (20, [5, 5, 5, 5])
    >>> scaled = stream.map(lambda X, Y: (X / 20.0, Y))
    >>> float(max(piece.max() for piece, _ in scaled))
    0.95

    :param source: a function without arguments that returns an iterator over pairs (X, Y), for each pass
        anew: a generator function, say, or `as_numpy_iterator` of a `tf.data.Dataset`. Passes have an end.
        Pieces without rows are passed over. Or two arrays on the disk, `np.memmap` or such, that are read by
        their rows.
    :param num_data: number of rows N; without it, those of a function are counted in a pass of their own.
    :param buffer_size: rows that minibatches are drawn from; by default as many as take 16 MiB.
    :raises TypeError: the source is none of these.
    :raises ValueError: the arrays differ in length, or have not ``num_data`` rows; a dataset without end.
    """

    def __init__(
        self, source: Any, num_data: int | None = None, *, buffer_size: int | None = None
    ) -> None:
        self._source = _as_source(source)
        known = self._source.num_data
        self._num_data = known if num_data is None else check_positive_integer(num_data, "num_data")
        if known not in (None, self._num_data):
            raise ValueError(f"num_data: expected {known}, the arrays' rows, got {num_data}.")
        self._buffer_size = (
            None if buffer_size is None else check_positive_integer(buffer_size, "buffer_size")
        )
        self._failure: Exception | None = None

    @property
    def num_data(self) -> int:
        """Number of rows of a pass."""
        if self._num_data is None:
            self._num_data = self._count()
        return self._num_data

    def _count(self) -> int:
        total, told, started = 0, False, time.monotonic()
        for X, _ in self:
            total += len(X)
            if not told and time.monotonic() - started > _PATIENCE:
                told = True
                warnings.warn(
                    f"data: the rows of the stream are being counted, {total:,} so far. Where their number is"
                    " known, num_data saves this pass; a stream without end has none.",
                    stacklevel=3,
                )
        return total

    @property
    def identity(self) -> str:
        """What, besides its first rows and their number, decides what is drawn from it."""
        size = "" if self._buffer_size is None else f", buffer_size {self._buffer_size}"
        return self._source.identity + size

    @property
    def place(self) -> str:
        """The file of the piece that was read last, where there is one: for error messages."""
        return self._source.place

    @property
    def first(self) -> Piece:
        """
        The first piece.

        :raises ValueError: there is none.
        """
        for piece in self:
            return piece
        raise ValueError("data: expected a stream with rows, got none.")

    def __iter__(self) -> Iterator[Piece]:
        return self.read(None)

    def map(self, function: Callable[[np.ndarray, np.ndarray], Any]) -> Stream:
        """
        The same rows, changed: standardised, say.

        :param function: (X [n, D], Y [n, P]) of a piece to the pair in place of it, of as many rows: where
            it returns others, the pass that comes to them raises a ValueError.
        """
        return Stream(_Changed(self, function), self._num_data, buffer_size=self._buffer_size)

    def sample(self, num_rows: int, seed: int = 0) -> Piece:
        """
        Rows drawn without replacement in one pass: for inducing inputs, scaling, or plots.

        >>> stream = gd.training.Stream((X, Y))
        >>> inputs, targets = stream.sample(5)
        >>> inputs.shape, targets.shape
        ((5, 1), (5, 1))

        :param num_rows: how many; all where there are fewer.
        :param seed: of the draw.
        """
        num_rows = check_positive_integer(num_rows, "num_rows")
        rng = np.random.default_rng(check_seed(seed))
        drawn: tuple[np.ndarray, ...] = ()
        # The rows with the smallest of independent uniform keys.
        for X, Y in self:
            rows: tuple[np.ndarray, ...] = (rng.random(len(X)), X, Y)
            if drawn:
                rows = tuple(np.concatenate(pair) for pair in zip(drawn, rows, strict=True))
            drawn = rows
            if len(rows[0]) > num_rows:
                smallest = np.argpartition(rows[0], num_rows)[:num_rows]
                drawn = tuple(part[smallest] for part in rows)
        if not drawn:
            raise ValueError("data: expected a stream with rows, got none.")
        _, X, Y = drawn
        return X, Y

    def minibatches(self, batch_size: int, seed: int, start: int = 0) -> tf.data.Dataset:
        """
        An endless dataset of (X [B, D], Y [B, P]); rows that fill no batch sit that pass out.

        :param batch_size: B; at most N is taken.
        :param seed: of the order of passes, and of the draws from the buffer.
        :param start: number of the first batch; those before it in its pass are read and passed over.
        """
        batch_size = min(check_positive_integer(batch_size, "batch_size"), self.num_data)
        specs = tuple(
            tf.TensorSpec([None, batch_size, part.shape[1]], part.dtype) for part in self.first
        )
        groups = tf.data.Dataset.from_generator(
            lambda: self._groups(batch_size, seed, start), output_signature=specs
        )
        # The next buffer is read while the batches of one are trained on.
        return groups.prefetch(1).flat_map(lambda X, Y: tf.data.Dataset.from_tensor_slices((X, Y)))

    @contextmanager
    def own_failures(self) -> Iterator[None]:
        """Where a pass fails while a graph reads it, let its own error out."""
        try:
            yield
        except Exception:
            failure, self._failure = self._failure, None
            if failure is not None:
                raise failure from None
            raise

    def _groups(self, batch_size: int, seed: int, start: int) -> Iterator[Piece]:
        """Batches in groups [k, B, D] and [k, B, P], pass by pass."""
        number, skipped = divmod(start, self.num_data // batch_size)
        try:
            while True:
                for group in self._groups_of_pass(batch_size, [seed, number]):
                    size = len(group[0])
                    if skipped < size:
                        yield group[0][skipped:], group[1][skipped:]
                    skipped = max(0, skipped - size)
                number += 1
        except Exception as failure:
            self._failure = failure
            raise

    def _groups_of_pass(self, batch_size: int, seed: Sequence[int]) -> Iterator[Piece]:
        rng = np.random.default_rng(seed)
        held: list[Piece] = []
        num_held = num_read = 0

        def mixed() -> tuple[Piece, Piece]:
            """Batches of what is held, and the rows that are left over."""
            X, Y = (np.concatenate(parts) for parts in zip(*held, strict=True))
            rows = rng.permutation(len(X))
            chosen, rest = np.split(rows, [len(X) // batch_size * batch_size])
            X_group, Y_group = (
                part[chosen].reshape(-1, batch_size, part.shape[1]) for part in (X, Y)
            )
            return (X_group, Y_group), (X[rest], Y[rest])

        for piece in self.read(rng):
            held.append(piece)
            num_held += len(piece[0])
            num_read += len(piece[0])
            if num_read > self.num_data:
                break  # it may have no end
            if num_held >= max(
                batch_size, self._buffer_size or _BUFFER_BYTES // _bytes_of_a_row(*piece)
            ):
                group, rest = mixed()
                held, num_held = [rest], len(rest[0])
                yield group
        if num_read <= self.num_data and num_held >= batch_size:
            yield mixed()[0]
        if num_read != self.num_data:
            raise ValueError(
                f"data: expected a stream of num_data = {self.num_data} rows in every pass, got {num_read}."
            )

    def read(self, rng: np.random.Generator | None) -> Iterator[Piece]:
        """
        One pass, as :meth:`Source.read` has it, without pieces that have no rows.

        :raises TypeError: an element is no pair.
        :raises ValueError: pieces differ in their columns, or in the lengths of X and Y.
        """
        columns: list[tuple[int, ...]] = []
        for number, piece in enumerate(self._source.read(rng), start=1):
            if not isinstance(piece, tuple | list) or len(piece) != 2:
                raise TypeError(
                    f"data: expected a stream of pairs (X, Y), got {type(piece).__name__}."
                )
            X, Y = as_rows(*piece)
            if len(X) == len(Y) == 0:
                continue
            if len(X) != len(Y):
                raise ValueError(
                    f"data: expected X and Y of the same length in each piece, got {len(X)} and {len(Y)} rows"
                    f" in piece {number}."
                )
            shapes = [X.shape[1:], Y.shape[1:]]
            columns = columns or shapes
            if shapes != columns:
                raise ValueError(
                    "data: expected pieces with the same columns, got X and Y of"
                    f" {columns[0]} and {columns[1]} first, of {shapes[0]} and {shapes[1]} in piece {number}."
                )
            yield X, Y


def as_stream(data: Any, num_data: int | None) -> Stream | None:
    """
    What a caller gives as data, where it is a stream or meant to be read like one.

    :param num_data: rows of a function's pass, where that is known.
    """
    if isinstance(data, Stream):
        return data
    if isinstance(data, tuple | list) and any(isinstance(part, np.memmap) for part in data):
        return Stream(data)
    if callable(data):
        return Stream(data, num_data)
    return None


def as_rows(X: Any, Y: Any) -> Piece:
    """Matrices of a piece, or of a single row: X [D] and Y [P] or []."""
    X, Y = as_array(X), as_array(Y)
    if X.ndim < 2:
        X, Y = X.reshape(1, -1), Y.reshape(1, -1)
    return X, Y if Y.ndim > 1 else Y[:, None]


def _as_source(source: Any) -> Source:
    if isinstance(source, Source):
        return source
    if callable(source):
        dataset = getattr(source, "__self__", None)
        if (
            isinstance(dataset, tf.data.Dataset)
            and dataset.cardinality() == tf.data.INFINITE_CARDINALITY
        ):
            raise ValueError(
                "source: expected passes with an end, got those of a dataset without: leave out its repeat()."
            )
        return _Function(source)
    if (
        not isinstance(source, tuple | list)
        or len(source) != 2
        or not all(hasattr(part, "shape") and hasattr(part, "__getitem__") for part in source)
    ):
        raise TypeError(
            "source: expected a function that returns an iterator over pairs (X, Y), or two arrays, got "
            f"{type(source).__name__}."
        )
    return _Arrays(*source)


class _Function(Source):
    """Pieces in the order of what a function returns."""

    def __init__(self, function: Callable[[], Iterator[Any]]) -> None:
        self._function = function

    def read(self, rng: np.random.Generator | None) -> Iterator[Any]:
        pieces = self._function()
        if not isinstance(pieces, Iterable):
            raise TypeError(
                f"data: expected a function that returns an iterator over pairs (X, Y), got {pieces!r} from"
                f" {self._function!r}."
            )
        return iter(pieces)


class _Changed(Source):
    """A stream's pieces, changed."""

    def __init__(self, stream: Stream, function: Callable[[np.ndarray, np.ndarray], Any]) -> None:
        self._stream, self._function = stream, function
        self.identity = stream._source.identity

    @property
    def place(self) -> str:  # type: ignore[override]
        """That of the stream."""
        return self._stream.place

    def read(self, rng: np.random.Generator | None) -> Iterator[Any]:
        for X, Y in self._stream.read(rng):
            changed = self._function(X, Y)
            if isinstance(changed, tuple | list) and len(changed) == 2:
                changed = as_rows(*changed)
                if len(changed[0]) != len(X):
                    raise ValueError(
                        f"function: expected as many rows as it was given, {len(X)}, got {len(changed[0])}"
                        f" from {self._function!r}."
                    )
            yield changed


class _Arrays(Source):
    """Blocks of two arrays' rows."""

    def __init__(self, X: Any, Y: Any) -> None:
        if len(X) != len(Y) or not len(X):
            raise ValueError(
                f"source: expected arrays of the same length, got {len(X)} and {len(Y)} rows."
            )
        if len(X.shape) != 2:
            raise ValueError(f"source: expected a matrix X [N, D], got shape {list(X.shape)}.")
        self._arrays, self.num_data = (X, Y), len(X)
        self._size = max(1, _BLOCK_BYTES // _bytes_of_a_row(X, Y))

    def read(self, rng: np.random.Generator | None) -> Iterator[Any]:
        num_blocks = -(-len(self._arrays[0]) // self._size)
        for number in range(num_blocks) if rng is None else rng.permutation(num_blocks):
            rows = slice(number * self._size, (number + 1) * self._size)
            yield tuple(np.array(array[rows]) for array in self._arrays)
            for array in self._arrays:
                _forget_pages(array)


def _forget_pages(array: Any) -> None:
    """What was read of a mapped file would stay in this process's memory for as long as it is mapped."""
    mapped = getattr(array, "_mmap", None)
    # Not those of a private copy, whose changes are nowhere else.
    if mapped is not None and array.mode != "c" and hasattr(mmap, "MADV_DONTNEED"):
        mapped.madvise(mmap.MADV_DONTNEED)


def _bytes_of_a_row(*parts: Any) -> int:
    return max(1, sum(np.asarray(part[:1]).nbytes for part in parts))
