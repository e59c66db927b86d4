"""Claims about reports: their numbers are those of the tables, and a text of a run stays a text."""

import functools
import importlib.util
import itertools
import json
import math
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

import d5ray as d5
from d5ray.actors.group.run_row import RunOrigin
from d5ray.dashboards.report import writing
from d5ray.dashboards.report.building import built
from d5ray.dashboards.report.document import Figure, ReportDocument, ReportTable, TableCell
from d5ray.dashboards.report.formats import figure_style
from d5ray.dashboards.report.formats.html_page import page
from d5ray.dashboards.report.formats.markdown import markdown
from d5ray.dashboards.report.sections import breakdown, communication, convergence, verdict
from d5ray.dashboards.report.sections.convergence import MetricCurve, together
from d5ray.dashboards.report.subject import Subject, subject_of
from d5ray.distributed.simulation.compute import LogNormalTime
from d5ray.errors import ConfigurationError, StorageError
from d5ray.metrics.definitions.catalogue import StepTime, TestAccuracy
from d5ray.metrics.judge.comparison import compare
from d5ray.metrics.judge.run_series import RunSeries, joined
from d5ray.metrics.record.reader import Run
from d5ray.metrics.record.recorder import Recorder
from d5ray.metrics.record.schema import table_of
from d5ray.metrics.record.store import RunWriter
from d5ray.simulator import simulate
from tests.beside_kits import needs_kit, there
from tests.dashboards.html_page import Page

CRITERIA = (TestAccuracy() >= 0.5, StepTime() <= 0.0012)
AGENTS = (1, 2, 4)
SEEDS = (1, 2)
STEPS = 80
HOSTILE = "</style></svg><script>alert('d5ray')</script> $x_1$ |`*&amp;\x00"
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A home with runs of 1, 2 and 4 agents, with two seeds each, judged by `CRITERIA`, oldest first."""
    folder = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("D5RAY_HOME", str(folder))
        for agents in AGENTS:
            for seed in SEEDS:
                made(folder / "runs", agents, seed)
        yield folder


def made(root: Path, agents: int, seed: int) -> Run:
    """A simulated run that is judged as a recipe's."""
    experiment = d5.Experiment(
        model="mlp", dataset="digits", optimizer=d5.optimizers.Momentum(0.05, 0.9), agents=agents,
        batch_size=16,
        epochs=4, seed=seed, recording=d5.metrics.Recording(monitor_seconds=0), name="study",
    )  # fmt: skip
    origin = RunOrigin(recipe="study", recipe_hash="0123456789abcdef")
    with simulate(experiment, compute=LogNormalTime(1e-3, 0.2), root=root, origin=origin) as group:
        group.train(steps=STEPS)
        judged = [criterion.judge(group.tables()) for criterion in CRITERIA]
        word = "PASS" if {each.verdict for each in judged} == {"PASS"} else "FAIL"
        group.close(verdict=word, verdicts=table_of("verdicts", [each.row for each in judged]))
    return Run(group.folder)


@pytest.fixture(scope="module")
def subject(home: Path) -> Iterator[Subject]:
    found = subject_of(["study*"])
    yield found
    found.close()


@pytest.fixture(scope="module")
def report(subject: Subject) -> ReportDocument:
    return built(subject)


@pytest.fixture(scope="module")
def text(report: ReportDocument) -> str:
    return page(report)


def first_of(home: Path) -> str:
    """The name of the run that was made first."""
    return min(path.name for path in (home / "runs").glob("study*"))


@functools.cache
def file_of(path: Path) -> list[dict[str, Any]]:
    """What lies in a file, read without d5ray."""
    columns = ["metric", "phase", "rank", "step", "value"]
    rows: list[dict[str, Any]] = pq.read_table(path, columns=columns).to_pylist()
    return rows


def rows_of(run: Run, metric: str, phase: str = "train") -> list[dict[str, Any]]:
    """The rows of a metric in a phase."""
    rows = file_of(run.folder / "samples.parquet")
    return [row for row in rows if row["metric"] == metric and row["phase"] == phase]


