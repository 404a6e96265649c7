"""The command `gpflow-deep`. TensorFlow is imported by the commands that need it, when they run."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any

import click

from gpflow_deep.command_line.interrupted import checkpoints_of, given_options, going_on_later
from gpflow_deep.command_line.options import (
    COLUMN,
    COUNT,
    CSV_FILE,
    FILE,
    FOLDER,
    FRACTION,
    POSITIVE,
    changed_settings,
    probabilities,
)
from gpflow_deep.command_line.outputs import standard_output
from gpflow_deep.command_line.pipes import readable
from gpflow_deep.command_line.signals import ended_by_signals
from gpflow_deep.command_line.studies import benchmark, report
from gpflow_deep.numerics.quiet import import_tensorflow

__all__ = ["main"]


_SECONDS = 180.0  # of training, where nothing is said
_FIT = "fit.zip"
_CHECKPOINTS = "checkpoints"


@click.group(context_settings={"show_default": True, "help_option_names": ["-h", "--help"]})
@click.version_option(package_name="gpflow_deep")
@click.pass_context
def main(context: click.Context) -> None:
    """Deep Gaussian processes: fit them to tables, predict with them, compare them."""
    context.with_resource(ended_by_signals())
    # Figures are written, never shown.
    os.environ.setdefault("MPLBACKEND", "Agg")


@main.command()
@click.option("--output", type=FOLDER, default=Path("demo-output"), help="Folder for the figures.")
@click.option("--quick", is_flag=True, help="A fifth of the training: to see that it runs.")
def demo(output: Path, quick: bool) -> None:
    """Compare one layer and two on real data: numbers and classes, with figures."""
    with _plain_errors():
        import_tensorflow()
        from gpflow_deep.command_line.demo import run_demo

        run_demo(output, quick=quick)


@main.command()
def models() -> None:
    """What the names for --model mean."""
    with _plain_errors():
        import_tensorflow()
        from gpflow_deep.presets import get, names

        click.echo("auto  The best of several by held-out log density, or a mixture of them.")
        for name in names():
            click.echo(f"{name}  {get(name).description}")


@main.command()
@click.argument("data", type=FILE)
@click.option(
    "--target", type=COLUMN, required=True, metavar="COLUMN", help="The column to predict."
)
@click.option("--output", type=FOLDER, required=True, help="Folder for the fitted model.")
@click.option(
    "--exclude",
    type=COLUMN,
    multiple=True,
    metavar="COLUMN",
    help="Leave out; can be repeated.",
)
@click.option(
    "--task",
    type=click.Choice(["auto", "regression", "classification"]),
    default="auto",
    help="Whether the target is a number or a class.",
)
@click.option("--separator", help="Of the file's cells; found from the file by default.")
@click.option("--encoding", help="Of the file; found from the file by default.")
@click.option("--model", default="auto", help="Which model; see gpflow-deep models.")
@click.option(
    "--layers",
    "num_layers",
    type=COUNT,
    help="Layers of deep models.  [default: the model's own, or 2]",
)
@click.option(
    "--time-limit", type=POSITIVE, help="Seconds of training.  [default: 180, none with --steps]"
)
@click.option("--steps", type=COUNT, help="Training steps, at most.")
@click.option("--num-inducing", type=COUNT, help="Inducing points of each layer.")
@click.option("--kernel", type=click.Choice(["rbf", "matern12", "matern32", "matern52"]))
@click.option("--likelihood", type=click.Choice(["gaussian", "student-t"]), help="Of numbers.")
@click.option("--dtype", type=click.Choice(["float64", "float32"]), default="float64")
@click.option("--jitter", type=POSITIVE, help="On the diagonal of covariances.")
@click.option(
    "--validation-fraction",
    type=FRACTION,
    default=0.1,
    help="Share of the rows held out to choose by.",
)
@click.option(
    "--set",
    "changes",
    multiple=True,
    metavar="NAME=VALUE",
    help="Another setting, such as learning_rate=0.01; can be repeated.",
)
@click.option("--seed", type=click.IntRange(0, 2**31 - 1), default=0, help="Of all draws.")
@click.option(
    "--overwrite",
    is_flag=True,
    help="Replace an earlier fit, or the rest of another one, in the folder.",
)
@click.pass_context
def fit(
    context: click.Context,
    data: Path,
    target: str,
    output: Path,
    exclude: tuple[str, ...],
    task: str,
    separator: str | None,
    encoding: str | None,
    dtype: str,
    changes: tuple[str, ...],
    seed: int,
    overwrite: bool,
    time_limit: float | None,
    **options: Any,
) -> None:
    """
    Fit a model to the table DATA (CSV or Parquet, - for standard input): one column from all the others.

    Numbers, text, dates, booleans and missing cells are all taken; what is done with each column is told.
    After Ctrl-C or a kill the same command goes on where it was.
    """
    # What training tells of itself goes where all else goes.
    with _plain_errors(), redirect_stdout(sys.stderr):
        settings = changed_settings(changes, options["steps"])
        options["steps"] = options["steps"] or settings.get("steps")
        _keep_input(output / _FIT, data)
        _keep_fit(output / _FIT, overwrite)
        from gpflow_deep.command_line.tables import read_table, require

        with readable(data) as file:
            table = read_table(file, separator, encoding)
            require(table, [target, *exclude], file)
            given = given_options(context, file)
        import_tensorflow()
        from gpflow_deep import presets
        from gpflow_deep.command_line.fitting import fit_table
        from gpflow_deep.estimators.persistence import check_output
        from gpflow_deep.validation import check_choice

        # Before columns are described, which takes its time.
        check_choice(options["model"], "model", ("auto", *presets.names()))
        check_output(output / _FIT, overwrite)
        limit = time_limit or (None if options["steps"] else _SECONDS)
        takes = [f"{options['steps']} steps"] if options["steps"] else []
        takes += [f"at most {limit:g} s (--time-limit)"] if limit else []
        checkpoints = output / _CHECKPOINTS
        held = checkpoints_of(checkpoints, given, overwrite=overwrite, tell=_tell)
        with going_on_later(checkpoints, _tell), held:
            _tell(f"{len(table)} rows. Training takes {', '.join(takes)}.")
            fitted = fit_table(
                table,
                target,
                task=task,
                exclude=exclude,
                tell=_tell,
                float=dtype,
                time_limit=limit,
                settings=settings,
                random_state=seed,
                checkpoint_dir=str(checkpoints),
                verbose=2,
                **options,
            )
            fitted.save(output / _FIT, overwrite=overwrite)
    for tried in fitted.estimator.report_:
        density = tried["log_density"]
        scored = (
            "" if density is None else f", held-out log density of the scaled target {density:.4g}"
        )
        _tell(f"{tried['name']}: weight {tried['weight']:.2f}, {tried['seconds']:.0f} s{scored}.")
    _tell(f"Saved to {output}. Next: gpflow-deep predict {shlex.quote(str(output))} NEW.csv")


@main.command()
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.argument("new", type=FILE)
@click.option("--output", type=CSV_FILE, default="-", help="CSV file.")
@click.option("--quantiles", default="0.025,0.5,0.975", help="Probabilities; may be empty.")
@click.option(
    "--keep",
    type=COLUMN,
    multiple=True,
    metavar="COLUMN",
    help="Have it beside; can be repeated.",
)
@click.option("--plots", type=FOLDER, help="Folder for figures, where NEW has the target.")
@click.option("--separator", help="Of the file's cells; found from the file by default.")
@click.option("--encoding", help="Of the file; found from the file by default.")
def predict(
    folder: Path,
    new: Path,
    output: str,
    quantiles: str,
    keep: tuple[str, ...],
    plots: Path | None,
    separator: str | None,
    encoding: str | None,
) -> None:
    """
    Predict the rows of the table NEW (- for standard input) by the fit in FOLDER.

    Columns are found by name. Writes mean, standard deviation and quantiles, noise included, in the
    units of the data; or the class and the probabilities of all. Where NEW has the target, the predictions
    are scored.
    """
    with _plain_errors(), readable(new) as new:
        levels = probabilities(quantiles)
        if output != "-":
            _keep_input(Path(output), new)
            _keep_input(Path(output), folder / _FIT)
        import_tensorflow()
        from gpflow_deep.command_line.fitting import FittedTable, predict_table
        from gpflow_deep.command_line.scoring import Scores
        from gpflow_deep.command_line.tables import read_table, require, stream_table
        from gpflow_deep.command_line.unexpected import Unexpected
        from gpflow_deep.validation.files import check_file, check_writable, written_whole

        if output != "-":
            check_file(Path(output))
        elif sys.stdout is None:
            raise ValueError("output: expected a standard output that is open, or --output FILE.")
        if plots:
            check_writable(plots)
        fitted = FittedTable.load(folder / _FIT)
        parts = stream_table(new, separator, encoding)
        first = next(parts)
        require(first, [*keep, *([fitted.target] if plots else [])], new)
        from itertools import chain, tee

        from tqdm import tqdm

        scores = Scores(fitted) if fitted.target in first.columns else None
        unexpected = Unexpected(fitted)
        tables, again = tee(chain([first], parts))
        found = predict_table(fitted, tables, levels, keep)
        own = standard_output() if output == "-" else written_whole(Path(output))
        with (
            own as file,
            tqdm(unit="row", disable=True if output == "-" else None) as bar,
        ):
            for part, ((predicted, far), table) in enumerate(zip(found, again, strict=True)):
                predicted.to_csv(file, index=False, header=part == 0, lineterminator="\n")
                unexpected.add(table, far)
                if scores is not None:
                    scores.add(table, predicted)
                bar.update(len(table))
        _tell(*unexpected.lines())
        if scores is not None:
            _tell(*scores.lines())
        if plots and scores and scores.values():
            from gpflow_deep.command_line.plots import write_plots

            for path in write_plots(fitted, read_table(new, separator, encoding), plots):
                _tell(f"Written: {path}")


def _keep_input(output: Path, given: Path) -> None:
    """Refuse to write over a file that is read."""
    if output.exists() and given.exists() and output.samefile(given):
        raise click.BadParameter(
            f"expected another file than {given}, which is read and would be lost, got {output}.",
            param_hint="--output",
        )


def _keep_fit(output: Path, overwrite: bool) -> None:
    """Refuse to write over an earlier fit: before the data are read."""
    if output.is_file() and not overwrite:
        raise FileExistsError(f"{output}: there is an earlier fit; --overwrite replaces it.")


def _tell(*messages: str) -> None:
    """To standard error: standard output is for predictions."""
    for message in messages:
        click.echo(message, err=True)


@contextmanager
def _plain_errors() -> Iterator[None]:
    """What is wrong with the user's input is told in a sentence, not in a traceback."""
    try:
        yield
    # Nobody reads the predictions to their end: click ends without a word.
    except BrokenPipeError:
        raise
    # RuntimeError is what a training that fails numerically raises, with advice.
    except (ValueError, OSError, RuntimeError) as error:
        # An argument that the user did not give.
        raise click.ClickException(str(error).removeprefix("checkpoint_dir: ")) from error


main.add_command(benchmark)
main.add_command(report)

if __name__ == "__main__":
    sys.exit(main())
