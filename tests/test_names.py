"""Claims about the public names: each has one place and one line, and is loaded when it is asked for"""

import ast
import importlib
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

import d5ray as d5
from d5ray.names import deep500, namespaces
from d5ray.names.renamed import RENAMED
from tests.patience import patience

PACKAGE = Path(d5.__file__).parent
STUBS = sorted(PACKAGE.rglob("__init__.pyi"))
ELEMENT_TYPES = {
    name for name, module in namespaces.table("d5ray").items() if module in ("numpy", "ml_dtypes")
}


def spoken(thing: str) -> str:
    """What a fresh process prints that evaluates this."""
    code = f"import sys, d5ray as d5\nfrom d5ray.names import namespaces\nprint({thing})"
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        capture_output=True,
        text=True,
        timeout=patience(60),
        check=True,
    ).stdout.strip()


@pytest.mark.parametrize("name", namespaces.places())
def test_a_public_name_is_the_object_of_its_module(name: str) -> None:
    """`d5ray.optimizers.SGD` is what the module of that rule defines under that name."""
    place = importlib.import_module(namespaces.places()[name])
    module = importlib.import_module(namespaces.table(place.__name__)[name])
    assert getattr(place, name) is vars(module)[name]
    assert getattr(place, name).__name__ == name
    assert name in dir(place) and name in place.__all__


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
    own = {stub.parent.name for stub in STUBS} - {"d5ray"}
    names_alone = [name for folder, name in listed if not (folder == PACKAGE and name in own)]
    assert sorted(names_alone) == sorted(namespaces.places())
    assert own == {name for name, module in namespaces.table("d5ray").items() if module == "d5ray"}
    hidden = [
        name
        for folder, name in listed
        if folder != PACKAGE and ((folder / f"{name}.py").exists() or (folder / name).exists())
    ]
    assert hidden == []


def test_the_top_is_what_one_reads_at_a_glance() -> None:
    """Some forty names beside the namespaces, the element types and the doors of data and models."""
    at_the_top = {name for name, place in namespaces.places().items() if place == "d5ray"}
    doors = {name for name in at_the_top if name.startswith(("from_", "load_"))}
    assert doors == {
        "from_arrays", "from_torch", "from_huggingface", "from_ray", "from_table", "load_model",
    }  # fmt: skip
    assert at_the_top >= ELEMENT_TYPES
    assert 35 <= len(at_the_top - ELEMENT_TYPES - doors) <= 47


def test_one_name_loads_what_its_module_loads() -> None:
    """Looking up `Ring` by itself, as `--set topology=Ring(4)` does, imports no more than its module."""
    loaded = "sorted(name for name in sys.modules if name.startswith('d5ray'))"
    assert spoken(f"namespaces.public('Ring').__name__, {loaded}") == spoken(
        f"d5.topologies and __import__('d5ray.distributed.topologies.topology') and 'Ring', {loaded}"
    )


def test_a_name_of_the_release_before_says_where_it_is_now() -> None:
    """Once; then it is there, and is the same object."""
    vars(d5).pop("Momentum", None)
    with pytest.warns(DeprecationWarning, match=r"^d5\.Momentum is d5\.optimizers\.Momentum now") as warned:
        old = getattr(d5, "Momentum")  # noqa: B009 - a type checker knows that it is gone
    assert warned[0].filename == __file__
    with warnings.catch_warnings(action="error"):
        assert getattr(d5, "Momentum") is old is d5.optimizers.Momentum  # noqa: B009
    vars(d5).pop("Momentum")


@pytest.mark.parametrize("place", ["d5ray", "d5ray.pipelines"])
def test_a_name_that_was_renamed_says_its_new_one(place: str) -> None:
    """Where it was before, and where it was the release before that; elsewhere there is no such name."""
    said = rf"^{place.replace('ray', '')}\.FillDrain is d5\.pipelines\.GPipe now"
    with pytest.warns(DeprecationWarning, match=said):
        assert getattr(importlib.import_module(place), "FillDrain") is d5.pipelines.GPipe  # noqa: B009
    del vars(importlib.import_module(place))["FillDrain"]
    assert not hasattr(d5.topologies, "FillDrain")
    assert namespaces.spelled("pipelines.FillDrain") == ["GPipe"]


def test_names_that_were_renamed_are_public_now() -> None:
    """And the old ones are free."""
    assert set(RENAMED.values()) <= set(namespaces.places())
    assert set(RENAMED) & set(namespaces.places()) == set()


@pytest.mark.parametrize(
    ("space", "name", "message"),
    [
        ("d5ray", "Rnig", r"there is no d5\.Rnig: did you mean d5\.topologies\.Ring"),
        ("d5ray", "momentun", r"there is no d5\.momentun: did you mean d5\.optimizers\.Momentum"),
        ("d5ray", "Experimnet", r"there is no d5\.Experimnet: did you mean d5\.Experiment"),
        (
            "d5ray.optimizers",
            "Ring",
            r"there is no d5\.optimizers\.Ring: did you mean d5\.topologies\.Ring\?",
        ),
        ("d5ray.metrics", "Adma", r"there is no d5\.metrics\.Adma: did you mean .*d5\.optimizers\.Adam"),
        ("d5ray.metrics", "zzz", r"there is no d5\.metrics\.zzz: dir\(d5\.metrics\) lists those"),
        (
            "d5ray",
            "MomentumOptimizer",
            r"d5ray has no 'MomentumOptimizer': Deep500's is d5\.optimizers\.Momentum here, see docs",
        ),
        (
            "d5ray",
            "test_op_gradient",
            r"d5ray has no 'test_op_gradient': Deep500's is d5\.operators\.check_gradient here, see",
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


def test_python_adds_no_suggestion_to_ours() -> None:
    """Its own would be after ours, and of names alone that are in this namespace."""
    code = "import d5ray as d5\nd5.Experimnet"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=patience(60))
    assert done.stderr.endswith("there is no d5.Experimnet: did you mean d5.Experiment or d5.export?\n")


def test_names_of_deep500_lead_to_names_that_are_there() -> None:
    """And d5ray has none of them under the old name."""
    assert {deep500.successor(name).split(".")[1] for name in deep500.NAMES} <= {
        "frameworks",
        "networks",
        *namespaces.table("d5ray"),
    }
    assert set(deep500.NAMES) & set(namespaces.places()) == set()


def _namespace(folder: Path) -> str:
    return ".".join(folder.relative_to(PACKAGE.parent).parts)
