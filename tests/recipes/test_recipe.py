"""Claims about recipes: what is refused and with which words, what the hash covers, what overrides do."""

import copy
import inspect
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import d5ray as d5
from d5ray.distributed.optimizers.optimizer import DistributedOptimizer
from d5ray.errors import ConfigurationError
from d5ray.experiment import Experiment
from d5ray.frameworks.torch import from_model
from d5ray.metrics.judge.criteria import Verdict
from d5ray.metrics.record.schema import TABLES, table_of
from d5ray.recipes import digits_lenet
from d5ray.recipes.engine import library
from d5ray.recipes.engine.parsing import texts
from d5ray.recipes.engine.recipe import Recipe, judged, overall
from d5ray.training.batches.batch import Batch

REPOSITORY = Path(__file__).parents[2]
FIXED: dict[str, Any] = {"model": "lenet", "dataset": "digits", "epochs": 20}
MUTABLE: dict[str, Any] = {
    "agents": 2,
    "batch_size": 32,
    "optimizer": d5.optimizers.Momentum,
    "optimizer_args": (0.05, 0.9),
    "seed": 1,
}
METRICS: list[Any] = [d5.metrics.TestAccuracy() >= 0.97, d5.metrics.StepTime() <= 0.05]


class Periodic(DistributedOptimizer):
    """With an argument, an attribute that is not one, and an attribute of the class."""

    slack = 3

    def __init__(self, period: int = 2) -> None:
        self.period = period

    def step(self, batch: Batch) -> None: ...


def recipe(
    fixed: dict[str, Any] | None = None,
    mutable: dict[str, Any] | None = None,
    metrics: object = None,
    **overrides: Any,
) -> Recipe:
    """The recipe above with other entries; an entry of None is left out."""

    def changed(part: dict[str, Any], changes: dict[str, Any] | None) -> dict[str, Any]:
        merged = part | (changes or {})
        return {key: value for key, value in merged.items() if value is not None}

    return Recipe.of(
        changed(FIXED, fixed),
        changed(MUTABLE, mutable),
        METRICS if metrics is None else metrics,
        name="test",
        overrides={key.replace("__", "."): value for key, value in overrides.items()},
    )


# -- wrong recipes --------------------------------------------------------------------------------------

WRONG: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "unknown key in FIXED": (
        {"fixed": {"dataste": "digits"}},
        ("FIXED", "'dataste'", "did you mean 'dataset'?"),
    ),
    "unknown key in MUTABLE": (
        {"mutable": {"optimiser": d5.optimizers.SGD}},
        ("MUTABLE", "'optimiser'", "did you mean 'optimizer'?"),
    ),
    "unknown arguments": ({"mutable": {"optimizer_arg": (1,)}}, ("did you mean 'optimizer_args'?",)),
    "a leaf of nothing": (
        {"mutable": {"optimiser.momentum": 0.5}},
        ("unknown key 'optimiser.momentum'", "did you mean 'optimizer'?"),
    ),
    "a leaf of a number": ({"mutable": {"seed.x": 0.5}}, ("unknown key 'seed.x'",)),
    "the name is not a setting": ({"mutable": {"name": "x"}}, ("unknown key 'name'",)),
    "a key that is no text": ({"mutable": {3: "x"}}, ("unknown key 3", "known: ")),
    "a key in both": (
        {"fixed": {"seed": 3}},
        ("'seed' is set in FIXED and in MUTABLE", "keep it in one of them"),
    ),
    "two keys in both": ({"fixed": {"seed": 3, "agents": 2}}, ("'agents', 'seed' is set in FIXED and",)),
    "arguments of a fixed component": (
        {"fixed": {"optimizer": d5.optimizers.SGD}, "mutable": {"optimizer": None}},
        ("MUTABLE sets 'optimizer_args'", "'optimizer' is FIXED", "copy the recipe"),
    ),
    "keyword arguments of a fixed component": (
        {"mutable": {"dataset_kwargs": {"split_seed": 1}}},
        ("MUTABLE sets 'dataset_kwargs'", "'dataset' is FIXED"),
    ),
    "arguments of a fixed model": (
        {"mutable": {"model_kwargs": {}}},
        ("'model' is FIXED in the recipe test",),
    ),
    "a job that is none": ({"fixed": {"job": "train"}}, ("job 'train'", "a dataclass such as Experiment")),
    "metrics that are no list": ({"metrics": 0.97}, ("METRICS is 0.97", "a list of criteria")),
    "metrics that are a text": ({"metrics": "accuracy"}, ("METRICS is 'accuracy'", "a list of criteria")),
    "a metric without a target": ({"metrics": [d5.metrics.TestAccuracy()]}, ("TestAccuracy",)),
    "a boolean for a criterion": ({"metrics": [True]}, ("True",)),
}


