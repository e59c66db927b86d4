"""Claims about campaigns of faults: equal seeds draw equal trials, and the judge sees what is wrong"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import d5ray as d5
from tests.beside_kits import cases_of
from tests.cases import of_this_week
from tests.conftest import REPOSITORY, Head
from tests.disks import mounted, unshared
from tests.kits.laboratory.chaos import judging
from tests.kits.laboratory.chaos.campaign import check, endure
from tests.kits.laboratory.chaos.judging import (
    COMPLETES,
    DIES,
    ENDS,
    FAILS,
    FILLED,
    INTERRUPTS,
    LEFT,
    SHORT,
    Judged,
    expected,
    judged,
)
from tests.kits.laboratory.chaos.processes import Ended, ended
from tests.kits.laboratory.chaos.trials import VICTIMS, Trial, drawn, possible

EXPERIMENT = d5.Experiment("mlp", "digits", d5.optimizers.SGD(0.1), agents=3, batch_size=16)
RECIPE = '''"""Three small agents"""
import d5ray as d5
FIXED = {"model": "mlp", "dataset": "digits"}
MUTABLE = {
    "agents": 3, "batch_size": 16, "epochs": 4, "optimizer": d5.optimizers.Momentum,
    "optimizer_args": (0.03, 0.9), "distributed": d5.optimizers.AllreduceSGD, "cpus_per_agent": 0.25,
    "seed": 1, "timeout_seconds": 30.0, "monitor_seconds": 0.0, "mirror_seconds": 0.0,
    "events": d5.events.Checkpoint(every_steps=20),
}
METRICS = [d5.metrics.TestAccuracy() >= 0.3]
'''
WITHOUT_CHECKPOINTS = RECIPE.replace('    "events": d5.events.Checkpoint(every_steps=20),\n', "")
SERVERS = '''"""Two small agents, and two servers"""
import d5ray as d5
FIXED = {"model": "mlp", "dataset": "digits"}
MUTABLE = {
    "agents": 2, "batch_size": 16, "epochs": 4, "optimizer": d5.optimizers.SGD, "optimizer_args": (0.05,),
    "distributed": d5.optimizers.ASGD, "servers": d5.Servers(shards=2), "cpus_per_agent": 0.25,
    "seed": 1, "timeout_seconds": 30.0, "monitor_seconds": 0.0, "mirror_seconds": 0.0,
}
METRICS = [d5.metrics.TestAccuracy() >= 0.3]
'''
SEED = 31  # all policies and moments are among the first trials that it draws
TRIAL_SECONDS = 25  # of an idle machine, at most, on average: most of it the start of processes


def recipe_of(rule: str, communicator: str) -> str:
    """The recipe of small agents with another rule and communicator; ADPSGD has no checkpoints."""
    recipe = WITHOUT_CHECKPOINTS if rule == "ADPSGD" else RECIPE
    return f'{recipe}MUTABLE |= {{"distributed": d5.optimizers.{rule}, "communicator": "{communicator}"}}\n'


def test_equal_seeds_draw_equal_trials_and_every_pair_comes_alike() -> None:
    """Two kinds and three victims, since there are no servers: each six times of 36."""
    draw = {"steps": 50, "seconds": 3.0, "kinds": ("kill", "stop")}
    trials = drawn(EXPERIMENT, 36, 7, **draw)  # type: ignore[arg-type]
    assert trials == drawn(EXPERIMENT, 36, 7, **draw)  # type: ignore[arg-type]
    assert trials != drawn(EXPERIMENT, 36, 8, **draw)  # type: ignore[arg-type]
    pairs = [(trial.victim, trial.about.kind) for trial in trials]
    assert {pairs.count(pair) for pair in pairs} == {6} and len(set(pairs)) == 6
    for trial in trials:
        trial.faults.check(3, None)
        trial.faults.check_steps(50)
        trial.faults.check_real()
        assert d5.Faults.parse(repr(trial.faults)) == trial.faults
        assert repr(trial.faults) in trial.arguments("x", None)
    assert {trial.policy for trial in trials} == {"stop", "continue", "restart", "replace"}


def on_a_mesh() -> dict[str, Any]:
    return {"agents": None, "mesh": d5.Mesh(replicas=2), "on_failure": "continue"}


@pytest.mark.parametrize(
    ("changes", "policies"),
    [
        ({}, ["stop", "continue", "restart", "replace"]),
        ({"distributed": d5.optimizers.Hogwild()}, ["stop", "continue"]),
        *cases_of("parallel", lambda: [(on_a_mesh(), ["continue"])]),
    ],
)
def test_policies_are_those_that_the_experiment_can_have(
    changes: dict[str, Any], policies: list[str]
) -> None:
    """Agents that share one memory cannot be started again; a mesh keeps the one that it is given."""
    assert possible(EXPERIMENT.with_values(**changes)) == policies


def test_a_checkpoint_is_a_moment_where_there_are_checkpoints() -> None:
    """And there alone: faults in the midst of it would never happen otherwise."""
    draw: dict[str, Any] = {"steps": 50, "seconds": 3.0, "victims": ("agent",)}
    found = drawn(EXPERIMENT.with_values(events=d5.events.Checkpoint(every_steps=10)), 90, 1, **draw)
    assert {trial.about.during for trial in found} == {
        None, "collective", "evaluation", "checkpoint", "recovery", "closing",
    }  # fmt: skip
    assert "checkpoint" not in {trial.about.during for trial in drawn(EXPERIMENT, 90, 1, **draw)}


def test_two_faults_come_close_together() -> None:
    """Within a second, of any two victims; where a death ends the run, after that of the aggregator alone."""
    servers = EXPERIMENT.with_values(distributed=d5.optimizers.ASGD(), servers=d5.Servers(shards=2))
    after: dict[str, set[tuple[str, str]]] = {"stop": set(), "restart": set()}
    for trial in drawn(servers, 5000, 1, steps=50, seconds=3.0):
        first, *second = trial.faults
        if second and first.at_seconds is not None and trial.policy in after:
            assert second[0].at_seconds is not None
            assert 0.0 <= second[0].at_seconds - first.at_seconds <= 1.0
            after[trial.policy].add((first.victim, second[0].victim))
    assert {first for first, _ in after["stop"]} == {"aggregator"}
    wanted = ("agent", "server", "aggregator")
    assert after["restart"] == {(first, second) for first in wanted for second in (*wanted, "driver")}


def test_a_disk_is_a_victim_like_others() -> None:
    """Full for a second or for ever, under every policy; it comes as often as each pair of the others."""
    trials = drawn(EXPERIMENT, 40, 1, steps=9, seconds=1.0, victims=("agent",), kinds=("kill", "fill_disk"))
    full = [trial for trial in trials if trial.about.kind == "fill_disk"]
    assert len(full) == 20 and {trial.victim for trial in full} == {"disk"}
    assert {trial.about.seconds for trial in full} == {None, 1.0}
    assert {trial.policy for trial in full} == {"stop", "continue", "restart", "replace"}
    for trial in full:
        trial.faults.check_real()
        assert d5.Faults.parse(repr(trial.faults)) == trial.faults


def test_a_driver_never_stands_for_ever() -> None:
    """Nobody could end such a run."""
    for trial in drawn(EXPERIMENT, 60, 1, steps=9, seconds=1.0, victims=("driver",), kinds=("stop",)):
        assert trial.about.seconds is not None


@pytest.mark.parametrize(
    ("plan", "policy", "wanted"),
    [
        (d5.Faults().kill(agent=1, at_step=1), "stop", FAILS),
        (d5.Faults().kill(agent=1, at_step=1), "continue", COMPLETES),
        (d5.Faults().terminate(agent=1, at_step=1), "restart", COMPLETES),
        (d5.Faults().stop(agent=1, at_step=1), "stop", FAILS),
        (d5.Faults().stop(agent=1, at_step=1, seconds=1), "stop", COMPLETES),
        (d5.Faults().kill("aggregator", at_seconds=1), "stop", COMPLETES),
        (d5.Faults().kill("driver", at_seconds=1), "restart", DIES),
        (d5.Faults().terminate("driver", at_seconds=1), "restart", INTERRUPTS),
        (d5.Faults().kill("gcs", at_seconds=1), "restart", FAILS),
        (d5.Faults().terminate("raylet", at_seconds=1), "restart", LEFT),
        (d5.Faults().fill_disk(at_seconds=1, seconds=1), "stop", COMPLETES),
        (d5.Faults().fill_disk(at_seconds=1), "restart", FILLED),
        (d5.Faults().fill_shared_memory(at_seconds=1, seconds=1), "stop", COMPLETES),
        (d5.Faults().fill_shared_memory(at_seconds=1), "restart", SHORT),
    ],
)
def test_how_a_run_is_to_end_follows_from_plan_and_policy(plan: d5.Faults, policy: str, wanted: str) -> None:
    """And where the fault never happened, it completes."""
    assert expected(Trial(plan, policy), {str(fault) for fault in plan}, EXPERIMENT) == wanted
    assert expected(Trial(plan, policy), set(), EXPERIMENT) == COMPLETES


@pytest.mark.parametrize(
    ("deaths", "policy", "changes", "wanted"),
    [
        (2, "replace", {"min_agents": 3}, COMPLETES),  # who are left wait
        (2, "continue", {"min_agents": 2}, FAILS),
        (2, "continue", {"min_agents": 1}, COMPLETES),
        (3, "continue", {}, FAILS),
        (3, "restart", {}, ENDS),  # unless one was there again before the last one died
        (3, "replace", {}, ENDS),
        (3, "restart", {"distributed": d5.optimizers.ASGD()}, COMPLETES),
    ],
)
def test_how_a_run_is_to_end_that_loses_several_agents(
    deaths: int, policy: str, changes: dict[str, Any], wanted: str
) -> None:
    """By how many are left; servers have the state where nobody is."""
    plan = d5.Faults()
    for rank in range(deaths):
        plan = plan.kill(agent=rank, at_step=1)
    experiment = EXPERIMENT.with_values(**changes)
    assert expected(Trial(plan, policy), {str(fault) for fault in plan}, experiment) == wanted


def finished(code: int | None, err: str = "", left: tuple[str, ...] = ()) -> Ended:
    return Ended(code, err, 1.0, left)


@pytest.mark.parametrize(
    ("process", "wrong"),
    [
        (finished(None), "did not end within 9 s"),
        (finished(0, left=("/dev/shm/d5ray-1-2-3",)), "it left /dev/shm/d5ray-1-2-3"),
        (finished(3, "error: no"), "it completes, but"),
        (finished(0, "Traceback (most recent call last)"), "traceback"),
    ],
)
def test_the_judge_sees_what_is_wrong_with_a_process(process: Ended, wrong: str, tmp_path: Path) -> None:
    """Hung, leftovers, another exit code than the policy's, a traceback."""
    found = judged(Trial(d5.Faults().kill(agent=1, at_step=1), "stop"), process, EXPERIMENT, tmp_path, 9.0)
    assert any(wrong in each for each in found.wrong)


