"""Claims about timelines: what they show is what the tables say, and Perfetto can read it."""

import gzip
import json
import math
from collections import defaultdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import d5ray as d5
from d5ray.dashboards.timeline.clocks import Clocks, RecorderClock
from d5ray.dashboards.timeline.needed import topology_of
from d5ray.dashboards.timeline.steps import PARTS
from d5ray.dashboards.timeline.writing import Written, write
from d5ray.distributed.simulation.compute import ConstantTime
from d5ray.errors import ConfigurationError, StorageError
from d5ray.metrics.record.reader import Run
from d5ray.metrics.record.recorder import Recorder as RowRecorder
from d5ray.metrics.record.store import RunWriter
from d5ray.simulator import simulate
from d5ray.training.stragglers import Slowdown

Events = list[dict[str, Any]]
BASE: dict[str, Any] = {
    "model": "mlp", "dataset": "digits", "optimizer": d5.optimizers.SGD(0.05), "epochs": 1, "batch_size": 64,
    "seed": 1,
    "slow": (Slowdown(agent=1, factor=3),), "monitor_seconds": 0, "warmup_steps": 0,
}  # fmt: skip
KINDS: dict[str, dict[str, Any]] = {
    "synchronous": {"agents": 3, "distributed": d5.optimizers.AllreduceSGD},
    "ring": {"topology": d5.topologies.Ring(5), "distributed": d5.optimizers.DPSGD()},
    "servers": {"agents": 3, "distributed": d5.optimizers.ASGD(), "servers": d5.Servers(shards=2)},
    "synchronous servers": {"agents": 3, "distributed": d5.optimizers.ParameterServerSGD()},
    "pairs": {"topology": d5.topologies.Ring(4), "distributed": d5.optimizers.ADPSGD()},
    "letters": {
        "topology": d5.topologies.Exponential(4),
        "distributed": d5.optimizers.AsynchronousGradientPush(),
    },
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    """A simulated run of each kind, in which agent 1 takes 3 ms for a gradient and the others one."""
    root = tmp_path_factory.mktemp("runs")
    found = {}
    for name, kind in KINDS.items():
        experiment = d5.Experiment.from_values(**{**BASE, **kind})
        with simulate(experiment, compute=ConstantTime(1e-3), root=root) as group:
            group.train(steps=6)
        found[name] = Run(group.folder)
    return found


def traced(run: Run, tmp_path: Path, **bounds: Any) -> tuple[Written, Events]:
    """What was written, and the events of the file."""
    written = write(run, tmp_path / "trace.json", **bounds)
    document = json.loads((tmp_path / "trace.json").read_text(), parse_constant=pytest.fail)
    assert set(document) == {"displayTimeUnit", "traceEvents", "otherData"}
    return written, document["traceEvents"]


def ns(microseconds: float) -> int:
    return round(microseconds * 1000)


def slices(events: Events) -> dict[tuple[int, int], list[tuple[int, int, dict[str, Any]]]]:
    """(begin, end, event) of every slice by its track, in ns."""
    found = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            begin = ns(event["ts"])
            found[event["pid"], event["tid"]].append((begin, begin + ns(event["dur"]), event))
    return found


def named(events: Events, what: str) -> dict[Any, str]:
    """The names of processes by number, or of tracks by process and number."""
    return {
        event["pid"] if what == "process_name" else (event["pid"], event["tid"]): event["args"]["name"]
        for event in events
        if event["ph"] == "M" and event["name"] == what
    }


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.full
def test_every_event_has_what_the_format_asks_for(runs: dict[str, Run], kind: str, tmp_path: Path) -> None:
    """Phase, process, thread, time; a duration, an id or a scope where needed; tracks have names."""
    _, events = traced(runs[kind], tmp_path)
    tracks, processes = named(events, "thread_name"), named(events, "process_name")
    assert list(processes.values())[:2] == [f"run {runs[kind].name}", "TrainingAgent(rank=0)"]
    for event in events:
        assert {"ph", "pid", "tid", "name"} <= event.keys() and event["ph"] in "XMisf"
        if event["ph"] != "M":
            assert (event["pid"], event["tid"]) in tracks and event["pid"] in processes
            assert event["ts"] >= 0 and isinstance(event["cat"], str)
        if event["ph"] == "X":
            assert event["dur"] >= 0
        if event["ph"] == "i":
            assert event["s"] in "gpt"
        if event["ph"] == "f":
            assert event["bp"] == "e"


def test_slices_of_a_track_lie_within_each_other_or_apart(
    runs: dict[str, Run], kind: str, tmp_path: Path
) -> None:
    _, events = traced(runs[kind], tmp_path)
    for of in slices(events).values():
        around: list[int] = []
        for begin, end, event in sorted(of, key=lambda each: (each[0], -each[1])):
            while around and around[-1] <= begin:
                around.pop()
            assert not around or end <= around[-1], event
            around.append(end)


def test_arrows_join_slices_that_are_there_and_never_go_back(
    runs: dict[str, Run], kind: str, tmp_path: Path
) -> None:
    _, events = traced(runs[kind], tmp_path)
    of = slices(events)
    ends: dict[int, dict[str, int]] = defaultdict(dict)
    for event in events:
        if event["ph"] in "sf":
            at = ns(event["ts"])
            assert any(begin <= at <= end for begin, end, _ in of[event["pid"], event["tid"]]), event
            ends[event["id"]][event["ph"]] = at
    assert ends, "nobody waited or asked"
    assert all(set(pair) == {"s", "f"} and pair["s"] <= pair["f"] for pair in ends.values())


def test_durations_add_up_to_what_the_tables_say(runs: dict[str, Run], kind: str, tmp_path: Path) -> None:
    """Of every agent and part of a step the sum, to the nanosecond; so of operations at servers and peers."""
    run = runs[kind]
    _, events = traced(run, tmp_path)
    shown: dict[tuple[int, str], int] = defaultdict(int)
    for (process, _), of in slices(events).items():
        for begin, end, event in of:
            if event["cat"] in ("part", "step", "message"):
                shown[process - 2, event["cat"] if event["cat"] == "step" else event["name"]] += end - begin
    expected: dict[tuple[int, str], int] = defaultdict(int)
    names = {f"{part}_time": part for part in PARTS} | {"step_time": "step"}
    for row in run.tables()["samples"].to_pylist():
        if row["metric"] in names and row["phase"] == "train":
            expected[row["rank"], names[row["metric"]]] += round(row["value"] * 1e9)
    for row in run.tables()["events"].to_pylist():
        if row["duration"] is not None and "number" in json.loads(row["detail"]) and row["step"] <= 5:
            expected[row["rank"], row["name"]] += round(row["duration"] * 1e9)
    assert {key: value for key, value in shown.items() if value} == {
        key: value for key, value in expected.items() if value
    }


def test_the_others_wait_for_the_slow_agent(runs: dict[str, Run], tmp_path: Path) -> None:
    """On the virtual clock it enters 2 ms after them: they wait as long in every step, and it for nobody."""
    _, events = traced(runs["synchronous"], tmp_path)
    waits = [event for event in events if event["ph"] == "X" and event["cat"] == "wait"]
    assert len(waits) == 6 * 2
    assert {event["pid"] - 2 for event in waits} == {0, 2}
    assert {event["name"] for event in waits} == {"wait for agent 1"}
    assert {ns(event["dur"]) for event in waits} == {2_000_000}
    arrows = [event for event in events if event["ph"] == "s"]
    assert len(arrows) == 12 and {event["pid"] - 2 for event in arrows} == {1}


def test_on_a_ring_nobody_waits_for_who_is_no_neighbour(runs: dict[str, Run], tmp_path: Path) -> None:
    """Agent 1's neighbours are 0 and 2; 3 and 4 hear of it later, by them."""
    _, events = traced(runs["ring"], tmp_path)
    waits = [event for event in events if event["ph"] == "X" and event["cat"] == "wait"]
    for event in waits:
        rank = event["pid"] - 2
        assert event["args"]["behind"] in {(rank - 1) % 5, (rank + 1) % 5}
    first = {event["pid"] - 2: event["args"]["behind"] for event in waits if ns(event["ts"]) < 2_000_000}
    assert first == {0: 1, 2: 1}


@pytest.mark.parametrize("kind", ["servers", "synchronous servers"])
def test_servers_serve_in_the_recorded_order_while_agents_wait_for_them(
    runs: dict[str, Run], kind: str, tmp_path: Path
) -> None:
    """Every request lies within its agent's operation, and the turns are those of the events table."""
    run = runs[kind]
    _, events = traced(run, tmp_path)
    recorded: dict[int, dict[int, int]] = defaultdict(dict)
    for row in run.tables()["events"].to_pylist():
        detail = json.loads(row["detail"])
        for shard, order in enumerate(detail.get("orders", ())):
            recorded[shard][order] = row["rank"]
    processes = named(events, "process_name")
    servers = sorted(number for number, name in processes.items() if "shard=" in name)
    assert [processes[number] for number in servers] == [
        f"ParameterServer(shard={shard})" for shard in range(len(servers))
    ]
    of = slices(events)
    operations = {
        rank: sorted((begin, end) for begin, end, event in of[rank + 2, 5] if event["cat"] == "message")
        for rank in range(3)
    }
    for shard, number in enumerate(servers):
        served = of[number, 1]
        turns = [recorded[shard][order] for order in sorted(recorded[shard])]
        assert [event["args"]["rank"] for _, _, event in served] == turns
        place: dict[int, int] = defaultdict(int)
        for begin, end, event in served:
            rank = event["args"]["rank"]
            low, high = operations[rank][place[rank]]
            assert low <= begin <= end <= high
            place[rank] += 1


def test_who_waits_at_a_synchronous_server_is_shown(runs: dict[str, Run], tmp_path: Path) -> None:
    """The quick agents' pushes wait there for the slow one's: about the 2 ms that it computes longer."""
    _, events = traced(runs["synchronous servers"], tmp_path)
    waits = [event for event in events if event["ph"] == "X" and event["cat"] == "wait"]
    assert {event["pid"] - 2 for event in waits} == {0, 2}
    assert all(abs(ns(event["dur"]) - 2_000_000) < 100_000 for event in waits)


def test_an_average_is_seen_in_the_window_of_the_other(runs: dict[str, Run], tmp_path: Path) -> None:
    _, events = traced(runs["pairs"], tmp_path)
    windows = {track for track, name in named(events, "thread_name").items() if name.startswith("window")}
    reached = [event for track in windows for _, _, event in slices(events)[track]]
    asked = [event for event in events if event["ph"] == "X" and event["name"] == "average"]
    assert len(reached) == len(asked) == 4 * 6
    assert all(event["args"]["rank"] != event["pid"] - 2 for event in reached)


def test_every_letter_goes_from_its_post_to_who_collected_it(runs: dict[str, Run], tmp_path: Path) -> None:
    """As many arrows as letters that were collected in these steps, from the sender to the receiver."""
    run = runs["letters"]
    _, events = traced(run, tmp_path)
    rows = run.tables()["events"].to_pylist()
    letters: dict[str, set[tuple[int, int, int]]] = {"post": set(), "collect": set()}
    for row in rows:
        if row["name"] in letters and row["step"] <= 5:
            for other, number in json.loads(row["detail"])["letters"]:
                ends = (row["rank"], other) if row["name"] == "post" else (other, row["rank"])
                letters[row["name"]].add((*ends, number))
    arrows = [(event["pid"] - 2, event["ph"]) for event in events if event["ph"] in "sf"]
    both = letters["post"] & letters["collect"]
    assert len(arrows) == 2 * len(both) > 0
    assert sorted(rank for rank, phase in arrows if phase == "s") == sorted(source for source, _, _ in both)
    assert sorted(rank for rank, phase in arrows if phase == "f") == sorted(other for _, other, _ in both)


def test_only_the_steps_that_are_asked_for_are_written(runs: dict[str, Run], tmp_path: Path) -> None:
    written, events = traced(runs["synchronous"], tmp_path, first=2, most=3)
    assert written == Written(first=2, last=4, low=0, high=5, events=len(events))
    steps = {event["args"]["step"] for event in events if event.get("cat") == "step"}
    assert steps == {2, 3, 4} and min(event["ts"] for event in events if "ts" in event) == 0
    assert traced(runs["synchronous"], tmp_path, first=1, last=1)[0].last == 1
    assert traced(runs["synchronous"], tmp_path, most=0)[0].last == 5


def test_the_same_run_gives_the_same_bytes_also_compressed(runs: dict[str, Run], tmp_path: Path) -> None:
    files = [tmp_path / name for name in ("a.json.gz", "b.json.gz", "c.json")]
    for file in files:
        write(runs["servers"], file)
    first, second, plain = (file.read_bytes() for file in files)
    assert first == second and gzip.decompress(first) == plain
    assert sorted(tmp_path.iterdir()) == sorted(files)


@pytest.mark.parametrize(
    ("bounds", "message"),
    [
        ({"first": 6}, "has the steps 0 to 5"),
        ({"first": 3, "last": 1}, "no step in --from 3 --to 1"),
        ({"first": -1}, "--from is -1"),
        ({"most": -5}, "--steps is -5"),
    ],
)
def test_steps_that_are_not_there_are_an_error(
    runs: dict[str, Run], bounds: dict[str, int], message: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigurationError, match=message):
        write(runs["synchronous"], tmp_path / "trace.json", **bounds)
    assert not list(tmp_path.iterdir())


def test_a_place_that_cannot_be_written_is_an_error(runs: dict[str, Run], tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"cannot be written .* --output"):
        write(runs["synchronous"], tmp_path / "missing" / "trace.json")


class Hand:
    """A run written by hand: every agent has a node, and a monotonic clock of its own."""

    def __init__(self, root: Path, **row: Any) -> None:
        self.writer = RunWriter(root, "hand")
        self.writer.open({"agents": 2, "started": datetime.now(UTC), "experiment": "{}"} | row)
        self.now = 0

    def recorder(self, rank: int, node: str, shift: int) -> RowRecorder:
        """shift: what this node's monotonic clock is ahead of the wall."""
        return RowRecorder(
            run_id="hand", agent=f"TrainingAgent(rank={rank})", rank=rank, node=node,
            send=self.writer.append, send_events=self.writer.append_events,
            now=lambda: self.now + shift, wall_minus_mono=-shift,
        )  # fmt: skip

    def close(self) -> Run:
        self.writer.close()
        return Run(self.writer.folder)


def test_nodes_whose_clocks_began_at_different_times_are_shown_at_the_same(tmp_path: Path) -> None:
    """Two steps that ended together end together in the picture; what failed without a step is there too."""
    hand = Hand(tmp_path)
    hand.now = 5_000_000_000
    for rank, node, shift in ((0, "a", 0), (1, "b", 77_000_000_000)):
        recorder = hand.recorder(rank, node, shift)
        recorder.record("step_time", 0.002, step=0, phase="train")
        recorder.record("loss", math.nan, step=0, phase="train")
        if rank:
            recorder.event("nan_loss", step=1, reason="<script>alert(1)</script>" * 200)
        recorder.flush()
    _, events = traced(hand.close(), tmp_path)
    steps = [event for event in events if event.get("cat") == "step"]
    assert [(ns(event["ts"]), ns(event["dur"])) for event in steps] == [(0, 2_000_000)] * 2
    assert [event["args"]["loss"] for event in steps] == ["nan", "nan"]
    (failure,) = [event for event in events if event["name"] == "nan_loss"]
    assert failure["ph"] == "i" and len(failure["args"]["told"]) <= 2000


def test_a_run_that_goes_on_or_died_is_shown_as_far_as_it_is_stored(tmp_path: Path) -> None:
    hand = Hand(tmp_path)
    recorder = hand.recorder(0, "a", 0)
    for step in range(3):
        hand.now = 10_000_000 * (step + 1)
        recorder.record("step_time", 0.002, step=step, phase="train")
    recorder.flush()
    assert traced(Run(hand.writer.folder), tmp_path)[0].last == 2
    stream = hand.writer.folder / "samples.arrows"
    hand.writer.leave()
    stream.write_bytes(stream.read_bytes() + b"half a batch")
    assert traced(Run(hand.writer.folder), tmp_path)[0].last == 2


def test_a_run_without_steps_has_no_timeline(tmp_path: Path) -> None:
    hand = Hand(tmp_path)
    with pytest.raises(ConfigurationError, match="has no step of an agent"):
        write(hand.close(), tmp_path / "trace.json")


def test_exchanges_that_run_beside_the_computation_have_a_track_of_their_own(tmp_path: Path) -> None:
    """Parts that take 5 ms in a step of 4: the exchange is drawn beside, as long as it took."""
    hand = Hand(tmp_path)
    recorder = hand.recorder(0, "a", 0)
    hand.now = 4_000_000
    for name, seconds in (("step", 4e-3), ("forward", 1e-3), ("backward", 2e-3), ("exchange", 2e-3)):
        recorder.record(f"{name}_time", seconds, step=0, phase="train")
    recorder.flush()
    _, events = traced(hand.close(), tmp_path)
    tracks = named(events, "thread_name")
    (beside,) = [track for track, name in tracks.items() if name.startswith("exchanges beside")]
    assert [(begin, end) for begin, end, _ in slices(events)[beside]] == [(2_000_000, 4_000_000)]


def test_clocks_of_a_node_keep_the_order_that_its_clock_gave() -> None:
    """Three recorders of a node saw its clock up to 9 ns apart: the median of them counts for all."""
    clocks = Clocks([RecorderClock(rank, "", 0, "a", 1000 + shift) for rank, shift in enumerate((0, 9, 4))])
    assert clocks.common(5, "a") == 1009 and clocks.of_event(7, 1009) == 1011


@pytest.mark.parametrize(
    "topology",
    [
        d5.topologies.Ring(6),
        d5.topologies.Torus(2, 3),
        d5.topologies.Exponential(4),
        d5.topologies.OnePeerExponential(4),
        d5.topologies.Star(4),
    ],
)
def test_a_topology_is_made_again_of_its_description(topology: d5.Topology) -> None:
    described = d5.Experiment.from_values(**{**BASE, "topology": topology, "slow": ()}).describe()["topology"]
    again = topology_of(described)
    assert again is not None
    for step in range(3):
        assert [again.in_neighbors(rank, step) for rank in range(again.agents)] == [
            topology.in_neighbors(rank, step) for rank in range(topology.agents)
        ]


@pytest.mark.parametrize(
    "described",
    [None, {"class": "os.system", "command": "true"}, {"class": "MyRing#1", "agents": 3},
     {"class": "d5ray.distributed.topology.Ring", "agents": {}},
     {"class": "d5ray.distributed.nothing.Ring"}],
)  # fmt: skip
def test_a_description_that_is_none_of_ours_makes_nothing(described: object) -> None:
    assert topology_of(described) is None
