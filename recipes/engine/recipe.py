"""A recipe: what is fixed, what may change, what must be reached; and how it is run to its verdict."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from d5ray.display import notebook_html
from d5ray.errors import ConfigurationError, nearest
from d5ray.experiment import HINTS, Experiment
from d5ray.failures.exit_codes import EXIT_CODES, FAIL, INCONCLUSIVE, INTERRUPTED, PASS
from d5ray.identity.canonical import canonical, digest
from d5ray.identity.fields import fields_of, gathered
from d5ray.metrics.judge.criteria import Criterion, RunTables, Verdict, as_criterion
from d5ray.metrics.views import notebook
from d5ray.recipes.engine.parsing import settings
from d5ray.recipes.engine.parsing.data import data_of
from d5ray.recipes.engine.parsing.fixed import Fixed
from d5ray.recipes.engine.parsing.texts import named


def _meant(key: str, known: Iterable[str]) -> str:
    """The end of an error about an unknown key: a near one, or what other libraries call so."""
    near = nearest(key, known)
    return HINTS.get(key, near) if near.startswith("known") else near


@dataclass(frozen=True)
class Recipe:
    """FIXED, MUTABLE and METRICS, checked; wrong ones raise `ConfigurationError`. Nothing given is changed.

    fixed    what everyone who competes must keep; with the data it makes the hash that tells which runs are
             comparable
    mutable  what a competitor may change
    criteria what must be reached
    """

    name: str
    fixed: Mapping[str, Any]
    mutable: Mapping[str, Any]
    criteria: tuple[Criterion, ...]
    overrides: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        known = settings.allowed_keys({f.name for f in fields_of(self.job())} - {"name"}) | {"job"}
        for part, keys in (("FIXED", self.fixed), ("MUTABLE", self.mutable)):
            for key in keys:
                if not settings.is_known(key, known):
                    word = str(key).partition(".")[0]
                    raise ConfigurationError(f"{part} has the unknown key {key!r}: {_meant(word, known)}")
        held, (mutable, changed) = self.held, self._groups
        both = sorted(key for name, own in mutable.items() for key in own.keys() & held.values.get(name, {}))
        if both:
            raise ConfigurationError(
                f"{', '.join(map(repr, both))} is set in FIXED and in MUTABLE: keep it in one of them"
            )
        held.refuse(mutable, "MUTABLE")
        for key in self.overrides:
            if (word := key.partition(".")[0]) not in known:
                dotted = self._dotted(key)
                raise ConfigurationError(
                    f"--set {key}: the recipe {self.name} has no such key: "
                    + (f"did you mean {dotted!r}?" if dotted else _meant(word, known))
                )
        held.refuse(changed, "--set")

    @classmethod
    def of(
        cls,
        fixed: object,
        mutable: object,
        metrics: object,
        *,
        name: str,
        overrides: Mapping[str, Any] | None = None,
    ) -> "Recipe":
        """A recipe of the three parts as a file has them."""
        for part, value in (("FIXED", fixed), ("MUTABLE", mutable)):
            if not isinstance(value, Mapping):
                raise ConfigurationError(f"{part} is a {type(value).__name__}: it must be a dictionary")
        if isinstance(metrics, str) or not isinstance(metrics, Iterable):
            raise ConfigurationError(f"METRICS is {metrics!r}: it must be a list of criteria")
        assert isinstance(fixed, Mapping) and isinstance(mutable, Mapping)
        criteria = tuple(as_criterion(item) for item in metrics)
        return cls(name, dict(fixed), dict(mutable), criteria, dict(overrides or {}))

    @cached_property
    def held(self) -> Fixed:
        """The values that FIXED fixes, and what it leaves open."""
        return Fixed(self.name, self.fixed)

    @cached_property
    def hash(self) -> str:
        """SHA-256 of FIXED and of the data: two runs are comparable exactly when it is equal.

        The data enter by their content where FIXED does not tell it, see `data_of`; those are read for it.
        """
        return digest(canonical(self.held.normal) | self.data)

    @property
    def fixed_hash(self) -> str:
        """SHA-256 of FIXED alone, however it is written; no data are read."""
        return digest(self.held.normal)

    @cached_property
    def data(self) -> dict[str, str]:
        """SHA-256 of the data, by their keys in the table `environment`, where FIXED does not tell them."""
        return data_of(self.held, self.made)

    def job(self) -> type:
        """The class that the recipe runs, whose fields are its keys; by default `Experiment`."""
        job = self.fixed.get("job", Experiment)
        if not isinstance(job, type) or not hasattr(job, "__dataclass_fields__"):
            raise ConfigurationError(f"FIXED has the job {job!r}: it must be a dataclass such as Experiment")
        return job

    def made(self) -> Any:
        """The job with all values: an `Experiment`, unless the recipe says otherwise."""
        values = settings.values(self._resolved())
        values.pop("job", None)
        missing = [
            f.name for f in fields(self.job())
            if f.name not in values and f.default is f.default_factory  # both MISSING: no default
        ]  # fmt: skip
        if missing:
            raise ConfigurationError(
                f"the recipe {self.name} lacks {', '.join(missing)}: set it in FIXED or MUTABLE"
            )
        for key in values:
            if (part := settings.owner(key)) in settings.COMPONENTS:
                raise ConfigurationError(f"{key}: there is no {part!r} that takes it: give that too")
        made = self.job()(**gathered(self.job(), values), name=self.name)
        from d5ray.recipes.engine.parsing.measured import check_measured  # noqa: PLC0415 - imports the agents

        check_measured(self.criteria, made)
        return made

    def described(self) -> dict[str, str]:
        """FIXED, MUTABLE (with the overrides) and METRICS as JSON, and the hash, for the `runs` table."""
        changed = {**self.mutable, **self.overrides}
        return {
            "recipe": self.name,
            "recipe_hash": self.hash,
            "fixed": json.dumps(canonical(self.held.normal) | self.data, sort_keys=True),
            "mutable": json.dumps(canonical(changed), sort_keys=True),
            "criteria": json.dumps([criterion.described() for criterion in self.criteria]),
        }

    @cached_property
    def _groups(self) -> tuple[settings.Groups, settings.Groups]:
        """MUTABLE and the overrides, their keys by what they are about."""
        return settings.grouped(self.mutable), settings.grouped(self.overrides)

    def _resolved(self) -> settings.Groups:
        """All keys with their values: the overrides, what they leave of MUTABLE, and FIXED."""
        mutable, changed = self._groups
        groups = dict(mutable)
        sizes = changed.keys() & {"agents", "mesh"}
        if "mesh" in changed and "agents" in groups:
            groups["agents"] = {"agents": None}  # as many as the mesh has
        if sizes and "topology" in groups and "topology" not in changed:
            groups["topology"] = _resized(groups["topology"], changed)
        for name, own in changed.items():
            groups[name] = {**_kept(name, groups.get(name, {}), own), **own}
        for name, own in self.held.values.items():
            groups[name] = {**groups.get(name, {}), **own}
        return groups

    def _dotted(self, key: str) -> str | None:
        """`optimizer.learning_rate` for `learning_rate`, `model.size` for `size`."""
        for component in settings.PASSED_ON:
            options = {**self.fixed, **self.mutable}.get(f"{component}_kwargs", {})
            leaf = f"{component}.{key}"
            if (
                leaf in self.fixed
                or leaf in self.mutable
                or (isinstance(options, Mapping) and key in options)
            ):
                return leaf
        for component in settings.COMPONENTS:
            value = {**self.fixed, **self.mutable}.get(component)
            if isinstance(value, str):
                value = named(component, settings.COMPONENTS[component], value)
            if value is not None and key in settings.hyperparameters(value, settings.COMPONENTS[component]):
                return f"{component}.{key}"
        return None


def _kept(name: str, own: Mapping[str, Any], override: Mapping[str, Any]) -> dict[str, Any]:
    """What an override of a component leaves of what MUTABLE says of it.

    A component that is replaced does not keep the old one's arguments, nor do new arguments keep leaves.
    """
    if name in settings.COMPONENTS and name in override:
        return {}
    whole = override.keys() & {f"{name}_args", f"{name}_kwargs"}
    return {key: value for key, value in own.items() if not (whole and "." in key)}


@dataclass(frozen=True)
class Result:
    """The result of a recipe. True exactly when it passed, so that `run_recipe(…) or exit(1)` works.

    Of several seeds, run_id and folder are those of the series, and runs are its runs.
    """

    recipe: Recipe
    run_id: str
    folder: Path
    verdict: str
    verdicts: tuple[Verdict, ...]
    status: str  # of the run: completed, nan_loss, interrupted
    reason: str
    startup_seconds: Mapping[str, float]
    runs: "tuple[Result, ...]" = ()

    @property
    def exit_code(self) -> int:
        """0 pass, 1 fail, 2 inconclusive, 130 interrupted."""
        return INTERRUPTED if self.status == "interrupted" else EXIT_CODES[self.verdict]

    def __bool__(self) -> bool:
        return self.verdict == PASS

    def _repr_html_(self) -> str:
        reasons = dict.fromkeys(verdict.reason for verdict in self.verdicts if verdict.reason)
        return notebook_html.block(
            notebook_html.title(self.recipe.name, self.run_id, notebook_html.word(self.verdict)),
            notebook_html.small(f"{self.status}: {self.reason}" if self.reason else ""),
            notebook.criteria([verdict.row for verdict in self.verdicts]),
            *map(notebook_html.small, reasons),
            notebook_html.small(self.folder),
        )


def judged(criteria: Iterable[Criterion], tables: RunTables, status: str) -> tuple[Verdict, ...]:
    """The verdict of each criterion; of a run that was interrupted none is final."""
    verdicts = tuple(criterion.judge(tables) for criterion in criteria)
    if status != "interrupted":
        return verdicts
    return tuple(replace(v, verdict=INCONCLUSIVE, reason="the run was interrupted") for v in verdicts)


def overall(verdicts: Iterable[Verdict], status: str) -> str:
    """FAIL if a criterion fails or the loss was NaN; PASS if all, at least one, pass in a complete run."""
    found = {verdict.verdict for verdict in verdicts}
    if FAIL in found or status == "nan_loss":
        return FAIL
    return PASS if found == {PASS} and status == "completed" else INCONCLUSIVE


def _resized(topology: Mapping[str, Any], changed: settings.Groups) -> dict[str, Any]:
    """A recipe's topology for other agents: of the same kind, or, beside another mesh, complete.

    One whose agents follow from other numbers, such as a torus, stays: it fits them, or is refused.
    """
    if "mesh" in changed:
        return {"topology": None}
    given = topology.get("topology")
    kind = named("topology", settings.COMPONENTS["topology"], given) if isinstance(given, str) else given
    sized = is_dataclass(kind) and any(field.init and field.name == "agents" for field in fields(kind))
    return {**topology, "topology.agents": changed["agents"]["agents"]} if sized else dict(topology)
