"""Values of options: kinds of them, and what is read from their text."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

__all__ = [
    "COLUMN",
    "COUNT",
    "CSV_FILE",
    "FILE",
    "FOLDER",
    "FRACTION",
    "POSITIVE",
    "changed_settings",
    "probabilities",
]


class _Number(click.FloatRange):
    """A finite one: no range keeps NaN out."""

    def convert(self, value: Any, param: Any, ctx: Any) -> float:
        number: float = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"expected a finite number, got {value!r}.", param, ctx)
        return number


class _Name(click.types.StringParamType):
    """Of a column, with letters as tables are read."""

    def convert(self, value: Any, param: Any, ctx: Any) -> str:
        from gpflow_deep.command_line.cells import composed

        name: str = composed(super().convert(value, param, ctx))
        return name


class _CSVFile(click.Path):
    """One to write, or `-`: other kinds of files are told by their names when they are read."""

    def convert(self, value: Any, param: Any, ctx: Any) -> str:
        from gpflow_deep.command_line.files import OTHER_KINDS

        name = str(super().convert(value, param, ctx))
        if (ending := Path(name).suffix.lower()) in OTHER_KINDS:
            self.fail(
                f"expected the name of a CSV file, which is written, got one in {ending}.",
                param,
                ctx,
            )
        return name


CSV_FILE = _CSVFile(dir_okay=False)
FILE = click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path)
FOLDER = click.Path(file_okay=False, path_type=Path)
COUNT = click.IntRange(min=1)
FRACTION = _Number(0.0, 1.0, max_open=True)
POSITIVE = _Number(min=0.0, min_open=True)
COLUMN = _Name()


def changed_settings(changes: Sequence[str], steps: int | None) -> dict[str, Any]:
    """
    Settings by name, in the types of their defaults.

    :param changes: each `NAME=VALUE`.
    :param steps: those of another option, if it was given.
    :raises click.BadParameter: where one of them is no setting, or not its value.
    """
    from gpflow_deep.presets.settings import OWN_SETTINGS, Settings

    defaults = {name: value for name, value in vars(Settings()).items() if name not in OWN_SETTINGS}
    values = {}
    for change in changes:
        name, equals, text = change.partition("=")
        if not equals:
            raise click.BadParameter(f"expected NAME=VALUE, got {change!r}.", param_hint="--set")
        name = name.strip().replace("-", "_")
        if name not in defaults:
            raise click.BadParameter(
                f"expected a name among {', '.join(defaults)}, got {name!r}.", param_hint="--set"
            )
        try:
            values[name] = type(defaults[name])(text.strip())
        except ValueError:
            expected = type(defaults[name]).__name__
            raise click.BadParameter(
                f"{name}: expected {expected}, got {text!r}.", param_hint="--set"
            ) from None
    try:
        Settings(**values)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--set") from error
    if steps is not None and values.get("steps", steps) != steps:
        raise click.BadParameter(
            f"steps: expected one number, got {steps} by --steps and {values['steps']}.",
            param_hint="--set",
        )
    return values


def probabilities(text: str) -> list[float]:
    """
    Those of quantiles.

    :param text: some, separated by commas, or none.
    :raises click.BadParameter: where one of them is not between zero and one.
    """
    try:
        levels = [float(part) for part in text.split(",") if part.strip()]
    except ValueError:
        levels = [float("nan")]
    if not all(0.0 < level < 1.0 for level in levels):
        raise click.BadParameter(
            f"expected numbers in (0, 1), separated by commas, got {text!r}.",
            param_hint="--quantiles",
        )
    return levels
