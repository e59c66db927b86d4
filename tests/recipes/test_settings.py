"""Claims about components written as text: what `--set topology=Torus(2, 3)` makes, and what it refuses"""

from typing import Any

import pytest

import d5ray as d5
from d5ray.distributed.optimizers.optimizer import DistributedOptimizer
from d5ray.distributed.topologies.topology import Topology
from d5ray.errors import ConfigurationError
from d5ray.identity.canonical import digest
from d5ray.recipes.engine.parsing import settings
from d5ray.recipes.engine.parsing.texts import settings_of
from d5ray.training.transformations import Transformation


@pytest.mark.parametrize(
    ("key", "kind", "text", "expected"),
    [
        ("topology", Topology, "Torus(2, 3)", d5.topologies.Torus(2, 3)),
        ("topology", Topology, "d5.topologies.Torus(2, 3)", d5.topologies.Torus(2, 3)),
        (
            "topology",
            Topology,
            "Ring(agents=4, mixing=Uniform())",
            d5.topologies.Ring(4, mixing=d5.topologies.Uniform()),
        ),
        (
            "topology",
            Topology,
            "TimeVarying((Ring(4), Star(4)))",
            d5.topologies.TimeVarying((d5.topologies.Ring(4), d5.topologies.Star(4))),
        ),
        ("distributed", DistributedOptimizer, "LocalSGD(4)", d5.optimizers.LocalSGD(4)),
        (
            "distributed",
            DistributedOptimizer,
            "CompressedSGD(ErrorFeedback(Chain(TopK(16, bucket=512), QSGD(bits=4))))",
            d5.optimizers.CompressedSGD(
                d5.compression.ErrorFeedback(
                    d5.compression.Chain(d5.compression.TopK(16, bucket=512), d5.compression.QSGD(bits=4))
                )
            ),
        ),
        ("topology", Topology, "Torus(*[2, 3])", d5.topologies.Torus(2, 3)),
        ("optimizer", d5.Optimizer, 'Adam(**{"learning_rate": 0.1})', d5.optimizers.Adam(0.1)),
        (
            "optimizer",
            d5.Optimizer,
            'Adam(*(0.1,), **{**{"beta1": 0.5}, "beta2": 0.7})',
            d5.optimizers.Adam(0.1, 0.5, 0.7),
        ),
        ("transformations", Transformation, "RandomFlip(0.2)", d5.transformations.RandomFlip(0.2)),
        ("transformations", Transformation, "randomflip", d5.transformations.RandomFlip()),
        (
            "transformations",
            Transformation,
            "(Crop(32, padding=4), RandomFlip(), Normalize((0.5, 0.4, 0.3), 0.2))",
            (
                d5.transformations.Crop(32, padding=4),
                d5.transformations.RandomFlip(),
                d5.transformations.Normalize((0.5, 0.4, 0.3), 0.2),
            ),
        ),
    ],
)
def test_a_call_written_as_text_is_that_call(key: str, kind: type, text: str, expected: Any) -> None:
    """Nested, with keywords and tuples; the hash is that of the object itself."""
    made = settings.built({key: text})[key]
    assert type(made) is type(expected)
    assert digest(made) == digest(expected)


@pytest.mark.parametrize(
    ("key", "text", "words"),
    [
        ("topology", "Torus(2)", "cannot be made"),
        ("topology", "Torus(2, 3", "cannot be made"),
        ("topology", "Tours(2, 3)", r"did you mean d5\.topologies\.Torus\?"),
        ("topology", "topologies.Tours(2, 3)", r"did you mean d5\.topologies\.Torus\?"),
        ("topology", "optimizers.Ring(2)", r"named 'optimizers.Ring': did you mean d5\.topologies\.Ring\?"),
        ("topology", "Zzzzzz(2)", r"dir\(d5ray\) lists the namespaces"),
        ("topology", "SGD(0.1)", "is a SGD: it must be a Topology"),
        ("topology", "__import__('os').getcwd()", "cannot be made"),
        ("optimizer", "Adam(0.1, learning_rate=0.2)", "learning_rate"),
        ("optimizer", "Adam(learning_rate=0.1, learning_rate=0.2)", "learning_rate is given twice"),
        ("optimizer", "Adam(learning_rate=0.1, **{'learning_rate': 0.2})", "learning_rate is given twice"),
        ("optimizer", "Adam(**{'learning_rat': 0.1})", "learning_rat"),
        ("optimizer", "Adam(**{1: 0.1})", "no dictionary of arguments"),
        ("optimizer", "Adam(**0.1)", "no dictionary of arguments"),
        ("transformations", "(RandomFlip(), SGD(0.1))", "has a SGD: it must be a Transformation"),
        ("distributed", "open('/etc/passwd')", "there is no class of d5ray named 'open'"),
        ("distributed", "CompressedSGD(TopK(0.1))", "Write CompressedSGD\\(ErrorFeedback"),
    ],
)
def test_what_cannot_be_made_is_refused(key: str, text: str, words: str) -> None:
    """Nothing but classes of d5ray is called, whatever the text says."""
    with pytest.raises(ConfigurationError, match=words):
        settings.built({key: text})


def test_key_that_is_set_twice_is_refused() -> None:
    """Two values for one key are told, and neither is taken."""
    assert settings_of(["agents=2", "model=lenet"]) == {"agents": 2, "model": "lenet"}
    with pytest.raises(ConfigurationError, match="agents is given twice, as 2 and as 4"):
        settings_of(["agents=2", "agents=4"])
