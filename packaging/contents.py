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
assert mean.shape == variance.shape == (100, 1), (mean.shape, variance.shape)
assert np.isfinite(mean).all() and (variance.numpy() > 0).all()
error = np.abs(mean.numpy()[[30, 70], 0] - [-1.0, 1.0]).max()
assert error < 0.2, error
print(f"The README's first example runs; at -1.6 and 1.6 it is off by {error:.3f} at most.")
"""


def missing(archive: Path) -> set[str]:
    """Files of the repository that a source distribution lacks."""
    listed = subprocess.run(["git", "ls-files"], capture_output=True, text=True, check=True).stdout
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
        print(f"{options.archive}: {len(lacking)} files missing", *sorted(lacking), sep="\n  ")
        sys.exit(bool(lacking))
