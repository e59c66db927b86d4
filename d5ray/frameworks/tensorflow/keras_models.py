"""Models of Keras that agents train: made alike in every process, and loaded with tensors by name"""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from d5ray.checks import shown
from d5ray.errors import ConfigurationError
from d5ray.frameworks.initial_values import drawing_from
from d5ray.networks.loading import check_tensors
from d5ray.ops.tensorflow.library import tf

# Keras's policy for what is computed in which type; weights are float32 under the second.
POLICIES: Final = {"float32": "float32", "bfloat16": "mixed_bfloat16", "float64": "float64"}
SEEDS: Final = "seed_generator_state"  # of what layers draw, such as Dropout: no part of the trained model
OWN_STEPS: Final = ("train_step", "compute_loss")  # of a model, which `train_on_batch` would call


def is_keras(model: Any) -> bool:
    """True for a model of Keras's, as it is."""
    return isinstance(model, tf.keras.Layer)


def made(
    model: Any, options: Mapping[str, Any], build: Callable[[Any], object], *, seed: int, precision: str
) -> Any:
    """Make the model of a class or function, seeded; layers have the names of a process that made no other.

    build: what has a model make the weights that it lacks. A model that is given as it is keeps the weights
    that it has, and its own types.
    """
    if is_keras(model):
        _check_policy(model, precision)

    def make() -> Any:
        found = model if is_keras(model) else model(**options)
        if is_keras(found):
            build(found)
        return found

    return _seeded(make, seed, POLICIES[precision])


def check_trained_as_compiled(model: Any) -> None:
    """Raise `ConfigurationError`, naming layers, for what `train_on_batch` would do and no agent does."""
    for name in OWN_STEPS:
        own = getattr(model, name, None)
        if own is not None and not getattr(own, "__module__", "").startswith("keras."):
            raise ConfigurationError(
                f"the model {model.name!r} has a {name} of its own, which agents do not call: give what it "
                "minimizes as loss=…, a function of (output, labels), or by add_loss in a layer's call"
            )
    variables = named(model)
    bound = [name for name, each in variables.items() if each.constraint is not None and each.trainable]
    if bound:
        raise ConfigurationError(
            f"the model {model.name!r} has constraints on {', '.join(bound)}, and agents' update rules know "
            "none: leave them out, or let the layer's call use the bounded weights"
        )
    types: dict[str, list[str]] = {}
    for name, each in variables.items():
        if each.trainable:
            types.setdefault(each.dtype, []).append(name)
    if len(types) > 1:
        found = "; ".join(f"{kind}: {', '.join(names)}" for kind, names in types.items())
        raise ConfigurationError(
            f"the model {model.name!r} trains weights of several types ({found}), and agents have one "
            "vector: give its layers one dtype"
        )


def loaded(model: Any, tensors: Mapping[str, Any]) -> Any:
    """The model with these tensors, by its own names.

    Raises `ConfigurationError` for tensors that are another model's.
    """
    own = named(model)
    check_tensors(model.name, own, tensors)
    for name, value in tensors.items():
        own[name].assign(value)
    return model


def named(model: Any) -> dict[str, Any]:
    """The variables of a model by their names below the model's, but for the seeds of what its layers draw.

    Such as "block/dense/kernel": those of layers within layers, and the variable's own. They are the same in
    a copy, where Keras's own paths depend on how a model came to be. Raises `ConfigurationError` where two
    have one name.
    """
    names: dict[int, str] = {}
    _name(model, "", names)
    found: dict[str, Any] = {}
    for variable in model.variables:
        name = names[id(variable)]
        if variable.name == SEEDS:
            continue
        if name in found:
            raise ConfigurationError(
                f"the model {model.name!r} has two variables called {name!r}: give its layers names of their "
                "own"
            )
        found[name] = variable
    return found


def _name(layer: Any, before: str, names: dict[int, str]) -> None:
    for part in layer._flatten_layers(include_self=False, recursive=False):
        _name(part, f"{before}{part.name}/", names)
    for variable in layer.variables:
        names.setdefault(id(variable), f"{before}{variable.name}")


def _check_policy(model: Any, precision: str) -> None:
    policy = model.dtype_policy
    if precision != "float32" and policy.name != POLICIES[precision]:
        raise ConfigurationError(
            f"precision is {precision!r}, and the model {model.name!r} is made for {policy.name}: give the "
            "class or a function that makes it, or make it under "
            f"keras.config.set_dtype_policy({POLICIES[precision]!r})"
        )


def _seeded(make: Callable[[], Any], seed: int, policy: str) -> Any:
    """What a function makes in a thread of its own, since Keras counts its layers' names by thread.

    Initializers of TensorFlow take what they draw from its own generator; see `drawing_from` for Keras's.
    """
    found: list[Any] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            tf.keras.config.set_dtype_policy(policy)
            found.append(make())
        except BaseException as error:
            errors.append(error)

    with drawing_from(seed), _tensorflow_seeded(seed):
        thread = threading.Thread(target=run, name="model")
        thread.start()
        thread.join()
    if errors:
        raise errors[0]
    return found[0]


@contextmanager
def _tensorflow_seeded(seed: int) -> Iterator[None]:
    """Let TensorFlow's own random numbers follow from a seed, and go on afterwards where they were."""
    from tensorflow.python.eager.context import context  # noqa: PLC0415 - only this tells where they are

    own = vars(context())
    before = {name: own.get(name) for name in ("_seed", "_rng")}  # that of a program without a seed has none
    tf.random.set_seed(seed)
    try:
        yield
    finally:
        own.update(before)


def check_is_keras(model: Any, given: Any) -> None:
    """Raise `ConfigurationError` for what is neither a Keras model nor a Network."""
    if not is_keras(model):
        raise ConfigurationError(
            f"the model {shown(given)} gives a {type(model).__name__}, and TensorFlow trains Keras models "
            "and Networks: return one; PyTorch's modules train under executor='torch'"
        )
