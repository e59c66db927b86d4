"""Claims about `d5ray bench`: the figures follow from the rows of a run that other commands understand"""

import json
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from d5ray.kits.laboratory.bench import deepbench
from d5ray.metrics.record.reader import Run
from tests.commands.test_bad_input import check_refused
from tests.conftest import Finished, d5ray, started, wait_until
from tests.patience import patience

OPERATORS = """
import numpy as np
import torch

import d5ray as d5
from helper import twice  # beside this file


class Double(d5.CustomPythonOp):
    def forward(self, x):
        return twice(x)

    def backward(self, grads, fwd_inputs, fwd_outputs):
        return twice(grads[0])


def added(x):
    return torch.add(x, x)


def view(x):
    return x.T


class Net(torch.nn.Sequential):
    def __init__(self):
        super().__init__(torch.nn.Flatten(), torch.nn.Linear(64, 10))


def unwell(x):
    raise ValueError("it is unwell")


def data():
    from d5ray.training.datasets.dataset import Split

    split = Split(np.ones((50, 4), np.float32), np.zeros(50, np.int64))
    return d5.Dataset("mine", split, split, ("a",))
"""

COMMANDS = {
    "operator": (
        "operator", "own.py:added,Double,view", "--shapes", "2000x3000", "--shapes", "300x300:float64",
        "--frameworks", "torch,numpy",
    ),
    "network": (
        "network", "own.py:Net", "--shape", "1x8x8", "--batch", "1,64", "--training",
        "--frameworks", "torch,numpy",
    ),
    "data": ("data", "own.py:data", "--batch", "4,16"),
    "allreduce": ("allreduce", "--sizes", "1000,100000", "--backends", "shared_memory,socket"),
}  # fmt: skip
METRICS = {
    "operator": "operator_time", "network": "network_time", "data": "loading_time",
    "allreduce": "allreduce_time",
}  # fmt: skip

BUDGET, FRAMEWORKS = 8.0, ("numpy", "torch")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("bench_own")
    (made / "own.py").write_text(OPERATORS)
    (made / "helper.py").write_text("def twice(x):\n    return x + x\n")
    return made


@pytest.fixture(
    scope="module",
    params=[
        "operator",
        "allreduce",
        *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("network", "data")),
    ],
)
def bench(request: pytest.FixtureRequest, folder: Path) -> tuple[str, Finished, Run]:
    """What was measured, the command that did it in two processes of each contender, and its run."""
    kind: str = request.param
    done = d5ray(
        "bench", *COMMANDS[kind], "--processes", "2", "--json", "--to", "benchmarker",
        "--out", str(folder / f"{kind}-documents"),
        env={"D5RAY_HOME": str(folder / "home")}, cwd=folder, seconds=300,
    )  # fmt: skip
    assert done.code == 0, done
    assert not done.left()
    return kind, done, Run.find("last", folder / "home" / "runs")


@pytest.mark.full
def test_the_figures_follow_from_the_rows(bench: tuple[str, Finished, Run]) -> None:
    """Seconds: the median of the processes' medians, of the slowest rank; ratios in pairs of processes."""
    kind, done, run = bench
    samples = run.tables()["samples"].to_pandas()
    rows = samples[(samples.metric == METRICS[kind]) & (samples.phase == "run")]
    slowest = rows.groupby(["scope", "rep", "step"], observed=True).value.max()
    medians = slowest.groupby(["scope", "rep"], observed=True).median()
    found = done.json["operators"]
    assert found
    firsts: dict[str, str] = {}
    for each in found:
        scope = f"{each['framework']} {each['problem']}"
        own = medians[scope]
        assert each["seconds"] == pytest.approx(own.median())
        assert each["n"] == len(own) <= 2
        first = firsts.setdefault(each["group"], scope)
        if first == scope:
            assert each["ratio"] is None
        else:
            beside = medians[first]
            pairs = own.index.intersection(beside.index)
            expected = np.exp(np.median(np.log(own[pairs] / beside[pairs])))
            assert each["ratio"] == pytest.approx(expected)


