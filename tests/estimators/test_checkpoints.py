"""Fits of estimators that are interrupted, and what is left of them."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import joblib
import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import cross_val_score

from gpflow_deep import training
from gpflow_deep.estimators import DeepGPClassifier, DeepGPRegressor, base, members
from gpflow_deep.estimators.checkpoints import checkpoint_folder
from gpflow_deep.estimators.fitting import fit_family
from gpflow_deep.estimators.kept import MEMBER, has_work, kept_member
from gpflow_deep.estimators.rows import Rows
from gpflow_deep.presets import recommended


def _data(num_rows: int = 60) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(5)
    X = rng.normal(size=(num_rows, 2))
    return X, np.sin(2.0 * X[:, 0]) + 0.1 * rng.normal(size=num_rows)


def _killed_at(last: int) -> Callable[..., Any]:
    """The fit of `training`, interrupted at a step."""
    real = training.fit

    def killed(*arguments: Any, **given: Any) -> Any:
        def kill(step: int, loss: float) -> None:
            if step == last:
                raise KeyboardInterrupt

        return real(*arguments, **given | {"callback": kill, "checkpoint_every": 2})

    return killed


def test_an_interrupted_fit_is_taken_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = _data()
    options: dict[str, Any] = dict(steps=8, num_inducing=8, random_state=0)
    whole = DeepGPRegressor("svgp", **options).fit(X, y)
    real = training.fit
    saved = DeepGPRegressor("svgp", checkpoint_dir=str(tmp_path), **options)
    monkeypatch.setattr(training, "fit", _killed_at(6))
    with pytest.raises(KeyboardInterrupt):
        saved.fit(X, y)
    seen: list[int] = []
    record = dict(callback=lambda step, _: seen.append(step), checkpoint_every=2)
    monkeypatch.setattr(training, "fit", lambda *a, **given: real(*a, **given | record))
    saved.fit(X, y)
    assert seen[0] in (5, 7) and seen[-1] == 8
    np.testing.assert_array_equal(saved.predict(X), whole.predict(X))


def test_an_interrupted_fit_is_taken_up_with_the_seed_it_drew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, y = _data()
    real = training.fit
    interrupted = DeepGPRegressor("svgp", steps=10, num_inducing=8, checkpoint_dir=tmp_path)
    seen: list[int] = []
    with monkeypatch.context() as patch:
        patch.setattr(training, "fit", _killed_at(7))
        with pytest.raises(KeyboardInterrupt):
            interrupted.fit(X, y)
        record = dict(callback=lambda step, _: seen.append(step))
        patch.setattr(training, "fit", lambda *a, **given: real(*a, **given | record))
        again = clone(interrupted).fit(X, y)
    assert seen == list(range(7, 11))
    whole = DeepGPRegressor("svgp", steps=10, num_inducing=8)
    monkeypatch.setattr(base, "check_parameters", lambda _: again.random_seed_)
    np.testing.assert_array_equal(again.predict(X), whole.fit(X, y).predict(X))


def test_a_fit_that_is_done_leaves_no_checkpoints_for_the_next(tmp_path: Path) -> None:
    """Which may be told to start from it, or be of other data."""
    X, y = _data()
    options: dict[str, Any] = dict(steps=5, num_inducing=8, random_state=0)
    kept, free = (
        DeepGPRegressor("svgp", warm_start=True, checkpoint_dir=folder, **options)
        for folder in (tmp_path, None)
    )
    for targets in (y, y, -y):
        kept.fit(X, targets)
        free.fit(X, targets)
        np.testing.assert_array_equal(kept.predict(X), free.predict(X))
        assert not list(tmp_path.iterdir())
    with joblib.parallel_config("threading", n_jobs=2):
        scores = cross_val_score(clone(kept), X, y, cv=2, error_score="raise")
    assert np.isfinite(scores).all()
    with pytest.raises(OSError, match="checkpoint_dir: expected a folder that can be written"):
        DeepGPRegressor("svgp", checkpoint_dir="/dev/null/folder", **options).fit(X, y)


@pytest.mark.parametrize("left, stays", [("step-20", True), ("step-20.partial", False)])
def test_what_an_interrupted_fit_leaves_stays_if_it_can_be_gone_on_from(
    left: str, stays: bool, tmp_path: Path
) -> None:
    """A checkpoint by halves, of a kill while it was written, is none."""
    estimator = DeepGPRegressor("svgp", checkpoint_dir=tmp_path, random_state=0)
    with (
        pytest.raises(KeyboardInterrupt),
        checkpoint_folder(estimator, _data(), seed=0) as (folder, _),
    ):
        assert folder is not None
        (folder / "svgp-0" / left).mkdir(parents=True)
        raise KeyboardInterrupt
    assert bool(list(tmp_path.iterdir())) == stays


def _default(folder: Path | None, classes: bool, num_rows: int, **given: Any) -> Any:
    make = DeepGPClassifier if classes else DeepGPRegressor
    options: dict[str, Any] = dict(steps=10, num_inducing=8, random_state=0, checkpoint_dir=folder)
    options |= dict(kernel="rbf", warp=False)
    X, y = _data(num_rows)
    return make(**options | given).fit(X, np.digitize(y, [-0.3, 0.5]) if classes else y)


@pytest.mark.parametrize(("num_rows", "classes"), [(250, False), (250, True)])
def test_members_that_are_done_are_not_fitted_again(
    classes: bool, num_rows: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a default that is killed in its last member; the fit is the same to the bit."""
    X, _ = _data(num_rows)
    call = "predict_proba" if classes else "predict_quantiles"
    fitted: list[Path | None] = []
    most = sys.maxsize
    real = members.fit_family

    def killed(*arguments: Any, **options: Any) -> Any:
        if len(fitted) == most:
            raise KeyboardInterrupt
        fitted.append(options["checkpoint_dir"])
        return real(*arguments, **options)

    monkeypatch.setattr(members, "fit_family", killed)
    families = (("svgp", "gp"), "mean-field") if classes else (("gp", "linear"), "dspp")
    monkeypatch.setattr(base, "candidates", lambda *_, **__: families)
    whole = _default(None, classes, num_rows)
    most = len(fitted) - 1
    assert most > 1
    fitted.clear()
    with pytest.raises(KeyboardInterrupt):
        _default(tmp_path, classes, num_rows)
    fitted.clear()
    again = _default(tmp_path, classes, num_rows)
    assert len(fitted) == 1
    np.testing.assert_array_equal(getattr(again, call)(X), getattr(whole, call)(X))
    np.testing.assert_array_equal(again.weights_, whole.weights_)
    assert not list(tmp_path.iterdir())


