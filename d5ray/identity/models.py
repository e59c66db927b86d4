"""Models and tensors of the frameworks as attributes that can be hashed, without importing a framework"""

import sys
from collections.abc import Mapping
from typing import Any

import numpy as np

PARTS = {"_parameters": "parameters", "_buffers": "buffers"}  # of a module of PyTorch's


def attribute(value: Any, name: str) -> Any:
    """An attribute of any object; None where it has none, or does not give it."""
    try:
        return getattr(value, name, None)
    except Exception:  # a property of the user's may raise anything
        return None


def is_of(value: Any, package: str, name: str) -> bool:
    """True if the value is an instance of a class of a package that somebody has imported."""
    kind = getattr(sys.modules.get(package), name, None)
    return isinstance(kind, type) and isinstance(value, kind)


def held(value: Any, own: Mapping[str, Any]) -> dict[str, Any] | None:
    """The attributes of a model, a tensor or a variable; None of all else. own: its ordinary attributes."""
    if callable(attribute(value, "state_dict")) and hasattr(type(value), "row"):
        return {"run": value.name}  # a run that is kept, which may hold a model
    if is_of(value, "torch.nn", "Module"):
        return _module(value, own)
    if is_of(value, "torch", "Tensor"):  # its pickle is never twice the same
        return _tensor(value)
    if callable(attribute(value, "get_weights")) and callable(attribute(value, "get_config")):
        return _keras(value)
    if callable(attribute(value, "get_raw_value")):  # a variable of Flax's
        return {"value": value.get_raw_value()}
    return None


def _module(value: Any, own: Mapping[str, Any]) -> dict[str, Any]:
    """Its attributes, parameters, buffers, layers in their order, and hooks; not what PyTorch keeps aside."""
    bare = vars(sys.modules["torch.nn"].Module())
    found = {name: each for name, each in own.items() if name not in bare}
    found |= {"training": value.training, "text": value.extra_repr()}
    found |= {told: dict(attribute(value, name) or {}) for name, told in PARTS.items()}
    found["modules"] = [list(each) for each in (attribute(value, "_modules") or {}).items()]
    hooks = {name: attribute(value, name) for name in bare if name.endswith("_hooks")}
    found |= {name: list(each.values()) for name, each in hooks.items() if each}
    code = attribute(value, "code")  # of a scripted or traced one
    return found | ({"code": code} if isinstance(code, str) else {})


def _tensor(value: Any) -> dict[str, Any]:
    found: dict[str, Any] = {"dtype": str(value.dtype), "trained": bool(value.requires_grad)}
    for name in ("_backward_hooks", "_post_accumulate_grad_hooks"):
        if hooks := attribute(value, name):
            found[name] = list(hooks.values())
    if (shape := attribute(value, "shape")) is None:  # of a lazy module, which has not been called
        return found
    found["shape"] = list(shape)
    if value.device.type == "meta":
        return found
    values = value.detach().cpu()
    values = values.dequantize() if values.is_quantized else values.to_dense()
    values = values.resolve_conj().resolve_neg().contiguous().flatten()
    return found | {"values": values.view(sys.modules["torch"].uint8).numpy().tobytes()}


def _keras(value: Any) -> dict[str, Any]:
    """What a model or a layer is made from, its weights, and its layers, whose classes may be the user's."""
    try:
        config = value.get_config()
    except NotImplementedError:  # a subclass that does not say it
        config = None
    return {
        "config": config,
        "weights": [np.asarray(weight) for weight in value.get_weights()],
        "layers": list(attribute(value, "layers") or attribute(value, "_layers") or ()),
        "trainable": attribute(value, "trainable"),
    }
