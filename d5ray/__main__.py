"""The command line: `d5ray run`, `list`, `runs`, `show`, `compare`, `replay`, `sql`, `dashboard`, …"""

try:
    import dataclasses
    import functools
    from collections.abc import Callable
    from pathlib import Path
    from typing import Annotated, Any

    import typer

    from d5ray.cli import bench, dashboard, options, sql
    from d5ray.failures import unforeseen
    from d5ray.recipes.engine import command, library
    from d5ray.recipes.engine.recipe import ERROR_EXIT_CODE, EXIT_CODES, FAIL, INCONCLUSIVE
except Exception as error:  # a package is broken, or a file of the user's has its name
    import sys

    from d5ray.failures.unloadable import say

    sys.exit(say(error))

app = typer.Typer(
    name="d5ray",
    help="Replace, run and measure any part of (distributed) deep learning.",
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def _reading(shown: Callable[..., None]) -> Callable[..., None]:
    """A command that shows what is stored: what is wrong with that is an error which names it."""

    @functools.wraps(shown)
    def reading(**given: Any) -> None:
        names = [given[name] for name in ("run", "first", "second") if given.get(name)]
        with unforeseen.reading(*(names or given.get("runs") or ["the runs"])):
            shown(**given)

    return reading


app.command()(command.run)
app.command()(_reading(sql.sql))
app.add_typer(bench.app, name="bench")
app.add_typer(dashboard.app, name="dashboard")

Name = Annotated[str, typer.Argument(metavar="RUN", help="A run's name, the beginning of one, or 'last'.")]
NameOfAny = Annotated[
    str, typer.Argument(metavar="RUN", help="A run or a series: a name, the beginning of one, or 'last'.")
]

Trust = Annotated[
    bool, typer.Option("--trust", help="Run the code that lies in the folder, whoever made it.")
]


@app.command("list")
def list_recipes(json: command.Json = False) -> None:
    """The recipes that ship with d5ray, by what they are for, with the time they take on two cores.

    From a checkout also its benchmarks, which measure d5ray itself.
    """
    from d5ray.dashboards.terminal import recipe_list, run_tables  # noqa: PLC0415 - quick for those who only want help

    found = library.shipped() | library.benchmarks()
    if json:
        run_tables.as_json({name: dataclasses.asdict(listed) for name, listed in found.items()})
    else:
        recipe_list.show(found)


@app.command()
@_reading
def runs(json: command.Json = False) -> None:
    """The runs kept under D5RAY_HOME, newest first, and the series that runs are parts of."""
    from d5ray.dashboards.terminal import run_tables  # noqa: PLC0415
    from d5ray.dashboards.terminal import series_tables as series_shown  # noqa: PLC0415
    from d5ray.display.console import err  # noqa: PLC0415
    from d5ray.metrics.judge.series import list_series  # noqa: PLC0415
    from d5ray.metrics.record.reader import looked_for  # noqa: PLC0415

    found, unread = looked_for()
    if json:
        run_tables.as_json([run.row for run in found])
    else:
        run_tables.runs(found)
        if several := list_series():
            series_shown.listed(several)
    for reason in unread:
        err().print(f"! {reason}")


@app.command()
@_reading
def show(
    run: NameOfAny,
    environment: Annotated[
        bool, typer.Option("--environment", help="The machines, the versions, and the settings it ran with.")
    ] = False,
    json: command.Json = False,
) -> None:
    """A run's verdict, as it was given, and the parts of its steps; or what the runs of a series came to."""
    from d5ray.dashboards.terminal import environments, run_tables  # noqa: PLC0415
    from d5ray.dashboards.terminal import series_tables as series_shown  # noqa: PLC0415
    from d5ray.metrics.definitions.catalogue import Verdict  # noqa: PLC0415
    from d5ray.metrics.judge import series  # noqa: PLC0415

    found = series.find(run)
    if environment:
        facts = environments.of(series.runs_of(found))
        if json:
            run_tables.as_json(facts)
        else:
            environments.show(facts)
        return
    if isinstance(found, series.Series):
        if json:
            run_tables.as_json(series_shown.as_data(found))
        else:
            series_shown.show(found)
        return
    rows = found.tables()["verdicts"].to_pylist()
    if json:
        run_tables.as_json({**found.row, "folder": str(found.folder), "criteria": rows})
    else:
        run_tables.verdict(found, [Verdict(**row) for row in rows], found.row["verdict"])


@app.command()
@_reading
def compare(
    first: Annotated[str, typer.Argument(metavar="A", help="A run, a series, or several: a,b or a*.")],
    second: Annotated[str, typer.Argument(metavar="B", help="What is compared with it, likewise.")],
    metric: Annotated[
        list[str] | None, typer.Option("--metric", help="Only this metric; may be given several times.")
    ] = None,
    tolerance: Annotated[float, typer.Option(help="Ratios this near to 1 are the same.")] = 0.02,
    json: command.Json = False,
) -> None:
    """Which of two runs, or groups of runs, is better, metric by metric. Exit code 1: B is worse in one.

    Runs are paired in the order in which they started; fewer than six pairs decide nothing. A metric's own
    verdict is wrong for equal sides in at most 5 of 100 cases, and so is the exit code 1, which is of all
    metrics together, however many they are. Exit code 2: they are incomparable, since what is FIXED or the
    data differ, or nothing is decided.
    """
    from d5ray.dashboards.terminal import comparison as compared  # noqa: PLC0415
    from d5ray.dashboards.terminal import run_tables  # noqa: PLC0415
    from d5ray.metrics.judge import comparison  # noqa: PLC0415

    sides = comparison.runs_named(first), comparison.runs_named(second)
    found = comparison.compare(*sides, tolerance, metric or comparison.METRICS)
    if json:
        run_tables.as_json(dataclasses.asdict(found))
    else:
        compared.show(found)
    if found.together == "worse":
        raise typer.Exit(EXIT_CODES[FAIL])
    if found.together == "inconclusive":
        raise typer.Exit(EXIT_CODES[INCONCLUSIVE])


@app.command()
@_reading
def check(
    run: NameOfAny,
    key: Annotated[
        Path | None,
        typer.Option(
            metavar="PUBLIC",
            callback=options.source,
            help="Also: is every file as the key's owner signed it?",
        ),
    ] = None,
    json: command.Json = False,
) -> None:
    """Whether the folder of a run or series keeps the rules: complete, consistent, its verdict its rows'.

    Nothing in the folder is executed. Exit code 1: a rule is broken. It finds accidents and contradictions,
    not a careful liar.
    """
    from d5ray.dashboards.terminal import run_tables  # noqa: PLC0415
    from d5ray.metrics.judge import series  # noqa: PLC0415
    from d5ray.recipes.engine.checking import (  # noqa: PLC0415
        checker,
        series_checker,
        signatures,
    )

    found = series.find(run)
    signed = signatures.violations(found, key)
    if isinstance(found, series.Series):
        broken = signed + series_checker.violations(found)
    else:
        broken = signed + checker.violations(found)
    left = [checker.LIMIT] if isinstance(found, series.Series) else checker.unchecked(found)
    if json:
        run_tables.as_json({"run_id": found.name, "violations": broken, "unchecked": left})
    else:
        run_tables.checked(found, broken, left)
    if broken:
        raise typer.Exit(EXIT_CODES[FAIL])


@app.command()
@_reading
def replay(run: Name, trust: Trust = False, json: command.Json = False) -> None:
    """Do again, in the simulation, what an asynchronous run did: it must come out the same.

    Nothing in the folder is executed, unless the experiment had code of its user's: then a folder that no
    run of yours made is refused without --trust, since its code could do all that you can.
    """
    from d5ray.dashboards.terminal import run_tables  # noqa: PLC0415
    from d5ray.metrics.record.store import Run  # noqa: PLC0415
    from d5ray.replayer import replay as replay_run  # noqa: PLC0415

    result = replay_run(Run.find(run), trust=trust)
    if json:
        run_tables.as_json({**vars(result), "agrees": result.agrees})
    else:
        run_tables.replay(result)
    if not result.agrees:
        raise typer.Exit(EXIT_CODES[FAIL])


@app.command()
def rerun(
    run: Name, trust: Trust = False, address: command.Address = None, json: command.Json = False
) -> None:
    """Repeat a run from its folder alone: do verdict, losses and, where promised, all bits come out the same?

    Exit code 0: the same, 1: it differs, 2: nothing is decided. A folder with its user's own code that no
    run of yours made is refused without --trust.
    """
    from d5ray.dashboards.terminal import run_tables  # noqa: PLC0415
    from d5ray.metrics.record.store import Run  # noqa: PLC0415
    from d5ray.recipes.engine.repeats.reruns import DIFFERS, OPEN  # noqa: PLC0415
    from d5ray.recipes.engine.repeats.reruns import rerun as rerun_it  # noqa: PLC0415

    result = rerun_it(Run.find(run), trust=trust, address=address, quiet=json)
    if json:
        run_tables.as_json(result.row)
    else:
        run_tables.rerun(result)
    if result.outcome == DIFFERS:
        raise typer.Exit(EXIT_CODES[FAIL])
    if result.outcome == OPEN:
        raise typer.Exit(EXIT_CODES[INCONCLUSIVE])


@app.command()
def keygen(
    path: Annotated[
        Path,
        typer.Argument(
            metavar="PATH", callback=options.target, help="The private key; PATH.pub is the public one."
        ),
    ],
    json: command.Json = False,
) -> None:
    """Make a pair of keys for `d5ray run --sign PATH` and `d5ray check --key PATH.pub` (Ed25519, OpenSSH)."""
    from d5ray.dashboards.terminal import run_tables  # noqa: PLC0415
    from d5ray.metrics.record.signatures import make_keys  # noqa: PLC0415

    made = {"private": str(path), "public": str(make_keys(path))}
    run_tables.as_json(made) if json else run_tables.pairs(made)


@app.command()
@_reading
def export(
    run: NameOfAny,
    to: Annotated[str, typer.Option(metavar="FORMAT", help="csv, json, benchmarker, tensorboard or mlflow.")],
    out: Annotated[
        Path | None, typer.Option(metavar="PATH", callback=options.target, help="Where; by default here.")
    ] = None,
    json: command.Json = False,
) -> None:
    """Write a run for other programs; nothing that exists is overwritten.

    Of a series every run is written: into one MLflow store, otherwise into the folder PATH side by side.
    """
    from d5ray.dashboards.terminal import run_tables  # noqa: PLC0415
    from d5ray.metrics.exports import catalogue  # noqa: PLC0415
    from d5ray.metrics.judge import series  # noqa: PLC0415

    written = catalogue.export_all(series.find(run), to, out)
    if json:
        run_tables.as_json({"to": to, "paths": {name: str(path) for name, path in written.items()}})
    else:
        run_tables.pairs({name: str(path) for name, path in written.items()})


@app.command()
@_reading
def report(
    runs: Annotated[
        list[str], typer.Argument(metavar="RUN…", help="Runs or series; also a,b or a*, which stay together.")
    ],
    output: Annotated[
        Path,
        typer.Option(
            "--output",
            metavar="PATH",
            callback=options.target,
            help="A .html page, a .md text, or a folder for all.",
        ),
    ] = Path("report.html"),
    json: command.Json = False,
) -> None:
    """A page, or a text and figures for a paper: verdicts, curves, times, scaling, comparison, environment.

    report.html needs nothing else, report.md has its figures beside it as PNG and SVG, and a folder gets all.
    """
    from d5ray.dashboards.report import writing  # noqa: PLC0415
    from d5ray.dashboards.terminal import run_tables  # noqa: PLC0415

    written = writing.write(runs, output)
    if json:
        run_tables.as_json({"files": [str(path) for path in written]})
    else:
        run_tables.written(written)


@app.command()
@_reading
def timeline(
    run: Name,
    output: Annotated[
        Path,
        typer.Option(
            "--output", metavar="FILE", callback=options.target, help="Where; compressed if it ends in .gz."
        ),
    ] = Path("trace.json"),
    first: Annotated[int, typer.Option("--from", metavar="STEP", help="The first step.")] = 0,
    last: Annotated[int | None, typer.Option("--to", metavar="STEP", help="The last step.")] = None,
    steps: Annotated[
        int, typer.Option("--steps", help="So many steps at most, where --to is not given; 0: all.")
    ] = 500,
    json: command.Json = False,
) -> None:
    """What every agent and server did when, and who waited for whom: a trace for ui.perfetto.dev."""
    from d5ray.dashboards.terminal import run_tables  # noqa: PLC0415
    from d5ray.dashboards.timeline import writing  # noqa: PLC0415
    from d5ray.metrics.record.store import Run  # noqa: PLC0415

    written = writing.write(Run.find(run), output, first, last, steps)
    if json:
        run_tables.as_json({**vars(written), "file": str(output)})
    else:
        run_tables.traced(output, written)


@app.command()
def network(
    file: Annotated[Path, typer.Argument(metavar="FILE", callback=options.source, help="An ONNX file.")],
    picture: Annotated[
        Path | None,
        typer.Option(metavar="PATH", callback=options.target, help="Also draw it there, as an SVG."),
    ] = None,
    compare: Annotated[
        Path | None,
        typer.Option(
            metavar="OTHER",
            callback=options.source,
            help="Instead say where another ONNX file parts from it.",
        ),
    ] = None,
    stages: Annotated[
        int | None, typer.Option(metavar="N", help="Instead show a balanced cut into so many stages.")
    ] = None,
    cut: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NODE", help="Instead show the stages, of which one begins with this node; each."
        ),
    ] = None,
    json: command.Json = False,
) -> None:
    """The nodes of a network with shapes and parameters. Nothing in the file is executed.

    With --stages or --cut: what each stage takes for one sample, by counted operations and bytes.
    With --compare: the first node that differs, whatever nodes are called, and the largest differences of
    parameters. Exit code 1: they differ.
    """
    from d5ray.dashboards.terminal import cut_tables as cuts  # noqa: PLC0415
    from d5ray.dashboards.terminal import network_tables, run_tables  # noqa: PLC0415
    from d5ray.networks.network import Network  # noqa: PLC0415

    found = Network.from_onnx(file)
    if picture is not None:
        found.draw(picture)
    if compare is not None:
        report = network_tables.compared(found, Network.from_onnx(compare))
        run_tables.as_json(report) if json else network_tables.show_compared(report)
        if report["differ"]:
            raise typer.Exit(EXIT_CODES[FAIL])
    elif stages is not None or cut:
        rows = cuts.rows_of(found, stages, cut)
        run_tables.as_json(rows) if json else cuts.show(rows)
    elif json:
        run_tables.as_json(network_tables.as_data(found))
    else:
        network_tables.show(found)


@app.command()
def doctor(
    address: command.Address = None,
    network: Annotated[
        bool, typer.Option("--network", help="Measure latency and bandwidth between agents, and keep them.")
    ] = False,
    json: command.Json = False,
) -> None:
    """What is installed, what is missing for which feature, this machine, and whether Ray answers."""
    from d5ray.dashboards.terminal import doctor, run_tables  # noqa: PLC0415

    report = doctor.examine(address)
    if network:
        report += doctor.network(address)
    if json:
        run_tables.as_json(doctor.as_data(report))
    else:
        doctor.show(report)
    if not doctor.healthy(report):
        raise typer.Exit(ERROR_EXIT_CODE)


def main() -> None:
    """The entry point."""
    command.finish(app)


if __name__ == "__main__":
    main()
