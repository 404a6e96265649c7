"""What the check of a distribution needs of its files: is all there, and the README's first example."""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tarfile
from pathlib import Path

#: What nobody needs who has the source.
_NOT_PACKED = {".gitignore"}

#: The result of the README's first example, looked at as a reader would.
_LOOK = """
assert len(test) == 320 and 0.8 < coverage < 1.0, coverage
density = gd.metrics.log_density(Y[test], *mixture).mean()
assert density > 0.5, density  # an exact GP's: -0.1
print(f"The README's first example runs; its mean test log density is {density:.2f}.")
"""


def missing(archive: Path) -> set[str] | None:
    """Files of the repository that a source distribution lacks; None where there is no repository to ask."""
    told = subprocess.run(["git", "ls-files"], capture_output=True, text=True)
    if told.returncode:
        return None
    listed = told.stdout
    with tarfile.open(archive) as packed:
        names = {name.partition("/")[2] for name in packed.getnames()}
    return set(listed.splitlines()) - names - _NOT_PACKED


def first_example(readme: Path) -> str:
    """The code of the first block, and a look at what it did."""
    block = re.search(r"^```python\n(.*?)^```$", readme.read_text(), flags=re.S | re.M)
    assert block is not None, f"{readme}: expected a block of Python"
    return block[1] + _LOOK


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("archive", type=Path, nargs="?", help="a source distribution")
    parser.add_argument("--first-example", type=Path, help="of this README, to standard output")
    options = parser.parse_args()
    if options.first_example:
        print(first_example(options.first_example))
    else:
        lacking = missing(options.archive)
        if lacking is None:
            print(f"{options.archive}: not compared, this is no checkout of git")
        else:
            print(f"{options.archive}: {len(lacking)} files missing", *sorted(lacking), sep="\n  ")
        sys.exit(bool(lacking))
