"""The environment of a run, against other ways to ask the system."""

import json
import os
import platform
from importlib import metadata
from pathlib import Path

import psutil
import pytest

from d5ray.errors import ConfigurationError
from d5ray.metrics.probes.environment import PACKAGES, capture
from d5ray.metrics.probes.numeric_libraries import THREAD_VARIABLES
from d5ray.metrics.record.schema import TABLES, checked, table_of
from tests.conftest import python, ran


def test_the_environment_is_what_the_system_says() -> None:
    """Host, Python, usable cores and package versions agree with a second source; every value is text."""
    found = capture()
    assert found["hostname"] == platform.node()
    assert found["python"].startswith(platform.python_version())
    assert found["cores_usable"] == str(len(os.sched_getaffinity(0)))
    assert found["package_pyarrow"] == metadata.version("pyarrow")
    assert int(found["memory_bytes"]) == os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert found["cache_bytes"].startswith("unavailable: ") or int(found["cache_bytes"]) >= 2**14
    assert all(isinstance(value, str) and value for value in found.values())
    table_of("environment", [{"run_id": "r", "node": "n", "key": k, "value": v} for k, v in found.items()])


def test_what_cannot_be_known_says_why(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A package that is missing, a variable that is not set, a folder that is no checkout keep their keys."""
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    monkeypatch.delenv("MKL_NUM_THREADS", raising=False)
    monkeypatch.setattr("d5ray.metrics.probes.environment.PACKAGES", (*PACKAGES, "d5ray-nonesuch"))
    monkeypatch.setattr("d5ray.metrics.probes.environment._NVIDIA", tmp_path / "no driver")
    found = capture(tmp_path)
    assert found["gpus"] == "unavailable: no NVIDIA driver is loaded"
    assert found["package_d5ray-nonesuch"] == "unavailable: not installed"
    assert found["OMP_NUM_THREADS"] == "3"
    assert found["MKL_NUM_THREADS"] == "unavailable: not set"
    assert found["git_commit"].startswith("unavailable: ")
    assert set(THREAD_VARIABLES) <= set(found)
    assert capture(tmp_path / "missing")["git_commit"].startswith("unavailable: ")


@pytest.mark.full
def test_what_a_process_computes_with(monkeypatch: pytest.MonkeyPatch) -> None:
    """NumPy's and PyTorch's libraries and threads, as a second process that uses them sees them."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    program = (
        "import json, torch, numpy as np; torch.set_num_threads(3); np.ones((2, 2)) @ np.ones((2, 2))\n"
        "from d5ray.metrics.probes.numeric_libraries import computing\n"
        "print(json.dumps([computing(), torch.backends.cpu.get_cpu_capability()]))"
    )
    found, capability = json.loads(python("-c", program).out)
    assert found["OMP_NUM_THREADS"] == "1"
    assert found["torch_threads"].startswith("3 within operations")
    assert found["torch_cpu_capability"] == capability
    assert "openblas" in found["blas_numpy"].lower() or "mkl" in found["blas_numpy"].lower()
    assert "threads: " in found["thread_pools"]
    assert found["torch_blas"] and not found["torch_blas"].startswith("unavailable")
    assert all(isinstance(value, str) and value for value in found.values())


def test_a_framework_that_is_not_loaded_is_not_told() -> None:
    """Nor loaded by asking."""
    program = (
        "import sys; from d5ray.metrics.probes.numeric_libraries import computing; found = computing()\n"
        "assert 'torch' not in sys.modules; assert not [key for key in found if key.startswith('torch')]"
    )
    python("-c", program)


def test_the_machine_agrees_with_a_second_source() -> None:
    """Flags, swap and NUMA nodes."""
    found = capture()
    assert int(found["swap_bytes"]) == psutil.swap_memory().total
    flags = found["cpu_flags"].split()
    text = Path("/proc/cpuinfo").read_text()
    assert all(f" {flag}" in text for flag in flags if "none" not in found["cpu_flags"])
    assert float(found["load_average"]) >= 0
    assert found["container"]


def test_the_commit_of_a_checkout_is_recorded(tmp_path: Path) -> None:
    """The commit is git's own; a file that is not committed makes it dirty."""

    def git(*arguments: str) -> str:
        identity = ["-c", "user.name=n", "-c", "user.email=e@example.org"]
        return ran("git", *identity, *arguments, cwd=tmp_path).out.strip()

    git("init", "-q")
    git("commit", "-q", "--allow-empty", "-m", "first")
    assert capture(tmp_path)["git_commit"] == git("rev-parse", "HEAD")
    assert capture(tmp_path)["git_dirty"] == "no"
    (tmp_path / "new").write_text("x")
    assert capture(tmp_path)["git_dirty"] == "yes"


def test_importing_the_metrics_loads_nothing_heavy() -> None:
    """Neither Ray nor a framework, pandas, DuckDB, psutil or the Parquet reader come with the modules."""
    modules = (
        "record.schema", "statistics.intervals", "judge.criteria", "definitions.catalogue", "record.recorder",
        "record.store", "queries.sql", "probes.environment",
    )  # fmt: skip
    program = "\n".join([
        *(f"import d5ray.metrics.{name}" for name in modules),
        "import sys",
        "heavy = {'ray', 'torch', 'pandas', 'duckdb', 'psutil', 'pyarrow.parquet', 'pyarrow.dataset'}",
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)",
    ])  # fmt: skip
    assert python("-c", program).err == ""


def test_rows_that_do_not_fit_their_table_are_refused() -> None:
    """An unknown table or column tells the nearest one; a missing or wrong value tells the column."""
    with pytest.raises(ConfigurationError, match="did you mean 'verdicts'"):
        table_of("verdict")
    with pytest.raises(ConfigurationError, match="did you mean 'seed'"):
        table_of("runs", [{"sed": 1}])
    with pytest.raises(ConfigurationError, match="'status' needs a value"):
        table_of("runs", [{"run_id": "r"}])
    with pytest.raises(ConfigurationError, match="does not fit"):
        table_of("runs", [{"run_id": "r", "status": "running", "seed": "many"}])
    for schema in TABLES.values():
        assert checked(schema.empty_table(), schema).num_rows == 0
