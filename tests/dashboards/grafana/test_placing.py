"""Where dashboards and alerts go without a Ray, and what is said of programs that are missing"""

from pathlib import Path

import pytest
import yaml

from d5ray.dashboards.grafana import grafana, placing


@pytest.fixture(autouse=True)
def no_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)


def test_everything_is_in_the_folder_and_prometheus_knows_where(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the folder is named from here; what is scraped is the Ray that was started here last."""
    monkeypatch.chdir(tmp_path)
    placed = placing.place(Path("out"), None)
    folder = tmp_path / "out"
    assert placed.dashboards == [folder / name for name in grafana.dashboards()]
    settings = yaml.safe_load(placed.settings.read_text())
    assert settings["rule_files"] == [str(folder / "d5ray_alerts.yml")] == [str(placed.alerts)]
    (scraped,) = settings["scrape_configs"]
    assert scraped["file_sd_configs"] == [{"files": ["/tmp/ray/prom_metrics_service_discovery.json"]}]
