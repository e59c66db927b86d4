"""A PyTorch module that agents train beside a plain PyTorch loop over the same batches"""

import copy
from collections.abc import Callable
from typing import Any, final

import numpy as np

from d5ray.actors.launch import launch
from d5ray.checks import check_count, check_rate
from d5ray.errors import ConfigurationError
from d5ray.experiment import Experiment
from d5ray.failures.program_state import as_before
from d5ray.frameworks.native_optimizers import TorchOptimizer
from d5ray.networks.executors.trees import mapped, unpacked
from d5ray.ops.losses.function_loss import FunctionLoss
from d5ray.simulator import simulate
from d5ray.testing.differences import Arrays, Differences
from d5ray.training.datasets.dataset import Dataset
from d5ray.training.events.event import Event
from d5ray.training.events.moment import Moment
from d5ray.training.recording import Recording

_seen: "dict[int, dict[int, _Agent]]" = {}  # by the number of a comparison and by rank


@final
class _Agent:
    """The course of an agent: its tensors at first and now, its batches with their seeds, and its losses."""

    def __init__(self, tensors: Arrays) -> None:
        self.first = self.tensors = tensors
        self.steps: list[tuple[Any, Any, int]] = []  # inputs, labels, and the seed that the pass draws from
        self.losses: list[float] = []
        self.parameters: Any = None


@final
class _Watch(Event):
    """Keeps what an agent takes and becomes."""

    def __init__(self, number: int) -> None:
        self.number = number

    def after_sampling(self, moment: Moment) -> None:
        if self.number in _seen:  # not in another process
            assert moment.batch is not None
            executor = _torch_executor(moment.executor)
            if moment.rank not in _seen[self.number]:
                _seen[self.number][moment.rank] = _Agent(executor.state_dict())
            taken = copy.deepcopy((moment.batch.inputs, moment.batch.labels))
            _seen[self.number][moment.rank].steps.append((*taken, executor.next_seed))

    def after_step(self, moment: Moment) -> None:
        if self.number in _seen:
            agent = _seen[self.number][moment.rank]
            agent.losses.append(moment.loss)
            agent.tensors = _torch_executor(moment.executor).state_dict()
            agent.parameters = moment.executor.numpy_parameters()


def same_as_torch(
    module: Any,
    dataset: Dataset,
    loss: Any,
    optimizer: Any,
    *,
    steps: int = 5,
    agents: int = 1,
    batch_size: int = 4,
    seed: int = 0,
    tolerance: float = 1e-5,
    launched: bool = False,
    **options: Any,
) -> float:
    """The largest relative difference between agents that train a module and plain PyTorch.

    One agent is compared with the usual loop, several with what `DistributedDataParallel` does: gradients are
    averaged, and buffers are the first replica's before every pass. Every loss, all parameters and buffers,
    after the same steps of the same batches, with the same seeds for what draws; and that all agents have the
    first one's parameters.

    module     a module, or a class or function that makes one
    loss       a function of (scores, labels), or a module such as torch.nn.CrossEntropyLoss(); where it gives
               (sum, weight), several are compared with one process on the samples of all
    optimizer  a class of `torch.optim`, or a `functools.partial` of one; or a `TorchOptimizer` of a function
               that makes groups of parameters
    steps, agents, batch_size, seed  of the experiment
    tolerance  of every tensor, relative to its largest element, or to 1
    launched   real agents, too, of which the first one's parameters are compared at the end
    options    more of the experiment, such as distributed or executor_kwargs

    Raises `ValidationError` for what differs, `ConfigurationError` for what agents refuse to train.
    """
    check_count("steps", steps, 1)
    check_rate("tolerance", tolerance)
    groups = isinstance(optimizer, TorchOptimizer) and callable(optimizer.rule)
    if isinstance(loss, str) or not callable(loss) or not (callable(optimizer) or groups):
        raise ConfigurationError(
            f"the loss is {loss!r} and the optimizer {optimizer!r}: give a function or module of PyTorch, "
            "such as torch.nn.CrossEntropyLoss(), and a class of torch.optim or a functools.partial of one"
        )
    number = len(_seen)
    _seen[number] = {}
    replicas = [_copied(module, loss) for _ in range(agents)]
    experiment = Experiment(
        module, dataset, optimizer, agents=agents, batch_size=batch_size, seed=seed, loss=loss,
        epochs=steps, evaluate=False, events=_Watch(number), recording=Recording(warmup_steps=0), **options,
    )  # fmt: skip
    with simulate(experiment) as group:
        group.train(steps, progress=False)
    course = [agent for _, agent in sorted(_seen[number].items())]
    _seen[number] = {}
    compared = Differences("PyTorch", tolerance)
    expected = _by_torch(replicas, optimizer, course, compared, seed)
    compared.check("agent 0", course[0].tensors, expected)
    for rank, agent in enumerate(course[1:], 1):
        compared.check(f"agent {rank}", {"x": agent.parameters}, {"x": course[0].parameters})
    if launched:
        with launch(experiment) as real:
            real.train(steps, progress=False)
            found = real.parameters()  # statistics are means over the agents now
        compared.check("the first of the real agents", found, {name: expected[name] for name in found})
    return compared.largest


