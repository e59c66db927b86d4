"""Claims about what users' events record, and about hooks that would never be called"""

import functools
import math
import re
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import d5ray as d5
from d5ray.errors import AgentError, ConfigurationError
from d5ray.training.events.user_records import MEASURED, NOTED

pytestmark = pytest.mark.usefixtures("own_home")

RNG = np.random.default_rng(7)
DATA = d5.from_arrays(RNG.standard_normal((12, 4)).astype(np.float32), RNG.integers(3, size=12), name="tiny")
ROOT = Path(d5.__file__).parents[1]


def experiment(*events: Any) -> d5.Experiment:
    return d5.Experiment(
        model=torch.nn.Linear(4, 3), dataset=DATA, optimizer=d5.optimizers.SGD(0.1), agents=2, batch_size=3,
        events=events, recording=d5.metrics.Recording(monitor_seconds=0),
    )  # fmt: skip


class Does(d5.Event):
    """An event that does one thing after the first step."""

    def __init__(self, act: Callable[[Any], object]) -> None:
        self.act = act

    def after_step(self, moment: Any) -> None:
        self.act(moment)


def recorded(act: Callable[[Any], object]) -> list[float | None]:
    with d5.simulate(experiment(Does(act))) as group:
        group.train(1, progress=False)
        rows = group.metrics().to_pylist()
    return [row["value"] for row in rows if row["metric"] == "mine" and row["rank"] == 1]


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        (None, None), (True, 1.0), (3, 3.0), (2**53, 2.0**53), (1.5, 1.5), (np.float32(0.5), 0.5),
        (np.int64(7), 7.0), (np.bool_(True), 1.0), (np.array(2.5), 2.5), (torch.tensor(0.25), 0.25),
        (torch.tensor(0.5, requires_grad=True), 0.5), (torch.tensor(3.0, dtype=torch.bfloat16), 3.0),
        (Decimal("0.5"), 0.5), (math.inf, math.inf),
    ],
)  # fmt: skip
def test_one_number_is_recorded_as_a_double(value: Any, kept: float | None) -> None:
    """Each of these stands in its row as the number that it is."""
    assert recorded(lambda moment: moment.record("mine", value)) == [kept]


def test_number_is_that_of_the_moment() -> None:
    """A view of the parameters is recorded as it is now, not as it is when the rows are sent."""
    seen: list[float] = []

    def act(moment: Any) -> None:
        own = moment.executor.parameters[0]
        seen.append(float(own))
        moment.record("mine", own)
        own.add_(1.0)

    assert recorded(act) == seen[1:2]


@pytest.mark.parametrize(
    "act",
    [
        *(
            (lambda moment, value=value: moment.record("mine", value))
            for value in (
                "7.0", b"7", [1.0], np.ones(3), np.ones(1), torch.ones(2), 1j, np.complex64(1),
                torch.tensor(1j), 10**400, 2**53 + 1, np.datetime64("2026-01-01"), np.str_("7"),
                object(), lambda: 1.0,
            )
        ),
        *((lambda moment, name=name: moment.record(name, 7.0))
          for name in ("", " ", "a\nb", "x" * 5000, 7, None)),
        *((lambda moment, name=name: moment.record(name, 7.0, phase="test")) for name in sorted(MEASURED)),
        lambda moment: moment.record("mine", 1.0, unit=""),
        lambda moment: moment.record("mine", 1.0, phase=None),
        lambda moment: moment.record("mine", 1.0, step=-1),
        lambda moment: moment.record("mine", 1.0, step=0.5),
        *((lambda moment, name=name: moment.note(name))
          for name in ("agent_died", "train", "checkpoint", "")),
        lambda moment: moment.note("mine", value=math.nan),
        lambda moment: moment.keep("mine.txt", "text"),
    ],
)  # fmt: skip
def test_what_is_no_record_is_refused_before_its_row(act: Callable[[Any], object]) -> None:
    """The step fails with an error of d5ray's that names it, and what d5ray measured is there alone."""
    with pytest.raises(AgentError, match=r"failed at step 1: (the |one of)") as refused:
        recorded(act)
    assert "Traceback" not in str(refused.value)


def test_names_that_verdicts_read_cannot_be_a_quality() -> None:
    """An event that says it records a metric of d5ray's own is refused when the experiment is made."""

    class Mine(d5.Event):
        records = ("test_accuracy",)

    with pytest.raises(ConfigurationError, match="test_accuracy"):
        experiment(Mine())


def test_all_own_events_are_known() -> None:
    """Every name of an event in the source is one that users' events cannot take."""
    text = "".join(p.read_text() for folder in ("d5ray", "actors") for p in (ROOT / folder).rglob("*.py"))
    found = set(re.findall(r"(?:recorder\.event|_?note|tell|_DIED)\(\s*\"([a-z_]+)\"", text))
    assert found - NOTED <= {"wrong_samples", "agent_"}


async def coroutine(self: Any, moment: Any) -> None: ...


def generator(self: Any, moment: Any) -> Any:
    yield


def late(self: Any, moment: Any) -> Any:
    return coroutine(self, moment)


@pytest.mark.parametrize(
    ("name", "hook"),
    [
        *((name, lambda self, moment: None) for name in (
            "after_stepp", "afterStep", "after_batch", "before_train", "on_epoch_end", "befor_step",
        )),
        ("after_step", coroutine), ("after_epoch", generator), ("before_run", 5),
        ("before_step", lambda self: None), ("after_test", lambda self, moment, other: None),
        ("after_run", functools.partialmethod(coroutine)),
    ],
)  # fmt: skip
def test_hook_that_nobody_would_run_is_refused(name: str, hook: Any) -> None:
    """What looks like a hook, and a hook without a body to run, are refused when the experiment is made."""
    event = type("Mine", (d5.Event,), {name: hook})()
    with pytest.raises(ConfigurationError, match=f"Mine.*{name}"):
        experiment(event)


def test_hook_on_the_object_is_refused() -> None:
    """A hook that was put on an object, where no agent looks, is refused."""
    event = d5.Event()
    event.after_step = lambda moment: None  # type: ignore[method-assign]
    with pytest.raises(ConfigurationError, match="after_step"):
        experiment(event)


@pytest.mark.filterwarnings("ignore:coroutine")
def test_coroutine_that_a_hook_returns_is_named() -> None:
    """Of an ordinary method that returns a coroutine, whose body nobody would run, the first step says so."""
    event = type("Mine", (d5.Event,), {"before_step": late})()
    with (
        pytest.raises(AgentError, match="returned a coroutine"),
        d5.simulate(experiment(event)) as group,
    ):
        group.train(1, progress=False)
