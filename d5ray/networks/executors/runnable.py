"""Check that an executor can run a model, by the class of the model"""

from typing import Any, Final

from d5ray.errors import ConfigurationError
from d5ray.networks.executors.framework_of_model import packages_of
from d5ray.networks.loading import is_path
from d5ray.networks.network import Network

JAX: Final = "jax"
FRAMEWORKS_OF: Final = {"torch": "torch", "keras": "tensorflow", "flax": JAX, "equinox": JAX}  # of packages


def check_executor(model: Any, framework: str) -> None:
    """Raise `ConfigurationError` where the executor of this framework runs no such models.

    JAX's runs no names and Networks, others none of JAX. What a function makes is seen when it is called.
    """
    if framework == JAX and (isinstance(model, (str, Network)) or is_path(model)):
        raise ConfigurationError(
            f"the model is {model!r}, a network of d5ray's, and executor='jax' runs models of Flax and "
            "Equinox, and functions of parameters: give one of those, or set executor='torch'"
        )
    packages = packages_of(model)
    written = next((own for package, own in FRAMEWORKS_OF.items() if package in packages), framework)
    if framework != written and JAX in (framework, written):
        raise ConfigurationError(
            f"the model {getattr(model, '__name__', None) or model!r} is written for {written}, and executor "
            f"is {framework!r}: set executor={written!r}"
        )
