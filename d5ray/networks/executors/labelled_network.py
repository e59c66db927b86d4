"""A network with labels beside its input, and the loss at its end: what agents train"""

from dataclasses import dataclass
from typing import final

from d5ray.errors import ConfigurationError
from d5ray.networks.graph.edits import free
from d5ray.networks.layers.layer_shapes import Shape
from d5ray.networks.network import Network
from d5ray.operators.loss import Loss


@final
@dataclass(frozen=True)
class LabelledNetwork:
    """The network, and what its tensors are called."""

    network: Network
    inputs: str
    scores: str
    labels: str
    loss: str


def labelled(network: Network, loss: Loss, sample_shape: Shape) -> LabelledNetwork:
    """A copy of a network of one input and one output, with the loss of its scores (batch, ..., classes).

    Labels are integers (batch, ...). Raises `ConfigurationError` for a network of more inputs or
    outputs, and for one that does not take batches of such samples.
    """
    own = network.copy()
    check_one_of_each(own, sample_shape)
    if not loss.name:
        raise loss.lacking("this framework")
    (inputs,), (scores,) = own.inputs, own.outputs
    taken = set(own.descriptors) | {each for node in own.nodes for each in node.outputs}
    labels, made = free("labels", taken), free("loss", taken)
    own.add_loss(loss, scores, labels, made, classes_axis=-1)
    return LabelledNetwork(own, inputs, scores, labels, made)


def check_one_of_each(network: Network, sample_shape: Shape) -> None:
    """Raise `ConfigurationError` unless the network makes one output of one input, batches of samples."""
    for kind, found in (("input", network.inputs), ("output", network.outputs)):
        if len(found) != 1:
            names = ", ".join(map(repr, found)) or "none"
            raise ConfigurationError(
                f"the network has {len(found)} {kind}s ({names}), but what agents train has one input, the "
                "samples, and one output, the scores; labels and loss are added to it: give a network of one "
                "each"
            )
    name, descriptor = next(iter(network.inputs.items()))
    if descriptor.shape is None:
        return
    if len(descriptor.shape) != len(sample_shape) + 1 or any(
        isinstance(size, int) and size != found
        for size, found in zip(descriptor.shape[1:], sample_shape, strict=True)
    ):
        raise ConfigurationError(
            f"the network does not take samples of shape {sample_shape}: its input {name!r} is {descriptor}"
        )
    if isinstance(descriptor.shape[0], int):
        raise ConfigurationError(
            f"the network's input {name!r} is {descriptor}: it takes batches of {descriptor.shape[0]} alone; "
            "export it with a first axis whose size is open, such as 'batch'"
        )
