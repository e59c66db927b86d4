"""frozen_statistics: a network whose BatchNormalizations no longer look at the batch"""

import dataclasses
from types import MappingProxyType

from d5ray.checks import check_kind
from d5ray.networks.graph.kinds import is_training
from d5ray.networks.network import Network


def frozen_statistics(network: Network) -> Network:
    """A copy in which every BatchNormalization normalizes with its running mean and variance as they are.

    In training too, where they stay what they are; scale and bias are trained on. No operator of such a
    network mixes samples because of its normalization, so that it can be computed in micro-batches.
    """
    check_kind("network", network, Network, "a Network, such as Network.from_onnx(path)")
    copy = network.copy()
    with copy.changes():
        for node in network.nodes:
            if is_training(node):
                kept = {key: each for key, each in node.attributes.items() if key != "training_mode"}
                copy.replace(
                    node.name,
                    dataclasses.replace(
                        node, outputs=node.outputs[:1], attributes=MappingProxyType(kept), name=node.name
                    ),
                )
    return copy
