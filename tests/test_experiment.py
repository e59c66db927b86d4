"""Claims about Experiment: frozen data with a hash, and every wrong value refused in plain words."""

import inspect
import itertools
import math
import pickle
from collections.abc import Callable, Iterator
from dataclasses import FrozenInstanceError, fields, replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch

import d5ray as d5
from d5ray.distributed.group.late_agents import Late
from d5ray.distributed.optimizers.hogwild import Hogwild
from d5ray.distributed.optimizers.optimizer import DistributedOptimizer
from d5ray.distributed.optimizers.parameter_server_sgd import ASGD
from d5ray.distributed.parameter_server.servers import Servers
from d5ray.distributed.topologies.topology import Complete, Ring, Topology
from d5ray.errors import ConfigurationError
from d5ray.experiment import Experiment
from d5ray.frameworks.torch import from_model
from d5ray.identity.fields import LATER, fields_of
from d5ray.networks.device import CPUDevice
from d5ray.networks.executors.executor import Executor
from d5ray.operators.loss import Loss
from d5ray.ops.losses.softmax_cross_entropy_loss import SoftmaxCrossEntropyLoss
from d5ray.training.batches.batch import Batch
from d5ray.training.datasets.dataset import Dataset, Split
from d5ray.training.events.checkpoint import Checkpoint
from d5ray.training.events.stopping import StopAfterSteps
from d5ray.training.optimizers.gradient_descent import SGD, Momentum
from d5ray.training.optimizers.optimizer import Optimizer
from d5ray.training.samplers.choice import ChoiceSampler
from d5ray.training.samplers.sampler import OrderedSampler, ShuffleSampler
from d5ray.training.stragglers import Slowdown
from d5ray.training.transformations.images import Crop, RandomFlip
from tests.beside_kits import cases_of, there


class Tuned(DistributedOptimizer):
    """With a hyperparameter of each kind."""

    slack = 0.5

    def __init__(self, period: int = 2) -> None:
        self.period = period

    def step(self, batch: Batch) -> None: ...


class OtherLoss(Loss):
    name = "OtherLoss"

    def check(self, output_shape: tuple[int, ...], classes: int) -> None: ...

    def numpy(self, scores: np.ndarray[Any, Any], labels: np.ndarray[Any, Any]) -> float:
        return 0.0

    def numpy_gradient(
        self, scores: np.ndarray[Any, Any], labels: np.ndarray[Any, Any]
    ) -> np.ndarray[Any, Any]:
        return scores

    def torch(self, scores: "torch.Tensor", labels: "torch.Tensor") -> "torch.Tensor":
        return scores.sum()


def other_executor(*given: Any, **options: Any) -> Executor:
    return from_model(*given, **options)


def plain_executor(
    model: Any, model_kwargs: Any, *, sample_shape: Any, classes: int, loss: Any, seed: int, threads: int
) -> Executor:
    raise NotImplementedError


def experiment(**values: Any) -> Experiment:
    given: dict[str, Any] = {"model": "lenet", "dataset": "digits", "optimizer": Momentum(0.1, 0.9)}
    if isinstance(values.get("dataset"), Dataset):
        given["batch_size"] = 4
    return Experiment.from_values(**given | values)


def dataset(pixel: float = 0.0, name: str = "mine") -> Dataset:
    inputs = np.zeros((4, 1, 2, 2), np.float32)
    inputs[2, 0, 1, 1] = pixel
    labels = np.array([0, 1, 0, 1], np.int64)
    return Dataset(
        name=name, train=Split(inputs, labels), test=Split(inputs.copy(), labels.copy()), classes=("a", "b")
    )


# -- data ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "agents", "topology"),
    [
        ({"agents": 1}, 1, Complete(1)),
        ({"agents": 5}, 5, Complete(5)),
        ({"topology": Ring(4)}, 4, Ring(4)),
        ({"topology": Ring(4), "agents": 4}, 4, Ring(4)),
        ({"topology": Complete(1)}, 1, Complete(1)),
    ],
)
def test_agents_and_topology_follow_from_each_other(
    given: dict[str, Any], agents: int, topology: Topology
) -> None:
    """A number makes a complete topology, a topology has a number."""
    made = experiment(**given)
    assert (made.agents, made.topology) == (agents, topology)


def test_no_field_can_be_changed() -> None:
    """Frozen, also where the new value is the old one."""
    made = experiment()
    for field in fields(Experiment):
        with pytest.raises(FrozenInstanceError):
            setattr(made, field.name, getattr(made, field.name))


