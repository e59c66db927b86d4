"""`python -m tests.gpu.check [STAGE…]`: what a machine with a GPU shows of d5ray, one JSON line a result

Each stage is a process with a limit of its own, so that one that hangs costs no other; results stand on
standard output, and in $OUT/gpu.jsonl where OUT names a folder, as soon as they are known. Neither pytest,
Ray, DuckDB nor greenlet is needed. Without a GPU it says what it would do.
"""

import contextlib
import importlib.metadata
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np

import d5ray as d5
from d5ray.agent.training_agent import TrainingAgent
from d5ray.distributed.communicators.communicator import Communicator
from d5ray.distributed.group.group import Group
from d5ray.distributed.group.rendezvous import Rendezvous
from d5ray.errors import D5Error
from d5ray.training.arrays import wait_for
from tests.gpu import beside_torch
from tests.gpu.group import LIBRARIES, Result, agent_of, on_gpu, on_host, together, usable

# -- stages ---------------------------------------------------------------------------------------------


def facts() -> Iterator[Result]:
    """Driver, GPUs, versions, which NCCL is loaded, whether CuPy compiles."""
    if tool := shutil.which("nvidia-smi"):
        shown = subprocess.run([tool, "-L"], capture_output=True, text=True, check=False).stdout
        yield {"what": "GPUs", "found": shown.strip().splitlines()}
    names = ("torch", "cupy-cuda13x", "cupy-cuda12x", "nvidia-nccl-cu13", "nvidia-nccl-cu12", "numpy")
    installed = {each.name: each.version for each in importlib.metadata.distributions()}
    yield {"what": "versions", "found": {name: installed.get(name, "not installed") for name in names}}
    import cupy  # noqa: PLC0415

    yield {"what": "NCCL", "found": cupy.cuda.nccl.get_version(), "before": "torch is imported"}
    yield {"what": "CuPy compiles", "ok": on_host(cupy.arange(3) ** 2).tolist() == [0, 1, 4]}
    import torch  # noqa: PLC0415

    maps = Path("/proc/self/maps").read_text(encoding="utf-8")
    loaded = sorted({line.split()[-1] for line in maps.splitlines() if "libnccl" in line})
    yield {"what": "NCCL", "found": cupy.cuda.nccl.get_version(), "after": torch.__version__, "files": loaded}
    yield {"what": "libraries that see a GPU", "found": usable(), "ok": usable() == list(LIBRARIES)}


def one() -> Iterator[Result]:
    """A communicator of one rank: every type, an exchange with itself, and the end."""
    from d5ray.frameworks.cupy.nccl_group import NcclGroup  # noqa: PLC0415

    made = NcclGroup(0, 1, "cuda:0", lambda identity: identity or b"", lambda: None, 20.0)
    for library in usable():
        for kind in ("float16", "float32", "float64", "int32", "int64", "uint8"):
            array = on_gpu(library, np.arange(5).astype(kind))
            made.allreduce(array, "sum")
            target = on_gpu(library, np.zeros(5, kind))
            made.exchange(array, [(array, 0)], [(target, 0)])
            yield {"what": f"{library} {kind}", "ok": on_host(target).tolist() == [0, 1, 2, 3, 4]}
    begin = time.monotonic()
    made.close()
    yield {"what": "close", "seconds": time.monotonic() - begin}


def agent() -> Iterator[Result]:
    """One agent trains for 20 steps under PyTorch and CuPy, beside the processor."""
    for framework in usable():
        found = {}
        for device in (d5.GPUDevice(), d5.CPUDevice()):
            name = "numpy" if framework == "cupy" and device == d5.CPUDevice() else framework
            found[str(device)] = trained(name, device)
        difference = np.abs(found["cuda:0"] - found["cpu"]).max()
        yield {
            "what": f"{framework}, 20 steps",
            "difference": float(difference),
            "ok": bool(difference < 1e-3),
        }


def made_agent(
    framework: str, device: Any, agents: int = 1, rank: int = 0, method: Any = None
) -> TrainingAgent:
    drawn = np.random.default_rng(0)
    inputs = drawn.normal(size=(640, 1, 8, 8)).astype(np.float32)
    data = d5.from_arrays(inputs, (inputs.sum((1, 2, 3)) > 0).astype(np.int64), classes=2)
    wanted = d5.Experiment(
        model="lenet",
        dataset=data,
        optimizer=d5.optimizers.Momentum(0.05, 0.9),
        distributed=method or d5.optimizers.AllreduceSGD(),
        agents=agents,
        batch_size=16,
        seed=1,
        executor=framework,
        executor_kwargs={} if framework in ("cupy", "numpy") else {"device": device},
        timeout_seconds=30.0,
        evaluate=False,
    )
    return agent_of(wanted, rank)


