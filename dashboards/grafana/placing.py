"""Folders for dashboards and alerts: one that the user names, or where the Grafana of a running Ray looks"""

import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from d5ray.dashboards.grafana import grafana
from d5ray.errors import ConfigurationError, PlacementError, StorageError

OF_GRAFANA: Final = "RAY_METRICS_GRAFANA_DASHBOARD_OUTPUT_DIR"  # where Ray was told to write its own
DISCOVERY: Final = "prom_metrics_service_discovery.json"  # which Ray writes: where its nodes answer
USUAL: Final = Path("/tmp/ray") / DISCOVERY  # of the last Ray that was started here
FOLDER: Final = Path(__file__).parent
ALERTS: Final = "d5ray_alerts.yml"
SETTINGS: Final = """\
global: {{scrape_interval: 10s, evaluation_interval: 10s}}
rule_files: [{alerts}]
scrape_configs:
- job_name: ray
  file_sd_configs: [{{files: [{discovery}]}}]
"""


@dataclass(frozen=True)
class Placed:
    """The files that were written. settings: with which Prometheus starts; grafana: Ray's own of Grafana."""

    dashboards: list[Path]
    alerts: Path
    settings: Path
    grafana: Path | None = None

    @property
    def lines(self) -> list[str]:
        """The next steps for the user, a line each."""
        start = f"prometheus --config.file={self.settings}"
        if shutil.which("prometheus") is None:
            start += "    (not installed here: Debian's package prometheus)"
        load = f"or add {self.alerts} to `rule_files` of a Prometheus that runs, and reload it"
        if self.grafana is None:
            return [start, load, f"let Grafana load {self.dashboards[0].parent} (a provider of type file)"]
        show = f"grafana server --config {self.grafana} --homepath /usr/share/grafana"
        if shutil.which("grafana") is None:
            show += "    (not installed here)"
        return [start, load, show]


def place(output: Path | None, address: str | None) -> Placed:
    """Write dashboards, alerts and settings of Prometheus into this folder, or into those of a running Ray.

    address: the Ray, by default RAY_ADDRESS, otherwise the one that runs here. Raises `PlacementError` where
    it does not answer, `ConfigurationError` where its folders are on another machine, `StorageError` where
    nothing can be written.
    """
    wanted = address or os.environ.get("RAY_ADDRESS")
    output = None if output is None else output.absolute()
    if output is not None and not wanted:
        return _written(output, output, USUAL)
    folder = _session(wanted)
    discovery = folder / DISCOVERY
    if output is not None:
        return _written(output, output, discovery)
    provided = folder / "metrics" / "grafana" / "dashboards"
    if not provided.parent.is_dir():
        raise ConfigurationError(
            f"Ray's settings of Grafana are not in {provided.parent}: they are on the cluster's head node; "
            "run this there, or name a folder with --output"
        )
    dashboards = Path(os.environ.get(OF_GRAFANA, provided))
    return _written(
        dashboards, folder / "metrics" / "prometheus" / "d5ray", discovery, provided.parent / "grafana.ini"
    )


def _session(address: str | None) -> Path:
    from d5ray.actors.session import session  # noqa: PLC0415 - imports Ray

    try:
        return session.folder_of(address or "auto")
    except PlacementError as error:
        if address:
            raise
        raise PlacementError(
            "no Ray runs here whose Grafana could show the dashboards: start one with `ray start --head`, or "
            "name a folder with --output"
        ) from error


def _written(dashboards: Path, settings: Path, discovery: Path, ini: Path | None = None) -> Placed:
    rules, setup = settings / ALERTS, settings / "prometheus.yml"
    boards = {dashboards / name: json.dumps(board, indent=2) for name, board in grafana.dashboards().items()}
    texts = {
        **boards,
        rules: (FOLDER / ALERTS).read_text(encoding="utf-8"),
        setup: SETTINGS.format(alerts=json.dumps(str(rules)), discovery=json.dumps(str(discovery))),
    }
    try:
        for path, text in texts.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise StorageError(
            f"{error.filename or dashboards} cannot be written ({error.strerror or error}): name another "
            "folder with --output"
        ) from error
    return Placed(list(boards), rules, setup, ini)
