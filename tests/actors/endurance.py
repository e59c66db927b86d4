"""One run under faults every 20 s: `python -m tests.actors.endurance --rule ASGD --seconds 7200`

Four agents train a small network on real processes; victims and kinds are drawn. It must end after all its
steps, with the accuracy of runs of other seeds that nothing happens to (with one model: with the same bits as
the same seed), `d5ray check` must find nothing wrong, and the memory, descriptors and threads of the driver
and of the agent that nothing happens to must not grow, nor what lies in /dev/shm and /tmp. Exit code 1 where
one of these is not so; the runs are kept then.
"""

import argparse
import hashlib
import os
import shutil
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, final

import numpy as np

import d5ray as d5
from d5ray.actors.group.group import TrainingGroup
from d5ray.metrics.statistics.intervals import student
from d5ray.recipes.engine.checking.checker import violations
from d5ray.training.events.moment import Moment

EVERY_SECONDS: Final = 20.0
STEP_SECONDS: Final = 0.2  # at least; the network alone takes some milliseconds
STEPS_AT_ONCE: Final = 250  # of a training, about a minute
LOOK_SECONDS: Final = 1.0
LEAST_LOOKS: Final = 0.5  # of those that there is time for; a machine that has much to do looks later
MOST_BLIND: Final = 10  # looks at the end that do not see everything
BLOCK_LOOKS: Final = 60  # of which the median counts
FEWEST_BLOCKS: Final = 8  # of a quarter
MOST_GROWTH: Final = 0.05  # beside the noise: what is kept of every recovery
LEAST_FAULTS: Final = 0.8  # of those planned: one that comes while its victim is being replaced waits for it
SPARED: Final = 0  # nothing happens to this agent, so that it lives as long as the run
SEED: Final = 3
OTHERS: Final = (4, 5, 6, 7)  # seeds of the runs that nothing happens to
RING: Final = d5.topologies.Ring(4)
RULES: Final[dict[str, dict[str, Any]]] = {
    "allreduce": {"distributed": d5.optimizers.AllreduceSGD()},
    "DPSGD": {"distributed": d5.optimizers.DPSGD(), "topology": RING},
    "ADPSGD": {"distributed": d5.optimizers.ADPSGD(), "topology": RING},
    "ASGD": {
        "distributed": d5.optimizers.ASGD(), "servers": d5.Servers(shards=2),
        "optimizer": d5.optimizers.SGD(0.05),
    },
}  # fmt: skip


