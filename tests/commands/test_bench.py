"""Claims about `d5ray bench operators`: a budget is kept, a run is kept that other commands understand"""

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from d5ray.metrics.record.reader import Run
from d5ray.ops.deepbench import problems as deepbench
from tests.commands.test_bad_input import check_refused
from tests.conftest import Finished, d5ray, started, wait_until
from tests.patience import patience

BUDGET, FRAMEWORKS = 8.0, ("numpy", "torch")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("bench")


@pytest.fixture(scope="module")
def bench(home: Path) -> Finished:
    """Two frameworks in two processes each, on products, for some seconds."""
    done = d5ray(
        "bench", "operators", "--budget", f"{BUDGET:g}s", "--frameworks", ",".join(FRAMEWORKS),
        "--problems", "gemm", "--mode", "inference", "--processes", "2", "--threads", "1", "--json",
        "--to", "benchmarker", "--out", str(home / "documents"),
        env={"D5RAY_HOME": str(home)},
    )  # fmt: skip
    assert done.code == 0, done
    assert not done.left()
    return done


@pytest.fixture(scope="module")
def run(home: Path, bench: Finished) -> Run:
    return Run.find("last", home / "runs")


def command(home: Path, *arguments: str) -> Finished:
    return d5ray(*arguments, env={"D5RAY_HOME": str(home)})


@pytest.mark.full
def test_every_problem_is_measured_or_listed_with_a_reason(bench: Finished) -> None:
    """Under every framework, once; what was not reached says so."""
    told = bench.json
    named = [f"{each['framework']} {each['problem']}" for each in told["operators"]]
    missing = {each["scope"]: each["reason"] for each in told["missing"]}
    problems = deepbench.problems("inference", ["gemm"])
    assert sorted([*named, *missing]) == sorted(f"{f} {p.name}" for f in FRAMEWORKS for p in problems)
    assert named
    assert all(reason.startswith("unavailable: ") for reason in missing.values())
    assert all(value["value"] > 0 for value in told["peaks"].values())


@pytest.mark.full
def test_the_figures_follow_from_the_rows(bench: Finished, run: Run) -> None:
    """Seconds: the median of the processes' medians; rates and the share of the roofline from them."""
    samples = run.tables()["samples"].to_pandas()
    peaks = {name: found["value"] for name, found in bench.json["peaks"].items()}
    by_name = {each.name: each for each in deepbench.problems("inference", ["gemm"])}
    for each in bench.json["operators"]:
        rows = samples[
            (samples.scope == f"{each['framework']} {each['problem']}")
            & (samples.metric == "operator_time")
            & (samples.phase == "run")
        ]
        assert each["seconds"] == pytest.approx(rows.groupby("rep").value.median().median())
        assert each["n"] == rows.rep.nunique() <= 2
        problem = by_name[each["problem"]]
        assert each["flops_per_second"] * each["seconds"] == pytest.approx(problem.flops)
        assert each["bytes_per_second"] * each["seconds"] == pytest.approx(problem.moved_bytes)
        least = max(problem.flops / peaks["peak_flop_rate"], problem.moved_bytes / peaks["peak_byte_rate"])
        assert each["share"] == pytest.approx(least / each["seconds"])
        assert bool(each["above"]) == (each["share"] > 1)


@pytest.mark.full
def test_the_budget_is_kept(run: Run) -> None:
    """From the first process to the last row; one problem may end after it."""
    times = run.tables()["samples"]["t_wall"].cast("int64").to_numpy()
    assert (times.max() - times.min()) / 1e9 < 1.3 * BUDGET


@pytest.mark.full
def test_frameworks_take_turns_problem_by_problem(run: Run) -> None:
    """In each process one problem after the other, under all frameworks, before the next."""
    samples = run.tables()["samples"].to_pandas()
    times = samples[(samples.metric == "operator_time") & (samples.phase == "run") & samples.value.notna()]
    for _, rows in times.groupby("rep"):
        order = rows.sort_values("t_wall").scope.drop_duplicates().str.split(" ", n=1, expand=True)
        names = order[1].tolist()
        assert all(
            names[at : at + names.count(name)] == [name] * names.count(name)
            for name in set(names)
            for at in [names.index(name)]
        )