@pytest.mark.parametrize(("parts", "message"), WRONG.values(), ids=WRONG.keys())
def test_a_wrong_recipe_is_refused(parts: dict[str, Any], message: tuple[str, ...]) -> None:
    """The error names the part and the key, and what to do, when the recipe is made: nothing is started."""
    with pytest.raises(ConfigurationError) as caught:
        recipe(**parts)
    for words in message:
        assert words in str(caught.value)


@pytest.mark.parametrize(
    ("fixed", "mutable", "words"),
    [
        ([("model", "lenet")], {}, "FIXED is a list: it must be a dictionary"),
        ({}, None, "MUTABLE is a NoneType: it must be a dictionary"),
    ],
)
def test_parts_are_dictionaries(fixed: object, mutable: object, words: str) -> None:
    """FIXED and MUTABLE of another kind are refused."""
    with pytest.raises(ConfigurationError, match=words):
        Recipe.of(fixed, mutable, [], name="test")


WRONG_VALUES: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "nothing but names": ({"fixed": {"model": None}}, ("the recipe test lacks model:", "FIXED or MUTABLE")),
    "two missing": (
        {"fixed": {"dataset": None}, "mutable": {"optimizer": None}},
        ("lacks dataset, optimizer", "FIXED or MUTABLE"),
    ),
    "too many arguments": (
        {"mutable": {"optimizer_args": (1, 2, 3)}},
        ("optimizer: Momentum does not take these arguments",),
    ),
    "an unknown argument": (
        {"mutable": {"optimizer_kwargs": {"momentun": 0.9}, "optimizer_args": (0.1,)}},
        ("Momentum does not take these arguments", "momentun"),
    ),
    "arguments that are no tuple": (
        {"mutable": {"optimizer_args": 0.05}},
        ("optimizer_args is 0.05", "such as (0.05,)"),
    ),
    "keyword arguments that are no dictionary": (
        {"mutable": {"optimizer_kwargs": (1,)}},
        ("optimizer_kwargs is (1,)", "a dictionary"),
    ),
    "arguments for an instance": (
        {"mutable": {"optimizer": d5.optimizers.SGD(0.1)}},
        ("optimizer is the instance SGD(learning_rate=0.1)", "put its arguments there"),
    ),
    "an unknown component": (
        {"mutable": {"optimizer": "momentun"}},
        ("there is no Optimizer named 'momentun'", "did you mean d5.optimizers.Momentum?"),
    ),
    "a component of another kind": ({"mutable": {"topology": "Momentum"}}, ("no Topology named 'Momentum'",)),
    "an abstract component": ({"mutable": {"topology": "Topology"}}, ("no Topology named 'Topology'",)),
    "a wrong argument": ({"mutable": {"optimizer_args": (-1,)}}, ("learning_rate is -1",)),
    "a wrong value": ({"mutable": {"batch_size": 0}}, ("batch_size is 0",)),
    "an unknown model": ({"fixed": {"model": "lennet"}}, ("'lennet'", "did you mean 'lenet'?")),
}


@pytest.mark.parametrize(("parts", "message"), WRONG_VALUES.values(), ids=WRONG_VALUES.keys())
def test_wrong_values_are_refused_before_anything_starts(
    parts: dict[str, Any], message: tuple[str, ...]
) -> None:
    """They raise when the experiment is made."""
    with pytest.raises(ConfigurationError) as caught:
        recipe(**parts).made()
    for words in message:
        assert words in str(caught.value)


# -- overrides ------------------------------------------------------------------------------------------

