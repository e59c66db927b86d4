"""Claims about the public names: each has one place and one line, and is loaded when it is asked for"""

import ast
import importlib
import warnings
from pathlib import Path

import pytest

import d5ray as d5
from d5ray.names import namespaces
from d5ray.names.kits import missing_kit
from d5ray.names.renamed import RENAMED
from tests.beside_kits import needs_kit, public_names

PACKAGE = Path(d5.__file__).parent
STUBS = sorted(PACKAGE.rglob("__init__.pyi"))


@pytest.mark.parametrize("name", public_names())
def test_a_public_name_is_the_object_of_its_module(name: str) -> None:
    """`d5ray.optimizers.SGD` is what the module of that rule defines under that name."""
    place = importlib.import_module(namespaces.places()[name])
    module = importlib.import_module(namespaces.table(place.__name__)[name])
    assert getattr(place, name) is vars(module)[name]
    assert getattr(place, name).__name__ == name
    assert name in dir(place) and name in getattr(place, "__all__", dir(place))


@pytest.mark.parametrize("stub", STUBS, ids=lambda stub: stub.parent.name)
def test_programs_read_a_stub_as_type_checkers_do(stub: Path) -> None:
    """Each line exports one name under its own, and Python's parser finds the names that `table` finds."""
    seen = {}
    for node in ast.parse(stub.read_text(encoding="utf-8")).body:
        assert isinstance(node, ast.ImportFrom) and node.level == 0
        (alias,) = node.names
        assert alias.asname == alias.name, f"{alias.name} is not exported: import it as itself"
        seen[alias.name] = node.module
    assert namespaces.table(".".join(stub.parent.relative_to(PACKAGE.parent).parts)) == seen


def test_a_public_name_has_one_place() -> None:
    """No two namespaces share a name, and no module of a namespace's folder hides one."""
    listed = [(stub.parent, name) for stub in STUBS for name in namespaces.table(_namespace(stub.parent))]
    own = {stub.parent.name for stub in STUBS} - {"d5ray"} | {"errors"}
    names_alone = [name for folder, name in listed if not (folder == PACKAGE and name in own)]
    below = namespaces.table("d5ray.errors").keys() - namespaces.table("d5ray").keys()
    assert sorted([*names_alone, *below]) == sorted(namespaces.places())
    assert own == {name for name, module in namespaces.table("d5ray").items() if module == "d5ray"}
    hidden = [
        name
        for folder, name in listed
        if folder != PACKAGE and ((folder / f"{name}.py").exists() or (folder / name).exists())
    ]
    assert hidden == []


def test_a_name_of_the_release_before_says_where_it_is_now() -> None:
    """Once; then it is there, and is the same object."""
    vars(d5).pop("Momentum", None)
    with pytest.warns(DeprecationWarning, match=r"^d5\.Momentum is d5\.optimizers\.Momentum now") as warned:
        old = getattr(d5, "Momentum")  # noqa: B009 - a type checker knows that it is gone
    assert warned[0].filename == __file__
    with warnings.catch_warnings(action="error"):
        assert getattr(d5, "Momentum") is old is d5.optimizers.Momentum  # noqa: B009
    vars(d5).pop("Momentum")


def test_names_that_were_renamed_are_public_now() -> None:
    """And the old ones are free."""
    assert set(RENAMED.values()) <= set(namespaces.places())
    assert set(RENAMED) & set(namespaces.places()) == set()


def test_attributes_of_before_mean_the_present_ones_for_one_release(tmp_path: Path) -> None:
    """A rule of a user's in the words of the release before is warned, at its line, and does what it did."""
    policy, rounds = d5.networks.FromRankZero(), list[int]()
    with pytest.warns(DeprecationWarning, match="^Former sets") as warned:

        class Former(d5.DistributedOptimizer):
            exchange, invariant, untrained = d5.ExchangeVia.PEERS, "none", policy

            def step(self, batch: d5.Batch) -> None:
                self.apply(self.gradient(batch))
                self.peers.post(1 - self.peers.rank, self.x)
                self.came = self.peers.collect()

            def linger(self, round: int) -> None:
                rounds.append(round)

    assert [each.filename for each in warned] == 2 * [__file__] and Former.buffer_policy is policy
    experiment = d5.Experiment(
        "mlp", "digits", d5.optimizers.SGD(0.1), distributed=Former, slow=d5.faults.Slowdown(1, 4)
    )
    with pytest.warns(DeprecationWarning) as warned, d5.simulate(experiment, root=tmp_path) as group:
        assert group.train(steps=3).completed
    texts = {str(each.message).partition(",")[0].partition(".")[2] for each in warned}
    assert rounds and texts == {"post is send now", "collect is receive now"}


@needs_kit("parallel")
@pytest.mark.parametrize("place", ["d5ray", "d5ray.pipelines"])
def test_a_name_that_was_renamed_says_its_new_one(place: str) -> None:
    """Where it was before, and where it was the release before that; elsewhere there is no such name."""
    said = rf"^{place.replace('ray', '')}\.FillDrain is d5\.pipelines\.GPipe now"
    with pytest.warns(DeprecationWarning, match=said):
        assert getattr(importlib.import_module(place), "FillDrain") is d5.pipelines.GPipe  # noqa: B009
    del vars(importlib.import_module(place))["FillDrain"]
    assert not hasattr(d5.topologies, "FillDrain")
    assert namespaces.spelled("pipelines.FillDrain") == ["GPipe"]


@pytest.mark.parametrize(
    ("space", "name", "message"),
    [
        ("d5ray.errors", "DataEror", r"there is no d5\.errors\.DataEror: did you mean d5\.errors\.DataError"),
        ("d5ray", "Rnig", r"there is no d5\.Rnig: did you mean d5\.topologies\.Ring"),
        ("d5ray.metrics", "zzz", r"there is no d5\.metrics\.zzz: dir\(d5\.metrics\) lists those"),
        (
            "d5ray",
            "MomentumOptimizer",
            r"d5ray has no 'MomentumOptimizer': Deep500's is d5\.optimizers\.Momentum here, see docs",
        ),
    ],
)
def test_an_unknown_name_is_answered_with_the_nearest(space: str, name: str, message: str) -> None:
    """With where they are, few of them, and as an AttributeError, so that `hasattr` works."""
    module = importlib.import_module(space)
    assert not hasattr(module, name)
    with pytest.raises(AttributeError, match=f"^{message}") as raised:
        getattr(module, name)
    assert str(raised.value).count("d5.") <= 2 + namespaces.MOST


def _namespace(folder: Path) -> str:
    return ".".join(folder.relative_to(PACKAGE.parent).parts)


def test_a_module_that_a_kit_lacks_is_no_missing_kit() -> None:
    """A kit whose own import fails is there: to say that it is not would hide why."""
    assert missing_kit(ModuleNotFoundError(name="d5ray.kits.laboratory")) == "laboratory"
    for other in ("d5ray.kits.laboratory.jobs", "gymnasium", "d5ray.kits", None):
        assert not missing_kit(ModuleNotFoundError(name=other))
