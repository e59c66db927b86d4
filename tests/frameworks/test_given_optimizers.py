"""Claims about what users of PyTorch and Keras try first: it works, or the error names what does"""

import functools
from typing import Any

import numpy as np
import pytest
import torch

import d5ray as d5
from d5ray.errors import ConfigurationError

LAYER = torch.nn.Linear(3, 3)
sgd: Any = d5.optimizers.SGD  # called with what it does not take
adam: Any = d5.optimizers.Adam
ADAMW = functools.partial(torch.optim.AdamW, lr=0.01, betas=(0.8, 0.9))
STEPS = torch.optim.lr_scheduler.StepLR(ADAMW(LAYER.parameters()), 3)


def experiment(optimizer: Any, **changes: Any) -> d5.Experiment:
    return d5.Experiment("mlp", "digits", optimizer, agents=2, batch_size=128, seed=3, **changes)


def parameters(optimizer: Any) -> np.ndarray[Any, Any]:
    """Those of an agent after five steps."""
    with d5.simulate(experiment(optimizer, evaluate=False)) as group:
        group.train(5, progress=False)
        return group.agents[0].flat_parameters()


@pytest.mark.parametrize(
    ("given", "oracle"),
    [
        (torch.optim.AdamW, d5.optimizers.TorchOptimizer("AdamW")),
        (ADAMW, d5.optimizers.TorchOptimizer("AdamW", lr=0.01, betas=(0.8, 0.9))),
        (ADAMW(LAYER.parameters()), d5.optimizers.TorchOptimizer("AdamW", lr=0.01, betas=(0.8, 0.9))),
        (
            lambda parameters: ADAMW(parameters),
            d5.optimizers.TorchOptimizer("AdamW", lr=0.01, betas=(0.8, 0.9)),
        ),
    ],
    ids=["class", "partial", "instance", "function"],
)
def test_an_optimizer_trains_in_each_of_its_forms(given: Any, oracle: d5.Optimizer) -> None:
    """As the one that d5ray makes of its name and settings, to the last bit."""
    assert np.array_equal(parameters(given), parameters(oracle))


@pytest.mark.parametrize(
    ("given", "device"), [("cuda", d5.GPUDevice()), (torch.device("cuda", 1), d5.GPUDevice(1))]
)
def test_a_device_is_meant_as_pytorch_calls_it(given: Any, device: Any) -> None:
    """For Ray, which reserves the GPU, and for the executor, under every framework."""
    made = experiment(torch.optim.SGD, executor_kwargs={"device": given})
    assert made.device == device and made.executor_arguments == {"device": device}


def test_an_instance_of_a_class_of_ones_own_is_taken() -> None:
    """As the class itself is, which is derived from one of PyTorch's or Keras's."""

    class OwnSGD(torch.optim.SGD):
        pass

    given = experiment(OwnSGD(LAYER.parameters(), lr=0.25)).optimizer
    assert isinstance(given, d5.optimizers.TorchOptimizer) and given.learning_rate == 0.25
    keras = pytest.importorskip("keras")
    of_keras = experiment(type("OwnAdam", (keras.optimizers.Adam,), {})(0.5)).optimizer
    assert isinstance(of_keras, d5.optimizers.KerasOptimizer) and of_keras.learning_rate == 0.5


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (lambda: sgd(lr=0.1), "SGD takes no 'lr': the learning rate is learning_rate=0.1"),
        (lambda: adam(0.1, betas=(0.9, 0.9)), "'betas': they are beta1=0.9 and beta2=0.999"),
        (lambda: sgd(0.1, weight_decay=1e-4), r"WeightDecay\(SGD\(0.1\), 1e-4\)"),
        (lambda: sgd(lambda step: 0.1), r"Scheduled\(SGD\(0.1\), learning_rate=Computed"),
        (lambda: experiment(STEPS), "PyTorch's StepLR"),
        (
            lambda: experiment(torch.optim.SGD([{"params": [each]} for each in LAYER.parameters()], 0.1)),
            "2 groups of parameters",
        ),
        (lambda: experiment(torch.optim.lr_scheduler.StepLR), "PyTorch's StepLR, which .*Piecewise"),
        (lambda: experiment(STEPS.optimizer), "a scheduler of PyTorch's"),
        (lambda: experiment("torch.optim.AdamW"), "did you mean d5.optimizers.AdamW?"),
        (lambda: experiment(d5.optimizers.Adam), r"a class: give an instance, Adam\(…\)"),
        (lambda: experiment(d5.optimizers.SGD(0.1), device="cuda"), "it is the executor's: executor_kwargs="),
        (lambda: experiment(d5.optimizers.SGD(0.1), betas=(0.9, 0.9)), "it is the optimizer's"),
        (lambda: experiment(d5.optimizers.SGD(0.1), max_grad_norm=1), r"ClipNorm\(SGD"),
        (lambda: experiment(d5.optimizers.SGD(0.1), distributed="local_sgd"), r"did you mean .*LocalSGD\?"),
        (lambda: experiment(d5.optimizers.SGD(0.1), executor_kwargs={"device": "tpu"}), "device is 'tpu'"),
        (lambda: experiment(d5.optimizers.SGD(0.1), precision="16-mixed"), "did you mean 'float16'"),
        (lambda: experiment(d5.optimizers.SGD(0.1), max_epochs=3), "they are epochs=10"),
        (lambda: experiment(5), "it must be an Optimizer"),
    ],
)
def test_what_does_not_work_is_told_what_does(wrong: Any, words: str) -> None:
    """Found, and what to write instead."""
    with pytest.raises(ConfigurationError, match=words):
        wrong()
