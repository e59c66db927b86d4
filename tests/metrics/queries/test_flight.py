"""The Flight server and its client: the same answers as the folder, the token, errors, bounds, an end"""

import json
import socket
import stat
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import flight

import d5ray as d5
from d5ray.errors import ConfigurationError, StorageError
from d5ray.metrics.queries.flight import AT_ONCE, FlightEndpoint
from d5ray.metrics.queries.locations import source_in
from d5ray.metrics.queries.source import Limits
from tests.metrics.small_runs import finished
from tests.patience import patience

FOREVER = "select count(*) from range(1000000) a, range(1000000) b, range(1000000) c"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of one finished run."""
    return finished(tmp_path_factory.mktemp("runs"), "r", seed=1)


@pytest.fixture(scope="module")
def endpoint(folder: Path) -> Iterator[FlightEndpoint]:
    """Its server, with a limit of a second."""
    limits = Limits(memory="1GB", seconds=1.0, threads=1)
    endpoint = FlightEndpoint(lambda: source_in(folder, limits), "0", folder).start()
    yield endpoint
    endpoint.stop()


@pytest.fixture
def run(endpoint: FlightEndpoint) -> Iterator[d5.Run]:
    """The run as another program has it."""
    run = d5.Run(endpoint.location, token=endpoint.token)
    yield run
    run.close()


def options(token: str) -> flight.FlightCallOptions:
    """What a client of any language sends along."""
    return flight.FlightCallOptions(
        headers=[(b"authorization", f"Bearer {token}".encode())], timeout=patience(20)
    )


@pytest.mark.parametrize(
    "query",
    [
        "select metric, median(value) m, count(*) n from samples group by 1 order by 1",
        "select * from samples order by seq",
        "select * from summary order by metric",
        "select * from samples where false",
        "describe runs",
    ],
)
def test_a_server_answers_as_the_folder_does(run: d5.Run, folder: Path, query: str) -> None:
    """Row by row, with the same types."""
    assert run.sql(query) == d5.Run(folder).sql(query)


def test_samples_summary_and_pages_come_over_the_wire(run: d5.Run, folder: Path) -> None:
    """All that a run on disk can be asked."""
    here = d5.Run(folder)
    assert run.samples(metric="loss", columns=["value"]) == here.samples(metric="loss", columns=["value"])
    assert run.summary() == here.summary()
    assert run.to_pandas().equals(here.to_pandas())
    assert "small" in run._repr_html_()


def test_other_clients_speak_plain_flight(endpoint: FlightEndpoint, folder: Path) -> None:
    """Tickets of SQL and of tables, the list of tables, the schema of a query."""
    with flight.connect(endpoint.location) as client:
        known = options(endpoint.token)
        got = client.do_get(flight.Ticket(json.dumps({"table": "samples"}).encode()), known).read_all()
        assert got.num_rows == 400
        names = [json.loads(each.descriptor.command)["table"] for each in client.list_flights(options=known)]
        assert names == ["samples", "runs", "metrics", "environment", "events", "verdicts", "summary"]
        command = flight.FlightDescriptor.for_command(b'{"sql": "select 1 as a"}')
        assert client.get_flight_info(command, known).schema.names == ["a"]
        for ticket, message in (
            (b"nonsense", "A ticket is"),
            (b'{"table": "sample"}', "did you mean 'samples'"),
            (b'{"table": "samples; drop"}', "There is no table"),
            (b'{"sql": 3}', "A ticket is"),
            (b'{"sql": "copy samples to \'/tmp/x\'"}', "COPY is refused"),
        ):
            with pytest.raises(flight.FlightServerError, match=message):
                client.do_get(flight.Ticket(ticket), known).read_all()


def test_without_the_token_nothing_is_told(endpoint: FlightEndpoint, folder: Path) -> None:
    """By any call; the token is random, and in a file that only its owner reads."""
    kept = folder / "flight.json"
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert json.loads(kept.read_text()) == {"location": endpoint.location, "token": endpoint.token}
    assert len(endpoint.token) >= 32
    with flight.connect(endpoint.location) as client:
        for token in ("", "x", endpoint.token[:-1], endpoint.token + "x"):
            for call in (
                lambda known: client.do_get(flight.Ticket(b'{"sql": "select 1"}'), known).read_all(),
                lambda known: list(client.list_flights(options=known)),
                lambda known: client.get_flight_info(
                    flight.FlightDescriptor.for_command(b'{"sql": "select 1"}'), known
                ),
            ):
                with pytest.raises(flight.FlightUnauthenticatedError):
                    call(options(token))
    with pytest.raises(ConfigurationError, match="refuses the token: give the one that this server printed"):
        d5.Run(endpoint.location, token="wrong").sql("select 1")
    with pytest.raises(ConfigurationError, match=r"needs its token: .* flight\.json"):
        d5.Run(endpoint.location).sql("select 1")


def test_errors_are_those_of_the_query(run: d5.Run) -> None:
    """With DuckDB's place; what takes too long is ended; the next query works."""
    with pytest.raises(ConfigurationError, match="LINE 1: select nothing"):
        run.sql("select nothing from samples")
    begin = time.monotonic()
    with pytest.raises(ConfigurationError, match="ended after 1 s"):
        run.sql(FOREVER)
    assert time.monotonic() - begin < patience(5)
    assert len(run.sql("select 1")) == 1


