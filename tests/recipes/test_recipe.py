"""Claims about recipes: what is refused, what the hash covers, what overrides and texts make."""

import copy
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import d5ray as d5
from d5ray.distributed.optimizers.optimizer import DistributedOptimizer
from d5ray.errors import ConfigurationError
from d5ray.experiment import Experiment
from d5ray.identity.canonical import digest
from d5ray.metrics.judge.criteria import Verdict
from d5ray.metrics.record.schema import TABLES, table_of
from d5ray.recipes.engine import library
from d5ray.recipes.engine.parsing import settings, texts
from d5ray.recipes.engine.parsing.texts import settings_of
from d5ray.recipes.engine.recipe import Recipe, judged, overall
from d5ray.training.batches.batch import Batch
from tests.conftest import REPOSITORY

FIXED: dict[str, Any] = {"model": "lenet", "dataset": "digits", "epochs": 20}
MUTABLE: dict[str, Any] = {
    "agents": 2, "batch_size": 32, "optimizer": d5.optimizers.Momentum, "optimizer_args": (0.05, 0.9),
    "seed": 1,
}  # fmt: skip
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
        return {key: value for key, value in (part | (changes or {})).items() if value is not None}

    return Recipe.of(
        changed(FIXED, fixed),
        changed(MUTABLE, mutable),
        METRICS if metrics is None else metrics,
        name="test",
        overrides={key.replace("__", "."): value for key, value in overrides.items()},
    )


# -- wrong recipes --------------------------------------------------------------------------------------

SGD = d5.optimizers.SGD(0.1)
WRONG: list[tuple[dict[str, Any], str]] = [  # FIXED, MUTABLE, METRICS or overrides; words
    ({"fixed": {"dataste": "digits"}}, "did you mean 'dataset'?"),
    ({"mutable": {"optimiser": d5.optimizers.SGD}}, "did you mean 'optimizer'?"),
    ({"mutable": {"optimizer_arg": (1,)}}, "did you mean 'optimizer_args'?"),
    ({"mutable": {"optimiser.momentum": 0.5}}, "did you mean 'optimizer'?"),
    ({"mutable": {"seed.x": 0.5}}, "unknown key 'seed.x'"),
    ({"fixed": {"faults": d5.faults.FaultPolicy()}}, "its fields are keys of their own, such as on_failure"),
    ({"mutable": {"name": "x"}}, "unknown key 'name'"),
    ({"mutable": {3: "x"}}, "unknown key 3"),
    ({"fixed": {"seed": 3, "agents": 2}}, "'agents', 'seed' is set in FIXED and"),
    ({"fixed": {"optimizer": d5.optimizers.SGD}, "mutable": {"optimizer": None}}, "'optimizer' is FIXED"),
    ({"mutable": {"dataset_kwargs": {"split_seed": 1}}}, "'dataset' is FIXED"),
    ({"fixed": {"job": "train"}}, "a dataclass such as Experiment"),
    ({"metrics": 0.97}, "METRICS is 0.97"),
    ({"metrics": "accuracy"}, "METRICS is 'accuracy'"),
    ({"metrics": [d5.metrics.TestAccuracy()]}, "TestAccuracy"),
    ({"metrics": [True]}, "True"),
    # values
    ({"fixed": {"dataset": None}, "mutable": {"optimizer": None}}, "lacks dataset, optimizer"),
    ({"mutable": {"optimizer_args": (1, 2, 3)}}, "Momentum does not take these arguments"),
    ({"mutable": {"optimizer_kwargs": {"momentun": 0.9}, "optimizer_args": (0.1,)}}, "momentun"),
    ({"mutable": {"optimizer_args": 0.05}}, "optimizer_args is 0.05"),
    ({"mutable": {"optimizer_kwargs": (1,)}}, "a dictionary"),
    ({"mutable": {"optimizer": SGD}}, "put its arguments there"),
    ({"mutable": {"optimizer": "momentun"}}, "did you mean d5.optimizers.Momentum?"),
    ({"mutable": {"topology": "Momentum"}}, "no Topology named 'Momentum'"),
    ({"mutable": {"topology": "Topology"}}, "no Topology named 'Topology'"),
    ({"mutable": {"optimizer_args": (-1,)}}, "learning_rate is -1"),
    ({"mutable": {"batch_size": 0}}, "batch_size is 0"),
    ({"fixed": {"model": "lennet"}}, "did you mean 'lenet'?"),
    # overrides
    ({"epochs": 3}, "'epochs' is FIXED in the recipe test"),
    ({"model_kwargs": {}}, "'model' is FIXED"),
    ({"dataset__split_seed": 7}, "'dataset' is FIXED"),
    ({"epoch": 3}, "did you mean 'epochs'?"),
    ({"xyzzy": 3}, "known: accumulate, agents, batch_size"),
    ({"learning_rate": 0.1}, "did you mean 'optimizer.learning_rate'?"),
    ({"mutable": {"optimizer": "momentum"}, "learning_rate": 0.1}, "did you mean 'optimizer.learning_rate'?"),
    ({"optimiser__momentum": 0.1}, "did you mean 'optimizer'?"),
    ({"name__x": 1}, "no such key"),
    ({"optimizer": "SGD"}, "SGD does not take these arguments"),  # nor gets Momentum's
    ({"topology__agents": 3}, "there is no component 'topology'"),
    ({"topology_kwargs": {"agents": 3}}, "there is no 'topology' that takes it"),
    ({"seed__x": 3}, "there is no component 'seed'"),
]