def test_the_judge_compares_the_survivors_and_reads_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that says nothing of its agents' parameters is wrong, and one that went on with too few.

    A fault that did not happen was missed, as an event says.
    """
    monkeypatch.setenv("D5RAY_HOME", str(tmp_path))
    plan = d5.Faults().kill(agent=1, at_step=2).kill(agent=1, at_step=99)
    with d5.simulate(EXPERIMENT.with_values(on_failure="continue"), faults=plan) as group:
        group.train(5, progress=False)
    wanted = EXPERIMENT.with_values(min_agents=3)
    found = judged(Trial(plan, "continue"), finished(0), wanted, tmp_path, 9.0)
    assert found.status == "completed" and not found.happened and found.missed
    assert any("different parameters" in each for each in found.wrong)
    assert any("2 agents trained, and min_agents is 3" in each for each in found.wrong)


@pytest.mark.parametrize("met", [True, False])
def test_the_judge_tells_a_fault_that_met_nobody_from_one_that_was_survived(
    met: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a policy nobody survives SIGTERM to an agent; one that came as the agent had ended is no wrong.

    The run says so in an event. Where it does not, it went on without one of its agents, which is wrong.
    """
    monkeypatch.setenv("D5RAY_HOME", str(tmp_path))
    with d5.simulate(EXPERIMENT) as group:
        group.train(5, progress=False)
    plan = d5.Faults().terminate(agent=2, during="evaluation")
    detail = json.dumps(plan.planned[0].described)
    told = [{"name": name, "detail": detail} for name in ("fault", *["fault_missed"] * (not met))]
    read = judging._read

    def with_faults(run: d5.Run | None) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        row, events = read(run)
        return row, events + told

    monkeypatch.setattr(judging, "_read", with_faults)
    monkeypatch.setattr(judging, "_wrong_folder", lambda *given: ())  # what a simulation leaves
    found = judged(Trial(plan, "stop"), finished(0), EXPERIMENT, tmp_path, 9.0)
    survived = "under on_failure='stop' it fails, but its status is 'completed' and its exit code 0"
    assert (found.happened, found.missed) == (met, not met)
    assert [each.partition(":")[0] for each in found.wrong] == [survived] * met


