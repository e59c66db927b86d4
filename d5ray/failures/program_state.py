"""The program's own state: generators, threads, modes, environment; as before the call, however it ends"""

import functools
import os
import random
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Concatenate, Final, ParamSpec, Protocol, TypeVar, final

import numpy as np

P = ParamSpec("P")
R = TypeVar("R")
Restore = Callable[[], object]
SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@final
class _Kept:
    """What the program had when the first of the calls that are under way began, in whatever threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._calls = 0
        self._before: list[Restore] = []

    def begin(self) -> None:
        with self._lock:
            if not self._calls:
                self._before = [*_settings(), *_streams()]
            self._calls += 1

    def end(self) -> None:
        with self._lock:
            self._calls -= 1
            if not self._calls:
                _put(self._before)


_KEPT: Final = _Kept()


@contextmanager
def as_before() -> Iterator[None]:
    """Let the program find afterwards what it had: its random streams, threads, modes and environment.

    Also a decorator. Libraries are looked at that are loaded by now. Of calls that lie in each other, or run
    side by side in threads, the last one gives back what the first one found.
    """
    _KEPT.begin()
    try:
        yield
    finally:
        _KEPT.end()


@final
class Apart:
    """Random streams and operators' threads of what runs in the program's process, beside the program's own.

    Calls give blocks, within which they go on from where they were at the end of the block before.
    """

    def __init__(self) -> None:
        self._own: list[Restore] = []

    @contextmanager
    def __call__(self) -> Iterator[None]:
        with as_before():
            others = _streams()
            _put(self._own)
            if not self._own and (torch := _loaded("torch")) is not None:
                torch.set_grad_enabled(True)  # as in a process of its own, whatever block the program is in
            try:
                yield
            finally:
                self._own = _streams()
                _put(others)


class HasApart(Protocol):
    """An object that has state of its own in the program's process."""

    apart: Apart


T = TypeVar("T", bound=HasApart)


def apart(method: Callable[Concatenate[T, P], R]) -> Callable[Concatenate[T, P], R]:
    """A method that runs in the block of its object's `apart`."""

    def wrapped(self: T, /, *arguments: P.args, **named: P.kwargs) -> R:
        with self.apart():
            return method(self, *arguments, **named)

    functools.update_wrapper(wrapped, method)
    return wrapped


def _put(states: Iterable[Restore]) -> None:
    """Restore each, whatever becomes of the others."""
    with ExitStack() as stack:
        for restore in states:
            stack.callback(restore)


def _streams() -> list[Restore]:
    """What gives the random streams, operators' threads and the mode of gradients their present states."""
    found: list[Restore] = [
        functools.partial(random.setstate, random.getstate()),
        functools.partial(np.random.set_state, np.random.get_state()),  # noqa: NPY002 - what programs use
    ]
    if (pools := _loaded("threadpoolctl")) is not None:
        found.append(_numerical(pools, len(sys.modules)).limit().restore_original_limits)
    if (torch := _loaded("torch")) is not None:
        found.append(functools.partial(torch.set_rng_state, torch.get_rng_state()))
        if torch.cuda.is_initialized():
            found.append(functools.partial(torch.cuda.set_rng_state_all, torch.cuda.get_rng_state_all()))
        found.append(_unless_same(torch.get_num_threads, torch.set_num_threads))
        found.append(_unless_same(torch.is_grad_enabled, torch.set_grad_enabled))
    return found


@functools.lru_cache(maxsize=1)
def _numerical(pools: Any, modules: int) -> Any:
    """The numerical libraries that are loaded, looked for when other modules are: it takes milliseconds."""
    return pools.ThreadpoolController()


