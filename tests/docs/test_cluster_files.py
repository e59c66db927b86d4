"""The files of the lesson on clusters, against Ray's own schema and parsers, Kubernetes' schemas, and bash"""

import json
import os
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import ray
import yaml
from ray.autoscaler._private.kuberay.autoscaling_config import _derive_autoscaling_config_from_ray_cr
from ray.autoscaler._private.util import prepare_config, validate_config
from ray.scripts.symmetric_run import curate_and_validate_ray_start_args

from tests.conftest import ran
from tests.docs.page import LESSONS, REPOSITORY, Page

PAGE = Page.read(LESSONS / "cluster.md")
FILES = {file.name: file.text for file in PAGE.files}
VERSION = ray.__version__


def documents() -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(FILES["rayjob.yaml"]))


# -- ray up ----------------------------------------------------------------------------------------------


def test_the_file_for_ray_up_is_rays_own_schemas() -> None:
    """With Ray's defaults filled in, as `ray up` does, it is valid; a key that Ray has not is found."""
    config = yaml.safe_load(FILES["cluster.yaml"])
    validate_config(prepare_config(config))
    assert config["max_workers"] == config["available_node_types"]["worker"]["max_workers"]
    with pytest.raises(Exception, match="idle_minutes"):
        validate_config(prepare_config({**config, "idle_minutes": 3}))


# -- KubeRay ---------------------------------------------------------------------------------------------


def test_the_file_for_kuberay_is_read_by_rays_autoscaler() -> None:
    """Ray's own reader of a RayCluster finds the processors and the memory that the page speaks of."""
    spec = documents()[1]["spec"]["rayClusterSpec"]
    resource = {"metadata": {"name": "d5ray", "namespace": "default"}, "spec": spec}
    config = _derive_autoscaling_config_from_ray_cr(resource)
    head, agents = (config["available_node_types"][name] for name in ("headgroup", "agents"))
    assert head["resources"] == {"CPU": 0, "memory": 8 * 2**30}
    assert agents["resources"] == {"CPU": 4, "memory": 16 * 2**30}
    assert (agents["min_workers"], agents["max_workers"]) == (3, 3)


def test_pods_and_volumes_are_as_kubernetes_has_them() -> None:
    """The pods of head and workers, and the claim, against the schemas that Kubernetes publishes."""
    kubernetes_validate = pytest.importorskip("kubernetes_validate")
    claim, job = documents()
    kubernetes_validate.validate(claim, kubernetes_validate.latest_version(), strict=True)
    cluster = job["spec"]["rayClusterSpec"]
    for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"]):
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "pod"},
            "spec": group["template"]["spec"],
        }
        kubernetes_validate.validate(pod, kubernetes_validate.latest_version(), strict=True)
        mounts = {each["name"] for each in pod["spec"]["containers"][0]["volumeMounts"]}
        assert mounts == {each["name"] for each in pod["spec"]["volumes"]}
        wrong = json.loads(json.dumps(pod).replace('"limits"', '"limit"'))
        with pytest.raises(kubernetes_validate.ValidationError):
            kubernetes_validate.validate(wrong, kubernetes_validate.latest_version(), strict=True)


# -- the versions, the image -----------------------------------------------------------------------------


def test_every_file_speaks_of_this_ray_and_this_d5ray() -> None:
    """Images, `rayVersion` and the wheel's name are those of what is installed."""
    assert set(re.findall(r"rayproject/ray:([\d.]+)", PAGE.text)) == {VERSION}
    assert documents()[1]["spec"]["rayClusterSpec"]["rayVersion"] == VERSION
    own = re.search(r'^version = "(.*)"', (REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"), re.M)
    assert own is not None
    assert set(re.findall(r"d5ray-([\d.]+)-py3", PAGE.text)) == {own[1]}
    assert {line.split()[0] for line in FILES["Dockerfile"].splitlines()} <= {"#", "FROM", "COPY", "RUN"}


# -- Slurm, and commands that need a cluster -------------------------------------------------------------


def test_shell_scripts_are_shell_scripts(tmp_path: Path) -> None:
    """`bash -n`, and shellcheck where it is installed, of the job script and of every block of commands."""
    blocks = {"slurm.sh": FILES["slurm.sh"], "d5ray.sh": "".join(PAGE.elsewhere)}
    for name, text in blocks.items():
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        ran("bash", "-n", str(path))
        if shutil.which("shellcheck"):
            ran("shellcheck", "--shell=bash", "--exclude=SC1091", str(path))


@pytest.mark.full
def test_the_slurm_script_starts_ray_on_every_node_and_the_job_on_the_first(tmp_path: Path) -> None:
    """Run with a Slurm that only notes down what it is asked, whose notes Ray's own parser then takes."""
    (tmp_path / "bin").mkdir()
    _script(tmp_path / "bin" / "scontrol", "echo node7; sleep 0.3; echo node8")  # who stops reading ends it
    _script(tmp_path / "bin" / "srun", 'printf "%s\\n" "$@" >asked.txt')
    (tmp_path / "venv" / "bin").mkdir(parents=True)
    (tmp_path / "venv" / "bin" / "activate").touch()
    (tmp_path / "slurm.sh").write_text(FILES["slurm.sh"], encoding="utf-8")
    (tmp_path / "job.py").write_text(FILES["job.py"], encoding="utf-8")
    slurm = {
        "SLURM_SUBMIT_DIR": str(tmp_path),
        "SLURM_JOB_NODELIST": "node[7-8]",
        "SLURM_JOB_ID": "1234567",
        "SLURM_JOB_NUM_NODES": "2",
        "SLURM_CPUS_PER_TASK": "16",
        "PATH": f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}",
    }
    ran("bash", "slurm.sh", cwd=tmp_path, env=slurm)
    ray_command, symmetric, *asked = (tmp_path / "asked.txt").read_text(encoding="utf-8").splitlines()
    assert (ray_command, symmetric) == ("ray", "symmetric-run")
    at = asked.index("--")
    assert asked[:4] == ["--address", "node7:24567", "--min-nodes", "2"]
    assert curate_and_validate_ray_start_args(asked[:at]) == ["--num-cpus", "16", "--disable-usage-stats"]
    job = asked[at + 1 :]
    assert job[:4] == ["python", "job.py", "--address", "node7:24567"]
    settings = [job[n + 1] for n, word in enumerate(job) if word == "--set"]
    assert settings == ["topology=Torus(4, 16)", "cpus_per_agent=1"]
    assert "#SBATCH --nodes=4" in FILES["slurm.sh"]  # × 16 processors: the 64 agents of the torus
    ran(sys.executable, "job.py", "--help", cwd=tmp_path, env={"PYTHONPATH": str(REPOSITORY)})


def _script(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/bash\n{text}\n", encoding="utf-8")
    path.chmod(0o755)