@pytest.mark.full
def test_other_commands_understand_the_run(home: Path, run: Run) -> None:
    """check, show, sql, runs; every row has a metric that the run describes."""
    assert command(home, "check", "last").code == 0
    assert command(home, "show", "last").code == 0
    query = "select count(*) n from samples where metric not in (select name from metrics)"
    assert json.loads(command(home, "sql", "last", query, "--json").out) == [{"n": 0}]


@pytest.mark.full
def test_runs_are_compared_operator_by_operator(home: Path, run: Run) -> None:
    """Against a copy of itself: one ratio for each operator, all 1; the sizes' suite must be the same."""
    copy = home / "runs" / f"{run.name}-copy"
    copy.mkdir()
    for file in run.folder.iterdir():
        (copy / file.name).write_bytes(file.read_bytes())
    done = command(home, "compare", run.name, copy.name, "--json")
    (copy / "runs.parquet").unlink()
    found: Any = done.json
    labels = [each["metric"] for each in found["differences"]]
    assert labels
    assert all(label.startswith("operator_time(contender=") for label in labels)
    assert {each["verdict"] for each in found["differences"]} == {"same"}


@pytest.mark.full
def test_benchmarkers_documents_say_what_was_measured(home: Path, bench: Finished) -> None:
    """One for each operator, with the keys of its first published form."""
    told = [json.loads(file.read_text()) for file in (home / "documents").iterdir()]
    assert len(told) == len(bench.json["operators"])
    names = {"numpy": "numpy", "torch": "pytorch"}
    for each in bench.json["operators"]:
        (found,) = (
            one
            for one in told
            if one["problem"]["name"] == each["problem"] and one["framework"] == names[each["framework"]]
        )
        assert found["time"] == found["time_batch"] == each["seconds"]
        assert found["gflop_per_second"] == pytest.approx(each["flops_per_second"] / 1e9)
        assert found["framework_full"].startswith(f"{names[each['framework']]}-")
        assert found["shape_x_train"][0] == found["problem"]["sample_shape"][0]
        assert found["device"] and found["hostname"] and found["linux"] and found["platform"]["cpu_model"]


@pytest.mark.full
def test_a_table_is_shown_for_people(home: Path, run: Run) -> None:
    """In a pipe without colours: a line an operator, the peaks, what is missing."""
    from d5ray.dashboards.terminal import operator_tables  # noqa: PLC0415

    lines = operator_tables.left_out(run.tables())
    assert any("not reached within 8 s" in line for line in lines)
    assert lines[-1].startswith("all, with the reasons: d5ray sql last")


@pytest.mark.slow
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
    (("--suite", "deepbnch"), ["'deepbnch'", "did you mean 'deepbench'?"]),
    (("--frameworks", "pytorch"), ["'pytorch'", "did you mean 'torch'?"]),
    (("--device", "gpu"), ["'gpu'", "known: cpu, cuda"]),
    (("--frameworks", "cupy", "--device", "cuda"), ["cupy is not installed", "pip install 'd5ray[cuda]'"]),
    (("--frameworks", "torch", "--device", "cuda"), ["no NVIDIA GPU", "--device cpu"]),
    (("--budget", "soon"), ["'soon' is no duration", "60s"]),
    (("--to", "benchmarkr"), ["'benchmarkr'", "did you mean 'benchmarker'?"]),
    (("--to", "csv", "--out", "s3://bucket/x"), ["--out 's3:/bucket/x' is an address"]),
]


@pytest.mark.parametrize(("arguments", "expected"), WRONG, ids=lambda value: " ".join(value)[:40])
def test_wrong_input_is_one_clear_error(
    arguments: tuple[str, ...], expected: list[str], tmp_path: Path
) -> None:
    """Found, expected, what to do; exit code 3; no run."""
    if "cuda" in arguments and Path("/dev/nvidia0").exists():
        pytest.skip("there is a GPU")
    check_refused(("bench", "operators", *arguments), expected, tmp_path / "home")
