"""Labels of runs: what each of them is, and the settings by which several are told apart"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import Any, Final, final

from d5ray.identity.moved import described_now

REAL: Final = "real"
SIMULATED: Final = "simulated"
PLACE: Final = "place"  # the key under which a run's flat settings say if it is real
NOTHING: Final = ("", "null", "{}", "[]")  # as JSON: a setting that is left as it is
PASSING: Final = ("seed", "name")  # of an experiment: runs that differ in them alone belong together
IMPORTANT: Final = (
    "recipe", "agents", "distributed", "topology", "optimizer", "servers", PLACE, "model", "dataset",
    "batch_size", "communicator", "executor", "slow",
)  # fmt: skip
KINDS: Final = ("distributed", "topology", "optimizer", PLACE, "model", "dataset")  # told where they differ
SAID_BY: Final = {"topology.agents": "agents"}  # a key that says nothing where the other differs
MOST_DIFFERENCES: Final = 4  # told in the name of a setting, besides those of `KINDS`
MOST_CHARACTERS: Final = 40

Row = Mapping[str, Any]  # of the table `runs`


@final
@dataclass(frozen=True)
class RunLabel:
    """The words by which a run is known; empty where its row does not say."""

    model: str = ""
    data: str = ""
    method: str = ""
    optimizer: str = ""
    topology: str = ""
    computed: str = ""  # in which precision, how many pieces a step, compiled; where that is not the usual
    place: str = ""  # real or simulated

    def __str__(self) -> str:
        first = f"{self.model} on {self.data}" if self.model and self.data else self.model or self.data
        return ", ".join(part for part in (first, *astuple(self)[2:]) if part)


def label_of(row: Row) -> RunLabel:
    """The label of a run with all arguments: `Momentum(learning_rate=0.05, momentum=0.9)`."""
    return _label(row, _called)


def short_label(row: Row) -> RunLabel:
    """The label of a run by the names of classes alone, where an argument is not the number of agents.

    >>> topology, rule = {"class": "x.Ring", "agents": 4}, {"class": "x.SGD", "learning_rate": 0.1}
    >>> ran = {"model": "mlp", "dataset": "digits", "topology": topology, "optimizer": rule}
    >>> str(short_label({"experiment": json.dumps(ran), "ray_address": None}))
    'mlp on digits, SGD, Ring(4), simulated'
    """
    return _label(row, _class_name)


def in_words(row: Row, *, short: bool = True) -> str:
    """The label of a run as a text; of one that is no experiment its recipe, and where it ran.

    >>> in_words({"experiment": None, "recipe": "bench", "ray_address": "10.0.0.1:6379"})
    'bench, real'
    """
    label = short_label(row) if short else label_of(row)
    return str(label) if label.model else ", ".join(filter(None, (row["recipe"], label.place)))


def _label(row: Row, told: Callable[[Any], str]) -> RunLabel:
    found = described(row)
    if "model" not in found:
        return RunLabel(place=place_of(row))
    model, data, method, optimizer = map(
        told, map(found.get, ("model", "dataset", "distributed", "optimizer"))
    )
    topology = _called(found.get("mesh") or found.get("topology"))
    return RunLabel(model, data, method, optimizer, topology, _computed(found), place_of(row))


def _computed(found: Mapping[str, Any]) -> str:
    """How steps are computed, of the description of an experiment, which is silent about what is usual.

    >>> _computed({"precision": "bfloat16", "accumulate": 4, "compile": True})
    'bfloat16, 4 pieces a step, compiled'
    """
    pieces = found.get("accumulate")
    said = (
        found.get("precision"),
        f"{pieces} pieces a step" if pieces else None,
        "compiled" if found.get("compile") else None,
        "recomputed" if found.get("recompute") else None,
    )
    return ", ".join(each for each in said if each)


def described(row: Row) -> dict[str, Any]:
    """The description of what the run ran, as data; empty where its row has none."""
    found = json.loads(row["experiment"] or "{}")
    return found if isinstance(found, dict) else {}


def place_of(row: Row) -> str:
    """`real` of a run that had a Ray, `simulated` of an experiment that had none; empty of anything else."""
    if row.get("ray_address"):
        return REAL
    return SIMULATED if "model" in described(row) else ""


def settings_of(row: Row) -> dict[str, str]:
    """Every setting of a run as a path and a text, and of which recipe it is, and where it ran."""
    found = flattened({"recipe": row["recipe"] or "", PLACE: place_of(row), **described(row)})
    return {key: _value(value) for key, value in found if value not in NOTHING}


def differences(rows: Sequence[Row]) -> dict[str, tuple[str, ...]]:
    """The settings in which runs differ, with every run's value, the important ones first.

    The seed and the name do not count; – stands where a run has no such setting.
    """
    flat = _without_hashes([settings_of(row) for row in rows])
    found: dict[str, tuple[str, ...]] = {}
    for key in _keys(flat):
        values = tuple(each.get(key, "–") for each in flat)
        if len(set(values)) > 1 and SAID_BY.get(key) not in found:
            found[key] = values
    return found


def labels(rows: Sequence[Row], named: Sequence[str] = ()) -> list[str]:
    """The words that tell runs apart: the values of what differs, or how they were named.

    Methods, topologies, optimizers, models and data are told where they differ among themselves, and if a run
    is real or simulated wherever that differs; of other settings as many as it takes.
    """
    given = list(named) or [""] * len(rows)
    found = [
        words or text or str(row["recipe"] or row["run_id"])
        for words, text, row in zip(_words(rows), given, rows, strict=True)
    ]
    twice = {label for label in found if found.count(label) > 1}
    return [
        f"{label} ({text or row['run_id']})" if label in twice else label
        for label, row, text in zip(found, rows, given, strict=True)
    ]


def besides(rows: Sequence[Row]) -> list[str]:
    """The settings that tell each run from those with the same short label; empty without any."""
    alike: dict[RunLabel, list[int]] = {}
    for at, row in enumerate(rows):
        alike.setdefault(short_label(row), []).append(at)
    found = [""] * len(rows)
    for places in alike.values():
        for at, words in zip(places, _words([rows[at] for at in places]), strict=True):
            found[at] = words
    return found


def _words(rows: Sequence[Row]) -> list[str]:
    """The values of each run's settings that tell it from the others, as one text."""
    flat = _without_hashes([settings_of(row) for row in rows])
    keys: list[str] = []
    for key in _keys(flat):
        different = len({values[key] for values in flat if key in values}) > 1
        others = [each for each in keys if each not in KINDS]
        if (key in KINDS and different and (key == PLACE or _adds(key, set(keys) - set(others), flat))) or (
            _adds(key, keys, flat) and len(others) < MOST_DIFFERENCES
        ):
            keys.append(key)
    return [", ".join(_told(key, values[key]) for key in keys if key in values) for values in flat]


