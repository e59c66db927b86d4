"""A search by Ray Tune: which trials it makes, how many side by side, and how each of them ended"""

import ast
import logging
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, final

import ray
from ray import tune
from ray.tune.schedulers import (
    HyperBandScheduler,
    PopulationBasedTraining,
    PopulationBasedTrainingReplay,
    ResourceChangingScheduler,
)

from d5ray.actors.cluster.placement import Reservation
from d5ray.actors.session import session
from d5ray.actors.session.around_start import environment_of
from d5ray.actors.session.in_thread import in_thread
from d5ray.actors.shipping import ship
from d5ray.actors.tuning.trial import END_SECONDS, RUN, TrialRuns, TuneTrial
from d5ray.errors import ConfigurationError, PlacementError, nearest

LOOK_SECONDS: Final = 0.2
DOMAINS: Final = (  # of Ray Tune's, by their names there
    "uniform", "quniform", "loguniform", "qloguniform", "randn", "qrandn", "randint", "qrandint",
    "lograndint", "qlograndint", "choice", "grid_search",
)  # fmt: skip
SHARES: Final = 10_000  # of a resource, the smallest that Ray counts
# They let a trial stop and go on from a checkpoint, perhaps with other settings; the run would not be one.
PAUSING: Final = (
    HyperBandScheduler, PopulationBasedTraining, PopulationBasedTrainingReplay, ResourceChangingScheduler,
)  # fmt: skip
QUIET: Final = {  # Tune leaves no files, writes no tables, and trials work where Ray's workers do
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1", "RAY_CHDIR_TO_TRIAL_DIR": "0",
    "TUNE_PRINT_ALL_TRIAL_ERRORS": "0", "RAY_AIR_NEW_OUTPUT": "0",
    "TUNE_WARN_INSUFFICENT_RESOURCE_THRESHOLD_S": "0",
}  # fmt: skip


@final
@dataclass(frozen=True)
class SearchPlan:
    """A search before it begins.

    space: domains of Tune's, or lists, by key. mode: "max" or "min". samples: how many settings are drawn.
    reserved: of one trial; in_process: it takes that itself, and not its agents.
    """

    space: Mapping[str, Any]
    mode: str
    samples: int
    searcher: Any
    scheduler: Any
    reserved: Reservation
    in_process: bool


@final
@dataclass(frozen=True)
class EndedTrial:
    """A trial that Tune made. run: empty where none began; error: why it failed."""

    settings: Mapping[str, Any]
    run: str
    error: str


@final
class _UntilInterrupted(tune.Stopper):  # type: ignore[misc]  # Ray has no types here
    """Ends the search when a file is there; it is copied by pickling."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        return False

    def stop_all(self) -> bool:
        return self._file.exists()


def check(searcher: Any, scheduler: Any) -> None:
    """Raise `ConfigurationError` for what Tune does not take, or what does not fit to runs."""
    if searcher is not None and not isinstance(searcher, (tune.search.Searcher, tune.search.SearchAlgorithm)):
        raise ConfigurationError(
            f"searcher is {searcher!r}: it must be one of Ray Tune's, such as "
            "ray.tune.search.optuna.OptunaSearch()"
        )
    if scheduler is not None and not isinstance(scheduler, tune.schedulers.TrialScheduler):
        raise ConfigurationError(
            f"scheduler is {scheduler!r}: it must be one of Ray Tune's, such as "
            "ray.tune.schedulers.ASHAScheduler()"
        )
    if isinstance(scheduler, PAUSING):
        raise ConfigurationError(
            f"scheduler is a {type(scheduler).__name__}, which lets trials go on from checkpoints, with "
            "other settings or places: a trial is one run here; take ASHAScheduler() or MedianStoppingRule()"
        )


def is_domain(value: object) -> bool:
    """True for a domain of Tune's, such as `loguniform(0.001, 1)`, or a grid of its."""
    return isinstance(value, tune.search.sample.Domain) or (
        isinstance(value, Mapping) and set(value) == {"grid_search"}
    )


def written(given: str) -> tuple[str, Any]:
    """A key and the domain that a text of the command line gives it: `lr=loguniform(0.001, 1)`, or a list."""
    key, equals, text = (part.strip() for part in given.partition("="))
    if not equals or not key:
        raise ConfigurationError(
            f"--over {given!r}: write it as key=domain, such as --over 'batch_size=[16, 32]'"
        )
    with suppress(ValueError, SyntaxError):
        return key, ast.literal_eval(text)
    try:
        call = ast.parse(text, mode="eval").body
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name) or call.keywords:
            raise ValueError("it is no domain with its bounds")
        if call.func.id not in DOMAINS:
            raise ValueError(nearest(call.func.id, DOMAINS))
        return key, getattr(tune, call.func.id)(*map(ast.literal_eval, call.args))
    except (SyntaxError, TypeError, ValueError) as error:
        raise ConfigurationError(
            f"--over {key}={text}: {error}; write a domain of Ray Tune's such as "
            f"{key}=loguniform(0.001, 1), or a list, {key}=[16, 32]"
        ) from error


