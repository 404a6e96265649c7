from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf

from gpflow_deep import metrics
from gpflow_deep.experiments import benchmark
from gpflow_deep.experiments.datasets import load
from gpflow_deep.experiments.results import Results, Run
from gpflow_deep.experiments.splits import extrapolation_split
from gpflow_deep.presets import registry
from gpflow_deep.presets.structured import stripes_and_arrow
from gpflow_deep.training import TrainingError, fit

from ..toys import QUICK, build_svgp

pytestmark = pytest.mark.usefixtures("toy_models")

plan = partial(benchmark.plan, datasets=["diabetes"], settings=QUICK)


def _quiet(runs: list, output: Path) -> tuple[list, list[str]]:
    lines: list[str] = []
    failed = benchmark.run_all(runs, output, progress=False, echo=lines.append)
    return failed, lines


def test_plan_has_each_run_once() -> None:
    runs = plan(["toy-a", "toy-flat"], splits=[0, 2], layers=(2, 3))
    described = [(run.model, run.split, run.settings.num_layers) for run in runs]
    assert described == [
        ("toy-a", 0, 2),
        ("toy-a", 0, 3),
        ("toy-flat", 0, 1),
        ("toy-a", 2, 2),
        ("toy-a", 2, 3),
        ("toy-flat", 2, 1),
    ]
    assert all(run.settings.steps == QUICK.steps for run in runs)


