"""Claims about the kinds of `D5Error`: programs catch them by public names, and the reference lists them"""

import inspect
import re
from collections.abc import Callable
from operator import attrgetter
from pathlib import Path
from typing import Self

import numpy as np
import pytest

import d5ray as d5
from tests.beside_kits import needs_kit

EXPERIMENT = d5.Experiment("mlp", "digits", d5.optimizers.SGD(0.1))
REFERENCE = Path(__file__).parent.parent / "docs/reference/running.rst"


@pytest.mark.parametrize(
    ("kind", "wrong"),
    [
        ("ConfigurationError", lambda _: d5.topologies.Ring(0)),
        ("UnknownArgument", lambda _: d5.Experiment("mlp", "digits", d5.optimizers.SGD(0.1), agnets=2)),  # type: ignore[call-arg]
        ("DataError", lambda _: d5.from_arrays(np.zeros((3, 2)), np.zeros(4))),
        ("StorageError", lambda file: d5.simulate(EXPERIMENT, root=file / "runs")),
        ("ValidationError", lambda _: d5.operators.check_forward(np.negative, [np.ones(2)], np.square)),
    ],
)
def test_a_program_catches_a_kind_of_error(
    kind: str, wrong: Callable[[Path], object], tmp_path: Path
) -> None:
    """By `d5.errors`: the kind that the reference says."""
    (tmp_path / "file").touch()
    try:
        wrong(tmp_path / "file")
    except getattr(d5.errors, kind) as error:
        caught = error
    assert type(caught).__name__ == kind


@pytest.mark.parametrize(
    ("name", "misspelled", "meant"),
    [
        ("faults.FaultPolicy", "on_failur", "on_failure"),
        ("faults.Elasticity", "keep_bath", "keep_batch"),
        ("faults.Late", "agnet", "agent"),
        ("Servers", "shard", "shards"),
        ("metrics.Recording", "warmup_step", "warmup_steps"),
        ("topologies.Ring", "agent", "agents"),
        ("topologies.Uniform", "x", ""),
        ("topologies.Connected", "x", ""),
        ("compression.TopK", "buckets", "bucket"),
        ("compression.PowerSGD", "ranks", "rank"),
        ("compression.RecursiveDoubling", "x", ""),
        ("samplers.BucketSampler", "length", "lengths"),
        ("samplers.ShuffleSampler", "seed", ""),
        ("events.StopAtNaN", "every_step", "every_steps"),
        ("schedules.Cosine", "lenght", "length"),
        ("transformations.Crop", "pading", "padding"),
        ("optimizers.Momentum", "momentun", "momentum"),
        ("optimizers.ChocoSGD", "compresor", "compressor"),
        ("optimizers.DPSGD", "topology", ""),
        ("operators.FunctionLoss", "fuction", "function"),
        ("datasets.Split", "input", "inputs"),
        ("metrics.TestAccuracy", "x", ""),
        ("networks.SynchronizedBuffers", "x", ""),
        ("networks.CollectValues", "x", ""),
        ("networks.PowersOfTwo", "x", ""),
        ("servers.StaleSynchronous", "bounds", "bound"),
        ("servers.Elastic", "alhpa", "alpha"),
        ("faults.Slowdown", "agents", "agent"),
        ("simulation.UniformLinks", "latency_second", "latency_seconds"),
        ("simulation.ConstantTime", "duration", "duration_seconds"),
        pytest.param("Mesh", "micro_batch", "micro_batches", marks=needs_kit("parallel")),
        pytest.param("pipelines.Interleaved", "chunk", "chunks", marks=needs_kit("parallel")),
    ],
)
def test_a_misspelled_argument_of_a_part_of_an_experiment_is_met_by_the_right_one(
    name: str, misspelled: str, meant: str
) -> None:
    advice = f"did you mean '{meant}'" if meant else "it takes no arguments"
    with pytest.raises(
        d5.errors.UnknownArgument, match=f"^{name.rpartition('.')[2]} takes no '{misspelled}': {advice}"
    ):
        attrgetter(name)(d5)(**{misspelled: 1})


def test_a_class_without_arguments_takes_none_by_place() -> None:
    with pytest.raises(d5.errors.UnknownArgument, match="DPSGD takes no arguments, and was given 2"):
        d5.optimizers.DPSGD(2)  # type: ignore[call-arg]


class Named(tuple[str, ...]):
    """A base of a user's own that is made by `__new__`."""

    def __new__(cls, *names: str, sep: str) -> Self:
        return super().__new__(cls, sep.join(names).split(sep))


class NamedEvent(d5.Event, Named):
    def __init__(self, *names: str, sep: str) -> None:
        self.names = len(names)


class Whatever(d5.Event):
    def __init__(self, **values: int) -> None:
        self.values = values


class ByNew(d5.Event):
    def __new__(cls, *, size: int) -> Self:
        made = super().__new__(cls)
        made.size = size
        return made

    size: int


def test_a_class_of_the_users_own_takes_what_it_says() -> None:
    """Also with another base, without `__init__`, and with any keywords; `inspect` says the same."""
    made = NamedEvent("a", "b", sep=",")
    assert (made.names, tuple(made)) == (2, ("a", "b"))
    assert Whatever(sizes=3).values == {"sizes": 3}
    assert ByNew(size=3).size == 3
    assert list(inspect.signature(ByNew).parameters) == ["size"]
    assert list(inspect.signature(Whatever).parameters) == ["values"]
    assert list(inspect.signature(d5.topologies.Ring).parameters) == ["agents", "mixing"]
    assert list(inspect.signature(d5.optimizers.DPSGD).parameters) == []


def test_the_reference_lists_every_kind() -> None:
    """Each with the class that it is a subclass of."""
    kinds = [kind for kind in vars(d5.errors).values() if isinstance(kind, type)]
    errors = {kind.__name__: kind.__base__ for kind in kinds if issubclass(kind, d5.D5Error)}
    said = re.findall(r"^``(\w+)`` +``(\w+)``", REFERENCE.read_text(encoding="utf-8"), re.MULTILINE)
    assert dict(said) == {name: base.__name__ for name, base in errors.items() if base}