@pytest.mark.full
def test_shares_are_of_the_measured_peaks_or_explained_or_refused(bench: tuple[str, Finished, Run]) -> None:
    """Of the least time that they allow; none of what moves no data, and none of loading and allreduces."""
    kind, done, run = bench
    peaks = done.json["peaks"]
    if kind in ("data", "allreduce"):
        assert all(value is None for value in peaks.values())
        assert all(each["share"] is None for each in done.json["operators"])
        return
    problems = json.loads(run.row["experiment"])["problems"]
    refused = run.tables()["samples"].to_pandas().query("metric == 'share_of_peak' and value.isna()")
    for each in done.json["operators"]:
        known = problems[each["problem"]]
        if each["problem"].startswith("view 2000"):
            assert (each["share"], each["above"]) == (None, "not shown")
            own = refused[refused.scope == f"{each['framework']} {each['problem']}"]
            assert own.status.str.contains("times the peak: the call does not do what is counted").all()
            assert len(own)
        elif each["share"] is not None:
            least = max(
                known["flops"] / peaks["peak_flop_rate"]["value"],
                known["bytes"] / peaks["peak_byte_rate"]["value"],
            )
            assert each["share"] == pytest.approx(least / each["seconds"])
            assert bool(each["above"]) == (each["share"] > 1)


@pytest.mark.full
def test_other_commands_understand_the_run(bench: tuple[str, Finished, Run], folder: Path) -> None:
    """check, show, report; every row has a metric that the run describes."""
    kind, done, run = bench
    env = {"D5RAY_HOME": str(folder / "home")}
    assert d5ray("check", run.name, env=env).code == 0
    shown = d5ray("show", run.name, env=env)
    assert shown.code == 0
    assert all(each["problem"] in shown.out for each in done.json["operators"])
    query = "select count(*) n from samples where metric not in (select name from metrics)"
    assert run.sql(query).to_pylist() == [{"n": 0}]
    page = folder / f"{kind}.html"
    assert d5ray("report", run.name, "--output", str(page), env=env).code == 0
    assert "measured in turn" in page.read_text()


@pytest.mark.full
def test_runs_are_compared_problem_by_problem(bench: tuple[str, Finished, Run], folder: Path) -> None:
    """Against a copy of itself: one ratio for each, all 1."""
    kind, done, run = bench
    copy = run.folder.parent / f"{run.name}-copy"
    copy.mkdir()
    for file in run.folder.iterdir():
        (copy / file.name).write_bytes(file.read_bytes())
    compared: Any = d5ray(
        "compare", run.name, copy.name, "--json", env={"D5RAY_HOME": str(folder / "home")}
    ).json
    (copy / "runs.parquet").unlink()
    labels = sorted(
        f"{METRICS[kind]}(contender={each['framework']} {each['problem']})" for each in done.json["operators"]
    )
    assert sorted(each["metric"] for each in compared["differences"]) == labels
    assert {each["verdict"] for each in compared["differences"]} == {"same"}


@pytest.mark.full
def test_benchmarkers_documents_say_what_was_measured(bench: tuple[str, Finished, Run], folder: Path) -> None:
    """One for each, with the time and the problem."""
    kind, done, _ = bench
    told = [json.loads(file.read_text()) for file in (folder / f"{kind}-documents").iterdir()]
    assert sorted((each["problem"]["name"], each["time"]) for each in told) == sorted(
        (each["problem"], each["seconds"]) for each in done.json["operators"]
    )


