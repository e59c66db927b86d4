"""Trial of an experiment's own parts before agents start: some samples, the model and the loss on them"""

import copy
from collections import deque
from typing import Any, Final

import numpy as np

from d5ray.agent.building import whole_network
from d5ray.agent.data import loader_of
from d5ray.errors import ConfigurationError, D5Error
from d5ray.experiment import Experiment
from d5ray.failures.program_state import Apart
from d5ray.frameworks import framework_name
from d5ray.frameworks.native_optimizers import TorchOptimizer
from d5ray.frameworks.torch import from_model
from d5ray.networks.device import CPUDevice
from d5ray.networks.executors.trees import leaves
from d5ray.networks.layers.layers import chain_shape
from d5ray.networks.network import Network
from d5ray.networks.zoo.catalogue import network
from d5ray.ops.losses.function_loss import FunctionLoss, ModelLoss
from d5ray.ops.losses.masked_cross_entropy_loss import MaskedCrossEntropyLoss
from d5ray.ops.losses.softmax_cross_entropy_loss import SoftmaxCrossEntropyLoss, check_scores
from d5ray.training.batches.loader import taken
from d5ray.training.datasets.dataset import Dataset, Split
from d5ray.training.events.event import Event
from d5ray.training.samplers.shards import Draw, Shards
from d5ray.training.transformations.composition import shape_after, transformed

SAMPLES: Final = 2  # that are tried, beside the smallest batch that comes
OF_CLASSES: Final = (SoftmaxCrossEntropyLoss, MaskedCrossEntropyLoss)
# Of a model that perhaps agents alone can make, and of one that ends the process, which they tell of.
ELSEWHERE: Final = (OSError, ImportError, MemoryError, SystemExit)


def try_parts(experiment: Experiment, dataset: Dataset) -> None:
    """Let a model or a loss of the user's own, under PyTorch on a processor, take first samples.

    Nothing of it is left: generators of random numbers and threads are as before. Raises `DataError` and
    `ConfigurationError` for a part that fails, by its name.
    """
    _check_labels(experiment, dataset)
    _check_transformations(experiment, dataset)
    named = isinstance(experiment.model, (str, Network))
    own = not named or isinstance(experiment.loss, (FunctionLoss, ModelLoss))
    if not own or experiment.make_executor is not from_model or experiment.mesh is not None:
        return
    if not isinstance(experiment.device, CPUDevice) or dataset.train.in_order:
        return
    assert isinstance(experiment.events, tuple)
    # They may put another batch in the place of the sampler's, as `Play` does.
    other = any(type(event).after_sampling is not Event.after_sampling for event in experiment.events)
    sizes = sorted({min(SAMPLES, len(dataset.train)), smallest_batch(experiment, len(dataset.train))})
    from d5ray.frameworks.torch.trial import check_alone, failed, try_batch  # noqa: PLC0415 - imports torch

    with Apart()():
        batches = [] if other else [_batch(experiment, dataset, size) for size in sizes]
        shape = shape_after(experiment.pipeline, dataset.sample_shape)
        try:
            executor = whole_network(experiment, shape, len(dataset.classes))
        except D5Error:
            raise
        except ELSEWHERE:
            return
        except Exception as error:
            raise failed("the model cannot be made, or called", error, "mend it") from error
        rule = experiment.distributed_optimizer
        check_alone(executor, experiment.replicas, one_model=rule.one_model and rule.equal_after(1))
        if isinstance(experiment.optimizer, TorchOptimizer):
            experiment.optimizer.state_for(executor.parameters, executor.slots)
        for inputs, labels in reversed(batches):
            try_batch(executor, inputs, labels)


def _check_labels(experiment: Experiment, dataset: Dataset) -> None:
    """Raise `ConfigurationError` for labels of the user's that a loss does not take."""
    loss, model = experiment.loss, experiment.model
    split, form = dataset.train, getattr(dataset.train, "form", None)
    kind = split.labels.dtype if isinstance(split, Split) else getattr(form, "label_type", None)
    if kind is not None and kind.names is not None:
        framework = framework_name(experiment.make_executor)
        own = isinstance(loss, FunctionLoss | ModelLoss) or not type(loss).__module__.startswith("d5ray.")
        if not own or loss.classifies or framework not in ("torch", "jax", "") or experiment.mesh is not None:
            raise ConfigurationError(
                f"the labels of {dataset.name!r} have the parts {', '.join(kind.names)}, loss is {loss!r}, "
                f"executor {framework!r}: such labels need a loss of your own that does not classify, as a "
                "function of (output, labels) or loss='model', under PyTorch or JAX, and no mesh"
            )
        return
    if not isinstance(loss, OF_CLASSES) or dataset is not experiment.dataset or dataset.train.in_order:
        return
    with Apart()():
        _, labels = taken(dataset.train, np.zeros(1, np.int64))
    if labels.dtype.kind == "f":
        raise ConfigurationError(
            f"the labels of {dataset.name!r} are floating numbers, so targets, and {loss!r} takes classes: "
            "give integers, as by labels.astype(int), or a loss of targets, such as "
            "d5.operators.MeanSquaredErrorLoss()"
        )
    if isinstance(model, str):
        shape = shape_after(experiment.pipeline, dataset.sample_shape)
        layers = network(model, shape, len(dataset.classes), **experiment.model_kwargs)
        check_scores(loss, (1, *chain_shape(layers, shape)), labels.shape)


def _check_transformations(experiment: Experiment, dataset: Dataset) -> None:
    """Raise `ConfigurationError` where the user's transformations make two batches of the same samples."""
    own = [one for one in experiment.pipeline if not type(one).__module__.startswith("d5ray.")]
    if not own or dataset.train.in_order:
        return
    with Apart()():
        numbers = np.arange(min(SAMPLES, len(dataset.train)))
        inputs, labels = taken(dataset.train, numbers)
        again = copy.deepcopy(experiment.pipeline)  # the user's own stay as they are
        first, second = (
            transformed(again, inputs, labels, numbers, seed=experiment.seed, epoch=0) for _ in range(2)
        )
    same = zip(leaves((first.inputs, first.labels)), leaves((second.inputs, second.labels)), strict=True)
    if not all(np.array_equal(a, b, equal_nan=a.dtype.kind in "fc") for (_, a), (_, b) in same):
        raise ConfigurationError(
            f"{', '.join(map(repr, own))} made two batches of the same samples in one epoch, so that a run "
            "could be neither repeated nor resumed: draw from Sampled.uniform, and count nothing"
        )


def smallest_batch(experiment: Experiment, samples: int) -> int:
    """The samples of the smallest batch that an agent's model gets in the first epoch."""
    agents = experiment.replicas
    shards = Shards(
        samples=samples,
        agents=agents,
        batch_size=experiment.step_batch_size,
        sampler=experiment.train_sampler,
        seed=experiment.seed,
    )
    cuts = deque((taken for _, taken in shards.epochs.cuts(0)), maxlen=1)
    share = max(1, cuts[0] // agents)
    if experiment.accumulate == 1 or not isinstance(experiment.batch_size, int):
        return share
    return share // -(-share // experiment.batch_size)


def _batch(experiment: Experiment, dataset: Dataset, size: int) -> tuple[Any, np.ndarray[Any, Any]]:
    loader = loader_of(experiment, dataset)
    loader.start(iter([Draw(np.arange(size), 1.0, 0, False)]))
    batch = loader.next(0)
    return batch.inputs, batch.labels
