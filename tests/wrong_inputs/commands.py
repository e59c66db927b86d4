"""A valid line of every command, found by walking the tree of them, and texts that hardly any option takes"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import typer

import d5ray as d5
from d5ray.cli.app import app
from d5ray.identity.fields import fields_of
from tests.metrics.small_runs import finished
from tests.wrong_inputs.calls import experiment, network
from tests.wrong_inputs.trying import Case
from tests.wrong_inputs.values import MISSING, UNEXPECTED

RECIPE = """
import d5ray as d5
FIXED = {}
MUTABLE = {"model": "lenet", "dataset": "digits", "optimizer": d5.optimizers.Momentum(0.1, 0.9)}
METRICS = [d5.metrics.TestAccuracy() >= 0.5]
"""
LONG = "x" * 100_000


@dataclass(frozen=True)
class Parameter:
    """One argument or option of a command, or one key of `--set`."""

    name: str  # as the tree has it; "set agents" is the key of an experiment
    option: str  # "--port", and "" for an argument
    flag: bool
    required: bool

    @property
    def key(self) -> str:
        """The key that `--set` is given; empty where it is none."""
        return self.name.partition(" ")[2]


@cache
def commands() -> dict[str, tuple[Parameter, ...]]:
    """Every command by its words, with its parameters."""
    found = dict(_leaves(typer.main.get_command(app), ()))
    keys = tuple(Parameter(f"set {field.name}", "--set", False, False) for field in fields_of(d5.Experiment))
    return found | {"run": (*found["run"], *(key for key in keys if key.key != "name"))}


def _leaves(command: Any, words: tuple[str, ...]) -> Iterator[tuple[str, tuple[Parameter, ...]]]:
    below = getattr(command, "commands", None)
    if below is None:
        yield " ".join(words), tuple(map(_parameter, command.params))
    for name, inner in (below or {}).items():
        yield from _leaves(inner, (*words, name))


def _parameter(given: Any) -> Parameter:
    option = given.opts[0] if given.param_type_name == "option" else ""
    return Parameter(given.name, option, bool(getattr(given, "is_flag", False)), bool(given.required))


def texts(folder: Path) -> dict[str, str]:
    """Wrong values, by a name that says what is wrong with them."""
    wrong = folder / "wrong"
    return {
        **{text: text for text in ("nan", "inf", "-1", "0", "-0.5", "1e400", "None", "True")},
        "half": "0.5", "10**9": str(10**9), "10**30": str(10**30),
        "a list": "[1, 'x']",
        "a dictionary": "{'x': -1}",
        "an expression": "Ring(",
        "empty": "",
        "a space": " ",
        "text": "nonsense",
        "unicode": "ünï✓",
        "control characters": "\x1b[2J\u202e\n",
        "not UTF-8": "\udcff\udcfe",
        "long": LONG,
        "a comma": ",",
        "a star": "*none*",
        "above": "..",
        "a folder": str(wrong / "folder"),
        "no file": str(wrong / "nowhere" / "nothing"),
        "below a file": str(wrong / "text" / "inside"),
        "an empty file": str(wrong / "empty"),
        "a broken file": str(wrong / "broken"),
        "a text file": str(wrong / "text"),
        "a pipe": str(wrong / "pipe"),
        "a device": str(wrong / "device"),
        "a home of nobody": "~nobody-of-this-name/x",
        "an address of nobody": "http://nowhere.invalid:1",
    }  # fmt: skip


def furnish(folder: Path) -> None:
    """Lay down what the lines below name: runs, a network, a recipe, and files that are wrong."""
    wrong = folder / "wrong"
    (wrong / "folder").mkdir(parents=True)
    (wrong / "empty").touch()
    (wrong / "broken").write_bytes(bytes(range(256)) * 20)
    (wrong / "text").write_text("not what it should be\n")
    os.mkfifo(wrong / "pipe")
    (wrong / "device").symlink_to("/dev/zero")  # which a command of root's must not replace
    (folder / "home").mkdir()
    for seed in range(2):
        finished(folder / "home" / "runs", ("good", "other")[seed], seed=seed)
    asynchronous = experiment(distributed=d5.optimizers.ASGD, name="simulated")
    with d5.simulate(asynchronous, root=folder / "home" / "runs") as group:
        group.train(steps=3)
    (folder / "simulated").write_text(group.run_id)
    network().to_onnx(folder / "network.onnx")
    (folder / "recipe.py").write_text(RECIPE)
    (folder / "own_operator.py").write_text("def twice(x):\n    return x + x\n")
    (folder / "locked").mkdir()
    (folder / "locked" / "runs").write_text("no folder")  # so that no run begins there


def line(command: str, folder: Path, busy: int) -> dict[str, str]:
    """A valid line: the values of parameters by name. busy: a port that is taken."""
    return {
        "run": {"recipe": str(folder / "recipe.py")},
        "sql": {"run": "good", "query": "select 1"},
        "list": {},
        "runs": {},
        "show": {"run": "good"},
        "compare": {"first": "good", "second": "other"},
        "check": {"run": "good"},
        "replay": {"run": (folder / "simulated").read_text()},
        "rerun": {"run": (folder / "simulated").read_text()},
        "export": {"run": "good", "to": "csv"},
        "report": {"runs": "good", "output": "out.html"},
        "timeline": {"run": "good"},
        "network": {"file": str(folder / "network.onnx")},
        "doctor": {},
        "resize": {"run": "good", "agents": "2"},
        "stop": {"run": "good"},
        "tune": {"recipe": str(folder / "recipe.py"), "over": "optimizer.learning_rate=[0.1, 0.2]"},
        "bench operators": {"to": "csv"},
        "bench operator": {"names": f"{folder / 'own_operator.py'}:twice", "shapes": "3", "to": "csv"},
        "bench network": {"model": "mlp", "shape": "8", "classes": "3", "batch": "2", "to": "csv"},
        "bench allreduce": {"to": "csv"},
        "bench data": {"dataset": "digits", "batch": "8", "to": "csv"},
        "dashboard page": {"run": "good", "port": str(busy)},
        "dashboard grafana": {"output": "grafana"},
    }[command]


def words(command: str, parameter: str, wrong: str, folder: Path, busy: int) -> list[str]:
    """The line with this one value wrong, as a shell would hand it over."""
    known = {each.name: each for each in commands()[command]}
    given = dict(line(command, folder, busy))
    last: list[str] = []
    if wrong == MISSING:
        given.pop(parameter, None)
        last = [known[parameter].option] if known[parameter].option else []
    elif wrong == UNEXPECTED:
        last = ["--unexpected"]
    elif wrong != "nothing":
        value = texts(folder)[wrong]
        given[parameter] = f"{known[parameter].key}={value}" if known[parameter].key else value
    options = [f"{known[name].option}={value}" for name, value in given.items() if known[name].option]
    arguments = [given[name] for name in known if name in given and not known[name].option]
    end = ["--"] if arguments and not last else []  # so that -1 is no option
    return [*command.split(), *options, *end, *arguments, *last]


NAMES = {  # of files that a command may well make
    "nan", "inf", "-1", "0", "-0.5", "half", "10**9", "10**30", "1e400", "None", "True", "a list",
    "a dictionary", "an expression", "a space", "text", "unicode", "a comma", "a star", "a home of nobody",
}  # fmt: skip
FILES = {"an empty file", "a broken file", "a text file"}
ZERO, MORE = {"0"}, {"0", "10**9"}
OF_EVERY_BENCH = {
    "out": (NAMES | {"no file", "a folder"}, "a name of a file"),
    "seed": (MORE, "a seed"),
    "budget": ({"half"}, "half a second"),
}
FINE: dict[tuple[str, str], tuple[set[str], str]] = {  # what is no mistake -> why
    (f"bench {what}", parameter): fine
    for what in ("operators", "operator", "network", "allreduce", "data")
    for parameter, fine in OF_EVERY_BENCH.items()
} | {
    ("export", "out"): (NAMES | {"no file"}, "a name of a file; folders above it are made"),
    ("report", "output"): (NAMES | {"no file", "a folder", "above"}, "a file, or a folder, which is made"),
    ("timeline", "output"): (NAMES | FILES, "a name of a file, whose place it takes"),
    ("dashboard grafana", "output"): (NAMES | {"no file", "a folder", "above"}, "a folder, which is made"),
    ("compare", "tolerance"): ({"0", "half"}, "0: all that differs does"),
    ("run", "seed"): (MORE, "a seed"),
    ("run", "flight"): (ZERO, "any port that is free"),
    ("run", "set topology"): ({"None"}, "all talk with all"),
    ("run", "set agents"): ({"None"}, "two"),
    ("run", "set mesh"): ({"None"}, "no mesh"),
    ("run", "set servers"): ({"None"}, "one, where they are used"),
    ("run", "set epochs"): ({"10**9"}, "as long as one has patience"),
    ("run", "set seed"): (MORE, "a seed"),
    ("run", "set cpus_per_agent"): ({"0", "half"}, "Ray shares processors out by fractions"),
    ("run", "set warmup_steps"): (MORE, "none, or all steps"),
    ("run", "set prefetch"): (ZERO, "none"),
    ("run", "set evaluate"): ({"True"}, "as it is"),
    ("run", "set evaluate_test"): ({"True"}, "at every evaluation"),
    ("run", "set compile"): ({"True"}, "compiled"),
    ("run", "set recompute"): ({"True"}, "in less memory"),
    ("run", "set save_model_bytes"): (ZERO | {"10**9"}, "none, or any model"),
    ("compare", "first"): ({MISSING}, "the other is compared with a run that fits to it"),
    ("run", "set encryption"): ({"True"}, "as it is"),
    ("run", "set timeout_seconds"): ({"half", "10**9"}, "a time"),
    ("run", "set max_failures"): ({"-1", "0", "10**9"}, "-1: any number"),
    ("run", "set stuck_seconds"): ({"0", "half", "10**9"}, "0: never; a time"),
    ("run", "set heartbeat_seconds"): ({"half", "10**9"}, "a time"),
    ("run", "set monitor_seconds"): ({"0", "half", "10**9"}, "0: none; a time"),
    ("run", "set mirror_seconds"): ({"0", "half"}, "0: none; a time"),
    ("resize", "agents"): ({"10**9"}, "how many it can have, the run alone knows"),
    ("sql", "serve"): (ZERO, "any port that is free"),
    ("sql", "rows"): ({"10**9"}, "all rows that there are"),
    ("timeline", "steps"): (MORE, "0: all; many: as many as there are"),
    ("timeline", "first"): (ZERO, "the first step"),
    ("timeline", "last"): (MORE, "as far as there are steps"),
    ("bench allreduce", "sizes"): ({"10**9"}, "as long as one has patience"),
    ("bench data", "workers"): (ZERO, "none"),
    ("bench operator", "flops"): ({"half", "10**9", "10**30"}, "a number of operations"),
    ("dashboard page", "port"): (ZERO, "any port that is free"),
}


# The right lines need a run that goes on, or start some: tests/actors/group/test_replacing.py,
# tests/commands/test_interrupts.py.
OF_REAL_RUNS = {"replay", "resize", "stop"}


def all_cases(folder: Path) -> list[Case]:
    """Each parameter of each command with each wrong text, missing; and one that is not known."""
    found: list[Case] = []
    for name, parameters in commands().items():
        found.append((name, "", UNEXPECTED))
        for each in parameters:
            if each.flag:
                found += [(name, each.name, wrong) for wrong in ("0", "True", "empty", "unicode")]
                continue
            fine, _ = FINE.get((name, each.name), (set(), ""))
            found += [(name, each.name, wrong) for wrong in texts(folder) if wrong not in fine]
            if not each.key and (each.required or each.option) and MISSING not in fine:
                found.append((name, each.name, MISSING))
    return found
