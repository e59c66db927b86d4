"""Claims about the trained model that comes out: it is the one that the run evaluated, in other hands too"""

import resource
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from safetensors.numpy import load_file as load_arrays
from safetensors.torch import load_file
from torch import nn

import d5ray as d5
from d5ray.archive.models import export_all, export_model
from d5ray.errors import AgentError, ConfigurationError, StorageError
from d5ray.metrics.record.model_state import ModelState, kept_model, mean_of
from tests.archive.trained_models import Awkward
from tests.beside_kits import cases_of
from tests.conftest import d5ray
from tests.distributed.every_optimizer import EVERY, SERVERED, Entry

DIGITS = d5.datasets.load_dataset("digits")
TEST = DIGITS.test
AGENTS = 4
STEPS = 12
ONE_SIDED = {
    "AD-PSGD": Entry(d5.optimizers.ADPSGD()),
    "random walk": Entry(d5.optimizers.RandomWalkGossip()),
    "asynchronous push": Entry(d5.optimizers.AsynchronousGradientPush(), d5.topologies.DirectedRing(4)),
    "overlapped push": Entry(d5.optimizers.OverlapSGP(), d5.topologies.DirectedRing(4)),
    "Hogwild": Entry(d5.optimizers.Hogwild(), base=d5.optimizers.SGD(0.05)),
}
RULES = EVERY | SERVERED | ONE_SIDED


def experiment(entry: Entry = EVERY["allreduce"], **changes: Any) -> d5.Experiment:
    values: dict[str, Any] = {
        "model": Awkward, "dataset": "digits", "optimizer": entry.base, "distributed": entry.rule,
        "topology": entry.topology, "batch_size": 16, "seed": 3, "warmup_steps": 0,
    }  # fmt: skip
    return d5.Experiment.from_values(**(values | changes))


def trained(wanted: d5.Experiment, steps: int = STEPS) -> d5.Run:
    """A simulated run of this experiment."""
    with d5.simulate(wanted) as group:
        group.train(steps, progress=False)
    return d5.Run(group.folder)


def recorded(run: d5.Run, rank: int = 0) -> float:
    """The last test accuracy that an agent recorded."""
    rows = [row for row in run.tables()["samples"].to_pylist() if row["metric"] == "test_accuracy"]
    own = [row for row in rows if row["agent"] == f"TrainingAgent(rank={rank})"]
    return float(max(own, key=lambda row: row["t_mono"])["value"])


def accuracy(scores: Callable[[np.ndarray[Any, Any]], np.ndarray[Any, Any]]) -> float:
    """The share of the test samples that scores (batch, 10) are right about."""
    return float((scores(TEST.inputs).argmax(axis=1) == TEST.labels).mean())


