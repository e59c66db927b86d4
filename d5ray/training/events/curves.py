"""The event that draws how a training goes: loss and accuracy by epoch, on training and test samples"""

import html
import math
from collections.abc import Iterator, Sequence
from typing import final

import numpy as np

from d5ray.checks import check_count
from d5ray.training.batches.loader import pieces_to_test
from d5ray.training.datasets.samples import Subset
from d5ray.training.events.event import Event
from d5ray.training.events.moment import Moment

NAME = "learning_curves.svg"
WIDTH, HEIGHT, MARGIN, TOP = 400.0, 240.0, 52.0, 56.0  # of one panel, in pixels
INK, FAINT, GRID = "#1a202c", "#52606d", "#e2e8f0"
TRAINING, TEST = "#0072b2", "#d55e00"  # Okabe and Ito
Points = list[tuple[float, float]]


@final
class LearningCurves(Event):
    """Evaluates some training samples after every epoch beside those held out, and draws both.

    Every agent records `training_loss` and `training_accuracy`; the first one writes `learning_curves.svg`
    into the run's folder. What a network cannot do on samples it has trained on, and what it can do there
    but not on others, is seen at a glance.

    samples: of the training split, always the same, drawn from it at equal distances; they get those of the
        transformations that test samples get.
    """

    records = ("training_loss", "training_accuracy")

    def __init__(self, samples: int = 1024) -> None:
        check_count("samples", samples)
        self.samples = samples

    def before_run(self, moment: Moment) -> None:
        if not hasattr(self, "_curves"):
            self._curves: dict[str, Points] = {"training_loss": [], "training_accuracy": []}
            self._curves |= {"test_loss": [], "test_accuracy": []}

    def after_epoch(self, moment: Moment) -> None:
        train = moment.dataset.train
        some = np.linspace(0, len(train) - 1, min(self.samples, len(train))).round().astype(np.int64)
        found = moment.executor.evaluate_pieces(pieces_to_test(Subset(train, some), moment.transformations))
        epoch = float(moment.epoch + 1)
        for name, value in (("training_loss", found.loss), ("training_accuracy", found.accuracy)):
            if not math.isnan(value):
                moment.record(name, value)
                self._curves[name].append((epoch, value))
        if moment.evaluation is not None:
            self._curves["test_loss"].append((epoch, moment.evaluation.loss))
            self._curves["test_accuracy"].append((epoch, moment.evaluation.accuracy))

    def after_run(self, moment: Moment) -> None:
        if moment.rank == 0 and self._curves["training_loss"]:
            moment.keep(NAME, drawing(self._curves, moment.dataset.held_out_name).encode())


def drawing(curves: dict[str, Points], held_out: str = "test") -> str:
    """An SVG with a panel for the losses and one for the accuracies, each over the epochs."""
    panels = []
    for number, quality in enumerate(("loss", "accuracy")):
        training, test = curves[f"training_{quality}"], curves[f"test_{quality}"]
        panels += list(_panel(number * (WIDTH + 2 * MARGIN), quality, training, (held_out, test)))
    width, height = 2 * (WIDTH + 2 * MARGIN), HEIGHT + TOP + MARGIN
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" role="img" width="{width:.0f}" height="{height:.0f}" '
            f'viewBox="0 0 {width:.0f} {height:.0f}" font-family="system-ui, Helvetica, Arial, sans-serif">',
            "<title>Learning curves</title>",
            '<rect width="100%" height="100%" fill="white"/>',
            *panels,
            "</svg>\n",
        ]
    )


def _panel(left: float, quality: str, training: Points, held_out: tuple[str, Points]) -> Iterator[str]:
    name_of_test, test = held_out
    points = [point for curve in (training, test) for point in curve if math.isfinite(point[1])]
    if not points:
        return
    ticks = _ticks(min(y for _, y in points), max(y for _, y in points))
    last = max(x for x, _ in points)
    x0, y0 = left + MARGIN, TOP + HEIGHT

    def place(point: tuple[float, float]) -> tuple[float, float]:
        x = x0 + WIDTH * (point[0] - 1) / max(1.0, last - 1)
        return x, y0 - HEIGHT * (point[1] - ticks[0]) / (ticks[-1] - ticks[0])

    for tick in ticks:
        y = place((1.0, tick))[1]
        yield f'<path d="M{x0:.1f} {y:.1f}h{WIDTH:.0f}" stroke="{GRID}"/>'
        yield _text(x0 - 8, y + 4, f"{tick:.4g}", "end")
    for epoch in sorted({1, round((1 + last) / 2), round(last)}):
        yield _text(place((epoch, ticks[0]))[0], y0 + 18, str(epoch), "middle")
    yield _text(x0 + WIDTH / 2, y0 + 38, "epoch", "middle")
    yield _text(x0, TOP - 32, quality, "start", INK, 15)
    for at, (name, colour, curve) in enumerate(
        (("training", TRAINING, training), (name_of_test, TEST, test))
    ):
        if not curve:
            continue
        drawn = " ".join(f"{x:.1f},{y:.1f}" for x, y in map(place, curve) if math.isfinite(y))
        yield f'<polyline points="{drawn}" fill="none" stroke="{colour}" stroke-width="2"/>'
        if len(curve) == 1:
            x, y = place(curve[0])
            yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>'
        label = f"{name} {curve[-1][1]:.4g}"
        yield _text(x0 + WIDTH - 130 * (1 - at), TOP - 12, label, "end", colour)


def _text(x: float, y: float, text: str, anchor: str, colour: str = FAINT, size: float = 11.5) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size:g}" text-anchor="{anchor}" fill="{colour}">'
        f"{html.escape(text)}</text>"
    )


def _ticks(low: float, high: float) -> Sequence[float]:
    """Some round numbers from at most low to at least high.

    >>> [float(tick) for tick in _ticks(0.13, 0.91)]
    [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
    """
    span = high - low or abs(high) or 1.0
    rough = span / 4
    unit = 10.0 ** math.floor(math.log10(rough))
    step = next(unit * m for m in (1, 2, 5, 10) if unit * m >= rough)
    begin, end = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(step * at, 12) for at in range(begin, max(end, begin + 1) + 1)]