@as_before()
def _by_torch(
    replicas: list[tuple[Any, Any]],
    optimizer: Callable[..., Any],
    course: list[_Agent],
    compared: Differences,
    seed: int,
) -> Arrays:
    """The tensors of the first replica where PyTorch takes the agents' steps."""
    import torch  # noqa: PLC0415 - when it is asked for

    from d5ray.frameworks.torch.library import array_of, tensor_of  # noqa: PLC0415
    from d5ray.frameworks.torch.model_calls import called  # noqa: PLC0415
    from d5ray.frameworks.torch.modes import begin_training  # noqa: PLC0415

    modules, losses, rules = [], [], []
    for module, loss in replicas:
        torch.manual_seed(seed)
        made = module if isinstance(module, torch.nn.Module) else module()
        _initialize(made, mapped(tensor_of, course[0].steps[0][0]))
        first = {name: tensor_of(np.array(value)) for name, value in course[0].first.items()}
        made.load_state_dict(first, strict=False)  # parts may have state of another kind
        begin_training(made)
        modules.append(made)
        losses.append(loss)
        rules.append(_rule(optimizer, made, loss))
    for step in range(len(course[0].steps)):
        with torch.no_grad():
            for other in modules[1:]:
                for mine, own in zip(other.buffers(), modules[0].buffers(), strict=True):
                    mine.copy_(own)
        weights: list[float] = []
        for rank, (module, loss, agent) in enumerate(zip(modules, losses, course, strict=True)):
            inputs, labels, drawn = agent.steps[step]
            rules[rank].zero_grad()
            torch.manual_seed(drawn)
            given = loss(called(module, mapped(tensor_of, inputs)), mapped(tensor_of, unpacked(labels)))
            found, weight = given if isinstance(given, tuple) else (given, None)
            found.backward()
            weights.append(1.0 if weight is None else float(weight))
            found = found if not weight else found / weight
            compared.check(
                f"agent {rank} in step {step}",
                {"loss": np.asarray(agent.losses[step])},
                {"loss": np.asarray(found.item())},
            )
        if total := sum(weights):
            _average([[p for group in rule.param_groups for p in group["params"]] for rule in rules], total)
            for rule in rules:
                rule.step()
    return {
        name: np.array(array_of(value.detach().resolve_conj()))
        for name, value in modules[0].state_dict().items()
        if isinstance(value, torch.Tensor)
    }


def _copied(module: Any, loss: Any) -> tuple[Any, Any]:
    from d5ray.frameworks.torch.copying import copied  # noqa: PLC0415 - imports torch

    own, criterion = copied(module, FunctionLoss(loss))
    return own, criterion.function


def _rule(optimizer: Any, module: Any, loss: Any) -> Any:
    """PyTorch's optimizer of a module's parameters, and of its loss's."""
    named = list(module.named_parameters())
    known = {id(each) for _, each in named}
    learning = loss.named_parameters() if hasattr(loss, "named_parameters") else ()
    named += [(f"loss.{name}", each) for name, each in learning if id(each) not in known]
    if isinstance(optimizer, TorchOptimizer):
        return optimizer.rule(named, **optimizer.settings)
    return optimizer([each for _, each in named])


def _initialize(module: Any, inputs: Any) -> None:
    """Let a lazy module make its parameters, by a pass."""
    import torch  # noqa: PLC0415 - when it is asked for

    from d5ray.frameworks.torch.model_calls import called  # noqa: PLC0415

    if any(torch.nn.parameter.is_lazy(each) for each in (*module.parameters(), *module.buffers())):
        with torch.no_grad():
            called(module, inputs)


def _average(replicas: list[list[Any]], total: float) -> None:
    """Give all replicas the sum of each gradient over a total; a parameter that none has used keeps none."""
    for same in zip(*replicas, strict=True):
        found = [each.grad.to_dense() for each in same if each.grad is not None]
        for each in same:
            each.grad = sum(found) / total if found else None


def _torch_executor(executor: Any) -> Any:
    while not hasattr(executor, "module"):
        executor = executor.inner
    if not hasattr(executor, "next_seed"):
        raise ConfigurationError(
            f"the model is computed by a {type(executor).__name__}, which is no executor of modules: give a "
            "torch.nn.Module"
        )
    return executor
