"""DeepBench's GEMM, convolution and recurrent sizes, for training and inference, as problems

Of github.com/baidu-research/DeepBench, code/kernels (Apache License 2.0): `training_set` and
`inference_server_set`, each row once. Its rows give the matrices op(A) (M, K) and op(B) (K, N); here A lies
in memory as (K, M) where it is transposed, B as (N, K). Its recurrent layers read as many features as they
have units; ONNX's multiply them by a matrix of their own, which is counted. Its training set lists the
products of a backward pass as GEMMs of their own, so a GEMM is one product in either set.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, ClassVar, Final, final

from d5ray.checks import check_choice
from d5ray.kits.laboratory.bench.bench import FrameworkBench, check_names
from d5ray.kits.laboratory.bench.deepbench_convolutions import LAYERS
from d5ray.operators.nodes.node import Node
from d5ray.operators.tensors.tensor_descriptor import TensorDescriptor
from d5ray.ops.problem import FORWARD, TRAINING, Problem
from d5ray.ops.problem import gemm as gemm

MODES: Final = ("training", "inference")
GROUPS: Final = ("gemm", "conv", "rnn")
GATES: Final = {"RNN": 1, "LSTM": 4, "GRU": 3}
VANILLA: Final = {"activations": ("Relu",)}  # of DeepBench's vanilla cells

Gemm = tuple[int, int, int, str]  # M, N, K; which of A and B is transposed: "NN", "TN", "NT"
Recurrent = tuple[str, int, int, int]  # type; units, batch, time steps


def problems(mode: str, groups: Iterable[str] = GROUPS, dtype: Any = "float32") -> tuple[Problem, ...]:
    """All problems of a set, by mode and groups.

    >>> [len(problems(mode)) for mode in MODES]
    [303, 247]
    """
    of_group: dict[str, Callable[[], list[Problem]]] = {
        "gemm": lambda: [gemm(*row, dtype=dtype) for row in GEMMS[mode]()],
        "conv": lambda: convolutions(mode, dtype),
        "rnn": lambda: [recurrent(*row, of=_pass(mode), dtype=dtype) for row in RECURRENT[mode]()],
    }
    return tuple(problem for group in groups for problem in of_group[group]())


# -- products ------------------------------------------------------------------------------------------------


def _training_gemms() -> Iterator[Gemm]:
    square, either = (1760, 2048, 2560, 4096), ("NN", "TN")
    yield from ((s, n, s, x) for s, n, x in product(square, (16, 32, 64, 128, 7000), either))
    yield from ((s, 7133, s, "NT") for s in square)
    yield from ((m, n, s, x) for s, (m, n), x in product(square, ((5124, 9124), (35, 8457)), either))
    yield from (
        (m, n, k, x) for (m, k), n, x in product(((7680, 2560), (3072, 1024)), (16, 32, 64, 128), either)
    )
    yield from ((3072, 7435, 1024, "NT"), (7680, 5481, 2560, "NT"))
    yield from ((m, n, 500000, x) for m, n, x in product((512, 1024), (8, 16), either))
    yield from ((1024, 700, 512, x) for x in either)
    long = product((2560, 2048, 1536, 2816, 1024), (24000, 48000), either)
    yield from ((3 * h, n, h, x) for h, n, x in long)
    yield from ((3 * h, n, h, x) for h, n, x in product((2048, 1536, 2816), (16, 32), either))
    yield from (
        (m, n, k, x) for m, n, k, x in product((512, 1024), (24000, 48000), (2816, 2048, 2560, 1536), either)
    )
    yield from ((m, n, 512, x) for m, n, x in product((512, 1024), (16, 32), ("NN", "NT")))


def _inference_gemms() -> Iterator[Gemm]:
    yield from ((m, n, k, "NN") for m, n, k in product((5124, 35), (700, 1500), (2048, 2560)))
    few = ((7680, 2560), (3072, 1024), (512, 500000), (1024, 500000), (6144, 2048), (4608, 1536))
    yield from ((m, n, k, "NN") for (m, k), n in product((*few, (8448, 2816)), (1, 2, 4)))
    yield (1024, 700, 512, "NN")
    many = (1500, 3000, 6000)
    yield from ((3 * h, n, h, "NN") for h, n in product((2560, 2048, 1536, 2816, 1024), many))
    yield from ((m, n, k, "NN") for m, n, k in product((512, 1024), many, (2816, 2048, 2560, 1536)))
    yield from ((m, n, 512, "NN") for m, n in product((512, 1024), (1, 2, 4)))


GEMMS: Final = {"training": _training_gemms, "inference": _inference_gemms}

# -- convolutions --------------------------------------------------------------------------------------------


def convolutions(mode: str, dtype: Any = "float32") -> list[Problem]:
    """The convolutions of a set: in training with the backward pass."""
    made = []
    for *sizes, training, inference in LAYERS:
        for batch in training if mode == "training" else inference:
            made.append(convolution(batch, sizes, _pass(mode), dtype))
    return made


def convolution(batch: int, sizes: Sequence[Any], of: str = FORWARD, dtype: Any = "float32") -> Problem:
    """X (batch, channels, height, width), W (filters, channels, filter height, filter width), no bias.

    sizes: width, height, channels, filters, filter width and height, padding, stride, as in a `Layer`.
    """
    width, height, channels, filters, filter_width, filter_height, padding, stride = sizes
    kernel = (filter_height, filter_width)
    rows, columns = (
        (size + 2 * padding - length) // stride + 1
        for size, length in zip((height, width), kernel, strict=True)
    )
    attributes = {
        "kernel_shape": kernel,
        "pads": (padding,) * 4,
        "strides": (stride, stride),
        "dilations": (1, 1),
        "group": 1,
    }
    return Problem(
        name=f"conv {batch}×{channels}×{height}×{width} → {filters}, "
        f"{filter_height}×{filter_width}/{stride} pad {padding}",
        group="conv",
        node=Node("Conv", ("x", "w"), ("y",), attributes),
        inputs=(
            TensorDescriptor(dtype, (batch, channels, height, width)),
            TensorDescriptor(dtype, (filters, channels, *kernel)),
        ),
        output=TensorDescriptor(dtype, (batch, filters, rows, columns)),
        forward_flops=2 * batch * filters * rows * columns * channels * math.prod(kernel),
        batch=batch,
        origin=(width, height, channels, batch, filters, filter_width, filter_height, padding, stride),
        of=of,
    )


# -- recurrent layers ----------------------------------------------------------------------------------------


def recurrent(
    kind: str, units: int, batch: int, steps: int, of: str = FORWARD, dtype: Any = "float32"
) -> Problem:
    """X (steps, batch, units), W and R (1, gates · units, units), B (1, 2 · gates · units)."""
    gates = GATES[kind]
    attributes: dict[str, Any] = {"hidden_size": units, **(VANILLA if kind == "RNN" else {})}
    if kind == "GRU":
        attributes["linear_before_reset"] = 1  # as cuDNN, PyTorch and Keras have it
    weights = TensorDescriptor(dtype, (1, gates * units, units))
    name = {"RNN": "vanilla", "LSTM": "lstm", "GRU": "gru"}[kind]
    return Problem(
        name=f"{name} {units} units, {batch}×{steps}",
        group="rnn",
        node=Node(kind, ("x", "w", "r", "b"), ("y",), attributes),
        inputs=(
            TensorDescriptor(dtype, (steps, batch, units)),
            weights,
            weights,
            TensorDescriptor(dtype, (1, 2 * gates * units)),
        ),
        output=TensorDescriptor(dtype, (steps, 1, batch, units)),
        forward_flops=2 * steps * batch * gates * units * 2 * units,
        batch=batch,
        origin=(units, batch, steps, name),
        of=of,
    )


def _training_layers() -> Iterator[Recurrent]:
    batches = (16, 32, 64, 128)
    yield from (("RNN", h, n, 50) for h, n in product((1760, 2048, 2560), batches))
    yield from (("LSTM", h, n, 25) for h, n in product((512, 1024, 2048, 4096), batches))
    yield from (("LSTM", 1536, n, 50) for n in (8, 16, 32))
    yield from (("LSTM", 256, n, 150) for n in (16, 32, 64))
    yield from (("GRU", h, 32, t) for h, t in product((2816, 2048, 1536, 2560), (1500, 750, 375, 187)))
    yield from (("GRU", 512, 32, 1), ("GRU", 1024, 32, 1500), ("GRU", 1024, 64, 1500))


def _inference_layers() -> Iterator[Recurrent]:
    few = (1, 2, 4)
    lstm = ((512, 25), (1024, 25), (2048, 25), (1536, 50), (256, 150))
    yield from (("LSTM", h, n, t) for (h, t), n in product(lstm, few))
    long = product((2816, 2048, 1536, 2560), few, (1500, 750, 375, 187))
    yield from (("GRU", h, n, t) for h, n, t in long)
    yield from (("GRU", h, n, t) for (h, t), n in product(((512, 1), (1024, 1500)), few))


RECURRENT: Final = {"training": _training_layers, "inference": _inference_layers}


def _pass(mode: str) -> str:
    return TRAINING if mode == "training" else FORWARD


SUITES: Final = {"deepbench": problems}


@final
@dataclass(frozen=True, kw_only=True)
class OperatorBench(FrameworkBench):
    """The operators of a suite; see `Bench` for the other values.

    groups  of problems: "gemm", "conv", "rnn"
    """

    recipe: ClassVar[str] = "bench_operators"
    is_sampled: ClassVar[bool] = True

    suite: str = "deepbench"
    mode: str = "training"
    groups: tuple[str, ...] = GROUPS

    def check(self) -> None:
        check_choice("suite", self.suite, SUITES)
        check_choice("mode", self.mode, MODES)
        check_names("problems", self.groups, GROUPS)
        super().check()

    def problems(self) -> Sequence[Problem]:
        return SUITES[self.suite](self.mode, self.groups, self.dtype)

    @property
    def title(self) -> str:
        return f"bench {self.suite} {self.mode}"

    @property
    def fixed(self) -> dict[str, Any]:
        names = ("suite", "mode", "device", "dtype")
        return {name: getattr(self, name) for name in names}

    @property
    def mutable(self) -> dict[str, Any]:
        return {"groups": list(self.groups), **super().mutable}