WRONG_OVERRIDES: dict[str, tuple[str, Any, tuple[str, ...]]] = {
    "fixed": (
        "epochs",
        3,
        ("--set sets 'epochs'", "'epochs' is FIXED in the recipe test", "copy the recipe"),
    ),
    "arguments of what is fixed": ("model_kwargs", {}, ("--set sets 'model_kwargs'", "'model' is FIXED")),
    "dotted into what is fixed": ("dataset.split_seed", 7, ("'dataset.split_seed'", "'dataset' is FIXED")),
    "unknown": ("epoch", 3, ("--set epoch", "no such key", "did you mean 'epochs'?")),
    "unknown and far": ("xyzzy", 3, ("--set xyzzy", "known: accumulate, agents, batch_size")),
    "of a component": (
        "learning_rate",
        0.1,
        ("--set learning_rate", "did you mean 'optimizer.learning_rate'?"),
    ),
    "of a component too": ("momentum", 0.1, ("did you mean 'optimizer.momentum'?",)),
    "dotted into the unknown": ("optimiser.momentum", 0.1, ("no such key", "did you mean 'optimizer'?")),
    "dotted name of the job": ("name.x", 1, ("no such key",)),
}


@pytest.mark.parametrize(("key", "value", "message"), WRONG_OVERRIDES.values(), ids=WRONG_OVERRIDES.keys())
def test_a_wrong_override_is_refused(key: str, value: Any, message: tuple[str, ...]) -> None:
    """--set can change what is MUTABLE and nothing else; the nearest key is named."""
    with pytest.raises(ConfigurationError) as caught:
        recipe(**{key: value})
    for words in message:
        assert words in str(caught.value)


def test_the_suggestion_works_for_a_component_given_by_name() -> None:
    """`learning_rate` is an attribute of the optimizer whether MUTABLE says Momentum or 'momentum'."""
    with pytest.raises(ConfigurationError, match=r"did you mean 'optimizer\.learning_rate'\?"):
        recipe(mutable={"optimizer": "momentum"}, learning_rate=0.1)
    with pytest.raises(ConfigurationError, match=r"did you mean 'optimizer\.learning_rate'\?"):
        recipe(mutable={"optimizer": d5.optimizers.SGD(0.1), "optimizer_args": None}, learning_rate=0.1)


OVERRIDES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "nothing": ({}, {}),
    "a number": ({"batch_size": 8}, {"batch_size": 8}),
    "one that MUTABLE does not have": ({"threads": 2}, {"threads": 2}),
    "agents": ({"agents": 5}, {"agents": 5, "topology": d5.topologies.Complete(5)}),
    "arguments": ({"optimizer_args": (0.3,)}, {"optimizer": d5.optimizers.Momentum(0.3, 0.9)}),
    "a list of arguments": ({"optimizer_args": [0.3, 0.1]}, {"optimizer": d5.optimizers.Momentum(0.3, 0.1)}),
    "a dotted key": ({"optimizer__momentum": 0.5}, {"optimizer": d5.optimizers.Momentum(0.05, 0.5)}),
    "two dotted keys": (
        {"optimizer__momentum": 0.5, "optimizer__learning_rate": 1},
        {"optimizer": d5.optimizers.Momentum(1, 0.5)},
    ),
    "a component by name, without the old arguments": (
        {"optimizer": "SGD", "optimizer_args": (0.2,)},
        {"optimizer": d5.optimizers.SGD(0.2)},
    ),
    "another case": (
        {"optimizer": "sgd", "optimizer_kwargs": {"learning_rate": 0.2}},
        {"optimizer": d5.optimizers.SGD(0.2)},
    ),
    "an instance": ({"optimizer": d5.optimizers.SGD(0.7)}, {"optimizer": d5.optimizers.SGD(0.7)}),
    "a topology by name": ({"topology": "ring", "topology_args": (2,)}, {"topology": d5.topologies.Ring(2)}),
    "a sampler by name": (
        {"train_sampler": "OrderedSampler"},
        {"train_sampler": d5.samplers.OrderedSampler()},
    ),
    "an argument that is passed on": (
        {"executor__device": "cpu"},
        {"executor_kwargs": {"device": "cpu"}},
    ),
}


@pytest.mark.parametrize(("overrides", "expected"), OVERRIDES.values(), ids=OVERRIDES.keys())
def test_an_override_changes_just_that(overrides: dict[str, Any], expected: dict[str, Any]) -> None:
    """The experiment is the recipe's own with these values; without any it is what FIXED and MUTABLE say."""
    own: dict[str, Any] = {
        "model": "lenet", "dataset": "digits", "epochs": 20, "agents": 2, "batch_size": 32,
        "optimizer": d5.optimizers.Momentum(0.05, 0.9), "seed": 1, "name": "test",
    }  # fmt: skip
    assert recipe(**overrides).made() == Experiment(**(own | expected))