def result(*wrong: str, did: bool = True) -> Judged:
    return Judged(Trial(d5.Faults().kill(agent=1, at_step=1), "stop"), "completed", did, not did, wrong)


def test_a_campaign_is_decided_by_its_trials() -> None:
    """One that is wrong fails it, and so it does if no fault happened in any."""
    check([result(), result(did=False)])
    with pytest.raises(AssertionError, match="hung"):
        check([result(), result("hung")])
    with pytest.raises(AssertionError, match="no fault happened"):
        check([result(did=False)] * 2)


def test_a_process_that_hangs_is_ended_with_all_it_started(tmp_path: Path) -> None:
    """`d5ray` itself is not asked: a recipe that sleeps, and has a child that does."""
    recipe = tmp_path / "sleeps.py"
    recipe.write_text("import subprocess, time\nsubprocess.Popen(['sleep', '600'])\ntime.sleep(600)\n")
    found = ended(["run", str(recipe)], tmp_path, 3.0, None)
    assert found.code is None


@pytest.mark.full
@pytest.mark.timeout(6 * TRIAL_SECONDS)
@pytest.mark.parametrize("recipe", [RECIPE, SERVERS], ids=["one model", "with servers"])
def test_five_trials_end_as_promised(recipe: str, tmp_path: Path, head: Head) -> None:
    """Of agents, servers, aggregator and driver, at a cluster that they share; others every week."""
    seed = of_this_week("trials of faults").randrange(2**31)
    endure(tmp_path, recipe, 5, seed=seed, address=head.address)


