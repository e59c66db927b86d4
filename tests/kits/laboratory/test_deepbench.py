"""Claims about DeepBench's sizes: they are the published ones, their operations and bytes counted right"""

import hashlib
import json
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from d5ray.errors import ConfigurationError
from d5ray.kits.laboratory.bench import deepbench as problems
from d5ray.ops.problem import TRAINING, Problem

# SHA-256 of the sorted rows of code/kernels/*_problems.h, as JSON, each row once, and how many they are.
PUBLISHED = {
    ("training", "gemm"): ("3e719ba7e113fb13", 160),
    ("training", "conv"): ("4716ac53df5a0773", 90),
    ("training", "rnn"): ("730d2effb3859436", 53),
    ("inference", "gemm"): ("2d3d2ef4a2ec3b0d", 75),
    ("inference", "conv"): ("cb86a69adc61b308", 103),
    ("inference", "rnn"): ("03af33d6d2c88a07", 69),
}


def as_published(problem: Problem) -> list[int | str]:
    """The row as it stands in the header: of a convolution padding and stride on both axes."""
    row = list(problem.origin)
    return [*row[:-2], row[-2], row[-2], row[-1], row[-1]] if problem.group == "conv" else row


@pytest.mark.parametrize(("mode", "group"), PUBLISHED)
def test_the_sizes_are_the_published_ones(mode: str, group: str) -> None:
    """Row for row, each once, under names of their own."""
    found = problems.problems(mode, [group])
    rows = sorted(as_published(problem) for problem in found)
    digest = hashlib.sha256(json.dumps(rows).encode()).hexdigest()
    assert (digest[:16], len(rows)) == PUBLISHED[mode, group]
    assert len({problem.name for problem in found}) == len(found)


def counted(problem: Problem) -> int:
    """The operations that PyTorch's own counter sees in the same computation, on tensors without memory."""
    x, w, *rest = (torch.empty(each.sizes, device="meta") for each in problem.inputs if each is not None)
    with FlopCounterMode(display=False) as counter:
        if problem.group == "gemm":
            flags = problem.node.attributes
            torch.mm(x.T if flags["transA"] else x, w.T if flags["transB"] else w)
        elif problem.group == "conv":
            attributes = problem.node.attributes
            y = torch.conv2d(x, w, stride=attributes["strides"], padding=attributes["pads"][:2])
            assert y.shape == problem.output.sizes
        else:
            for step in x:
                step @ w[0].T
                step @ rest[0][0].T
    return int(counter.get_total_flops())


@pytest.mark.parametrize("mode", problems.MODES)
def test_operations_are_those_that_pytorch_counts(mode: str) -> None:
    """Every GEMM and convolution; recurrent layers of at most 50 steps."""
    for problem in problems.problems(mode):
        if problem.group != "rnn" or problem.inputs[0].sizes[0] <= 50:  # type: ignore[union-attr]
            assert problem.forward_flops == counted(problem), problem.name


def test_a_backward_pass_is_two_products_more() -> None:
    """Of a convolution in the training set; a GEMM is one product in either."""
    conv = problems.convolution(8, (14, 14, 128, 256, 3, 3, 1, 1), TRAINING)
    x = torch.randn(8, 128, 14, 14, requires_grad=True)
    w = torch.randn(256, 128, 3, 3, requires_grad=True)
    with FlopCounterMode(display=False) as counter:
        torch.autograd.grad(torch.conv2d(x, w, padding=1).sum(), (x, w))
    assert conv.flops == counter.get_total_flops()
    gemm = problems.gemm(512, 8, 500000, "NN")
    assert gemm.flops == 2 * 512 * 8 * 500000


def test_bytes_are_every_tensor_once_a_pass() -> None:
    """Forward each once, A transposed, in float64; training the inputs thrice, the output twice."""
    gemm = problems.gemm(3, 5, 7, "TN", "float64")
    assert [each.shape for each in gemm.inputs if each] == [(7, 3), (7, 5)]
    assert gemm.moved_bytes == 8 * (3 * 7 + 7 * 5 + 3 * 5)
    conv = problems.convolution(2, (9, 8, 3, 4, 3, 2, 0, 1), TRAINING)
    x, w, y = 2 * 3 * 8 * 9, 4 * 3 * 2 * 3, 2 * 4 * 7 * 7
    assert conv.output.sizes == (2, 4, 7, 7)
    assert conv.moved_bytes == 4 * (3 * (x + w) + 2 * y)
    assert conv.needed_bytes == 4 * (2 * (x + w + y) + 2 * 7 * 7 * 3 * 2 * 3)


def test_unknown_sets_are_refused() -> None:
    wrong: dict[str, dict[str, Any]] = {"training": {"mode": "train"}, "gemm": {"groups": ("gem",)}}
    for near, given in wrong.items():
        with pytest.raises(ConfigurationError, match=f"did you mean '{near}'"):
            problems.OperatorBench(**given)
    assert np.dtype("float16") == problems.problems("training", ["gemm"], "float16")[0].output.dtype
