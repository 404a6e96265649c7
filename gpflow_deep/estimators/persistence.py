"""
Saving a fitted regression to a folder, and loading it again.

The folder holds `metadata.json`, which a person can read, and `parameters.npz`, the values of the
model's variables by the paths of its parameters: unconstrained, as to constrain and unconstrain a value
may change its last digit. Neither can run code when it is loaded, as a pickle could.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import asdict, fields
from importlib.metadata import version
from pathlib import Path
from typing import IO, Any
from zipfile import BadZipFile

import gpflow
import numpy as np
import tensorflow as tf

from gpflow_deep.estimators.files import check_writable
from gpflow_deep.estimators.regression import Regression
from gpflow_deep.estimators.scaling import Scaling
from gpflow_deep.presets import Settings, get

__all__ = ["check_output", "load_regression", "save_regression"]

_METADATA = "metadata.json"
_PARAMETERS = "parameters.npz"
_FORMAT = 2
_PACKAGES = ("gpflow_deep", "gpflow", "tensorflow", "numpy")


def check_output(folder: str | Path, overwrite: bool = False) -> None:
    """
    Check that a fit can be saved to a folder: before the training, not after it.

    :param folder: where to save; it need not exist yet.
    :param overwrite: whether an earlier fit in it may be replaced.
    :raises FileExistsError: for an earlier fit, and for a file of that name.
    :raises OSError: where nothing can be written there.
    """
    folder = Path(folder)
    if folder.exists() and not folder.is_dir():
        raise FileExistsError(f"{folder}: expected a folder, but it is a file.")
    if (folder / _METADATA).exists() and not overwrite:
        raise FileExistsError(
            f"{folder}: holds an earlier fit; say that it may be overwritten (overwrite=True, on the"
            " command line --overwrite)."
        )
    check_writable(folder)


def save_regression(regression: Regression, folder: str | Path, *, overwrite: bool = False) -> None:
    """
    Save a fitted regression.

    :param regression: the fit.
    :param folder: where to save; made, with its parents, if it is not there.
    :param overwrite: whether an earlier fit in it may be replaced.
    :raises FileExistsError: as `check_output` says.
    """
    check_output(folder, overwrite)
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    variables = _variables(regression.model)
    metadata = {
        "format": _FORMAT,
        "versions": {package: version(package) for package in _PACKAGES},
        "float": np.dtype(gpflow.default_float()).name,
        "model": regression.model_name,
        "settings": asdict(regression.settings),
        "seed": regression.seed,
        "num_inducing": int(regression.model.layers[0].num_inducing),
        "input_names": regression.input_names,
        "target_name": regression.target_name,
        "scaling": {name: value.tolist() for name, value in asdict(regression.scaling).items()},
        "report": regression.report,
    }
    # The metadata come last: where they are, the parameters are too.
    _write(
        folder / _PARAMETERS,
        lambda file: np.savez(file, **{k: v.numpy() for k, v in variables.items()}),
    )
    text = json.dumps(metadata, indent=2) + "\n"
    _write(folder / _METADATA, lambda file: file.write(text.encode()))


def load_regression(folder: str | Path) -> Regression:
    """
    Load what `save_regression` saved; predictions are the same.

    :param folder: where it was saved.
    :raises FileNotFoundError: where there is no fit.
    :raises ValueError: for files that do not belong to a fit of this version, and where the default
        float is not the one of the fit.
    """
    folder = Path(folder)
    if not (folder / _METADATA).is_file() or not (folder / _PARAMETERS).is_file():
        raise FileNotFoundError(
            f"{folder}: expected a fit, that is the files {_METADATA} and {_PARAMETERS}."
        )
    try:
        return _load(folder)
    except (BadZipFile, EOFError, KeyError, TypeError, json.JSONDecodeError) as error:
        raise ValueError(
            f"{folder}: expected a fit, but its files are damaged: {error}."
        ) from error


def _load(folder: Path) -> Regression:
    metadata = json.loads((folder / _METADATA).read_text())
    if metadata["format"] != _FORMAT:
        raise ValueError(
            f"{folder}: expected a fit in format {_FORMAT}, got format {metadata['format']} of "
            f"gpflow_deep {metadata['versions']['gpflow_deep']}."
        )
    default_float = np.dtype(gpflow.default_float()).name
    if metadata["float"] != default_float:
        raise ValueError(
            f"{folder}: the fit is in {metadata['float']}, but the default float is "
            f"{default_float}. Set it by gpflow.config.set_default_float."
        )
    settings = Settings(**metadata["settings"])
    with np.load(folder / _PARAMETERS) as file:
        values = dict(file)
    # The data only give the shapes of a model whose parameters are then all assigned.
    shape = metadata["num_inducing"], len(metadata["input_names"])
    X = np.random.default_rng(0).normal(size=shape)
    model = get(metadata["model"]).build(X, X[:, :1], settings, metadata["seed"])
    variables = _variables(model)
    if values.keys() != variables.keys():
        difference = ", ".join(sorted(values.keys() ^ variables.keys()))
        raise ValueError(
            f"{folder}: expected the parameters of the model, differing: {difference}."
        )
    for path, variable in variables.items():
        variable.assign(values[path])
    return Regression(
        metadata["model"],
        settings,
        metadata["seed"],
        model,
        Scaling(**{f.name: np.array(metadata["scaling"][f.name]) for f in fields(Scaling)}),
        tuple(metadata["input_names"]),
        metadata["target_name"],
        metadata["report"],
    )


def _variables(model: tf.Module) -> dict[str, tf.Variable]:
    """The variables of a model, by the paths of its parameters."""
    parameters = gpflow.utilities.parameter_dict(model)
    return {path: getattr(p, "unconstrained_variable", p) for path, p in parameters.items()}


def _write(path: Path, write: Callable[[IO[bytes]], Any]) -> None:
    """Write a file under another name first, so that no half of one is ever found."""
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    try:
        with partial.open("wb") as file:
            write(file)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
