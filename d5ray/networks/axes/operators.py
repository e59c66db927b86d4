"""The axis maps of operators, by type: one table for micro-batches and for split networks"""

from collections.abc import Callable, Mapping

from d5ray.networks.axes import layers, shapes, values
from d5ray.networks.axes.axis_map import AxisMap
from d5ray.operators.nodes.node_context import NodeContext
from d5ray.ops.catalogue import GROUPS

POINTWISE = (
    *GROUPS["elementwise"], *GROUPS["comparison"], *GROUPS["activations"], "Cast", "Identity",
)  # fmt: skip
AXES: Mapping[str, Callable[[NodeContext], AxisMap]] = {
    **dict.fromkeys((*POINTWISE, "Dropout", "RandomNormalLike", "RandomUniformLike"), values.pointwise),
    **dict.fromkeys((*GROUPS["softmaxes"], "LpNormalization", "TopK"), values.along_one_axis),
    **dict.fromkeys((each for each in GROUPS["reductions"] if "Reduce" in each), values.reduced),
    **dict.fromkeys(("ArgMax", "ArgMin"), values.extreme),
    **dict.fromkeys(("LayerNormalization", "RMSNormalization"), values.last_axes),
    **dict.fromkeys(GROUPS["convolution"], layers.convolution),
    **dict.fromkeys(GROUPS["pooling"], layers.by_channel),
    **dict.fromkeys(("BatchNormalization", "GroupNormalization", "InstanceNormalization"), layers.by_channel),
    **dict.fromkeys(("LRN", "DepthToSpace", "SpaceToDepth"), layers.by_sample),
    **dict.fromkeys(GROUPS["recurrent"], layers.recurrent),
    **dict.fromkeys(("GatherElements", "ScatterElements"), shapes.elements),
    "Attention": layers.attention,
    "CastLike": shapes.first_alone,
    "Concat": shapes.concat,
    "CumSum": values.cumulative,
    "Einsum": layers.einsum,
    "Flatten": shapes.flatten,
    "Gather": shapes.gather,
    "Gemm": layers.gemm,
    "MatMul": layers.matrix_product,
    "MeanVarianceNormalization": values.mean_variance,
    "OneHot": shapes.one_hot,
    "Pad": shapes.pad,
    "Resize": shapes.resize,
    "RotaryEmbedding": layers.rotary_embedding,
    "Slice": shapes.slices,
    "Split": shapes.split,
    "Squeeze": shapes.squeeze,
    "Tile": shapes.tile,
    "Transpose": shapes.transpose,
    "Trilu": values.triangle,
    "Unsqueeze": shapes.unsqueeze,
}


def axes_of(context: NodeContext) -> AxisMap:
    """The axis map of a node whose type is in `AXES`. Raises `CannotDivide` where it is not known."""
    return AXES[context.node.type](context)
