"""The live page in a real browser: a run in progress, several runs, SQL, hostile text, both widths."""

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import d5ray as d5
from d5ray.actors.group.run_row import RunOrigin
from d5ray.dashboards.page import server
from d5ray.dashboards.page.sections import VIEWS
from d5ray.errors import ConfigurationError
from d5ray.metrics.judge.run_series import RunSeries
from d5ray.metrics.record.reader import Run
from tests.conftest import wait_until
from tests.dashboards.made_runs import Made, serving
from tests.patience import patience

sync_api: Any = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed: apt install chromium")

WIDTHS = {"desktop": (1280, 900), "phone": (390, 844)}
WAIT_SECONDS = 20.0
HOSTILE = "<img src=x onerror=\"document.title='taken'\"><script>document.title='taken'</script>"
Open = Callable[..., Any]


class Browsed:
    """A tab on the page of a folder of runs; what the browser complains of is kept."""

    def __init__(self, tab: Any, address: str) -> None:
        self.tab, self.address = tab, address
        self.errors: list[str] = []
        self.asked: list[str] = []
        tab.set_default_timeout(1e3 * patience(WAIT_SECONDS))
        tab.on("console", lambda m: self.errors.append(m.text) if m.type in ("error", "warning") else None)
        tab.on("pageerror", lambda error: self.errors.append(str(error)))
        tab.on("request", lambda request: self.asked.append(request.url))

    def show(self, view: str = "overview", run: str = "") -> None:
        """Go there; returns when everything is drawn."""
        self.tab.goto(f"{self.address}&view={view}" + (f"&run={run}" if run else ""))
        self.drawn()

    def turn(self, view: str) -> None:
        """Go to another view of the run, by its link."""
        self.tab.evaluate(
            "document.querySelectorAll('main > *').forEach(e => e.setAttribute('data-old', ''))"
        )
        self.tab.locator(f"nav a[href*='view={view}']").click()
        self.tab.wait_for_selector("main > [data-old]", state="detached")
        self.drawn()

    def drawn(self) -> None:
        self.tab.wait_for_selector("main .panel, main .error")
        self.until(
            lambda: self.tab.evaluate(
                "[...document.querySelectorAll('[data-chart]')].every(e => e.querySelector('.main-svg'))"
            )
        )

    def until(self, true: Callable[[], Any]) -> Any:
        """What `true` gives as soon as it is true."""
        begin = time.monotonic()
        while not (found := true()):
            assert time.monotonic() - begin < patience(WAIT_SECONDS), "it did not happen"
            self.tab.wait_for_timeout(30)
        return found

    def silent(self, seconds: float) -> bool:
        """Whether nothing is asked of the server for this long."""
        asked = len(self.asked)
        self.tab.wait_for_timeout(1e3 * seconds)
        return len(self.asked) == asked

    def stat(self, title: str) -> str:
        """One of the figures above the charts."""
        found: str = self.tab.locator(f".stat:has(div:text-is('{title}')) strong").inner_text()
        return found

    def points(self, chart: str, trace: str) -> list[float]:
        """The horizontal places of the points of a trace, whose name begins so."""
        found: list[float] = self.tab.evaluate(
            "([chart, trace]) =>"
            " (document.querySelector(`[data-chart='${chart}'] .js-plotly-plot`)?.data ?? [])"
            ".filter(t => t.name?.startsWith(trace)).flatMap(t => t.x)",
            [chart, trace],
        )
        return found


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Debian's Chromium."""
    with sync_api.sync_playwright() as playwright:
        options = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
        found = playwright.chromium.launch(executable_path=CHROMIUM, args=options)
        yield found
        found.close()