@pytest.mark.full
def test_problems_are_measured_in_turn_within_the_budget_or_listed_with_a_reason(tmp_path: Path) -> None:
    """Two frameworks in two processes each, on products. Seconds are the median of the processes' medians;
    rates and the share of the roofline follow. One problem may end after the budget."""
    done = d5ray(
        "bench", "operators", "--budget", f"{BUDGET:g}s", "--frameworks", ",".join(FRAMEWORKS),
        "--problems", "gemm", "--mode", "inference", "--processes", "2", "--threads", "1", "--json",
        env={"D5RAY_HOME": str(tmp_path)},
    )  # fmt: skip
    assert done.code == 0 and not done.left(), done
    problems = {each.name: each for each in deepbench.problems("inference", ["gemm"])}
    found = {f"{each['framework']} {each['problem']}": each for each in done.json["operators"]}
    missing = {each["scope"]: each["reason"] for each in done.json["missing"]}
    assert sorted([*found, *missing]) == sorted(f"{f} {name}" for f in FRAMEWORKS for name in problems)
    assert found and all(reason.startswith("unavailable: ") for reason in missing.values())
    samples = Run.find("last", tmp_path / "runs").tables()["samples"].to_pandas()
    assert (samples.t_wall.max() - samples.t_wall.min()).total_seconds() < 1.3 * BUDGET
    times = samples[(samples.metric == "operator_time") & (samples.phase == "run") & samples.value.notna()]
    for _, rows in times.groupby("rep"):  # each problem under all frameworks before the next
        order = rows.sort_values("t_wall").scope.drop_duplicates().str.split(" ", n=1, expand=True)
        names = order[1].tolist()
        assert names == [name for name in dict.fromkeys(names) for _ in range(names.count(name))]
    peaks = {name: each["value"] for name, each in done.json["peaks"].items()}
    for scope, each in found.items():
        rows = times[times.scope == scope]
        assert each["seconds"] == pytest.approx(rows.groupby("rep").value.median().median())
        assert each["n"] == rows.rep.nunique() <= 2
        problem = problems[each["problem"]]
        assert each["flops_per_second"] * each["seconds"] == pytest.approx(problem.flops)
        assert each["bytes_per_second"] * each["seconds"] == pytest.approx(problem.moved_bytes)
        least = max(problem.flops / peaks["peak_flop_rate"], problem.moved_bytes / peaks["peak_byte_rate"])
        assert each["share"] == pytest.approx(least / each["seconds"])
        assert bool(each["above"]) == (each["share"] > 1)


@pytest.mark.full
def test_ctrl_c_keeps_what_was_measured(tmp_path: Path) -> None:
    """The run is interrupted, its rows can be read; exit code 130; no process is left."""
    home = tmp_path / "home"
    arguments = ("bench", "operators", "--budget", "1h", "--frameworks", "numpy", "--json")
    with started(*arguments, env={"D5RAY_HOME": str(home)}) as command:
        wait_until(lambda: any(map(measured, home.glob("runs/*/runs.parquet"))), 60)
        command.process.send_signal(signal.SIGINT)
        out, _ = command.process.communicate(timeout=patience(60))
        assert command.process.returncode == 130
        assert not command.left()
    told = json.loads(out)
    assert (told["status"], told["reason"]) == ("interrupted", "interrupted by the user")
    assert told["operators"]


def measured(runs: Path) -> bool:
    """Whether an operator was measured to the end in this run."""
    samples = Run(runs.parent).tables()["samples"].to_pandas()
    return bool((samples.metric == "flop_rate").any())


WRONG = [
    (("operators", "--suite", "deepbnch"), ["'deepbnch'", "did you mean 'deepbench'?"]),
    (("operators", "--frameworks", "torch", "--device", "cuda"), ["no NVIDIA GPU", "--device cpu"]),
    (("operators", "--budget", "soon"), ["'soon' is no duration", "60s"]),
    (("operators", "--to", "csv", "--out", "s3://bucket/x"), ["--out 's3:/bucket/x' is an address"]),
    (("operator", "own.py:unwell", "--shapes", "3"), ["unwell with float32 (3,)", "it is unwell"]),
    (("operator", "own.py:added"), ["--shapes"]),
    (("operator", "gone.py:added", "--shapes", "3"), ["there is no file gone.py"]),
    (("network", "own.py:Net"), ["--shape 3x224x224"]),
    (("data", "own.py:dat"), ["did you mean 'data'?"]),
    (("allreduce", "--backends", "mpi"), ["there are no backends 'mpi'"]),
]


@pytest.mark.parametrize(("arguments", "expected"), WRONG)
def test_wrong_input_is_one_clear_error(
    arguments: tuple[str, ...], expected: list[str], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found, expected, what to do; exit code 3; no run."""
    if "cuda" in arguments and Path("/dev/nvidia0").exists():
        pytest.skip("there is a GPU")
    monkeypatch.chdir(folder)
    check_refused(("bench", *arguments), expected, folder / "empty")
