"""An Experiment in one process, on a virtual clock: the same agents, repeatable to the last bit"""

from collections.abc import Iterable
from pathlib import Path

from d5ray.actors.group.run_row import RunOrigin
from d5ray.actors.group.training import found_for
from d5ray.archive.experiments import Archived, ArchiveFiles, SimulationSettings, kept
from d5ray.checks import check_kind, check_path
from d5ray.distributed.faults.fault import Failure, check_failures
from d5ray.distributed.faults.plan import Faults
from d5ray.distributed.simulation.arrival_order import Order
from d5ray.distributed.simulation.compute import ComputeTime, ConstantTime
from d5ray.distributed.simulation.links import Links, UniformLinks
from d5ray.distributed.simulation.world import Simulation
from d5ray.errors import ConfigurationError
from d5ray.experiment import Experiment
from d5ray.failures.program_state import as_before
from d5ray.identity.shadowing import check_shadowing
from d5ray.metrics.record import store
from d5ray.simulated.group import SimulatedGroup

DATA_CENTRE = UniformLinks()
A_MILLISECOND = ConstantTime()
NO_FAULTS = Faults()


@as_before()
def simulate(
    experiment: Experiment,
    network: Links = DATA_CENTRE,
    compute: ComputeTime = A_MILLISECOND,
    *,
    origin: RunOrigin | None = None,
    root: Path | None = None,
    order: Order | None = None,
    failures: Iterable[Failure] = (),
    faults: Faults = NO_FAULTS,
    resume: str | Path | None = None,
) -> SimulatedGroup:
    """The experiment's agents in this process, ready to train. Use it as a context manager, like `launch`.

    Their gradients are real, their times are virtual: `network` models the time of messages, `compute` that
    of a gradient, and the experiment's `slow` the stragglers. Everything else takes no time. The same seed
    gives bitwise equal parameters and tables on the same processor with the same libraries; only the run's
    name differs. Calls of this function and of the group's methods leave the program's random streams,
    threads, modes and environment unchanged.

    root: the folder for the run's own folder, by default `runs_root()`. order: of the requests of agents to
    servers and to each other, by default that of their arrival.
    faults: faults to inject at virtual times; they are handled by the experiment's `on_failure`, as on real
    agents; with 'replace' an agent takes two virtual seconds to start. failures: agents that die, the same
    as `Faults().kill(agent=…, at_seconds=…)`.
    resume: the checkpoint to resume from, as for `launch`, of a simulated run or a real one; the virtual
    clock begins at 0 again.
    Raises `ConfigurationError` and `DataError` for settings that do not fit, `StorageError` if the run
    cannot be written.
    """
    check_kind("experiment", experiment, Experiment, "an Experiment")
    check_shadowing()
    for name, found, kind in (("network", network, Links), ("compute", compute, ComputeTime)):
        if not isinstance(found, kind):
            raise ConfigurationError(
                f"{name} is {found!r}: it must be a {kind.__name__} such as "
                f"{DATA_CENTRE if kind is Links else A_MILLISECOND!r}"
            )
    if experiment.mesh is not None:
        raise ConfigurationError(
            f"a simulation knows agents that have the whole network, the experiment has {experiment.mesh!r}: "
            "launch it, or leave the mesh out"
        )
    assert experiment.agents is not None
    check_kind("faults", faults, Faults, "a plan such as d5.Faults().kill(agent=1, at_step=3)")
    planned = faults
    for death in check_failures(failures, experiment.agents):
        planned = planned.kill(agent=death.agent, at_seconds=death.seconds)
    planned.check(experiment.agents, experiment.resolved_servers)
    planned.check_simulated()
    check_kind("origin", origin, RunOrigin | None, "None, or a RunOrigin")
    check_kind("order", order, Order | None, "None, or the Order of another run")
    root = store.runs_root() if root is None else check_path("root", root)
    checkpoint = None if resume is None else found_for(experiment, resume, root)
    store.check_writable(root)
    simulation = Simulation.of(network, compute, experiment.seed, order)
    archived = Archived(experiment, SimulationSettings(network, compute, faults=planned))
    keeping = kept(archived, lambda: _pickled(archived)) if order is None else ArchiveFiles()
    group = SimulatedGroup(experiment, simulation, root, origin, keeping, planned)
    try:
        group.open(checkpoint)
    except BaseException:
        group.abandon()
        raise
    return group


def _pickled(archived: Archived) -> bytes:
    import cloudpickle  # noqa: PLC0415 - only experiments with the user's own code need it

    data: bytes = cloudpickle.dumps(archived)
    return data
