"""Training and evaluation mode of a module, in which its parts may do something of their own"""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn


def begin_training(module: nn.Module) -> bool:
    """Put a module in training mode; True if it was in evaluation mode as a whole.

    Where only parts are in evaluation mode, such as a frozen BatchNorm, that is meant, and they stay in it.
    """
    still = [part for part in module.modules() if not part.training]
    whole = all(not part.training for part in module.modules())
    _train(module, [] if whole else still)
    return whole


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Evaluation mode; afterwards every part is in the mode it was in before."""
    still = [part for part in module.modules() if not part.training]
    module.eval()
    try:
        yield
    finally:
        _train(module, still)


def _train(module: nn.Module, still: list[nn.Module]) -> None:
    """Put a module in training mode, by its own `train`: parts may merge their weights there, or freeze some.

    still: the parts that are to be in evaluation mode.
    """
    module.train()
    for part in still:
        if type(part).train is nn.Module.train:
            part.training = False
        else:
            part.eval()
