"""What d5ray takes on a GPU beside PyTorch's own in the same process: exchange, training steps, update rules

The sides take turns; a ratio is the median over the turns of d5ray's time over PyTorch's, with its interval
at 95 % where there are turns enough. Where PyTorch sees no GPU, small ones are compared on the processor.
"""

import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any, Final

import numpy as np

import d5ray as d5
from d5ray.distributed.communicators.communicator import Communicator
from d5ray.distributed.group.group import Group
from d5ray.distributed.group.rendezvous import Rendezvous
from d5ray.metrics.statistics.intervals import median_interval
from tests.gpu.group import Result, agent_of, on_gpu, together, usable

SIZES: Final = (4, 4 * 2**10, 64 * 2**10, 2**20, 16 * 2**20, 256 * 2**20, 2**30)  # bytes
SECONDS: Final = 6.0  # of each comparison
STEPS: Final = 10  # that follow one another in one turn
TIMEOUT: Final = 60.0


def compared(what: str, ours: str, seconds: dict[str, Any], **more: Any) -> Iterator[Result]:
    """One result for each of the others: milliseconds, and the ratio of d5ray's time to theirs."""
    own = np.array(seconds[ours])
    for side in sorted(seconds.keys() - {ours}):
        ratios = own / np.array(seconds[side])
        interval = median_interval(ratios)
        yield {
            "what": f"{what}, beside {side}",
            "d5ray_ms": round(float(np.median(own)) * 1e3, 5),
            "other_ms": round(float(np.median(seconds[side])) * 1e3, 5),
            "ratio": round(float(np.median(ratios)), 4),
            "interval": interval and [round(interval.low, 4), round(interval.high, 4)],
            "turns": len(ratios),
            **more,
        }


def has_gpu() -> bool:
    return "torch" in usable()


# -- exchange -------------------------------------------------------------------------------------------


