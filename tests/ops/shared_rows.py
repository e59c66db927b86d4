"""Operators that frameworks share, with inputs at which their gradients are looked at: one table"""

from collections.abc import Mapping
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Given = tuple[int, ...] | Array | None  # a shape stands for numbers that are drawn, None for nothing

LEVELS = np.arange(-6, 6, dtype=np.int8).reshape(3, 4)
INDEX = np.array([[[[1, 7], [8, 14]]]])
PIXELS = np.array([[1.2, 0.7, 4.1, 3.9], [0.0, 0.4, 2.2, 4.6]])


def whole(*numbers: Any) -> Array:
    return np.array(numbers, np.int64)


ROWS: tuple[tuple[str, tuple[Given, ...], Mapping[str, Any]], ...] = (
    ("CumProd", ((2, 3), np.array(1)), {}),
    ("CumProd", ((2, 3), np.array(0)), {"exclusive": 1, "reverse": 1}),
    ("Det", ((2, 3, 3),), {}),
    ("DequantizeLinear", (LEVELS[:2, :3], (3,), np.array([1, 0, 2], np.int8)), {}),
    ("DequantizeLinear", (LEVELS, (2, 4)), {"axis": 0, "block_size": 2}),
    ("Col2Im", ((1, 8, 6), whole(3, 4), whole(2, 2)), {}),
    ("Col2Im", ((1, 4, 6), whole(4, 4), whole(2, 2)), {"strides": (2, 2), "pads": (1, 0, 1, 1)}),
    ("DeformConv", ((1, 2, 4, 4), (2, 1, 2, 2), (1, 16, 3, 3), (2,), (1, 8, 3, 3)),
     {"group": 2, "offset_group": 2}),
    ("GridSample", ((1, 2, 3, 4), (1, 2, 3, 2)), {}),
    ("GridSample", ((1, 1, 3, 4), (1, 2, 2, 2)), {"mode": "cubic", "padding_mode": "reflection"}),
    ("GridSample", ((1, 1, 3, 2, 3), (1, 1, 2, 2, 3)), {"padding_mode": "border", "align_corners": 1}),
    ("GridSample", ((1, 1, 5), (1, 3, 1)), {"padding_mode": "border"}),
    ("MaxUnpool", ((1, 1, 2, 2), INDEX), {"kernel_shape": (2, 2), "strides": (2, 2)}),
    ("RoiAlign", ((1, 2, 5, 5), PIXELS, whole(0, 0)), {"output_height": 2, "output_width": 2}),
    ("RoiAlign", ((1, 1, 5, 5), PIXELS, whole(0, 0)), {"output_height": 2, "sampling_ratio": 2,
     "coordinate_transformation_mode": "output_half_pixel"}),
    ("DFT", ((1, 5, 2),), {}),
    ("DFT", ((1, 4, 1), np.array(6), np.array(1)), {"onesided": 1}),
    ("DFT", ((2, 4, 2), None, np.array(0)), {"inverse": 1}),
    ("DFT", ((1, 4, 2), np.array(6)), {"inverse": 1, "onesided": 1}),
    ("STFT", ((1, 8, 1), np.array(2), (4,)), {"onesided": 1}),
    ("STFT", ((1, 8, 2), np.array(3), None, np.array(4)), {"onesided": 0}),
    ("Unique", ((6,),), {"sorted": 0}),
    ("Unique", ((3, 2),), {"axis": 0}),
    ("ReverseSequence", ((4, 3, 2), whole(2, 4, 1)), {}),
    ("TensorScatter", ((2, 1, 5, 2), (2, 1, 2, 2), whole(1, 3)), {}),
    ("TensorScatter", ((2, 5, 2), (2, 3, 2), whole(1, 4)), {"mode": "circular"}),
)  # fmt: skip

# Floating-point inputs that say how, not what.
STEERING = {"CastLike": (1,), "RoiAlign": (1,)}
# Their outputs do not follow from the values of floating-point inputs, or in steps only.
WITHOUT_GRADIENT = frozenset(
    {
        "BitCast", "ConvInteger", "MatMulInteger", "MelWeightMatrix", "NonMaxSuppression", "QLinearConv",
        "QLinearMatMul", "QuantizeLinear", "TfIdfVectorizer",
    }
)  # fmt: skip
