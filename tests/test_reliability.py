"""A very short version of the campaign of benchmarks/reliability."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

from benchmarks.reliability import campaign, outcomes, public
from benchmarks.reliability.calls import call


def test_no_case_ends_raw_or_silent(tmp_path: Path) -> None:
    output = tmp_path / "reliability.jsonl"
    numbers = {"trainings": 2, "kills": 1, "damages": 2, "calls": 60}
    lines = campaign.run(output, numbers)
    bad = [line for line in lines if line["outcome"] in (outcomes.RAW, outcomes.SILENT)]
    assert not bad
    assert len(lines) == sum(numbers.values())
    written = output.read_text()
    assert campaign.run(output, numbers) == lines  # all of them are there
    assert output.read_text() == written
    assert "| calls, Settings | 60 |" in campaign.table(lines)


@pytest.mark.parametrize("name", public.CALLS)
def test_no_bad_call_is_raw_or_silent(name: str) -> None:
    """Every argument at three bad values, others at every other argument: the campaign has them all."""
    _, arguments = public.CALLS[name]
    kinds = list(public.BAD)
    for index, argument in enumerate(arguments):
        for bad in (kinds[(3 * index + offset) % len(kinds)] for offset in range(3)):
            case = {"call": name, "argument": argument, "bad": bad}
            outcome, said = outcomes.judge(call, case)
            assert outcome in (outcomes.FINE, outcomes.IN_WORDS), (argument, bad, said)


def test_right_values_are_accepted() -> None:
    """Or else a refusal of a bad value might be one of the others."""
    for function, arguments in public.CALLS.values():
        function(**{name: one.make() for name, one in arguments.items() if one.make is not None})


def test_everything_public_is_called() -> None:
    called = {id(function) for function, _ in public.CALLS.values()}
    for room in public.ROOMS:
        for name in public.module(room).__all__:
            thing = getattr(public.module(room), name)
            if name not in public.NOT_CALLED.get(room, ()):
                assert id(thing) in called, f"{room}.{name}"
                assert inspect.isclass(thing) or inspect.isfunction(thing)
