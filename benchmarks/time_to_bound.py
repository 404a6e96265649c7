"""
How long training takes to a bound: -565 on concrete, two layers, 64 inducing points each, mean-field.

    python benchmarks/time_to_bound.py

The preset's settings with the squared exponential kernel, and those of `gpflow_deep.training.fit`, which are
a paper's. Seconds are of processor time, those of the first step, which compiles, told apart.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from typing import Any

import numpy as np
from runs import fit_by, read_split

from gpflow_deep.presets import Settings, build, recommended, scheduled

BOUND = -565.0


def seconds_to_bound(
    X: np.ndarray, Y: np.ndarray, settings: Settings, steps: int
) -> tuple[float, float, float]:
    """Seconds of the first step and of the others, and the bound, averaged over draws."""
    model: Any = build("mean-field", X, Y, settings)
    result = fit_by(replace(settings, steps=steps), model, (X, Y))
    first, *_, last = result.history["seconds"]
    return first, last - first, float(np.mean([model.elbo((X, Y)) for _ in range(10)]))


def main() -> None:
    """See the top of this file."""
    parser = argparse.ArgumentParser(description=__doc__.strip().partition("\n")[0])
    parser.parse_args()
    time.perf_counter = time.process_time  # by which training goes
    X, Y, *_ = read_split("concrete", 0)
    small = dict(num_inducing=64, kernel="rbf")
    preset = replace(recommended("mean-field", len(X), X.shape[1]), **small)
    paper = replace(Settings(), **small)
    for name, settings, most in (("preset", preset, 1600), ("fit's defaults", paper, 800)):
        steps, bound = 160, -np.inf
        while bound < BOUND and steps < most:
            steps = round(1.25 * steps)
            chosen = scheduled(settings, steps) if name == "preset" else settings
            first, others, bound = seconds_to_bound(X, Y, chosen, steps)
            print(
                f"{name}: {steps} steps, {first:.1f} s to compile, {others:.1f} s: bound {bound:.0f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
