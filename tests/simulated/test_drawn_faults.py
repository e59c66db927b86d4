"""Claims about simulations under drawn faults of agents, servers and links: each ends as its policy says"""

import json
from collections import Counter
from typing import Any

import numpy as np
import pytest

import d5ray as d5
from d5ray.errors import AgentError
from tests.beside_kits import there
from tests.checked import KIT, assert_breaks, violations

AGENTS, STEPS, TIMEOUT_SECONDS = 4, 20, 30.0
RULES: dict[str, dict[str, Any]] = {
    "allreduce": {"distributed": d5.optimizers.AllreduceSGD()},
    "D-PSGD": {"distributed": d5.optimizers.DPSGD(), "topology": d5.topologies.Ring(AGENTS)},
    "AD-PSGD": {"distributed": d5.optimizers.ADPSGD(), "topology": d5.topologies.Ring(AGENTS)},
    "ASGD": {
        "distributed": d5.optimizers.ASGD(),
        "servers": d5.Servers(shards=2, snapshot_seconds=0.005),
        "optimizer": d5.optimizers.SGD(0.05),
    },
}
POLICIES = ("stop", "continue", "restart")
SYNCHRONOUS = ("allreduce", "D-PSGD")


def experiment(name: str, on_failure: str) -> d5.Experiment:
    values: dict[str, Any] = {
        "model": "mlp", "dataset": "digits", "optimizer": d5.optimizers.Momentum(0.05, 0.9),
        "agents": AGENTS, "batch_size": 16, "seed": 3, "on_failure": on_failure, "evaluate": False,
        "timeout_seconds": TIMEOUT_SECONDS, "stuck_seconds": 7.0,
    }  # fmt: skip
    return d5.Experiment.from_values(**(values | RULES[name]))


def drawn(rng: np.random.Generator, seconds: float, servers: bool) -> d5.Faults:
    """Up to three faults within a training of so many seconds."""
    plan = d5.Faults()
    kinds = ["kill", "kill", "stop", "stop for ever", "partition", "delay", "lose"]
    for _ in range(int(rng.integers(1, 4))):
        kind, agent = str(rng.choice(kinds + ["server"] * servers)), int(rng.integers(AGENTS))
        at = round(float(rng.uniform(0.0, seconds)), 5)
        when: dict[str, Any] = {"at_seconds": at}
        if rng.random() < 0.5:
            when = {"at_step": int(rng.integers(STEPS))}
        match kind:
            case "kill":
                plan = plan.kill(agent=agent, **when)
            case "stop":
                plan = plan.stop(agent=agent, seconds=3.0, **when)
            case "stop for ever":
                plan = plan.stop(agent=agent, **when)
            case "server":
                plan = plan.kill(server=int(rng.integers(2)), at_seconds=at)
            case "partition":
                lasts = float(rng.choice([3.0, 2 * TIMEOUT_SECONDS]))
                plan = plan.partition((agent,), at_seconds=at, seconds=lasts)
            case "delay":
                plan = plan.delay(0.1, at_seconds=at, seconds=float(rng.choice([0.5, 5.0])))
            case _:
                plan = plan.lose(0.05, at_seconds=at)
    return plan


def endure(name: str, trials: int, seed: int, policies: tuple[str, ...], step_seconds: float) -> int:
    """So many trials; of each the end, the parameters, the events and what `d5ray check` says."""
    rng, joined = np.random.default_rng(seed), 0
    pace = d5.simulation.ConstantTime(step_seconds)
    with d5.simulate(experiment(name, "stop"), compute=pace) as group:
        group.train(STEPS, progress=False)
        undisturbed = {rank: group.agents[rank].flat_parameters() for rank in group.left}
        seconds = group.seconds
    for number in range(trials):
        policy = str(rng.choice(policies))
        plan = drawn(rng, seconds, servers=name == "ASGD")
        trial = f"{name}, trial {number} of seed {seed}: on_failure={policy!r}, {plan!r}"
        found = []
        for _ in range(2):
            with d5.simulate(experiment(name, policy), compute=pace, faults=plan) as group:
                try:
                    error = "" if group.train(STEPS, progress=False).completed else "not completed"
                except AgentError as raised:
                    error = str(raised)
                left = {rank: group.agents[rank].flat_parameters() for rank in group.left}
                found.append((error, group.seconds, {rank: x.tobytes() for rank, x in left.items()}))
        assert found[0] == found[1], trial
        run = d5.Run(group.folder)
        rows = run.tables()["events"].to_pylist()
        joined += sum(row["name"] == "agent_joined" for row in rows)
        faults = [json.loads(row["detail"])["planned"] for row in rows if row["name"] == "fault"]
        planned = Counter(faults)
        assert not planned - Counter(map(str, plan)), trial
        happened = [fault for fault in plan if str(fault) in planned]
        fatal = any(fault.is_fatal for fault in happened if fault.victim)
        longer = any(fault.kind == "partition" and fault.seconds != 3.0 for fault in happened)
        if fatal and policy == "stop":
            assert error, trial
        elif not longer:  # three faults at most: one of four agents is left
            assert not error, f"{trial}: {error}"
        if error:
            assert run.row["status"] == "failed", trial
            assert not there(KIT) or any(each.startswith("the run is failed") for each in violations(run))
            continue
        assert_breaks(run, trial=trial)
        if name == "allreduce":
            assert len({x.tobytes() for x in left.values()}) == 1, trial
        if not fatal and name in SYNCHRONOUS:
            assert all(np.array_equal(x, undisturbed[rank]) for rank, x in left.items()), trial
    return joined


@pytest.mark.full
@pytest.mark.parametrize("name", RULES)
def test_drawn_trials_end_as_promised(name: str) -> None:
    """Deaths, stops, cuts, delays, losses, up to three in a run: the same bits twice, and the right end."""
    endure(name, 15, 1, POLICIES, step_seconds=1e-3)


@pytest.mark.full
@pytest.mark.parametrize("name", SYNCHRONOUS)
def test_drawn_trials_with_newcomers_end_as_promised(name: str) -> None:
    """Likewise, where agents that died are replaced, in steps of which some are done without them."""
    assert endure(name, 8, 1, ("replace",), step_seconds=0.4) > 3