def in_torch(module: torch.nn.Module) -> Callable[[np.ndarray[Any, Any]], np.ndarray[Any, Any]]:
    """Scores by plain PyTorch, without d5ray."""
    assert not module.training

    def scores(inputs: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        with torch.no_grad():
            found: np.ndarray[Any, Any] = module(torch.from_numpy(inputs)).numpy()
        return found

    return scores


def in_onnxruntime(path: Path) -> Callable[[np.ndarray[Any, Any]], np.ndarray[Any, Any]]:
    session = onnxruntime.InferenceSession(path)
    (name,) = (each.name for each in session.get_inputs())
    return lambda inputs: np.asarray(session.run(None, {name: inputs})[0])


@contextmanager
def file_size_limit(size: int) -> Iterator[None]:
    """No file of this process becomes larger."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.fixture(scope="module")
def run() -> d5.Run:
    """A run of allreduce that nobody changes."""
    return trained(experiment(save_model="agent"))


# -- it is the model that was evaluated --------------------------------------------------------------------


def test_the_table_has_every_distributed_optimizer() -> None:
    there = [getattr(d5.optimizers, name) for name in dir(d5.optimizers)]
    rules = {rule for rule in there if isinstance(rule, type) and issubclass(rule, d5.DistributedOptimizer)}
    assert rules == {type(entry.rule) for entry in RULES.values()}


@pytest.mark.full
@pytest.mark.parametrize("name", RULES)
def test_the_recorded_accuracy_is_that_of_the_model_in_pytorch_and_onnxruntime(
    name: str, tmp_path: Path
) -> None:
    """Under every rule: statistics, tied and frozen weights, all as the first agent evaluated them."""
    found = trained(experiment(RULES[name]))
    module = d5.load_model(found)
    assert isinstance(module, Awkward) and module.third.weight is module.second.weight
    assert accuracy(in_torch(module)) == pytest.approx(recorded(found), abs=1e-9)
    alone = Awkward()
    alone.load_state_dict(load_file(found.folder / "model.safetensors"))
    assert accuracy(in_torch(alone.eval())) == pytest.approx(recorded(found), abs=1e-9)
    assert module.norm.num_batches_tracked is not None and int(module.norm.num_batches_tracked) > 0
    path = export_model(found, "onnx", tmp_path / "model.onnx")
    assert accuracy(in_onnxruntime(path)) == pytest.approx(recorded(found), abs=2e-3)  # other kernels


def test_every_file_holds_the_model_that_was_evaluated(run: d5.Run, tmp_path: Path) -> None:
    """safetensors, torch.save and ONNX, read by their own libraries."""
    written = {
        to: export_model(run, to, tmp_path / f"model.{to}") for to in ("safetensors", "state_dict", "onnx")
    }
    wanted = recorded(run)
    assert wanted > 0.5
    for tensors in (load_file(written["safetensors"]), torch.load(written["state_dict"], weights_only=True)):
        module = Awkward()
        module.load_state_dict(tensors)
        assert accuracy(in_torch(module.eval())) == pytest.approx(wanted, abs=1e-9)
    assert accuracy(in_onnxruntime(written["onnx"])) == pytest.approx(wanted, abs=1e-9)


def test_a_state_dict_is_the_modules_own(run: d5.Run) -> None:
    """The names, shapes and types of `Awkward().state_dict()`, tied weights under both names, frozen ones."""
    own, found = Awkward().state_dict(), run.state_dict()
    assert {name: (tuple(t.shape), t.dtype) for name, t in own.items()} == {
        name: (tuple(t.shape), t.dtype) for name, t in found.items()
    }
    assert torch.equal(found["second.weight"], found["third.weight"])
    assert not torch.equal(found["norm.running_mean"], own["norm.running_mean"])


@pytest.mark.parametrize("executor", ["torch", "numpy", pytest.param("tensorflow", marks=pytest.mark.full)])
def test_a_network_by_name_comes_out_under_every_framework(executor: str, tmp_path: Path) -> None:
    """A resnet with BatchNorm: the ONNX file has the recorded accuracy in onnxruntime."""
    if executor == "tensorflow":
        pytest.importorskip("tensorflow")
    wanted = experiment(model="resnet8", executor=executor, agents=2, topology=None, batch_size=128)
    found = trained(wanted, 3)
    path = export_model(found, "onnx", tmp_path / "model.onnx")
    assert accuracy(in_onnxruntime(path)) == pytest.approx(recorded(found), abs=2e-3)  # other kernels
    model, tensors = d5.load_model(found), load_arrays(found.folder / "model.safetensors")
    if executor == "torch":
        assert isinstance(model, torch.nn.Module)
        assert all(np.array_equal(t.numpy(), tensors[name]) for name, t in model.state_dict().items())
    else:
        assert isinstance(model, d5.Network)
        assert all(np.array_equal(value, tensors[name]) for name, value in model.parameters.items())


def test_a_networks_own_names_come_out(tmp_path: Path) -> None:
    """Of a Network, under PyTorch too: also names that PyTorch does not allow, and no constants."""
    network = d5.load_model(trained(experiment(model="lenet", executor="numpy", agents=2, topology=None), 1))
    first = next(iter(network.parameters))
    network.rename(first, "onnx::Conv_12")
    found = trained(experiment(model=network, agents=2, topology=None), 2)
    made = d5.load_model(found)
    assert isinstance(made, d5.Network)
    assert set(found.state_dict()) == {*network.parameters, *network.state_values}
    path = export_model(found, "onnx", tmp_path / "model.onnx")
    assert accuracy(in_onnxruntime(path)) == pytest.approx(recorded(found), abs=1e-9)


# -- whose model -------------------------------------------------------------------------------------------


def test_the_mean_is_that_of_all_agents() -> None:
    """Of parameters and statistics in float64; integers are the first agent's; kept where it is asked for."""
    with d5.simulate(experiment(RULES["D-PSGD"], save_model="mean")) as group:
        group.train(STEPS, progress=False)
        mean = group.state_dict("mean")
        agents = [group.state_dict(rank) for rank in range(AGENTS)]
        assert not torch.equal(agents[0]["head.weight"], agents[1]["head.weight"])
    for name, tensor in mean.items():
        stacked = torch.stack([each[name] for each in agents])
        oracle = stacked.double().mean(0).to(tensor.dtype) if tensor.is_floating_point() else stacked[0]
        assert torch.equal(tensor, oracle), name
    kept = d5.Run(group.folder).state_dict()
    assert all(torch.equal(kept[name], tensor) for name, tensor in mean.items())
    assert kept_model(group.folder).of == "the mean of 4 agents"


def test_the_first_agent_that_is_left_is_the_agent() -> None:
    """When the first one has died, before and after the group is closed; nobody's model is another's."""
    wanted = experiment(RULES["ASGD"], on_failure="continue")
    with d5.simulate(wanted, failures=[d5.faults.Failure(agent=0, seconds=0.005)]) as group:
        group.train(STEPS, progress=False)
        own = group.state_dict(1)
        assert group.model_state("agent").of == "agent 1"
    for rank in ("agent", 1):
        assert all(torch.equal(own[name], tensor) for name, tensor in group.state_dict(rank).items())
    with pytest.raises(AgentError, match="is closed, and keeps the model of agent 1"):
        group.state_dict(0)


def test_the_servers_model_is_what_they_hold() -> None:
    """After an asynchronous training every agent has it; before the first step, the first parameters."""
    with d5.simulate(experiment(SERVERED["ASGD"], servers=d5.Servers(shards=3))) as group:
        first = group.state_dict(0)
        served = group.state_dict("servers")
        assert all(torch.equal(first[name], tensor) for name, tensor in served.items())
        group.train(STEPS, progress=False)
        served, own = group.state_dict("servers"), group.state_dict(2)
    trained_names = [name for name, _ in Awkward().named_parameters()]
    assert all(torch.equal(own[name], served[name]) for name in trained_names)
    assert not torch.equal(first["head.weight"], served["head.weight"])


def test_whoever_looks_at_the_servers_in_the_midst_of_a_simulation_changes_nothing() -> None:
    """Their model between two steps, with the numbers of the run without the look."""

    class Looks(d5.Event):
        def after_step(self, moment: d5.events.Moment) -> None:
            if moment.rank == 1:
                seen.append(held[0].state_dict("servers")["head.weight"])

    seen: list[torch.Tensor] = []
    held: list[Any] = []
    rows = []
    for events in ((), Looks()):
        with d5.simulate(experiment(SERVERED["ASGD"], servers=d5.Servers(shards=2), events=events)) as group:
            held[:] = [group]
            group.train(STEPS, progress=False)
            last = group.state_dict("servers")["head.weight"]
        rows.append(d5.Run(group.folder).row["parameters_sha256"])
    assert rows[0] == rows[1]
    assert len(seen) == STEPS and len({each.numpy().tobytes() for each in (*seen, last)}) > STEPS // 2


def test_a_model_in_the_midst_of_a_training_is_that_after_its_last_step() -> None:
    """An event sees the parameters that the group gives at that moment."""

    class Looks(d5.Event):
        def after_step(self, moment: d5.events.Moment) -> None:
            if moment.rank == 1 and moment.step == 5:
                taken.append((moment.executor.named_parameters(), held[0].state_dict(1)))

    taken: list[Any] = []
    held: list[Any] = []
    with d5.simulate(experiment(RULES["D-PSGD"], events=Looks())) as group:
        held.append(group)
        group.train(STEPS, progress=False)
    ((parameters, state),) = taken
    assert all(np.array_equal(value, state[name].numpy()) for name, value in parameters.items())


@pytest.mark.full
def test_real_agents_give_their_models_while_they_train_and_after() -> None:
    """From another thread: always the state between two steps, equal on all agents of a synchronous rule."""
    wanted = experiment(agents=2, topology=None, epochs=30, cpus_per_agent=0.25)
    seen: list[ModelState] = []
    with d5.launch(wanted, quiet=True) as group:
        over = threading.Event()

        def ask() -> None:
            while not over.is_set():
                seen.append(group.model_state(len(seen) % 2))

        asking = threading.Thread(target=ask)
        asking.start()
        group.train(progress=False)
        over.set()
        asking.join()
        last = [group.state_dict(rank) for rank in range(2)]
        module = group.model()
    steps = [state.step for state in seen]
    assert steps == sorted(steps) and len(set(steps)) > 3
    for state in seen:  # one training pass a step
        assert int(state.tensors["norm.num_batches_tracked"]) == state.step
    assert all(torch.equal(last[0][name], last[1][name]) for name, _ in Awkward().named_parameters())
    run = d5.Run(group.folder)
    assert accuracy(in_torch(module)) == pytest.approx(recorded(run), abs=1e-9)
    assert all(torch.equal(tensor, last[0][name]) for name, tensor in run.state_dict().items())
    assert all(torch.equal(tensor, last[0][name]) for name, tensor in group.state_dict().items())
    with pytest.raises(AgentError, match="is closed, and keeps the model of agent 0"):
        group.state_dict(1)


def in_parts() -> "d5.Mesh":
    return d5.Mesh(1, 2, parts=2, split={"7": d5.networks.ByColumns(), "9": d5.networks.ByRows()})


@pytest.mark.full
@pytest.mark.parametrize(
    ("model", "mesh"),
    cases_of("parallel", lambda: [("resnet8", d5.Mesh(2, stages=2)), ("lenet", in_parts())]),
)
def test_a_mesh_gives_the_whole_network(model: str, mesh: "d5.Mesh", tmp_path: Path) -> None:
    """Of stages and of parts: the tensors of the network, with statistics, and with its accuracy."""
    wanted = experiment(model=model, topology=None, mesh=mesh, cpus_per_agent=0.2, batch_size=64)
    with d5.launch(wanted, quiet=True) as group:
        group.train(3, progress=False)
        last = mesh.replicas - 1
        one, other, whole = group.state_dict(0), group.state_dict(last), group.network_parameters(last)
        with pytest.raises(AgentError, match=f"there is no model {mesh.replicas}"):
            group.state_dict(mesh.replicas)
    assert all(torch.equal(one[name], torch.from_numpy(value)) for name, value in whole.items())
    assert all(torch.equal(one[name], other[name]) for name in whole)
    run = d5.Run(group.folder)
    module = d5.load_model(run)
    assert accuracy(in_torch(module)) == pytest.approx(recorded(run), abs=2e-3)
    path = export_model(run, "onnx", tmp_path / "model.onnx")
    assert accuracy(in_onnxruntime(path)) == pytest.approx(recorded(run), abs=2e-3)


# -- what is kept ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("settings", [{"save_model": "no"}, {"save_model_bytes": 1000}])
def test_a_run_keeps_no_model_where_that_is_said_and_says_so(settings: dict[str, Any]) -> None:
    """A flag, or a size limit, of which an event tells."""
    found = trained(experiment(**settings), 2)
    events = [row["name"] for row in found.tables()["events"].to_pylist()]
    assert events.count("model_not_kept") == (0 if "save_model" in settings else 1)
    with pytest.raises(ConfigurationError, match=f"the run {found.name} keeps no model: runs that complete"):
        found.state_dict()


def test_the_numbers_of_a_run_do_not_depend_on_what_it_keeps(run: d5.Run) -> None:
    """The same experiment by its hash, and the same parameters."""
    other = trained(experiment(save_model="no"))
    assert other.row["parameters_sha256"] == run.row["parameters_sha256"]


def test_the_mean_of_bfloat16_is_one() -> None:
    """Sums are float64: 256 + 1 would be 256 in bfloat16."""
    import ml_dtypes  # noqa: PLC0415 - beside NumPy

    values = [np.array([number], ml_dtypes.bfloat16) for number in (256, 1, 1, 2)]
    mean = mean_of([ModelState({"x": value}, "torch", (1,), 2, 1, "") for value in values])
    assert mean.tensors["x"].dtype == ml_dtypes.bfloat16 and float(mean.tensors["x"][0]) == 65.0
    assert mean.state_dict()["x"].dtype == torch.bfloat16


# -- the command, and wrong input --------------------------------------------------------------------------


def test_the_command_writes_each_format_and_overwrites_nothing(run: d5.Run, tmp_path: Path) -> None:
    path = tmp_path / "out.pt"
    done = d5ray("export", run.name, "--to", "state_dict", "--out", str(path))
    assert done.code == 0, done.err
    assert set(torch.load(path, weights_only=True)) == set(Awkward().state_dict())
    again = d5ray("export", run.name, "--to", "state_dict", "--out", str(path))
    assert again.code == 3 and "is there already" in again.err
    for to, words in (("kerass", "did you mean 'keras'"), ("keras", "no model of Keras")):
        with pytest.raises(ConfigurationError, match=words):
            export_model(run, to, tmp_path / "x.keras")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["out.pt"]


@pytest.mark.parametrize("to", ["safetensors", "state_dict", "onnx"])
def test_a_model_that_does_not_fit_on_the_disk_leaves_no_part_of_a_file(
    to: str, run: d5.Run, tmp_path: Path
) -> None:
    with pytest.raises(StorageError, match="as large as a file may be"), file_size_limit(4096):
        export_model(run, to, tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("to", "name"), [("onnx", "x.pt"), ("state_dict", "x.safetensors")])
def test_a_file_is_not_called_as_another_formats(to: str, name: str, run: d5.Run, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=f"no name of a file of --to {to}: let it end with"):
        export_model(run, to, tmp_path / name)
    assert export_model(run, to, tmp_path / "new" / "model").is_file()


class Untied(Awkward):
    """Has one tensor of two layers, until its third step in training."""

    passes = 0

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """The scores, as before."""
        self.passes += self.training
        if self.passes == 3 and self.third.weight is self.second.weight:
            self.third.weight = nn.Parameter(self.second.weight.detach().clone())
        return super().forward(images)


def test_a_model_that_its_training_untied_is_refused_and_its_tensors_are_not(tmp_path: Path) -> None:
    """Made again it would have one value for two: the tensors have both, for a model that is not tied."""
    found = trained(experiment(model=Untied, agents=2, topology=None))
    with pytest.raises(ConfigurationError, match=r"second.weight and third.weight have values of their own"):
        d5.load_model(found)
    with pytest.raises(ConfigurationError, match="untied"):
        export_model(found, "onnx", tmp_path / "model.onnx")
    module = Awkward()
    module.third.weight = nn.Parameter(module.third.weight.detach().clone())
    module.load_state_dict(torch.load(export_model(found, "state_dict", tmp_path / "x.pt")))
    assert accuracy(in_torch(module.eval())) == pytest.approx(recorded(found), abs=1e-9)


def test_tensors_of_another_model_are_refused_by_name(run: d5.Run) -> None:
    """Each of them, and both sides: what is unknown, what is missing, whose shape differs."""
    state = kept_model(run.folder)
    tensors = dict(state.tensors)
    tensors["heads.weight"] = tensors.pop("head.weight")
    tensors["first.bias"] = np.zeros(3, np.float32)
    other = ModelState(tensors, "torch", state.sample_shape, state.classes, 1, "")
    from d5ray.archive.models import model_of  # noqa: PLC0415 - for this alone

    with pytest.raises(ConfigurationError) as caught:
        model_of(experiment(), other)
    for said in ("lacks heads.weight", "has no value for head.weight", "first.bias (3,) where it is (32,)"):
        assert said in str(caught.value)


def test_a_file_of_other_tensors_is_no_kept_model(run: d5.Run, tmp_path: Path) -> None:
    from safetensors.numpy import save_file  # noqa: PLC0415 - for this alone

    save_file({"x": np.zeros(3)}, tmp_path / "x.safetensors")
    with pytest.raises(StorageError, match="holds tensors, but no model that a run kept"):
        ModelState.read(tmp_path / "x.safetensors")
    (tmp_path / "y.safetensors").write_bytes(b"1234")
    with pytest.raises(StorageError, match="is not a file in the format of safetensors"):
        ModelState.read(tmp_path / "y.safetensors")


def test_a_file_that_cannot_be_written_leaves_nothing(run: d5.Run, tmp_path: Path) -> None:
    """A type that the format lacks, half-way: neither the file nor a part of it is there."""
    state = kept_model(run.folder)
    odd = ModelState({**state.tensors, "odd": np.zeros(3, np.longdouble)}, "numpy", (1,), 2, 1, "")
    with pytest.raises(StorageError, match="odd is an array of"):
        odd.write(tmp_path / "model.safetensors")
    assert list(tmp_path.iterdir()) == []


def test_the_models_of_a_series_go_side_by_side(run: d5.Run, tmp_path: Path) -> None:
    """A run alone is one file, wherever it is told to go."""
    assert export_all(run, "safetensors", tmp_path / "a") == {run.name: tmp_path / "a"}


@pytest.mark.parametrize("rank", ["sum", 1.5, True])
def test_whose_model_is_checked(rank: Any) -> None:
    with d5.simulate(experiment(agents=2, topology=None)) as group:
        with pytest.raises(ConfigurationError, match="one of 'agent', 'mean', 'servers'"):
            group.state_dict(rank)
        with pytest.raises(ConfigurationError, match="has no parameter servers"):
            group.state_dict("servers")
        with pytest.raises(AgentError, match="there is no model 2"):
            group.state_dict(2)


def test_a_model_of_servers_needs_some() -> None:
    with pytest.raises(ConfigurationError, match="save_model is 'servers', and AllreduceSGD"):
        experiment(save_model="servers")
    with pytest.raises(ConfigurationError, match="save_model"):
        experiment(save_model="all")
