"""Go through the cases of each kind, one line of results each; the table of what came of them."""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np

from .calls import call, calls
from .interruptions import damages, kill, kills, spoil
from .outcomes import OUTCOMES, Case, Outcome, judge
from .soaks import soak, soaks
from .trainings import train, trainings

KINDS: dict[str, tuple[Callable[[], Iterator[Case]], Callable[[Case], Outcome]]] = {
    "trainings": (trainings, train),
    "kills": (kills, kill),
    "damages": (damages, spoil),
    "calls": (calls, call),
    "soaks": (soaks, soak),
}


def run(output: Path, numbers: dict[str, int], seconds: float = np.inf) -> list[dict[str, Any]]:
    """
    Go through the first so many cases of each kind, save those that the output holds already.

    :return: All lines of the output.
    """
    lines = (
        [json.loads(line) for line in output.read_text().splitlines()] if output.exists() else []
    )
    done = {line["key"] for line in lines}
    started = time.perf_counter()
    output.parent.mkdir(parents=True, exist_ok=True)
    with output.open("a") as file:
        for kind, number in numbers.items():
            cases, function = KINDS[kind]
            for _, case in zip(range(number), cases(), strict=False):
                text = json.dumps({"kind": kind, **case}, sort_keys=True)
                key = hashlib.sha256(text.encode()).hexdigest()[:16]
                if key in done or time.perf_counter() - started > seconds:
                    continue
                outcome, message = judge(function, case)
                lines.append(
                    {"key": key, "kind": kind, **case, "outcome": outcome, "said": message}
                )
                file.write(json.dumps(lines[-1]) + "\n")
                file.flush()
    return lines


def table(lines: list[dict[str, Any]]) -> str:
    """Outcomes of each kind by what tells its cases apart, as Markdown."""
    groups = {"trainings": ("family", "dtype"), "calls": ("call",)}
    counts: dict[tuple[str, ...], Counter[str]] = {}
    for line in lines:
        group = (line["kind"], *(line[name] for name in groups.get(line["kind"], ())))
        counts.setdefault(group, Counter())[line["outcome"]] += 1
    rows = [("cases", "number", *OUTCOMES), ("---",) + ("---:",) * (1 + len(OUTCOMES))]
    for group, count in sorted(counts.items()):
        numbers = [count.total(), *(count[outcome] for outcome in OUTCOMES)]
        rows.append((", ".join(group), *map(str, numbers)))
    return "\n".join(f"| {' | '.join(row)} |" for row in rows) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(prog="reliability", description=__doc__)
    parser.add_argument("--output", type=Path, required=True, help="file of JSON lines")
    for kind in KINDS:
        parser.add_argument(f"--{kind}", type=int, default=0, help="how many of the cases")
    parser.add_argument("--seconds", type=float, default=np.inf, help="begin no case after these")
    parser.add_argument("--table", type=Path, help="where to write the table of all outcomes")
    options = parser.parse_args()
    numbers = {kind: getattr(options, kind) for kind in KINDS}
    lines = run(options.output, numbers, options.seconds)
    print(table(lines))
    if options.table:
        options.table.write_text(f"# Reliability\n\n{table(lines)}")
