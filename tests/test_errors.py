"""Claims about the kinds of `D5Error`: programs catch them by public names, and the reference lists them"""

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import d5ray as d5

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


def test_the_reference_lists_every_kind() -> None:
    """Each with the class that it is a subclass of."""
    kinds = [kind for kind in vars(d5.errors).values() if isinstance(kind, type)]
    errors = {kind.__name__: kind.__base__ for kind in kinds if issubclass(kind, d5.D5Error)}
    said = re.findall(r"^``(\w+)`` +``(\w+)``", REFERENCE.read_text(encoding="utf-8"), re.MULTILINE)
    assert dict(said) == {name: base.__name__ for name, base in errors.items() if base}