@pytest.mark.every_case
@pytest.mark.parametrize(("parts", "words"), WRONG)
def test_a_wrong_recipe_is_refused_before_anything_starts(parts: dict[str, Any], words: str) -> None:
    """The error names the key and what to do."""
    with pytest.raises(ConfigurationError) as caught:
        recipe(**parts).made()
    assert words in str(caught.value)


# -- overrides ------------------------------------------------------------------------------------------

OVERRIDES: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({}, {}),
    ({"batch_size": 8}, {"batch_size": 8}),
    ({"threads": 2}, {"threads": 2}),  # which MUTABLE does not have
    ({"agents": 5}, {"agents": 5, "topology": d5.topologies.Complete(5)}),
    ({"optimizer_args": [0.3, 0.1]}, {"optimizer": d5.optimizers.Momentum(0.3, 0.1)}),
    (
        {"optimizer__momentum": 0.5, "optimizer__learning_rate": 1},
        {"optimizer": d5.optimizers.Momentum(1, 0.5)},
    ),
    ({"optimizer": "SGD", "optimizer_args": (0.2,)}, {"optimizer": d5.optimizers.SGD(0.2)}),
    ({"optimizer": "sgd", "optimizer_kwargs": {"learning_rate": 0.2}}, {"optimizer": d5.optimizers.SGD(0.2)}),
    ({"optimizer": d5.optimizers.SGD(0.7)}, {"optimizer": d5.optimizers.SGD(0.7)}),
    ({"topology": "ring", "topology_args": (2,)}, {"topology": d5.topologies.Ring(2)}),
    ({"executor__device": "cpu"}, {"executor_kwargs": {"device": "cpu"}}),
]


@pytest.mark.every_case
@pytest.mark.parametrize(("overrides", "expected"), OVERRIDES)
def test_an_override_changes_just_that(overrides: dict[str, Any], expected: dict[str, Any]) -> None:
    """The experiment is the recipe's own with these values; without any it is what FIXED and MUTABLE say."""
    own: dict[str, Any] = {
        "model": "lenet", "dataset": "digits", "epochs": 20, "agents": 2, "batch_size": 32,
        "optimizer": d5.optimizers.Momentum(0.05, 0.9), "seed": 1, "name": "test",
    }  # fmt: skip
    assert recipe(**overrides).made() == Experiment(**(own | expected))


@pytest.mark.parametrize(
    ("topology", "expected"),
    [({"topology": d5.topologies.Ring, "topology_args": (2,)}, d5.topologies.Ring(3)),
     ({"topology": d5.topologies.Ring(2)}, d5.topologies.Ring(3)),
     ({"topology": "ring", "topology_kwargs": {"agents": 2}}, d5.topologies.Ring(3)),
     ({"topology": d5.topologies.RandomRegular(6, 2, seed=4)}, d5.topologies.RandomRegular(3, 2, seed=4)),
     ({"topology": d5.topologies.Complete(2)}, d5.topologies.Complete(3)),
     ({"topology": d5.topologies.Torus(1, 3)}, d5.topologies.Torus(1, 3)),
     ({"topology": None}, d5.topologies.Complete(3))],
)  # fmt: skip
def test_other_agents_keep_the_kind_of_a_mutable_topology(topology: dict[str, Any], expected: object) -> None:
    """--set agents=3 on a recipe with Ring(2) is a ring of three: the experiment stays one on a ring."""
    assert recipe({}, topology, agents=3).made().topology == expected


