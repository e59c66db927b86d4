"""Claims about what disturbed a run: its verdict and its report say it; an undisturbed run says nothing"""

import json
from pathlib import Path, PurePosixPath

import pytest

import d5ray as d5
from d5ray.dashboards.disturbances import SHOWN, disturbances
from d5ray.dashboards.report.building import built
from d5ray.dashboards.report.formats.markdown import markdown
from d5ray.dashboards.report.subject import subject_of
from d5ray.dashboards.terminal import run_tables
from d5ray.metrics.record.schema import table_of

EXPERIMENT = d5.Experiment(
    "mlp",
    "digits",
    d5.optimizers.SGD(0.1),
    agents=3,
    batch_size=16,
    faults=d5.faults.FaultPolicy("continue"),
    recording=d5.metrics.Recording(monitor_seconds=0),
)
SHRUNK = [
    "fault at step 4: kill(agent=2, at_step=4)",
    "agent 2 died",
    "from step 4 on 2 agents, global batch 32",
]


def trained(folder: Path, faults: d5.Faults, on_failure: str = "continue") -> d5.Run:
    wanted = EXPERIMENT.with_values(on_failure=on_failure)
    with d5.simulate(wanted, faults=faults, root=folder) as group:
        group.train(40, progress=False)
    return d5.Run(group.folder)


def test_a_verdict_and_a_report_say_what_disturbed_the_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A death under "continue": who, when, and that the global batch is smaller from then on."""
    run = trained(tmp_path, d5.Faults().kill(agent=2, at_step=4))
    run_tables.verdict(run, [], None)
    told = [line[2:] for line in capsys.readouterr().out.splitlines() if line.startswith("! ")]
    for wanted, line in zip(SHRUNK, told, strict=True):
        assert line.startswith(wanted)
    text = markdown(built(subject_of([str(run.folder)])), PurePosixPath("figures"))
    assert all(wanted.partition(":")[0] in text for wanted in SHRUNK)


def test_a_fault_that_was_announced_and_did_not_come_is_told_once(tmp_path: Path) -> None:
    """One of two that wait for a moment of the agent: its event says that the moment was not seen."""
    plan = d5.Faults().kill(agent=0, at_step=99).stop(agent=1, at_step=3, seconds=0.1)
    run = trained(tmp_path, plan)
    events = run.tables()["events"]
    assert disturbances(events) == [
        "fault at step 3: stop(agent=1, at_step=3, seconds=0.1)",
        "fault did not happen: kill(agent=0, at_step=99), as agent 0 did not get to it at step 99",
    ]
    rows = events.to_pylist()
    (told,) = [row for row in rows if row["name"] == "fault"]
    unseen = json.dumps(json.loads(told["detail"]) | {"reason": "no moment of it was seen"})
    both = table_of("events", [*rows, told | {"name": "fault_missed", "detail": unseen}])
    assert [text.partition(":")[0] for text in disturbances(both)] == ["fault did not happen"] * 2


def test_an_undisturbed_run_says_nothing(tmp_path: Path) -> None:
    assert disturbances(trained(tmp_path, d5.Faults()).tables()["events"]) == []


def test_of_many_the_first_are_shown_and_the_others_counted(tmp_path: Path) -> None:
    plan = d5.Faults()
    for step in range(2, 20, 2):
        plan = plan.kill(agent=1 + step % 3 % 2, at_step=step)
    told = disturbances(trained(tmp_path, plan, "restart").tables()["events"])
    assert len(told) == SHOWN + 1 and told[-1].startswith("and ") and told[-1].endswith(" more such events")