def test_a_class_and_its_instance_are_the_same_experiment() -> None:
    """`distributed=Tuned` is `distributed=Tuned()`."""
    assert experiment(distributed=Tuned) == experiment(distributed=Tuned())
    assert experiment(distributed=Tuned) != experiment(distributed=Tuned(3))
    assert experiment(transformations=RandomFlip()) == experiment(transformations=(RandomFlip(),))


MAKERS: list[Callable[[], Experiment]] = [
    experiment,
    lambda: experiment(distributed=Tuned(3), topology=Ring(4), executor_kwargs={"device": CPUDevice()}),
    lambda: experiment(dataset=dataset(), model_kwargs={"channels": (4, 8)}),
    lambda: experiment(model=torch.nn.Identity, train_sampler=OrderedSampler()),
]


@pytest.mark.parametrize("make", MAKERS)
def test_equal_experiments_compare_and_hash_equal(make: Callable[[], Experiment]) -> None:
    """Made twice, or pickled and back: equal, one element of a set; with another seed they are two."""
    one, other = make(), make()
    back = pickle.loads(pickle.dumps(one))
    assert one == other == back
    assert one.hash == other.hash == back.hash
    assert len({one, other, back, one.with_values(seed=7)}) == 2
    assert one != one.with_values(seed=7)
    assert one != "experiment"


def test_describe_is_a_row_of_json_with_every_field() -> None:
    """The values are those of the experiment, in its own order; later fields where they have another."""
    described = experiment(topology=Ring(4), timeout_seconds=5.0).describe()
    assert list(described) == [field.name for field in fields_of(Experiment) if field.metadata != LATER]
    assert experiment(min_agents=2).describe() == experiment().describe() | {"min_agents": 2}
    ring = {"class": "d5ray.distributed.topology.Ring", "agents": 4, "mixing": None}
    assert described["topology"] == ring
    assert (described["model"], described["agents"], described["timeout_seconds"]) == ("lenet", 4, 5.0)


# -- the hash --------------------------------------------------------------------------------------------


OTHER_VALUES: dict[str, object] = {
    "model": "mlp",
    "dataset": "mnist",
    "optimizer": Momentum(0.1, 0.8),
    "distributed": Tuned(),
    "topology": Ring(2),
    "agents": 3,
    **dict(cases_of("parallel", lambda: [("mesh", d5.Mesh(replicas=1, stages=2))])),
    "batch_size": 33,
    "epochs": 2,
    "seed": 1,
    "model_kwargs": {"channels": (4, 8)},
    "loss": OtherLoss(),
    "executor": other_executor,
    "executor_kwargs": {"device": CPUDevice()},
    "precision": "bfloat16",
    "accumulate": 2,
    "compile": True,
    "recompute": True,
    "dataset_kwargs": {"split_seed": 1},
    "train_sampler": OrderedSampler(),
    "transformations": (RandomFlip(),),
    "prefetch": 3,
    "servers": Servers(shards=2),
    "communicator": "socket",
    "encryption": False,
    "threads": 2,
    "cpus_per_agent": 0.5,
    "gpus_per_agent": 0.5,
    "timeout_seconds": 121.0,
    "on_failure": "restart",
    "min_agents": 2,
    "max_failures": 20,
    "stuck_seconds": 30.0,
    "heartbeat_seconds": 2.0,
    "orphans": "taken_over",
    "late": (Late(agent=1, seconds=5),),
    "keep_batch": "global",
    "scale_rate": "linear",
    "slow": (Slowdown(agent=1, factor=4),),
    "events": (StopAfterSteps(5),),
    "evaluate": False,
    "evaluate_test": True,
    "warmup_steps": 11,
    "monitor_seconds": 0,
    "mirror_seconds": 0,
    "save_model": "mean",
    "save_model_bytes": 10,
}
WITH: dict[str, dict[str, Any]] = {  # what a value goes with
    "servers": {"distributed": ASGD()}, "late": {"distributed": ASGD()},
}  # fmt: skip


def test_the_table_of_other_values_has_every_field() -> None:
    """A new field of Experiment needs a line above; the name is the one that does not count."""
    names = [field.name for field in fields_of(Experiment)]
    assert [*OTHER_VALUES, "name"] == [name for name in names if name != "mesh" or there("parallel")]


@cache
def hashes() -> dict[str, str]:
    """Of the experiments with one other value each, by its field."""
    return {key: experiment(**{key: value} | WITH.get(key, {})).hash for key, value in OTHER_VALUES.items()}


