"""Plans that are found in a network: its fully connected layers, and the blocks of a transformer"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import final

from d5ray.errors import ConfigurationError
from d5ray.kits.parallel.splitting.divisions import ByColumns, ByHeads, ByRows, BySamples, Division
from d5ray.networks.axes.operators import POINTWISE
from d5ray.networks.network import Network
from d5ray.operators.nodes.node import Node

ALONG = (*POINTWISE, "Dropout")
REARRANGING = ("Split", "Reshape", "Transpose", "Squeeze", "Unsqueeze", "RotaryEmbedding")


@final
@dataclass(frozen=True)
class FullyConnectedSplit:
    """The fully connected layers: by columns and by rows in turns, so that two of them need one exchange.

    A last one that is left over is by columns where the parts divide these, else whole. convolutions:
    `BySamples()` lets every part compute its share of the batch there, which is data parallelism; by default
    every part computes all of them (Krizhevsky, arXiv:1404.5997; Ben-Nun and Hoefler, arXiv:1802.09941,
    section 6.4).
    """

    convolutions: BySamples | None = None

    def plan(self, network: Network, parts: int) -> dict[str, Division]:
        """Raises `ConfigurationError` for a network without such layers."""
        found: dict[str, Division] = {}
        if self.convolutions is not None:
            convolutions = [each for each in network.nodes if each.type in ("Conv", "ConvTranspose")]
            found |= {each.name: self.convolutions for each in convolutions if not each.domain}
        layers = list(_layers(network))
        if not layers:
            raise ConfigurationError(
                f"the network {network.name!r} has no fully connected layers: name the operators in a plan, "
                "such as {'conv1': ByOutputChannels()}"
            )
        for node in layers:
            ahead = _source(network, node, ALONG)
            if ahead is not None and isinstance(found.get(ahead.name), ByColumns):
                found[node.name] = ByRows()
            elif _columns(network, node) % parts == 0:
                found[node.name] = ByColumns()
        return found


@final
@dataclass(frozen=True)
class TransformerSplit:
    """Every block of a transformer as Megatron-LM divides it (arXiv:1909.08053, section 3).

    Attention by its heads, with the layers before it by columns and the one behind it by rows; of every two
    further layers with an activation between them, the first by columns and the second by rows. A block needs
    two allreduces forwards and two backwards. Embeddings and the last layer are whole.
    """

    def plan(self, network: Network, parts: int) -> dict[str, Division]:
        """Raises `ConfigurationError` for a network without an Attention."""
        found: dict[str, Division] = {}
        layers = {node.name for node in _layers(network)}
        attentions = [node for node in network.nodes if node.type == "Attention" and not node.domain]
        if not attentions:
            raise ConfigurationError(
                f"the network {network.name!r} has no Attention: name the operators in a plan, such as "
                "{'fc1': ByColumns(), 'fc2': ByRows()}"
            )
        for node in attentions:
            ahead = [_maker(network, name, (*ALONG, *REARRANGING)) for name in node.inputs[:3]]
            for each in ahead:
                if each is not None and each.name in layers:
                    found[each.name] = ByColumns()
            found[node.name] = ByHeads()
        for node in _layers(network):
            behind = _source(network, node, (*ALONG, *REARRANGING))
            if behind is not None and isinstance(found.get(behind.name), ByHeads):
                found[node.name] = ByRows()
        for node in _layers(network):
            before = _source(network, node, ALONG)
            if before is None or before.name not in layers or node.name in found or before.name in found:
                continue
            found[before.name], found[node.name] = ByColumns(), ByRows()
        return found


def _layers(network: Network) -> Iterator[Node]:
    """The products with weights of two axes, which are a parameter, or a parameter transposed."""
    for node in network.nodes:
        if node.domain or node.type not in ("Gemm", "MatMul"):
            continue
        weights, known = node.inputs[1], network.descriptors.get(node.inputs[1])
        maker = network.graph.producers().get(weights)
        if maker is not None and maker.type == "Transpose":
            weights = maker.inputs[0]
        if weights in network.parameters and known is not None and len(known.shape or ()) == 2:
            yield node


def _columns(network: Network, node: Node) -> int:
    shape = network.descriptors[node.inputs[1]].shape or ()
    size = shape[0 if node.attributes.get("transB") else 1]
    return size if isinstance(size, int) else 1


def _source(network: Network, node: Node, through: tuple[str, ...]) -> Node | None:
    return _maker(network, node.inputs[0], through)


def _maker(network: Network, tensor: str, through: tuple[str, ...]) -> Node | None:
    """The node behind a tensor, past operators of these types as long as one of their inputs is computed."""
    producers = network.graph.producers()
    node = producers.get(tensor)
    while node is not None and not node.domain and node.type in through:
        made = [producers[name] for name in node.inputs if name in producers]
        computed = [each for each in made if not _is_rearranged_parameter(network, each)]
        if len(computed) != 1:
            return None
        (node,) = computed
    return node


def _is_rearranged_parameter(network: Network, node: Node) -> bool:
    return bool(node.inputs) and node.inputs[0] in network.parameters and node.type in REARRANGING
