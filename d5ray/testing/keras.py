"""A Keras model that agents train beside Keras itself: `train_on_batch` of the same batches"""

import copy
import functools
from collections.abc import Iterable
from typing import Any, final

import numpy as np

from d5ray.actors.launch import launch
from d5ray.checks import check_count, check_rate
from d5ray.errors import ConfigurationError
from d5ray.experiment import Experiment
from d5ray.simulator import simulate
from d5ray.testing.differences import Arrays, Differences
from d5ray.training.datasets.dataset import Dataset
from d5ray.training.events.event import Event
from d5ray.training.events.moment import Moment
from d5ray.training.recording import Recording

Step = tuple[Any, Any, list[Any]]  # inputs, labels, and the seeds that layers draw from
_seen: "dict[int, dict[int, _Agent]]" = {}  # by the number of a comparison and by rank


@final
class _Agent:
    """The course of an agent: its model, as it was before the first step, its steps, losses and tensors."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self.steps: list[Step] = []
        self.losses: list[float] = []
        self.tensors: Arrays = {}


@final
class _Watch(Event):
    """Keeps what an agent takes and becomes."""

    def __init__(self, number: int) -> None:
        self.number = number

    def after_sampling(self, moment: Moment) -> None:
        if self.number in _seen:  # not in another process
            assert moment.batch is not None
            executor = _keras_executor(moment.executor)
            agent = _seen[self.number].setdefault(moment.rank, _Agent(executor.model))
            seeds = [value for _, value in executor.draws()]
            agent.steps.append((*copy.deepcopy((moment.batch.inputs, moment.batch.labels)), seeds))

    def after_step(self, moment: Moment) -> None:
        if self.number in _seen:
            agent = _seen[self.number][moment.rank]
            agent.losses.append(moment.loss)
            agent.tensors = moment.executor.state_dict()


def same_as_keras(
    model: Any,
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
) -> float:
    """The largest relative difference between agents that train a model and Keras alone.

    One agent is compared with `train_on_batch`, several with one optimizer that gets the mean of their
    gradients; every loss, weight and state of every agent, after the same steps of the same batches. Layers
    draw with the same seeds.

    model      a Keras model, which keeps its weights and is compiled, or a class or function that makes one
    loss       one of `keras.losses`
    optimizer  one of `keras.optimizers`: an instance, or a `functools.partial` of a class
    steps, agents, batch_size, seed  of the experiment
    tolerance  of every tensor, relative to its largest element, or to 1
    launched   real agents instead of simulated ones; the simulation draws the batches, and is compared, too

    Raises `ValidationError` for what differs, `ConfigurationError` for what agents refuse to train.
    """
    check_count("steps", steps, 1)
    check_rate("tolerance", tolerance)
    from d5ray.ops.tensorflow.library import tf  # noqa: PLC0415 - when it is asked for

    if not isinstance(loss, tf.keras.losses.Loss):
        raise ConfigurationError(f"loss is {loss!r}: give one of keras.losses, such as MeanSquaredError()")
    number = len(_seen)
    _seen[number] = {}
    experiment = Experiment(
        model, dataset, optimizer, agents=agents, batch_size=batch_size, seed=seed, loss=loss,
        epochs=steps, executor="tensorflow", evaluate=False, events=_Watch(number),
        recording=Recording(warmup_steps=0),
    )  # fmt: skip
    with simulate(experiment) as group:
        group.train(steps, progress=False)
    course = [agent for _, agent in sorted(_seen.pop(number).items())]
    compared = Differences("Keras", tolerance)
    expected = _by_keras(course, loss, optimizer, compared)
    for rank, (agent, tensors) in enumerate(zip(course, expected, strict=True)):
        compared.check(f"agent {rank}", agent.tensors, tensors)
    if launched:
        with launch(experiment) as real:
            real.train(steps, progress=False)
            compared.check("the first of the real agents", real.state_dict(), expected[0])
    return compared.largest


def _by_keras(course: list[_Agent], loss: Any, optimizer: Any, compared: Differences) -> list[Arrays]:
    """The tensors of every agent's model where Keras takes its steps."""
    model = course[0].model
    before = [np.array(each.numpy()) for each in model.variables]
    model.compile(
        _fresh(optimizer),
        loss,
        run_eagerly=getattr(model, "run_eagerly", False) is True,
        jit_compile=getattr(model, "jit_compile", False) is True,
    )
    try:
        return (_alone if len(course) == 1 else _together)(model, course, loss, compared)
    finally:
        _assign(model.variables, before)


def _alone(model: Any, course: list[_Agent], loss: Any, compared: Differences) -> list[Arrays]:
    (agent,) = course
    for at, (inputs, labels, seeds) in enumerate(agent.steps):
        _assign(_seeds(model), seeds)
        model.reset_metrics()
        found = np.asarray(model.train_on_batch(inputs, labels))
        compared.check(f"step {at}", {"loss": np.asarray(agent.losses[at])}, {"loss": found})
    return [_tensors(model)]


def _together(model: Any, course: list[_Agent], loss: Any, compared: Differences) -> list[Arrays]:
    """Several: the passes one after the other, each with its own state, and one update."""
    from d5ray.ops.tensorflow.library import tf  # noqa: PLC0415 - when it is asked for

    states = [[np.array(each.numpy()) for each in model.non_trainable_variables] for _ in course]
    trained = list(model.trainable_variables)
    for at in range(len(course[0].steps)):
        slopes = []
        for rank, agent in enumerate(course):
            inputs, labels, seeds = agent.steps[at]
            _assign(model.non_trainable_variables, states[rank])
            _assign(_seeds(model), seeds)
            with tf.GradientTape() as tape:
                value = model.compute_loss(inputs, labels, model(inputs, training=True))
            slopes.append(tape.gradient(value, [each.value for each in trained]))
            states[rank] = [np.array(each.numpy()) for each in model.non_trainable_variables]
            compared.check(
                f"agent {rank} in step {at}", {"loss": np.asarray(agent.losses[at])}, {"loss": value.numpy()}
            )
        means = [None if None in each else sum(map(tf.convert_to_tensor, each)) / len(course)
                 for each in zip(*slopes, strict=True)]  # fmt: skip
        model.optimizer.apply(means, trained)
    found = []
    for state in states:
        _assign(model.non_trainable_variables, state)
        found.append(_tensors(model))
    return found


def _fresh(optimizer: Any) -> Any:
    """An optimizer of Keras's that has no variables yet, with these settings."""
    if isinstance(optimizer, (functools.partial, type)):
        return optimizer()
    made = type(optimizer).from_config(optimizer.get_config())
    pattern = getattr(optimizer, "_exclude_from_weight_decay_pattern", None)
    if pattern is not None:
        made.exclude_from_weight_decay(var_names=[pattern.pattern])
    return made


def _seeds(model: Any) -> list[Any]:
    known = {id(each) for each in _named(model).values()}
    return [each for each in model.non_trainable_variables if id(each) not in known]


def _assign(variables: Iterable[Any], values: Iterable[Any]) -> None:
    for variable, value in zip(variables, values, strict=True):
        variable.assign(value)


def _tensors(model: Any) -> Arrays:
    return {name: np.array(each.numpy()) for name, each in _named(model).items()}


def _named(model: Any) -> dict[str, Any]:
    from d5ray.frameworks.tensorflow.keras_models import named  # noqa: PLC0415 - imports TensorFlow

    return named(model)


def _keras_executor(executor: Any) -> Any:
    while not hasattr(executor, "draws"):
        executor = executor.inner
    return executor