@pytest.mark.parametrize(
    "change, message",
    [
        ({"models": ["no-model"]}, "name: expected one of .* got 'no-model'"),
        (
            {"models": ["toy-a", "gp", "linear"]},
            r"models: expected .* training.fit trains, got \['gp', 'linear'\]",
        ),
        ({"datasets": ["no-data"]}, "Unknown data set 'no-data'"),
        ({"study": "no-study"}, "study: expected one of interpolation, extrapolation"),
        ({"splits": [-1]}, "index: expected a split number"),
    ],
)
def test_plan_refuses_what_does_not_exist(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        plan(**{"models": ["toy-a"], **change})


def test_scores_are_of_the_test_points_in_original_units() -> None:
    (run,) = plan(["toy-a"], study="extrapolation")
    record, points = benchmark.execute(run, progress=False)
    dataset = load("diabetes")
    split = extrapolation_split(dataset, 0)
    np.testing.assert_array_equal(points["rows"], split.test)
    np.testing.assert_array_equal(points["Y"], dataset.Y[split.test])
    # All components of the toy are the same Gaussian, so that its moments say everything.
    gaussian = points["mean"][None], points["variance"][None], np.zeros(1)
    scores = record["metrics"]
    np.testing.assert_allclose(
        points["log_density"], metrics.log_density(points["Y"], *gaussian), rtol=1e-9
    )
    assert scores["test_log_likelihood"] == pytest.approx(points["log_density"].mean())
    assert scores["rmse"] == pytest.approx(np.sqrt(np.mean((points["Y"] - points["mean"]) ** 2)))
    assert scores["crps"] == pytest.approx(metrics.crps(points["Y"], *gaussian).mean())
    assert scores["coverage95"] == pytest.approx(metrics.coverage(points["Y"], *gaussian))
    assert record["num_test"] == len(split.test)
    assert record["num_train"] == len(split.train) - round(0.1 * len(split.train))
    assert record["steps"] == QUICK.steps
    assert record["versions"]["tensorflow"] == tf.__version__
    assert record["seconds"] > 0.0 and record["peak_memory_mb"] > 1.0


def test_nothing_is_known_of_held_out_and_test_points(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, np.ndarray] = {}

    def build(X: np.ndarray, Y: np.ndarray, settings: Any, seed: int) -> Any:
        seen.update(X=X, Y=Y)
        return build_svgp(X, Y, settings, seed)

    def spy(model: Any, data: Any, **arguments: Any) -> Any:
        seen["held_out"] = arguments["validation_data"][0]
        return fit(model, data, **arguments)

    registry.register("spy")(build)
    monkeypatch.setattr(benchmark, "fit", spy)
    _, points = benchmark.execute(plan(["spy"])[0], progress=False)
    # Standardised by exactly the points that the model was built from.
    for array in (seen["X"], seen["Y"]):
        np.testing.assert_allclose(array.mean(axis=0), 0.0, atol=1e-12)
        np.testing.assert_allclose(array.std(axis=0), 1.0)
    assert len(seen["X"]) + len(seen["held_out"]) + len(points["Y"]) == len(load("diabetes").X)
    trained_on = {row.tobytes() for row in seen["X"]}
    assert not any(row.tobytes() in trained_on for row in seen["held_out"])


def test_objective_by_minibatches_is_the_objective_of_the_whole() -> None:
    rng = np.random.default_rng(0)
    data = rng.normal(size=(50, 2)), rng.normal(size=(50, 1))
    model = build_svgp(*data, QUICK, seed=0)
    expected = float(model.maximum_log_likelihood_objective(data))
    assert benchmark._objective(model, data, batch_size=16) == pytest.approx(expected, rel=1e-12)


def _stub(
    executed: list, failing: str = "", error: type[Exception] = TrainingError
) -> Callable[..., Any]:
    """In place of `execute`: no training, but the checkpoints of one."""

    def execute(run: Run, *, checkpoint_dir: Path, progress: bool) -> Any:
        executed.append(run)
        checkpoint_dir.mkdir(parents=True)
        if run.model == failing:
            arguments = (None, None) if issubclass(error, tf.errors.OpError) else ()
            raise error(*arguments, "diverged")
        return {"metrics": {"rmse": 1.0}}, {"Y": np.zeros((1, 1))}

    return execute


def test_finished_runs_are_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    output = tmp_path / "r.jsonl"
    runs = plan(["toy-a"], splits=[0, 1])
    executed: list[Run] = []
    monkeypatch.setattr(benchmark, "execute", _stub(executed))
    assert _quiet(runs[:1], output)[0] == []
    _, lines = _quiet(runs, output)
    assert executed == runs
    assert "finished before" in lines[0]
    assert [record["split"] for record in Results(output).read()] == [0, 1]
    assert not any((tmp_path / "r.checkpoints").iterdir())


def test_a_run_finished_with_other_data_of_the_name_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = tmp_path / "r.jsonl"
    monkeypatch.setenv("GPFLOW_DEEP_DATA", str(tmp_path))
    arrays = {"X": np.linspace(0.0, 1.0, 30)[:, None], "Y": np.linspace(0.0, 2.0, 30)[:, None]}
    np.savez(tmp_path / "mine.npz", **arrays)
    runs = plan(["toy-a"], datasets=["mine"])
    assert _quiet(runs, output)[0] == []
    assert "finished before" in _quiet(runs, output)[1][0]

    arrays["Y"][3] += 1e-6
    np.savez(tmp_path / "mine.npz", **arrays)
    failed, lines = _quiet(runs, output)
    assert failed == runs
    assert "has this run of other data called mine; write to another file" in lines[0]
    assert len(Results(output).read()) == 1


def test_a_run_finished_in_another_float_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = plan(["toy-a"])
    record, points = benchmark.execute(runs[0], progress=False)
    assert record["float"] == "float64"
    for name, fields in (("new", record), ("old", {"metrics": {}})):
        output = tmp_path / f"{name}.jsonl"
        Results(output).append(runs[0], fields, points)
        assert "finished before" in _quiet(runs, output)[1][0]
        gpflow.config.set_default_float(np.float32)
        failed, lines = _quiet(runs, output)
        gpflow.config.set_default_float(np.float64)
        if name == "new":
            assert failed == runs
            assert "has this run in float64, not in float32; write to another file" in lines[0]
        else:  # of earlier versions, which did not say
            assert "finished before" in lines[0]


@pytest.mark.parametrize(
    "error", [TrainingError, ValueError, OSError, MemoryError, tf.errors.InvalidArgumentError]
)
def test_a_failed_run_does_not_stop_the_others(
    error: type[Exception], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(benchmark, "execute", _stub([], "toy-b", error))
    runs = plan(["toy-b", "toy-a"])
    failed, lines = _quiet(runs, tmp_path / "r.jsonl")
    assert failed == runs[:1]
    assert any("diverged" in line for line in lines)
    assert [record["model"] for record in Results(tmp_path / "r.jsonl").read()] == ["toy-a"]


def test_a_result_that_cannot_be_written_does_not_stop_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: Results, run: Run, *parts: Any) -> None:
        if run.model == "toy-b":
            raise OSError(28, "No space left on device")
        append(self, run, *parts)

    append = Results.append
    monkeypatch.setattr(Results, "append", full)
    monkeypatch.setattr(benchmark, "execute", _stub([]))
    runs = plan(["toy-b", "toy-a"])
    failed, lines = _quiet(runs, tmp_path / "r.jsonl")
    assert failed == runs[:1]
    assert "    failed: [Errno 28] No space left on device" in lines
    assert Results(tmp_path / "r.jsonl").checkpoint_dir(runs[0].key).exists()  # to go on from


def test_a_run_finished_by_another_process_meanwhile_is_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output, executed = tmp_path / "r.jsonl", []
    runs = plan(["toy-a", "toy-b"])
    stub = _stub(executed)

    def execute(run: Run, **arguments: Any) -> Any:
        Results(output).append(runs[1], {"metrics": {}}, {"Y": np.zeros((1, 1))})
        return stub(run, **arguments)

    monkeypatch.setattr(benchmark, "execute", execute)
    _quiet(runs, output)
    assert executed == runs[:1]


def test_output_is_tried_before_the_first_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    executed: list[Run] = []
    monkeypatch.setattr(benchmark, "execute", _stub(executed))
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="expected a folder that can be written to"):
        _quiet(plan(["toy-a"]), tmp_path / "file" / "r.jsonl")
    (tmp_path / "r.jsonl").symlink_to(tmp_path / "nowhere" / "r.jsonl")
    with pytest.raises(OSError, match="r.jsonl: expected a file that can be written to"):
        _quiet(plan(["toy-a"]), tmp_path / "r.jsonl")
    assert not executed


