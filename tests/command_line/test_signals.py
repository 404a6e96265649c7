"""What a process leaves that a signal ends."""

from __future__ import annotations

import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from click.testing import CliRunner, Result

from gpflow_deep.command_line import fitting
from gpflow_deep.command_line.main import main
from gpflow_deep.command_line.signals import Ended, ended_by_signals
from gpflow_deep.training.checkpoints import Checkpoints

_TABLE = "a,b\n" + "".join(f"{i},{i % 7}\n" for i in range(30))


@pytest.fixture(autouse=True)
def _by_default() -> Iterator[None]:
    """Also where the tests run under `nohup`."""
    numbers = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    before = {number: signal.signal(number, signal.SIG_DFL) for number in numbers}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def _number(name: str) -> int:
    """That of a signal, where the system has it."""
    if not hasattr(signal, name):
        pytest.skip(f"there is no {name} here")
    return int(getattr(signal, name))


def _end(number: int) -> None:
    """The signal comes; one that nobody takes would end the tests."""
    assert callable(signal.getsignal(number))
    signal.raise_signal(number)


def _run(*arguments: object, given: str = "") -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments], input=given)


def _fit(folder: Path) -> Result:
    (folder / "data.csv").write_text(_TABLE)
    options = ("--task", "regression", "--model", "svgp", "--steps", 3, "--num-inducing", 4)
    command = ("fit", folder / "data.csv", "--target", "b", "--output", folder / "fit")
    return _run(*command, *options)


@pytest.fixture(scope="module")
def fit_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fit for tests that only read it."""
    folder = tmp_path_factory.mktemp("fit")
    result = _fit(folder)
    assert result.exit_code == 0, result.output
    return folder / "fit"


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
def test_predictions_and_what_came_by_a_pipe_are_removed(
    fit_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    number, kept = _number(name), tmp_path / "kept"
    kept.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(kept))
    predict_table = fitting.predict_table

    def ended(*arguments: Any) -> Iterator[Any]:
        yield from predict_table(*arguments)
        assert list(kept.iterdir()) and list(tmp_path.glob("out.csv.*.partial"))
        _end(number)

    monkeypatch.setattr(fitting, "predict_table", ended)
    result = _run("predict", fit_folder, "-", "--output", tmp_path / "out.csv", given=_TABLE)
    assert result.exit_code == 128 + number, result.output
    assert [path.name for path in tmp_path.iterdir()] == ["kept"] and not list(kept.iterdir())
    assert signal.getsignal(number) == signal.SIG_DFL


@pytest.mark.parametrize("first", [True, False], ids=["first step", "checkpoint"])
def test_a_fit_says_how_to_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: bool
) -> None:
    save = Checkpoints.save

    def ended(self: Checkpoints) -> None:
        if not first:
            save(self)
        _end(signal.SIGTERM)

    with monkeypatch.context() as patch:
        patch.setattr(Checkpoints, "save", ended)
        result = _fit(tmp_path)
    assert result.exit_code == 128 + signal.SIGTERM, result.output
    assert ("The same command goes on from the last checkpoint" in result.stderr) != first
    assert ("The same command begins anew" in result.stderr) == first
    assert not list(tmp_path.rglob("lock"))
    assert _fit(tmp_path).exit_code == 0
    assert [path.name for path in (tmp_path / "fit").iterdir()] == ["fit.zip"]


def test_a_signal_that_comes_twice_does_not_cut_the_tidying_short() -> None:
    tidied = False
    with pytest.raises(Ended) as raised, ended_by_signals():
        try:
            _end(signal.SIGTERM)
        finally:
            _end(signal.SIGTERM)
            tidied = True
    assert tidied and raised.value.code == 128 + signal.SIGTERM


def test_a_signal_that_comes_again_later_is_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first may have come where exceptions are lost."""
    monkeypatch.setattr("gpflow_deep.command_line.signals._AT_ONCE", 0.0)
    with ended_by_signals():
        for _ in range(2):
            with pytest.raises(Ended):
                _end(signal.SIGTERM)


@pytest.mark.parametrize("taken", [signal.SIG_IGN, lambda number, frame: None])
def test_signals_that_are_ignored_or_taken_stay_so(taken: Callable[..., None]) -> None:
    """As under `nohup`."""
    number = _number("SIGHUP")
    signal.signal(number, taken)
    with ended_by_signals():
        assert signal.getsignal(number) == taken
    assert signal.getsignal(number) == taken


def test_outside_the_main_thread_signals_are_left_alone() -> None:
    found: list[Any] = []

    def inside() -> None:
        with ended_by_signals():
            found.append(signal.getsignal(signal.SIGTERM))

    thread = Thread(target=inside)
    thread.start()
    thread.join()
    assert found == [signal.SIG_DFL]