def asha() -> Any:
    """The scheduler that ends trials early which are worse than others after as many epochs."""
    return tune.schedulers.ASHAScheduler(grace_period=1)


def choices(value: Any) -> list[Any]:
    """The values of a list, a grid or a choice; none of a domain that has too many."""
    if isinstance(value, (list, tuple)):
        return list(value)
    if isinstance(value, Mapping):
        return list(value["grid_search"])
    return list(getattr(value, "categories", ()))


def drawn(space: Mapping[str, Any]) -> dict[str, Any]:
    """Settings from the space, by chance."""
    found = {}
    for key, value in space.items():
        values = choices(value)
        found[key] = values[0] if values else value.sample()
    return found


def search(runs: TrialRuns, plan: SearchPlan, folder: Path) -> list[EndedTrial]:
    """Let Tune search; how each trial ended, in the order in which they began.

    folder: for what Tune writes; it is removed. Ctrl-C ends all trials, and is raised again. Ray is joined.
    """
    interrupted = folder / "interrupted"
    folder.mkdir(mode=0o700)
    try:
        with environment_of(QUIET):
            trainable = tune.with_parameters(
                TuneTrial, shipped=ship(runs, "the recipe"), interrupted=str(interrupted)
            )
            tuner = tune.Tuner(
                tune.with_resources(trainable, _resources(plan)),
                param_space={key: _domain(value) for key, value in plan.space.items()},
                tune_config=tune.TuneConfig(
                    metric=runs.metric, mode=plan.mode, num_samples=plan.samples, search_alg=plan.searcher,
                    scheduler=plan.scheduler, reuse_actors=runs.waits,
                ),
                run_config=tune.RunConfig(
                    name="trials", storage_path=str(folder), verbose=0, stop=_UntilInterrupted(interrupted),
                    checkpoint_config=tune.CheckpointConfig(checkpoint_frequency=0, checkpoint_at_end=False),
                ),
            )  # fmt: skip
            with _silent():
                grid = _fitted(tuner.fit, interrupted)
        return [_tried(result) for result in grid]
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _silent() -> Iterator[None]:
    """Tune says of trials that fail that they did; so does who asked for them."""
    logger = logging.getLogger("ray.tune")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)


def _fitted(fit: Callable[[], Any], interrupted: Path) -> Any:
    """What Tune found, while this thread hears of Ctrl-C and of a Ray that is lost."""
    found = in_thread(fit)
    try:
        while not wait([found], timeout=LOOK_SECONDS).done:
            session.check_alive()
    except KeyboardInterrupt:
        interrupted.touch()
        end = time.monotonic() + END_SECONDS
        while not wait([found], timeout=LOOK_SECONDS).done and time.monotonic() < end:
            session.check_alive()
        raise
    return found.result()


def _resources(plan: SearchPlan) -> tune.PlacementGroupFactory:
    """What a trial takes: of this node, where runs are kept, so much that as many fit as have room.

    Its agents, if it has any, reserve their CPUs and GPUs themselves.
    """
    here = next(node for node in ray.nodes() if node["NodeID"] == ray.get_runtime_context().get_node_id())
    name = next(key for key in here["Resources"] if key.startswith("node:") and not key.startswith("node:__"))
    if plan.in_process:
        return tune.PlacementGroupFactory([{**plan.reserved.resources, name: 1 / SHARES}])
    total = ray.cluster_resources()
    side_by_side = plan.reserved.places(total) if plan.reserved.resources else int(total.get("CPU", 0.0))
    if side_by_side < 1:
        less = " or gpus_per_agent" if plan.reserved.gpus else ""
        raise PlacementError(
            f"the Ray cluster has {plan.reserved.of([total])}, the agents of a trial take {plan.reserved}: "
            f"let them be fewer, set a smaller cpus_per_agent{less}, or add nodes"
        )
    return tune.PlacementGroupFactory([{name: SHARES // side_by_side / SHARES}])


def _domain(value: Any) -> Any:
    return tune.choice(list(value)) if isinstance(value, (list, tuple)) else value


def _tried(result: Any) -> EndedTrial:
    run = (result.metrics or {}).get(RUN, "")
    error = "" if result.error is None else _cause(result.error)
    return EndedTrial(dict(result.config or {}), run, error)


def _cause(error: BaseException) -> str:
    """The words of what a trial raised: Ray hands on its text, with that of the traceback above it."""
    cause = getattr(error, "cause", None) or error
    lines = [line for line in str(cause).splitlines() if line.strip()]
    return lines[-1].partition("Error: ")[2] or lines[-1] if lines else type(cause).__name__
