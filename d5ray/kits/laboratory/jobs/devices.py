"""Executor with a device of its own, as it were: it computes, and then sleeps as if it waited for it"""

import time
from typing import Any

from d5ray.frameworks.torch import from_model as on_processor
from d5ray.networks.executors.delayed import DelayedExecutor, Virtual
from d5ray.networks.executors.executor import Executor


def from_model(model: Any, model_kwargs: dict[str, Any], *, seconds: float, **others: Any) -> Executor:
    """PyTorch's executor, whose gradients take so long on the device."""
    return DelayedExecutor(on_processor(model, model_kwargs, **others), Virtual(lambda: seconds, time.sleep))
