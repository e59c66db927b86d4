"""`tune`: settings of a recipe searched by Ray Tune, the best of them run again for a verdict"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

from d5ray.actors.group.training import TrainingRun
from d5ray.actors.launch import launch
from d5ray.actors.session import session
from d5ray.checks import check_address, check_count, check_kind
from d5ray.display.console import err
from d5ray.errors import AgentError, ConfigurationError, first_line
from d5ray.experiment import Experiment
from d5ray.failures.program_state import as_before
from d5ray.identity.canonical import canonical
from d5ray.kits.laboratory.repeats import seeds as several
from d5ray.kits.laboratory.repeats.series_folder import KeptSeries
from d5ray.kits.laboratory.tuning import search
from d5ray.kits.laboratory.tuning import space as spaces
from d5ray.kits.laboratory.tuning.trial_runs import OneTraining, RecipeRuns
from d5ray.kits.laboratory.tuning.tuned import TrialOutcome, Tuned, best_of, table_of
from d5ray.metrics.judge.criteria import Metric, as_criterion
from d5ray.metrics.judge.run_series import TUNING
from d5ray.metrics.record.folders import check_writable
from d5ray.metrics.record.reader import Run, list_runs
from d5ray.metrics.record.store import runs_root
from d5ray.recipes.engine import library
from d5ray.recipes.engine.recipe import Recipe

Parts = tuple[Mapping[str, Any], Mapping[str, Any], list[Any]]


@as_before()
def tune(
    recipe: str | Path | ModuleType | Parts,
    space: Mapping[str, Any],
    *,
    trials: int = 10,
    metric: Metric | None = None,
    searcher: Any = None,
    scheduler: Any = None,
    seeds: int = 6,
    overrides: Mapping[str, Any] | None = None,
    by: Callable[..., TrainingRun] = launch,
    address: str | None = None,
    quiet: bool = False,
) -> Tuned:
    """Search settings of a recipe by Ray Tune, then run the best of them with fresh seeds, to a verdict.

    recipe: its name, its file, its module, or the three parts (FIXED, MUTABLE, METRICS).
    space: by keys of MUTABLE, or their leaves such as "optimizer.learning_rate", a domain of Ray Tune's
    (`ray.tune.loguniform(0.001, 1)`) or a list of values.
    trials: how many settings are drawn; of a `grid_search`, how often the grid is done.
    metric: by which settings are chosen, by default that of the recipe's first criterion. Where the data
    have a validation split, give `ValidationAccuracy()` or the like, so that the test split is not seen.
    searcher, scheduler: of Ray Tune, such as `OptunaSearch()` and `ASHAScheduler()`, without metric and mode.
    Trials tell their metric after every epoch; one that a scheduler stops is a run that is interrupted.
    seeds: with how many seeds that no trial had the best settings are run, and judged.
    overrides: values for keys that are not FIXED, of all trials; address: of a Ray cluster, see `launch`.
    by: `launch`, or `simulate`, or a `functools.partial` of one, by which agents are made.

    Every trial is a run, with the recipe's seed, and all are a series; as many train side by side as there
    are CPUs and GPUs for. A trial that fails is told of, and the others go on. Ctrl-C ends all, and is raised
    again; when the best settings are run it leaves the verdict open.
    Raises `ConfigurationError` for what does not fit, before anything starts, and `AgentError` where no
    trial came to a result.
    """
    check_count("trials", trials, 1, several.MOST_SEEDS)
    check_count("seeds", seeds, 1, several.MOST_SEEDS)
    check_kind("overrides", overrides, Mapping | None, "a dictionary of values by keys")
    check_kind("metric", metric, Metric | None, "a metric such as d5.metrics.ValidationAccuracy()")
    check_kind("quiet", quiet, bool, "True or False")
    check_address(address)
    if not callable(by):
        raise ConfigurationError(f"by is {by!r}: it must be d5.launch, d5.simulate, or a partial of one")
    found = _recipe(recipe, overrides)
    space = spaces.check(found, space)
    quantity = _metric(found, metric)
    search.check(searcher, scheduler)
    fresh = _fresh(found, seeds)
    largest = spaces.largest(found, space)
    cpus = max((each.agents or 1) * each.cpus_per_agent for each in largest)
    check_writable(runs_root())
    session.connect(
        address, cpus=int(-(-cpus // 1)), metadata={"recipe": found.name, "task": "tune"}, quiet=True
    )
    kept = KeptSeries(found, TUNING, [found.made().seed])
    told = (lambda _: None) if quiet else _told
    runs = RecipeRuns(found, quantity, by, kept.series.name, runs_root().resolve())
    mode = "min" if quantity.direction == "min" else "max"
    try:
        told(f"{kept.series.name}: {trials} trials")
        interrupted = kept.series.folder / "tune" / "interrupted"
        tried = search.search(
            partial(OneTraining, runs, interrupted), space,
            search.resources(largest, in_process=runs.waits), interrupted, metric=runs.metric, mode=mode,
            num_samples=trials, search_alg=searcher, scheduler=scheduler, reuse_actors=runs.waits,
        )  # fmt: skip
    except BaseException as error:
        if (ended := kept.ended_by(error)) is not None:
            kept.close(*ended, ())
        raise
    outcomes = [_outcome(each, runs) for each in tried]
    for number, each in enumerate(outcomes):
        if each.value is None or each.status not in ("completed", "interrupted"):
            told(f"trial {number} failed ({_words(each.settings)}): {each.reason}")
    best = best_of(outcomes, mode)
    detail = {
        "metric": runs.metric, "mode": mode, "best": None if best is None else best.run,
        "settings": None if best is None else canonical(dict(best.settings)),
    }  # fmt: skip
    if best is None or best.value is None:
        reason = outcomes[0].reason if outcomes else "Ray Tune made none"
        kept.close("failed", f"no trial came to a result: {reason}", (), detail)
        raise AgentError(f"none of {len(outcomes)} trials came to a result; the first one's reason: {reason}")
    kept.close("completed", "", (), detail)
    told(f"best: {_words(best.settings)}, {runs.metric} {best.value:g}; now with {seeds} fresh seeds")
    result = several.run(
        spaces.with_settings(fresh, best.settings), seeds, address=address, quiet=quiet,
        by=None if by is launch else by,
    )  # fmt: skip
    return Tuned(
        settings=dict(best.settings), best=best.run, metric=runs.metric, value=best.value,
        trials=table_of(outcomes, list(space), runs.metric), study=kept.series, result=result,
    )  # fmt: skip


def _recipe(given: Any, overrides: Mapping[str, Any] | None) -> Recipe:
    if isinstance(given, tuple) and len(given) == 3:
        return Recipe.of(*given, name="tuned", overrides=overrides)
    check_kind(
        "recipe", given, str | Path | ModuleType,
        "a recipe's name, file or module, or (FIXED, MUTABLE, METRICS)",
    )  # fmt: skip
    module = given if isinstance(given, ModuleType) else library.load(str(given))
    name = library.name_of(Path(str(module.__file__)))
    return Recipe.of(module.FIXED, module.MUTABLE, module.METRICS, name=name, overrides=overrides)


def _metric(recipe: Recipe, given: Metric | None) -> Metric:
    if given is None and not recipe.criteria:
        raise ConfigurationError(
            f"the recipe {recipe.name} has no METRICS by which settings could be chosen: give metric=…"
        )
    metric = recipe.criteria[0].metric if given is None else given
    if metric.direction == "target":
        raise ConfigurationError(
            f"settings cannot be chosen by {metric.label}, of which neither more nor less is better: give "
            "metric=…"
        )
    if given is not None:
        replace(recipe, criteria=(as_criterion((given, 0.0)),)).made()  # refuses one that is not recorded
    return metric


def _fresh(recipe: Recipe, count: int) -> Recipe:
    """The recipe with the seed after that of the trials, with which those begin that judge the best."""
    made: Experiment = recipe.made()
    fresh = spaces.with_settings(recipe, {"seed": made.seed + 1})
    several.recipes_of(fresh, count)
    return fresh


def _outcome(trial: Any, runs: RecipeRuns) -> TrialOutcome:
    """A trial as its run tells of it; of one that has none, as Ray Tune does."""
    settings = dict(trial.config)
    error = "" if trial.error is None else first_line(getattr(trial.error, "cause", trial.error))
    name = (trial.metrics or {}).get(search.RUN) or _run_with(settings, runs)
    if not name:
        return TrialOutcome(settings, "", "failed", None, None, error or "it did not begin")
    run = Run(runs.root / name)
    row = run.row
    value = None if error else runs.quantity.estimate(run.tables()).value
    reason = row["stop_reason"] or error
    status = row["status"] if not error or row["status"] != "completed" else "failed"
    return TrialOutcome(settings, name, status, value, row["steps"], reason)


def _run_with(settings: Mapping[str, Any], runs: RecipeRuns) -> str:
    """The run of a trial that failed before it told anything: the one that was begun with its settings."""
    wanted = spaces.with_settings(runs.recipe, settings).described()["mutable"]
    found = [run for run in list_runs(runs.root) if run.row["series"] == runs.series]
    return next((run.name for run in found if run.row["mutable"] == wanted), "")


def _words(settings: Mapping[str, Any]) -> str:
    shown = {key: f"{value:.4g}" if isinstance(value, float) else value for key, value in settings.items()}
    return ", ".join(f"{key}={value}" for key, value in shown.items())


def _told(text: str) -> None:
    err().print(text, style="dim")