def trained(framework: str, device: Any, steps: int = 20) -> Any:
    rendezvous = Rendezvous()
    try:
        made = made_agent(framework, device)
        made.join(Group("agent", 0, 0, 1, rendezvous.address))
        made.train(steps)
        return made.executor.numpy_parameters()
    finally:
        rendezvous.close()


def exchanged(library: str, communicator: Communicator) -> dict[str, bool]:
    """Every collective beside NumPy."""
    rank, size = communicator.rank, communicator.size
    found: dict[str, bool] = {}

    def compared(name: str, array: Any, expected: Any) -> None:
        found[name] = bool(np.allclose(on_host(array), expected, rtol=1e-5))

    for elements in (1, 1000, 1_000_003):
        array = on_gpu(library, np.arange(elements, dtype=np.float32) + rank)
        communicator.allreduce(array, "mean")
        compared(f"mean of {elements}", array, np.arange(elements) + (size - 1) / 2)
    for elements in (12, 13):
        array = on_gpu(library, np.full(elements, float(rank)))
        communicator.reduce_scatter(array)
        communicator.all_gather(array)
        compared(f"scattered and gathered, {elements}", array, np.full(elements, size * (size - 1) / 2))
    array = on_gpu(library, np.full(7, float(rank)))
    communicator.broadcast(array, root=size - 1)
    compared("broadcast", array, np.full(7, size - 1.0))
    array = on_gpu(library, np.arange(2 * size) + 100 * rank)
    communicator.all_to_all(array)
    compared("all to all", array, [2 * rank + i + 100 * other for other in range(size) for i in (0, 1)])
    array = on_gpu(library, np.full(5, float(rank)))
    communicator.neighbor_average(array)
    compared("neighbours", array, np.full(5, (d5.topologies.Ring(size).weights() @ np.arange(size))[rank]))
    handle = communicator.start.allreduce(background := on_gpu(library, np.full(9, 1.0)))
    communicator.barrier()
    handle.wait()
    compared("in the background", background, np.full(9, float(size)))
    return found


def ranks() -> Iterator[Result]:
    """Two and four processes on one GPU: every collective beside NumPy."""
    for size in (2, 4):
        for library in usable():
            found = together(size, partial(exchanged, library))
            ok = all("found" in each and all(each["found"].values()) for each in found)
            yield {"what": f"{size} ranks, {library}", "ok": ok, "found": found}


def waits_for_the_first(how: signal.Signals, communicator: Communicator) -> Result:
    """The first rank gets a signal before its second exchange; the others say how they hear of it."""
    array = on_gpu("cupy", np.ones(1000))
    communicator.allreduce(array)
    if communicator.rank == 0:
        os.kill(os.getpid(), how)
    begin = time.monotonic()
    try:
        communicator.allreduce(array)
    except D5Error as error:
        return {"error": f"{type(error).__name__}: {error}", "seconds": time.monotonic() - begin}
    return {"error": "", "seconds": time.monotonic() - begin}


def other_orders(communicator: Communicator) -> bool:
    """What is started in the background comes before a call on one rank, and behind it on the other."""
    first, second = on_gpu("cupy", np.ones(1 << 20)), on_gpu("cupy", np.ones(10))
    background = communicator.start
    if communicator.rank == 0:
        handle = background.allreduce(first)
        time.sleep(0.2)
        communicator.allreduce(second)
    else:
        communicator.allreduce(second)
        handle = background.allreduce(first)
    handle.wait()
    return bool(on_host(first)[0] == on_host(second)[0] == communicator.size)


def faults() -> Iterator[Result]:
    """A rank that is killed, one that stands still; foreground and background in other orders."""
    for what, how in (("is killed", signal.SIGKILL), ("stands still", signal.SIGSTOP)):
        found = together(3, partial(waits_for_the_first, how), 15.0, timeout=3.0)
        told = [each.get("found", each).get("error", "") for each in found[1:]]  # or in its first exchange
        yield {"what": f"a rank {what}", "ok": all("PeerLost" in each for each in told), "found": found}
    found = together(2, other_orders)
    yield {"what": "other orders", "ok": all(each.get("found") for each in found), "found": found}


def trains(framework: str, method: Any, communicator: Communicator) -> list[float]:
    """Sums of the parameters after 10 steps; the group of the agents has another name."""
    group = communicator.group
    made = made_agent(framework, d5.GPUDevice(), group.size, group.rank, method)
    made.join(Group("train", 0, group.rank, group.size, group.store, timeout_seconds=30.0))
    outcome = made.train(10)
    x = made.executor.numpy_parameters()
    made.leave()
    return [float(x.sum()), float(np.abs(x).sum()), float(outcome.completed)]