def by_step(run: Run, metric: str, reduce: Any) -> list[float]:
    """One value for each measured step, of all agents."""
    steps: dict[int, list[float]] = {}
    for row in rows_of(run, metric):
        steps.setdefault(row["step"], []).append(row["value"])
    return [reduce(steps[step]) for step in sorted(steps)]


def of_a_run(values: list[float]) -> float:
    return float(np.median(values))


def table(report: ReportDocument, title: str) -> ReportTable:
    """The table whose title begins so."""
    tables = [
        block for section in report.sections for block in section.blocks if isinstance(block, ReportTable)
    ]
    return next(each for each in tables if each.title.startswith(title))


def plain(row: tuple[str | TableCell, ...]) -> list[str]:
    return [cell.text if isinstance(cell, TableCell) else cell for cell in row]


@pytest.mark.full
def test_runs_that_differ_in_the_seed_are_one_setting(subject: Subject) -> None:
    """Named by what tells the settings apart."""
    assert [setting.label for setting in subject.settings] == ["1 agent", "2 agents", "4 agents"]
    assert [[m.row["seed"] for m in s.members] for s in subject.settings] == [list(SEEDS)] * 3


@pytest.mark.full
def test_the_criteria_are_those_of_the_verdicts_tables(subject: Subject, report: ReportDocument) -> None:
    """Run by run; those of a setting are judged by the rows of all its runs, as a series is."""
    rows = [plain(row) for row in table(report, "Criteria, run by run").rows]
    expected, together = [], []
    for setting in subject.settings:
        for member in setting.members:
            label = f"{setting.label}, seed {member.row['seed']}"
            for row in pq.read_table(member.run.folder / "verdicts.parquet").to_pylist():
                expected.append((label, row["metric"], row["verdict"]))
        tables = joined([member.run.tables() for member in setting.members])
        together += [(setting.label, each.judge(tables)) for each in CRITERIA]
    assert [(row[0], row[1], row[-1]) for row in rows] == expected
    assert len({row[-1] for row in rows}) > 1  # some passed, some did not
    assert [(whose, replace(each, run_id="")) for whose, each in verdict.verdicts_of(subject)[0]] == together
    shown = [plain(row) for row in table(report, "Criteria").rows]
    assert [(row[0], row[1], row[-1]) for row in shown] == [
        (whose, each.metric, each.verdict) for whose, each in together
    ]


def test_key_figures_are_medians_over_runs(subject: Subject, report: ReportDocument) -> None:
    """A run's step is the median over its steps of the slowest agent's time; computed from the file."""
    rows = {row[0]: plain(row)[1:] for row in table(report, "Key figures").rows}
    for setting, shown in zip(subject.settings, rows["step_time"], strict=True):
        runs = [np.median(by_step(member.run, "step_time", max)) for member in setting.members]
        value, unit = shown.split(" ")
        assert unit == "ms" and float(value) == pytest.approx(np.median(runs) * 1e3, rel=2e-3)
    for setting, shown in zip(subject.settings, rows["test_accuracy"], strict=True):
        last = [
            min(row["value"] for row in rows_of(m.run, "test_accuracy", "test") if row["step"] == STEPS - 1)
            for m in setting.members
        ]
        assert float(shown) == pytest.approx(np.median(last), rel=1e-3)


@needs_kit("laboratory")
def test_scaling_is_weak_and_that_of_hand(subject: Subject, report: ReportDocument) -> None:
    """An agent's samples stay: T₁/Tₙ is the efficiency, over pairs of runs, and n times it the speed-up."""
    rows = [plain(row) for row in table(report, "Weak scaling").rows]
    times = [
        [of_a_run(by_step(member.run, "step_time", max)) for member in setting.members]
        for setting in subject.settings
    ]
    for agents, own, row in zip(AGENTS, times, rows, strict=True):
        efficiency = float(np.exp(np.median(np.log(np.array(times[0]) / np.array(own)))))
        assert row[0] == str(agents)
        assert float(row[2].split(" ")[0]) == pytest.approx(efficiency, rel=1e-3)
        assert float(row[1].split(" ")[0]) == pytest.approx(agents * efficiency, rel=1e-3)


