"""How long a viewer of the live page waits, with ten million rows: the first view, and every change.

    d5ray run benchmarks/page_speed        or        python -m benchmarks.page_speed.recipe

A run of eight agents with thirteen values a step is made once. In every round `d5ray dashboard` is started
afresh, and a fresh Chromium opens its address: from the navigation until all charts of the overview stand
there (the browser's own clock), then one zoom after the other, the change from steps to time, and the other
views, each for the first time. Nothing of a round before is kept. The unit is a fresh server and browser.
"""

from benchmarks.page_speed.job import Chromium, PageViews
from benchmarks.page_speed.metrics import PageTime
from d5ray.recipes.engine.command import main

LISTED = ("benchmarks", "2 minutes")  # by `d5ray list`; on two cores

# Fixed components: whoever competes keeps them
FIXED = {
    "job": PageViews,
    "comparisons": ((Chromium(),),),
    "rows": 10_000_000,
    "agents": 8,
}

# Mutable components: how much is measured
MUTABLE = {
    "zooms": 6,
    "pairs": 8,
    "seed": 1,
}

# Acceptable metrics
METRICS = [
    PageTime("page[1]", "first view") <= 2.0,
    PageTime("page[1]", "zoom") <= 0.5,
    PageTime("page[1]", "axis") <= 0.5,
    PageTime("page[1]", "view steps") <= 0.5,
    PageTime("page[1]", "view topology") <= 0.5,
    PageTime("page[1]", "view timeline") <= 0.5,
    PageTime("page[1]", "view data") <= 0.5,
]

if __name__ == "__main__":
    main(FIXED, MUTABLE, METRICS)
