"""The adapter to Ray Tune: a search whose trials are runs, how many are made side by side, how each ended"""

import logging
import shutil
import time
from collections.abc import Callable, Mapping
from concurrent.futures import wait
from pathlib import Path
from typing import Any, Final, final

import ray
from ray import cloudpickle, tune
from ray.tune import schedulers
from ray.tune.search import SearchAlgorithm, Searcher

from d5ray.actors.cluster.placement import Reservation
from d5ray.actors.session import session
from d5ray.actors.session.around_start import environment_of
from d5ray.actors.session.in_thread import in_thread
from d5ray.actors.shipping import ship
from d5ray.checks import check_kind
from d5ray.errors import ConfigurationError, PlacementError, nearest

Space = Mapping[str, Any]
RUN: Final = "run"  # the run's name in what a trial tells
LOOK_SECONDS: Final = 0.2
END_SECONDS: Final = 60.0  # for trials that were told to end
DOMAINS: Final = (  # of Ray Tune's, by their names there
    "uniform", "quniform", "loguniform", "qloguniform", "randn", "qrandn", "randint", "qrandint",
    "lograndint", "qlograndint", "choice", "grid_search",
)  # fmt: skip
SHARES: Final = 10_000  # of a resource, the smallest that Ray counts
# They let a trial stop and go on from a checkpoint, perhaps with other settings; the run would not be one.
PAUSING: Final = (
    schedulers.HyperBandScheduler, schedulers.PopulationBasedTraining,
    schedulers.PopulationBasedTrainingReplay, schedulers.ResourceChangingScheduler,
)  # fmt: skip
QUIET: Final = {  # Tune leaves no files, writes no tables, and trials work where Ray's workers do
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1", "RAY_CHDIR_TO_TRIAL_DIR": "0",
    "TUNE_PRINT_ALL_TRIAL_ERRORS": "0", "RAY_AIR_NEW_OUTPUT": "0",
    "TUNE_WARN_INSUFFICENT_RESOURCE_THRESHOLD_S": "0",
}  # fmt: skip


@final
class TuneTrial(tune.Trainable):  # type: ignore[misc]  # Ray has no types here
    """The process of a trial: one training after the other, which `begin` begins with their settings."""

    def setup(self, config: dict[str, Any], shipped: bytes = b"") -> None:
        """Begin the first one. shipped: `begin`, pickled."""
        self._begin: Callable[[Space], Any] = cloudpickle.loads(shipped)
        self._training = self._begin(dict(config))

    def step(self) -> dict[str, Any]:
        """Wait for what is told next, after an epoch or at the end."""
        told: dict[str, Any] = self._training.next()
        return told

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Go on with a training of other settings."""
        self.cleanup()
        self._training = self._begin(dict(new_config))
        return True

    def cleanup(self) -> None:
        """End the training, if it goes on."""
        self._training.end()


@final
class _UntilInterrupted(tune.Stopper):  # type: ignore[misc]
    """Ends the search when a file is there; it is copied by pickling."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        return False

    def stop_all(self) -> bool:
        return self._file.exists()


def check(searcher: Any, scheduler: Any) -> None:
    """Raise `ConfigurationError` for what Tune does not take, or what does not fit to runs."""
    searchers = Searcher | SearchAlgorithm | None
    check_kind("searcher", searcher, searchers, "one of Ray Tune's, such as search.optuna.OptunaSearch()")
    wanted = "one of Ray Tune's, such as schedulers.ASHAScheduler()"
    check_kind("scheduler", scheduler, schedulers.TrialScheduler | None, wanted)
    if isinstance(scheduler, PAUSING):
        raise ConfigurationError(
            f"scheduler is a {type(scheduler).__name__}, which lets trials go on from checkpoints, with "
            "other settings or places: a trial is one run here; take ASHAScheduler() or MedianStoppingRule()"
        )


