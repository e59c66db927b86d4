"""The exporter on a real Ray: its metrics stay while the actor lives, count exactly, and hurt nobody"""

import json
import math
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator

import pytest
from prometheus_client.parser import text_string_to_metric_families

import d5ray as d5
from d5ray.actors.metrics.exporter import MetricsExporter, silent
from d5ray.actors.session import session
from d5ray.metrics.exports import exported_metrics as m
from d5ray.metrics.record.recorder import Recorder
from tests.conftest import Head, wait_until
from tests.patience import patience

FORGOTTEN = 2.0  # s, after which Ray forgets a gauge of this head


@pytest.fixture(scope="module")
def joined(head: Head) -> Iterator[Head]:
    """This process is a driver of the head."""
    d5.shutdown()  # that of tests before
    session.connect(head.address, cpus=1, metadata={}, quiet=True)
    yield head
    d5.shutdown()


def shown(head: Head, run: str) -> dict[str, float]:
    """What Ray shows of a run, as Prometheus would read it: by name."""
    targets = json.loads((head.folder / "prom_metrics_service_discovery.json").read_text())
    found = {}
    for address in targets[0]["targets"]:
        try:
            with urllib.request.urlopen(f"http://{address}/metrics", timeout=patience(10)) as answer:
                text = answer.read().decode()
        except urllib.error.URLError:  # it does not listen yet
            continue
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                if sample.labels.get("run") == run:
                    assert sample.labels["role"] == "agent"
                    assert (sample.labels["recipe"], sample.labels["rank"]) == ("lenet", "7")
                    found[sample.name] = sample.value
    return found


def exporter(run: str, seconds: float = 0.5) -> MetricsExporter:
    return MetricsExporter(run, "lenet", m.AGENT, 7, seconds)


def recorder(send: Callable[[object], object]) -> Recorder:
    return Recorder(run_id="r", agent="a", rank=7, node="n", send=send)


@pytest.mark.full
def test_a_gauge_stays_as_long_as_the_exporter_and_a_counter_is_exact(joined: Head) -> None:
    """Longer than Ray remembers one; rows, totals that are read, and what came before the last look count."""
    sent: list[object] = []
    steps = 5.0
    made = exporter("stays")
    made.start(lambda: {(m.TRAINING, ""): 1.0, (m.REQUESTS, ""): steps})
    recording = recorder(made.watched(sent.append))
    for value in (0.25, 0.5):
        recording.record("step_time", value)
        recording.flush()
    expected = {
        m.TRAINING.exposed: 1.0, m.REQUESTS.exposed: 5.0, m.STEPS.exposed: 2.0, m.STEP_SECONDS.exposed: 0.75,
        m.STEP_TIME.exposed: 0.375,
    }  # fmt: skip
    wait_until(lambda: shown(joined, "stays").keys() == expected.keys(), 20)
    end = time.monotonic() + 1.5 * FORGOTTEN
    while time.monotonic() < end:
        found = shown(joined, "stays")
        assert {name: found[name] for name in expected if name != m.STEP_TIME.exposed} == {
            name: value for name, value in expected.items() if name != m.STEP_TIME.exposed
        }
        assert 0.25 <= found[m.STEP_TIME.exposed] <= 0.5  # of one look or of two
        time.sleep(0.2)
    steps = 8.0
    recording.record("step_time", 1.0)
    recording.flush()
    made.close()
    assert len(sent) == 3
    totals = {m.REQUESTS.exposed: 8.0, m.STEPS.exposed: 3.0, m.STEP_SECONDS.exposed: 1.75}
    wait_until(lambda: shown(joined, "stays") == totals, 20, lambda: str(shown(joined, "stays")))


@pytest.mark.full
def test_what_goes_wrong_is_not_shown_and_the_rest_is(joined: Head) -> None:
    """A reading that raises once, rows that are no rows, a loss that is no number; counters never fall."""
    readings = iter([5.0, None, 3.0])

    def read() -> dict[tuple[m.ExportedMetric, str], float]:
        value = next(readings, 3.0)
        if value is None:
            raise RuntimeError("for once")
        return {(m.REQUESTS, ""): value}

    made = exporter("wrong", 0.2)
    made.start(read)
    send = made.watched(lambda _: None)
    send("no batch at all")
    recorder(send).record("loss", 1.0)
    recording = recorder(send)
    recording.record("loss", math.nan)
    recording.flush()
    expected = {m.REQUESTS.exposed: 8.0, m.LOSS_IS_NO_NUMBER.exposed: 1.0}  # 5, and 3 of one that began anew
    wait_until(lambda: shown(joined, "wrong") == expected, 20, lambda: str(shown(joined, "wrong")))
    made.close()


@pytest.mark.full
def test_it_can_be_turned_off(joined: Head) -> None:
    """By mirror_seconds=0: no thread, no row is kept, nothing is shown; the other run is."""
    before = threading.active_count()
    off, on = exporter("off", 0.0), exporter("on")
    off.start(lambda: {(m.TRAINING, ""): 1.0})
    assert threading.active_count() == before
    assert off.watched(print) is print
    on.start(lambda: {(m.TRAINING, ""): 1.0})
    wait_until(lambda: shown(joined, "on") != {}, 20)
    assert shown(joined, "off") == {}
    on.close()
    off.close()


def test_without_ray_there_is_nothing_to_show() -> None:
    """No thread, and what is sent is sent."""
    d5.shutdown()
    sent: list[object] = []
    for made in (exporter("none"), silent()):
        before = threading.active_count()
        made.start(lambda: {(m.TRAINING, ""): 1.0})
        assert threading.active_count() == before
        made.watched(sent.append)("a batch")
        made.close()
    assert sent == ["a batch", "a batch"]
