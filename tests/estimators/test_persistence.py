from __future__ import annotations

import copy
import io
import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

from gpflow_deep.estimators import DeepGPClassifier, DeepGPRegressor, load, persistence, save
from gpflow_deep.estimators.input_warping import InputWarping
from gpflow_deep.estimators.persistence import check_output, load_notes

_QUICK: dict[str, Any] = dict(steps=3, num_inducing=5, random_state=0)


def _data(num_rows: int = 30) -> tuple[np.ndarray, np.ndarray]:
    X = np.random.default_rng(7).normal(size=(num_rows, 2))
    return X, 3.0 + 5.0 * np.sin(X[:, 0])


@pytest.fixture(scope="module")
def regressor() -> DeepGPRegressor:
    """For tests that only read it: to compile training takes seconds."""
    return DeepGPRegressor("mean-field", **_QUICK).fit(*_data())


def _rewrite(path: Path, change: Callable[[dict, dict], None], checksum: bool = True) -> None:
    """Change the metadata and arrays of a saved fit."""
    with ZipFile(path) as archive:
        metadata = json.loads(archive.read("metadata.json"))
        with np.load(io.BytesIO(archive.read("arrays.npz"))) as file:
            arrays = dict(file)
    change(metadata, arrays)
    packed = io.BytesIO()
    np.savez(packed, **arrays)
    if checksum:
        metadata["arrays_sha256"] = persistence.hashlib.sha256(packed.getvalue()).hexdigest()
    with ZipFile(path, "w") as archive:
        archive.writestr("metadata.json", json.dumps(metadata))
        archive.writestr("arrays.npz", packed.getvalue())


@pytest.mark.parametrize(
    "model", ["gp", "global-inducing", "fitc-ep-2", "ar2pp", "dspp", "solve-gp", "idsgp"]
)
def test_every_kind_of_model_is_saved_pickled_and_copied(model: str, tmp_path: Path) -> None:
    X, y = _data()
    fitted = DeepGPRegressor(model, **_QUICK).fit(X, np.stack([y, -y], axis=1))
    fitted.save(tmp_path / "new" / "fit")
    for again in (
        load(tmp_path / "new" / "fit"),
        pickle.loads(pickle.dumps(fitted)),
        copy.deepcopy(fitted),
    ):
        for expected, actual in zip(
            fitted.predict_mixture(X), again.predict_mixture(X), strict=True
        ):
            np.testing.assert_array_equal(actual, expected)
        assert repr(again) == repr(fitted) and again.report_ == fitted.report_
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["fit"]


@pytest.mark.parametrize("labels", [[0, 1], ["no", "yes"], ["a", "b", "c"]])
def test_classifiers_keep_their_labels(labels: list, tmp_path: Path) -> None:
    X, _ = _data()
    y = np.array(labels, dtype=object if labels[0] == "a" else None)[np.arange(30) % len(labels)]
    fitted = DeepGPClassifier("svgp", float="float32", **_QUICK).fit(X, y)
    save(fitted, tmp_path / "fit", notes={"more": [1, "x"]})
    again = load(tmp_path / "fit")
    np.testing.assert_array_equal(again.predict_proba(X), fitted.predict_proba(X))
    np.testing.assert_array_equal(again.classes_, fitted.classes_)
    assert again.classes_.dtype == fitted.classes_.dtype
    assert load_notes(tmp_path / "fit") == {"more": [1, "x"]}


@pytest.fixture(scope="module")
def classifier() -> DeepGPClassifier:
    """Of two classes, whose names do not matter to the model."""
    X, y = _data()
    return DeepGPClassifier("svgp", **_QUICK).fit(X, y > 3.0)


@pytest.mark.parametrize(
    "kind", ["datetime64[D]", "datetime64[ns]", "datetime64[s]", "int32", "float32", "bool", "S3"]
)
def test_labels_come_back_as_they_were(
    classifier: DeepGPClassifier, kind: str, tmp_path: Path
) -> None:
    classifier = copy.copy(classifier)
    classifier.classes_ = np.array([0, 1]).astype(kind)
    save(classifier, tmp_path / "fit")
    again = load(tmp_path / "fit").classes_
    assert again.dtype == classifier.classes_.dtype
    np.testing.assert_array_equal(again, classifier.classes_)


