"""What d5ray costs: its agents against the same training in plain PyTorch, side by side.

    d5ray run benchmarks/overhead_lenet        or        python -m benchmarks.overhead_lenet.recipe

LeNet on the digits. One agent, without events and with all ready ones that go with it, runs against a loop
written by hand, two agents, which exchange over sockets, against two processes of `DistributedDataParallel`
over gloo; all read the loss at every step and use the same number of threads. What an event does after an
epoch, such as a checkpoint, belongs to no step. The unit is a pair of fresh processes, alternately first; ten
pairs take some minutes.
"""

import d5ray as d5
from benchmarks.step_lenet import recipe as step_lenet
from benchmarks.trainers import Agents, DataParallel, HandWritten
from d5ray.kits.laboratory.metrics.side_by_side import RecordingShare, StepTimeRatio
from d5ray.recipes.engine.command import main

LISTED = ("benchmarks", "5 minutes")  # by `d5ray list`; on two cores

EVENTS = (  # none of which ends the run
    d5.events.StopAfterSeconds(1e6),
    d5.events.StopAfterSteps(10**9),
    d5.events.StopAtPlateau("loss", patience=10**6),
    d5.events.StopAtNaN(every_steps=100),
    d5.events.LearningCurves(),
    d5.events.SaveWrongSamples(),
    d5.events.Checkpoint(),
)

# Fixed components: whoever competes keeps them
FIXED = step_lenet.FIXED | {
    "comparisons": (
        (Agents(1), HandWritten(), Agents(1, events=EVENTS)),
        (Agents(2, "socket"), DataParallel(2)),
    ),
}

# Mutable components: how much is measured
MUTABLE = step_lenet.MUTABLE | {"steps": 630, "warmup_steps": 50, "pairs": 10}

# Acceptable metrics
METRICS = [
    StepTimeRatio(ours="d5ray[1]", base="pytorch[1]") <= 1.02,
    StepTimeRatio(ours="d5ray with events[1]", base="pytorch[1]") <= 1.01,
    StepTimeRatio(ours="d5ray socket[2]", base="ddp[2]") <= 1.00,
    RecordingShare("d5ray[1]") <= 0.01,
    RecordingShare("d5ray socket[2]") <= 0.01,
]

if __name__ == "__main__":
    main(FIXED, MUTABLE, METRICS)