@pytest.mark.every_case
@pytest.mark.parametrize("name", OTHER_VALUES)
def test_every_field_changes_the_hash(name: str) -> None:
    """One other value, another hash, and no two other values the same."""
    assert hashes()[name] != experiment(**WITH.get(name, {})).hash
    assert len(set(hashes().values())) == len(OTHER_VALUES)


def test_the_name_is_for_people_and_not_in_the_hash() -> None:
    one, other = experiment(name="one"), experiment(name="other")
    assert one != other and one.hash == other.hash


def test_what_the_caller_changes_later_does_not_count() -> None:
    """The options are copied, and so the hash stays true."""
    given: dict[str, Any] = {"channels": (2, 4)}
    made = experiment(model_kwargs=given)
    given["channels"] = (20, 40)
    assert made == experiment(model_kwargs={"channels": (2, 4)})
    assert made.model_kwargs == {"channels": (2, 4)}


def test_a_data_set_counts_by_its_fingerprint() -> None:
    """Equal arrays are equal whatever they are called, one pixel makes another experiment."""
    assert experiment(dataset=dataset()).hash == experiment(dataset=dataset(name="yours")).hash
    assert experiment(dataset=dataset()).hash != experiment(dataset=dataset(pixel=0.5)).hash
    assert experiment(dataset=dataset()).describe()["dataset"]["fingerprint"] == dataset().fingerprint


# -- other values ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "changes", "after"),
    [
        (Complete(2), {"agents": 4}, Complete(4)),
        (Complete(2), {"topology": Ring(4)}, Ring(4)),
        (Ring(3), {"topology": Complete(5)}, Complete(5)),
        (Ring(3), {"topology": Ring(4), "agents": 4}, Ring(4)),
        (Ring(3), {"agents": 3}, Ring(3)),
        (Ring(3), {"seed": 1}, Ring(3)),
    ],
)
def test_with_values_keeps_agents_and_topology_in_agreement(
    before: Topology, changes: dict[str, Any], after: Topology
) -> None:
    """A new topology brings its agents; new agents get a complete topology where it was complete."""
    made = experiment(topology=before).with_values(**changes)
    assert (made.topology, made.agents) == (after, after.agents)


@pytest.mark.parametrize("changes", [{"agents": 4}, {"topology": Ring(4), "agents": 5}])
def test_with_values_refuses_agents_that_do_not_fit(changes: dict[str, Any]) -> None:
    """A ring of three does not silently become something else."""
    with pytest.raises(ConfigurationError, match="set agents="):
        experiment(topology=Ring(3)).with_values(**changes)


# -- wrong values ----------------------------------------------------------------------------------------


class Unfinished(DistributedOptimizer):
    pass


class NeedsArguments(DistributedOptimizer):
    def __init__(self, period: int) -> None:
        self.period = period

    def step(self, batch: Batch) -> None: ...


Wrong = tuple[dict[str, object], str]


def each(keys: list[str], wrong: list[object], remedy: str) -> Iterator[Wrong]:
    """Every wrong value under every key."""
    for key, value in itertools.product(keys, wrong):
        yield {key: value}, remedy


def wrong_meshes() -> list[Wrong]:
    """Meshes beside what they cannot have."""
    return [
        ({"mesh": d5.Mesh(2, 3), "agents": 4}, "set agents=6"),
        ({"mesh": d5.Mesh(2, 3), "topology": Ring(6)}, "set replicas=6"),
        ({"mesh": d5.Mesh(1, 2), "on_failure": "restart"}, "leave on_failure out"),
        ({"mesh": d5.Mesh(1, 2), "on_failure": "continue", "events": Checkpoint()}, "set replicas=2"),
        ({"mesh": d5.Mesh(1, 2), "on_failure": "replace"}, "set replicas=2"),
        ({"mesh": d5.Mesh(2, 2), "distributed": ASGD(), "on_failure": "replace"}, NO_PART),
        ({"mesh": d5.Mesh(2, 2), "distributed": ASGD(), "on_failure": "restart"}, NO_PART),
        ({"mesh": d5.Mesh(2, 2), "distributed": ASGD(), "late": Late(agent=1, seconds=5)}, "leave late out"),
        ({"mesh": d5.Mesh(2, 2), "slow": Slowdown(agent=1, factor=4)}, "leave slow out"),
        ({"mesh": d5.Mesh(2, 2), "distributed": Hogwild()}, "one stage and part"),
        ({"precision": "bfloat16", "mesh": d5.Mesh(replicas=1, stages=2)}, "take 'float32'"),
    ]