def allreduces(
    sizes: tuple[int, ...], budget: float, file: str, communicator: Communicator
) -> list[dict[str, list[float]]]:
    """Seconds of sums by d5ray's NCCL and PyTorch's, by size; the members decide together how many."""
    from benchmarks.allreduce_speed.torch_group import TorchWorld  # noqa: PLC0415 - imports torch
    from benchmarks.interleaved_timing import interleaved, timer  # noqa: PLC0415

    device = communicator.group.device if has_gpu() else "cpu"
    world = TorchWorld(communicator.rank, communicator.size, Path(file), TIMEOUT, device)
    found = []
    for size in sizes:
        own = on_gpu("torch" if has_gpu() else "cupy", np.zeros(size // 4, np.float32))
        _, reduce = world.tensor_reduction(size // 4)
        sides = {"d5ray": timer(partial(communicator.allreduce, own)), "torch.distributed": timer(reduce)}
        times = interleaved(sides, budget, world.largest)
        found.append({name: each.seconds for name, each in times.items()})
    world.close()
    return found


def exchange() -> Iterator[Result]:
    """NCCL through d5ray beside torch.distributed's NCCL: sums of 4 B to 1 GB between two processes."""
    sizes = SIZES if has_gpu() else SIZES[:3]
    with tempfile.TemporaryDirectory() as folder:
        work = partial(allreduces, sizes, SECONDS if has_gpu() else 0.2, str(Path(folder) / "store"))
        members = together(2, work, 80.0)
    if failed := [each for each in members if "found" not in each]:
        yield {"what": "allreduce", "ok": False, "found": failed}
        return
    for place, size in enumerate(sizes):
        slowest = {
            name: np.max([each["found"][place][name] for each in members], axis=0)
            for name in members[0]["found"][place]
        }
        yield from compared(f"allreduce of {size} B", "d5ray", slowest, bytes=size)


# -- steps ----------------------------------------------------------------------------------------------


def images(count: int, size: int) -> d5.Dataset:
    drawn = np.random.default_rng(0)
    inputs = drawn.normal(size=(count, 3, size, size)).astype(np.float32)
    return d5.from_arrays(inputs, drawn.integers(0, 10, count), classes=10)


def sequences(count: int, length: int, vocabulary: int) -> d5.Dataset:
    drawn = np.random.default_rng(0).integers(0, vocabulary, (count, length + 1))
    return d5.from_arrays(drawn[:, :-1], np.ascontiguousarray(drawn[:, 1:]), classes=vocabulary)


def networks() -> Iterator[tuple[str, Any, dict[str, Any], d5.Dataset, int]]:
    """Name, model, its arguments, data and batch size."""
    from d5ray.recipes.models import GPT  # noqa: PLC0415 - imports torch

    if has_gpu():
        yield "ResNet-50, 32 images of 224 x 224", "resnet50", {}, images(128, 224), 32
        of_gpt2 = {"vocabulary": 50257, "size": "124M", "context": 512}
        yield "GPT-2 small, 8 of 512 tokens", GPT, of_gpt2, sequences(64, 512, 50257), 8
    else:
        yield "ResNet-50, narrow", "resnet50", {"width": 4}, images(8, 32), 2
        small = {"vocabulary": 64, "size": "1M", "context": 16}
        yield "GPT, small", GPT, small, sequences(8, 16, 64), 2


def steps() -> Iterator[Result]:
    """A training step of ResNet-50 and of a GPT, by an agent beside the loop that one writes by hand."""
    from benchmarks.interleaved_timing import interleaved  # noqa: PLC0415
    from benchmarks.torch_loops import HandWrittenLoop, TorchTask  # noqa: PLC0415 - imports torch

    device, steps = (d5.GPUDevice(), STEPS) if has_gpu() else (d5.CPUDevice(), 2)
    for name, model, arguments, data, batch in networks():
        wanted = d5.Experiment(
            model=model,
            model_kwargs=arguments,
            dataset=data,
            optimizer=d5.optimizers.Momentum(1e-3, 0.9),
            agents=1,
            batch_size=batch,
            seed=1,
            executor_kwargs={"device": device},
            evaluate=False,
        )
        task = TorchTask(
            model, data, batch, 1e-3, 0.9, wanted.train_sampler, 1, wanted.threads, str(device), arguments
        )
        rendezvous = Rendezvous()
        try:
            agent, loop = agent_of(wanted), HandWrittenLoop(task)
            agent.join(Group("steps", 0, 0, 1, rendezvous.address))

            first = agent.train(1)
            loop.train(1)
            x, y = agent.executor.numpy_parameters(), loop.parameters()
            apart = float(np.linalg.norm(x - y) / np.linalg.norm(y))
            yield {"what": f"first step of {name}", "apart": apart, "ok": first.completed and apart < 1e-4}

            def ours(calls: int, agent: Any = agent) -> float:
                begin = perf_counter()
                outcome = agent.train(calls * steps)
                assert outcome.completed, outcome.reason
                return (perf_counter() - begin) / (calls * steps)

            def theirs(calls: int, loop: Any = loop) -> float:
                marks = loop.train(calls * steps).marks
                return float(marks[-1] - marks[0]) * 1e-9 / (calls * steps)

            found = interleaved({"d5ray": ours, "a loop by hand": theirs}, 4 * SECONDS if has_gpu() else 0.2)
            yield from compared(
                f"step of {name}", "d5ray", {side: each.seconds for side, each in found.items()}
            )
        finally:
            rendezvous.close()


# -- update rules ---------------------------------------------------------------------------------------


def updates() -> Iterator[Result]:
    """Update rules on the flat buffer of ResNet-50 beside torch.optim's, also with `fused=True`."""
    from benchmarks.update_speed.recipe import RULES  # noqa: PLC0415
    from benchmarks.update_speed.worker import UPDATE, RuleTimes  # noqa: PLC0415 - imports torch

    gpu = has_gpu()
    fused = [each for each in RULES if each.native in ("SGD", "Adam", "AdamW", "Adagrad")]
    for pair in fused if gpu else fused[1:2]:
        work = RuleTimes(
            model="resnet50" if gpu else "lenet",
            sample_shape=(3, 64, 64) if gpu else (1, 8, 8),
            pairs=(pair,),
            batch_size=4,
            threads=1,
            seconds=2.0 if gpu else 0.05,
            seed=1,
            device=d5.GPUDevice() if gpu else d5.CPUDevice(),
        )
        times = {side: each.seconds for (what, _, side), each in work(0).items() if what == UPDATE}
        yield from compared(f"update by {pair.name}", "d5ray", times)
