"""
Every file of tests in a process of its own: `python -m tests.file_by_file --workers 2`.

Graphs are many small pieces of memory. What glibc makes of those that were freed slows every later allocation
down: in a process that has traced some hundred models the next one takes twice the time and more. To import
TensorFlow and what stands on it takes seconds, so it is done once: processes are forked from this one, which
has computed nothing, as TensorFlow's threads would not live on in them.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import os
import pkgutil
import sys
import tempfile
from pathlib import Path
from typing import IO

import pytest

FOLDER = Path(__file__).parent
#: They take long for their size: left to the end, one of them would be waited for alone.
FIRST = (FOLDER / "test_notebooks.py", FOLDER / "estimators" / "test_scikit_learn.py")
NO_FAILURE = (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)


def files() -> list[Path]:
    """Those with tests, in the order that they begin in."""
    found = FOLDER.rglob("test_*.py")
    return sorted(found, key=lambda path: (path not in FIRST, -path.stat().st_size, path))


def import_everything() -> None:
    """What nearly all of them import."""
    import gpflow_deep

    for module in pkgutil.walk_packages(gpflow_deep.__path__, "gpflow_deep."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)

    from tensorflow.python.eager import context

    assert not context.context()._initialized, "TensorFlow has computed something on import"
    gc.collect()
    gc.freeze()  # a collection would write to, and so copy, all memory that processes share


def begin(path: Path) -> tuple[int, IO[bytes]]:
    """A process that runs the tests of a file, and the file that it writes to."""
    said = tempfile.TemporaryFile()
    sys.stdout.flush()
    process = os.fork()
    if process == 0:
        for stream in (sys.stdout, sys.stderr):
            os.dup2(said.fileno(), stream.fileno())
        sys.exit(pytest.main(["-q", str(path)]))
    return process, said


def main() -> int:
    """One where a test failed, else zero."""
    parser = argparse.ArgumentParser(description="Run every file of tests in a process of its own.")
    parser.add_argument("--workers", type=int, default=2, help="processes at a time")
    workers = parser.parse_args().workers

    import_everything()
    waiting = files()
    running: dict[int, IO[bytes]] = {}
    failed = False
    while waiting or running:
        while waiting and len(running) < workers:
            process, said = begin(waiting.pop(0))
            running[process] = said
        process, status = os.wait()
        with running.pop(process) as said:
            said.seek(0)
            sys.stdout.write(said.read().decode(errors="replace"))
        failed |= os.waitstatus_to_exitcode(status) not in NO_FAILURE
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