NO_PART = "take on_failure='continue'"
WRONG: list[Wrong] = [  # what is given, and the remedy that the message has beside the key
    ({"model": "lenett"}, "did you mean 'lenet'?"),
    ({"model": 5}, "a name such as 'lenet', a class or function"),
    ({"mesh": 4}, "Mesh(replicas=2, stages=3)"),
    *cases_of("parallel", wrong_meshes),
    ({"dataset": "digit"}, "did you mean 'digits'?"),
    ({"dataset": None}, "a name such as 'digits', or a Dataset"),
    ({"optimizer": Momentum}, "such as Momentum(0.1, 0.9)"),
    ({"optimizer": 0.1}, "an Optimizer such as"),
    ({"distributed": Unfinished}, "write a `step(self, batch)`"),
    ({"distributed": NeedsArguments}, "give an instance"),
    ({"distributed": SGD}, "a subclass of DistributedOptimizer"),
    ({"distributed": "allreduce"}, "or an instance of one"),
    ({"topology": 4}, "a Topology such as Ring(4)"),
    ({"topology": Ring}, "a Topology such as Ring(4)"),
    ({"topology": Ring(4), "agents": 3}, "set agents=4, or a topology of 3"),
    *each(["agents"], [0, 2.0, "2", True], "an integer of at least 1"),
    *each(["batch_size", "epochs", "threads"], [0, 1.0, "8", None, True], "an integer of at least 1"),
    *each(["seed", "warmup_steps", "prefetch"], [-1, 0.5, "0", None, False], "an integer of at least 0"),
    *each(["gpus_per_agent", "cpus_per_agent"], [-0.5, math.nan, math.inf, "1", True], "a number from 0 up"),
    *each(["monitor_seconds", "mirror_seconds"], [-1, math.nan, math.inf, None], "a number from 0 up"),
    ({"monitor_seconds": 0.01}, "at least 0.05"),
    *each(["mirror_seconds"], [0.05, 20], "between 0.1 and 10"),
    *each(["save_model"], ["all", None], "one of 'agent', 'mean', 'servers', 'no'"),
    ({"save_model": "servers"}, "has none: take 'agent' or 'mean'"),
    *each(["save_model_bytes"], [-1, 1.5, None], "an integer of at least 0"),
    *each(["timeout_seconds"], [0, -1, math.nan, math.inf, None], "a number greater than 0"),
    *each(["model_kwargs", "dataset_kwargs", "executor_kwargs"], [None, "a=1"], "it must be a dictionary"),
    ({"train_sampler": ShuffleSampler}, "such as ShuffleSampler()"),
    ({"train_sampler": "shuffle"}, "a Sampler such as"),
    ({"loss": SoftmaxCrossEntropyLoss}, "such as SoftmaxCrossEntropyLoss()"),
    ({"executor": "trch"}, "did you mean 'torch'?"),
    ({"executor": 3}, "the name of a framework"),
    ({"communicator": "sock"}, "did you mean 'socket'?"),
    ({"communicator": None}, "such as 'socket'"),
    *each(["evaluate", "evaluate_test", "encryption", "compile", "recompute"], [1, "yes"], "True or False"),
    ({"servers": 2, "distributed": ASGD()}, "Servers(shards=2)"),
    ({"servers": Servers(2)}, "AllreduceSGD() uses no parameter server"),
    ({"servers": Servers(groups=3), "distributed": ASGD()}, "at most 2 groups"),
    ({"slow": 3}, "a tuple such as (Slowdown(agent=3, factor=4),)"),
    ({"slow": (4.0,)}, "Slowdown(agent=3, factor=4)"),
    ({"slow": Slowdown(2, 4)}, "agents are 0 to 1"),
    ({"events": "stop"}, "it must be Events such as"),
    ({"late": Late(1, 5)}, "take an optimizer such as ASGD()"),
    ({"on_failure": "retry"}, "'stop', 'continue', 'restart', 'replace'"),
    ({"on_failure": "replace", "distributed": Hogwild()}, "on_failure='continue' or 'stop'"),
    ({"min_agents": 3}, "2 at most"),
    ({"max_failures": -2}, "at least -1"),
    ({"stuck_seconds": -1}, "from 0 up"),
    ({"heartbeat_seconds": 0}, "0.1"),
    ({"keep_batch": "all"}, "'agent', 'global'"),
    ({"scale_rate": "square"}, "'none', 'linear', 'sqrt'"),
    ({"orphans": None}, "'left_out', 'taken_over'"),
    ({"faults": "continue"}, "a FaultPolicy(on_failure='continue')"),
    ({"faults": d5.Faults().kill(agent=1, at_step=3)}, "a plan is for simulate(…, faults=…)"),
    ({"elastic": Late(1, 5)}, "Elasticity(late=Late(agent=3, seconds=5))"),
    ({"recording": "no"}, "Recording(save_model='mean')"),
    ({"transformations": "flip"}, "a tuple such as (Crop(32, padding=4)"),
    ({"transformations": (RandomFlip,)}, "such as RandomFlip()"),
    ({"transformations": Crop(3), "dataset": dataset()}, "make it smaller, or the padding larger"),
    ({"train_sampler": ChoiceSampler(False, 5), "dataset": dataset()}, "or set replacement=True"),
    ({"precision": "bf16"}, "did you mean 'bfloat16'?"),
    ({"precision": "tf32"}, "executor_kwargs={'device': GPUDevice()}"),
    ({"executor": "numpy", "precision": "float16"}, "executor='torch'"),
    ({"precision": "bfloat16", "executor": plain_executor}, "plain_executor takes no precision"),
    ({"executor_kwargs": {"precision": "bfloat16"}}, "set precision='bfloat16' beside it"),
    ({"accumulate": 0}, "at least 1"),
    ({"executor": "numpy", "compile": True}, "numpy.from_model takes no compile"),
    ({"executor": "tensorflow", "recompute": True}, "tensorflow.from_model takes no recompute"),
    ({"name": 3}, "a text"),
]


