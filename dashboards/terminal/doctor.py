"""`d5ray doctor`: what is installed, what is missing for which feature, the machine, Ray."""

import os
import shutil
import sys
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import psutil

from d5ray.actors.session.session import reachable
from d5ray.dashboards.quantities import size
from d5ray.dashboards.terminal.installed import BAD, GOOD, WARN, Finding, packages, system
from d5ray.display.console import ConsoleTable, out, styled
from d5ray.errors import D5Error
from d5ray.metrics.probes.environment import capture
from d5ray.metrics.probes.node_meters import ControlGroup, Meter
from d5ray.metrics.probes.nvml import Nvml
from d5ray.metrics.probes.rapl import Rapl
from d5ray.metrics.record import store

PROGRAMS = {  # what shows runs beside d5ray's own pages
    "prometheus": "keeping what Ray shows of runs, and telling of those that stand still",
    "grafana": "the dashboards of d5ray dashboard grafana",
}
UNTRIED = (  # docs/guide/gpus.md says the same
    "no real GPU has run this version yet, tests did over a stand-in: `make test-gpu` in a checkout tells "
    "what works"
)
STYLES = {GOOD: "green", WARN: "yellow", BAD: "bold red"}


def examine(address: str | None) -> list[Finding]:
    """Look at everything; starts nothing."""
    facts = capture()
    found = [system(), *packages(_has_gpus(facts))]
    found += [_program(name, purpose) for name, purpose in PROGRAMS.items()]
    return [*found, *_machine(facts), *_sensors(), _home(), _ray(address)]


def _sensors() -> list[Finding]:
    """The sensors that a node's monitor can read here, and why it cannot read the rest."""
    meters: tuple[tuple[str, Meter], ...] = (
        ("energy of processors", Rapl()),
        ("use and energy of GPUs", Nvml()),
        ("peak memory of the control group", ControlGroup()),
    )
    found = []
    for topic, meter in meters:
        missing = [reading.status for reading in meter.read(0.0) if reading.value is None]
        found.append(Finding(topic, WARN if missing else GOOD, missing[0] if missing else "can be read"))
    return found


def network(address: str | None) -> list[Finding]:
    """Measure the network between two agents, and keep it: later runs predict their exchange by it."""
    from d5ray.actors.cluster.network_probe import measure_network  # noqa: PLC0415 - starts Ray

    return [
        Finding(
            f"network, {found.backend}",
            GOOD,
            f"{found.latency_seconds * 1e6:,.0f} µs a round of messages, {size(found.bytes_per_second)}/s, "
            f"between two agents on {' and '.join(dict.fromkeys(found.hosts))}",
        )
        for found in measure_network(address)
    ]


def healthy(findings: list[Finding]) -> bool:
    """True if everything that training needs was found."""
    return all(finding.state != BAD for finding in findings)


def show(findings: list[Finding]) -> None:
    """The findings as a table."""
    table = ConsoleTable(header=False)
    for finding in findings:
        text = finding.text + (f": {finding.advice}" if finding.advice else "")
        table.add_row(styled(finding.state, style=STYLES[finding.state]), finding.topic, text)
    out().print(table)


def as_data(findings: list[Finding]) -> list[dict[str, Any]]:
    """The findings for `--json`."""
    return [asdict(finding) for finding in findings]


def _program(name: str, purpose: str) -> Finding:
    if path := shutil.which(name):
        return Finding(name, GOOD, f"{path}, for {purpose}")
    return Finding(name, WARN, f"not installed, only needed for {purpose}")


def _machine(facts: Mapping[str, str]) -> list[Finding]:
    memory = psutil.virtual_memory()
    shm = psutil.disk_usage("/dev/shm") if os.path.isdir("/dev/shm") else None  # noqa: PTH112
    findings = [
        Finding("python", GOOD, facts["python"]),
        Finding("cores", GOOD, f"{facts['cores_usable']} usable, {facts['cpu_model']}"),
        Finding("memory", GOOD, f"{size(memory.available)} free of {size(memory.total)}"),
    ]
    if sys.platform != "linux":
        text = f"none, as this is {sys.platform}: agents exchange by sockets"
        findings.append(Finding("shared memory", WARN, text))
    elif shm is None or shm.free < 2e8:
        free = "none" if shm is None else size(shm.free)
        advice = "give the container more, for example docker run --shm-size=2g"
        findings.append(Finding("shared memory", WARN, f"{free} free in /dev/shm, Ray wants 200 MB", advice))
    else:
        findings.append(Finding("shared memory", GOOD, f"{size(shm.free)} free in /dev/shm"))
    there = _has_gpus(facts)
    text, advice = (facts["gpus"], UNTRIED) if there else ("none: everything runs on CPUs", "")
    return [*findings, Finding("GPUs", GOOD if there else WARN, text, advice)]


def _has_gpus(facts: Mapping[str, str]) -> bool:
    return facts["gpus"] != "none" and not facts["gpus"].startswith("unavailable")


def _home() -> Finding:
    home = store.home()
    try:
        store.check_writable(store.runs_root())
    except D5Error as error:
        return Finding("D5RAY_HOME", BAD, str(error))
    runs = store.list_runs()
    return Finding("D5RAY_HOME", GOOD, f"{home}, {len(runs)} runs")


def _ray(address: str | None) -> Finding:
    wanted = address or os.environ.get("RAY_ADDRESS")
    if not wanted or wanted == "local":
        return Finding("Ray", GOOD, "no cluster is named: every run starts an embedded Ray of its own")
    try:
        return Finding("Ray", GOOD, reachable(wanted))
    except D5Error as error:
        return Finding("Ray", BAD, str(error))
