"""Claims about runs that evaluate on a validation split: the page and the report show what they evaluated"""

import numpy as np
import pytest

import d5ray as d5
from d5ray.dashboards.page import charts, tables
from d5ray.dashboards.page.charts import ChartOptions
from d5ray.dashboards.page.runs import OpenRun
from d5ray.dashboards.report.sections import convergence
from d5ray.dashboards.report.subject import subject_of
from d5ray.metrics.views import key_figures


@pytest.mark.parametrize("evaluate_test", [False, True])
def test_the_accuracy_that_is_shown_is_of_the_split_that_was_evaluated(evaluate_test: bool) -> None:
    random = np.random.default_rng(0)
    inputs = random.standard_normal((90, 6)).astype(np.float32)
    labels = (inputs.sum(1) > 0).astype(np.int64)
    halves = [(inputs[begin : begin + 20], labels[begin : begin + 20]) for begin in (50, 70)]
    data = d5.from_arrays(inputs[:50], labels[:50], validation=halves[0], test=halves[1], classes=2)
    wanted = d5.Experiment(
        "mlp", data, model_kwargs={"hidden": (4,)}, optimizer=d5.optimizers.SGD(0.5), agents=2,
        batch_size=5, seed=1, recording=d5.metrics.Recording(warmup_steps=0), evaluate_test=evaluate_test,
    )  # fmt: skip
    with d5.simulate(wanted) as group:
        group.train(epochs=3, progress=False)
    run = d5.Run(group.folder)
    rows = [row for row in run.tables()["samples"].to_pylist() if row["metric"] == "validation_accuracy"]
    assert len(rows) == 2 * 3
    last = max(row["step"] for row in rows)
    shown = OpenRun(run)
    try:
        figure = charts.accuracy(shown, ChartOptions())
        found = {
            (trace["name"], *at)
            for trace in figure["data"]
            for at in zip(trace["x"], trace["y"], strict=True)
        }
        assert {round(y, 9) for _, _, y in found} == {round(100 * row["value"], 9) for row in rows}
        assert figure["layout"]["yaxis"]["title"]["text"] == "validation accuracy [%]"
        figures = shown.ask(key_figures.figures)
        assert figures["validation_accuracy"] == min(row["value"] for row in rows if row["step"] == last)
        tested = [row for row in run.tables()["samples"].to_pylist() if row["metric"] == "test_accuracy"]
        end = max(row["step"] for row in tested)
        assert len({row["step"] for row in tested}) == (3 if evaluate_test else 1)
        assert tables.accuracy(figures) == ("test", min(row["value"] for row in tested if row["step"] == end))
    finally:
        shown.close()
    subject = subject_of([str(group.folder)])
    try:
        setting = subject.settings[0]
        curves = convergence.curves(setting, "validation_accuracy", "step")
        assert sorted(value for curve in curves for value in curve.y) == sorted(row["value"] for row in rows)
        section = convergence.section(subject)
        assert section is not None
        assert "Validation accuracy" in repr(section)
    finally:
        subject.close()