def test_the_table_of_wrong_values_has_every_field() -> None:
    """A new field of Experiment needs a wrong value above."""
    assert {key for given, _ in WRONG for key in given} == {
        field.name for field in (*fields(Experiment), *fields_of(Experiment))
    }


@pytest.mark.every_case
@pytest.mark.parametrize(("given", "remedy"), WRONG, ids=lambda value: repr(value)[:60])
def test_a_wrong_value_is_refused_in_plain_words(given: dict[str, object], remedy: str) -> None:
    """With the key and with what to do."""
    with pytest.raises(ConfigurationError) as caught:
        experiment(**given)
    assert remedy in str(caught.value)
    assert any(key in str(caught.value) or repr(value) in str(caught.value) for key, value in given.items())


@pytest.mark.parametrize(
    ("given", "advice"),
    [
        ("fault", "did you mean 'faults'"),
        ("stuck_second", "did you mean 'stuck_seconds'"),  # of a part, whose name it then says
        ("world_size", "it is agents=4"),
    ],
)
def test_an_unknown_name_is_met_by_the_right_one(given: str, advice: str) -> None:
    with pytest.raises(ConfigurationError, match=advice):
        experiment(**{given: 3})


def test_its_signature_is_that_of_its_fields() -> None:
    """What editors and notebooks show."""
    assert [*inspect.signature(Experiment).parameters] == [field.name for field in fields(Experiment)]


class TwoRings(Topology):
    def __init__(self, agents: int) -> None:
        self.agents = agents

    def out_neighbors(self, rank: int, round: int = 0) -> tuple[int, ...]:
        return ((rank + 1) % self.agents,)


def test_an_object_that_does_not_say_what_it_is_is_shown_by_its_class() -> None:
    """With the arguments that it keeps, instead of its address in memory."""
    with pytest.raises(ConfigurationError, match=r"^TwoRings\(agents=6\) has 6 agents, the experiment has 4"):
        experiment(topology=TwoRings(6), agents=4)
    with pytest.raises(ConfigurationError, match=r"^dataset is Nothing\(\) \(Nothing\): it must be"):
        experiment(dataset=type("Nothing", (), {})())
    assert Optimizer.__repr__(SGD(0.1)) == "SGD(learning_rate=0.1)"


def test_values_are_checked_however_they_come() -> None:
    """By with_values and dataclasses.replace; and when a named data set is loaded, before an agent starts."""
    for change in (experiment().with_values, lambda **changes: replace(experiment(), **changes)):
        with pytest.raises(ConfigurationError, match="batch_size is 0"):
            change(batch_size=0)
    with pytest.raises(ConfigurationError, match="9 × 9 pixels of images of 8 × 8"):
        experiment(transformations=Crop(9)).load_dataset()
    with pytest.raises(ConfigurationError, match="asks for 2000 samples an epoch, but there are 1438"):
        experiment(train_sampler=ChoiceSampler(False, 2000)).load_dataset()
