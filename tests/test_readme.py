"""The README is true: its tree is the tree, its example runs, its commands exist."""

import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

import d5ray as d5
from d5ray.distributed.communicators.communicator import Communicator
from d5ray.errors import ConfigurationError
from d5ray.frameworks.initial_values import network_by_name
from d5ray.identity import checkout
from d5ray.operators.custom import registry
from d5ray.operators.nodes import inference
from d5ray.operators.nodes.node import Node
from d5ray.recipes.engine import library
from tests.conftest import d5ray
from tests.distributed.forming import former, on_all
from tests.metrics.small_runs import finished, values_of
from tests.metrics.statistics.test_estimates import steps_of, tables
from tests.patience import patience
from tests.readme_tree import BEGIN, END, REPOSITORY, tree

README = (REPOSITORY / "README.md").read_text(encoding="utf-8")


def test_the_tree_is_the_tree() -> None:
    """Every file with the first line of its docstring; `python tests/readme_tree.py` mends it."""
    assert README.partition(BEGIN)[2].partition(END)[0] == tree()


def test_every_file_says_its_idea_in_one_line() -> None:
    """No line of the tree is a name alone, but the folder of the tests."""
    bare = [line for line in tree().splitlines() if len(line.split()) == 1]
    assert [line.strip().split("/")[0] for line in bare if not line.endswith("/")] == []


def test_every_benchmark_has_its_figures_and_every_command_its_recipe() -> None:
    """In RESULTS.md; and whatever pages say that one runs is there to be run."""
    named = re.compile(r"d5ray run ((?:benchmarks/)?[a-z][a-z0-9_]+)(?![\w./])")
    results = (REPOSITORY / "benchmarks" / "RESULTS.md").read_text(encoding="utf-8")
    benchmarks = {f"benchmarks/{name}" for name in checkout.names()}
    assert {name for name in named.findall(results) if "/" in name} == benchmarks
    pages = [
        README,
        results,
        *(page.read_text(encoding="utf-8") for page in (REPOSITORY / "docs").rglob("*.md")),
    ]
    assert {name for page in pages for name in named.findall(page)} <= benchmarks | set(library.shipped())