@final
class Pace(d5.Event):
    """Lets a step take this long at least, so that a run of hours has few steps."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def before_step(self, moment: Moment) -> None:
        """Wait."""
        time.sleep(self.seconds)


def experiment(rule: str, seed: int, pace: float) -> d5.Experiment:
    """Four agents; nothing that happens to them ends their run."""
    values: dict[str, Any] = {
        "model": "mlp", "dataset": "digits", "optimizer": d5.optimizers.Momentum(0.03, 0.9), "agents": 4,
        "batch_size": 16, "seed": seed, "cpus_per_agent": 0.25, "on_failure": "restart", "max_failures": -1,
        "stuck_seconds": 5.0, "events": (Pace(pace),) if pace else (), "name": f"endurance_{rule}",
    }  # fmt: skip
    return d5.Experiment(**(values | RULES[rule]))


def drawn(rule: str, seconds: float, seed: int) -> d5.Faults:
    """A fault every 20 s, of any kind, to any victim but one agent."""
    rng = np.random.default_rng(seed)
    plan = d5.Faults()
    servers = 2 if rule == "ASGD" else 0
    for number in range(1, int(seconds / EVERY_SECONDS)):
        at = number * EVERY_SECONDS + rng.uniform(0, 5)
        victim = rng.integers(1, 8 + servers)  # twice an agent, once the aggregator, then servers
        kind = rng.choice(["kill", "terminate", "stop", "stop for ever"])
        agent = int(victim + 1) // 2 if victim < 7 else None
        if victim == 7:
            plan = plan.kill("aggregator", at_seconds=at)
        elif agent is None and kind.startswith("stop"):
            plan = plan.stop(server=int(victim) - 8, at_seconds=at, seconds=2.0)
        elif agent is None:
            plan = plan.kill(server=int(victim) - 8, at_seconds=at)
        elif kind.startswith("stop"):
            plan = plan.stop(agent=agent, at_seconds=at, seconds=2.0 if kind == "stop" else None)
        elif kind == "terminate":
            plan = plan.terminate(agent=agent, at_seconds=at)
        else:
            plan = plan.kill(agent=agent, at_seconds=at)
    return plan


@final
@dataclass
class Meter:
    """Looks every second at processes that live as long as the run, and at what lies in /dev/shm and /tmp.

    values: what was seen, by name; one at every look, so that all are equally many. blind: the looks since
    one that saw everything.
    """

    pids: dict[str, int]
    values: dict[str, list[float]] = field(default_factory=dict)
    over: threading.Event = field(default_factory=threading.Event)
    blind: int = 0

    def run(self) -> None:
        """Look until it is over. When one of the processes has ended, there is nothing to see any more."""
        while not self.over.wait(LOOK_SECONDS):
            self.blind += 1
            with suppress(FileNotFoundError, ProcessLookupError, KeyError):
                seen = dict(self.look())
                self.blind = 0
                for name, value in seen.items():
                    self.values.setdefault(name, []).append(value)

    def look(self) -> Iterator[tuple[str, float]]:
        """Every value as it is now."""
        for name, pid in self.pids.items():
            status = dict(
                line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text("utf-8").splitlines()
            )
            yield f"{name}: MB", int(status["VmRSS"].split()[0]) / 1024
            yield f"{name}: threads", float(status["Threads"])
            yield f"{name}: descriptors", float(sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir()))
        yield (
            "/dev/shm of the dead",
            float(sum(_is_of_dead(path) for path in Path("/dev/shm").glob("d5ray-*"))),
        )
        yield "/tmp/d5ray-*", float(len(list(Path("/tmp").glob(f"d5ray-{os.getpid()}-*"))))


def _is_of_dead(path: Path) -> bool:
    return not Path("/proc", path.name.split("-")[1]).exists()


def unseen(meter: Meter, seconds: float) -> Iterator[str]:
    """A sentence for everything that was not looked at all the time, so that nothing can be said of it."""
    wanted = max(int(LEAST_LOOKS * seconds / LOOK_SECONDS), 4 * FEWEST_BLOCKS)
    looks = min((len(values) for values in meter.values.values()), default=0)
    if looks < wanted:
        yield f"the meter looked {looks} times in {seconds:.0f} s, less than {wanted}"
    elif meter.blind > MOST_BLIND:
        yield f"one of the processes {meter.pids} ended after {looks} looks"


def grown(values: list[float]) -> tuple[float, float, float, float]:
    """The second and the last quarter's medians, the growth between them, and how much would be noise.

    Noise is how far the medians of minutes in a quarter lie apart without their trend: from the 5th to the
    95th percentile of the differences to the line through them. What a single look sees, in the midst of a
    recovery, is no noise of a median.
    """
    quarter = len(values) // 4
    parts = [np.array(values[quarter : 2 * quarter]), np.array(values[3 * quarter :])]
    blocks = max(FEWEST_BLOCKS, quarter // BLOCK_LOOKS)
    noise = 0.0
    for part in parts:
        medians = np.array([np.median(block) for block in np.array_split(part, blocks)])
        at = np.arange(blocks)
        rest = medians - np.polyval(np.polyfit(at, medians, 1), at)
        low, high = np.percentile(rest, [5, 95])
        noise = max(noise, high - low)
    second, last = (float(np.median(part)) for part in parts)
    return second, last, last - second, float(noise)


@final
@dataclass(frozen=True)
class Ended:
    """What a run came to."""

    folder: Path
    accuracy: float
    bits: str
    seconds: float
    events: Counter[str]
    wrong: list[str]
    steps: int = 0


def bits_of(group: TrainingGroup) -> str:
    """A hash of the parameters of the agent that nothing happens to."""
    values = group.parameters(SPARED)
    return hashlib.sha256(b"".join(values[name].tobytes() for name in sorted(values))).hexdigest()


def ended(group: TrainingGroup, seconds: float, bits: str) -> Ended:
    """Look at a run that is closed."""
    run = d5.Run(group.folder)
    tables = run.tables()
    rows = tables["samples"].to_pandas().query("metric == 'test_accuracy'")
    events = tables["events"].to_pylist()
    names = Counter(row["name"] for row in events if row["agent"] == "driver" or row["name"] == "fault")
    wrong = [each for each in violations(run) if "comes from no recipe" not in each]
    accuracy = float(rows[rows.step == rows.step.max()].value.mean())
    return Ended(group.folder, accuracy, bits, seconds, names, wrong, group.outcome.step)


def endured(rule: str, seconds: float) -> tuple[Ended, Meter]:
    """Train under faults for so long, recoveries included; every look of a meter at it."""
    plan = drawn(rule, 2 * seconds, SEED)  # more than there is time for
    with d5.launch(experiment(rule, SEED, STEP_SECONDS), faults=plan, quiet=True) as group:
        meter = Meter({"driver": os.getpid(), "agent": group.places[SPARED].pid})
        looking = threading.Thread(target=meter.run, daemon=True)
        looking.start()
        begin = time.monotonic()
        try:
            while time.monotonic() - begin < seconds:
                group.train(STEPS_AT_ONCE, progress=False)
        finally:
            meter.over.set()
            looking.join()
        took, bits = time.monotonic() - begin, bits_of(group)
    return ended(group, took, bits), meter


def undisturbed(rule: str, seed: int, steps: int) -> Ended:
    """The same trainings without faults, as fast as they go."""
    with d5.launch(experiment(rule, seed, 0.0), quiet=True) as group:
        begin = time.monotonic()
        while group.outcome.step < steps:
            group.train(STEPS_AT_ONCE, progress=False)
        took, bits = time.monotonic() - begin, bits_of(group)
    return ended(group, took, bits)


def judged(rule: str, found: Ended, meter: Meter, others: list[Ended]) -> Iterator[str]:
    """A sentence for everything that is wrong; prints what was measured."""
    say(f"{rule}: {found.steps} steps in {found.seconds:.0f} s, {dict(found.events)}")
    planned = found.seconds / EVERY_SECONDS - 1
    if found.events["fault"] < LEAST_FAULTS * planned:
        yield f"{found.events['fault']} faults happened of {planned:.0f} that were planned"
    yield from (f"d5ray check: {each}" for each in found.wrong)
    yield from (short := list(unseen(meter, found.seconds)))
    for name, values in () if short else meter.values.items():
        second, last, more, noise = grown(values)
        say(f"  {name}: {second:.1f} in the second quarter, {last:.1f} in the last, noise {noise:.1f}")
        if more > (bound := noise + MOST_GROWTH * second):
            yield f"{name} grew from {second:.1f} to {last:.1f}, by more than {bound:.1f}"
    accuracies = np.array([other.accuracy for other in others])
    say(f"  accuracy {found.accuracy:.4f}; of undisturbed runs {', '.join(f'{a:.4f}' for a in accuracies)}")
    if len(others) == 1:
        if found.bits != others[0].bits:
            yield "its parameters are not those of an undisturbed run"
        return
    wide = student(len(others) - 1, 0.99) * np.sqrt(1 + 1 / len(others)) * accuracies.std(ddof=1)
    if abs(found.accuracy - accuracies.mean()) > wide:
        yield f"its accuracy is not within {accuracies.mean():.4f} ± {wide:.4f}"


def say(line: str) -> None:
    """Show a line at once, also in a file."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> int:
    """Run it as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rule", choices=RULES, default="allreduce")
    parser.add_argument("--seconds", type=float, default=600.0, help="of training, recoveries included")
    given = parser.parse_args()
    seeds = (SEED,) if given.rule == "allreduce" else OTHERS
    os.environ["D5RAY_HOME"] = home = tempfile.mkdtemp(prefix="d5t-endurance-")
    wrong = ["it did not end"]
    try:
        found, meter = endured(given.rule, given.seconds)
        others = [undisturbed(given.rule, seed, found.steps) for seed in seeds]
        wrong = list(judged(given.rule, found, meter, others))
    finally:
        d5.shutdown()
        if wrong:
            say(f"the runs are kept in {home}")
        else:
            shutil.rmtree(home)
    for each in wrong:
        say(f"  WRONG: {each}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
