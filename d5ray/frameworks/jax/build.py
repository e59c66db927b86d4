"""Build of a checked executor from a model of JAX in any of its forms"""

import functools
from collections.abc import Mapping
from typing import Any, Final

import jax
import numpy as np

from d5ray.errors import ConfigurationError, first_line
from d5ray.frameworks.jax.executor import JaxExecutor
from d5ray.frameworks.jax.library import Computing
from d5ray.frameworks.jax.losses import check_form
from d5ray.frameworks.jax.model import KEYS, OpenedModel, parameters_of
from d5ray.networks.device import Device
from d5ray.networks.executors.framework_of_model import packages_of
from d5ray.networks.executors.trees import is_inner, mapped
from d5ray.networks.loading import check_tensors
from d5ray.operators.loss import Loss

Options = Mapping[str, Any]
WANTED: Final = (
    "a class or function that gives a module of Flax or Equinox, or a pair of functions (init, apply)"
)


def executor(
    model: Any,
    options: Options,
    sample_shape: Any,
    classes: int,
    loss: Loss,
    device: Device,
    precision: str,
    *,
    seed: int,
) -> JaxExecutor:
    """The executor of a model, after a trial of two samples whose output must fit the loss."""
    check_form(loss)
    computing = Computing(device, double=precision == "float64")
    with computing():
        made, probe = _opened(model, options, sample_shape, seed)
    found = JaxExecutor(made, loss, computing, precision, classes)
    try:
        shape = _tried(found, sample_shape, probe)
    except ConfigurationError:
        raise
    except Exception as error:
        raise ConfigurationError(
            f"the model does not take samples of shape {sample_shape}: {first_line(error)}"
        ) from error
    if shape is not None:
        loss.check(shape, classes)
    return found


def trained(model: Any, options: Options, tensors: Mapping[str, Any], sample_shape: Any, *, seed: int) -> Any:
    """The user's own model with these tensors, by its own names and in their types, in evaluation mode.

    Raises `ConfigurationError` for another model's.
    """
    double = any(value.dtype == np.float64 for value in tensors.values())
    with jax.enable_x64(double):
        made, _ = _opened(model, options, sample_shape, seed)
        own = {**made.trained, **made.state}
        check_tensors(_called(model), own, tensors)
        return made.model.filled({name: jax.numpy.asarray(value) for name, value in tensors.items()})


def _opened(model: Any, options: Options, sample_shape: Any, seed: int) -> tuple[OpenedModel, Any]:
    """A model apart from its values, and two samples with which its functions made them, if it asked."""
    made = _made(model, options, seed)
    packages = packages_of(made)
    if "flax" in packages:
        return _of_flax(made, sample_shape, seed)
    if isinstance(made, tuple) and len(made) == 2 and "equinox" in packages_of(made[0]):
        return _of_equinox(*made), None
    if "equinox" in packages:
        return _of_equinox(made, None), None
    if isinstance(made, tuple) and len(made) == 2 and all(map(callable, made)):
        return _of_functions(*made, sample_shape, seed)
    if callable(getattr(made, "init", None)) and callable(getattr(made, "apply", None)):
        return _of_functions(made.init, made.apply, sample_shape, seed)
    raise ConfigurationError(
        f"the model {_called(model)} gives a {type(made).__name__}, and executor='jax' takes {WANTED}"
    )


def _made(model: Any, options: Options, seed: int) -> Any:
    """What a class or function makes, with random numbers of the seed if it asks; what is a model stays."""
    if not callable(model) or (not isinstance(model, type) and packages_of(model) & {"flax", "equinox"}):
        return model
    known = parameters_of(model)
    given = dict(getattr(model, "keywords", None) or {}) | dict(options)
    own: dict[str, Any] = {name: jax.random.key(seed) for name in KEYS if name in known and name not in given}
    if "rngs" in known and "rngs" not in given:
        from flax import nnx  # noqa: PLC0415 - who asks for them has it

        own["rngs"] = nnx.Rngs(seed)
    kind = model.func if isinstance(model, functools.partial) else model
    if isinstance(kind, type) and "equinox" in packages_of(kind):
        import equinox as eqx  # noqa: PLC0415 - the model's class has it

        return eqx.nn.make_with_state(model)(**options, **own)
    return model(**options, **own)


def _of_flax(made: Any, sample_shape: Any, seed: int) -> tuple[OpenedModel, Any]:
    from flax import nnx  # noqa: PLC0415 - the model has it

    from d5ray.frameworks.jax import nnx_model  # noqa: PLC0415 - imports it
    from d5ray.frameworks.jax.function_model import LinenApply, first_variables  # noqa: PLC0415

    if isinstance(made, nnx.Module):
        return nnx_model.opened(nnx.clone(made)), None
    init = functools.partial(first_variables, made)
    return _of_functions(init, LinenApply(made), sample_shape, seed)


def _of_equinox(made: Any, state: Any) -> OpenedModel:
    from d5ray.frameworks.jax import equinox_model  # noqa: PLC0415 - imports it

    return equinox_model.opened(made, state)


def _of_functions(init: Any, apply: Any, sample_shape: Any, seed: int) -> tuple[OpenedModel, Any]:
    """The functions apart from the values that init makes, of numbers or of tokens."""
    from d5ray.frameworks.jax import function_model  # noqa: PLC0415 - beside the others

    key = jax.random.key(seed)
    failed: Exception | None = None
    for kind in (np.float32, np.int32):
        probe = samples(sample_shape, kind)
        try:
            return function_model.opened(init, apply, key, probe), probe
        except ConfigurationError:
            raise
        except Exception as error:
            failed = failed or error
    assert failed is not None
    raise ConfigurationError(
        f"the model's init fails for samples of shape {sample_shape}: {first_line(failed)}"
    ) from failed


def samples(shape: Any, kind: Any) -> Any:
    """Two samples of zeros."""
    return mapped(lambda each: np.zeros((2, *each), kind), shape)


def _tried(found: JaxExecutor, sample_shape: Any, probe: Any) -> tuple[int, ...] | None:
    """The output's shape for two samples of numbers, or of tokens where a model takes nothing else.

    None where samples of several arrays fit as neither: shapes do not tell types, the first batch does.
    """
    if probe is not None:
        return found.output_shape(probe)
    failed: Exception | None = None
    for kind in (np.float32, np.int32):
        try:
            return found.output_shape(samples(sample_shape, kind))
        except ConfigurationError:
            raise
        except Exception as error:
            failed = failed or error
    if failed is not None and not is_inner(sample_shape):
        raise failed
    return None


def _called(model: Any) -> str:
    return getattr(model, "__name__", None) or repr(model)
