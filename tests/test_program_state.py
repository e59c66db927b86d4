"""Claims about the program's own state: it is as before every call, on success and on error"""

import contextlib
import logging
import os
import random
import signal
import sys
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sklearn.utils  # noqa: F401 - has pools of threads
import threadpoolctl
import torch

import d5ray as d5
from d5ray.errors import D5Error
from d5ray.frameworks.torch import from_model
from tests.conftest import python

pytestmark = pytest.mark.usefixtures("own_home")

MODULE = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU())
RNG = np.random.default_rng(7)
DATA = d5.from_arrays(RNG.standard_normal((12, 4)).astype(np.float32), RNG.integers(3, size=12), name="tiny")


def state() -> dict[str, Any]:
    """What a program sets for itself, and expects to find again."""
    return {
        "torch's stream": torch.get_rng_state().numpy().tobytes(),
        "NumPy's stream": repr(np.random.get_state()),  # noqa: NPY002
        "Python's stream": random.getstate(),
        "threads": torch.get_num_threads(),
        "threads of BLAS": [pool["num_threads"] for pool in threadpoolctl.threadpool_info()],
        "gradients": torch.is_grad_enabled(),
        "default dtype": torch.get_default_dtype(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "cudnn": (torch.backends.cudnn.benchmark, torch.backends.cudnn.deterministic),
        "precision of products": torch.get_float32_matmul_precision(),
        "NumPy's errors": np.geterr(),
        "environment": dict(os.environ),
        "signals": [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)],
        "level of Ray's logger": logging.getLogger("ray").level,
        "threads of pools": [each for each in threading.enumerate() if each.name.startswith("ThreadPool")],
        "path": list(sys.path),
        "warnings": list(warnings.filters),
        "folder": str(Path.cwd()),
    }


class Disturbing(torch.nn.Linear):
    """A model of a user's who sets all that there is, or fails after it."""

    def __init__(self, fails: bool = False) -> None:
        super().__init__(4, 3)
        torch.manual_seed(1), np.random.seed(1), random.seed(1)  # noqa: NPY002
        torch.set_num_threads(3)
        torch.set_float32_matmul_precision("medium")
        torch.use_deterministic_algorithms(True)
        torch.backends.cudnn.deterministic = True
        np.seterr(all="ignore")
        os.environ["D5RAY_TEST"] = "set"
        sys.path.insert(0, "/nowhere")
        warnings.simplefilter("ignore")
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        os.chdir("/")
        if fails:
            raise ValueError("no model")


class Draws(d5.Event):
    """Draws from all global streams in every step, and records what comes."""

    def after_step(self, moment: Any) -> None:
        found = torch.rand(()).item() + float(np.random.rand()) + random.random()  # noqa: NPY002
        moment.record("drawn", found)


def experiment(model: Any = Disturbing, rate: float = 0.1, **changes: Any) -> d5.Experiment:
    return d5.Experiment(
        model=model, dataset=DATA, optimizer=d5.optimizers.SGD(rate), agents=2, batch_size=3, **changes
    )


def simulated(model: Any = Disturbing, **changes: Any) -> None:
    with d5.simulate(experiment(model, **changes)) as group:
        group.train(4, progress=False)


def loaded() -> None:
    simulated()
    d5.load_model("last")


def network() -> None:
    d5.Network.from_model(MODULE, torch.zeros(2, 4))


class Rescaled(torch.utils.data.Dataset[Any]):
    """A data set that augments, as torchvision's do."""

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> Any:
        if index >= len(self):
            raise IndexError(index)
        return torch.rand(4) + index, index % 2


