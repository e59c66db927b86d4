"""The adapter to Ray Tune: a search whose trials are runs, how many are made side by side, how each ended"""

import logging
import shutil
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import wait
from math import inf
from pathlib import Path
from typing import Any, Final, final

import ray
from ray import tune
from ray.tune import schedulers, stopper

from d5ray.actors.cluster.placement import places_of, reservation_of
from d5ray.actors.session import session
from d5ray.actors.session.around_start import environment_of
from d5ray.actors.session.session import in_thread
from d5ray.actors.shipping import ship
from d5ray.checks import check_kind
from d5ray.errors import ConfigurationError, nearest
from d5ray.experiment import Experiment

RUN: Final = "run"  # the run's name in what a trial tells
END_SECONDS: Final = 60.0  # for trials that were told to end
DOMAINS: Final = {"grid_search"} | set(vars(tune.search.sample)) & set(tune.__all__) - {"sample_from"}
SHARES: Final = 10_000  # of a resource, the smallest that Ray counts
PAUSING: Final = (  # a trial would be several runs
    schedulers.HyperBandScheduler, schedulers.PopulationBasedTraining,
    schedulers.PopulationBasedTrainingReplay, schedulers.ResourceChangingScheduler,
)  # fmt: skip
QUIET: Final = {  # Tune leaves no files, writes no tables, and trials work where Ray's workers do
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1", "RAY_AIR_NEW_OUTPUT": "0", "RAY_CHDIR_TO_TRIAL_DIR": "0",
}  # fmt: skip


@final
class TuneTrial(tune.Trainable):  # type: ignore[misc]  # Ray has no types here
    """The process of a trial: one training after the other, which `begin` begins with their settings."""

    def setup(self, config: dict[str, Any], begin: Callable[[dict[str, Any]], Any]) -> None:
        self._begin, self._training = begin, begin(dict(config))

    def step(self) -> Any:
        return self._training.next()

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        self.cleanup()
        self.setup(new_config, self._begin)
        return True

    def cleanup(self) -> None:
        self._training.end()


@final
class _UntilInterrupted(stopper.NoopStopper):  # type: ignore[misc]
    """Ends the search when a file is there; it is copied by pickling."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def stop_all(self) -> bool:
        return self._file.exists()


def check(searcher: Any, scheduler: Any) -> None:
    """Raise `ConfigurationError` for what Tune does not take, or what does not fit to runs."""
    searchers = tune.search.Searcher | tune.search.SearchAlgorithm | None
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


def search(
    begin: Callable[..., Any], space: dict[str, Any], resources: Any, interrupted: Path, **settings: Any
) -> list[Any]:
    """Let Tune search; what it tells of every trial, in the order of their begin, with `RUN` in its metrics.

    interrupted: a file for Ctrl-C, which ends all trials and is raised again, in a folder that Tune may write
    into, and that is removed. settings: of `tune.TuneConfig`. Ray is joined.
    """
    ship(begin, "the recipe")
    folder, logger = interrupted.parent, logging.getLogger("ray.tune")
    folder.mkdir(mode=0o700)
    level = logger.level
    logger.setLevel(logging.CRITICAL)  # it says which trials failed, and so does who asked for them
    try:
        with environment_of(QUIET):
            tuner = tune.Tuner(
                tune.with_resources(tune.with_parameters(TuneTrial, begin=begin), resources),
                param_space=space,
                tune_config=tune.TuneConfig(**settings),
                run_config=tune.RunConfig(
                    storage_path=str(folder), verbose=0, stop=_UntilInterrupted(interrupted),
                    checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=False),
                ),
            )  # fmt: skip
            fitted = in_thread(tuner.fit)  # this thread hears of Ctrl-C, and of a Ray that is lost
            try:
                return list(session.guarded(fitted.result, inf))
            except KeyboardInterrupt:
                interrupted.touch()
                session.guarded(lambda: wait([fitted], timeout=END_SECONDS), inf)
                raise
    finally:
        logger.setLevel(level)
        shutil.rmtree(folder, ignore_errors=True)


def resources(largest: Sequence[Experiment], *, in_process: bool) -> dict[str, float]:
    """The resources of a trial: of this node, where runs are kept, so much that as many fit as have room.

    largest: trials of which one takes as much room as any; `PlacementError` where that is too much.
    in_process: a trial takes a CPU itself, otherwise its agents reserve theirs.
    """
    here = f"node:{ray.util.get_node_ip_address()}"
    if in_process:
        return {"cpu": 1, here: 1 / SHARES}
    rooms = [(each.agents or 1, reservation_of(each)) for each in largest]
    side_by_side = min(
        places_of(agents, each) // agents if each.resources else int(ray.cluster_resources()["CPU"])
        for agents, each in rooms
    )
    return {"cpu": 0, here: SHARES // side_by_side / SHARES}