def train() -> Iterator[Result]:
    """Two agents on one GPU by several distributed optimizers: one model where the rule says so."""
    for framework in usable():
        for method in (
            d5.optimizers.AllreduceSGD(),
            d5.optimizers.OverlappedAllreduceSGD(),
            d5.optimizers.DPSGD(),
        ):
            found = together(2, partial(trains, framework, method))
            ok = all("found" in each for each in found)
            if ok and method.invariant == "one model":
                ok = found[0]["found"] == found[1]["found"]
            yield {"what": f"{framework}, {type(method).__name__}", "ok": ok, "found": found}


def rules() -> Iterator[Result]:
    """Every update rule with its defaults, 20 steps beside itself in NumPy."""
    of_defaults = ("Adam", "AdamW", "AMSGrad", "NAdam", "AdaMax", "Lion", "LAMB", "RMSProp", "AdaGrad")
    made = {name: getattr(d5.optimizers, name)(0.01) for name in of_defaults}
    made |= {"SGD": d5.optimizers.SGD(0.1), "Momentum": d5.optimizers.Momentum(0.1, 0.9)}
    made |= {"Muon": d5.optimizers.Muon(0.02), "Shampoo": d5.optimizers.Shampoo(0.1)}
    for library in usable():
        for name, rule in made.items():
            try:
                d5.optimizers.check_optimizer(
                    rule, reference=rule, array=partial(on_gpu, library), tolerance=1e-6, steps=20
                )
                yield {"what": f"{library} {name}", "ok": True}
            except Exception as error:
                yield {
                    "what": f"{library} {name}",
                    "ok": False,
                    "error": f"{type(error).__name__}: {error}"[:300],
                }


def times() -> Iterator[Result]:
    """An update with and without waiting for it."""
    x, gradient = (on_gpu("cupy", np.ones(10_000_000, np.float32)) for _ in range(2))
    rule = d5.optimizers.Momentum(0.1, 0.9)
    state = rule.state_for(x, ())
    for waits in (False, True):
        taken = []
        for _ in range(20):
            begin = time.perf_counter()
            rule.step(x, gradient, state)
            if waits:
                wait_for(x)
            taken.append(time.perf_counter() - begin)
        yield {"what": f"update, waited for: {waits}", "ms": float(np.median(taken[5:]) * 1e3)}


@dataclass(frozen=True)
class Stage:
    run: Callable[[], Iterator[Result]]
    seconds: int


STAGES: Final[Mapping[str, Stage]] = {
    "facts": Stage(facts, 60),
    "one": Stage(one, 60),
    "agent": Stage(agent, 90),
    "ranks": Stage(ranks, 120),
    "faults": Stage(faults, 90),
    "train": Stage(train, 120),
    "rules": Stage(rules, 90),
    "times": Stage(times, 60),
    "exchange": Stage(beside_torch.exchange, 90),
    "steps": Stage(beside_torch.steps, 90),
    "updates": Stage(beside_torch.updates, 90),
}


def tell(stage: str, result: Result) -> None:
    """A result on standard output, and in $OUT."""
    line = json.dumps({"stage": stage, **result}, default=str)
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
    if out := os.environ.get("OUT"):
        with (Path(out) / "gpu.jsonl").open("a", encoding="utf-8") as file:
            file.write(line + "\n")


def run_here(stage: str) -> int:
    """One stage in this process."""
    good = True
    try:
        for result in STAGES[stage].run():
            tell(stage, result)
            good &= bool(result.get("ok", True))
    except Exception as error:
        tell(stage, {"what": "raised", "ok": False, "error": f"{type(error).__name__}: {error}"})
        good = False
    return 0 if good else 1


def main(chosen: list[str]) -> int:
    """0 where all that was tried is right, or there is no GPU; 1 otherwise; 3 for an unknown stage."""
    if chosen[:1] == ["--here"]:
        return run_here(chosen[1])
    if unknown := set(chosen) - set(STAGES):
        sys.stderr.write(f"no stage {', '.join(sorted(unknown))}: choose of {', '.join(STAGES)}\n")
        return 3
    if not usable():
        sys.stdout.write("neither CuPy nor PyTorch sees a GPU here; with one these stages would run:\n")
        for name, stage in STAGES.items():
            sys.stdout.write(f"  {name:8} at most {stage.seconds:3} s  {stage.run.__doc__}\n")
        return 0
    codes = []
    for name in chosen or STAGES:
        begin = time.monotonic()
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.gpu.check", "--here", name], start_new_session=True
        )
        try:
            codes.append(process.wait(STAGES[name].seconds))
        except subprocess.TimeoutExpired:
            tell(name, {"what": "ended", "ok": False, "error": f"not done within {STAGES[name].seconds} s"})
            codes.append(1)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        tell(name, {"what": "stage", "seconds": round(time.monotonic() - begin, 1), "code": codes[-1]})
    return int(any(codes))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
