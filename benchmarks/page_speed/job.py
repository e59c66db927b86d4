"""The job that looks at the live page: a long run, its server, and a browser that says when all is drawn"""

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

import numpy as np

from benchmarks.page_speed.metrics import PAGE_TIME
from d5ray.agent.records import STEP_METRICS
from d5ray.checks import check_count
from d5ray.errors import AgentError, ConfigurationError
from d5ray.metrics.record.columns import expand
from d5ray.metrics.record.recorder import Recorder
from d5ray.metrics.record.store import RunWriter
from d5ray.recipes.engine.comparisons import processes
from d5ray.recipes.engine.comparisons.contenders import Contender, RankSeries
from d5ray.recipes.engine.comparisons.side_by_side import SideBySide

if TYPE_CHECKING:
    from d5ray.actors.session.session import Session

HASHED_AS = "d5ray.recipes.page_views"  # where the first runs knew it

NAME = "long"
WIDTH = len(STEP_METRICS)
STEP_NS = 2_000_000
BLOCK = 2000  # steps whose values are drawn at once
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
WAIT_SECONDS, END_SECONDS = 30.0, 10.0
VIEWS = ("steps", "topology", "timeline", "data")

# In the page, from its beginning on: the moment at which every chart of the first view stands there.
WATCH = """
window.drawn = null;
(function look() {
  const charts = [...document.querySelectorAll('[data-chart]')];
  if (charts.length && charts.every(e => e.querySelector('.main-svg .infolayer'))) {
    window.drawn = performance.now();
  } else {
    requestAnimationFrame(look);
  }
})();
"""
# Zooms a chart, and gives the milliseconds until only points of that part are drawn.
ZOOM = """([low, high]) => new Promise((done, failed) => {
  const chart = document.querySelector('[data-chart="loss"] .js-plotly-plot');
  const begin = performance.now();
  window.Plotly.relayout(chart, {'xaxis.range[0]': low, 'xaxis.range[1]': high});
  (function look() {
    const x = chart.data[chart.data.length - 1].x;
    if (x[0] >= low && x[x.length - 1] <= high) done(performance.now() - begin);
    else if (performance.now() > begin + 20000) failed('no finer points came');
    else requestAnimationFrame(look);
  })();
})"""
# Clicks there, and gives the milliseconds until the view is drawn, or all charts are over time.
CLICK = """([selector, view]) => new Promise((done, failed) => {
  document.querySelectorAll('main > *').forEach(e => e.dataset.old = 1);
  const begin = performance.now();
  document.querySelector(selector).click();
  (function look() {
    const charts = [...document.querySelectorAll('[data-chart]')];
    const fresh = !document.querySelector('[data-old]') && document.querySelector('main .panel') &&
      charts.every(e => e.querySelector('.main-svg .infolayer')) &&
      (view !== 'data' || document.querySelector('#samples tbody tr'));
    const changed = charts.length && charts.every(e =>
      /time since/.test(e.querySelector('.xtitle')?.textContent ?? 'time since'));
    if (view ? fresh : changed) done(performance.now() - begin);
    else if (performance.now() > begin + 20000) failed('it was not drawn');
    else requestAnimationFrame(look);
  })();
})"""


@final
@dataclass(frozen=True, kw_only=True)
class PageViews(SideBySide):
    """A browser that looks at the page of a long run. Wrong values raise `ConfigurationError`.

    rows     of the run, at least
    agents   that have written them
    zooms    the number of parts of the loss that are looked at, each a tenth of the whole or less
    """

    rows: int = 10_000_000
    agents: int = 8
    zooms: int = 6

    def check(self) -> None:
        for name in ("rows", "agents", "zooms"):
            check_count(name, getattr(self, name), 1)
        for contender in self.contenders():
            if not isinstance(contender, Chromium):
                raise ConfigurationError(f"comparisons has {contender!r}: it must be Chromium()")

    def connect(self, address: str | None, metadata: dict[str, str], quiet: bool) -> "Session":
        return processes.without_ray(address)