def test_a_client_that_stops_reading_leaves_nothing_behind(run: d5.Run) -> None:
    """More often than the server has places for queries."""
    for _ in range(2 * AT_ONCE + 1):
        with run.ask("select a.value from samples a, samples b, range(50)") as answer:
            assert next(answer.batches).num_rows > 0
    assert len(run.sql("select * from samples")) == 400


@pytest.mark.full
def test_a_query_whose_client_has_gone_is_ended(folder: Path) -> None:
    """Long before its own limit: all places are taken by clients that give up, and the next one is served."""
    limits = Limits(memory="1GB", seconds=120.0, threads=1)
    endpoint = FlightEndpoint(lambda: source_in(folder, limits), "0").start()
    try:
        client = flight.connect(endpoint.location)
        header = [(b"authorization", f"Bearer {endpoint.token}".encode())]
        ticket = flight.Ticket(json.dumps({"sql": FOREVER}).encode())
        for _ in range(AT_ONCE):
            with pytest.raises(flight.FlightTimedOutError):
                client.do_get(ticket, flight.FlightCallOptions(headers=header, timeout=1.0)).read_all()
        begin = time.monotonic()
        with d5.Run(endpoint.location, token=endpoint.token).ask("select 1 as one") as answer:
            assert answer.table().to_pylist() == [{"one": 1}]
        assert time.monotonic() - begin < patience(8.0)
    finally:
        endpoint.stop()


def test_more_queries_than_places_wait_for_their_turn(endpoint: FlightEndpoint) -> None:
    """And all are answered."""
    found: list[int] = []

    def ask() -> None:
        own = d5.Run(endpoint.location, token=endpoint.token)
        found.append(own.sql("select count(*) n, sleep_ms(100) from samples group by all")["n"][0].as_py())

    threads = [threading.Thread(target=ask) for _ in range(3 * AT_ONCE)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert found == [400] * 3 * AT_ONCE


def test_the_end_of_a_server_is_bounded_and_said(folder: Path) -> None:
    """A query that runs and a client that does not read on are cut off."""
    endpoint = FlightEndpoint(lambda: source_in(folder), "0").start()
    run, failed = d5.Run(endpoint.location, token=endpoint.token), []

    def ask() -> None:
        try:
            run.sql(FOREVER)
        except (ConfigurationError, StorageError) as error:
            failed.append(str(error))

    thread = threading.Thread(target=ask)
    thread.start()
    time.sleep(0.3)
    begin = time.monotonic()
    endpoint.stop()
    endpoint.stop()
    thread.join(10)
    assert time.monotonic() - begin < patience(8)
    assert failed == ["The query was interrupted"]
    with pytest.raises(StorageError, match=r"nothing answers at .* the run may have ended"):
        run.sql("select 1")


def test_an_address_that_is_taken_is_said(folder: Path) -> None:
    """Before anything is started."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        for bind, message in (
            (str(taken.getsockname()[1]), "in use.*port 0"),
            ("203.0.113.1:0", "nothing can be served at 203"),
            ("80000", "give PORT, or HOST:PORT"),
            ("x:y", "give PORT, or HOST:PORT"),
        ):
            with pytest.raises(ConfigurationError, match=message):
                FlightEndpoint(lambda: source_in(folder), bind)


def test_batches_come_as_they_are_made(run: d5.Run) -> None:
    """A result of many rows is not gathered before the first of them is there."""
    with run.ask("select a.value from samples a, samples b, range(100)") as answer:
        assert isinstance(next(answer.batches), pa.RecordBatch)