@pytest.fixture
def look(browser: Any) -> Iterator[Open]:
    """Opens a tab on an address; at the end the browser must have had nothing to complain of."""
    tabs: list[Browsed] = []

    def opened(address: str, width: str = "desktop", scheme: str = "light") -> Browsed:
        size = dict(zip(("width", "height"), WIDTHS[width], strict=True))
        context = browser.new_context(viewport=size, color_scheme=scheme)
        tabs.append(Browsed(context.new_page(), address))
        return tabs[-1]

    yield opened
    for tab in tabs:
        tab.tab.context.close()
    assert [error for tab in tabs for error in tab.errors] == []


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with servers, one of gossip, and a long one."""
    root = tmp_path_factory.mktemp("runs")
    common: dict[str, Any] = {
        "model": "mlp", "dataset": "digits", "executor": "numpy", "optimizer": d5.optimizers.SGD(0.05),
        "seed": 1,
    }  # fmt: skip
    reached = (d5.metrics.TestAccuracy() >= 0.5, d5.metrics.StepTime() <= 1e-9)
    criteria = json.dumps([criterion.described() for criterion in reached])
    kinds: list[dict[str, Any]] = [
        {"agents": 4, "distributed": d5.optimizers.ASGD(), "servers": d5.Servers(shards=2),
         "slow": d5.faults.Slowdown(agent=3, factor=3), "name": "servers"},
        {"topology": d5.topologies.Ring(6), "distributed": d5.optimizers.DPSGD(), "name": "gossip"},
    ]  # fmt: skip
    for kind in kinds:
        with d5.simulate(
            d5.Experiment(**common, **kind),
            root=root,
            origin=RunOrigin(kind["name"], criteria=criteria),
        ) as group:
            group.train(steps=70, progress=False)
    long = Made(root, "long", agents=2, steps=20_000)
    long.write(20_000)
    long.close()
    return root


@pytest.fixture(scope="module")
def page(runs: Path) -> Iterator[str]:
    with serving(runs, "servers") as address:
        yield address


# ------------------------------------------------------------------------------------------------------------


@pytest.mark.full
def test_a_run_in_progress_is_followed_to_its_end(tmp_path: Path, look: Open) -> None:
    """Steps, loss and verdict change by themselves; the end is shown, and then nothing is asked any more."""
    criteria = json.dumps([(d5.metrics.TestAccuracy() >= 0.5).described()])
    run = Made(tmp_path, "growing", steps=1500, criteria=criteria)
    run.write(300)
    with serving(tmp_path, "last") as address:
        tab = look(address)
        tab.show()
        assert tab.tab.locator("#state").inner_text() == "follows the run\nrunning"
        assert tab.stat("steps") == "300"
        before = tab.points("loss", "agent 1")
        assert len(before) == 300 and "so far" in tab.tab.locator("main").inner_text()
        height = tab.tab.evaluate("document.querySelector('main').scrollHeight")
        writing = run.keep_writing(300, 0.7)
        tab.until(lambda: tab.stat("steps") not in ("300", "1,500"))
        tab.until(lambda: max(tab.points("loss", "agent 1")) > max(before))
        assert tab.tab.evaluate("document.querySelector('main').scrollHeight") == height  # nothing jumps
        writing.join(patience(WAIT_SECONDS))
        tab.until(lambda: tab.tab.locator("#state").inner_text() == "completed")
        tab.until(lambda: tab.stat("steps") == "1,500")
        tab.until(lambda: tab.silent(2.5))


@pytest.mark.full
def test_zooming_asks_for_single_steps(page: str, look: Open) -> None:
    """Of 20,000 steps a few hundred points are drawn; of a hundred of them, every one; and back again."""
    tab = look(page)
    tab.show(run="long")
    assert 300 <= len(tab.points("loss", "agent 0")) <= 400
    for most in (2000, 200):  # of the steps that are then in view
        tab.until(lambda: tab.silent(0.5))  # what is drawn anew takes no mouse
        box = tab.tab.locator("[data-chart='loss'] .nsewdrag").first.bounding_box()
        middle = box["y"] + box["height"] / 2
        tab.tab.mouse.move(box["x"] + 0.50 * box["width"], middle)
        tab.tab.mouse.down()
        tab.tab.mouse.move(box["x"] + 0.57 * box["width"], middle, steps=4)
        tab.tab.mouse.up()
        zoomed = tab.until(
            lambda most=most: (x := tab.points("loss", "agent 0")) and max(x) - min(x) < most and x
        )
    assert zoomed == list(range(int(zoomed[0]), int(zoomed[-1]) + 1))
    tab.tab.mouse.dblclick(box["x"] + box["width"] / 2, middle)
    tab.until(lambda: max(tab.points("loss", "agent 0")) == 19_999)
    tab.tab.locator(".choice label", has_text="time").click()
    tab.until(lambda: "[s]" in tab.tab.locator("[data-chart='loss'] .xtitle").text_content())
    assert max(tab.points("loss", "agent 0")) == pytest.approx(40.0, abs=0.1)


def test_runs_stand_side_by_side(page: str, look: Open) -> None:
    """A second run is chosen: its curve, and its figures in the table; views and runs change the address."""
    tab = look(page)
    tab.show()
    tab.tab.locator("nav a", has_text="Compare").click()
    tab.until(lambda: tab.tab.locator("[data-chart='beside_loss'] .main-svg").count())
    assert "view=compare" in tab.tab.url
    tab.tab.locator(".choice.wide .dash-dropdown").click()
    for name in ("gossip", "long"):
        option = tab.tab.locator(".dash-dropdown-content label", has_text=name)
        if not option.locator("input").is_checked():
            option.click()
        tab.until(lambda option=option: option.locator("input").is_checked())
        tab.until(lambda name=name: tab.points("beside_loss", name))
    tab.tab.keyboard.press("Escape")
    for name in ("servers", "gossip", "long"):
        tab.until(lambda name=name: tab.points("beside_loss", name))
    table = tab.tab.locator("main table")
    tab.until(lambda: all(name in table.inner_text() for name in ("servers", "gossip", "long", "20000")))
    tab.tab.locator("#run").click()
    tab.tab.locator(".dash-dropdown-content label", has_text="gossip").click()
    tab.until(lambda: "run=gossip" in tab.tab.url and "view=compare" in tab.tab.url)


@pytest.mark.full
def test_the_runs_of_a_series_stand_side_by_side(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, look: Open
) -> None:
    """`d5ray dashboard SERIES` opens its last complete run, which is compared with the others of it alone."""
    monkeypatch.setenv("D5RAY_HOME", str(tmp_path))
    for name, series in (("first", "both"), ("second", "both"), ("third", "both"), ("stranger", None)):
        made = Made(tmp_path / "runs", name, agents=1, steps=20, series=series)
        made.write(20)
        made.close()
    names = ["first", "second", "third"]
    kept = RunSeries(tmp_path / "series" / "both")
    kept.write({"purpose": "seeds", "runs": [], "status": "running"})
    with pytest.raises(ConfigurationError, match="both has no complete run yet"):
        server.prepared("both")
    kept.write({"purpose": "seeds", "runs": names, "status": "completed"})
    with serving(tmp_path / "runs", "both") as address:
        tab = look(address)
        tab.show()
        assert "third" in tab.tab.locator("header").inner_text()
        tab.turn("compare")
        for name in names:
            tab.until(lambda name=name: tab.points("beside_loss", name))
        assert "stranger" not in tab.tab.locator("main").inner_text()


@pytest.mark.full
def test_topology_shows_servers_staleness_and_traffic(page: str, look: Open) -> None:
    """Agents and servers by name, bytes on the links, colours by what the viewer chooses."""
    tab = look(page)
    tab.show("topology")
    assert tab.tab.locator("[data-chart='graph'] .annotation-text").count() == 8
    rows = tab.tab.locator("main table tbody tr")
    told = rows.all_inner_texts()
    assert len(told) == 16 and all(
        any(f"{actor}\t" in row for row in told) for actor in ("server 1", "agent 3")
    )
    bar = "[data-chart='graph'] .cbtitle"
    assert "distance" in tab.tab.locator(bar).text_content()
    tab.tab.locator(".choice label", has_text="staleness").click()
    tab.until(lambda: "staleness" in tab.tab.locator(bar).text_content())
    assert tab.points("staleness", "trace 0") or tab.tab.locator("[data-chart='staleness'] .point").count()


@pytest.mark.full
def test_samples_are_filtered_and_sql_is_answered(page: str, look: Open) -> None:
    """Filters and pages of the table; an answer, an error and a refusal of SQL, as DuckDB says them."""
    tab = look(page)
    tab.show("data", run="long")
    tab.until(lambda: "of 520," in tab.tab.locator("#place").inner_text())
    tab.tab.locator("#filter-metric").click()
    tab.tab.locator(".dash-dropdown-content label", has_text=re.compile("^loss$")).click()
    tab.tab.locator("#filter-last").fill("9")
    tab.tab.keyboard.press("Enter")
    tab.until(lambda: tab.tab.locator("#place").inner_text() == "1 to 20 of 20")
    assert {row.split("\t")[3] for row in tab.tab.locator("#samples tbody tr").all_inner_texts()} == {"loss"}

    def answer(query: str) -> str:
        tab.tab.locator("#query").fill(query)
        before = tab.tab.locator("#answer").inner_text()
        tab.tab.locator("#ask").click()
        return str(tab.until(lambda: (now := tab.tab.locator("#answer").inner_text()) != before and now))

    assert "20000" in answer("select count(*) from samples where metric = 'loss' and rank = 1")
    assert "syntax error" in answer("selec 1")
    assert "failed" in answer(f"copy samples to '{Path.home() / 'stolen.csv'}'")
    assert "failed" in answer("select * from read_csv('/etc/passwd')")
    assert not (Path.home() / "stolen.csv").exists()


@pytest.mark.full
def test_text_of_a_run_stays_text(tmp_path: Path, look: Open) -> None:
    """HTML and script in a run's rows, events, criteria and reasons are shown as they are, on every view."""
    run = Made(tmp_path, "hostile", steps=50, stop_reason=HOSTILE, git=HOSTILE, graph=json.dumps(
        {"name": HOSTILE, "directed": False, "positions": [], "edges": [[0, 1]]}
    ))  # fmt: skip
    recorder = run.recorders[0]
    recorder.declare(HOSTILE, "1")
    for step in range(3):
        recorder.record(HOSTILE, float(step), step=step, phase=HOSTILE, scope=HOSTILE, status=HOSTILE)
    recorder.event(HOSTILE, step=1, why=HOSTILE)
    recorder.event("agent_died", reason=HOSTILE)
    run.write(50)
    run.verdict({"run_id": "hostile", "metric": HOSTILE, "unit": HOSTILE, "relation": ">=", "target": 1.0,
                 "n": 1, "verdict": "FAIL", "reason": HOSTILE})  # fmt: skip
    run.close(verdict="FAIL")
    with serving(tmp_path, "hostile") as address:
        tab = look(address)
        tab.show("data")
        for view in VIEWS:
            tab.turn(view) if view != "data" else tab.show(view)
            if view == "data":
                tab.tab.wait_for_selector("#samples tbody tr")
                tab.tab.locator("#filter-text").fill("onerror")
                tab.tab.keyboard.press("Enter")
            tab.tab.wait_for_timeout(100)
            assert tab.tab.title() == "d5ray"
            assert tab.tab.locator("main img, main script").count() == 0
            if view in ("overview", "topology", "events", "data"):
                tab.until(lambda: HOSTILE in tab.tab.locator("main").inner_text())
        tab.turn("steps")
        tab.tab.locator(".choice.wide .dash-dropdown").click()
        tab.tab.locator(".dash-dropdown-content label", has_text="<img").click()
        tab.until(
            lambda: "<img" in (tab.tab.locator("[data-chart='any_metric'] .ytitle").text_content() or "")
        )
        assert tab.tab.title() == "d5ray" and tab.tab.locator("main img").count() == 0