def test_the_example_is_short_and_runs_as_a_script_of_the_users_own(tmp_path: Path) -> None:
    """An own distributed optimizer in at most 20 lines, in a folder that is no package."""
    code = README.partition("<!-- example -->\n```python\n")[2].partition("```")[0]
    assert len([line for line in code.splitlines() if line.strip()]) <= 20
    script = tmp_path / "mine.py"
    script.write_text(code)
    done = subprocess.run(
        [sys.executable, str(script)],
        cwd=tmp_path,
        env=os.environ | {"D5RAY_HOME": str(tmp_path / "home")},
        capture_output=True,
        text=True,
        timeout=patience(120),
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert float(done.stdout.splitlines()[-1]) > 0.9


def test_the_changes_of_a_network_are_what_is_said_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every line that prints says behind it what it prints."""
    code = README.partition("<!-- network -->\n```python\n")[2].partition("```")[0]
    monkeypatch.chdir(tmp_path)
    exec(code, {})
    said = [line.partition("  # ")[2].partition(";")[0] for line in code.splitlines() if "print(" in line]
    assert capsys.readouterr().out.splitlines() == said
    assert (tmp_path / "model.onnx").is_file()


def test_the_metric_of_ones_own_is_a_metric() -> None:
    """The class of the README, on planted rows: its value, criterion, direction, and what it reads."""
    code = README.partition("<!-- metric -->\n```python\n")[2].partition("```")[0]
    module = ModuleType("mine")
    sys.modules["mine"] = module  # where dataclasses look for annotations
    try:
        exec(code, vars(module))
    finally:
        del sys.modules["mine"]
    criterion = module.METRICS[0]
    run = tables(steps_of(np.array([[0.1, 0.2], [0.3, 0.1]])))
    assert criterion.metric.estimate(run).value == 0.3
    assert criterion.judge(run).verdict == "PASS"
    assert "no row of step_time" in criterion.judge(tables([])).reason
    assert criterion.metric.reads() == ("step_time",)
    with pytest.raises(ConfigurationError, match="points the wrong way"):
        _ = criterion.metric >= 1


def test_the_schedules_of_pipelines_say_what_they_do(capsys: pytest.CaptureFixture[str]) -> None:
    """The listing of the README, whose outputs stand beside and below it."""
    code, _, behind = README.partition("<!-- schedules -->\n```python\n")[2].partition("```\n```\n")
    exec(code, {})
    said = [line.partition("  # ")[2] for line in code.splitlines() if "print(" in line][1:]
    assert capsys.readouterr().out.splitlines() == [*behind.partition("```")[0].splitlines(), *said]


def test_the_stages_of_a_pipeline_train(capsys: pytest.CaptureFixture[str]) -> None:
    """The listing of the README on two stages, in threads."""
    code = README.partition("<!-- pipeline -->\n```python\n")[2].partition("```")[0]
    network = network_by_name("mlp", {"hidden": (16, 16, 16)}, (8,), 3, seed=1)
    rng = np.random.default_rng(0)
    given = {"inputs": rng.random((8, 8), np.float32), "labels": rng.integers(0, 3, 8)}

    def stage(communicator: Communicator) -> None:
        names: dict[str, Any] = {
            "communicator": communicator, "network": network, "sample_shape": (8,), **given,
        }  # fmt: skip
        exec(code, names)
        assert names["executor"].last_pass.bubble > 0

    with former() as groups:
        on_all(groups.form("shared_memory", 2), stage)
    assert capsys.readouterr().out.count("stage 1") == 4  # in both of the two tables of both


@pytest.mark.slow
def test_the_stages_on_ray_learn(capsys: pytest.CaptureFixture[str]) -> None:
    """The loss of the parameters that were fed is a smaller one, by PyTorch's own scores and loss."""
    code = README.partition("<!-- spread -->\n```python\n")[2].partition("```")[0]
    network = network_by_name("lenet", {}, (1, 28, 28), 10, seed=1)
    x = np.random.default_rng(1).standard_normal((20, 1, 28, 28)).astype(np.float32)
    y = np.arange(20) % 10
    names: dict[str, Any] = {"d5": d5, "network": network, "inputs": x, "labels": y}
    exec(code.replace('framework="torch"', 'framework="torch", cpus_per_executor=0.25, quiet=True'), names)
    scores, labels = torch.from_numpy(names["scores"]), torch.from_numpy(y)
    assert torch.nn.functional.cross_entropy(scores, labels).item() < names["loss"]
    assert "idle, 3 processes" in capsys.readouterr().out


@pytest.mark.slow
def test_the_agents_of_a_mesh_train(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The listing of the README, on Ray: what a replica's four agents have is the whole network."""
    monkeypatch.setenv("D5RAY_HOME", str(tmp_path))
    names: dict[str, Any] = {}
    code = README.partition("<!-- mesh -->\n```python\n")[2].partition("```")[0]
    exec(code.replace("    group.network", "    whole = group.network"), names)
    assert names["experiment"].agents == 8
    assert {name: value.shape for name, value in names["whole"].items()} == {
        "1.weight": (64, 64), "1.bias": (64,), "3.weight": (32, 64), "3.bias": (32,),
        "5.weight": (10, 32), "5.bias": (10,),
    }  # fmt: skip


def test_the_workload_of_ones_own_is_learned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The listing of the README: it comes near the line, and says by how much."""
    monkeypatch.setenv("D5RAY_HOME", str(tmp_path))
    exec(README.partition("<!-- workload -->\n```python\n")[2].partition("\n```")[0], {"__name__": "mine"})
    assert 0 < float(capsys.readouterr().out.splitlines()[-1]) < 0.2


def test_the_queries_are_answered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The listing of the README, on a run of known values."""
    monkeypatch.setenv("D5RAY_HOME", str(tmp_path))
    finished(tmp_path / "runs", "r", seed=1)
    names: dict[str, Any] = {}
    exec(README.partition("<!-- queries -->\n```python\n")[2].partition("\n```")[0], names)
    assert names["rows"] == values_of(1).size


def test_the_operators_of_ones_own_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """The listing of the README, in Python and in C++, whose gradients it compares itself."""
    monkeypatch.setattr(registry, "_registered", {})
    monkeypatch.setattr(inference, "_rules", dict(inference._rules))
    code = README.partition("<!-- operator -->\n```python\n")[2].partition("\n```")[0]
    names: dict[str, Any] = {}
    exec(code, names)
    made = registry.operator_of(Node("IPow", ("x",), ("y",), {"power": 2}, domain="my.domain"))
    assert type(made) is names["IPowOp"]


@pytest.mark.parametrize(
    "command",
    sorted(set(re.findall(r"d5ray (run|list|runs|show|check|compare|replay|sql|doctor)\b", README))),
)
def test_the_commands_exist(command: str) -> None:
    """Each has a help text."""
    done = d5ray(command, "--help")
    assert done.code == 0
    assert "Usage" in done.out


def test_the_pieces_of_a_network_give_its_gradients() -> None:
    """The listing of the README, against the executor of the whole network."""
    names: dict[str, Any] = {}
    exec(README.partition("<!-- stages -->\n```python\n")[2].partition("\n```")[0], names)
    whole = names["d5fw"].from_onnx(names["network"])
    whole.inference_and_backprop({"input": names["x"], "labels": names["y"]})
    expected = {name: whole.fetch(gradient) for name, gradient in names["network"].gradient()}
    for place in (names["one"], names["other"]):
        flat = place.get(place.gradients)
        for slot in place.slots:
            np.testing.assert_allclose(
                flat[slot.offset : slot.offset + slot.size].reshape(slot.shape), expected.pop(slot.name),
                rtol=1e-4, atol=1e-7,
            )  # fmt: skip
    assert not expected