@pytest.mark.full
@pytest.mark.timeout(6 * TRIAL_SECONDS)
def test_servers_have_the_state_where_all_agents_die_at_once(tmp_path: Path, head: Head) -> None:
    """Nobody is left to give the first newcomer its buffers, as long as the second death is not heard of."""
    recipe = tmp_path / "small.py"
    recipe.write_text(SERVERS)
    plan = d5.Faults().kill(agent=0, at_seconds=0.5).terminate(agent=1, at_seconds=0.8)
    process = ended(Trial(plan, "replace").arguments(str(recipe), head.address), tmp_path, 90.0, head.address)
    assert process.code in (0, 1, 2) and process.left == (), process


@pytest.mark.slow
@pytest.mark.timeout(41 * TRIAL_SECONDS)
@pytest.mark.parametrize("recipe", [RECIPE, SERVERS], ids=["one model", "with servers"])
def test_forty_trials_end_as_promised(recipe: str, tmp_path: Path, head: Head) -> None:
    """At a cluster that they share."""
    endure(tmp_path, recipe, 40, seed=SEED, address=head.address)


@pytest.mark.slow
@pytest.mark.timeout(76 * TRIAL_SECONDS)
@pytest.mark.parametrize(
    ("rule", "communicator"),
    [
        ("AllreduceSGD", "shared_memory"),
        ("AllreduceSGD", "socket"),
        ("DPSGD", "shared_memory"),
        ("ADPSGD", "socket"),
    ],
)
def test_three_hundred_trials_without_servers_end_as_promised(
    rule: str, communicator: str, tmp_path: Path
) -> None:
    """Each with an embedded Ray of its own, whose processes are victims, too; 75 of each pair."""
    endure(tmp_path, recipe_of(rule, communicator), 75, seed=SEED, victims=VICTIMS)


@pytest.mark.slow
@pytest.mark.timeout(201 * TRIAL_SECONDS)
def test_two_hundred_trials_with_servers_end_as_promised(tmp_path: Path) -> None:
    """Each with an embedded Ray of its own, whose processes are victims, too."""
    endure(tmp_path, SERVERS, 200, seed=SEED, victims=VICTIMS)


@pytest.mark.slow
@pytest.mark.timeout(21 * (TRIAL_SECONDS + 30))  # a full disk is waited for
def test_trials_of_a_full_disk_end_as_promised(tmp_path: Path) -> None:
    """Full for a second, or for ever."""
    with mounted(tmp_path / "disk", 64) as disk:
        endure(disk, RECIPE, 20, seed=SEED, kinds=("fill_disk",))


@pytest.mark.slow
@pytest.mark.timeout(21 * (TRIAL_SECONDS + 30))
@pytest.mark.parametrize("communicator", ["shared_memory", "socket"])
def test_trials_of_full_shared_memory_end_as_promised(communicator: str, tmp_path: Path) -> None:
    """Full for a second, or for ever; ten with agents that share memory, ten with others."""
    own = unshared()
    chaos = 'mount -t tmpfs -o size=512m tmpfs /dev/shm; exec "$0" -c "$@"'
    code = (
        "from pathlib import Path\n"
        "from tests.kits.laboratory.chaos.campaign import endure\n"
        f"endure(Path({str(tmp_path)!r}), {recipe_of('AllreduceSGD', communicator)!r}, 10, seed=1, "
        "kinds=['fill_shared_memory'])"
    )
    done = subprocess.run(
        [*own, chaos, sys.executable, code], cwd=REPOSITORY, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
