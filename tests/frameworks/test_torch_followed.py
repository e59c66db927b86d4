"""Claims about modules that change what is trained: as a plain PyTorch loop, and of several agents as DDP."""

from pathlib import Path
from typing import Any

import networkx
import pytest
import torch
from torch import nn
from torch.nn.utils import parametrize, prune

import d5ray as d5
from tests.distributed.every_optimizer import EVERY, GOSSIP, SERVERED
from tests.plain_torch import RULES, Act, check_same, module_of, plain, samples, trained


class Net(nn.Module):
    """(batch, 4) to 3 scores, in two layers, a third that depends on the batch, and one that nobody uses."""

    def __init__(self) -> None:
        super().__init__()
        self.back = nn.Linear(4, 6)
        self.expert = nn.Linear(6, 6)
        self.head = nn.Linear(6, 3)
        self.unused = nn.Linear(5, 2)
        self.gain = nn.Parameter(torch.tensor(1.5))
        self.calls = 0

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        self.before()
        hidden = torch.tanh(self.back(inputs))
        if inputs[0, 0] > 0:
            hidden = hidden + self.gain * torch.tanh(self.expert(hidden))
        scores: torch.Tensor = self.head(hidden)
        return scores

    def before(self) -> None:
        """What a model does to itself in a pass."""


class Clamped(Net):
    def before(self) -> None:
        self.back.weight.data = self.back.weight.data.clamp(-0.3, 0.3)


class UnitRows(Net):
    def before(self) -> None:
        with torch.no_grad():
            self.head.weight.data = nn.functional.normalize(self.head.weight, dim=1)


class Replaced(Net):
    def before(self) -> None:
        self.back.weight = nn.Parameter(self.back.weight.detach().clamp(-0.3, 0.3))


class Transposed(Net):
    def before(self) -> None:
        self.expert.weight.data = self.expert.weight.data.t()


class WithoutGradient(Net):
    def before(self) -> None:
        self.back.weight.grad = None


class Frozen(Net):
    def __init__(self) -> None:
        super().__init__()
        self.back.requires_grad_(False)
        self.gain.requires_grad_(False)


class FrozenInAPass(Net):
    def before(self) -> None:
        self.back.requires_grad_(self.calls not in (3, 4))


class Tied(Net):
    def __init__(self) -> None:
        super().__init__()
        self.again = nn.Linear(6, 6)
        self.again.weight = self.expert.weight
        self.expert.weight.requires_grad_(False)


class HookThatTakes(Net):
    def __init__(self) -> None:
        super().__init__()

        def take(tensor: torch.Tensor) -> None:
            tensor.grad = None

        self.back.bias.register_post_accumulate_grad_hook(take)  # type: ignore[no-untyped-call]


class HookThatPuts(Net):
    """`grad.data` is the memory of the gradient that is exchanged."""

    def __init__(self) -> None:
        super().__init__()

        def put(tensor: torch.Tensor) -> None:
            assert tensor.grad is not None
            tensor.grad.data = 0.5 * tensor.grad.data

        self.back.weight.register_post_accumulate_grad_hook(put)  # type: ignore[no-untyped-call]


class NegativeZero(Net):
    """A gradient of -0.0 is one: momentum goes on, and weights decay."""

    def __init__(self) -> None:
        super().__init__()
        self.head.bias.register_hook(self.lessened)  # type: ignore[no-untyped-call]

    def lessened(self, gradient: torch.Tensor) -> torch.Tensor:
        return gradient if self.calls < 3 else -0.0 * gradient.abs()


def release(module: nn.Module, step: int) -> None:
    if step == 2:
        module.requires_grad_(True)


def freeze(module: nn.Module, step: int) -> None:
    module.get_submodule("back").requires_grad_(step not in (2, 3))


def put_data(module: nn.Module, step: int) -> None:
    weight = module.get_parameter("head.weight")
    weight.data = 0.5 * weight.data


def change_in_place(module: nn.Module, step: int) -> None:
    with torch.no_grad():
        module.get_parameter("head.weight").mul_(0.5)


