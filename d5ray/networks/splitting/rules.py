"""Rules by which operators pass on a division: of each that can be computed of parts"""

from collections.abc import Callable, Mapping

from d5ray.networks.splitting import rules_layers, rules_products, rules_shapes, rules_values
from d5ray.networks.splitting.place import Place
from d5ray.ops.catalogue import GROUPS

Rule = Callable[[Place], None]

POINTWISE = (
    *GROUPS["arithmetic"], *GROUPS["comparison"], *GROUPS["activations"], "Cast", "Identity",
)  # fmt: skip
# What is not here is computed whole.
RULES: Mapping[str, Rule] = {
    **dict.fromkeys(POINTWISE, rules_values.pointwise),
    **dict.fromkeys((*GROUPS["softmaxes"], "LpNormalization", "TopK"), rules_values.along_one_axis),
    **dict.fromkeys((each for each in GROUPS["reductions"] if "Reduce" in each), rules_values.reduced),
    **dict.fromkeys(("ArgMax", "ArgMin"), rules_values.extreme),
    **dict.fromkeys(("LayerNormalization", "RMSNormalization"), rules_values.last_axes),
    **dict.fromkeys(GROUPS["pooling"], rules_layers.pooling),
    **dict.fromkeys(("InstanceNormalization", "GroupNormalization"), rules_layers.by_channel),
    **dict.fromkeys(("LRN", "DepthToSpace", "SpaceToDepth"), rules_layers.by_sample),
    **dict.fromkeys(("MatMul", "Gemm"), rules_products.product),
    **dict.fromkeys(GROUPS["convolution"], rules_products.convolution),
    **dict.fromkeys(("Shape", "Size"), rules_shapes.sizes),
    "Attention": rules_layers.attention,
    "BatchNormalization": rules_layers.batch_normalization,
    "CastLike": rules_values.like_first,
    "Concat": rules_shapes.concat,
    "CumSum": rules_values.cumulative,
    "Dropout": rules_values.dropout,
    "Einsum": rules_products.einsum,
    "Expand": rules_shapes.expand,
    "Flatten": rules_shapes.flatten,
    "Gather": rules_shapes.gather,
    "Pad": rules_shapes.pad,
    "Reshape": rules_shapes.reshape,
    "RotaryEmbedding": rules_layers.rotary_embedding,
    "Slice": rules_shapes.slices,
    "Split": rules_shapes.split,
    "Squeeze": rules_shapes.squeeze,
    "Tile": rules_shapes.tile,
    "Transpose": rules_shapes.transpose,
    "Trilu": rules_values.triangle,
    "Unsqueeze": rules_shapes.unsqueeze,
}
