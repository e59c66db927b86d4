"""Networks whose BatchNormalizations no longer look at the batch; and as they evaluate, without Dropout"""

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


def evaluating(network: Network) -> Network:
    """A copy for inference: BatchNormalization takes its running statistics, and Dropout drops nothing.

    d5ray's executors do both by themselves in `inference`; others, such as onnxruntime, do what a node says.
    """
    copy = frozen_statistics(network)
    with copy.changes():
        for node in network.nodes:
            if node.type == "Dropout" and not node.domain and len(node.inputs) > 2:
                copy.replace(node.name, dataclasses.replace(node, inputs=node.inputs[:2], name=node.name))
    return copy
