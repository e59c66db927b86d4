"""`d5ray dashboard grafana`, and what a real Prometheus finds by it: every panel has data, alerts fire"""

import json
import math
import platform
import re
import shutil
import signal
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import ray

import d5ray as d5
from d5ray.actors.calls import get
from d5ray.actors.executors.operator_executor import OperatorExecutor
from d5ray.actors.metrics.exporter import MetricsExporter
from d5ray.actors.remote import spawned
from d5ray.actors.session import session
from d5ray.dashboards.grafana import grafana
from d5ray.distributed import network_cost
from d5ray.metrics.exports import exported_metrics as m
from d5ray.metrics.record.recorder import Recorder
from d5ray.ops.deepbench import problems
from tests.conftest import Head, d5ray, free_port, wait_until
from tests.dashboards.grafana.boards import queries
from tests.patience import patience

BOARDS = grafana.dashboards()  # by file name
PROMETHEUS = shutil.which("prometheus")
SECONDS = 90.0  # in which all series must have come


class Prometheus:
    """A real one, on loopback, asked by its HTTP interface."""

    def __init__(self, url: str) -> None:
        self.url = url

    def ask(self, query: str) -> list[dict[str, Any]]:
        """The series that a query gives now; fails where Prometheus refuses it."""
        answer = self._get(f"query?query={urllib.parse.quote(query)}")
        assert answer["status"] == "success", (query, answer)
        found: list[dict[str, Any]] = answer["data"]["result"]
        return found

    def value(self, query: str) -> float | None:
        """Of the one series that a query gives; None where there is none yet."""
        found = self.ask(query)
        assert len(found) <= 1, (query, found)
        return float(found[0]["value"][1]) if found else None

    def choices(self, query: str) -> list[str]:
        """What a variable of Grafana's offers whose query is label_values(series, label)."""
        series, label = re.fullmatch(r"label_values\((.*), (\w+)\)", query).groups()  # type: ignore[union-attr]
        answer = self._get(f"label/{label}/values?match[]={urllib.parse.quote(series)}")
        assert answer["status"] == "success", (query, answer)
        found: list[str] = answer["data"]
        return found

    def firing(self) -> dict[str, str]:
        """The alerts that fire now, with their run."""
        found = self._get("alerts")["data"]["alerts"]
        return {
            each["labels"]["alertname"]: each["labels"]["run"] for each in found if each["state"] == "firing"
        }

    def _get(self, path: str) -> Any:
        try:
            with urllib.request.urlopen(f"{self.url}/api/v1/{path}", timeout=patience(10)) as answer:
                return json.loads(answer.read())
        except urllib.error.HTTPError as error:
            return json.loads(error.read())


