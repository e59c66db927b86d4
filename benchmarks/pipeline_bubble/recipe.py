"""The bubble of pipelines beside its formula: 2, 3 and 4 stages, 4, 8 and 16 micro-batches, every schedule.

    d5ray run benchmarks/pipeline_bubble        or        python -m benchmarks.pipeline_bubble.recipe

A multilayer perceptron with a layer a stage, on agents that have a device each, as it were: a stage computes,
and then waits for 10 ms, forwards and backwards, in which the core is free. So more stages than cores run as
they would with a device each, and what is more than the formula is what d5ray takes: messages, and all that
happens between two turns. A pass of 4 stages and 16 micro-batches lasts (16 + 4 − 1) · 20 ms by the formula.
The bubble is the share of a pass in which a stage neither computes nor hands over what it made, on average
over the stages (arXiv:2104.04473). It may be what the schedule comes to on paper when a message takes 2 ms,
beside which the formula has none. The unit is a round of fresh processes, forwards and backwards in turn.
"""

import d5ray as d5
from benchmarks.pipeline_bubble.job import OnDevices, PipelineBubbles
from benchmarks.pipeline_bubble.metrics import BubbleShareOf
from d5ray.recipes.engine.command import main

LISTED = ("benchmarks", "9 minutes")  # by `d5ray list`; on two cores

DEVICE_SECONDS = 0.01
MESSAGE_SECONDS = 0.002
PIPELINES = (
    *(OnDevices(d5.pipelines.OneFOneB(), stages, micro) for stages in (2, 3, 4) for micro in (4, 8, 16)),
    OnDevices(d5.pipelines.NaiveModelParallelism(), 4, 4),
    OnDevices(d5.pipelines.GPipe(), 4, 8),
    OnDevices(d5.pipelines.Interleaved(2), 4, 8),
)

# Fixed components: whoever competes keeps them
FIXED = {
    "job": PipelineBubbles,
    "comparisons": (PIPELINES,),
    "device_seconds": DEVICE_SECONDS,
}

# Mutable components: how much is measured
MUTABLE = {
    "samples": 2,  # of a micro-batch
    "steps": 10,  # measured, of every process
    "warmup_steps": 2,
    "pairs": 6,
    "seed": 1,
}

# Acceptable metrics
METRICS = [
    BubbleShareOf(each.name) <= round(each.on_paper(DEVICE_SECONDS, MESSAGE_SECONDS), 4) for each in PIPELINES
]

if __name__ == "__main__":
    main(FIXED, MUTABLE, METRICS)
