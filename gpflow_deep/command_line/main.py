"""The command `gpflow-deep`. TensorFlow is imported by the commands that need it, when they run."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any

import click

from gpflow_deep.command_line.studies import benchmark, report
from gpflow_deep.command_line.tables import read_csv, write_csv
from gpflow_deep.estimators.files import check_writable
from gpflow_deep.presets import Settings

__all__ = ["main"]

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
_FOLDER = click.Path(file_okay=False, path_type=Path)
_COUNT = click.IntRange(min=1)

# The registered models; named here because to ask the registry takes TensorFlow, which help does not need.
_POSTERIORS = (
    *("svgp", "mean-field", "fully-coupled", "stripes-and-arrow"),
    *("global-inducing", "local-inducing"),
    *("fitc-gp", "fitc-ep-1", "fitc-ep-2", "fitc-ep-3"),
    *("ar1", "ar2", "ar2p", "ar2pp", "dspp", "idsgp", "ppgpr", "sgp-avi", "solve-gp"),
)


def _settings(*names: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Options for some of the settings, with their defaults."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        by_name = {entry.name: entry for entry in fields(Settings)}
        for entry in (by_name[name] for name in reversed(names)):
            command = click.option(
                f"--{entry.name.replace('_', '-')}",
                type=type(entry.default),
                default=entry.default,
                help=entry.metadata["help"],
            )(command)
        return command

    return decorate


@click.group(context_settings={"show_default": True, "help_option_names": ["-h", "--help"]})
@click.version_option(package_name="gpflow_deep")
def main() -> None:
    """Deep Gaussian processes with structured approximate posteriors."""
    # Must be set before TensorFlow is imported: its start-up messages help nobody here.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    # Figures are written, never shown.
    os.environ.setdefault("MPLBACKEND", "Agg")


@main.command()
@click.option("--output", type=_FOLDER, default=Path("demo-output"), help="Folder for the figures.")
@click.option("--quick", is_flag=True, help="A fifth of the training: to see that it runs.")
def demo(output: Path, quick: bool) -> None:
    """Compare a sparse GP and two deep GPs on real data, near what they saw and away from it."""
    with _plain_errors():
        from gpflow_deep.command_line.demo import run_demo

        run_demo(output, quick=quick)


@main.command()
@click.argument("data", type=_FILE)
@click.option("--target", required=True, metavar="COLUMN", help="The column to predict.")
@click.option("--output", type=_FOLDER, required=True, help="Folder for the fitted model.")
@click.option("--exclude", multiple=True, metavar="COLUMN", help="Leave out; can be repeated.")
@click.option(
    "--posterior",
    type=click.Choice(_POSTERIORS),
    default="stripes-and-arrow",
    help="The approximate posterior, by the name that the benchmark has for it too.",
)
@click.option("--layers", "num_layers", type=_COUNT, default=3, help="Layers of GPs.")
@_settings("hidden_dim", "num_inducing", "steps", "batch_size", "learning_rate")
@_settings("validation_fraction", "validate_every", "patience")
@click.option("--seed", type=click.IntRange(0, 2**31 - 1), default=0, help="Of all draws.")
@click.option("--overwrite", is_flag=True, help="Replace an earlier fit in the output folder.")
def fit(
    data: Path,
    target: str,
    output: Path,
    exclude: tuple[str, ...],
    posterior: str,
    seed: int,
    overwrite: bool,
    **settings: Any,
) -> None:
    """
    Fit a deep GP to the numeric CSV file DATA: one column from all the others.

    The first line names the columns. Some rows are held out for early stopping. Model, scaling and
    metadata go to the output folder.
    """
    with _plain_errors():
        chosen = Settings(**settings)
        table = read_csv(data)
        table.require([target, *exclude])
        from gpflow_deep.command_line.fitting import fit_table
        from gpflow_deep.estimators.persistence import check_output, save_regression

        check_output(output, overwrite)
        regression, notes = fit_table(table, target, posterior, chosen, seed=seed, exclude=exclude)
        save_regression(regression, output, overwrite=overwrite)
    report = regression.report
    _tell(*notes)
    _tell(
        f"Trained on {report['training_rows']} rows for {report['steps']} steps in "
        f"{report['seconds']:.0f} s; kept step {report['best_step']}."
    )
    if report["held_out_rows"]:
        _tell(
            f"On the {report['held_out_rows']} held-out rows, which chose that step: RMSE "
            f"{report['held_out_rmse']:.4g}, log density {report['held_out_log_density']:.4g}."
        )
    _tell(f"Saved to {output}. Next: gpflow-deep predict {output} NEW.csv")


@main.command()
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.argument("new", type=_FILE)
@click.option("--output", type=click.Path(dir_okay=False), default="-", help="CSV file.")
@click.option("--quantiles", default="0.025,0.5,0.975", help="Probabilities; may be empty.")
def predict(folder: Path, new: Path, output: str, quantiles: str) -> None:
    """
    Predict the rows of the CSV file NEW by the fit in FOLDER.

    Columns are found by name. Writes mean, standard deviation and quantiles, noise included, in the
    units of the data.
    """
    with _plain_errors():
        levels = _probabilities(quantiles)
        table = read_csv(new)
        if output != "-":
            check_writable(Path(output).parent)
        from gpflow_deep.command_line.fitting import predict_table
        from gpflow_deep.estimators.persistence import load_regression

        columns, values, notes = predict_table(load_regression(folder), table, levels)
        _tell(*notes)
        if output != "-":
            Path(output).parent.mkdir(parents=True, exist_ok=True)
        with click.open_file(output, "w", encoding="utf-8") as file:
            write_csv(file, columns, values)


def _probabilities(text: str) -> list[float]:
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


def _tell(*messages: str) -> None:
    """To standard error: standard output is for predictions."""
    for message in messages:
        click.echo(message, err=True)


@contextmanager
def _plain_errors() -> Iterator[None]:
    """What is wrong with the user's input is told in a sentence, not in a traceback."""
    try:
        yield
    # RuntimeError is what a training that fails numerically raises, with advice.
    except (ValueError, OSError, RuntimeError) as error:
        raise click.ClickException(str(error)) from error


main.add_command(benchmark)
main.add_command(report)

if __name__ == "__main__":
    sys.exit(main())
