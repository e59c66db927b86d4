"""OwnNetwork: a network by name, an ONNX file or a model of the user's own, as every framework can run it"""

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final, final

import numpy as np

from d5ray.checks import check_count
from d5ray.errors import ConfigurationError
from d5ray.frameworks import executor_by_name
from d5ray.kits.laboratory.bench import user_objects
from d5ray.kits.laboratory.bench.shapes import in_memory, shape_of
from d5ray.networks.device import CPUDevice, Device, GPUDevice
from d5ray.networks.executors.framework_of_model import framework_of, packages_of
from d5ray.networks.loading import SUFFIX, as_network
from d5ray.networks.network import Network
from d5ray.networks.zoo.catalogue import check_network_name
from d5ray.operators.framework import Call
from d5ray.operators.loss import Loss
from d5ray.operators.tensors.tensor_descriptor import TensorDescriptor
from d5ray.ops.losses.mean_squared_error_loss import MeanSquaredErrorLoss
from d5ray.ops.losses.softmax_cross_entropy_loss import SoftmaxCrossEntropyLoss
from d5ray.recipes.engine.parsing.options import usable_cores

BATCH: Final = "batch"
JAX: Final = "jax"
IMAGENET: Final = ((3, 224, 224), 1000)
# Samples and classes that a network by name was published for, where neither is given.
PUBLISHED: Final[Mapping[str, tuple[tuple[int, ...], int]]] = {
    "lenet": ((1, 28, 28), 10), "mlp": ((1, 28, 28), 10), "wide_resnet": ((3, 32, 32), 10),
    "resnet20": ((3, 32, 32), 10), "resnet32": ((3, 32, 32), 10), "resnet44": ((3, 32, 32), 10),
    "resnet56": ((3, 32, 32), 10), "resnet110": ((3, 32, 32), 10), "resnet18": IMAGENET, "resnet34": IMAGENET,
    "resnet50": IMAGENET, "resnet101": IMAGENET, "resnet152": IMAGENET, "vgg11": IMAGENET,
    "mobilenet": IMAGENET,
}  # fmt: skip
NATIVE: Final = {"torch": "torch", "keras": "tensorflow", "flax": "jax", "equinox": "jax", "jax": "jax"}
DRAWN: Final = frozenset({"rngs", "key", "rng"})  # what functions take that make a model of JAX


