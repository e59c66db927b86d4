"""Activation checkpointing: parts of a module compute again in the backward pass what they do not keep"""

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from itertools import pairwise
from math import isqrt
from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _NormBase
from torch.utils.checkpoint import checkpoint

from d5ray.errors import ConfigurationError

OWN = "gradient_checkpointing_enable"  # the method that models of Hugging Face have


def recompute(module: nn.Module) -> None:
    """Let a module keep the inputs of its parts, and compute the rest again (Chen et al., arXiv:1604.06174).

    A part is a member of an `nn.ModuleList`, a member of an `nn.Sequential` that has parts itself, or one of
    about √n runs of a Sequential's n plain layers; a model's own `gradient_checkpointing_enable()` is called
    instead where there is one. Random numbers are drawn again as they were, and running statistics count
    once, so that gradients stay the same to the last bit. Raises `ConfigurationError` where there are no
    parts.
    """
    if callable(own := getattr(module, OWN, None)):
        options = {"gradient_checkpointing_kwargs": {"use_reentrant": False}}
        own(**{name: value for name, value in options.items() if name in inspect.signature(own).parameters})
    elif not _recompute_within(module):
        raise ConfigurationError(
            f"recompute is True, and {type(module).__name__} has no parts to compute again: let it hold its "
            f"layers in an nn.Sequential or nn.ModuleList, or have a method {OWN}(), or leave recompute out"
        )


def _recompute_within(module: nn.Module) -> int:
    """Let the parts of all lists in a module compute again; the number of parts."""
    if type(module).forward is nn.Sequential.forward:
        runs = list(_runs(list(module)))  # type: ignore[call-overload]
        module.forward = partial(_through, runs)
        return sum(len(run) > 1 or _is_composed(run[0]) for run in runs)
    if isinstance(module, nn.ModuleList):
        composed = [part for part in module if _is_composed(part)]
        for part in composed:
            part.forward = partial(_again, part.forward, _statistics([part]))
        return len(composed)
    return sum(_recompute_within(part) for part in module.children())


def _runs(layers: Sequence[nn.Module]) -> Iterator[list[nn.Module]]:
    """The layers of a Sequential in runs, in their order: composed ones alone, plain ones in √n runs of n."""
    plain: list[nn.Module] = []
    for layer in [*layers, None]:
        if layer is not None and not _is_composed(layer):
            plain.append(layer)
            continue
        count = max(1, isqrt(len(plain)))
        bounds = [len(plain) * at // count for at in range(count + 1)]
        yield from (plain[begin:end] for begin, end in pairwise(bounds) if begin < end)
        plain = []
        if layer is not None:
            yield [layer]


def _is_composed(part: nn.Module) -> bool:
    """True if a part does more than one of PyTorch's own layers, which keeps little beside its input."""
    return any(True for _ in part.children()) or not type(part).__module__.startswith("torch.nn.modules")


def _through(runs: Sequence[list[nn.Module]], given: Any) -> Any:
    """The forward pass of a Sequential, run by run."""
    for run in runs:
        if len(run) == 1 and not _is_composed(run[0]):
            given = run[0](given)
        else:
            given = _again(partial(_one_by_one, run), _statistics(run), given)
    return given


def _one_by_one(layers: Sequence[nn.Module], given: Any) -> Any:
    for layer in layers:
        given = layer(given)
    return given


def _again(forward: Callable[..., Any], statistics: Sequence[torch.Tensor], *given: Any, **named: Any) -> Any:
    """What forward gives, which is computed again in the backward pass; statistics: that it changes."""
    if not torch.is_grad_enabled():
        return forward(*given, **named)
    more: dict[str, Any] = {"context_fn": partial(_contexts, statistics)} if statistics else {}
    return checkpoint(forward, *given, use_reentrant=False, **more, **named)


def _statistics(parts: Sequence[nn.Module]) -> list[torch.Tensor]:
    """The buffers of all normalizations that keep running statistics."""
    norms = [each for part in parts for each in part.modules() if isinstance(each, _NormBase)]
    return [buffer for norm in norms for buffer in norm.buffers()]


def _contexts(
    statistics: Sequence[torch.Tensor],
) -> tuple[AbstractContextManager[Any], AbstractContextManager[Any]]:
    return nullcontext(), _kept(statistics)


@contextmanager
def _kept(statistics: Sequence[torch.Tensor]) -> Iterator[None]:
    """These stay what they are; past autograd, which has noted them and does not read them."""
    before = [each.data.clone() for each in statistics]
    try:
        yield
    finally:
        for each, value in zip(statistics, before, strict=True):
            each.data.copy_(value)