def test_members_of_another_call_are_fitted_again(tmp_path: Path) -> None:
    """Of other data, rows held out, settings, seed or time; and of a file that is damaged."""
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(20, 2)), rng.normal(size=(20, 1))
    rows = Rows(X, Y, np.ones(20))
    settings = recommended("linear", 20, 2)
    calls: list[int] = []

    def fit() -> Any:
        calls.append(0)
        return fit_family("linear", settings, rows, None, 1, seed=0)

    first = kept_member(tmp_path, fit, rows, (settings, 0))
    assert len(calls) == 1 and has_work(tmp_path)
    again = kept_member(tmp_path, fit, rows, (settings, 0))
    assert len(calls) == 1
    np.testing.assert_array_equal(again.gaussian(X)[0], first.gaussian(X)[0])
    for number, (data, options) in enumerate(
        [
            ([*rows, X], (settings, 0)),
            (rows, (settings, 1)),
            (rows._replace(weights=2.0 * rows.weights), (settings, 1)),
            (rows, (replace(settings, noise_floor=0.1), 1)),
        ],
        start=2,
    ):
        kept_member(tmp_path, fit, data, options)
        assert len(calls) == number
    file = tmp_path / MEMBER
    whole = file.read_bytes()
    for damaged in (b"", whole[: len(whole) // 2], whole[:-30], b"no archive"):
        calls.clear()
        file.write_bytes(damaged)
        kept_member(tmp_path, fit, rows, (settings, 0))
        kept_member(tmp_path, fit, rows, (settings, 0))
        assert len(calls) == 1
    # Where it cannot be kept, nothing is lost but that.
    assert kept_member(Path("/dev/null/run"), fit, rows, ()).name == "linear"


def test_without_room_for_checkpoints_training_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, y = _data()
    options: dict[str, Any] = dict(steps=10, num_inducing=8, random_state=0)
    whole = DeepGPRegressor("svgp", **options).fit(X, y)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=100))
    with pytest.warns(UserWarning, match="has room for 0.0 MiB. Training goes on without them"):
        fitted = DeepGPRegressor("svgp", checkpoint_dir=tmp_path, **options).fit(X, y)
    np.testing.assert_array_equal(fitted.predict(X), whole.predict(X))
