"""The commands `gpflow-deep benchmark` and `gpflow-deep report`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import click

from gpflow_deep.numerics.quiet import import_tensorflow
from gpflow_deep.presets import Preset, Settings, get

from .signals import telling_at_the_end

__all__ = ["benchmark", "report"]

#: Those of `gpflow_deep.experiments.splits`, which imports NumPy: half of the time that help takes.
STUDIES = ("interpolation", "extrapolation")


class _Splits(click.ParamType):
    """Numbers and ranges: `0,2,5-7`."""

    name = "splits"

    def convert(self, value: Any, param: Any, ctx: Any) -> list[int]:
        if isinstance(value, list):
            return value
        numbers: list[int] = []
        for part in value.split(","):
            first, dash, last = part.strip().partition("-")
            try:
                begin, end = int(first), int(last if dash else first)
            except ValueError:
                self.fail(
                    f"expected numbers and ranges such as 0,2,5-7, got {value!r}.", param, ctx
                )
            if end < begin:
                self.fail(f"the range {part.strip()} ends before it begins.", param, ctx)
            numbers.extend(range(begin, end + 1))
        return numbers


def _setting_options(command: Callable[..., None]) -> Callable[..., None]:
    """An option for each of the settings but the depth, which can be given several times."""
    for entry in reversed(fields(Settings)):
        if entry.name != "num_layers":
            choices = entry.metadata["choices"]
            command = click.option(
                f"--{entry.name.replace('_', '-')}",
                type=click.Choice(choices) if choices else type(entry.default),
                help=f"{entry.metadata['help']}  [default: the model's own, or {entry.default}]",
            )(command)
    return command


@click.command()
@click.option(
    "--model", "models", multiple=True, required=True, help="Registered model; repeatable."
)
@click.option(
    "--dataset",
    "datasets",
    multiple=True,
    default=("diabetes",),
    show_default=True,
    help="Name of a data set: NAME.npz in the folder of the environment variable GPFLOW_DEEP_DATA, with"
    " arrays X [N, D], Y [N, 1] and, optionally, test_mask [splits, N]; else one that is bundled or"
    " downloaded. Repeatable.",
)
@click.option(
    "--study",
    type=click.Choice(STUDIES),
    default="interpolation",
    show_default=True,
    help="How the data are split.",
)
@click.option(
    "--splits", type=_Splits(), default="0", show_default=True, help="Such as 0-2 or 0,2,5."
)
@click.option(
    "--layers",
    type=click.IntRange(min=1),
    multiple=True,
    help="GP layers, the output layer included; repeatable.  [default: the model's own, or 2]",
)
@click.option(
    "--seed", type=click.IntRange(0, 2**63 - 1), default=0, show_default=True, help="Of all draws."
)
@click.option(
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    default=Path("results.jsonl"),
    show_default=True,
    help="JSON lines, one a run, are added to this file.",
)
@click.option(
    "--jobs",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Runs at a time, each in a process with its share of the cores.",
)
@click.option(
    "--scheduler",
    metavar="ADDRESS",
    help="Of a Dask scheduler whose workers do the runs, such as tcp://host:8786.",
)
@click.option(
    "--progress/--no-progress",
    default=True,
    help="Show a progress bar for each run, where there is one at a time.",
)
@_setting_options
def benchmark(
    models: tuple[str, ...],
    datasets: tuple[str, ...],
    study: str,
    splits: list[int],
    layers: tuple[int, ...],
    seed: int,
    output: Path,
    jobs: int,
    scheduler: str | None,
    progress: bool,
    **settings: Any,
) -> None:
    """
    Train and test models on splits of data sets.

    Models that bear a paper's name have that paper's settings, all others those of Lindinger et al. 2020,
    save for the options given.

    Give the same command again after an interruption: finished runs are skipped, interrupted
    ones go on from their last checkpoints. `gpflow-deep report` makes tables and figures of the
    output.
    """
    # TensorFlow takes seconds to import: not for --help, nor for an option that is wrong.
    import_tensorflow()
    from gpflow_deep.experiments.benchmark import plan, run_all

    try:
        given = {name: value for name, value in settings.items() if value is not None}
        runs = []
        for model in dict.fromkeys(models):
            chosen = replace(_preset(model).settings(), **given)
            runs += plan(
                [model],
                datasets,
                study=study,
                splits=splits,
                layers=layers or (chosen.num_layers,),
                seed=seed,
                settings=chosen,
            )
        with telling_at_the_end(_tell_of_the_rest):
            failed = run_all(
                runs, output, jobs=jobs, scheduler=scheduler, progress=progress, echo=click.echo
            )
    except (ValueError, OSError) as error:
        raise click.ClickException(str(error)) from error
    if failed:
        raise click.ClickException(f"{len(failed)} of {len(runs)} runs failed; see above.")
    click.echo(f"Results: {output}")


def _tell_of_the_rest() -> None:
    click.echo("\nInterrupted. The same command goes on with what is not finished.", err=True)


def _preset(model: str) -> Preset:
    try:
        return get(model)
    except ValueError as error:
        message = str(error).removeprefix("name: ")
        raise click.BadParameter(message, param_hint="--model") from error


@click.command()
@click.argument("results", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    default=None,
    help="Folder for report.md and the figures; without it, the tables are printed.",
)
def report(results: Path, output: Path | None) -> None:
    """Tables and figures of RESULTS (JSON lines), beside the published values."""
    import_tensorflow()
    from gpflow_deep.experiments.report import markdown, write_report

    try:
        if output is None:
            click.echo(markdown(results))
        else:
            for path in write_report(results, output):
                click.echo(path)
    except (ValueError, OSError) as error:
        raise click.ClickException(str(error)) from error
