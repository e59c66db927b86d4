"""Data to be loaded: a data set by name or of the user's own, and a sample or batch of it as a problem"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, final

from d5ray.errors import ConfigurationError, nearest
from d5ray.kits.laboratory.bench import user_objects
from d5ray.kits.laboratory.bench.decoders import AS_IT_IS, Decoded
from d5ray.kits.laboratory.metrics.operator_calls import LOADING_TIME
from d5ray.operators.tensors.tensor_descriptor import TensorDescriptor
from d5ray.ops.counting.measurable import described
from d5ray.ops.problem import FORWARD
from d5ray.training.datasets.catalogue import dataset_names, load_dataset
from d5ray.training.datasets.dataset import Dataset
from d5ray.training.datasets.samples import Samples


@final
@dataclass(frozen=True)
class AskedData:
    """A data set as the user names it: a name of the catalogue with its options, or FILE:NAME.

    thing: what FILE:NAME named, a `Dataset`, `Samples`, or a function that gives one; None of a name.
    """

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)
    thing: Any = None

    def found(self) -> Samples:
        """The samples to train on. Raises `ConfigurationError` or `DataError` where there are none."""
        if self.thing is None:
            return load_dataset(self.name, **self.options).train
        thing = self.thing() if callable(self.thing) else self.thing
        if isinstance(thing, Dataset):
            return thing.train
        if isinstance(thing, Samples):
            return thing
        raise ConfigurationError(
            f"{self.name} is a {type(thing).__name__}: give a d5ray Dataset, Samples, or a function that "
            "gives one"
        )


def asked(text: str, options: Mapping[str, Any]) -> AskedData:
    """The data set of a name or FILE:NAME. Raises `ConfigurationError` where there is none."""
    if not user_objects.is_named(text):
        if text not in dataset_names():
            raise ConfigurationError(
                f"there is no data set {text!r}: {nearest(text, dataset_names())} (one of your own is given "
                "as FILE:NAME)"
            )
        return AskedData(text, options)
    if options:
        raise ConfigurationError(
            f"--set {next(iter(options))} is for a data set by name, not for {text}: leave it out"
        )
    return AskedData(text.rpartition(":")[2], {}, user_objects.found(text, "data.py:dataset"))


def samples_of(samples: Samples, decoder: str) -> Samples:
    """The samples, with their images decoded by this library."""
    return samples if decoder == AS_IT_IS else Decoded(samples, decoder)


@final
@dataclass(frozen=True)
class LoadingProblem:
    """A sample by itself, or a batch, with threads that prepare batches ahead.

    batch     samples of a call; alone: one sample, without a loader
    sample    the shape of one; dtype: of its numbers
    """

    batch: int
    workers: int
    ahead: int
    sample: tuple[int, ...]
    dtype: str
    alone: bool = False

    metric: ClassVar[str] = LOADING_TIME
    level: ClassVar[int] = 2
    flops: ClassVar[int] = 0
    input_bytes: ClassVar[int] = 0

    @property
    def name(self) -> str:
        """The work in words: `sample`, `batch 64`, `batch 64 by 2 workers, 4 ahead`."""
        if self.alone:
            return "sample"
        by = f" by {self.workers} worker{'s' if self.workers > 1 else ''}, {self.ahead} ahead"
        return f"batch {self.batch}{by if self.workers else ''}"

    @property
    def group(self) -> str:
        """A sample, or the size of the batch: what ways to load are compared at."""
        return "sample" if self.alone else f"batch {self.batch}"

    @property
    def _loaded(self) -> TensorDescriptor:
        return TensorDescriptor(self.dtype, (self.batch, *self.sample))

    @property
    def moved_bytes(self) -> int:
        """The bytes of the samples, as a network gets them; without labels."""
        return self._loaded.bytes

    @property
    def needed_bytes(self) -> int:
        """The memory of the batches that may be there at a time."""
        return (2 + self.ahead + self.workers) * self.moved_bytes

    def describe(self) -> dict[str, Any]:
        """The description of it for readers of a run's tables, as JSON data."""
        known = described(self, "loading", (self._loaded,), FORWARD, None, self.sample)
        return {**known, "workers": self.workers, "ahead": self.ahead}