def test_the_comparison_is_that_of_d5ray_compare(subject: Subject, report: ReportDocument) -> None:
    """From tables read as a whole, where the report asks for each metric alone."""
    first, second, _ = ([member.run for member in setting.members] for setting in subject.settings)
    found = compare(first, second).differences
    expected = {each.metric: each for each in found if each.first or each.second}
    del expected["asynchronous_samples_per_second"]  # these agents wait for each other
    rows = {row[0]: plain(row) for row in table(report, "2 agents (second)").rows}
    assert rows.keys() == expected.keys() and "step_time" in rows
    for name, each in expected.items():
        assert rows[name][4] == ("–" if each.ratio is None else f"{each.ratio:.3f}")
        assert rows[name][7] == each.verdict


def test_parts_of_a_step_add_up_to_its_mean_time(subject: Subject) -> None:
    for setting in subject.settings:
        parts = breakdown.of_setting(setting).parts
        means = []
        for member in setting.members:
            both = rows_of(member.run, "step_time") + rows_of(member.run, "step_time", "warmup")
            means += [
                np.mean([row["value"] for row in both if row["rank"] == rank])
                for rank in range(member.row["agents"])
            ]
        assert sum(parts.values()) == pytest.approx(np.mean(means), rel=1e-6)


def test_traffic_is_that_of_the_agent_that_sent_most(subject: Subject) -> None:
    """The sum over its steps, warm-up included; no prediction was made, and the section says so."""
    section = communication.section(subject)
    assert section is not None
    rows = {row[0]: plain(row) for row in section.blocks[-1].rows}  # type: ignore[union-attr]
    assert rows.keys() == {"2 agents", "4 agents"}
    for setting in subject.settings[1:]:
        run = setting.one.run
        sent = [0.0] * setting.one.row["agents"]
        for row in rows_of(run, "bytes_sent") + rows_of(run, "bytes_sent", "warmup"):
            sent[row["rank"]] += row["value"]
        value, unit = rows[setting.label][1].split(" ")
        assert unit == "MB" and float(value) == pytest.approx(max(sent) / 1e6, rel=5e-3)
    assert "d5ray doctor --network" in section.blocks[0].text  # type: ignore[union-attr]


def test_traffic_of_a_step_is_over_the_steps_of_the_run_itself(tmp_path: Path) -> None:
    """A run that was resumed at step 40 did 20 steps of 1 and 3 kB, and not 60."""
    writer = RunWriter(tmp_path, "resumed")
    writer.open({"agents": 2, "steps": 60, "recipe": "r", "started": datetime.now(UTC)})
    for rank, size in enumerate((1e3, 3e3)):
        recorder = Recorder(run_id="resumed", agent=f"a{rank}", rank=rank, node="n", send=writer.append)
        for step in range(40, 60):
            recorder.record("bytes_sent", size, step=step)
        recorder.flush()
    writer.close()
    found = subject_of([str(tmp_path / "resumed")])
    try:
        section = communication.section(found)
        assert section is not None
        (row,) = map(plain, section.blocks[-1].rows)  # type: ignore[union-attr]
    finally:
        found.close()
    assert row[1:3] == ["60 kB", "3 kB"]


def test_predictions_stand_beside_medians_and_quartiles(tmp_path: Path) -> None:
    """Of each agent, warm-up left out; checked with NumPy."""
    rng = np.random.default_rng(1)
    taken = rng.lognormal(-7, 0.3, size=(40, 2))
    writer = RunWriter(tmp_path, "predicted")
    writer.open({"agents": 2, "recipe": "r", "started": datetime.now(UTC)})
    for rank in range(2):
        recorder = Recorder(run_id="predicted", agent=f"a{rank}", rank=rank, node="n", send=writer.append)
        for step in range(40):
            phase = "warmup" if step < 10 else "train"
            recorder.record("exchange_time", taken[step, rank], step=step, phase=phase)
            recorder.record("predicted_exchange_time", 2e-4 * (rank + 1), step=step, phase=phase)
        recorder.flush()
    writer.close()
    found = subject_of([str(tmp_path / "predicted")])
    try:
        for rank, each in enumerate(communication.of_agents(found)):
            quartiles = np.quantile(taken[10:, rank], [0.25, 0.5, 0.75])
            assert each.predicted == 2e-4 * (rank + 1)
            assert [each.low, each.median, each.high] == pytest.approx(quartiles.tolist())
    finally:
        found.close()


