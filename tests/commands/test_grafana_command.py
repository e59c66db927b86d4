"""Claims about `d5ray dashboard grafana`: what it writes, where, and that Prometheus reads each query"""

import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from d5ray.dashboards.grafana import grafana
from tests.conftest import Head, d5ray
from tests.dashboards.grafana.boards import queries

BOARDS = grafana.dashboards()  # by file name
PROMTOOL = shutil.which("promtool") or ""


@pytest.mark.skipif(not PROMTOOL, reason="promtool is missing: make tools")
def test_every_query_of_every_panel_is_one_for_prometheus(tmp_path: Path) -> None:
    """As `promtool` reads them, each as the expression of a rule."""
    asked = sorted({query for board in BOARDS.values() for query in queries(board)})
    rules = [{"record": f"asked:{number}", "expr": query} for number, query in enumerate(asked)]
    file = tmp_path / "queries.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))
    done = subprocess.run([PROMTOOL, "check", "rules", str(file)], capture_output=True, text=True)
    assert done.returncode == 0 and f"{len(asked)} rules found" in done.stdout, done.stdout + done.stderr


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
    """Everything in one folder, and lines that say how to go on; one that cannot be written is an error."""
    done = d5ray("dashboard", "grafana", "--output", "here/there", cwd=tmp_path)
    assert done.code == 0, done.err
    folder = tmp_path / "here" / "there"
    assert {path.name for path in folder.iterdir()} == {*BOARDS, "d5ray_alerts.yml", "prometheus.yml"}
    assert f"prometheus --config.file={folder}/prometheus.yml" in done.out
    refused = d5ray("dashboard", "grafana", "--output", "/proc/nowhere")
    assert (refused.code, refused.out) == (3, "") and "--output" in refused.err