def _adds(key: str, keys: Iterable[str], flat: Sequence[Mapping[str, str]]) -> bool:
    """True if the key tells runs apart that these keys do not."""
    several = {(values.get(key), *(values.get(each) for each in keys)) for values in flat}
    return len(several) > len({tuple(values.get(each) for each in keys) for values in flat})


def flattened(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Every leaf of JSON data as a path and a text; of what has a class, that class by its own name.

    >>> dict(flattened({"agents": 4, "optimizer": {"class": "d5ray.x.SGD", "rate": 0.1}}))
    {'agents': '4', 'optimizer': 'SGD', 'optimizer.rate': '0.1'}
    """
    if isinstance(value, Mapping) and value:
        for key, inner in _as_made(value).items():
            if key == "class":
                yield path, described_now(str(inner).partition("#")[0])[1]
            else:
                yield from flattened(inner, f"{path}.{key}" if path else str(key))
    else:
        yield path, value if isinstance(value, str) else json.dumps(value)


def _without_hashes(flat: Sequence[Mapping[str, str]]) -> list[dict[str, str]]:
    """The settings with the user's own classes by their names, where these tell them apart too."""
    found = [dict(values) for values in flat]
    for key in {key for values in flat for key in values}:
        there = [values for values in found if key in values]
        bare = [values[key].partition("#")[0] for values in there]
        if len(set(bare)) == len({values[key] for values in there}):
            for values, name in zip(there, bare, strict=True):
                values[key] = name
    return found


def _keys(flat: Iterable[Mapping[str, str]]) -> list[str]:
    """All settings in the order of their importance, without those that pass."""
    keys = sorted({key for values in flat for key in values}, key=_importance)
    return [key for key in keys if key.partition(".")[0] not in PASSING]


def _importance(key: str) -> tuple[int, int, str]:
    """The order of keys: those that people tell settings apart by first, a class before its arguments."""
    first = key.partition(".")[0]
    return IMPORTANT.index(first) if first in IMPORTANT else len(IMPORTANT), key.count("."), key


def _told(key: str, value: str) -> str:
    text = _cut(value)
    if key == "agents":
        return f"{text} agent" + ("" if text == "1" else "s") if text.isdecimal() else text
    return text if key in ("recipe", *KINDS) else f"{key.rpartition('.')[2]}={text}"


def _value(text: str) -> str:
    return described_now(text)[1] if text.startswith("d5ray.") else text


def _cut(text: str) -> str:
    return text if len(text) <= MOST_CHARACTERS else text[: MOST_CHARACTERS - 1] + "…"


def _class_name(value: Any) -> str:
    """A name, or the class of what has one, without its module and hash."""
    if value is None:
        return ""
    if isinstance(value, Mapping):
        value = _as_made(value).get("class", "")
    text = str(value).partition("#")[0]
    return text if "/" in text else described_now(text)[1]


def _called(value: Any) -> str:
    """What a description describes as one would write it; long texts in it, such as a module's, left out.

    >>> _called({"class": "x.Clip", "of": {"class": "x.SGD", "rate": 0.1, "decay": None}, "to": 2})
    'Clip(of=SGD(0.1), to=2)'
    """
    if not isinstance(value, Mapping) or "class" not in value:
        return _class_name(value)
    given = {key: inner for key, inner in _as_made(value).items() if key != "class" and _is_told(inner)}
    texts = {key: _called(inner) if _has_class(inner) else json.dumps(inner) for key, inner in given.items()}
    if len(texts) == 1:
        return f"{_class_name(value)}({next(iter(texts.values()))})"
    inside = ", ".join(f"{key}={text}" for key, text in texts.items())
    return _class_name(value) + (f"({inside})" if inside else "")


def _as_made(value: Mapping[str, Any]) -> Mapping[str, Any]:
    """A description of an object; of an optimizer of PyTorch, Keras or Optax as one of its own class.

    >>> _as_made({"class": "x.TorchOptimizer", "rule": "torch.optim.adamw.AdamW", "settings": {"lr": 0.1}})
    {'class': 'torch.optim.adamw.AdamW', 'lr': 0.1}
    """
    native = isinstance(value.get("rule"), str) and "settings" in value
    return {"class": value["rule"], **value["settings"]} if native else value


def _has_class(value: Any) -> bool:
    return isinstance(value, Mapping) and "class" in value


def _is_told(value: Any) -> bool:
    """True for numbers, truth values, short words, and what has a class."""
    if isinstance(value, str):
        return len(value) <= MOST_CHARACTERS and "\n" not in value
    return isinstance(value, bool | int | float) or _has_class(value)