@pytest.mark.parametrize("labels", [["yes", None], ["1", 2], ["a", "a\0"]])
def test_labels_that_a_file_cannot_keep_are_refused(
    classifier: DeepGPClassifier, labels: list, tmp_path: Path
) -> None:
    classifier = copy.copy(classifier)
    classifier.classes_ = np.array(labels, dtype=object)
    with pytest.raises(ValueError, match="classes_: expected labels of one kind that NumPy has"):
        save(classifier, tmp_path / "new" / "fit")
    assert not list(tmp_path.iterdir())


def test_a_fit_is_replaced_only_when_told(regressor: DeepGPRegressor, tmp_path: Path) -> None:
    save(regressor, tmp_path / "fit")
    with pytest.raises(FileExistsError, match="there is an earlier fit"):
        save(regressor, tmp_path / "fit")
    save(regressor, tmp_path / "fit", overwrite=True)
    with pytest.raises(FileExistsError, match="it is a folder"):
        check_output(tmp_path, overwrite=True)
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="expected a folder that can be written to"):
        check_output(tmp_path / "file" / "fit")
    (tmp_path / "link").symlink_to(tmp_path / "file" / "fit")
    with pytest.raises(OSError, match="expected a folder that can be written to"):
        check_output(tmp_path / "link")


class _Killed(BaseException):
    """Stands for a kill: nothing catches it."""


def test_a_kill_at_any_write_leaves_the_old_fit_or_the_new_one(
    regressor: DeepGPRegressor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "fit"
    other = copy.deepcopy(regressor)
    other.scaling_.Y_mean[:] += 1000.0
    X, _ = _data()
    old, new = regressor.predict(X), other.predict(X)
    left = 0  # writes until the kill

    def dying(function: Callable) -> Callable:
        def call(*arguments: Any, **options: Any) -> Any:
            nonlocal left
            left -= 1
            if left < 0:
                raise _Killed
            return function(*arguments, **options)

        return call

    class DyingWriter(io.BufferedWriter):
        write = dying(io.BufferedWriter.write)
        flush = dying(io.BufferedWriter.flush)

    def open_dying(self: Path, mode: str = "r", **options: Any) -> Any:
        return DyingWriter(io.FileIO(self, "w")) if mode == "wb" else open(self, mode, **options)

    outcomes = []
    for writes in range(200):
        save(regressor, path, overwrite=True)
        with monkeypatch.context() as patch:
            left = writes
            patch.setattr(Path, "open", open_dying)
            patch.setattr(Path, "replace", dying(Path.replace))
            patch.setattr(persistence.os, "fsync", dying(persistence.os.fsync))
            try:
                save(other, path, overwrite=True)
            except _Killed:
                pass
            else:
                break
        predicted = load(path).predict(X)
        outcomes.append(np.array_equal(predicted, old))
        assert outcomes[-1] or np.array_equal(predicted, new)
    assert len(outcomes) > 5
    np.testing.assert_array_equal(load(path).predict(X), new)


def test_nothing_to_load(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="expected the file of a fit"):
        load(tmp_path / "fit")
    with pytest.raises(FileNotFoundError, match="got a folder; what the command line writes there"):
        load(tmp_path)


def _set_array(name: str, value: Any) -> Callable[[dict, dict], None]:
    return lambda metadata, arrays: arrays.update({name: value})


def _of_inputs(**wrong: np.ndarray) -> Callable[[dict, dict], None]:
    """A warping of two inputs, part of it wrong."""
    zero, one = np.zeros(2), np.ones(2)
    parts = InputWarping(zero, one, -one, one, zero, one)._replace(**wrong)._asdict()
    named = {f"scaling.X_warping.{name}": part for name, part in parts.items()}
    return lambda metadata, arrays: arrays.update(named)


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda m, a: m.update(format=2), "in format 5, got format 2"),
        (lambda m, a: m.pop("class"), "damaged"),
        (lambda m, a: m["members"][0]["settings"].update(depth=3), "damaged"),
        (lambda m, a: m["members"][0].update(name="gp"), "parameters of the model"),
        (lambda m, a: m["members"][0].update(float_name="float32"), "expected .*float32"),
        (lambda m, a: m.update(feature_names_in_=["one"]), "2 names expected, got 1"),
        (_set_array("scaling.Y_scale", np.zeros(1)), "scaling.Y_scale: positive values"),
        (_set_array("scaling.X_scale", np.array([1.0, np.inf])), "2 finite float64 values"),
        (_set_array("scaling.X_mean", np.zeros(3)), "2 finite float64 values"),
        (_set_array("scaling.X_mean", np.zeros(2, np.float32)), "2 finite float64 values"),
        (_of_inputs(width=np.array([1.0, -1.0])), "no negative width or scale"),
        (_of_inputs(low=np.array([1.0, 3.0])), "limits in order"),
        (_of_inputs(mean=np.zeros(3)), "scaling.X_warping.mean: 2 finite float64 values"),
        (_set_array("input_limits_.low", np.full(2, np.inf)), "lower limits"),
        (_set_array("weights_", np.array([-1.0])), "positive values of sum 1"),
        (lambda m, a: a.pop("weights_"), "damaged"),
    ],
)
def test_a_file_that_is_no_fit(
    regressor: DeepGPRegressor, tmp_path: Path, change: Callable, message: str
) -> None:
    save(regressor, tmp_path / "fit")
    _rewrite(tmp_path / "fit", change)
    with pytest.raises(ValueError, match=message):
        load(tmp_path / "fit")


