"""A very short version of the campaign of benchmarks/reliability.py."""

from __future__ import annotations

from pathlib import Path

from benchmarks import reliability


def test_no_case_ends_raw_or_silent(tmp_path: Path) -> None:
    output = tmp_path / "reliability.jsonl"
    numbers = {"trainings": 2, "kills": 2, "damages": 3, "calls": 60}
    lines = reliability.run(output, numbers)
    bad = [line for line in lines if line["outcome"] in (reliability.RAW, reliability.SILENT)]
    assert not bad
    assert len(lines) == sum(numbers.values())
    written = output.read_text()
    assert reliability.run(output, numbers) == lines  # all of them are there
    assert output.read_text() == written
    assert "| calls, Settings | 60 |" in reliability.table(lines)