def domain(value: Any) -> Any:
    """The domain of Tune's that this is, or that a list means; None for anything else."""
    grid = isinstance(value, Mapping) and set(value) == {"grid_search"}
    if grid or isinstance(value, tune.search.sample.Domain):
        return value
    return tune.choice(list(value)) if isinstance(value, (list, tuple)) else None


def made(name: str, *bounds: Any) -> Any:
    """The domain of Tune's that this name and its arguments mean; raises `ValueError` for no name of one."""
    if name not in DOMAINS:
        raise ValueError(nearest(name, DOMAINS))
    return getattr(tune, name)(*bounds)


def asha() -> Any:
    """The scheduler that ends trials early which are worse than others after as many epochs."""
    return schedulers.ASHAScheduler(grace_period=1)


def choices(found: Any) -> list[Any]:
    """The values of a domain; none where it has too many."""
    return list(found["grid_search"] if isinstance(found, Mapping) else getattr(found, "categories", ()))


def search(
    begin: Callable[[Space], Any], space: Space, resources: Any, interrupted: Path, **settings: Any
) -> list[tuple[Space, str, str]]:
    """Let Tune search; the settings of every trial, its run, and why it failed, in the order of their begin.

    interrupted: a file for Ctrl-C, which ends all trials and is raised again, in a folder that Tune may write
    into, and that is removed. settings: of `tune.TuneConfig`. Ray is joined.
    """
    folder, logger = interrupted.parent, logging.getLogger("ray.tune")
    folder.mkdir(mode=0o700)
    level = logger.level
    logger.setLevel(logging.CRITICAL)  # it says which trials failed, and so does who asked for them
    trainable = tune.with_parameters(TuneTrial, shipped=ship(begin, "the recipe"))
    try:
        with environment_of(QUIET):
            tuner = tune.Tuner(
                tune.with_resources(trainable, resources),
                param_space=dict(space),
                tune_config=tune.TuneConfig(**settings),
                run_config=tune.RunConfig(
                    name="trials", storage_path=str(folder), verbose=0, stop=_UntilInterrupted(interrupted),
                    checkpoint_config=tune.CheckpointConfig(checkpoint_frequency=0, checkpoint_at_end=False),
                ),
            )  # fmt: skip
            grid = _fitted(tuner.fit, interrupted)
        return [
            (dict(each.config or {}), (each.metrics or {}).get(RUN, ""), _cause(each.error)) for each in grid
        ]
    finally:
        logger.setLevel(level)
        shutil.rmtree(folder, ignore_errors=True)


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


def resources(reserved: Reservation, *, in_process: bool) -> Any:
    """The resources of a trial: of this node, where runs are kept, so much that as many fit as have room.

    reserved: of one trial. in_process: it takes that itself; otherwise its agents reserve it.
    """
    here = next(node for node in ray.nodes() if node["NodeID"] == ray.get_runtime_context().get_node_id())
    name = next(key for key in here["Resources"] if key.startswith("node:") and not key.startswith("node:__"))
    if in_process:
        return tune.PlacementGroupFactory([{**reserved.resources, name: 1 / SHARES}])
    total = ray.cluster_resources()
    side_by_side = reserved.places(total) if reserved.resources else int(total.get("CPU", 0.0))
    if side_by_side < 1:
        less = " or gpus_per_agent" if reserved.gpus else ""
        raise PlacementError(
            f"the Ray cluster has {reserved.of([total])}, the agents of a trial take {reserved}: "
            f"let them be fewer, set a smaller cpus_per_agent{less}, or add nodes"
        )
    return tune.PlacementGroupFactory([{name: SHARES // side_by_side / SHARES}])


def _cause(error: Any) -> str:
    """The words of what a trial raised: Ray hands on its text, with that of the traceback above it."""
    cause = getattr(error, "cause", None) or error
    lines = [line for line in str(cause).splitlines() if line.strip()]
    if error is None or not lines:
        return "" if error is None else type(cause).__name__
    return lines[-1].partition("Error: ")[2] or lines[-1]
