"""
Saving a fitted estimator to one file, and loading it again.

The file is a zip of `metadata.json`, which a person can read, and `arrays.npz`, which the metadata know by
its checksum. Neither can run code when it is loaded, as a pickle could. It is written under another name and
renamed when it is whole: whatever interrupts that, the name holds the old fit or the new one.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
from collections.abc import Mapping
from importlib.metadata import version
from numbers import Integral
from pathlib import Path
from typing import Any
from zipfile import ZIP_DEFLATED, BadZipFile, ZipFile
from zlib import error as ZlibError

import numpy as np
from sklearn.utils.validation import check_is_fitted

from gpflow_deep.validation.files import check_file, written_whole

from .base import DeepGPEstimator
from .classifier import DeepGPClassifier
from .fitted import FittedModel
from .input_warping import InputWarping
from .limits import Limits
from .regressor import DeepGPRegressor
from .scaling import Scaling
from .warping import Warping

__all__ = ["check_output", "load", "load_notes", "save"]

_METADATA, _ARRAYS = "metadata.json", "arrays.npz"
_FORMAT = 5
_PACKAGES = ("gpflow_deep", "gpflow", "scikit-learn", "tensorflow", "numpy")
_CLASSES = {c.__name__: c for c in (DeepGPRegressor, DeepGPClassifier)}
_SCALING = ("X_mean", "X_scale", "Y_mean", "Y_scale")
_INPUTS = "scaling.X_warping."


def check_output(path: str | Path, overwrite: bool = False) -> None:
    """
    Check that a fit can be saved to a file: before the training, not after it.

    :param path: of the file; its folder need not exist yet.
    :param overwrite: whether an earlier file may be replaced.
    :raises FileExistsError: for an earlier file, and for a folder of that name.
    :raises OSError: where nothing can be written there.
    """
    path = Path(path)
    if path.is_dir():
        raise FileExistsError(f"{path}: expected a file, but it is a folder.")
    if path.exists() and not overwrite:
        raise FileExistsError(
            f"{path}: there is an earlier fit; say that it may be overwritten (overwrite=True, on the"
            " command line --overwrite)."
        )
    check_file(path)


def save(
    estimator: DeepGPEstimator,
    path: str | Path,
    *,
    overwrite: bool = False,
    notes: Mapping[str, Any] | None = None,
) -> None:
    """
    Save a fitted estimator.

    >>> import pathlib, tempfile
    >>> regressor = gd.estimators.DeepGPRegressor(model="svgp", steps=2, random_state=0).fit(X, Y[:, 0])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder) / "fit.zip"
    ...     gd.estimators.save(regressor, path)
    ...     path.exists()
    True

    :param estimator: a `DeepGPRegressor` or `DeepGPClassifier`.
    :param path: of the file; its folder is made if it is not there.
    :param overwrite: whether an earlier file may be replaced.
    :param notes: more to keep with it, of what JSON has: `load_notes` returns it.
    :raises FileExistsError: as `check_output` says.
    :raises sklearn.exceptions.NotFittedError: where there is nothing to save.
    :raises ValueError: for labels that a file without pickle cannot keep.
    """
    check_is_fitted(estimator)
    check_output(path, overwrite)
    path = Path(path)
    facts, arrays = _state(estimator)
    packed = io.BytesIO()
    np.savez(packed, **arrays)
    metadata = {
        "format": _FORMAT,
        "versions": {package: version(package) for package in _PACKAGES},
        **facts,
        "notes": dict(notes or {}),
        "arrays_sha256": hashlib.sha256(packed.getvalue()).hexdigest(),
    }
    with written_whole(path) as file, ZipFile(file, "w", ZIP_DEFLATED) as archive:
        archive.writestr(_METADATA, json.dumps(metadata, indent=2) + "\n")
        archive.writestr(_ARRAYS, packed.getvalue())


def load(path: str | Path) -> Any:
    """
    Load what `save` saved; predictions are the same to the bit.

    >>> import pathlib, tempfile
    >>> regressor = gd.estimators.DeepGPRegressor(model="svgp", steps=2, random_state=0).fit(X, Y[:, 0])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     regressor.save(pathlib.Path(folder) / "fit.zip")
    ...     same = gd.estimators.load(pathlib.Path(folder) / "fit.zip")
    >>> bool((same.predict(X) == regressor.predict(X)).all())
    True

    :param path: of the file.
    :raises FileNotFoundError: where there is none.
    :raises PermissionError: where it may not be read.
    :raises ValueError: for a file that is damaged, of another kind or another format.
    """
    metadata, arrays = _read(Path(path))
    try:
        return _estimator(metadata, arrays)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ValueError(f"{path}: expected a fit, but its content is damaged: {error}") from error


def load_notes(path: str | Path) -> dict[str, Any]:
    """The notes that an estimator was saved with; errors as for `load`."""
    metadata, _ = _read(Path(path))
    notes: dict[str, Any] = metadata["notes"]
    return notes


def _read(path: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    if path.is_dir():
        raise FileNotFoundError(
            f"{path}: expected the file of a fit, got a folder; what the command line writes there is"
            f" {path / 'fit.zip'}."
        )
    if not path.is_file():
        raise FileNotFoundError(f"{path}: expected the file of a fit, found none.")
    try:
        with ZipFile(path) as archive:
            metadata = json.loads(archive.read(_METADATA))
            packed = archive.read(_ARRAYS)
        if metadata["format"] != _FORMAT:
            raise ValueError(
                f"{path}: expected a fit in format {_FORMAT}, got format {metadata['format']} of"
                f" gpflow_deep {metadata['versions']['gpflow_deep']}."
            )
        if hashlib.sha256(packed).hexdigest() != metadata["arrays_sha256"]:
            raise BadZipFile("the arrays are not those that the metadata were written with")
        with np.load(io.BytesIO(packed), allow_pickle=False) as file:
            return metadata, dict(file)
    except PermissionError:  # says which file, and nothing of what is in it
        raise
    except (
        *(BadZipFile, EOFError, KeyError, TypeError, ZlibError, NotImplementedError),
        *(json.JSONDecodeError, UnicodeDecodeError, OSError),
    ) as error:
        raise ValueError(f"{path}: expected a fit, but the file is damaged: {error}.") from error


def _state(estimator: DeepGPEstimator) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    members = [member.state() for member in estimator.members_]
    params = estimator.get_params(deep=False)
    # A generator has no name to be found by again.
    if not isinstance(params["random_state"], Integral | None):
        params["random_state"] = None
    arrays = {
        f"{index}{path}": array
        for index, (_, variables) in enumerate(members)
        for path, array in variables.items()
    }
    for name in _SCALING:
        arrays[f"scaling.{name}"] = getattr(estimator.scaling_, name)
    for name in ("input_limits_", "target_limits_"):
        if (limits := getattr(estimator, name)) is not None:
            arrays |= {f"{name}.low": limits.low, f"{name}.high": limits.high}
    if estimator.warping_ is not None:
        arrays["warping_"] = np.array(estimator.warping_)
    if (of_inputs := estimator.scaling_.X_warping) is not None:
        arrays |= {f"{_INPUTS}{name}": array for name, array in of_inputs._asdict().items()}
    arrays["weights_"] = estimator.weights_
    facts = {
        "class": type(estimator).__name__,
        "params": {name: _plain(value) for name, value in params.items()},
        "n_features_in_": estimator.n_features_in_,
        "feature_names_in_": _plain(getattr(estimator, "feature_names_in_", None)),
        "random_seed_": estimator.random_seed_,
        "report_": estimator.report_,
        "members": [member for member, _ in members],
    }
    if isinstance(estimator, DeepGPClassifier):
        facts["object_classes"] = estimator.classes_.dtype == object
        arrays["classes_"] = _plain_labels(estimator.classes_)
    else:
        facts["flat_target"] = estimator._flat_target_
    return facts, arrays


def _plain_labels(labels: np.ndarray) -> np.ndarray:
    """Labels as an array without Python's objects, which would have to be pickled."""
    if labels.dtype != object:
        return labels
    plain = np.array(labels.tolist())
    if plain.dtype == object or plain.tolist() != labels.tolist():
        raise ValueError(
            f"classes_: expected labels of one kind that NumPy has (text, numbers, dates), got"
            f" {labels.tolist()}, which cannot be saved without pickle."
        )
    return plain


