"""A run as TensorBoard's event files: `tensorboard --logdir PATH`

One folder for each agent, so that TensorBoard draws the agents' curves of a metric into one plot; the tag is
`phase/metric`. A value that is null is left out. What the run is stands in `experiment.json` beside them.
"""

from pathlib import Path
from typing import Any, ClassVar, final

from d5ray.metrics.exports.curves import curves, words
from d5ray.metrics.exports.exporter import WholeExporter, needed
from d5ray.metrics.record.reader import Run


@final
class TensorBoardExporter(WholeExporter):
    """An exporter that writes a log directory of TensorBoard."""

    name: ClassVar[str] = "tensorboard"
    ending: ClassVar[str] = "-tensorboard"

    def write(self, run: Run, target: Path) -> None:
        files: Any = needed("tensorboard.summary.writer.event_file_writer", "TensorBoard")
        events: Any = needed("tensorboard.compat.proto.event_pb2", "TensorBoard")
        summaries: Any = needed("tensorboard.compat.proto.summary_pb2", "TensorBoard")
        target.mkdir()
        (target / "experiment.json").write_text(run.row["experiment"] or "{}", encoding="utf-8")
        writers: dict[str, Any] = {}
        try:
            for curve in curves(run):
                who = words(curve.agent).replace("/", "_")
                if who not in writers:
                    writers[who] = files.EventFileWriter(str(target / who))
                tag = words(curve.phase, curve.metric, curve.scope)
                for step, value, instant in zip(curve.steps, curve.values, curve.instants, strict=True):
                    summary = summaries.Summary(
                        value=[summaries.Summary.Value(tag=tag, simple_value=float(value))]
                    )
                    writers[who].add_event(
                        events.Event(wall_time=instant / 1e9, step=int(step), summary=summary)
                    )
        finally:
            for writer in writers.values():
                writer.close()