@final
@dataclass(frozen=True)
class OwnNetwork:
    """A model, and the Network that other frameworks run in its place.

    name     in tables
    model    a name of the catalogue, a module or model of a framework, or a Network
    network  of the model, without a loss; None where it cannot be one, and only its own framework runs it
    sample   the shape of one
    """

    name: str
    model: Any
    network: Network | None
    sample: tuple[int, ...]
    classes: int
    output: TensorDescriptor | None  # of a batch; None where there are several
    taken: str = "float32"  # the type of samples, where there is no Network that says it

    def __getstate__(self) -> dict[str, Any]:
        """All but the Network of a name, which every executor makes by itself."""
        return vars(self) | ({"network": None} if isinstance(self.model, str) else {})

    @property
    def home(self) -> str:
        """The framework of the model; empty where it belongs to none."""
        return _home(self.model)

    @property
    def kind(self) -> str:
        """The kind in words, by which a share of the peak is explained."""
        nodes = () if self.network is None else self.network.nodes
        return "convolutional network" if any(node.type == "Conv" for node in nodes) else "network"

    @property
    def loss(self) -> Loss:
        """Cross entropy where the output is scores of several classes, else the mean squared error."""
        shape = None if self.output is None else self.output.shape
        scores = shape is not None and len(shape) > 1 and self.classes > 1
        return SoftmaxCrossEntropyLoss() if scores else MeanSquaredErrorLoss()

    def check(self, framework: str) -> None:
        """Raise `ConfigurationError` where this framework cannot run it."""
        leave = f"leave {framework} out of --frameworks"
        if self.network is None and framework != self.home:
            raise ConfigurationError(
                f"{self.name} is a model of {self.home} that cannot be made a Network, so {framework} cannot "
                f"run it: {leave}"
            )
        if framework == JAX != self.home:
            raise ConfigurationError(
                f"{self.name} is no model of JAX, which runs modules of Flax and Equinox, and functions of "
                f"parameters, and no Network: {leave}"
            )

    def inputs(self, batch: int) -> dict[str, TensorDescriptor]:
        """The inputs of a call, by name. Raises `ConfigurationError` for a size that stays open."""
        if self.network is None:
            return {"input": TensorDescriptor(self.taken, (batch, *self.sample))}
        named = self.network.inputs
        sizes: dict[Any, int] = {}
        first = next(iter(named.values()))
        if first.shape is not None and len(first.shape) == len(self.sample) + 1:
            sizes = dict(zip(first.shape, (batch, *self.sample), strict=True))
        return {name: self._closed(name, each, sizes, batch) for name, each in named.items()}

    def _closed(
        self, name: str, known: TensorDescriptor, sizes: Mapping[Any, int], batch: int
    ) -> TensorDescriptor:
        shape = known.shape or (batch, *self.sample)
        made = [
            size if isinstance(size, int) else batch if place == 0 else sizes.get(size)
            for place, size in enumerate(shape)
        ]
        if None in made:
            raise ConfigurationError(
                f"the input {name!r} of {self.name} is {known}: say by --shape how large a sample is, such "
                "as --shape 3x224x224"
            )
        if made and made[0] != batch:
            raise ConfigurationError(
                f"the input {name!r} of {self.name} is {known}: it takes batches of {made[0]} alone; give "
                f"--batch {made[0]}, or export it with a first axis whose size is open"
            )
        return TensorDescriptor(known.dtype, made)

    def labels(self, batch: int) -> TensorDescriptor:
        """The labels of a batch: classes by number, or targets like the output."""
        output = self.output
        sizes = (batch, *(output.shape or ())[1:]) if output is not None else (batch,)
        if not self.loss.classifies:
            return TensorDescriptor("float32", sizes)
        return TensorDescriptor("int64", sizes[:-1])

    def call(
        self,
        framework: str,
        device: str,
        threads: int,
        seed: int,
        given: Mapping[str, np.ndarray[Any, Any]],
        labels: np.ndarray[Any, Any] | None,
    ) -> Call:
        """A pass of the network under a framework: an inference, or with labels one of training."""
        on: Device = GPUDevice() if device == "cuda" else CPUDevice()
        adapter = import_module(f"d5ray.frameworks.{framework}")
        if framework == self.home == "tensorflow":
            native = adapter.from_native(self.model, None if labels is None else self.loss, on)
            named = dict(zip(native.inputs, given.values(), strict=True))  # by the model's own names
            if labels is None:
                return lambda: native.inference(named)
            return lambda: native.inference_and_backprop({**named, "labels": labels})
        if labels is None and isinstance(self.model, Network):
            executor = adapter.from_onnx(self.model, on)
            return lambda: executor.inference(given)
        as_it_is = isinstance(self.model, str) or framework == self.home
        flat = executor_by_name(framework)(
            self.model if as_it_is else self.network,
            {},
            sample_shape=self.sample,
            classes=self.classes,
            loss=self.loss,
            seed=seed,
            threads=threads,
            device=on,
        )
        (batch,) = given.values()
        if labels is None:
            return lambda: flat.inference(batch)
        return lambda: flat.inference_and_backprop(batch, labels)