def test_replacing_a_component_forgets_its_old_arguments() -> None:
    """Momentum's (0.05, 0.9) are not handed to SGD, which then lacks its own."""
    with pytest.raises(ConfigurationError, match=r"SGD does not take these arguments.*learning_rate"):
        recipe(optimizer="SGD").made()


def test_agents_that_do_not_fit_a_mutable_topology_replace_it() -> None:
    """--set agents=3 on a recipe with Ring(2) is a complete graph of three; a fixed topology is kept."""
    made = recipe({}, {"topology": d5.topologies.Ring, "topology_args": (2,)}, agents=3).made()
    assert made.topology == d5.topologies.Complete(3)
    larger = recipe({}, {"topology": d5.topologies.Ring, "topology_args": (2,)}, agents=3, topology_args=(3,))
    assert larger.made().topology == d5.topologies.Ring(3)
    kept = recipe({"topology": d5.topologies.Ring(2)}, {}, agents=3)
    with pytest.raises(ConfigurationError, match=r"Ring\(agents=2\) has 2 agents, the experiment has 3"):
        kept.made()


def test_dotted_keys_reach_arguments_of_model_data_and_executor() -> None:
    """`model.hidden` is an entry of model_kwargs; the entries that MUTABLE has are kept."""
    mutable = {"model": "lenet", "model_kwargs": {"hidden": (8, 8), "channels": (2, 3)}, "dataset": "digits"}
    made = recipe(
        {"model": None, "dataset": None}, mutable, model__hidden=(4, 4), dataset__split_seed=9
    ).made()
    assert made.model_kwargs == {"hidden": (4, 4), "channels": (2, 3)}
    assert made.dataset_kwargs == {"split_seed": 9}
    assert mutable["model_kwargs"] == {"hidden": (8, 8), "channels": (2, 3)}


def test_dotted_keys_reach_a_distributed_optimizer() -> None:
    """Its arguments and the attributes of its class are hyperparameters; others are refused by name."""
    given = {"distributed": Periodic, "distributed_args": (5,)}
    made = recipe({}, given, distributed__period=7, distributed__slack=1).made().distributed
    assert (made.period, made.slack, Periodic.slack) == (7, 1, 3)
    with pytest.raises(ConfigurationError, match=r"distributed\.perod.*did you mean 'period'\?"):
        recipe({}, given, distributed__perod=7).made()
    for attribute in ("step", "loss", "x", "_state", "communication"):
        with pytest.raises(ConfigurationError, match=f"has no '{attribute}'"):
            recipe({}, given, **{f"distributed__{attribute}": 7}).made()


def test_a_dotted_key_into_a_component_that_is_not_set_is_refused() -> None:
    """topology.agents without a topology; the error names the components."""
    for given in (None, {"topology": None}, {"topology_args": ()}):
        with pytest.raises(ConfigurationError, match=r"topology\.agents: there is no component 'topology'"):
            recipe({}, given, topology__agents=3).made()
    with pytest.raises(ConfigurationError, match=r"seed\.x: there is no component 'seed'.*optimizer"):
        recipe(seed__x=3).made()


def test_nothing_that_was_passed_in_is_modified() -> None:
    """Neither the dictionaries, nor what is in them: a component's instance keeps its attributes."""
    given = Periodic(4)
    fixed = {**FIXED, "dataset_kwargs": {"split_seed": 3}}
    mutable = {**MUTABLE, "distributed": given, "executor_kwargs": {"device": d5.CPUDevice()}}
    metrics = list(METRICS)
    overrides = {"distributed.period": 9, "executor.device": d5.GPUDevice(), "optimizer.momentum": 0.1}
    before = copy.deepcopy((fixed, {k: v for k, v in mutable.items() if v is not given}, overrides))
    made = Recipe.of(fixed, mutable, metrics, name="test", overrides=overrides)
    experiment = made.made()
    assert experiment.distributed.period == 9
    assert vars(given) == {"period": 4}
    assert (fixed, {k: v for k, v in mutable.items() if v is not given}, overrides) == before
    assert metrics == METRICS and mutable["distributed"] is given
    fixed["epochs"] = 1  # nor does a later change reach the recipe
    assert made.made() == experiment


