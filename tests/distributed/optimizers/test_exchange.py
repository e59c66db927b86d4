"""Claims about what a class of distributed optimizers says of its exchange, and what follows from it."""

import warnings
from dataclasses import dataclass
from types import new_class
from typing import Any

import pytest

import d5ray as d5
from d5ray.distributed.optimizers.exchange import adopt_former_flags, adopt_former_names
from d5ray.errors import ConfigurationError
from d5ray.experiment import Experiment

SERVERS, PEERS, MEMORY = d5.ExchangeVia
COLLECTIVES = d5.ExchangeVia.COLLECTIVES


def step(self: d5.DistributedOptimizer, batch: d5.Batch) -> None:
    self.apply(self.gradient(batch))


def made(base: type[d5.DistributedOptimizer] = d5.DistributedOptimizer, **said: Any) -> Any:
    """A class that says this, and can be made."""
    return new_class("Own", (base,), exec_body=lambda body: body.update(step=step, **said))


def facts(kind: Any) -> tuple[Any, ...]:
    own = kind()
    return own.exchange, own.asynchronous, own.replayable, own.has_idle_rounds, own.one_sided


@dataclass(frozen=True)
class Said:
    """Attributes of a class of a user's, in the words of now and before; and what is true of it."""

    now: dict[str, Any]
    before: dict[str, Any]
    facts: tuple[Any, ...]


SAID = {
    "nothing": Said({}, {}, (COLLECTIVES, False, True, False, False)),
    "servers": Said(
        {"exchange": SERVERS}, {"uses_server": True, "asynchronous": True}, (SERVERS, True, True, False, True)
    ),
    "servers, in step": Said(
        {"exchange": SERVERS, "asynchronous": False}, {"uses_server": True},
        (SERVERS, False, True, False, True)
    ),
    "servers and peers": Said(
        {"exchange": SERVERS | PEERS}, {"uses_server": True, "uses_peers": True, "asynchronous": True},
        (SERVERS | PEERS, True, True, False, True)
    ),
    "one memory": Said(
        {"exchange": MEMORY}, {"shares_parameters": True, "asynchronous": True, "replayable": False},
        (MEMORY, True, False, False, True)
    ),
    "idle rounds": Said(
        {"exchange": PEERS, "idle_round": lambda self, round: None},
        {"uses_peers": True, "asynchronous": True, "idle_round": lambda self, round: None},
        (PEERS, True, True, True, True)
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SAID)
def test_the_exchange_implies_the_rest_and_former_flags_mean_the_same(name: str) -> None:
    """Only who sets a flag is warned: of the class, its flags and what to write, at the line of the class."""
    said = SAID[name]
    assert facts(made(**said.now)) == said.facts
    flags = [flag for flag in ("uses_server", "uses_peers", "shares_parameters") if flag in said.before]
    with warnings.catch_warnings(record=True, action="always") as warned:
        kind = made(**said.before)
    assert facts(kind) == said.facts
    written = " | ".join(f"d5.{means}" for means in said.facts[0])
    assert len(warned) == bool(flags)
    for each in warned:
        assert f"Own sets {', '.join(flags)}" in str(each.message)
        assert str(each.message).endswith(f"write exchange = {written}")


def test_a_flag_changes_what_the_class_above_says() -> None:
    """A rule with servers that gets peers besides, and one that loses its servers."""
    above = made(exchange=SERVERS)
    with pytest.warns(DeprecationWarning) as warned:
        more, less = made(above, uses_peers=True), made(above, uses_server=False)

        class Own(d5.DistributedOptimizer):
            uses_server = True

    assert more.exchange == SERVERS | PEERS and less.exchange == COLLECTIVES and Own.exchange == SERVERS
    assert warned[-1].filename == __file__
    kind = made()  # as out of a pickle: a class that is there already gets its attributes one by one
    kind.uses_server = kind.asynchronous = True
    kind.untrained = kept = d5.networks.FromRankZero()
    assert adopt_former_flags(kind) == ["uses_server"] and facts(kind) == SAID["servers"].facts
    assert adopt_former_names(kind) == ["untrained"] and kind.buffer_policy is kept


def experiment(kind: Any, **values: Any) -> Experiment:
    return Experiment("mlp", "digits", d5.optimizers.SGD(0.1), distributed=kind, **values)


def test_an_exchange_that_does_not_fit_is_refused() -> None:
    """One that is none; and servers need a rule that exchanges via them."""
    with pytest.raises(ConfigurationError, match=r"exchange is 'servers' .*ExchangeVia"):
        made(exchange="servers")
    resolved = experiment(made(exchange=SERVERS), servers=d5.Servers()).resolved_servers
    assert resolved is not None and resolved.servers == d5.Servers()
    with pytest.raises(ConfigurationError, match=r"says exchange = d5\.ExchangeVia\.SERVERS"):
        experiment(made(exchange=PEERS), servers=d5.Servers())


@pytest.mark.parametrize(
    ("former", "now"),
    [("rule", "distributed_optimizer"), ("settled", "resolved_servers"), ("later", "late_agents"),
     ("meets", "in_lockstep")],
)  # fmt: skip
def test_a_former_name_of_an_experiment_gives_what_the_new_one_does(former: str, now: str) -> None:
    wanted = experiment(d5.optimizers.ASGD)
    with pytest.warns(DeprecationWarning, match=rf"^Experiment\.{former} is {now} now") as warned:
        assert getattr(wanted, former) == getattr(wanted, now)
    assert warned[0].filename == __file__
