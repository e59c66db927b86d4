"""Export of an `nn.Module` to a Network, by PyTorch's own exporter, under the module's own names"""

import logging
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import onnx
import torch
from onnx import helper
from torch import nn

from d5ray.errors import ConfigurationError, first_line
from d5ray.networks.graph.writer import KIND
from d5ray.networks.network import Network

OPSET = 23  # the newest that the exporter writes itself; has Attention as one operator
INFERENCE = "_native_batch_norm_legit_no_training"  # what the exporter notes of a BatchNorm that is frozen


def exported(module: Any, samples: Sequence[Any], batch: str | None) -> Network:
    """The module as it evaluates. See `d5ray.frameworks.torch.network_of`."""
    with _mode(module, training=False):
        return Network.from_onnx(_model(module, samples, batch))


def onnx_model(module: nn.Module, sample_shape: Sequence[int]) -> onnx.ModelProto:
    """The module as it evaluates, as ONNX's message; whatever PyTorch can export, also what d5ray has not."""
    samples = np.zeros((2, *sample_shape), np.float32)
    kinds = {each.dtype for each in module.parameters()}
    with _mode(module, training=False):
        if any(isinstance(part, nn.Embedding) for part in module.modules()) and not _takes(module, samples):
            return _model(module, (samples.astype(np.int64),), "batch")
        given = torch.from_numpy(samples)
        return _model(module, (given.to(kinds.pop()) if len(kinds) == 1 else given,), "batch")


def _takes(module: nn.Module, samples: Any) -> bool:
    try:
        with torch.inference_mode():
            module(torch.from_numpy(samples))
    except (RuntimeError, TypeError, IndexError):
        return False
    return True


def exported_for_training(module: Any, samples: Sequence[Any], batch: str | None) -> Network:
    """The module as it trains. See `d5ray.frameworks.torch.training_network_of`."""
    with _mode(module, training=True):
        model = _model(module, samples, batch)
    for node in model.graph.node:
        if node.op_type == "BatchNormalization" and not any(
            INFERENCE in each.value for each in node.metadata_props
        ):
            _train(node)
    return Network.from_onnx(model)


def _model(module: nn.Module, samples: Sequence[Any], batch: str | None) -> onnx.ModelProto:
    if not samples:
        raise ConfigurationError(
            f"{type(module).__name__} needs sample inputs, from which shapes and types follow"
        )
    given = tuple(_sample(each, batch) for each in samples)
    shapes = None
    if batch is not None:
        size = torch.export.Dim(batch)
        shapes = tuple({0: size} if each.ndim else None for each in given)
    try:
        with _quietly():
            program = torch.onnx.export(
                module,
                given,
                dynamo=True,
                dynamic_shapes=shapes,
                opset_version=OPSET,
                optimize=False,
                verbose=False,
            )
            assert program is not None
            return _tidied(program, module)
    except Exception as error:  # the exporter raises whatever it comes upon
        cause: BaseException = error
        while cause.__cause__ is not None:
            cause = cause.__cause__
        advice = f", or batch=None if it needs {given[0].shape[0]} samples" if batch is not None else ""
        raise ConfigurationError(
            f"PyTorch cannot export {type(module).__name__} for inputs of shape "
            f"{', '.join(str(tuple(each.shape)) for each in given)}: {first_line(cause)}; give inputs that "
            f"it takes{advice}"
        ) from error


def _tidied(program: Any, module: nn.Module) -> onnx.ModelProto:
    """The model without what the exporter leaves behind, each value marked as what it is.

    While it is tidied the module's values are inputs, so that they are neither folded nor merged.
    """
    import onnxscript.optimizer  # noqa: PLC0415 - takes a second

    graph = program.model.graph
    trained = {name for name, _ in module.named_parameters(remove_duplicate=False)}
    own = {*trained, *(name for name, _ in module.named_buffers(remove_duplicate=False))}
    held = {}
    given = len(graph.inputs)
    for name in [name for name in graph.initializers if name in own]:
        value = graph.initializers.pop(name)
        held[name], value.const_value = value.const_value, None
        graph.inputs.append(value)
    onnxscript.optimizer.optimize_ir(program.model)
    for value in list(graph.inputs)[given:]:
        graph.inputs.remove(value)
        if value.uses():
            value.const_value = held[value.name]
            graph.initializers[value.name] = value
    for place, output in enumerate(graph.outputs):
        output.name = "output" if len(graph.outputs) == 1 else f"output_{place}"
    model: onnx.ModelProto = program.model_proto
    model.graph.name = type(module).__name__
    for tensor in model.graph.initializer:
        kind = "parameters" if tensor.name in trained else "constants"
        helper.set_metadata_props(tensor, {KIND: kind})
    return model


def _train(node: onnx.NodeProto) -> None:
    """Let a BatchNormalization use the batch's statistics and keep the running ones.

    The exporter writes one that is trained as if it were frozen.
    """
    for attribute in [each for each in node.attribute if each.name == "training_mode"]:
        node.attribute.remove(attribute)
    node.attribute.append(helper.make_attribute("training_mode", 1))
    del node.output[1:]
    node.output.extend(f"{name}_next" for name in node.input[3:5])


def _sample(value: Any, batch: str | None) -> torch.Tensor:
    """A sample input; of a single one there are two, since the exporter takes a size of 1 for fixed."""
    tensor = value if isinstance(value, torch.Tensor) else torch.from_numpy(np.array(value))
    if batch is not None and tensor.ndim and tensor.shape[0] == 1:
        tensor = torch.cat([tensor, tensor])
    return tensor


@contextmanager
def _mode(module: Any, training: bool) -> Iterator[None]:
    """Train or evaluate for a while; afterwards every part is as it was."""
    if not isinstance(module, nn.Module):
        raise ConfigurationError(f"{module!r} is no nn.Module: give one, with sample inputs")
    before = {each: each.training for each in module.modules()}
    module.train(training)
    try:
        yield
    finally:
        for each, was in before.items():
            each.training = was


@contextmanager
def _quietly() -> Iterator[None]:
    """The exporter warns of its own inner workings, and of packages that nobody asked for."""
    loggers = [each for name, each in logging.root.manager.loggerDict.items() if name.startswith("torch")]
    handlers = [each for logger in loggers for each in getattr(logger, "handlers", [])]
    levels = [each.level for each in handlers]
    for each in handlers:
        each.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for each, level in zip(handlers, levels, strict=True):
            each.setLevel(level)
