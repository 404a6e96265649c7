"""Who does the runs of a study: this process, several of this machine, or the workers of a Dask scheduler."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterable, Iterator
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from threading import Thread
from typing import Any

from joblib import Parallel, cpu_count, parallel_config

from gpflow_deep.numerics.quiet import import_tensorflow

__all__ = ["in_processes", "on_scheduler"]

#: What TensorFlow and the libraries beneath it read when they start.
_THREADS = ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS", "OMP_NUM_THREADS")

_SECONDS_TO_CONNECT = 10
_SECONDS_TO_NOTICE = 1.0

#: To begin one task only when another is done, and to have each result as soon as it is there.
_ONE_BY_ONE: dict[str, Any] = dict(
    return_as="generator_unordered", pre_dispatch="n_jobs", batch_size=1
)


def in_processes(jobs: int, tasks: Iterable[Any]) -> Iterator[Any]:
    """
    What tasks return as they are done, so many at a time; together they have a thread for each core.

    :raises ChildProcessError: one of the processes was killed.
    """
    threads = str(max(1, cpu_count() // jobs))
    given = {name: threads for name in _THREADS if name not in os.environ and jobs > 1}
    os.environ.update(given)
    begin = dict(initializer=_begin, initargs=(os.getpid(),)) if jobs > 1 else {}
    try:
        yield from Parallel(jobs, **_ONE_BY_ONE, **begin)(tasks)
    except BrokenProcessPool as error:
        raise ChildProcessError(
            "jobs: a run's process was killed, for want of memory perhaps. The same command goes on with what"
            " is not finished; fewer jobs take less memory."
        ) from error
    finally:
        for name in given:
            del os.environ[name]


def _begin(parent: int) -> None:
    """
    In a process of its own: quietly, and not for longer than ``parent``, whose end would else leave it at a
    run that nobody takes the result of, and that no other process could take up.
    """
    import_tensorflow()
    Thread(target=_end_after, args=(parent,), daemon=True).start()


def _end_after(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_SECONDS_TO_NOTICE)
    os._exit(1)


def on_scheduler(address: str, tasks: Iterable[Any]) -> Iterator[Any]:
    """
    What tasks return as they are done, one at a time for each thread of the scheduler's workers.

    :raises ValueError: Dask is not installed.
    :raises OSError: there is no scheduler at that address, or it has no workers.
    :raises ChildProcessError: a task was tried on several workers, and none of them outlived it.
    """
    try:
        from distributed.scheduler import KilledWorker
    except ImportError as error:
        raise ValueError(
            "scheduler: expected none without Dask's package distributed, which is not installed: pip install"
            f" gpflow_deep[cluster], got {address!r}."
        ) from error
    with _client(address):
        try:
            yield from Parallel(-1, **_ONE_BY_ONE)(tasks)
        except KilledWorker as error:
            raise ChildProcessError(
                "scheduler: a run took its workers with it, for want of memory perhaps. The same command goes"
                " on with what is not finished."
            ) from error


@contextmanager
def _client(address: str) -> Iterator[None]:
    """Within it joblib's work goes to the scheduler's workers."""
    from distributed import Client
    from distributed.comm import connect
    from distributed.core import send_recv

    async def identity() -> str:
        comm = await connect(address, timeout=_SECONDS_TO_CONNECT)
        try:
            return str((await send_recv(comm, op="identity"))["type"])
        finally:
            comm.abort()

    async def reach() -> None:
        # What else listens, as the page that shows what workers do, takes connections and says nothing.
        if (kind := await asyncio.wait_for(identity(), 2 * _SECONDS_TO_CONNECT)) != "Scheduler":
            raise ValueError(f"there is a {kind.lower()}")

    try:
        # A client that does not come to be is closed when it is collected, and may wait for itself for ever.
        asyncio.run(reach())
    except (OSError, ValueError, asyncio.TimeoutError) as error:
        raise ConnectionError(
            f"scheduler: expected the address of a Dask scheduler, such as tcp://host:8786, got {address!r}:"
            f" {str(error) or 'no answer'}"
        ) from error
    with Client(address, timeout=_SECONDS_TO_CONNECT) as client:
        if not client.nthreads():
            raise ConnectionError(
                f"scheduler: expected one with workers (dask worker {address}), got {address!r} with none."
            )
        with parallel_config(backend="dask"):
            yield
