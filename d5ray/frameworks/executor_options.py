"""ExecutorOptions: precision, compilation and recomputation of a network, and which frameworks can"""

import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Final, final

from d5ray.errors import ConfigurationError
from d5ray.networks.device import CPUDevice, Device
from d5ray.networks.executors.precision import check_offered, check_precision


@final
@dataclass(frozen=True)
class ExecutorOptions:
    """The precision of a network, and whether it is compiled, and computed again in the backward pass."""

    precision: str = "float32"
    compile: bool = False
    recompute: bool = False

    @property
    def options(self) -> dict[str, Any]:
        """The arguments for the function that makes an executor, of which it must know no others."""
        own = {field.name: (getattr(self, field.name), field.default) for field in fields(self)}
        return {name: value for name, (value, default) in own.items() if value != default}

    def check(self, make: Callable[..., Any], given: Mapping[str, Any]) -> None:
        """Raise `ConfigurationError` where the function that makes executors cannot make such a one.

        given: its other arguments.
        """
        check_precision(self.precision)
        for field in fields(self):
            if field.name in given:
                raise ConfigurationError(
                    f"executor_kwargs has {field.name!r}, which an experiment says itself: set "
                    f"{field.name}={given[field.name]!r} beside it"
                )
        known = _arguments(make)
        for name, value in self.options.items():
            if known is not None and name not in known:
                own = "" if _is_ours(make) else "let the function have an argument of this name, or "
                raise ConfigurationError(
                    f"{name} is {value!r}, and {_named(make)} takes no {name}: {own}leave {name} out, or set "
                    "executor='torch'"
                )
        module = sys.modules.get(getattr(make, "__module__", ""))
        if (offered := getattr(module, "PRECISIONS", None)) is not None:
            framework = str(module.__name__).rpartition(".")[2]  # type: ignore[union-attr]
            check_offered(self.precision, offered, framework, given.get("device", CPUDevice()))


def device_of(make: Callable[..., Any], given: Mapping[str, Any]) -> Device:
    """The device of the executor that this function makes: the one given, or its default."""
    known = _arguments(make) or {}
    default = known["device"].default if "device" in known else CPUDevice()
    device: Device = given.get("device", default)
    return device


AS_IT_IS: Final = ExecutorOptions()


def _arguments(make: Callable[..., Any]) -> Mapping[str, Any] | None:
    """The arguments that a function has; None if it takes any, or does not say."""
    try:
        parameters = inspect.signature(make).parameters
    except (TypeError, ValueError):  # written in C
        return None
    return None if any(each.kind is each.VAR_KEYWORD for each in parameters.values()) else parameters


def _is_ours(make: Callable[..., Any]) -> bool:
    return str(getattr(make, "__module__", "")).startswith("d5ray.")


def _named(make: Callable[..., Any]) -> str:
    return f"{getattr(make, '__module__', '')}.{getattr(make, '__qualname__', repr(make))}"
