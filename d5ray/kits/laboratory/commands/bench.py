"""`d5ray bench`: operators at published sizes, and what is the user's own"""

import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from d5ray.checks import check_number
from d5ray.errors import ConfigurationError
from d5ray.failures.exit_codes import EXIT_CODES, INCONCLUSIVE, INTERRUPTED
from d5ray.recipes.engine.command import with_options
from d5ray.recipes.engine.parsing import options
from d5ray.recipes.engine.parsing.options import seconds_of

if TYPE_CHECKING:
    from d5ray.kits.laboratory.bench.bench import Bench

app = typer.Typer(no_args_is_help=True, **options.PLAIN)

Frameworks = Annotated[
    str, typer.Option(help="Some of torch, tensorflow, numpy, cupy, jax, with commas between them.")
]
OwnFrameworks = Annotated[
    str | None,
    typer.Option(
        help="By default that in which an operator or a model of JAX is written; else torch, of a custom "
        "operator torch,numpy."
    ),
]
Device = Annotated[str, typer.Option(help="cpu or cuda.")]
Budget = Annotated[str, typer.Option(help="How long to measure at most: 60s, 5m, 1h.")]
Dtype = Annotated[str, typer.Option(help="float32, float64, float16 or bfloat16.")]
Processes = Annotated[int, typer.Option(help="Fresh processes of each contender; an interval needs 6.")]
Threads = Annotated[int | None, typer.Option(help="Of a process on a CPU; by default all usable cores.")]
Seed = Annotated[int, typer.Option(help="Of the order of problems, and of their inputs.")]
To = Annotated[
    str | None, typer.Option(metavar="FORMAT", help="Also export the run: benchmarker, csv, json, …")
]
Out = Annotated[
    Path | None, typer.Option(metavar="PATH", callback=options.target, help="Where the export goes.")
]
Training = Annotated[bool, typer.Option("--training", help="With the backward pass.")]


def _run(
    job: "Bench",
    to: To = None,
    out: Out = None,
    address: options.Address = None,
    json: options.Json = False,
) -> None:
    """Run a bench, export what is asked for, show it, and end with the command's exit code."""
    from d5ray.dashboards.terminal import run_tables  # noqa: PLC0415
    from d5ray.kits.laboratory.bench import measuring  # noqa: PLC0415 - imports Ray
    from d5ray.kits.laboratory.tables import operator_tables as shown  # noqa: PLC0415 - quick for those who only want help
    from d5ray.metrics.exports import catalogue  # noqa: PLC0415

    if to is not None:
        catalogue.check_free(to, out)
    run = measuring.run(job, address, quiet=json)
    data = shown.as_data(run)
    if to is not None:
        data["exported"] = str(catalogue.export(run, to, out))
    if json:
        run_tables.as_json(data)
    else:
        shown.show(run)
    if data["status"] == "interrupted":
        raise typer.Exit(INTERRUPTED)
    if data["status"] != "completed" or not data["operators"]:
        raise typer.Exit(EXIT_CODES[INCONCLUSIVE])


def _measured(make: Callable[..., "Bench"]) -> Callable[..., None]:
    """A command that runs the bench that a function makes of its options."""
    return app.command()(with_options(make, _run))