def put_parameter(module: nn.Module, step: int) -> None:
    back = module.get_submodule("back")
    back.weight = nn.Parameter(0.5 * back.get_parameter("weight").detach())


def put_module(module: nn.Module, step: int) -> None:
    if step == 2:
        head = nn.Linear(6, 3)
        head.load_state_dict(
            {name: -each for name, each in module.get_submodule("head").state_dict().items()}
        )
        module.head = head


def add_parameter(module: nn.Module, step: int) -> None:
    if step == 2:
        parametrize.register_parametrization(module.get_submodule("head"), "weight", Stretched())


class Stretched(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.by = nn.Parameter(torch.full((4,), 0.9))

    def forward(self, weight: torch.Tensor) -> torch.Tensor:
        return weight * self.by.mean()


def append(module: nn.Module, step: int) -> None:
    if step == 2:
        module.get_submodule("more").append(nn.Parameter(torch.full((6,), 0.5)))  # type: ignore[operator]


class Growing(Net):
    def __init__(self) -> None:
        super().__init__()
        self.more = nn.ParameterList()

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        scores = super().forward(inputs)
        for each in self.more:
            scores = scores * (1 + each.mean())
        return scores


def round_to_halves(module: nn.Module, step: int) -> None:
    module.half().float()


def pruned(module: nn.Module, step: int) -> None:
    if step == 2:
        prune.random_unstructured(module.get_submodule("back"), "weight", 0.5)  # type: ignore[no-untyped-call]
        generator = torch.Generator().manual_seed(3)
        mask = torch.rand((6, 4), generator=generator) > 0.5
        module.get_submodule("back").weight_mask.copy_(mask)  # type: ignore[operator]


STATELESS = ("SGD",)  # with which an optimizer that is made anew at each step is the same
CHANGES: dict[str, tuple[Any, Act | None, bool]] = {
    "as it is": (Net, None, False),
    "data in a pass": (Clamped, None, False),
    "unit rows in a pass": (UnitRows, None, False),
    "transposed in a pass": (Transposed, None, False),
    "no gradient in a pass": (WithoutGradient, None, False),
    "a new parameter in a pass": (Replaced, None, True),
    "released": (Frozen, release, False),
    "released and tied": (Tied, release, False),
    "frozen for two steps": (Net, freeze, False),
    "frozen in a pass": (FrozenInAPass, None, False),
    "data after a step": (Net, put_data, False),
    "in place after a step": (Net, change_in_place, False),
    "a new parameter after a step": (Net, put_parameter, True),
    "another module after a step": (Net, put_module, True),
    "a parametrization after a step": (Net, add_parameter, True),
    "one more parameter after a step": (Growing, append, True),
    "converted and back after a step": (Net, round_to_halves, False),
    "pruned after a step": (Net, pruned, False),
    "a hook that takes a gradient": (HookThatTakes, None, False),
    "a hook that puts a gradient's data": (HookThatPuts, None, False),
    "a gradient of negative zero": (NegativeZero, None, False),
}


@pytest.mark.parametrize("agents", [1, 3])
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("change", CHANGES)
def test_training_is_that_of_plain_pytorch(change: str, rule: str, agents: int) -> None:
    """Every tensor of the module; without a gradient one stays, and so does what a rule remembers of it."""
    module, act, every_parameter = CHANGES[change]
    if every_parameter and rule not in STATELESS:
        pytest.skip("PyTorch's optimizer does not know what was put in a parameter's place")
    own, of_torch = RULES[rule]
    found, batches, everyone = trained(module, own, agents=agents, act=act)
    expected = plain(module, of_torch, batches, act=act, every_parameter=every_parameter)
    check_same(found, expected)
    for other in everyone:
        for name, value in other.items():
            assert value.tobytes() == everyone[0][name].tobytes()
            named = name if name in expected else f"{name}_orig"  # pruned
            check_same({name: value}, {name: expected[named]})


TREE = d5.topologies.Tree(5)
UNEQUAL = d5.topologies.Custom(
    networkx.DiGraph([(0, 1), (0, 2), (1, 2), (1, 3), (2, 0), (2, 4), (3, 0), (4, 1)])
)
RULES_OF_ALL = EVERY | SERVERED | GOSSIP
FEEDBACK = d5.compression.ErrorFeedback(d5.compression.Identity())
GROUPS: dict[str, dict[str, Any]] = {
    "real": {"real": True},
    "overlapped": {"real": True, "distributed": d5.optimizers.OverlappedAllreduceSGD(64)},
    "overlapped, simulated": {"distributed": d5.optimizers.OverlappedAllreduceSGD(64)},
    "sharded": {"real": True, "distributed": d5.optimizers.ShardedAllreduceSGD},
    "sharded, simulated": {"distributed": d5.optimizers.ShardedAllreduceSGD},
    "a growing batch": {"distributed": d5.optimizers.GrowingBatch((100,))},
    "socket": {"real": True, "communicator": "socket"},
    "in pieces": {"accumulate": 2, "batch_size": 2},
    "compressed": {"distributed": d5.optimizers.CompressedSGD(d5.compression.Identity())},
    "with feedback": {"real": True, "distributed": d5.optimizers.CompressedSGD(FEEDBACK)},
}


@pytest.mark.parametrize("rule", ["momentum", "AdamW", "torch AdamW"])
@pytest.mark.parametrize("group", GROUPS)
def test_what_no_agent_used_stays_whatever_the_exchange(group: str, rule: str) -> None:
    """One parameter is used by nobody, others by some agents in some steps."""
    own, of_torch = RULES[rule]
    found, batches, _ = trained(Net, own, agents=3, **GROUPS[group])
    check_same(found, plain(Net, of_torch, batches, pieces=GROUPS[group].get("accumulate", 1)))


@pytest.mark.parametrize("odd", [False, True], ids=["", "of five"])
@pytest.mark.parametrize("rule", RULES_OF_ALL)
def test_what_no_pass_uses_stays_under_every_rule(rule: str, odd: bool) -> None:
    """To the bit, however W and the number of agents round; or it is refused by its name."""
    entry, net = RULES_OF_ALL[rule], Net()
    topology = (
        (UNEQUAL if isinstance(entry.topology, d5.topologies.DirectedRing) else TREE)
        if odd
        else entry.topology
    )
    base = RULES["momentum"][0] if odd else d5.optimizers.AdamW(0.05, weight_decay=0.3)
    with torch.no_grad():
        net.unused.weight[0] = torch.tensor([-0.0, 1e-42, 1.7e38, -1.7e38, 0.1])
    first = {name: value.clone() for name, value in net.unused.state_dict(prefix="unused.").items()}
    options: dict[str, Any] = {"distributed": entry.rule, "topology": topology, "real": "wild" in rule}
    try:
        *_, found = trained(net, base, agents=topology.agents, **options)
    except d5.D5Error as refused:
        assert "got no gradient" in str(refused) or "goes with" in str(refused), refused
        return
    for tensors in found:
        for name, value in first.items():
            assert tensors[name].tobytes() == value.numpy().tobytes(), (name, tensors[name] - value.numpy())


@pytest.mark.parametrize(
    ("rule", "instead"),
    [
        (d5.optimizers.ChocoSGD(d5.compression.ScaledSign(), gamma=0.4), "DPSGD"),
        (d5.optimizers.ASGD(d5.compression.ScaledSign()), "TopK"),
        (d5.optimizers.ParameterServerSGD(compressor=d5.compression.OneBit()), "TopK"),
    ],
    ids=repr,
)
def test_signs_are_refused_where_they_would_move_what_no_pass_uses(
    rule: d5.DistributedOptimizer, instead: str
) -> None:
    with pytest.raises(d5.D5Error, match=f"'.*' got no gradient.*(ScaledSign|OneBit).*such as {instead}"):
        trained(Net(), d5.optimizers.SGD(0.1), agents=3, distributed=rule, topology=d5.topologies.Ring(3))


class Expanded(Net):
    def __init__(self) -> None:
        super().__init__()
        self.head.weight = nn.Parameter(torch.ones(1, 6).expand(3, 6))


class InPlace(Net):
    def before(self) -> None:
        self.back.weight.data.clamp_(-0.3, 0.3)


def shrink(module: nn.Module, step: int) -> None:
    module.get_parameter("back.weight").data = torch.zeros(5, 4)


def widen(module: nn.Module, step: int) -> None:
    module.double()


SERVED = {"distributed": d5.optimizers.ParameterServerSGD}
REFUSED: dict[str, tuple[Any, Act | None, Any, dict[str, Any], str]] = {
    "another shape": (
        Net, shrink, None, {},
        r"'back.weight' was \(6, 4\).*is \(5, 4\)",
    ),
    "without values": (lambda: Net().to("meta"), None, None, {}, "'gain' is on PyTorch's meta device"),
    "elements in one place": (Expanded, None, None, {}, "'head.weight'.*18 elements in the memory of 6"),
    "another type": (Net, widen, None, {}, "torch.float64"),
    "data at servers": (Clamped, None, None, SERVED, "'back.weight'.*parameter servers hold"),
    "in place at servers": (InPlace, None, None, SERVED, "in its forward pass.*parameter servers hold"),
    "released at servers": (Frozen, release, None, SERVED, "released parameters.*servers"),
    "decay at servers": (Net, None, "AdamW", SERVED, "'unused.weight' got no gradient.*weight decay"),
    "momentum at servers": (Net, None, "momentum", SERVED, "'gain' got no gradient.*momentum"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_followed_is_an_error_at_that_step(case: str) -> None:
    """By the parameter's name, with what was found and what to do."""
    module, act, rule, options, words = REFUSED[case]
    own, _ = RULES[rule or "SGD"]
    with pytest.raises(d5.D5Error, match=f"(?s){words}"):
        trained(module, own, agents=2, act=act, **options)


class Scaled(nn.Module):
    """A loss with parameters of its own: a temperature and an offset."""

    def __init__(self) -> None:
        super().__init__()
        self.temperature = nn.Parameter(torch.tensor(2.0))
        self.offset = nn.Parameter(torch.zeros(3))

    def forward(self, scores: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(scores / self.temperature + self.offset, labels)


@pytest.mark.parametrize("agents", [1, 3])
def test_a_loss_trains_its_parameters(agents: int) -> None:
    """As they train where the loss is a part of the module; the loss that was given is not changed."""

    class Whole(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = Net()
            self.loss = Scaled()

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            scores: torch.Tensor = self.net(inputs) / self.loss.temperature + self.loss.offset
            return scores

    own, of_torch = RULES["AdamW"]
    loss = Scaled()
    found, batches, everyone = trained(Net, own, loss=loss, agents=agents)
    expected = plain(Whole, of_torch, batches)
    check_same(found, {name[4:]: each for name, each in expected.items() if name.startswith("net.")})
    for name in ("loss.temperature", "loss.offset"):
        check_same({name: everyone[-1][name]}, {name: expected[name]})
    assert loss.temperature.item() == 2.0


def test_a_run_goes_on_from_a_checkpoint_after_a_release(tmp_path: Path) -> None:
    """With what was released, and what the rule remembers of it, bit for bit."""
    options: dict[str, Any] = {
        "model": Frozen, "dataset": samples(), "optimizer": d5.optimizers.AdamW(0.05), "agents": 2,
        "batch_size": 4, "epochs": 100, "monitor_seconds": 0, "evaluate": False,
    }  # fmt: skip
    events = (Released(), d5.events.Checkpoint(every_steps=5, path=str(tmp_path)))
    experiment = d5.Experiment.from_values(**options, events=events)
    with d5.simulate(experiment) as group:
        group.train(steps=8, progress=False)
        expected = group.parameters()
    with d5.simulate(experiment, resume=tmp_path / "step-00000005") as group:
        group.train(steps=3, progress=False)
        found = group.parameters()
    assert found.keys() == expected.keys() and len(found) == 9
    for name, value in expected.items():
        assert found[name].tobytes() == value.tobytes(), name


class Released(d5.Event):
    """Releases everything after the second step."""

    def after_step(self, moment: Any) -> None:
        release(module_of(moment.executor), moment.step)
