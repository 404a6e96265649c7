"""
Reliability: trainings on data that are hard, kills in the middle of writes, damaged files, bad calls, load.

    python -m benchmarks.reliability --output benchmarks/results/reliability.jsonl \\
        --trainings 300 --kills 20 --damages 40 --calls 5000 --soaks 2 \\
        --table benchmarks/results/reliability.md

Every case adds a line to the output; called again, the command goes on where it was stopped, and with larger
numbers it adds to what is there. `--table` writes what came of them. An outcome is one of

- fine: finite parameters and predictions; the same numbers after a kill; damage noticed and passed over;
  memory that stays bounded;
- in words: a refusal or failure whose message names what is wrong;
- raw: an error of another kind, or one that names nothing (a defect);
- silent: a result that is not finite, or other than it would have been, or of a value that has no meaning (a
  defect).
"""