# -- the hash -------------------------------------------------------------------------------------------


def test_the_hash_covers_fixed_and_nothing_else() -> None:
    """Every change of FIXED is another hash; MUTABLE, METRICS, the name and overrides are not in it."""
    same = [
        recipe(),
        recipe({}, {"batch_size": 8, "optimizer": d5.optimizers.SGD, "optimizer_args": (1,)}),
        recipe({}, {}, []),
        recipe(seed=7),
        Recipe.of(FIXED, MUTABLE, METRICS, name="another"),
        Recipe.of(dict(reversed(FIXED.items())), MUTABLE, METRICS, name="test"),
    ]
    assert {made.hash for made in same} == {recipe().hash}
    other = [
        recipe(),
        recipe({"epochs": 19}),
        recipe({"epochs": None}, {"epochs": 20}),
        recipe({"model": "mlp"}),
        recipe({"model_kwargs": {"hidden": (7, 7)}}),
        recipe({"train_sampler": d5.samplers.ShuffleSampler}),
        recipe({"train_sampler": d5.samplers.OrderedSampler}),
        recipe({"dataset_kwargs": {"split_seed": 1}}),
    ]
    assert len({made.hash for made in other}) == len(other)


RECIPE = '''
"""A recipe with a model of its own."""
import d5ray as d5

class Net:
    def __call__(self, inputs):
        return inputs @ self.weights  # {comment}

def halved(x):
    return x / 2

FIXED = {{"model": Net, "dataset": "digits", "dataset_kwargs": {{"transform": halved}}}}
MUTABLE = {{"optimizer": d5.optimizers.SGD(0.1)}}
METRICS = [d5.metrics.TestAccuracy() >= 0.5]

if __name__ == "__main__":
    from d5ray.recipes.engine.recipe import Recipe
    print(Recipe.of(FIXED, MUTABLE, METRICS, name="x").hash)
'''


@pytest.fixture
def modules() -> Iterator[None]:
    """Modules and paths that a test loaded are gone after it."""
    names, paths = set(sys.modules), list(sys.path)
    yield
    for name in set(sys.modules) - names:
        if not name.startswith(("torch", "numpy", "d5ray", "sklearn", "scipy", "pyarrow")):
            del sys.modules[name]
    sys.path[:] = paths