@final
@dataclass(frozen=True)
class Asked:
    """A network as the user names it: a name of the catalogue, an ONNX file, or FILE:NAME.

    shape: of a sample, None where the network says it; classes: of a network by name; training: with the
    network as it trains, its Dropout and its statistics.
    """

    text: str
    shape: str | None = None
    classes: int | None = None
    training: bool = False
    seed: int = 0

    def found(self) -> OwnNetwork:
        """The network. Raises `ConfigurationError` where there is none, or it does not take such samples."""
        check_count("seed", self.seed, 0)
        if self.classes is not None:
            check_count("classes", self.classes, 1)
        if self.text.endswith(SUFFIX):
            return self._of_network(self.text.rpartition("/")[2].removesuffix(SUFFIX), as_network(self.text))
        if user_objects.is_named(self.text):
            return self._of_object(self.text.rpartition(":")[2])
        check_network_name(self.text)
        return self._by_name()

    def _by_name(self) -> OwnNetwork:
        sample, classes = PUBLISHED.get(self.text, (None, None))
        sample = sample if self.shape is None else shape_of(self.shape)
        if sample is None:
            raise ConfigurationError(
                f"{self.text} takes samples of any size: say by --shape how large one is, such as "
                "--shape 3x32x32"
            )
        classes = self.classes or classes or 10
        from d5ray.frameworks.initial_values import network_by_name  # noqa: PLC0415 - imports PyTorch

        given = f"--shape {'x'.join(map(str, sample))} and --classes {classes}"
        with in_memory(f"{self.text} with {given}", "smaller ones"):
            network = network_by_name(self.text, {}, sample, classes, seed=self.seed)
        return OwnNetwork(self.text, self.text, network, sample, classes, _only(network))

    def _of_network(self, name: str, network: Network) -> OwnNetwork:
        first = next(iter(network.inputs.values()), None)
        if first is None:
            raise ConfigurationError(f"{name} has no inputs: there is nothing to measure")
        if self.shape is not None:
            sample = shape_of(self.shape)
        elif first.shape is not None and all(isinstance(size, int) for size in first.shape[1:]):
            sample = tuple(size for size in first.shape[1:] if isinstance(size, int))
        else:
            raise ConfigurationError(
                f"the input {next(iter(network.inputs))!r} of {name} is {first}: say by --shape how large a "
                "sample is, such as --shape 3x224x224"
            )
        output = _only(network)
        shape = () if output is None else output.shape or ()
        classes = shape[-1] if len(shape) > 1 and isinstance(shape[-1], int) else 1
        return OwnNetwork(name, network, network, sample, classes, output)

    def _of_object(self, name: str) -> OwnNetwork:
        model = user_objects.found(self.text, "model.py:Net")
        if callable(model) and _home(model) != JAX and (isinstance(model, type) or not _home(model)):
            model = user_objects.made(model, name)
        if isinstance(model, Network):
            return self._of_network(name, model)
        if not _home(model):
            kind = model.__name__ if isinstance(model, type) else type(model).__name__
            raise ConfigurationError(
                f"{name} is a {kind}: give an nn.Module of PyTorch, a Keras model, a d5ray Network, a model "
                "of Flax or Equinox, or a class or function that makes one"
            )
        if self.shape is None and _home(model) != "tensorflow":
            raise ConfigurationError(
                f"{name} does not say what it takes: say by --shape how large a sample is, such "
                "as --shape 3x224x224"
            )
        return self._of_jax(name, model) if _home(model) == JAX else self._of_model(name, model)

    def _of_jax(self, name: str, model: Any) -> OwnNetwork:
        """A model of JAX, of numbers or else of tokens; what it gives is seen by calling it."""
        sample = shape_of(self.shape or "")
        executor = executor_by_name(JAX)(
            model, {}, sample_shape=sample, classes=1, loss=MeanSquaredErrorLoss(), seed=self.seed,
            threads=usable_cores(),
        )  # fmt: skip
        taken = "float32"
        try:
            found = executor.inference(np.zeros((2, *sample), taken))
        except Exception:  # whatever the user's code raises; as tokens the executor has tried it
            taken = "int64"
            found = executor.inference(np.zeros((2, *sample), taken))
        return _seen(name, model, sample, found, taken)

    def _of_model(self, name: str, model: Any) -> OwnNetwork:
        """A model of a framework, with the Network that it can be made."""
        own = _home(model) == "torch"
        sample = tuple(model.input_shape[1:]) if self.shape is None else shape_of(self.shape)
        adapter = framework_of(model)
        make = adapter.training_network_of if self.training else adapter.network_of
        zeros = np.zeros((2, *sample), np.float32)
        tries = ((zeros,), (zeros.astype(np.int64),)) if own else ((),)  # numbers, or tokens; Keras's know it
        for given in tries:
            try:
                found = self._of_network(name, make(model, *given))
            except ConfigurationError as error:
                refused = error
            else:
                return OwnNetwork(name, model, found.network, sample, found.classes, found.output)
        if not own:
            raise ConfigurationError(f"{name}: {refused}") from refused
        return self._tried(name, model, sample)

    def _tried(self, name: str, model: Any, sample: tuple[int, ...]) -> OwnNetwork:
        """A module that cannot be a Network: what it gives is seen by calling it."""
        from d5ray.operators.framework import as_tuple, class_named  # noqa: PLC0415

        torch = class_named("torch").on("cpu")
        given = torch.array(np.zeros((2, *sample), np.float32))
        try:
            found = torch.numbers(as_tuple(torch.inference(model.eval(), [given])())[0])
        except Exception as error:  # whatever the user's code raises
            raise ConfigurationError(f"{name} does not take samples of shape {sample}: {error}") from error
        return _seen(name, model, sample, found)


def _seen(name: str, model: Any, sample: tuple[int, ...], found: Any, taken: str = "float32") -> OwnNetwork:
    """A model that is no Network, by what it gave for a batch."""
    output = TensorDescriptor(found.dtype, (BATCH, *found.shape[1:]))
    return OwnNetwork(name, model, None, sample, found.shape[-1] if found.ndim > 1 else 1, output, taken)


def _home(model: Any) -> str:
    """The framework of a model, or of the pair of functions (init, apply) that is one of JAX."""
    pair = (
        model if isinstance(model, tuple) else (getattr(model, "init", None), getattr(model, "apply", None))
    )
    asks = inspect.isfunction(model) and not DRAWN.isdisjoint(inspect.signature(model).parameters)
    if asks or (len(pair) == 2 and all(map(callable, pair))):
        return JAX
    return next((NATIVE[each] for each in NATIVE if each in packages_of(model)), "")


def _only(network: Network) -> TensorDescriptor | None:
    """The output, where there is one and it is known."""
    outputs = list(network.outputs.values())
    return outputs[0] if len(outputs) == 1 else None
