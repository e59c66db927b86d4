"""The verdicts of many runs of a recipe: `python -m tests.recipes.repeated RECIPE N [--load K] [--set …]`

Every run is the command that a user types, in a process and a folder of its own, with the recipe's seed.
`--load 4` keeps so many processes busy beside them. Ends with 0 where all passed.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections import Counter

from tests.conftest import d5ray

BUSY = "while True: pass"


def main() -> int:
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("recipe")
    asked.add_argument("runs", type=int)
    asked.add_argument("--load", type=int, default=0)
    asked.add_argument("--set", action="append", default=[])
    given = asked.parse_args()
    settings = [word for each in given.set for word in ("--set", each)]
    neighbours = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(given.load)]
    codes: Counter[int] = Counter()
    try:
        for run in range(1, given.runs + 1):
            with tempfile.TemporaryDirectory() as home:
                done = d5ray("run", given.recipe, "--json", *settings, env={"D5RAY_HOME": home}, seconds=1800)
            codes[done.code] += 1
            judged = json.loads(done.out)["criteria"] if done.code < 3 else []
            told = [f"{v['metric']} {v['value'] or 0:.4g} {v['verdict']} {v['reason']}" for v in judged]
            sys.stdout.write(f"{run}: exit code {done.code}; {'; '.join(told) or done.err[-300:]}\n")
            sys.stdout.flush()
    finally:
        for neighbour in neighbours:
            neighbour.kill()
            neighbour.wait()
    sys.stdout.write(f"exit codes: {dict(codes)}\n")
    return int(set(codes) != {0})


if __name__ == "__main__":
    sys.exit(main())