def test_curves_of_several_agents_are_their_median_and_range(subject: Subject) -> None:
    """At every evaluation, those of all agents and seeds; the steps are counted from 1."""
    setting = subject.settings[2]
    whole = together(convergence.curves(setting, "test_accuracy", "step"))
    for place, step in enumerate(whole.x):
        values = [
            row["value"]
            for member in setting.members
            for row in rows_of(member.run, "test_accuracy", "test")
            if row["step"] == step - 1
        ]
        assert len(values) == 4 * len(SEEDS)
        found = [whole.low[place], whole.median[place], whole.high[place]]
        assert found == pytest.approx([min(values), np.median(values), max(values)])


def test_a_curve_ends_where_its_run_ended() -> None:
    """Beyond it only the longer one counts; between its points it is a line."""
    short = MetricCurve(0, np.array([0.0, 10.0]), np.array([0.0, 10.0]))
    long = MetricCurve(1, np.array([0.0, 20.0]), np.array([2.0, 2.0]))
    whole = together([short, long])
    five, fifteen = (int(np.argmin(abs(whole.x - at))) for at in (5.0, 15.0))
    assert whole.median[five] == pytest.approx((whole.x[five] + 2) / 2)
    assert whole.low[fifteen] == whole.high[fifteen] == 2.0  # one of two is half of them


def test_a_line_breaks_where_a_curve_ends_that_moved_it() -> None:
    """And not where the others' median stays what it was: a kink would look like something that happened."""
    short = MetricCurve(0, np.array([0.0, 10.0]), np.array([0.0, 10.0]))
    for value, gaps in ((2.0, 1), (10.0, 0)):
        long = MetricCurve(1, np.array([0.0, 10.0, 20.0]), np.array([0.0, value, 2.0]))
        whole = together([short, long] if gaps else [short, long, long._replace(rank=2)])
        (broken,) = np.nonzero(np.isnan(whole.median))
        if gaps:
            assert len(broken) == 1 and whole.x[broken[0]] == pytest.approx(10.0, abs=0.1)
        assert np.isnan(whole.low).sum() == np.isnan(whole.high).sum() == len(broken)
    same = [short, MetricCurve(1, np.array([0.0, 10.0, 20.0]), np.array([0.0, 10.0, 4.0]))]
    assert not np.isnan(together(same).median).any()


def test_evaluations_of_agents_are_put_together_by_their_steps() -> None:
    """However their times differ; where half of the agents had one, and with a gap behind the last of one."""
    first = MetricCurve(0, np.array([1.0, 2.0, 3.0]), np.array([0.1, 0.2, 0.3]), (9, 19, 29))
    second = MetricCurve(1, np.array([1.5, 3.5]), np.array([0.3, 0.6]), (9, 19))
    whole = together([first, second])
    assert whole.x == pytest.approx([1.25, 2.75, 2.875, 3.0])
    assert whole.median == pytest.approx([0.2, 0.4, np.nan, 0.3], nan_ok=True)
    apart = together([first, second._replace(steps=(10, 20))])  # nothing in common but the time
    assert len(apart.x) > 100