@pytest.mark.full
@pytest.mark.usefixtures("modules")
def test_a_file_has_one_hash_however_it_is_run(tmp_path: Path) -> None:
    """As a program, under another PYTHONHASHSEED, and loaded by name: equal. An edit of its code: another."""
    file = tmp_path / "own_recipe.py"
    file.write_text(RECIPE.format(comment="first"))
    found = {
        subprocess.run(
            [sys.executable, str(file)],
            env={"PYTHONPATH": str(REPOSITORY), "PYTHONHASHSEED": seed, "PATH": ""},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        for seed in ("0", "1")
    }
    module = library.load(str(file))
    loaded = Recipe.of(module.FIXED, module.MUTABLE, module.METRICS, name="x").hash
    assert found == {loaded}
    edited = tmp_path / "edited_recipe.py"
    edited.write_text(RECIPE.format(comment="second"))
    module = library.load(str(edited))
    assert Recipe.of(module.FIXED, module.MUTABLE, module.METRICS, name="x").hash != loaded


def test_a_shipped_recipe_has_one_hash_as_a_module_and_as_a_program() -> None:
    """`python -m d5ray.recipes.digits_lenet` and `d5ray run digits_lenet` are comparable."""
    program = (
        "import runpy, d5ray.recipes.engine.command as command\n"
        "from d5ray.recipes.engine.recipe import Recipe\n"
        "command.main = lambda *parts: print(Recipe.of(*parts, name='x').hash)\n"
        "runpy.run_module('d5ray.recipes.digits_lenet', run_name='__main__')"
    )
    as_program = subprocess.run(
        [sys.executable, "-c", program], cwd=REPOSITORY, capture_output=True, text=True, check=True
    )
    parts = digits_lenet.FIXED, digits_lenet.MUTABLE, digits_lenet.METRICS
    assert as_program.stdout.strip() == Recipe.of(*parts, name="y").hash


def test_the_shipped_recipe_is_what_its_text_says() -> None:
    """digits_lenet: two agents, LeNet on the digits, momentum SGD by allreduce over whatever fits."""
    made = Recipe.of(digits_lenet.FIXED, digits_lenet.MUTABLE, digits_lenet.METRICS, name="x").made()
    assert isinstance(made, Experiment)
    assert (made.model, made.dataset, made.agents, made.communicator) == ("lenet", "digits", 2, "auto")
    assert (made.optimizer, made.executor) == (d5.optimizers.Momentum(0.05, 0.9), from_model)
    assert isinstance(made.distributed, d5.optimizers.AllreduceSGD)


def test_described_tells_fixed_and_mutable_with_the_overrides() -> None:
    """The `runs` table gets JSON: FIXED as it is, MUTABLE as it was run, and the hash of FIXED."""
    described = recipe(seed=7, optimizer__momentum=0.5).described()
    assert described["recipe_hash"] == recipe().hash
    assert described["fixed"] == '{"dataset": "digits", "epochs": 20, "model": "lenet"}'
    assert '"seed": 7' in described["mutable"] and '"optimizer.momentum": 0.5' in described["mutable"]


# -- jobs -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Sweep:
    """A job of another kind."""

    sizes: tuple[int, ...]
    repetitions: int = 3
    name: str = ""


def test_another_job_has_its_own_keys() -> None:
    """The keys of a recipe are the fields of its job; `optimizer` means nothing to a sweep."""
    made = Recipe.of({"job": Sweep, "sizes": (1, 2)}, {"repetitions": 5}, [], name="sweep").made()
    assert made == Sweep((1, 2), 5, "sweep")
    with pytest.raises(ConfigurationError, match=r"unknown key 'repetition': did you mean 'repetitions'\?"):
        Recipe.of({"job": Sweep, "repetition": 1}, {}, [], name="sweep")
    with pytest.raises(ConfigurationError, match="unknown key 'optimizer_args'"):
        Recipe.of({"job": Sweep}, {"optimizer_args": ()}, [], name="sweep")
    with pytest.raises(ConfigurationError, match="the recipe sweep lacks sizes"):
        Recipe.of({"job": Sweep}, {}, [], name="sweep").made()


# -- the command line's values --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("agents=4", ("agents", 4)),
        ("rate=1e-3", ("rate", 0.001)),
        (" agents = 4 ", ("agents", 4)),
        ("model=lenet", ("model", "lenet")),
        ("model='lenet'", ("model", "lenet")),
        ("evaluate=False", ("evaluate", False)),
        ("topology=None", ("topology", None)),
        ("optimizer_args=(0.1, 0.9)", ("optimizer_args", (0.1, 0.9))),
        ("model_kwargs={'hidden': (32,)}", ("model_kwargs", {"hidden": (32,)})),
        ("dataset.root=/data/a=b", ("dataset.root", "/data/a=b")),
        ("x=__import__('os').getcwd()", ("x", "__import__('os').getcwd()")),  # data, never code
        ("x=", ("x", "")),
    ],
)
def test_parsed_reads_python_data_or_text(text: str, expected: tuple[str, Any]) -> None:
    """key=value, where the value is a literal, and otherwise the text itself."""
    assert texts.parsed(text) == expected


@pytest.mark.parametrize("text", ["agents", "", "=4", " =4"])
def test_a_setting_without_key_or_value_is_refused(text: str) -> None:
    """The error shows the text and how it is written."""
    with pytest.raises(ConfigurationError, match="write it as key=value, such as --set agents=4"):
        texts.parsed(text)


# -- the library ----------------------------------------------------------------------------------------


def test_shipped_recipes_are_listed_with_their_first_line() -> None:
    """digits_lenet is there with its docstring's first line; files that are no recipes are not."""
    found = library.shipped()
    assert found["digits_lenet"].about == (inspect.getdoc(digits_lenet) or "").splitlines()[0]
    assert not {"__init__", "recipe", "settings", "library", "command", "runner"} & set(found)


def test_loading_by_name_gives_the_module_itself() -> None:
    """The same module that an import gives, so that its classes are not loaded twice."""
    assert library.load("digits_lenet") is digits_lenet


