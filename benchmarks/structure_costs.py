"""
CPU time of an Adam step against the number of inducing points, layers and hidden GPs, for three structures:
the comparison of Figure 4 of Lindinger et al. 2020, *Beyond the Mean-Field: Structured Deep Gaussian
Processes*.

    python benchmarks/structure_costs.py --output structure_costs.jsonl     # goes on where it was stopped

Each case is measured by step.py in a process of its own, on one thread in float64.
"""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path

from harness import child_command, run_rounds
from runs import Line, Results

BASE = {"num-inducing": 64, "layers": 3, "width": 5}
SIZES = {"num-inducing": (32, 64, 128), "layers": (2, 3, 4), "width": (2, 5, 10)}
STRUCTURES = ("mf", "star", "fc")


def cases() -> list[Line]:
    """One size varied at a time; the base, in which the three lines cross, once."""
    varied = [{**BASE, name: size} for name, sizes in SIZES.items() for size in sizes]
    return [size for index, size in enumerate(varied) if size not in varied[:index]]


def measure(structure: str, size: Line, steps: int, rounds: int) -> Line:
    options = [text for name, value in size.items() for text in (f"--{name}", str(value))]
    step = Path(__file__).with_name("step.py")
    command = child_command(step, (structure, "float64"), [*options, "--steps", str(steps)])
    return run_rounds({structure: command}, rounds)[structure]


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).strip().split(":")[0])
    parser.add_argument("--structure", nargs="+", choices=STRUCTURES, default=list(STRUCTURES))
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--output", type=Path, default=Path("structure_costs.jsonl"))
    o = parser.parse_args()
    for size in cases():
        for structure in o.structure:
            Results(o.output).run(
                {"structure": structure, **size},
                partial(measure, structure, size, o.steps, o.rounds),
            )


if __name__ == "__main__":
    main()