@pytest.mark.full
def test_a_mark_stands_where_an_evaluation_was(subject: Subject) -> None:
    """As many as there were, also over time, and none on the loss."""
    found = convergence.section(subject)
    assert found is not None
    blocks = {block.name: block for block in found.blocks if isinstance(block, Figure)}
    evaluated = {
        setting.label: {
            row["step"] for m in setting.members for row in rows_of(m.run, "test_accuracy", "test")
        }
        for setting in subject.settings
    }
    for name in ("test_accuracy-over-steps", "test_accuracy-over-time"):
        (axes,) = blocks[name].draw().axes
        lines = {str(line.get_label()): line for line in axes.lines if line.get_marker() not in ("", "None")}
        assert {label: np.size(line.get_xdata()) for label, line in lines.items()} == {
            label: len(steps) for label, steps in evaluated.items()
        }
    (axes,) = blocks["loss-over-time"].draw().axes
    assert {line.get_marker() for line in axes.lines} <= {"", "None"}


def test_the_page_needs_nothing_else(text: str) -> None:
    """No script, no style sheet, no picture, no font from elsewhere; and the browser is to refuse them."""
    seen = Page(text)
    assert not seen.wanted and not {"script", "link", "iframe", "img", "object", "image"} & set(seen.tags)
    assert seen.tags.count("svg") == len(re.findall("<figure", text)) > 7 + there("laboratory")
    assert not re.findall(r"url\((?!#)", text) and "@import" not in text
    assert set(re.findall(r"https?://[^\s\"')<]+", text)) <= {
        "http://www.w3.org/2000/svg",
        "http://www.w3.org/1999/xlink",
    }
    assert "default-src 'none'" in text
    ids = re.findall(r' id="([^"]+)"', text)
    assert len(ids) == len(set(ids))
    assert set(re.findall(r"(?:url\(#|href=\"#)([^\")]+)", text)) <= set(ids)


@pytest.mark.full
def test_every_axis_has_a_name_and_a_unit_and_texts_are_texts(report: ReportDocument) -> None:
    """Also every figure is XML, has no date and is the same when it is drawn again."""
    assert {figure.name for figure in report.figures} >= {
        "verdict",
        "scaling-weak",
        "step-time",
        "loss-over-time",
    }
    for figure in report.figures:
        drawn = figure_style.svg(figure.draw())
        root = ElementTree.fromstring(drawn)
        texts = ["".join(each.itertext()) for each in root.iter(f"{SVG}text")]
        assert any(re.search(r"\((1|%|s|ms|µs)\)$|^step$", each) for each in texts), (figure.name, texts)
        assert "<dc:date>" not in drawn
    assert figure_style.svg(figure.draw()) == drawn


def test_settings_are_told_apart_without_colour() -> None:
    """No two of the first 49 looks have colour, mark and dashes in common, and neighbours share none."""
    looks = [figure_style.line_style(index) for index in range(49)]
    assert len({(look.colour, look.marker, str(look.dashes)) for look in looks}) == 49
    for one, other in itertools.pairwise(looks[:7]):
        assert one.colour != other.colour and one.marker != other.marker and one.dashes != other.dashes


