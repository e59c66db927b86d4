"""d5ray: Deep500 reborn on Ray. The public names; none of them is imported before it is asked for."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from d5ray.errors import nearest

if TYPE_CHECKING:
    from d5ray.actors.launch import launch as launch
    from d5ray.actors.session import shutdown as shutdown
    from d5ray.distributed.allreduce import AllreduceSGD as AllreduceSGD
    from d5ray.distributed.optimizer import DistributedOptimizer as DistributedOptimizer
    from d5ray.distributed.topology import Complete as Complete
    from d5ray.distributed.topology import Ring as Ring
    from d5ray.distributed.topology import Topology as Topology
    from d5ray.errors import D5Error as D5Error
    from d5ray.experiment import Experiment as Experiment
    from d5ray.metrics.definitions import BytesSent as BytesSent
    from d5ray.metrics.definitions import Metric as Metric
    from d5ray.metrics.definitions import StepTime as StepTime
    from d5ray.metrics.definitions import TestAccuracy as TestAccuracy
    from d5ray.metrics.definitions import TestLoss as TestLoss
    from d5ray.metrics.definitions import Throughput as Throughput
    from d5ray.metrics.query import sql as sql
    from d5ray.metrics.store import Run as Run
    from d5ray.networks.device import CPUDevice as CPUDevice
    from d5ray.networks.device import GPUDevice as GPUDevice
    from d5ray.ops.softmax_cross_entropy_loss import SoftmaxCrossEntropyLoss as SoftmaxCrossEntropyLoss
    from d5ray.recipes.recipe import run_recipe as run_recipe
    from d5ray.training.batch import Batch as Batch
    from d5ray.training.datasets import Dataset as Dataset
    from d5ray.training.datasets import Split as Split
    from d5ray.training.datasets import load_dataset as load_dataset
    from d5ray.training.optimizers import SGD as SGD
    from d5ray.training.optimizers import Momentum as Momentum
    from d5ray.training.optimizers import Optimizer as Optimizer
    from d5ray.training.samplers import OrderedSampler as OrderedSampler
    from d5ray.training.samplers import Sampler as Sampler
    from d5ray.training.samplers import ShuffleSampler as ShuffleSampler

_NAMES = {
    "Experiment": "d5ray.experiment",
    "launch": "d5ray.actors.launch",
    "shutdown": "d5ray.actors.session",
    "DistributedOptimizer": "d5ray.distributed.optimizer",
    "AllreduceSGD": "d5ray.distributed.allreduce",
    "Topology": "d5ray.distributed.topology",
    "Complete": "d5ray.distributed.topology",
    "Ring": "d5ray.distributed.topology",
    "Optimizer": "d5ray.training.optimizers",
    "SGD": "d5ray.training.optimizers",
    "Momentum": "d5ray.training.optimizers",
    "Batch": "d5ray.training.batch",
    "Sampler": "d5ray.training.samplers",
    "OrderedSampler": "d5ray.training.samplers",
    "ShuffleSampler": "d5ray.training.samplers",
    "Dataset": "d5ray.training.datasets",
    "Split": "d5ray.training.datasets",
    "load_dataset": "d5ray.training.datasets",
    "CPUDevice": "d5ray.networks.device",
    "GPUDevice": "d5ray.networks.device",
    "SoftmaxCrossEntropyLoss": "d5ray.ops.softmax_cross_entropy_loss",
    "run_recipe": "d5ray.recipes.recipe",
    "Metric": "d5ray.metrics.definitions",
    "TestAccuracy": "d5ray.metrics.definitions",
    "TestLoss": "d5ray.metrics.definitions",
    "StepTime": "d5ray.metrics.definitions",
    "Throughput": "d5ray.metrics.definitions",
    "BytesSent": "d5ray.metrics.definitions",
    "Run": "d5ray.metrics.store",
    "sql": "d5ray.metrics.query",
    "D5Error": "d5ray.errors",
}
__all__ = sorted(_NAMES)


def __getattr__(name: str) -> Any:
    if name in _NAMES:
        return getattr(import_module(_NAMES[name]), name)
    if name.startswith("_"):
        raise AttributeError(name)
    raise AttributeError(f"d5ray has no {name!r}: {nearest(name, _NAMES)}")


def __dir__() -> list[str]:
    return sorted([*_NAMES, "__doc__"])
