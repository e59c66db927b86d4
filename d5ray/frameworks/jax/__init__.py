"""JAX: the executor of models of Flax and Equinox, and of functions; importing this does not import JAX"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from d5ray.errors import ConfigurationError
from d5ray.names.kits import added
from d5ray.networks.device import CPUDevice, Device
from d5ray.networks.executors.precision import check_offered
from d5ray.networks.loading import check_executor
from d5ray.operators.loss import Loss

if TYPE_CHECKING:
    from d5ray.frameworks.jax.executor import JaxExecutor

__getattr__ = added(__name__)
PRECISIONS = ("float32", "bfloat16", "float64")


def from_model(
    model: Any,
    model_kwargs: Mapping[str, Any],
    *,
    sample_shape: Any,
    classes: int,
    loss: Loss,
    seed: int,
    threads: int,
    device: Device = CPUDevice(),  # noqa: B008 - frozen data
    precision: str = "float32",
) -> "JaxExecutor":
    """The executor that agents train with, of a model of JAX; `Experiment(executor="jax")` means this.

    model: a class or function that gives a module of Flax NNX or Linen, a module of Equinox, or a pair of
    functions `init(key)` or `init(key, inputs)`, and `apply(parameters, inputs)`; or such a module. What it
    takes as `rngs`, `key` or `rng` follows from the seed. Images come as (batch, channels, height, width).
    Flat parameters and gradients are NumPy's, in host memory, and copied in every pass.
    Raises `ConfigurationError` where JAX is not installed, and for a model that is none of JAX, or does not
    fit the samples and the loss.
    """
    check_executor(model, "jax")
    check_offered(precision, PRECISIONS, "jax", device)
    check_installed("executor is 'jax'")
    from d5ray.frameworks.jax import build, library  # noqa: PLC0415 - imports JAX

    library.use_threads(threads)
    made = build.executor(model, model_kwargs, sample_shape, classes, loss, device, precision, seed=seed)
    made.draw_from(seed, rank=0)
    return made


setattr(from_model, "takes_trees", True)  # noqa: B010 - of samples that are several arrays


def trained_model(
    model: Any,
    model_kwargs: Mapping[str, Any],
    tensors: Mapping[str, Any],
    *,
    sample_shape: Any,
    classes: int,
    seed: int,
) -> Any:
    """The model that `from_model` would train, with these tensors, by its own names, in evaluation mode.

    A module of Flax NNX or Equinox, the latter with its state beside it where it has some; of functions, and
    of Linen, a `TrainedFunction` of inputs. Raises `ConfigurationError` for tensors that are another model's.
    """
    check_installed("executor is 'jax'")
    from d5ray.frameworks.jax import build  # noqa: PLC0415 - imports JAX

    return build.trained(model, model_kwargs, tensors, sample_shape, seed=seed)


def load() -> None:
    """Import everything the executor needs, so that an agent can do it while others still start."""
    check_installed("executor is 'jax'")
    from d5ray.frameworks.jax import build  # noqa: F401, PLC0415 - imports JAX


def check_installed(needs: str) -> None:
    """Raise `ConfigurationError` where JAX cannot be imported; needs: what needs it, for the error."""
    try:
        import jax  # noqa: F401, PLC0415 - when it is asked for
    except ImportError as error:
        raise ConfigurationError(
            f"{needs}, and JAX cannot be imported ({error}): pip install 'd5ray[jax]'"
        ) from error