def _fit_killed_at(step: int) -> Callable[..., Any]:
    def kill(now: int, loss: float) -> None:
        if now == step:
            raise KeyboardInterrupt

    return partial(fit, callback=kill, checkpoint_every=4)


def test_an_interrupted_run_goes_on_and_ends_where_it_would_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A model with random draws in training and in its objective.
    registry.register("stripes-and-arrow")(stripes_and_arrow)
    settings = replace(QUICK, num_inducing=4, hidden_dim=2)
    (run,) = plan(["stripes-and-arrow"], settings=settings)
    expected, expected_points = benchmark.execute(run, progress=False)

    output = tmp_path / "r.jsonl"
    monkeypatch.setattr(benchmark, "fit", _fit_killed_at(10))
    with pytest.raises(KeyboardInterrupt):
        _quiet([run], output)
    assert Results(output).read() == []

    steps = []
    monkeypatch.setattr(
        benchmark, "fit", partial(fit, callback=lambda step, loss: steps.append(step))
    )
    _quiet([run], output)
    assert steps == [9, 10, 11, 12]  # from the checkpoint at step 8
    (record,) = Results(output).read()
    assert record["metrics"] == pytest.approx(expected["metrics"], rel=1e-10)
    points = Results(output).points(run.key)
    assert points is not None
    np.testing.assert_allclose(points["log_density"], expected_points["log_density"], rtol=1e-10)