@pytest.mark.full
def test_the_ending_says_what_is_made(home: Path, tmp_path: Path) -> None:
    """A page alone; a text with figures beside it; a folder with all. The same run gives the same bytes."""
    name = [first_of(home)]
    (only,) = writing.write(name, tmp_path / "report.html")
    assert only == tmp_path / "report.html" and [only] == list(tmp_path.iterdir())
    first = only.read_bytes()
    made_text = writing.write(name, tmp_path / "paper.md")
    figures = tmp_path / "paper-figures"
    assert {path.parent for path in made_text[1:]} == {figures} and made_text[0] == tmp_path / "paper.md"
    linked = set(re.findall(r"\]\((.+?)\)", made_text[0].read_text()))
    assert linked == {f"paper-figures/{path.name}" for path in figures.glob("*.png")}
    assert {path.stem for path in figures.glob("*.svg")} == {path.stem for path in figures.glob("*.png")}
    assert all(path.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n" for path in figures.glob("*.png"))
    everything = writing.write(name, tmp_path / "all")
    assert (tmp_path / "all" / "report.html").read_bytes() == first
    assert len(everything) == 2 + len(list((tmp_path / "all" / "figures").iterdir()))
    for path in figures.iterdir():
        assert (tmp_path / "all" / "figures" / path.name).read_bytes() == path.read_bytes()


def test_markdown_has_the_same_numbers_as_the_page(report: ReportDocument, text: str) -> None:
    """Every cell of every table of the text is a cell of the page."""
    lines = markdown(report, PurePosixPath("figures")).splitlines()
    cells = {
        re.sub(r"\\(.)", r"\1", cell.strip())
        for line in lines
        if line.startswith("| ")
        for cell in re.split(r"(?<!\\)\|", line)[1:-1]
    }
    seen = {" ".join(each.split()) for each in Page(text).texts}
    assert len(cells) > 100 and {cell for cell in cells if cell} <= seen


def test_a_series_is_judged_together(home: Path) -> None:
    """Its joint verdicts stand in the place of its runs' own."""
    runs = sorted(path.name for path in (home / "runs").glob("study*"))[:2]
    series = RunSeries(home / "series" / "both")
    joint = CRITERIA[1].judge(Run(home / "runs" / runs[0]).tables()).row | {"run_id": "", "n": 77}
    row = {"purpose": "seeds", "recipe": "study", "runs": runs, "seeds": [1, 2], "status": "completed"}
    series.write(row | {"verdict": "INCONCLUSIVE"}, table_of("verdicts", [joint]))
    for name in runs:
        RunWriter(home / "runs", name).update_run(series="both")
    found = subject_of(["both"])
    try:
        assert [(whose, each.n) for whose, each in verdict.verdicts_of(found)[0]] == [("both", 77)]
        assert [word.text for word in verdict.words_of(found)] == ["INCONCLUSIVE"]
    finally:
        found.close()
        for name in runs:
            RunWriter(home / "runs", name).update_run(series=None)


def hostile(root: Path) -> Run:
    """A run in which every text wants to be more than that."""
    writer = RunWriter(root, "hostile")
    described = json.dumps({"agents": 2, "model": HOSTILE, "optimizer": {"class": HOSTILE}})
    writer.open(
        {
            "recipe": HOSTILE,
            "agents": 2,
            "started": datetime.now(UTC),
            "experiment": described,
            "git": HOSTILE,
        }
    )
    recorder = Recorder(
        run_id="hostile", agent=HOSTILE, rank=0, node=HOSTILE, send=writer.append,
        send_events=writer.append_events,
    )  # fmt: skip
    for step in range(30):
        for name, value in (("loss", 1 / (step + 1)), ("step_time", 0.01), ("forward_time", 0.004)):
            recorder.record(name, value, step=step, phase="train")
    recorder.event("failed", step=3, reason=HOSTILE)
    recorder.flush()
    bad = {"metric": HOSTILE, "unit": HOSTILE, "relation": "<=", "target": 1.0, "value": 2.0, "low": 1.5}
    bad |= {"high": 3.0, "n": 3, "sample_unit": HOSTILE, "verdict": "FAIL", "reason": HOSTILE}
    writer.write_table("verdicts", table_of("verdicts", [{"run_id": "hostile", **bad}]))
    fact = {"run_id": "hostile", "node": HOSTILE, "key": HOSTILE, "value": HOSTILE}
    writer.write_table("environment", table_of("environment", [fact]))
    writer.update_run(status="failed", stop_reason=HOSTILE, host=HOSTILE, verdict="FAIL")
    writer.close()
    return Run(root / "hostile")


@pytest.mark.full
def test_a_text_of_a_run_is_shown_as_text_whatever_it_contains(tmp_path: Path) -> None:
    run = hostile(tmp_path)
    files = writing.write([str(run.folder)], tmp_path / "out")
    seen = Page(files[0].read_text())
    assert "script" not in seen.tags and not seen.wanted
    shown = HOSTILE.replace("\x00", "\N{REPLACEMENT CHARACTER}")
    assert sum(shown in each for each in seen.texts) >= 8
    for path in files:
        if path.suffix == ".svg":
            root = ElementTree.fromstring(path.read_bytes())
            assert not list(root.iter(f"{SVG}script"))
    assert re.search(r"(?<!\\)<", files[1].read_text().replace("\\<", "")) is None
    assert "\x00" not in files[0].read_text() and "\x00" not in files[1].read_text()


def test_a_run_that_goes_on_or_died_is_reported_as_far_as_it_is_stored(tmp_path: Path) -> None:
    """Also when the last batch is cut off; it has no verdict, and the report says why."""
    writer = RunWriter(tmp_path, "growing")
    writer.open({"recipe": "r", "agents": 1, "started": datetime.now(UTC)})
    recorder = Recorder(run_id="growing", agent="a", rank=0, node="n", send=writer.append)
    for step in range(30):
        recorder.record("loss", 1.0 / (step + 1), step=step, phase="train")
    recorder.flush()
    going = page_of(tmp_path / "growing")
    assert "growing is still running" in going.text and "Training loss over steps" in going.text
    writer.leave()
    stream = tmp_path / "growing" / "samples.arrows"
    stream.write_bytes(stream.read_bytes() + b"half a batch")
    assert "Training loss over steps" in page_of(tmp_path / "growing").text


def page_of(folder: Path) -> Page:
    found = subject_of([str(folder)])
    try:
        return Page(page(built(found)))
    finally:
        found.close()


def empty(root: Path) -> Path:
    """The folder of a run that failed before its first step."""
    writer = RunWriter(root, "empty")
    writer.open({"recipe": "r", "agents": 1, "started": datetime.now(UTC)})
    writer.update_run(status="failed", stop_reason="no agent could be placed")
    writer.close()
    return root / "empty"


def test_a_run_without_rows_has_a_report_too(tmp_path: Path) -> None:
    assert "no agent could be placed" in page_of(empty(tmp_path)).text


def test_a_loss_that_is_no_number_ends_the_curve(tmp_path: Path) -> None:
    writer = RunWriter(tmp_path, "nan")
    writer.open({"recipe": "r", "agents": 1, "started": datetime.now(UTC), "status": "nan_loss"})
    recorder = Recorder(run_id="nan", agent="a", rank=0, node="n", send=writer.append)
    for step, loss in enumerate((3.0, 9.0, math.inf, math.nan)):
        recorder.record("loss", loss, step=step, phase="train")
    recorder.flush()
    writer.close()
    assert "Training loss over steps" in page_of(tmp_path / "nan").text


def test_a_run_of_another_version_is_an_error_that_says_so(home: Path, tmp_path: Path) -> None:
    name = first_of(home)
    folder = tmp_path / "newer"
    folder.mkdir()
    for path in (home / "runs" / name).iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    pq.write_table(
        pq.read_table(folder / "samples.parquet").drop_columns(["rep"]), folder / "samples.parquet"
    )
    runs = pq.read_table(folder / "runs.parquet")
    place = runs.schema.get_field_index("d5ray_version")
    pq.write_table(runs.set_column(place, runs.schema.field(place), [["9.9.9"]]), folder / "runs.parquet")
    with pytest.raises(StorageError, match=r"written by d5ray 9\.9\.9"):
        writing.write([str(folder)], tmp_path / "report.html")
    assert not (tmp_path / "report.html").exists()


@pytest.mark.parametrize(
    ("names", "output", "message"),
    [
        (["nothing-like-this"], "report.html", "There is no run"),
        (["nothing*"], "report.html", "no run whose name is like"),
        ([], "report.html", "name a run"),
        (["study*"], "report.pdf", r"ends in \.html"),
    ],
)
def test_what_cannot_be_reported_is_an_error(
    home: Path, names: list[str], output: str, message: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigurationError, match=message):
        writing.write(names, tmp_path / output)
    assert not list(tmp_path.iterdir())


def test_a_place_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match=r"cannot be written .* --output"):
        writing.write([str(empty(tmp_path))], tmp_path / "file" / "report.html")


def test_a_missing_matplotlib_is_an_error_that_says_how_to_get_it(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigurationError, match=r"pip install 'd5ray\[dashboard\]'"):
        writing.write(["study*"], tmp_path / "report.html")