@pytest.mark.full
def test_runs_that_cannot_be_shown_say_why(tmp_path: Path, look: Open) -> None:
    """A run that is not there, of a newer version, half written, or no view: one sentence each."""
    Made(tmp_path, "sound", steps=5).close()
    newer = Made(tmp_path, "newer", steps=5, d5ray_version="99.0")
    newer.write(5)
    newer.close()
    file = tmp_path / "newer" / "samples.parquet"
    pq.write_table(pq.read_table(file).drop_columns(["scope"]), file)
    half = Made(tmp_path, "half", steps=5)
    half.write(5)
    half.writer.leave()
    whole = (tmp_path / "half" / "samples.arrows").read_bytes()
    (tmp_path / "half" / "samples.arrows").write_bytes(whole[: len(whole) // 2])
    with serving(tmp_path, "sound") as address:
        tab = look(address)
        for run, message in (
            ("nosuch", "There is no run 'nosuch'"), ("newer", "look at it with that version"),
        ):  # fmt: skip
            tab.show(run=run)
            assert message in tab.tab.locator(".error").inner_text()
        tab.show("nosuch")
        assert "There is no view" in tab.tab.locator(".error").inner_text()
        tab.show(run="half")
        assert tab.stat("rows") not in ("–", "195")  # what is whole of it


@pytest.mark.parametrize("width", WIDTHS)
def test_every_view_is_drawn(page: str, look: Open, width: str, tmp_path: Path) -> None:
    """Every view at this width, with units on all axes and nothing beyond the edge; a screenshot of each.

    They are written to D5RAY_SCREENSHOTS, where that is set.
    """
    folder = Path(os.environ.get("D5RAY_SCREENSHOTS", tmp_path))
    tab = look(page, width)
    tab.show("events")
    for view in VIEWS:
        tab.turn(view)
        titles = [
            title
            for chart in tab.tab.locator("[data-chart]").all()
            for title in chart.locator(".xtitle, .ytitle").all_text_contents()
        ]
        words = {"agent"}  # of an axis with names
        assert all(re.search(r"\[.+\]$", title) for title in titles if title not in words), titles
        assert bool(titles) == (view != "data")
        assert tab.tab.evaluate("document.documentElement.scrollWidth") == WIDTHS[width][0]
        if view == "data":
            tab.until(lambda: tab.tab.locator("#samples tbody tr").count())
        tab.tab.screenshot(path=folder / f"{view}-{width}.png", full_page=True)
        assert (folder / f"{view}-{width}.png").stat().st_size > 10_000


@pytest.mark.full
def test_the_page_is_dark_where_the_viewer_wants_it(page: str, look: Open) -> None:
    """The ground of the page and the text of the charts follow the viewer's scheme."""
    seen = {}
    for scheme in ("light", "dark"):
        tab = look(page, scheme=scheme)
        tab.show()
        seen[scheme] = tab.tab.evaluate(
            "[getComputedStyle(document.body).backgroundColor,"
            " getComputedStyle(document.querySelector('[data-chart=loss] .xtitle')).fill]"
        )
    brightness = {
        scheme: [sum(map(int, re.findall(r"\d+", colour)[:3])) for colour in colours]
        for scheme, colours in seen.items()
    }
    assert brightness["light"][0] > 600 > 200 > brightness["dark"][0]
    assert brightness["light"][1] < 200 < 600 < brightness["dark"][1]


@pytest.mark.full
def test_nothing_comes_from_elsewhere(page: str, look: Open) -> None:
    """All that the browser fetches comes from the page's own address."""
    tab = look(page)
    tab.show()
    tab.turn("data")
    assert len(tab.asked) > 10
    assert {url.split("/")[2] for url in tab.asked if url.startswith("http")} == {page.split("/")[2]}


@pytest.mark.slow
def test_a_run_on_ray_is_followed(tmp_path: Path, look: Open) -> None:
    """A real training of two agents: its steps are seen to grow, its verdict to come, and its topology."""
    environment = os.environ | {"D5RAY_HOME": str(tmp_path)}
    settings = ("agents=2", "communicator=socket")
    command = [sys.executable, "-m", "d5ray", "run", "digits_lenet", "--json"]
    command += [word for setting in settings for word in ("--set", setting)]
    with (tmp_path / "log").open("wb") as log:
        run = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
    try:
        rows = (tmp_path / "runs").glob
        wait_until(lambda: any(rows("*/samples.arrows")) or run.poll() is not None, 120)
        assert run.poll() is None, (tmp_path / "log").read_text()
        with serving(tmp_path / "runs", "last") as address:
            tab = look(address)
            tab.show()
            seen = {tab.until(lambda: (now := tab.stat("steps")) != "–" and now)}
            tab.until(lambda: len(seen.add(tab.stat("steps")) or seen) >= 3)  # type: ignore[func-returns-value]
            assert "so far" in tab.tab.locator("[id*=verdict] h2").inner_text()
            assert run.wait(patience(240)) in (0, 1, 2)
            tab.until(lambda: "completed" in tab.tab.locator("#state").inner_text())
            word = Run.find("last", tmp_path / "runs").row["verdict"]
            assert word in tab.tab.locator("#state").inner_text()
            tab.turn("topology")
            assert tab.tab.locator("[data-chart='graph'] .annotation-text").count() == 1
    finally:
        run.terminate()
        run.wait(patience(60))
