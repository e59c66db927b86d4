"""Launch: an experiment as data becomes a run's plan, and the plan a group of agents on Ray"""

from pathlib import Path

from d5ray.actors.cluster.placement import check_memory
from d5ray.actors.group.fills import check_disk, check_shared_memory
from d5ray.actors.group.group import Timings, TrainingGroup
from d5ray.actors.group.loading import Loading
from d5ray.actors.group.partitions import check_cluster
from d5ray.actors.group.run_row import RunOrigin, RunPlan, new_run_id
from d5ray.actors.group.training import found_for
from d5ray.actors.session import session
from d5ray.actors.shipping import ship
from d5ray.agent.building import shares_of
from d5ray.agent.trial import try_parts
from d5ray.archive.experiments import Archived, kept
from d5ray.archive.unfinished import AUTO, GoingOn, unfinished
from d5ray.checks import check_address, check_kind, check_path
from d5ray.display.console import err
from d5ray.distributed.faults.plan import Faults
from d5ray.experiment import Experiment
from d5ray.failures.program_state import as_before
from d5ray.identity.shadowing import check_shadowing
from d5ray.metrics.queries.binding import free_at
from d5ray.metrics.record import store
from d5ray.training.datasets.dataset import Dataset

NO_FAULTS = Faults()


@as_before()
def launch(
    experiment: Experiment,
    *,
    address: str | None = None,
    origin: RunOrigin | None = None,
    quiet: bool = False,
    root: Path | None = None,
    resume: str | Path | None = None,
    flight: str | None = None,
    faults: Faults = NO_FAULTS,
) -> TrainingGroup:
    """Start the experiment's agents as Ray actors, ready to train. Use it as a context manager.

    address: a Ray cluster, 'HOST:PORT' or 'auto'; otherwise RAY_ADDRESS, otherwise an embedded Ray.
    root: the folder for the run's own folder, by default `runs_root()`.
    resume: the checkpoint to resume from; in a folder of several, or a run given by its name, the last one.
    "last": the last one of the last run that wrote any. "auto": the last one of the last run of this
    experiment, if that did not finish and its driver is gone; if there is none, the run starts anew.
    flight: PORT or HOST:PORT at which the run answers queries by Arrow Flight, see `TrainingGroup.flight`.
    faults: faults to inject, such as `d5.Faults().kill(agent=1, at_step=3)`.
    Raises `PlacementError` if the cluster cannot place the agents or does not answer, `DataError` and
    `ConfigurationError` for settings that do not fit, `StorageError` if the run cannot be written. After an
    error nothing is left running and no folder of the run exists.
    """
    check_kind("experiment", experiment, Experiment, "an Experiment")
    check_shadowing()
    check_kind("origin", origin, RunOrigin | None, "None, or a RunOrigin")
    check_kind("quiet", quiet, bool, "True or False")
    check_kind("flight", flight, str | None, "PORT or HOST:PORT, as a text")
    check_kind("faults", faults, Faults, "a plan such as d5.Faults().kill(agent=1, at_step=3)")
    check_address(address)
    faults.check(experiment.agents or 1, experiment.resolved_servers)
    faults.check_real()
    check_cluster(faults, address)
    root = store.runs_root() if root is None else check_path("root", root)
    origin = origin or RunOrigin(recipe=experiment.name)
    pickled = ship(experiment)
    going_on = GoingOn() if resume is None else _going_on(experiment, resume, root)
    if flight is not None:
        free_at(flight)
    store.check_writable(root)
    check_disk(faults, root)
    check_shared_memory(faults, embedded=session.embeds(address))
    timings = Timings()
    with Loading(experiment) as loading:
        loading.check()
        if isinstance(experiment.dataset, Dataset):
            try_parts(experiment, experiment.dataset)
        shares = None if experiment.mesh is None else shares_of(experiment, loading.dataset.result())
        agents, run_id = experiment.agents or 1, new_run_id(origin.recipe or experiment.name)
        if session.embeds(address):
            check_memory(agents)
        connected = session.connect(
            address,
            cpus=int(-(-agents * experiment.cpus_per_agent // 1)),
            metadata={"recipe": origin.recipe, "recipe_hash": origin.recipe_hash, "run": run_id},
            quiet=quiet,
        )
        timings.lap("ray.init")
        needed = experiment.distributed_optimizer.asynchronous
        keeping = kept(Archived(experiment), lambda: pickled, needed=needed)
        group = TrainingGroup(RunPlan(experiment, run_id, root, origin, keeping, shares, faults), connected)
        try:
            told = group.start(loading, timings, going_on)
            if flight is not None:
                group.serve(flight)
            if told and not quiet:
                err().print(told, style="dim")
        except BaseException:
            group.abandon()
            raise
        return group


def _going_on(experiment: Experiment, resume: str | Path, root: Path) -> GoingOn:
    if isinstance(resume, str) and resume == AUTO:
        return unfinished(experiment, root)
    return GoingOn((found_for(experiment, resume, root),))
