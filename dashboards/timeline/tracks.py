"""The lines of a timeline: one group for the run, one for each agent and server, named when they are used"""

from typing import Any, Final, final

from d5ray.dashboards.timeline.trace import Trace, Track

RUN: Final = Track(1, 1)  # what happened to the run as a whole
STEPS, EXCHANGES, WINDOW, OTHERS, MESSAGES = range(1, 6)  # of an agent; the last one may need several
NAMES: Final = {
    STEPS: "steps", EXCHANGES: "exchanges beside the computation", WINDOW: "window, reached by others",
    OTHERS: "evaluations and events", MESSAGES: "servers and peers",
}  # fmt: skip


@final
class Tracks:
    """Slices and arrows on tracks that never cross each other: one begins where the last has ended.

    run: its name; agents: how many there are, so that servers come after them.
    """

    def __init__(self, trace: Trace, run: str, agents: int) -> None:
        self.trace = trace
        self._agents = agents
        self._ends: dict[Track, int] = {}
        self._processes: set[int] = set()
        self._named: set[Track] = set()
        self._name(RUN, f"run {run}", "events")

    def agent(self, rank: int, line: int) -> Track:
        """A line of an agent; that of the run for a rank below 0."""
        if rank < 0:
            return RUN
        return self._name(Track(2 + rank, line), f"TrainingAgent(rank={rank})", NAMES[min(line, MESSAGES)])

    def free(self, rank: int, begin: int) -> Track:
        """A line of an agent's messages on which nothing lies from `begin` on: some are under way at once."""
        line = MESSAGES
        while self._ends.get(Track(2 + rank, line), begin) > begin:
            line += 1
        return self.agent(rank, line)

    def server(self, number: int, name: str) -> Track:
        """The line of the number-th server."""
        return self._name(Track(2 + self._agents + number, 1), name, "requests")

    def slice(self, track: Track, name: str, begin: int, end: int, kind: str, **told: Any) -> int:
        """Draw a slice that begins no sooner than the last of its track has ended; gives its begin (ns)."""
        begin = min(max(begin, self._ends.get(track, begin)), end)
        self.trace.slice(track, name, begin, end, kind, **told)
        self._ends[track] = max(end, self._ends.get(track, end))
        return begin

    def _name(self, track: Track, process: str, name: str) -> Track:
        if track.process not in self._processes:
            self.trace.process(track.process, process)
            self._processes.add(track.process)
        if track not in self._named:
            self.trace.track(track, name)
            self._named.add(track)
        return track