def test_parameters_of_another_shape_or_not_finite(
    regressor: DeepGPRegressor, tmp_path: Path
) -> None:
    (name, array), *_ = (
        (name, array) for name, array in regressor.members_[0].state()[1].items() if array.ndim == 2
    )
    for value, message in ((array[:-1], "of shape"), (array * np.nan, "expected finite values")):
        save(regressor, tmp_path / "fit", overwrite=True)
        _rewrite(tmp_path / "fit", _set_array(f"0{name}", value))
        with pytest.raises(ValueError, match=message):
            load(tmp_path / "fit")


def test_arrays_of_another_fit(regressor: DeepGPRegressor, tmp_path: Path) -> None:
    save(regressor, tmp_path / "fit")
    shifted = _set_array("scaling.Y_mean", np.ones(1))
    _rewrite(tmp_path / "fit", shifted, checksum=False)
    with pytest.raises(ValueError, match="not those that the metadata were written with"):
        load(tmp_path / "fit")


@pytest.mark.parametrize("model,lacking", [("fitc-ep-2", "excess_sqrt"), ("sghmc", ".left[")])
def test_an_older_fit(model: str, lacking: str, tmp_path: Path) -> None:
    """Whose file has nothing that is kept beside a tied factor, or says nothing of where chains were left."""
    X, y = _data()
    fitted = DeepGPRegressor(model, **{**_QUICK, "steps": 50}).fit(X, y)
    path = tmp_path / "fit.zip"
    save(fitted, path)

    def older(metadata: dict, arrays: dict) -> None:
        names = [name for name in arrays if lacking in name]
        assert names
        for name in names:
            del arrays[name]

    np.testing.assert_array_equal(load(path).predict(X), fitted.predict(X))
    _rewrite(path, older)
    np.testing.assert_array_equal(load(path).predict(X), fitted.predict(X))


def test_a_file_that_may_not_be_read_is_not_said_to_be_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(path: Path) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    (tmp_path / "fit").touch()
    monkeypatch.setattr(persistence, "ZipFile", refused)
    with pytest.raises(PermissionError, match="Permission denied: '.*fit'"):
        load(tmp_path / "fit")


def test_damaged_files(regressor: DeepGPRegressor, tmp_path: Path) -> None:
    save(regressor, tmp_path / "fit")
    content = (tmp_path / "fit").read_bytes()
    rng = np.random.default_rng(0)
    for size in (0, 10, len(content) // 2, len(content) - 1):
        (tmp_path / "fit").write_bytes(content[:size])
        with pytest.raises(ValueError, match="damaged"):
            load(tmp_path / "fit")
    for position in rng.integers(0, len(content), 20):
        flipped = bytearray(content)
        flipped[position] ^= 255
        (tmp_path / "fit").write_bytes(bytes(flipped))
        try:
            again = load(tmp_path / "fit")
        except ValueError:
            continue
        # Bytes that do not matter, such as dates, there are too.
        np.testing.assert_array_equal(again.predict(_data()[0]), regressor.predict(_data()[0]))


def test_parameters_that_json_has_not(tmp_path: Path) -> None:
    options = {**_QUICK, "random_state": np.int64(4), "settings": {"batch_size": np.int64(9)}}
    fitted = DeepGPRegressor("svgp", checkpoint_dir=tmp_path / "ck", **options).fit(*_data())
    fitted.save(tmp_path / "fit")
    again = load(tmp_path / "fit")
    assert again.random_state == 4 and again.settings == {"batch_size": 9}
    assert again.checkpoint_dir == str(tmp_path / "ck")


def test_what_is_not_fitted_is_not_saved(tmp_path: Path) -> None:
    with pytest.raises(NotFittedError):
        DeepGPRegressor().save(tmp_path / "fit")
    assert not list(tmp_path.iterdir())