CALLS: dict[str, Callable[[], object]] = {
    "simulate": simulated,
    "a model that cannot be made": lambda: simulated(lambda: Disturbing(fails=True)),
    "a model that diverges": lambda: simulated(rate=1e38),
    "under NumPy": lambda: simulated("mlp", executor="numpy"),
    "refused": lambda: d5.simulate(experiment(), root=Path("/proc/nothing")),
    "load_model": loaded,
    "Network.from_model": network,
    "a framework's from_model": lambda: from_model(
        "lenet",
        {},
        sample_shape=(1, 8, 8),
        classes=10,
        loss=d5.operators.SoftmaxCrossEntropyLoss(),
        seed=4,
        threads=2,
    ),
    "from_torch": lambda: d5.from_torch(Rescaled(), random=True, name="rescaled"),
    "replay, refused": lambda: d5.replay("none"),
}
REAL: dict[str, Callable[[], object]] = {
    "launch": lambda: d5.launch(experiment(), quiet=True).close(),
    "launch, refused": lambda: d5.launch(experiment(lambda: Disturbing(fails=True)), quiet=True),
    "run_recipe": lambda: d5.run_recipe(
        {"model": "lenet", "dataset": "digits", "epochs": 1, "batch_size": 512, "evaluate": False},
        {"optimizer": d5.optimizers.SGD(0.05)},
        [],
        quiet=True,
    ),
    "shutdown": d5.shutdown,
}


@pytest.mark.parametrize("call", [*CALLS, *(pytest.param(name, marks=pytest.mark.full) for name in REAL)])
def test_state_is_as_before(call: str) -> None:
    """A program that set its streams, threads and modes finds them again, on success and on error."""
    torch.manual_seed(123)
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    before = state()
    with contextlib.suppress(D5Error):
        {**CALLS, **REAL}[call]()
    after = state()
    torch.set_num_threads(threads)
    assert {name: value for name, value in after.items() if value != before[name]} == {}


def test_simulation_has_streams_of_its_own() -> None:
    """What the program draws between two trainings changes nothing of what events draw in them."""

    def drawn(between: Callable[[], object]) -> list[float]:
        torch.manual_seed(1), np.random.seed(1), random.seed(1)  # noqa: NPY002
        with d5.simulate(experiment(torch.nn.Linear(4, 3), events=(Draws(),))) as group:
            group.train(2, progress=False)
            between()
            group.train(2, progress=False)
            samples = group.metrics().to_pylist()
        return [row["value"] for row in samples if row["metric"] == "drawn"]

    def disturb() -> None:
        torch.manual_seed(9), np.random.seed(9), random.seed(9)  # noqa: NPY002

    quiet = drawn(lambda: None)
    assert len(set(quiet)) == 8 and drawn(disturb) == quiet


def test_tensorflow_streams_are_as_before() -> None:
    """TensorFlow's and Keras's global streams go on as if no simulation had been."""
    tf = pytest.importorskip("tensorflow")

    def draws(between: Callable[[], object]) -> list[float]:
        tf.keras.utils.set_random_seed(5)
        tf.random.get_global_generator().reset_from_seed(5)
        first = tf.keras.random.uniform(())
        between()
        return [
            float(value)
            for value in (
                first, tf.random.uniform(()), tf.keras.random.uniform(()),
                tf.random.get_global_generator().uniform(()),
            )
        ]  # fmt: skip

    def dense() -> Any:
        tf.random.uniform(()), tf.keras.random.uniform(()), tf.random.get_global_generator().uniform(())
        return tf.keras.Sequential([tf.keras.Input((4,)), tf.keras.layers.Dense(3)])

    assert draws(lambda: simulated(dense, executor="tensorflow")) == draws(lambda: None)


def test_simulation_trains_within_a_block_without_gradients() -> None:
    """A program that evaluates under `no_grad` may simulate there, with the same bits, and stays there."""

    def trained() -> list[np.ndarray[Any, Any]]:
        with d5.simulate(experiment(MODULE[0])) as group:
            group.train(2, progress=False)
            return list(group.parameters().values())

    wanted = trained()
    with torch.no_grad():
        found = trained()
        assert not torch.is_grad_enabled()
    assert all(map(np.array_equal, found, wanted))


def test_a_mode_that_is_as_before_is_not_put_again() -> None:
    """PyTorch imports its compiler for one of them, which takes seconds, and fails when Python ends."""
    program = "import sys, torch, d5ray as d5; d5.shutdown(); print('torch._inductor' in sys.modules)"
    done = python("-c", program)
    assert (done.out, done.err) == ("False\n", "")
