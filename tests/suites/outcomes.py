"""What became of the tests of a suite: a record of one JSON object a line"""

import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Outcomes:
    """The last outcome of each test, by its name; the most memory that a process held; the time."""

    tests: dict[str, dict[str, Any]] = field(default_factory=dict)
    peak_bytes: int = 0
    seconds: dict[str, float] = field(default_factory=dict)  # by parts of the suite, of every go at it

    @classmethod
    def read(cls, record: Path) -> "Outcomes":
        """The outcomes of a record; none where there is no such file, and of a line cut off by a kill."""
        tests: dict[str, dict[str, Any]] = {}
        peak, seconds = 0, dict[str, float]()
        for text in record.read_text(encoding="utf-8").splitlines() if record.exists() else ():
            try:
                line = json.loads(text)
            except json.JSONDecodeError:
                continue
            if "test" in line:
                tests[line["test"]] = line
            peak = max(peak, line.get("peak_bytes", 0))
            if "part" in line:
                seconds[line["part"]] = seconds.get(line["part"], 0.0) + line["seconds"]
        return cls(tests, peak, seconds)

    def named(self, outcome: str) -> list[str]:
        """The tests that ended so: passed, skipped, xfailed or failed."""
        return [name for name, line in self.tests.items() if line["outcome"] == outcome]

    def failed(self) -> list[str]:
        return self.named("failed")

    def done(self) -> list[str]:
        """The tests that need not run again."""
        return [name for name, line in self.tests.items() if line["outcome"] != "failed"]

    def slowest(self, number: int) -> list[tuple[float, str]]:
        """(seconds, name) of the tests that took the longest, setup and teardown included."""
        return sorted(((line["seconds"], name) for name, line in self.tests.items()), reverse=True)[:number]


def file_of(test: str) -> str:
    """The file in which the test of a name is."""
    return test.partition("::")[0]


def note(record: Path, **line: Any) -> None:
    """Append a line to a record, to which several processes may write."""
    with record.open("ab", buffering=0) as file:
        file.write(os.fsencode(json.dumps(line) + "\n"))
