"""
How the cost of one Adam step grows with the batch N, the samples S, the layers L and the inducing
points M: the exponent p of cost ~ size^p between two sizes, for CPU-seconds and for memory.

    python benchmarks/scaling.py                  # mean-field
    python benchmarks/scaling.py --model star

Memory is the peak of a process of its own less what it had before the model was built.
"""

from __future__ import annotations

import math
from pathlib import Path

from harness import argument_parser, child_command, run_rounds

BASE = {"batch-size": 1024, "samples": 5, "layers": 4, "num-inducing": 128}
# Large enough for the products to outweigh what does not grow.
CHANGES = {
    "N": {"batch-size": 4096},
    "S": {"samples": 20},
    "L": {"layers": 8},
    "M": {"num-inducing": 512},
}


def main() -> None:
    parser = argument_parser(__doc__, steps=5, rounds=1)
    parser.add_argument("--model", default="mf", choices=("mf", "star", "fc"))
    o = parser.parse_args()

    def command(sizes: dict[str, int]) -> list[str]:
        options = {"steps": o.steps, **sizes}
        texts = [text for name, size in options.items() for text in (f"--{name}", str(size))]
        step = Path(__file__).with_name("step.py")
        return child_command(step, (o.model, "float64"), [*texts, *["--jit"] * o.jit])

    changed = {symbol: command({**BASE, **change}) for symbol, change in CHANGES.items()}
    results = run_rounds({"base": command(BASE), **changed}, o.rounds, one_thread=False)
    if "base" not in results:
        raise SystemExit(1)
    base = results.pop("base")
    print(f"{o.model} at {BASE}: {base['cpu']:.0f} CPU ms, {base['memory']:.0f} MB")
    print("| size | from | to | CPU: exponent | memory: exponent |\n|---|---|---|---|---|")
    for symbol, larger in results.items():
        ((name, size),) = CHANGES[symbol].items()
        ratio = math.log(size / BASE[name])
        exponents = [math.log(larger[k] / base[k]) / ratio for k in ("cpu", "memory")]
        print(f"| {symbol} | {BASE[name]} | {size} | {exponents[0]:.2f} | {exponents[1]:.2f} |")


if __name__ == "__main__":
    main()
