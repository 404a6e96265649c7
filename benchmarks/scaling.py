"""
How the cost of one Adam step grows with the batch N, the samples S, the layers L and the inducing
points M: the exponent p of cost ~ size^p between two sizes, for CPU-seconds and for memory.

    python benchmarks/scaling.py                  # mean-field
    python benchmarks/scaling.py --model star

Memory is the peak of a process of its own less what it had before the model was built.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
from pathlib import Path

BASE = {"batch-size": 1024, "samples": 5, "layers": 4, "num-inducing": 128}
# Large enough for the products to outweigh what does not grow.
CHANGES = {
    "N": {"batch-size": 4096},
    "S": {"samples": 20},
    "L": {"layers": 8},
    "M": {"num-inducing": 512},
}


def cost(model: str, sizes: dict[str, int], steps: int) -> dict[str, float]:
    options = [text for name, size in sizes.items() for text in (f"--{name}", str(size))]
    script = str(Path(__file__).with_name("step.py"))
    command = [sys.executable, script, *options, "--steps", str(steps)]
    command += ["--child", model, "float64"]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    line = json.loads(run.stdout.splitlines()[-1])
    return {"cpu": line["cpu"], "memory": line["peak_mb"] - line["baseline_mb"]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[1])
    parser.add_argument("--model", default="mf", choices=("mf", "star", "fc"))
    parser.add_argument("--steps", type=int, default=5)
    arguments = parser.parse_args()
    base = cost(arguments.model, BASE, arguments.steps)
    print(f"{arguments.model} at {BASE}: {base['cpu'] * 1e3:.0f} CPU ms, {base['memory']:.0f} MB")
    print("| size | from | to | CPU: exponent | memory: exponent |\n|---|---|---|---|---|")
    for symbol, change in CHANGES.items():
        ((name, size),) = change.items()
        larger = cost(arguments.model, {**BASE, **change}, arguments.steps)
        ratio = math.log(size / BASE[name])
        exponents = [math.log(larger[k] / base[k]) / ratio for k in ("cpu", "memory")]
        print(f"| {symbol} | {BASE[name]} | {size} | {exponents[0]:.2f} | {exponents[1]:.2f} |")


if __name__ == "__main__":
    main()
