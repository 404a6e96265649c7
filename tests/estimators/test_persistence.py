from __future__ import annotations

import json
from pathlib import Path

import gpflow
import numpy as np
import pytest

from gpflow_deep.estimators.persistence import check_output, load_regression, save_regression
from gpflow_deep.estimators.regression import Regression


def _edit(folder: Path, **changes: object) -> None:
    path = folder / "metadata.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def test_a_loaded_fit_predicts_the_same(regression: Regression, tmp_path: Path) -> None:
    save_regression(regression, tmp_path / "new" / "folder")
    loaded = load_regression(tmp_path / "new" / "folder")
    X = np.random.default_rng(6).normal(size=(7, 2))
    for expected, actual in zip(
        regression.predict_y_mixture(X), loaded.predict_y_mixture(X), strict=True
    ):
        np.testing.assert_array_equal(actual, expected)
    for name in ("model_name", "settings", "seed", "input_names", "target_name", "report"):
        assert getattr(loaded, name) == getattr(regression, name)
    assert sorted(path.name for path in (tmp_path / "new" / "folder").iterdir()) == [
        "metadata.json",
        "parameters.npz",
    ]


def test_metadata_say_what_the_fit_is(regression: Regression, tmp_path: Path) -> None:
    save_regression(regression, tmp_path)
    metadata = json.loads((tmp_path / "metadata.json").read_text())
    assert metadata["model"] == "stripes-and-arrow"
    assert metadata["input_names"] == ["first", "second"]
    assert metadata["settings"]["num_layers"] == 2
    assert metadata["versions"]["gpflow"] == gpflow.__version__


def test_an_earlier_fit_is_replaced_only_when_told(regression: Regression, tmp_path: Path) -> None:
    save_regression(regression, tmp_path)
    with pytest.raises(FileExistsError, match="holds an earlier fit"):
        save_regression(regression, tmp_path)
    (tmp_path / "parameters.npz").write_bytes(b"")
    save_regression(regression, tmp_path, overwrite=True)
    load_regression(tmp_path)


def test_output_must_be_a_folder(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(FileExistsError, match="it is a file"):
        check_output(tmp_path / "file", overwrite=True)


def test_a_folder_that_cannot_be_written_to(tmp_path: Path) -> None:
    """Is found before the training, and nothing is left of the attempt."""
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="expected a folder that can be written to"):
        check_output(tmp_path / "file" / "new" / "output")
    check_output(tmp_path / "new" / "output")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_folder_without_a_fit(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="expected a fit"):
        load_regression(tmp_path)


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"format": 99}, "in format 2, got format 99"),
        ({"float": "float32"}, "the fit is in float32, but the default float is float64"),
        ({"scaling": {}}, "damaged"),
        ({"settings": {"depth": 3}}, "damaged"),
        ({"model": "mean-field"}, "parameters of the model"),
    ],
)
def test_files_of_another_kind(
    regression: Regression, tmp_path: Path, changes: dict[str, object], message: str
) -> None:
    save_regression(regression, tmp_path)
    _edit(tmp_path, **changes)
    with pytest.raises(ValueError, match=message):
        load_regression(tmp_path)


@pytest.mark.parametrize("name", ["metadata.json", "parameters.npz"])
def test_damaged_files(regression: Regression, tmp_path: Path, name: str) -> None:
    save_regression(regression, tmp_path)
    content = (tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes(content[: len(content) // 2])
    with pytest.raises(ValueError, match="damaged"):
        load_regression(tmp_path)
