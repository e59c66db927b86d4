"""A network as it evaluates, for programs that run a network's nodes as they are"""

import dataclasses

from d5ray.networks.microbatch.freezing import frozen_statistics
from d5ray.networks.network import Network


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
