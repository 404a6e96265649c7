"""The study of images: from files to a line of results."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gpflow.keras import tf_keras

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
_RNG = np.random.default_rng(0)
_LABELS = np.arange(40) % 4  # of which training has three


@pytest.fixture()
def study(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    monkeypatch.syspath_prepend(BENCHMARKS)
    monkeypatch.setenv("GPFLOW_DEEP_DATA", str(tmp_path))
    floatx = tf_keras.backend.floatx()
    yield importlib.import_module("images")
    sys.modules.pop("images")
    tf_keras.backend.set_floatx(floatx)


def _write(path: Path, names: tuple[str, ...], images: np.ndarray, labels: np.ndarray) -> None:
    arrays = images[:30], np.minimum(labels[:30], 2), images[30:], labels[30:]
    np.savez(path, **dict(zip(names, arrays, strict=True)))


@pytest.mark.parametrize("shape", [(12, 12), (12, 12, 1), (12, 12, 3)])
@pytest.mark.parametrize("columns", [(), (1,)])
@pytest.mark.parametrize("convention", [0, 1])
def test_images_of_files(
    study: Any, tmp_path: Path, shape: tuple[int, ...], columns: tuple[int, ...], convention: int
) -> None:
    images = _RNG.integers(0, 255, size=(40, *shape)).astype(np.uint8)
    labels = _LABELS.reshape(40, *columns)
    _write(tmp_path / "own.npz", study.NAMES[convention], images, labels)
    X, y, X_test, y_test = study.load("own", 0)
    assert X.shape == (30, 12, 12, shape[2] if len(shape) == 3 else 1) and len(X_test) == 10
    np.testing.assert_array_equal(y, np.minimum(_LABELS[:30], 2))
    np.testing.assert_array_equal(y_test, _LABELS[30:])
    np.testing.assert_allclose(X.mean(axis=(0, 1, 2)), 0.0, atol=1e-12)
    np.testing.assert_allclose(X.std(axis=(0, 1, 2)), 1.0, rtol=1e-12)


def test_files_that_are_none_of_images(
    study: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(SystemExit, match="a folder with cifar10.npz, there is no"):
        study.load("cifar10", 0)
    np.savez(tmp_path / "own.npz", X=np.ones(3), Y=np.ones(3))
    with pytest.raises(SystemExit, match="expected arrays images, .* or x_train, .*, got X, Y"):
        study.load("own", 0)
    _write(tmp_path / "own.npz", study.NAMES[1], np.ones([40, 9]), _LABELS)
    with pytest.raises(SystemExit, match=r"x_train: expected \[N, H, W, C\] .*got \(30, 9\)"):
        study.load("own", 0)
    monkeypatch.delenv("GPFLOW_DEEP_DATA")
    with pytest.raises(SystemExit, match="expected a folder with own.npz, it is not set"):
        study.load("own", 0)


def test_some_images_are_of_each_class_alike(study: Any) -> None:
    labels = np.repeat([0, 1, 2], [50, 40, 2])
    images = np.arange(92)
    chosen, theirs = study.some(20, images, labels, 0)
    assert np.bincount(theirs).tolist() == [9, 9, 2]
    np.testing.assert_array_equal(theirs, labels[chosen])
    assert len(set(chosen)) == 20
    assert not np.array_equal(chosen, study.some(20, images, labels, 1)[0])


@pytest.mark.parametrize("method", ["factorised", "maximum-likelihood"])
def test_a_run_on_files(
    study: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    """A class that training has not is scored too."""
    _write(tmp_path / "own.npz", study.NAMES[1], _RNG.normal(size=(40, 12, 12)), _LABELS)
    command = "images --data own --architecture lenet --channels 2 --num-images 9 --steps 1"
    command += f" --batch-size 5 --test-samples 2 --method {method} --output {tmp_path / 'lines'}"
    monkeypatch.setattr(sys, "argv", command.split())
    study.main()
    line = json.loads((tmp_path / "lines").read_text())
    assert line["num_images"] == 9 and line["method"] == method
    assert 0.0 <= line["accuracy"] <= 1.0 and np.isfinite(line["log_loss"])