@app.callback()
def bench() -> None:
    """Measure parts of deep learning: at published sizes, or your own.

    Contenders take turns, each in fresh processes of its own, and a run is kept. Exit code 2: nothing was
    measured.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # what TensorFlow says of itself when it is imported
    # JAX is tried here before Ray's processes start, which are another program at once.
    warnings.filterwarnings("ignore", r"os\.fork\(\) was called", RuntimeWarning)


@_measured
def operators(
    suite: Annotated[str, typer.Option(help="Whose sizes: deepbench.")] = "deepbench",
    frameworks: Frameworks = "torch,numpy",
    device: Device = "cpu",
    budget: Budget = "60s",
    mode: Annotated[str, typer.Option(help="training (with backward passes) or inference.")] = "training",
    problems: Annotated[str, typer.Option(help="Some of gemm, conv, rnn.")] = "gemm,conv,rnn",
    dtype: Dtype = "float32",
    processes: Processes = 6,
    threads: Threads = None,
    seed: Seed = 0,
) -> "Bench":
    """Time operators at published sizes under several frameworks.

    They take turns, each in fresh processes of its own. The problems are measured in random order until the
    budget ends; what it does not reach is listed. Exit code 2: nothing was measured.
    """
    from d5ray.kits.laboratory.bench.deepbench import OperatorBench  # noqa: PLC0415 - quick for those who only want help

    return OperatorBench(
        suite=suite,
        mode=mode,
        groups=_listed(problems),
        frameworks=_listed(frameworks),
        device=device,
        dtype=dtype,
        **_amounts(budget, processes, seed, threads),
    )


def _operations(flops: float) -> int:
    check_number("--flops", flops, low=0.0, low_included=False)
    return round(flops)


@_measured
def operator(
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE:NAME",
            help="A custom operator, an nn.Module or a layer (or its class), or a function of arrays; of "
            "several, all are compared with the first. Also torch.nn.functional:silu.",
        ),
    ],
    shapes: Annotated[
        list[str],
        typer.Option(
            metavar="SHAPES",
            help="Of the inputs of a call, such as 64x128,128x256; 64:int64 has a type. Each --shapes is "
            "measured.",
        ),
    ],
    frameworks: OwnFrameworks = None,
    training: Training = False,
    flops: Annotated[
        list[float] | None,
        typer.Option(help="Operations of a forward call, where the framework does not count; per --shapes."),
    ] = None,
    values: Annotated[str, typer.Option(metavar="LOW,HIGH", help="Between which inputs are drawn.")] = "-1,1",
    device: Device = "cpu",
    budget: Budget = "5m",
    dtype: Dtype = "float32",
    processes: Processes = 6,
    threads: Threads = None,
    seed: Seed = 0,
) -> "Bench":
    """Time operators of your own, also under several frameworks.

    Each is called once before anything is kept: one that raises, or gives NaN, is an error.
    """
    from d5ray.kits.laboratory.bench.own_operators import OwnOperatorBench, named  # noqa: PLC0415 - quick for help

    return OwnOperatorBench(
        operators=named(names),
        asked=_some("--frameworks", frameworks),
        shapes=tuple(shapes),
        training=training,
        flops=tuple(_operations(each) for each in flops or ()),
        values=_range(values),
        device=device,
        dtype=dtype,
        **_amounts(budget, processes, seed, threads),
    )


@_measured
def network(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL",
            help="A name such as resnet18, an ONNX file, or FILE:NAME of an nn.Module, a Keras model, a "
            "Network, a model of Flax or Equinox, or of what makes one.",
        ),
    ],
    batch: Annotated[str, typer.Option(metavar="SIZES", help="Samples of a call, such as 1,8,64.")] = "1",
    shape: Annotated[
        str | None,
        typer.Option(metavar="SHAPE", help="Of a sample, such as 3x224x224, where it is not known."),
    ] = None,
    classes: Annotated[int | None, typer.Option(help="Of a network by name.")] = None,
    frameworks: OwnFrameworks = None,
    training: Training = False,
    device: Device = "cpu",
    budget: Budget = "5m",
    processes: Processes = 6,
    threads: Threads = None,
    seed: Seed = 0,
) -> "Bench":
    """Time a whole network, also under several frameworks.

    A model of PyTorch or Keras runs under its own framework as it is, and as a Network under others; one of
    JAX under JAX alone.
    """
    from d5ray.kits.laboratory.bench.own_network import Asked  # noqa: PLC0415 - quick for those who only want help
    from d5ray.kits.laboratory.bench.own_networks import NetworkBench  # noqa: PLC0415

    found = Asked(model, shape, classes, training, seed).found()
    return NetworkBench(
        network=found,
        batches=_counts("--batch", batch),
        training=training,
        frameworks=_some("--frameworks", frameworks) or (found.home if found.home == "jax" else "torch",),
        device=device,
        **_amounts(budget, processes, seed, threads),
    )


@_measured
def data(
    dataset: Annotated[
        str,
        typer.Argument(
            metavar="DATASET",
            help="A name such as digits or image_folder, or FILE:NAME of a Dataset, or of what makes one.",
        ),
    ],
    decoder: Annotated[
        str | None,
        typer.Option(help="Of images in files, compared: some of pillow, torchvision, opencv, turbojpeg."),
    ] = None,
    batch: Annotated[str, typer.Option(metavar="SIZES", help="Samples of a batch, such as 16,64.")] = "64",
    workers: Annotated[
        str | None,
        typer.Option(help="Threads that prepare batches, such as 0,1,4; by default 0,1,2 where that helps."),
    ] = None,
    prefetch: Annotated[
        str | None, typer.Option(help="Batches that are prepared ahead; by default two a worker.")
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="An option of a data set by name: path=/data, size=224."
        ),
    ] = None,
    budget: Budget = "5m",
    processes: Processes = 6,
    seed: Seed = 0,
) -> "Bench":
    """Time how quickly samples and batches are there.

    Nothing else is computed meanwhile: a batch's time is what a step would wait for at least.
    """
    from d5ray.kits.laboratory.bench.loaded_data import asked  # noqa: PLC0415 - quick for those who only want help
    from d5ray.kits.laboratory.bench.own_data import DataBench  # noqa: PLC0415
    from d5ray.recipes.engine.parsing.texts import settings_of  # noqa: PLC0415

    return DataBench(
        data=asked(dataset, settings_of(settings or ())),
        decoders=_some("--decoder", decoder),
        batches=_counts("--batch", batch),
        workers=() if workers is None else _counts("--workers", workers),
        ahead=() if prefetch is None else _counts("--prefetch", prefetch),
        **_amounts(budget, processes, seed),
    )


@_measured
def allreduce(
    backends: Annotated[
        str, typer.Option(help="Some of shared_memory, socket, hierarchical, nccl, with commas between them.")
    ] = "shared_memory,socket",
    agents: Annotated[str, typer.Option(metavar="COUNTS", help="Of a group, such as 2,4.")] = "2",
    sizes: Annotated[
        str | None, typer.Option(help="Of the arrays in elements of float32; by default DeepBench's seven.")
    ] = None,
    budget: Budget = "5m",
    processes: Annotated[int, typer.Option(help="Fresh groups of each kind; an interval needs 6.")] = 6,
    seed: Annotated[int, typer.Option(help="Of the order of sizes.")] = 0,
) -> "Bench":
    """Time sums over agents by several backends.

    The agents are those of a training: actors of Ray, each with its communicator. GB/s are the array's bytes
    over the time. Exit code 2: nothing was measured.
    """
    from d5ray.kits.laboratory.bench.allreduces import DEEPBENCH, AllreduceBench  # noqa: PLC0415 - quick for help

    return AllreduceBench(
        backends=_listed(backends),
        agents=_counts("--agents", agents),
        sizes=DEEPBENCH if sizes is None else _counts("--sizes", sizes),
        **_amounts(budget, processes, seed),
    )


def _amounts(budget: str, processes: int, seed: int, threads: int | None = None) -> dict[str, Any]:
    """How much every bench measures; threads are left to it where none are given."""
    found = {"budget_seconds": seconds_of(budget), "processes": processes, "seed": seed}
    return found if threads is None else {**found, "threads": threads}


def _listed(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _some(option: str, text: str | None) -> tuple[str, ...]:
    """The names in an option that may be left out, but not be empty."""
    if text is not None and not _listed(text):
        raise ConfigurationError(f"{option} is {text!r}, which names nothing: give a name, or leave it out")
    return () if text is None else _listed(text)


def _counts(option: str, text: str) -> tuple[int, ...]:
    try:
        return tuple(map(int, text.split(",")))
    except ValueError:
        raise ConfigurationError(
            f"{option} {text!r} is no list of numbers: give one such as 1,8,64"
        ) from None


def _range(text: str) -> tuple[float, float]:
    try:
        low, high = map(float, text.split(","))
    except ValueError:
        raise ConfigurationError(
            f"--values {text!r} is no range: give the lowest and the highest value, such as 0,1"
        ) from None
    return low, high