@pytest.fixture(scope="module")
def prometheus(head: Head, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """Started with the settings that the command wrote, scraping every second; ended with the module."""
    if PROMETHEUS is None:
        pytest.skip("prometheus is missing: make tools")
    done = d5ray("dashboard", "grafana", "--address", head.address, "--json")
    assert done.code == 0, done.err
    settings = Path(done.json["settings"])
    quick = settings.with_name("quick.yml")
    quick.write_text(settings.read_text().replace("interval: 10s", "interval: 1s"))
    port, data = free_port(), tmp_path_factory.mktemp("prometheus")
    process = subprocess.Popen(
        [
            PROMETHEUS, f"--config.file={quick}", f"--storage.tsdb.path={data}",
            f"--web.listen-address=127.0.0.1:{port}", "--log.level=error",
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        url = f"http://127.0.0.1:{port}"
        wait_until(lambda: _ready(url), 30)
        yield Prometheus(url)
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(timeout=patience(20))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _ready(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/-/ready", timeout=patience(2)) as answer:
            return int(answer.status) == 200
    except OSError:
        return False


@pytest.fixture(autouse=True)
def ray_ends() -> Iterator[None]:
    yield
    d5.shutdown()


class Norm(d5.Event):
    """A metric of the user's own."""

    def after_step(self, moment: d5.events.Moment) -> None:
        moment.record("gradient_norm", float(moment.executor.gradients.norm()))


def experiment(**changes: Any) -> d5.Experiment:
    values: dict[str, Any] = {
        "model": "mlp", "dataset": "digits", "optimizer": d5.optimizers.SGD(0.01), "agents": 2,
        "batch_size": 16,
        "cpus_per_agent": 0.25, "monitor_seconds": 0, "events": (Norm(),), "mirror_seconds": 0.5,
    }  # fmt: skip
    return d5.Experiment(**(values | changes))


def until_nothing(missing: Callable[[], object], *doing: Callable[[], object]) -> None:
    """Do these until nothing is missing any more, for `SECONDS` at most."""
    deadline = time.monotonic() + patience(SECONDS)
    while left := missing():
        assert time.monotonic() < deadline, left
        for act in doing:
            act()
        time.sleep(0.1)


class Queries:
    """All queries of all panels, until each has had data."""

    def __init__(self, prometheus: Prometheus) -> None:
        self._prometheus = prometheus
        self.left = {query.replace("[1m]", "[15s]") for board in BOARDS.values() for query in queries(board)}

    def ask(self) -> None:
        self.left = {query for query in self.left if not self._prometheus.ask(query)}

    def of(self, *metrics: m.ExportedMetric) -> set[str]:
        """Those that are left and need one of these metrics."""
        return {query for query in self.left if any(each.exposed in query for each in metrics)}


OF_SERVERS = (
    m.REQUESTS, m.WAITING, m.STALENESS, m.CLOCK_GAP, m.SERVER_QUEUE, m.PUSHES, m.PULLS, m.VERSION,
    m.WAIT_SECONDS, m.CONSENSUS_DISTANCE, m.BUSY_SECONDS,
)  # fmt: skip


@pytest.mark.slow
def test_every_query_of_every_panel_has_data_and_alerts_fire_for_what_happened(
    head: Head, prometheus: Prometheus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A training with allreduce, operators, one with servers in which an agent is killed, a loss of NaN.

    Counters come to the sums of the record.
    """
    queries = Queries(prometheus)
    monkeypatch.setenv("D5RAY_HOME", str(tmp_path))  # what is known of the network is kept there
    host = platform.node()
    network_cost.keep(
        [network_cost.LinkCost(name, 1e-5, 1e-9, (host, host), "") for name in ("shared_memory", "socket")]
    )
    session.connect(head.address, cpus=1, metadata={}, quiet=True)
    given = (
        "numpy",
        "cpu",
        1,
        "bench-1",
        0,
        0,
        1,
        MetricsExporter("bench-1", "bench", m.EXECUTOR, "numpy", 0.5),
    )
    product = problems.gemm(64, 64, 64, "NN", "float32")
    with (
        spawned(OperatorExecutor, [given], cpus=0.0) as (executor,),
        d5.launch(experiment(), address=head.address, quiet=True) as group,
    ):
        get([executor.prepare.remote()], 60, "import NumPy")
        until_nothing(
            lambda: queries.left - queries.of(*OF_SERVERS),
            lambda: group.train(steps=100, progress=False),
            lambda: get([executor.measure.remote(product, 0.1, 1.0)], 60, "measure"),
            queries.ask,
        )
        assert prometheus.firing() == {}
        offered = {"recipe": {"experiment"}, "run": {group.run_id, "bench-1"}, "rank": {"0", "1"}}
        for board in BOARDS.values():
            for variable in board["templating"]["list"][1:]:  # the first is the Prometheus
                query = re.sub(r'=~"\$\w+"', '=~".*"', variable["query"]["query"])
                assert offered[variable["name"]] <= set(prometheus.choices(query))
        record = (
            group.metrics().to_pandas().query("rank == 1").groupby("metric", observed=True)["value"].sum()
        )
        sums = {m.STEP_SECONDS: record["step_time"], m.SENT_BYTES: record["bytes_sent"]}
        named = f'{{run="{group.run_id}",rank="1"}}'

        def other() -> dict[str, tuple[float, float | None]]:
            shown = {each: prometheus.value(each.exposed + named) for each in sums}
            return {
                each.name: (sums[each], value)
                for each, value in shown.items()
                if value != pytest.approx(sums[each], rel=1e-9)
            }

        until_nothing(other)
    servers = experiment(
        distributed=d5.optimizers.ASGD(), servers=d5.Servers(shards=2), on_failure="continue"
    )
    with d5.launch(servers, address=head.address, quiet=True) as group:
        until_nothing(lambda: queries.left, lambda: group.train(steps=100, progress=False), queries.ask)
        assert prometheus.firing() == {}
        ray.kill(group.agents[1])
        ill = MetricsExporter("ill", "x", m.AGENT, 3, 0.5)
        ill.start()
        recorder = Recorder(run_id="ill", agent="a", rank=3, node="n", send=ill.watched(lambda _: None))
        recorder.record("loss", math.nan)
        recorder.flush()
        group.train(steps=100, progress=False)
        expected = {"D5rayPeerLost": group.run_id, "D5rayLossNotANumber": "ill"}
        until_nothing(lambda: expected.items() ^ prometheus.firing().items())
        ill.close()


# -- the command -----------------------------------------------------------------------------------------


@pytest.mark.full
def test_it_writes_where_the_grafana_of_ray_looks(head: Head) -> None:
    """Beside Ray's own dashboards, in the folder that its provisioning names."""
    done = d5ray("dashboard", "grafana", "--address", head.address, "--json")
    assert done.code == 0, done.err
    session = (head.folder / "session_latest").resolve()
    folder = session / "metrics" / "grafana" / "dashboards"
    assert [Path(path) for path in done.json["dashboards"]] == [folder / name for name in BOARDS]
    assert (folder / "default_grafana_dashboard.json").is_file()
    provided = session / "metrics" / "grafana" / "provisioning" / "dashboards" / "default.yml"
    assert str(folder) in provided.read_text()
    settings = Path(done.json["settings"]).read_text()
    assert str(session / "prom_metrics_service_discovery.json") in settings
    assert done.json["alerts"] in settings
    assert done.left() == []


@pytest.mark.full
def test_it_goes_by_the_folder_that_ray_was_told(head: Head, tmp_path: Path) -> None:
    """The variable that makes dashboards survive a restart of Ray."""
    told = tmp_path / "kept"
    env = {"RAY_METRICS_GRAFANA_DASHBOARD_OUTPUT_DIR": str(told)}
    done = d5ray("dashboard", "grafana", "--address", head.address, env=env)
    assert done.code == 0, done.err
    assert {path.name for path in told.iterdir()} == set(BOARDS)


def test_with_a_folder_it_needs_no_ray(tmp_path: Path) -> None:
    """Everything in one folder, and lines that say how to go on."""
    done = d5ray("dashboard", "grafana", "--output", "here/there", cwd=tmp_path)
    assert done.code == 0, done.err
    folder = tmp_path / "here" / "there"
    assert {path.name for path in folder.iterdir()} == {
        *BOARDS, "d5ray_alerts.yml", "prometheus.yml",
    }  # fmt: skip
    assert f"prometheus --config.file={folder}/prometheus.yml" in done.out


def test_a_folder_that_cannot_be_written_is_said() -> None:
    """With what to do, and the exit code of an error."""
    done = d5ray("dashboard", "grafana", "--output", "/proc/nowhere")
    assert (done.code, done.out) == (3, "")
    assert "/proc/nowhere cannot be written" in done.err and "name another folder with --output" in done.err
