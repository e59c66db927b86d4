"""Model parallelism: networks in stages and parts over several agents or processes, and pipelines of them"""

from typing import Final

_HERE: Final = "d5ray.kits.parallel"
_DOMAIN: Final = "d5ray.collective"
_SHAPES: Final = {
    "AllReduce": "unchanged",
    "AllReduceGradient": "unchanged",
    "AllGather": "gathered",
    "Scatter": "divided",
    "ReduceScatter": "divided",
    "Dropout": "unchanged",
}

_SHARED: Final = "set a mesh in which agents share a network, such as mesh=Mesh(1, stages=2)"
_METRICS: Final = {
    "bubble_share": "BubbleShare",
    "bubble_formula": "BubbleFormula",
    "stage_compute_time": "StageComputeTime",
    "stage_send_time": "StageSendTime",
    "stage_wait_time": "StageWaitTime",
    "stage_bytes_sent": "StageBytesSent",
    "part_bytes_sent": "PartBytesSent",
}

BRINGS: Final[dict[str, dict[str, str]]] = {
    "modules of metrics": {"parallel": f"{_HERE}.metrics"},  # and those in them
    "operators": {f"{_DOMAIN}.{type}": f"{_HERE}.collectives:implementation" for type in _SHAPES},
    "shapes of operators": {
        f"{_DOMAIN}.{type}": f"{_HERE}.collectives.nodes:{rule}" for type, rule in _SHAPES.items()
    },
    **{
        f"d5ray.frameworks.{name}": {"from_pieces": f"{_HERE}.executors:in_{name}"}
        for name in ("numpy", "torch", "tensorflow", "cupy", "jax")
    },
    "metrics": {name: f"{_HERE}.metrics:{kind}" for name, kind in _METRICS.items()},
    "agents that share a network record": dict.fromkeys(_METRICS, _SHARED),  # else what makes them do so
    "parts of an experiment": {
        "Mesh": f"{_HERE}.mesh.mesh:Mesh",
        "PipelineSchedule": f"{_HERE}.pipeline.schedule:PipelineSchedule",
        "Cutting": f"{_HERE}.stages.cut:Cutting",
        **{
            f"By{what}": f"{_HERE}.splitting.divisions:By{what}"
            for what in ("Columns", "Rows", "OutputChannels", "InputChannels", "Heads", "Samples")
        },
        "FullyConnectedSplit": f"{_HERE}.splitting.plans:FullyConnectedSplit",
        "TransformerSplit": f"{_HERE}.splitting.plans:TransformerSplit",
    },
}
