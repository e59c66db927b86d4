"""Claims about the kinds of `D5Error`: programs catch them by public names, and the reference lists them"""

import re
from collections.abc import Callable
from operator import attrgetter
from pathlib import Path

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
        pytest.param("Mesh", "micro_batch", "micro_batches", marks=needs_kit("parallel")),
    ],
)
def test_a_misspelled_argument_of_a_part_of_an_experiment_is_met_by_the_right_one(
    name: str, misspelled: str, meant: str
) -> None:
    with pytest.raises(
        d5.errors.UnknownArgument, match=f"^{name.rpartition('.')[2]} takes no .*did you mean '{meant}'"
    ):
        attrgetter(name)(d5)(**{misspelled: 1})


def test_the_reference_lists_every_kind() -> None:
    """Each with the class that it is a subclass of."""
    kinds = [kind for kind in vars(d5.errors).values() if isinstance(kind, type)]
    errors = {kind.__name__: kind.__base__ for kind in kinds if issubclass(kind, d5.D5Error)}
    said = re.findall(r"^``(\w+)`` +``(\w+)``", REFERENCE.read_text(encoding="utf-8"), re.MULTILINE)
    assert dict(said) == {name: base.__name__ for name, base in errors.items() if base}
