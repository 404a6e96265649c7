"""Fits that were interrupted: the same command goes on with them, others are told what to do."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

import click

from .signals import telling_at_the_end

__all__ = ["checkpoints_of", "given_options", "going_on_later"]

_RECORD = "options.json"
_DATA, _VERSION = "DATA", "version"


def given_options(context: click.Context, data: Path) -> dict[str, Any]:
    """
    What decides about a fit, by the names that the user knows: options, data, and this package's version.

    :param context: of the command.
    :param data: the file that it reads.
    """
    from gpflow_deep import __version__

    options = {
        option.opts[0]: context.params[option.name]
        for option in context.command.params
        if isinstance(option, click.Option)
        and option.name in context.params
        and option.name not in ("output", "overwrite")
    }
    known = {_DATA: _checksum(data), _VERSION: __version__}
    as_read: dict[str, Any] = json.loads(json.dumps(known | options))
    return as_read


def _checksum(path: Path) -> str:
    digest = sha256()
    with path.open("rb") as file:
        while part := file.read(2**20):
            digest.update(part)
    return digest.hexdigest()


@contextmanager
def checkpoints_of(
    folder: Path,
    options: Mapping[str, Any],
    *,
    overwrite: bool = False,
    tell: Callable[[str], None] = print,
) -> Iterator[None]:
    """
    While a fit is made, hold the folder of its checkpoints for this process; what was left of the same fit is
    gone on from. They are removed once the fit is done.

    :param folder: it need not be there.
    :param options: of the fit, see `given_options`.
    :param overwrite: whether what is left of a fit with other options is removed.
    :param tell: takes a line for the user.
    :raises ValueError: where training cannot go on from what is left, by the options that differ.
    :raises RuntimeError: where another process is at a fit there.
    """
    from gpflow_deep.training.lock import Lock

    made = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    record = folder / _RECORD
    try:
        lock = Lock(folder / "lock")
        try:
            before = _read(record)
            if overwrite and before != options and _runs(folder):
                tell(f"An interrupted fit is removed: {_differences(before, options)}.")
                _remove(folder)
            left = {run: run.stat().st_mtime_ns for run in _runs(folder) if _has_work(run)}
            if not left:  # else the record stays that of the command that began it
                record.write_text(json.dumps(options))
            try:
                yield
            # Which settings may change on the way, training knows.
            except ValueError as error:
                if not left or "checkpoint_dir" not in str(error):
                    raise
                raise ValueError(
                    f"{folder}: there is an interrupted fit that cannot go on so:"
                    f" {_differences(before, options)}. The command that began it goes on with it;"
                    " --overwrite begins anew."
                ) from error
            if any(run.exists() and run.stat().st_mtime_ns == then for run, then in left.items()):
                tell(f"What was left of another fit is removed: {_differences(before, options)}.")
            _remove(folder)
        finally:
            for run in _runs(folder):
                if not _has_work(run):
                    shutil.rmtree(run, ignore_errors=True)
            if not _runs(folder):
                record.unlink(missing_ok=True)
            lock.release()
    finally:
        for path in (folder, *made):
            with suppress(OSError):  # something is in it
                path.rmdir()


@contextmanager
def going_on_later(folder: Path, tell: Callable[[str], None]) -> Iterator[None]:
    """
    After Ctrl-C or a signal, or where there is no room for the fit, say what becomes of the work.

    :param folder: of the checkpoints of a fit.
    :param tell: takes a line for the user.
    """

    def are_kept() -> bool:
        return any(map(_has_work, folder.glob("*")))

    def told() -> None:
        if are_kept():
            tell("\nInterrupted. The same command goes on from the last checkpoint.")
        else:
            tell("\nInterrupted before the first checkpoint. The same command begins anew.")

    try:
        with telling_at_the_end(told):
            yield
    except OSError as error:
        from gpflow_deep.validation.files import NO_ROOM

        if error.errno not in NO_ROOM or not are_kept():
            raise
        advice = "The same command goes on from the last checkpoint, once there is room."
        raise OSError(f"{error}. {advice}") from error


def _differences(before: Mapping[str, Any] | None, now: Mapping[str, Any]) -> str:
    """For the user."""
    if before is None:
        return "it has other settings"
    differences = []
    for name in before.keys() | now.keys():
        then, new = (_shown(options.get(name)) for options in (before, now))
        if name == _DATA and then != new:
            differences.append("DATA was another file")
        elif then != new:
            differences.append(f"{name} was {then} and is now {new}")
    return ", ".join(sorted(differences)) or "it has other settings"


def _shown(value: Any) -> str:
    if value is None or value == []:
        return "not given"
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _read(record: Path) -> dict[str, Any] | None:
    """The options of a fit, if they are there: an earlier version did not write them."""
    try:
        options = json.loads(record.read_text())
    except (OSError, ValueError):
        return None
    return options if isinstance(options, dict) else None


def _runs(folder: Path) -> list[Path]:
    """What is left of members of fits, by their names and content."""
    from gpflow_deep.estimators.kept import MEMBER
    from gpflow_deep.presets import names

    families = tuple(f"{name}-" for name in names())
    own = re.compile(rf"lock$|step-|{re.escape(MEMBER)}")  # partly written ones, too
    return [
        path
        for path in folder.glob("*-*")
        if path.name.startswith(families)
        and path.is_dir()
        and all(own.match(entry.name) for entry in path.iterdir())
    ]


def _has_work(run: Path) -> bool:
    """Else it was refused, or interrupted before its first checkpoint was whole."""
    from gpflow_deep.estimators.kept import has_work

    return has_work(run)


def _remove(folder: Path) -> None:
    for path in _runs(folder):
        shutil.rmtree(path, ignore_errors=True)
