"""A run that is going on, asked through its aggregator and by Arrow Flight, against its own tables"""

import json
import os
import platform
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc
import pytest

import d5ray as d5
from d5ray.errors import ConfigurationError, D5Error, StorageError
from d5ray.metrics.record.liveness import start_of
from tests.conftest import d5ray, free_port
from tests.metrics.small_runs import finished, written
from tests.patience import patience

MEDIANS = "SELECT metric, median(value) AS m, count(*) AS n FROM samples GROUP BY metric ORDER BY metric"
SLOW = "SELECT count(*) FROM range(1000000) a, range(1000000) b, range(1000000) c"


@pytest.fixture(scope="module")
def group() -> Iterator[Any]:
    """Two agents that have done some steps, and wait for more; a test may end them."""
    experiment = d5.Experiment(
        model="lenet", dataset="digits", optimizer=d5.optimizers.SGD(0.05), agents=2, batch_size=24, seed=3,
        cpus_per_agent=0.25, evaluate=False, recording=d5.metrics.Recording(monitor_seconds=0),
    )  # fmt: skip
    with d5.launch(experiment, flight="0", quiet=True) as group:
        group.train(steps=30, progress=False)
        yield group


def medians(group: Any) -> list[dict[str, Any]]:
    """NumPy's, of the tables that the aggregator gives as a whole."""
    samples = group.tables()["samples"]
    names, values = np.array(samples["metric"].to_pylist()), samples["value"].to_numpy()
    return [
        {"metric": name, "m": np.median(values[names == name]), "n": int((names == name).sum())}
        for name in sorted(set(names))
    ]


@pytest.mark.full
def test_the_aggregator_answers_what_the_tables_say(group: Any) -> None:
    """By the run's name, its beginning, and "last"; each statement sees what is there then."""
    run = d5.running(group.run_id)
    expected = medians(group)
    assert [row["n"] for row in expected] == [60] * len(expected)
    assert run.sql(MEDIANS).to_pylist() == expected
    assert d5.running("last").name == d5.running(group.run_id[:8]).name == group.run_id
    group.train(steps=10, progress=False)
    assert run.sql(MEDIANS).to_pylist() == medians(group)
    assert {row["n"] for row in run.sql(MEDIANS).to_pylist()} == {80}
    assert run.samples(metric="loss", rank=1, columns=["step"])["step"].to_pylist() == list(range(40))
    assert group.run_id in run._repr_html_()


@pytest.mark.full
def test_another_process_of_the_cluster_asks_it(group: Any) -> None:
    """A program that only knows the cluster's address and the run's name."""
    code = (
        "import d5ray as d5, json, sys; "
        "run = d5.running(sys.argv[1], sys.argv[2]); print(json.dumps(run.sql(sys.argv[3]).to_pylist())); "
        "d5.shutdown()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, group.run_id, group.session.address, MEDIANS],
        capture_output=True,
        text=True,
        timeout=patience(120),
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == medians(group)


@pytest.mark.full  # the question takes half of the machine for seconds
def test_a_question_does_not_hold_up_what_agents_send(group: Any) -> None:
    """Ten steps are trained and stored while a query takes seconds; then it is interrupted."""
    run, failed = d5.running(group.run_id), []

    def ask() -> None:
        try:
            run.sql(SLOW)
        except D5Error as error:
            failed.append(str(error))

    thread = threading.Thread(target=ask)
    thread.start()
    time.sleep(0.5)
    before = group.metrics().num_rows
    group.train(steps=10, progress=False)
    assert group.metrics().num_rows > before
    assert thread.is_alive()
    run.source.interrupt()
    thread.join(10)
    assert not thread.is_alive()
    assert failed == ["The query was interrupted"]


def test_a_wrong_question_is_one_clear_error(group: Any) -> None:
    """As it is on a folder; an answer is bounded; of a run that is not there the nearest is named."""
    for query, message in (
        ("copy samples to '/tmp/x.csv'", "COPY is refused"),
        ("select repeat('x', 1000000), range from range(200)", "larger than 64 MiB"),
    ):
        with pytest.raises(ConfigurationError, match=message):
            d5.running(group.run_id).sql(query)
    with pytest.raises(ConfigurationError, match=f"did you mean '{group.run_id}'"):
        d5.running(group.run_id[:-2] + "zz")


def test_the_run_answers_by_flight_until_it_ends(group: Any) -> None:
    """Its location and token are the group's and the folder's, for its owner alone, until the end."""
    kept = group.folder / "flight.json"
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert json.loads(kept.read_text()) == group.flight
    run = d5.Run(group.flight["location"], token=group.flight["token"])
    losses = len(group.tables()["samples"].filter(pc.field("metric") == "loss"))
    assert run.sql("select count(*) n from samples where metric = 'loss'")["n"].to_pylist() == [losses]
    assert losses >= 60
    again = d5.running(group.run_id).serve()
    assert again.sql("select status from runs")["status"].to_pylist() == ["running"]
    running = d5.running(group.run_id)
    group.close()
    assert not kept.exists()
    begin = time.monotonic()
    with pytest.raises(StorageError, match="the run may have ended"):
        run.sql("select 1")
    with pytest.raises(StorageError, match="has ended"):
        running.sql("select 1")
    assert time.monotonic() - begin < patience(5)  # another aggregator is not waited for


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("smell", "There is no run 'smell' in {root}: did you mean 'small'? (for a run of another machine"),
        ("small", "The run small is not going on, its status is completed ("),
        ("abc-1", "The run abc-1 has no Ray: it is a simulation"),
        pytest.param("abc", "no Ray answers at 127.0.0.1:{port} ", marks=pytest.mark.full),
        pytest.param("last", "no Ray answers at 127.0.0.1:{port} ", marks=pytest.mark.full),
    ],
)
def test_where_a_run_goes_on_its_folder_says(own_home: Path, name: str, told: str) -> None:
    """No Ray is asked for a run that is not going on; of the others, the one with an address is meant."""
    root, port = own_home / "runs", free_port()
    here: dict[str, Any] = {
        "status": "running", "host": platform.node(), "driver_pid": os.getpid(),
        "driver_start": start_of(os.getpid()),
    }  # fmt: skip
    began = {each: datetime(2026, 1, day, tzinfo=UTC) for day, each in enumerate(("small", *"123"), 1)}
    finished(root, "small", 1, started=began["small"])
    written(root, "abc-1", 2, started=began["1"], **here).leave()
    written(root, "abc-2", 3, started=began["2"], **here, ray_address=f"127.0.0.1:{port}").leave()
    finished(root, "abc-3", 4, started=began["3"], ray_address="127.0.0.1:1")
    done = d5ray("resize", name, "--agents", "1")
    assert done.code == 3 and told.format(root=root, port=port) in done.err, done


@pytest.mark.full
def test_an_address_that_cannot_be_served_is_said_before_anything_starts(home: Path) -> None:
    """And no folder of a run is made."""
    before = sorted((home / "runs").iterdir())
    experiment = d5.Experiment(model="lenet", dataset="digits", optimizer=d5.optimizers.SGD(0.05), agents=1)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        for bind, message in (("here", "give PORT, or HOST:PORT"), (str(port), "in use")):
            with pytest.raises(ConfigurationError, match=message):
                d5.launch(experiment, flight=bind)
    assert sorted((home / "runs").iterdir()) == before
