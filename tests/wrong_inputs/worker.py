"""The process in which wrong inputs are tried: it prints what became of each as a line of JSON

python -m tests.wrong_inputs.worker FOLDER FIRST < cases.json
"""

import json
import os
import pickle
import resource
import signal
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import psutil

import d5ray as d5
from d5ray.distributed.model_parallelism import ModelParallelism
from d5ray.errors import D5Error
from d5ray.identity.canonical import canonical
from tests.wrong_inputs import calls
from tests.wrong_inputs.trying import ACCEPTED, AT_THE_START, BY_THE_EXPERIMENT, IN_TRAINING
from tests.wrong_inputs.values import MISSING, UNEXPECTED, wrong_values

MORE_MEMORY = 2**30  # bytes that one input may take
LOCKED = "locked"
SECONDS = 5.0  # of the processor's time


class TooLong(BaseException):
    """An input took longer than it may."""


def used(made: Any, arguments: dict[str, Any], folder: Path) -> tuple[str, str]:
    """What becomes of what was accepted where a user goes on with it; raises what that raises."""
    repr(made)
    canonical(made)
    try:
        if isinstance(made, d5.Experiment):
            return _try(made, folder)
        given = _experiment_with(made, folder)
        if given is None:
            return ACCEPTED, repr(made)[:200]
        experiment = calls.experiment(**given)
    except D5Error as error:
        return BY_THE_EXPERIMENT, str(error)
    return _try(experiment, folder)


def _try(experiment: d5.Experiment, folder: Path) -> tuple[str, str]:
    repr(experiment)
    pickle.loads(pickle.dumps(experiment.describe()))
    assert experiment == experiment.with_values(name=experiment.name)
    if experiment.agents is None or experiment.agents > 8 or experiment.mesh is not None:
        return ACCEPTED, repr(experiment)[:200]
    try:
        group = d5.simulate(experiment, root=folder / "simulated")
    except D5Error as error:
        if "Traceback" in str(error):
            raise
        return AT_THE_START, str(error)
    try:
        with group:
            group.train(steps=2)
    except D5Error as error:
        if "Traceback" in str(error):
            raise
        return IN_TRAINING, str(error)
    return ACCEPTED, repr(experiment)[:200]


def _experiment_with(made: Any, folder: Path) -> dict[str, Any] | None:
    """The values of an experiment that uses what was made; None where none does."""
    if type(made).__name__ in ("DetectionQuality", "RankingQuality", "Play"):  # for other models
        return None
    for kind, name in (
        (d5.Optimizer, "optimizer"), (d5.Sampler, "train_sampler"), (d5.Transformation, "transformations"),
        (d5.Event, "events"), (ModelParallelism, "mesh"), (d5.faults.Late, "late"),
        (d5.Dataset, "dataset"), (d5.faults.FaultPolicy, "faults"), (d5.faults.Elasticity, "elastic"),
        (d5.metrics.Recording, "recording"),
    ):  # fmt: skip
        if isinstance(made, kind):
            more = {"distributed": d5.optimizers.ASGD} if name == "late" else {}
            return {name: made, **more, **({"agents": None} if name == "mesh" else {})}
    if isinstance(made, d5.Schedule):
        return {"optimizer": d5.optimizers.Scheduled(d5.optimizers.SGD(0.1), learning_rate=made)}
    if isinstance(made, d5.DistributedOptimizer):
        return {"distributed": made}
    if isinstance(made, d5.Topology):
        return {"distributed": d5.optimizers.DPSGD, "topology": made, "agents": None}
    if isinstance(made, (d5.Compressor, d5.compression.Reduction)):
        faithful = made.faithful if isinstance(made, d5.compression.Reduction) else made.unbiased
        return {
            "distributed": d5.optimizers.CompressedSGD(
                made if faithful else d5.compression.ErrorFeedback(made)
            )
        }
    if isinstance(made, d5.Servers):
        return {"servers": made, "distributed": d5.optimizers.ASGD}
    if isinstance(made, (d5.faults.Slowdown, d5.faults.ExponentialSlowdown, d5.faults.HeavyTailedSlowdown)):
        return {"slow": made}
    return None


def outcome(name: str, parameter: str, wrong: str, folder: Path) -> tuple[str, str]:
    """What became of one input, and what was said."""
    thing, arguments, _ = calls.valid_calls(folder)[name]
    if wrong == MISSING:
        arguments.pop(parameter, None)
    elif wrong == UNEXPECTED:
        arguments["unexpected"] = 1
    elif wrong != "nothing":
        arguments[parameter] = wrong_values(folder)[wrong]
    stage = "traceback"
    os.environ["D5RAY_HOME"] = str(folder / (LOCKED if name == "launch" else "home"))
    try:
        made = thing(**arguments)
        stage = "late"
        return used(made, arguments, folder)
    except D5Error as error:
        if name == "launch" and LOCKED in str(error):
            return ACCEPTED, str(error)  # all but the place was right
        return ("refused" if stage == "traceback" else "refused late"), str(error)
    except TooLong:
        return "too long", stage
    except MemoryError as error:
        return "memory", f"{stage} {error}"
    except TypeError as error:
        allowed = stage == "traceback" and wrong in (MISSING, UNEXPECTED)
        return ("refused" if allowed else stage), f"TypeError: {error}"
    except BaseException as error:
        return stage, f"{type(error).__name__}: {error}"


def _too_long(*_: object) -> None:
    raise TooLong


def main() -> None:
    folder, first = Path(sys.argv[1]), int(sys.argv[2])
    cases = json.load(sys.stdin)
    (folder / LOCKED).write_text("no folder")  # so that no run begins there
    os.chdir(folder)
    warnings.simplefilter("ignore")
    said = os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    outcome("Experiment", "", "nothing", folder)  # everything is imported
    signal.signal(signal.SIGVTALRM, _too_long)
    for place, case in enumerate(cases[first:], first):
        took = psutil.Process().memory_info().vms
        resource.setrlimit(resource.RLIMIT_AS, (took + MORE_MEMORY, resource.RLIM_INFINITY))
        began = time.process_time()
        signal.setitimer(signal.ITIMER_VIRTUAL, SECONDS)
        try:
            name, parameter, wrong = case
            became, text = outcome(name, parameter, wrong, folder)
        except TooLong:
            became, text = "too long", ""
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        line = [place, became, text[:2000], time.process_time() - began]
        print(json.dumps(line), file=said, flush=True)


if __name__ == "__main__":
    main()