def test_agents_that_fit_no_topology_of_the_recipe_are_refused() -> None:
    """A torus has the agents of its rows and columns, and FIXED is not changed."""
    with pytest.raises(
        ConfigurationError, match=r"Torus\(rows=2, columns=3\) has 6 agents, the experiment has 3"
    ):
        recipe({}, {"topology": d5.topologies.Torus(2, 3)}, agents=3).made()
    with pytest.raises(ConfigurationError, match=r"Ring\(agents=2\) has 2 agents, the experiment has 3"):
        recipe({"topology": d5.topologies.Ring(2)}, {}, agents=3).made()


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
    with pytest.raises(ConfigurationError, match="write it as key=value, such as --set agents=4"):
        texts.parsed(text)


# -- components written as text ----


RING, STAR, MIXED = d5.topologies.Ring(4), d5.topologies.Star(4), d5.topologies.Uniform()
PICTURES = (d5.transformations.Crop(32, padding=4), d5.transformations.RandomFlip())
SPARSE = d5.compression.Chain(d5.compression.TopK(16, bucket=512), d5.compression.QSGD(bits=4))


@pytest.mark.every_case
@pytest.mark.parametrize(
    ("key", "text", "expected"),
    [
        ("topology", "Torus(2, 3)", d5.topologies.Torus(2, 3)),
        ("topology", "d5.topologies.Torus(*[2, 3])", d5.topologies.Torus(2, 3)),
        ("topology", "Ring(agents=4, mixing=Uniform())", d5.topologies.Ring(4, mixing=MIXED)),
        ("topology", "TimeVarying((Ring(4), Star(4)))", d5.topologies.TimeVarying((RING, STAR))),
        (
            "distributed",
            "CompressedSGD(ErrorFeedback(Chain(TopK(16, bucket=512), QSGD(bits=4))))",
            d5.optimizers.CompressedSGD(d5.compression.ErrorFeedback(SPARSE)),
        ),
        ("optimizer", 'Adam(*(0.1,), **{**{"beta1": 0.5}, "beta2": 0.7})', d5.optimizers.Adam(0.1, 0.5, 0.7)),
        ("transformations", "randomflip", d5.transformations.RandomFlip()),
        ("transformations", "(Crop(32, padding=4), RandomFlip())", PICTURES),
    ],
)
def test_a_call_written_as_text_is_that_call(key: str, text: str, expected: Any) -> None:
    """Nested, with keywords and tuples; the hash is that of the object itself."""
    made = settings.built({key: text})[key]
    assert type(made) is type(expected)
    assert digest(made) == digest(expected)


@pytest.mark.every_case
@pytest.mark.parametrize(
    ("key", "text", "words"),
    [
        ("topology", "Torus(2)", r"cannot be made.*write topology=Torus\(rows, columns\)"),
        ("topology", "Ring(4", r"cannot be made.*was never closed.*write topology=Ring\(agents\)"),
        ("topology", "ring", r"missing.*'agents'; write topology=Ring\(agents\), or topology_args"),
        ("distributed", "localsgd", r"missing.*'period'; write distributed=LocalSGD\(period\)"),
        ("optimizer", "SGD(0.1", r"cannot be made.*write optimizer=SGD\(learning_rate\)"),
        ("topology", "Tours(2, 3)", r"did you mean d5\.topologies\.Torus\?"),
        ("topology", "optimizers.Ring(2)", r"named 'optimizers.Ring': did you mean d5\.topologies\.Ring\?"),
        ("topology", "Zzzzzz(2)", r"dir\(d5ray\) lists the namespaces"),
        ("topology", "SGD(0.1)", "is a SGD: it must be a Topology"),
        ("topology", "__import__('os').getcwd()", "cannot be made"),
        ("optimizer", "Adam(learning_rate=0.1, learning_rate=0.2)", "learning_rate is given twice"),
        ("optimizer", "Adam(**{'learning_rat': 0.1})", "learning_rat"),
        ("optimizer", "Adam(**0.1)", "no dictionary of arguments"),
        ("transformations", "(RandomFlip(), SGD(0.1))", "has a SGD: it must be a Transformation"),
        ("distributed", "allreduce", r"did you mean d5\.optimizers\.AllreduceSGD\?"),
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