def _settings() -> list[Restore]:
    found: list[Restore] = [
        functools.partial(_put_environment, dict(os.environ)),
        functools.partial(_put_list, sys.path, list(sys.path)),
        functools.partial(_put_filters, list(warnings.filters), warnings.showwarning),
        functools.partial(np.seterr, **np.geterr()),
        *_folder(),
        *_signals(),
    ]
    if (torch := _loaded("torch")) is not None:
        backends = torch.backends
        found += [
            _unless_same(torch.get_default_dtype, torch.set_default_dtype),
            _unless_same(torch.get_float32_matmul_precision, torch.set_float32_matmul_precision),
            _unless_same(  # putting it imports PyTorch's compiler, for seconds, and fails when Python ends
                lambda: (
                    torch.are_deterministic_algorithms_enabled(),
                    torch.is_deterministic_algorithms_warn_only_enabled(),
                ),
                lambda mode: torch.use_deterministic_algorithms(mode[0], warn_only=mode[1]),
            ),
            functools.partial(
                _put_attributes,
                [
                    (backends.cudnn, name, getattr(backends.cudnn, name))
                    for name in ("enabled", "benchmark", "deterministic")
                ],
            ),
        ]
    return found + _of_tensorflow()


def _of_tensorflow() -> list[Restore]:
    """TensorFlow's and Keras's random streams, of which neither says them."""
    found: list[Restore] = []
    if (eager := _loaded("tensorflow.python.eager.context")) is not None:
        context = eager.context()
        generator = getattr(context, "_rng", None)
        state = None if generator is None else generator.getstate()
        if (
            generator is not None
        ):  # other seeds meanwhile: an operator that has drawn with one goes on with it
            context._rng = random.Random(str(state))
        found.append(functools.partial(_put_tensorflow, context, context._seed, generator, state))
    variables: tuple[tuple[str, Callable[[Any], Any]], ...] = (
        ("tensorflow.python.ops.stateful_random_ops", lambda module: module.global_generator),
        (
            "keras.src.backend.common.global_state",
            lambda module: module.get_global_attribute("global_seed_generator"),
        ),
    )
    for name, get in variables:
        module = _loaded(name)
        if module is not None and (stream := get(module)) is not None:
            found.append(functools.partial(stream.state.assign, stream.state.numpy()))
    return found


def _put_tensorflow(context: Any, seed: int | None, generator: random.Random | None, state: Any) -> None:
    context._seed = seed
    if generator is not None:
        context._rng = generator
        generator.setstate(state)


def _loaded(name: str) -> Any:
    """A library, if the program has it by now; while another thread imports it, it has not."""
    module = sys.modules.get(name)
    spec = getattr(module, "__spec__", None)
    return None if spec is None or getattr(spec, "_initializing", False) else module


def _unless_same(get: Callable[[], Any], put: Callable[[Any], object]) -> Restore:
    before = get()
    return lambda: get() == before or put(before)


def _put_environment(before: dict[str, str]) -> None:
    for name in os.environ.keys() - before.keys():
        del os.environ[name]
    for name, value in before.items():
        if os.environ.get(name) != value:
            os.environ[name] = value


def _put_list(where: list[str], before: list[str]) -> None:
    if where != before:
        where[:] = before


def _put_filters(before: list[Any], shown: Any) -> None:
    warnings.showwarning = shown
    if warnings.filters != before:
        warnings.filters[:] = before  # type: ignore[index]
        warnings._filters_mutated()  # type: ignore[attr-defined]


def _put_attributes(before: list[tuple[Any, str, Any]]) -> None:
    for where, name, value in before:
        if getattr(where, name) != value:
            setattr(where, name, value)


def _folder() -> list[Restore]:
    try:
        return [_unless_same(os.getcwd, os.chdir)]
    except FileNotFoundError:  # it has been removed
        return []


def _signals() -> list[Restore]:
    found = {number: signal.getsignal(number) for number in SIGNALS}

    def restore() -> None:
        if threading.current_thread() is threading.main_thread():
            for number, handler in found.items():
                if handler is not None and signal.getsignal(number) is not handler:  # None: set by no Python
                    signal.signal(number, handler)

    return [restore]