WRONG_FILES: dict[str, tuple[str | None, tuple[str, ...]]] = {
    "missing": (None, ("there is no recipe file", "missing.py")),
    "empty": ("", ("has no FIXED, MUTABLE, METRICS",)),
    "partial": ("FIXED = {}\nMETRICS = []", ("has no MUTABLE: a recipe defines FIXED, MUTABLE, METRICS",)),
    "syntax": ("FIXED = {", ("cannot be loaded", "SyntaxError", "syntax.py")),
    "raising": (
        "FIXED = 1 / 0",
        ("cannot be loaded", "ZeroDivisionError", "raising.py, line 1", "traceback is in"),
    ),
    "importing": ("import no_such_module", ("cannot be loaded", "No module named 'no_such_module'")),
    "wrong_criterion": (
        "import d5ray as d5\nMETRICS = [d5.metrics.TestAccuracy() <= 0.5]",
        ("wrong_criterion.py", "points the wrong way"),
    ),
}


@pytest.mark.usefixtures("modules")
@pytest.mark.parametrize("name", WRONG_FILES)
def test_a_file_that_is_no_recipe_is_refused(name: str, tmp_path: Path) -> None:
    """What is wrong with it, where, and in the user's own line."""
    text, message = WRONG_FILES[name]
    file = tmp_path / f"{name}.py"
    if text is not None:
        file.write_text(text)
    with pytest.raises(ConfigurationError) as caught:
        library.load(str(file))
    for words in message:
        assert words in str(caught.value)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "digits_lente",
            r"no recipe named 'digits_lente': did you mean 'digits_lenet'\?.*path/to/recipe\.py",
        ),
        ("recipe", "no recipe named 'recipe'"),
        ("folder/", "there is no recipe file folder"),
    ],
)
def test_an_unknown_recipe_is_refused(name: str, message: str) -> None:
    """With the nearest name; what is not a recipe among d5ray's own files is none."""
    with pytest.raises(ConfigurationError, match=message):
        library.load(name)


@pytest.mark.usefixtures("modules")
def test_a_file_may_import_what_stands_beside_it(tmp_path: Path) -> None:
    """Its folder is on the path."""
    (tmp_path / "beside_the_recipe.py").write_text("EPOCHS = 17")
    file = tmp_path / "with_import.py"
    file.write_text(
        "from beside_the_recipe import EPOCHS\nFIXED = {'epochs': EPOCHS}\nMUTABLE = {}\nMETRICS = []"
    )
    assert library.load(str(file)).FIXED == {"epochs": 17}


# -- verdicts -------------------------------------------------------------------------------------------


def verdict(outcome: Any, reason: str = "") -> Verdict:
    return Verdict("run", "loss", "1", "<=", 1.0, 0.5, 0.4, 0.6, 9, "steps", outcome, reason)


@pytest.mark.parametrize(
    ("outcomes", "status", "expected"),
    [
        (["PASS", "PASS"], "completed", "PASS"),
        (["PASS", "FAIL"], "completed", "FAIL"),
        (["INCONCLUSIVE", "FAIL"], "completed", "FAIL"),
        (["PASS", "INCONCLUSIVE"], "completed", "INCONCLUSIVE"),
        (["PASS", "PASS"], "nan_loss", "FAIL"),
        (["INCONCLUSIVE"], "nan_loss", "FAIL"),
        (["PASS", "PASS"], "interrupted", "INCONCLUSIVE"),
        (["PASS", "PASS"], "failed", "INCONCLUSIVE"),
        (["PASS", "PASS"], "stopped", "INCONCLUSIVE"),
        (["FAIL", "PASS"], "stopped", "FAIL"),
    ],
)
def test_the_verdict_of_a_run(outcomes: list[str], status: str, expected: str) -> None:
    """One FAIL or a NaN loss fails; PASS needs every criterion and a complete run; else it stays open."""
    assert overall([verdict(outcome) for outcome in outcomes], status) == expected


def test_of_an_interrupted_run_no_criterion_is_decided() -> None:
    """Neither passed nor failed, with the reason; of a completed run the tables decide."""
    tables = {name: table_of(name) for name in TABLES}  # of a run that measured nothing
    criteria = [d5.metrics.TestAccuracy() >= 0.9, d5.metrics.StepTime() <= 1]
    found = judged(criteria, tables, "interrupted")
    assert [(v.verdict, v.reason) for v in found] == [("INCONCLUSIVE", "the run was interrupted")] * 2
    completed = judged(criteria, tables, "completed")
    assert [v.verdict for v in completed] == ["INCONCLUSIVE"] * 2
    assert all("interrupted" not in v.reason for v in completed)