def _plain(value: Any) -> Any:
    """numpy's values, mappings and paths as JSON has them."""
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, Mapping):
        return {name: _plain(entry) for name, entry in value.items()}
    return os.fspath(value) if isinstance(value, os.PathLike) else value


def _estimator(metadata: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> DeepGPEstimator:
    estimator: DeepGPEstimator = _CLASSES[metadata["class"]](**metadata["params"])
    D = estimator.n_features_in_ = int(metadata["n_features_in_"])
    if (names := metadata["feature_names_in_"]) is not None:
        _expect(len(names) == D, f"feature_names_in_: {D} names", len(names))
        estimator.feature_names_in_ = np.array(names, dtype=object)
    of_inputs = _input_warping(arrays, D) if f"{_INPUTS}width" in arrays else None
    X_mean, X_scale, Y_mean, Y_scale = (arrays[f"scaling.{name}"] for name in _SCALING)
    estimator.scaling_ = Scaling(X_mean, X_scale, Y_mean, Y_scale, of_inputs)
    P = len(estimator.scaling_.Y_mean)
    for name in _SCALING:
        _check_column(f"scaling.{name}", arrays[f"scaling.{name}"], D if name[0] == "X" else P)
        if name.endswith("scale"):
            positive = bool((arrays[f"scaling.{name}"] > 0).all())
            _expect(positive, f"scaling.{name}: positive values", arrays[f"scaling.{name}"])
    estimator.warping_ = None
    if "warping_" in arrays:
        estimator.warping_ = Warping(*_check_column("warping_", arrays["warping_"], 4).tolist())
        _expect(estimator.warping_.width > 0, "warping_: a positive width", estimator.warping_)
    estimator.input_limits_ = _limits(arrays, "input_limits_", D)
    classes = metadata["class"] == DeepGPClassifier.__name__
    estimator.target_limits_ = None if classes else _limits(arrays, "target_limits_", P)
    if classes:
        values = arrays["classes_"]
        estimator.classes_ = values.astype(object) if metadata["object_classes"] else values
    else:
        estimator._flat_target_ = bool(metadata["flat_target"])
    estimator.random_seed_ = int(metadata["random_seed_"])
    estimator.report_ = metadata["report_"]
    estimator.weights_ = _check_column("weights_", arrays["weights_"], len(metadata["members"]))
    right = bool((estimator.weights_ > 0).all()) and abs(estimator.weights_.sum() - 1) < 1e-6
    _expect(right, "weights_: positive values of sum 1", estimator.weights_)
    estimator.members_ = []
    for index, facts in enumerate(metadata["members"]):
        own = {name: array for name, array in arrays.items() if name.startswith(f"{index}.")}
        paths = {name[len(str(index)) :]: array for name, array in own.items()}
        member = FittedModel.from_state(facts, paths)
        outputs = len(estimator.classes_) if classes else P
        _expect(member.num_inputs == D, f"member {index}: {D} inputs", member.num_inputs)
        _expect(member.num_outputs == outputs, f"member {index}: {outputs} outputs", member)
        estimator.members_.append(member)
    return estimator


def _limits(arrays: Mapping[str, np.ndarray], name: str, size: int) -> Limits:
    low, high = arrays[f"{name}.low"], arrays[f"{name}.high"]
    ordered = low.shape == high.shape == (size,) and bool((low <= high).all())
    ordered = ordered and bool(((low < np.inf) & (high > -np.inf)).all())
    _expect(ordered, f"{name}: {size} lower limits, and upper ones not below them", (low, high))
    return Limits(low, high)


def _input_warping(arrays: Mapping[str, np.ndarray], size: int) -> InputWarping:
    names = [f"{_INPUTS}{field}" for field in InputWarping._fields]
    warping = InputWarping(*(_check_column(name, arrays[name], size) for name in names))
    right = (warping.low <= warping.high) & (warping.width >= 0) & (warping.scale > 0)
    _expect(bool(right.all()), f"{_INPUTS}*: limits in order, no negative width or scale", warping)
    return warping


def _check_column(name: str, array: np.ndarray, size: int) -> np.ndarray:
    right = array.shape == (size,) and array.dtype == np.float64 and bool(np.isfinite(array).all())
    _expect(right, f"{name}: {size} finite float64 values", f"{array.dtype} {array}")
    return array


def _expect(condition: bool, expected: str, got: Any) -> None:
    if not condition:
        raise ValueError(f"{expected} expected, got {got}.")
