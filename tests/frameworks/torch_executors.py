"""Executors of PyTorch's modules, and batches for them, as the claims on these executors make them"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from d5ray.frameworks.torch import from_model
from d5ray.frameworks.torch.executor import TorchExecutor
from d5ray.ops.losses.softmax_cross_entropy_loss import SoftmaxCrossEntropyLoss

Array = np.ndarray[Any, Any]
LOSS = SoftmaxCrossEntropyLoss()


def torch_executor(
    model: Any,
    shape: tuple[int, ...],
    classes: int = 4,
    *,
    of: Mapping[str, Any] | None = None,
    **options: Any,
) -> TorchExecutor:
    """The executor of a model of these samples; of: the model's own options."""
    given: dict[str, Any] = {"loss": LOSS, "seed": 1, "threads": 1}
    return from_model(model, dict(of or {}), sample_shape=shape, classes=classes, **given | options)


def random_batch(
    shape: tuple[int, ...], size: int = 10, seed: int = 0, classes: int = 4
) -> tuple[Array, Array]:
    """Samples (size, *shape) and their labels."""
    generator = np.random.default_rng(seed)
    return generator.standard_normal((size, *shape)).astype(np.float32), generator.integers(0, classes, size)