@final
@dataclass(frozen=True)
class Chromium(Contender[PageViews]):
    """Debian's Chromium, led by Playwright, on the page that `d5ray dashboard` serves."""

    processes: int = 1

    @property
    def name(self) -> str:
        return "page[1]"

    def missing(self) -> str:
        if browser() is None:
            return "no Chromium is installed: apt install chromium"
        absent = [name for name in ("dash", "playwright") if find_spec(name) is None]
        return f"{' and '.join(absent)} not installed: pip install 'd5ray[dev]'" if absent else ""

    def measure(self, job: PageViews, folder: Path) -> list[RankSeries]:
        home = folder.parent / "home"  # of all rounds: making the run takes longer than looking at it
        steps = -(-job.rows // (WIDTH * job.agents))
        if not (home / "runs" / NAME / "samples.parquet").exists():
            made(home / "runs", job.agents, steps, job.seed)
        with served(home) as address:
            found = looked(address, steps, job.zooms)
        return [RankSeries(PAGE_TIME, "s", 0, values, phase="run", at=what) for what, values in found.items()]


def browser() -> str | None:
    """Where a Chromium is installed."""
    return next(filter(None, map(shutil.which, BROWSERS)), None)


def made(root: Path, agents: int, steps: int, seed: int) -> None:
    """A complete run of that many agents and steps, whose values all differ."""
    shutil.rmtree(root / NAME, ignore_errors=True)
    writer = RunWriter(root, NAME)
    writer.open({"started": datetime.now(UTC), "agents": agents, "recipe": NAME})
    now = 0
    recorders = [
        Recorder(
            run_id=NAME, agent=f"TrainingAgent(rank={rank})", rank=rank, node="here", send=writer.append,
            send_frames=lambda batch: writer.append(expand(batch)), now=lambda: now,
            wall_minus_mono=time.time_ns(), batch_rows=1 << 20, interval_seconds=1e9,
        )
        for rank in range(agents)
    ]  # fmt: skip
    frames = [recorder.frame(tuple(STEP_METRICS)) for recorder in recorders]
    generator = np.random.default_rng(seed)
    for first in range(0, steps, BLOCK):
        block = min(BLOCK, steps - first)
        noise = generator.lognormal(0.0, 0.4, size=(agents, block, WIDTH))
        typical = [1.0, 2e-3, 1e-4, 6e-4, 7e-4, 3e-4, 1e-4, 1e-5, 32.0, 16000.0, 1e5, 1e5, 4.0]
        values = noise * typical
        values[:, :, 0] *= 2.3 * np.exp(-3.0 * np.arange(first, first + block) / steps)
        for frame, recorder, own in zip(frames, recorders, values.tolist(), strict=True):
            for at, row in enumerate(own):
                step = first + at
                frame.append(step, step // 1000, "train", tuple(row), (step + 1) * STEP_NS)
            recorder.flush()
    writer.update_run(status="completed", ended=datetime.now(UTC), steps=steps)
    writer.close()


@contextmanager
def served(home: Path) -> Iterator[str]:
    """The address of a page on the runs of this home, from a process of its own."""
    command = [sys.executable, "-m", "d5ray", "dashboard", NAME, "--port", "0"]
    environment = os.environ | {"D5RAY_HOME": str(home)}
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)
    assert process.stderr is not None
    try:
        lines = []
        for line in process.stderr:
            lines.append(line)
            if address := re.search(r"http://\S+", line):
                yield address.group()
                return
        raise AgentError("d5ray dashboard did not start:\n" + "".join(lines))
    finally:
        process.terminate()
        try:
            process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stderr.close()


def looked(address: str, steps: int, zooms: int) -> dict[str, list[float]]:
    """What a viewer waited for, in seconds: a first view, then one change after the other."""
    from playwright.sync_api import sync_playwright  # noqa: PLC0415 - for those who measure

    found: dict[str, list[float]] = {}
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(
            executable_path=browser(), args=["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
        )
        tab = started.new_page(viewport={"width": 1280, "height": 900})
        tab.set_default_timeout(WAIT_SECONDS * 1e3)
        tab.add_init_script(WATCH)
        tab.goto(address)
        found["first view"] = [_until(tab, "window.drawn") / 1e3]
        tab.wait_for_timeout(500)  # a viewer looks before he does something
        found["zoom"] = []
        for zoom in range(zooms):
            length = steps / 10 ** (1 + zoom % 3)
            low = (0.1 + 0.7 * zoom / zooms) * steps
            found["zoom"].append(tab.evaluate(ZOOM, [round(low), round(low + length)]) / 1e3)
            tab.wait_for_timeout(300)
        found["axis"] = [tab.evaluate(CLICK, [".choice input[value=seconds]", ""]) / 1e3]
        tab.wait_for_timeout(500)
        for view in VIEWS:
            found[f"view {view}"] = [tab.evaluate(CLICK, [f"nav a[href*='view={view}']", view]) / 1e3]
            tab.wait_for_timeout(500)
        started.close()
    return found


def _until(tab: Any, expression: str) -> float:
    """What an expression gives in the page as soon as it is something."""
    end = time.monotonic() + WAIT_SECONDS
    while (value := tab.evaluate(expression)) is None:
        if time.monotonic() > end:
            raise AgentError(f"the page was not drawn within {WAIT_SECONDS:g} s")
        tab.wait_for_timeout(20)
    return float(value)
