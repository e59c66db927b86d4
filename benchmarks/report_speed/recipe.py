"""How long a report takes: one page about ten finished runs, by the command that people use.

    d5ray run benchmarks/report_speed        or        python -m benchmarks.report_speed.recipe

Ten runs of two agents are written as agents write them: five with one learning rate, five with another, so
that the report has curves, intervals, the parts of steps and a comparison. Then `d5ray report` is run as a
program of its own; its start and the drawing of all figures are part of the time. Before a time counts, the
page must have the number of steps and all sections. The unit is a fresh process, with a home of its own.
"""

from benchmarks.report_speed.job import Page, Reports
from benchmarks.report_speed.metrics import ReportTime
from d5ray.recipes.engine.command import main

LISTED = ("benchmarks", "4 minutes")  # by `d5ray list`; on two cores

SIZES = ("36 thousand rows", "1 million rows")

# Fixed components: whoever competes keeps them
FIXED = {
    "job": Reports,
    "comparisons": ((Page(),),),
    "runs": 10,
    "agents": 2,
}

# Mutable components: how much is measured
MUTABLE = {
    "sizes": SIZES,
    "pairs": 6,
    "seed": 1,
}

# Acceptable metrics
METRICS = [ReportTime("report[1]", size) <= 20 for size in SIZES]

if __name__ == "__main__":
    main(FIXED, MUTABLE, METRICS)
