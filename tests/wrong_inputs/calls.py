"""A valid call of everything that d5ray exports: from annotations and defaults, else from a table"""

import inspect
import typing
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import datasets as hf
import networkx
import numpy as np
import pyarrow as pa
import torch

import d5ray as d5
from d5ray.frameworks.numpy import from_onnx
from d5ray.names import namespaces
from d5ray.networks.microbatch.measuring import StepCost
from d5ray.networks.network import Network
from tests.beside_kits import cases_of, public_names
from tests.metrics.small_runs import finished

NOT_CALLED = {
    "made by d5ray alone, which hands it to the user": {
        "Batch", "Collectives", "LabelBias", "Moment", "PeerMessage", "PipelineExecutor", "Sampled",
        "DeployedNetwork", "Kernel", "LayerKernels", "Estimate",
    },
    "abstract, and so are its subclasses to users": {"Communicator", "Peers", "Policy", "Server"},
    "an exception": {*namespaces.table("d5ray.errors")},
    "NumPy's": {
        "bfloat16", "float16", "float32", "float64", "int16", "int32", "int64", "int8", "uint16", "uint32",
        "uint64", "uint8",
    },
    "starts Ray's processes, or needs a Ray that runs": {"running", "resize", "deploy", "from_ray", "tune"},
    "has no parameters": {"shutdown"},
    "has members, of which one takes one": {"ExchangeVia"},
    "imports TensorFlow or JAX, which take longer and more memory than an input may": {
        "KerasOptimizer", "OptaxOptimizer", "same_as_keras",
    },
    "trains, and takes whatever an experiment takes": {"same_as_torch"},
    "calls whatever function it is given": {"in_group"},
}  # fmt: skip


@cache
def data() -> d5.Dataset:
    """Sixteen samples (1, 4, 4) of three classes."""
    rng = np.random.default_rng(3)
    split = d5.datasets.Split(rng.normal(size=(16, 1, 4, 4)).astype(np.float32), np.arange(16) % 3)
    return d5.Dataset("tiny", split, split, ("a", "b", "c"))


@cache
def network() -> Network:
    """x (batch, 3) -> MatMul -> Relu -> y"""
    made = d5.Network("tiny")
    made.add_input("x", d5.TensorDescriptor("float32", ("batch", 3)))
    made.add_parameter("w", np.ones((3, 2), np.float32))
    made.add_node(d5.Node("MatMul", ("x", "w"), ("h",), name="product"))
    made.add_node(d5.Node("Relu", ("h",), ("y",), name="relu"))
    made.add_output("y")
    return made


@cache
def with_loss() -> Network:
    """The same with the mean of y as its loss."""
    made = network().copy()
    made.add_node(d5.Node("ReduceMean", ("y",), ("loss",), {"keepdims": 0}))
    made.add_output("loss")
    return made


SAME = """
struct same : deep500::CustomOperator {
    int n;
    same(const deep500::tensor_t *x, int, const deep500::tensor_t *, int) : n(x->elements()) {}
    void forward(const float *x, float *y) { for (int i = 0; i < n; ++i) y[i] = x[i]; }
};
"""


class Double:
    """An operator of one's own: 2 x."""

    def __call__(self, x: Any) -> Any:
        return x + x

    forward = __call__


def experiment(**values: Any) -> d5.Experiment:
    given: dict[str, Any] = {
        "model": "mlp", "dataset": data(), "optimizer": d5.optimizers.SGD(0.1), "agents": 2, "batch_size": 4,
        "recording": d5.metrics.Recording(10, 0.0, 0.0), "prefetch": 0,
    }  # fmt: skip
    return d5.Experiment.from_values(**{**given, **values})


def example(kind: type, name: str, folder: Path) -> Any:
    """A value of this kind that a parameter of this name takes."""
    examples: dict[Any, Any] = {
        int: 2, float: 0.5, str: "name", bool: True, Path: folder, d5.Optimizer: d5.optimizers.SGD(0.1),
        d5.Compressor: d5.compression.TernGrad(), d5.Schedule: d5.schedules.Cosine(0.1, 10),
        d5.Network: network(),
        d5.Dataset: data(), d5.Sampler: d5.samplers.ShuffleSampler(), d5.datasets.Samples: data().train,
        d5.Experiment: experiment(), d5.simulation.UniformLinks: d5.simulation.UniformLinks(),
        **dict(cases_of("workloads", lambda: [(d5.operators.DefaultBoxes, d5.operators.DefaultBoxes())])),
    }  # fmt: skip
    if kind in examples:
        return examples[kind]
    raise LookupError(f"no example of {kind} for {name}")


def table(folder: Path) -> dict[str, dict[str, Any]]:
    """What annotations do not tell."""
    square = np.ones((2, 3), np.float64)
    plain = {"x": np.ones((4, 3), np.float32)}
    vector = d5.TensorDescriptor("float32", ("n",))
    cpp = {"name": "same", "source": SAME, "inputs": [vector], "outputs": [vector], "flags": ("-O0",)}
    return {
        "Allreduce": {"compressor": d5.compression.RandomK(0.5)},
        "MeasureUtilisation": {"flops": lambda shapes, sample_shape: 1.0},
        "ChocoSGD": {"compressor": d5.compression.TopK(0.5), "gamma": 0.5},
        "Chain": {"sparsifier": d5.compression.TopK(0.5), "quantizer": d5.compression.Float16()},
        "Scheduled": {"rule": d5.optimizers.SGD(0.1), "learning_rate": d5.schedules.Cosine(0.1, 10)},
        "SparseAllreduce": {"compressor": d5.compression.TopK(0.5)},
        "AllGather": {"compressor": d5.compression.TernGrad()},
        "ScatterReduce": {"compressor": d5.compression.TernGrad()},
        "ErrorFeedback": {"compression": d5.compression.TopK(0.5)},
        "BucketSampler": {"lengths": [3, 1, 2] * 5 + [1]},
        "Computed": {"function": lambda step: 0.1},
        "FunctionLoss": {"function": lambda output, labels: output.mean()},
        "Custom": {"links": networkx.cycle_graph(3)},
        "CustomCppOp": cpp,
        "compile_custom_cppop": cpp,
        "network_by_name": {"name": "mlp", "options": {}, "sample_shape": (8,), "classes": 3},
        "Late": {"agent": 1, "seconds": 0.5},
        "NodeContext": {"node": d5.Node("Relu", ("x",), ("y",))},
        "MicroBatched": {"executor": from_onnx(network()), "size": 2},
        "Rows": {"run": run(folder, "rows").tables(), "metric": "loss"},
        "Series": {"folder": folder},
        "Table": {"table": run(folder, "rows").tables()["samples"]},
        "fastest_within": {"costs": {2: StepCost(0.1, 100)}, "limit_bytes": 200},
        "layer_kernels": {
            "factory": from_onnx, "network": network(), "node": "product", "sizes": (1,), "seconds": 0.0,
        },
        "operator_costs": {
            "factory": from_onnx, "network": with_loss(), "inputs": plain, "seconds": 0.0,
        },
        "step_costs": {
            "factory": from_onnx, "network": with_loss(), "inputs": plain, "sizes": (2,), "seconds": 0.0,
        },
        "Cut": {"nodes": ("relu",)},
        "Dataset": {"name": "tiny", "train": data().train, "test": data().test, "classes": ("a", "b", "c")},
        "Experiment": {
            "model": "mlp", "dataset": data(), "optimizer": d5.optimizers.SGD(0.1), "agents": 2,
            "batch_size": 4, "recording": d5.metrics.Recording(10, 0.0, 0.0), "prefetch": 0,
        },
        "GrowingBatch": {"milestones": [3]},
        "HierarchicalAveraging": {"group_size": 2, "period": 1, "global_period": 2},
        "ImageFolder": {"path": images(folder)},
        "MeasuredTime": {"durations_seconds": (0.1, 0.2)},
        "Node": {"type": "Relu", "inputs": ("x",), "outputs": ("y",)},
        "Normalize": {"mean": 0.5, "std": 0.5},
        "Padded": {"items": [{"ids": [1, 2]}, {"ids": [1]}], "values": {"ids": 0}},
        "Parquet": {"path": parquet(folder), "inputs": ("x",), "labels": "label"},
        "Piecewise": {"start": 0.1, "values": {3: 0.01}},
        "RandomRegular": {"agents": 4, "degree": 3},
        "Run": {"where": run(folder, "fuzz").folder},
        "Slowdown": {"agent": 1, "factor": 2.0},
        "Split": {"inputs": data().train.inputs, "labels": data().train.labels},
        "Subset": {"whole": data().train, "indices": np.arange(3)},
        "Synthetic": {"shape": (1, 4, 4)},
        "TensorDescriptor": {"dtype": "float32", "shape": (2, 3)},
        "TimeVarying": {"topologies": (d5.topologies.Ring(4), d5.topologies.Complete(4))},
        "TorchOptimizer": {"rule": torch.optim.Adam},
        "WarmUp": {"after": 0.1, "length": 3},
        "check_forward": {"operator": np.tanh, "inputs": [square], "reference": np.tanh},
        "check_gradient": {"operator": torch.tanh, "inputs": [square]},
        "check_repeatability": {"operator": np.tanh, "inputs": [square], "runs": 2},
        "check_sampler": {"sampler": d5.samplers.ShuffleSampler(), "samples": 16},
        "check_training": {"curve": [0.1, 0.2], "expected": [0.1, 0.2], "tolerance": 0.1},
        "compare_values": {"network": network(), "found": plain, "expected": plain},
        "convergence_curve": {"run": run(folder, "curve").tables()},
        "from_arrays": {"x": data().train.inputs, "y": data().train.labels},
        "from_huggingface": {"train": hf.Dataset.from_dict({"x": [[1.0]] * 16, "label": [0, 1] * 8})},
        "from_table": {"train": pa.table({"x": [1.0] * 16, "z": [2] * 16, "label": [0, 1] * 8})},
        "from_torch": {
            "train": [{"x": x, "labels": y % 3} for y, x in enumerate(data().train.inputs)],
            "classes": 3,
        },
        "export": {"run": run(folder, "out"), "to": "csv", "out": folder / "exported"},
        "load_dataset": {"name": "digits"},
        "median_interval": {"values": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]},
        "median_log_ratio": {"a": [1.0] * 8, "b": [2.0] * 8},
        "microbatched": {"network": network(), "sizes": {"product": [2, 2]}},
        "quantile_interval": {"values": [float(x) for x in range(40)], "q": 0.5},
        "register_operator": {"domain": "fuzz", "type": "Double", "operator": Double()},
        "replay": {"run": run(folder, "again")},
        "run_recipe": {"fixed": {}, "mutable": {}, "metrics": []},
        "simulate": {"experiment": experiment(), "root": folder / "simulated"},
        "sql": {"run": run(folder, "asked"), "query": "select 1"},
        "tensordesc": {"first": "float32", "second": (2, 3)},
        **dict(cases_of("workloads", lambda: of_files(folder).items())),
        **dict(cases_of("parallel", lambda: of_split_networks().items())),
    }  # fmt: skip


def run(folder: Path, name: str) -> d5.Run:
    if not (folder / "runs" / name).exists():
        finished(folder / "runs", name, seed=1)
    return d5.Run(folder / "runs" / name)


@cache
def of_split_networks() -> dict[str, dict[str, Any]]:
    """Networks in parts and in stages."""
    plan, cut = {"product": d5.networks.ByColumns()}, d5.pipelines.Cut(("relu",))
    splitting = d5.networks.Splitting(network(), plan, 2)
    return {
        "Splitting": {"network": network(), "plan": plan, "parts": 2},
        "exchange_table": {"splitting": splitting, "sizes": {"batch": 4}},
        "parameter_table": {"splitting": splitting},
        "pieces": {"network": network(), "cut": cut},
        "split": {"network": network(), "plan": plan, "index": 0, "parts": 2},
        "stage_table": {"pieces": d5.pipelines.pieces(network(), cut)},
    }


def of_files(folder: Path) -> dict[str, dict[str, Any]]:
    """Files of sixteen samples of two classes: TFRecord (3,), and a tar (2,)."""
    from tests.kits.workloads.files import write_records, write_tar  # noqa: PLC0415 - of a kit

    records, archive = folder / "some.tfrecord", folder / "some.tar"
    write_records(records, [{"x": [0.5, 1.5, at], "label": [at % 2]} for at in range(16)])
    write_tar(archive, {f"{at:04}": {"npy": np.ones(2) * at, "cls": at % 2} for at in range(16)})
    return {
        "TFRecord": {"path": records, "classes": 2, "inputs": "x"},
        "WebDataset": {"path": archive, "classes": 2},
    }


def images(folder: Path) -> Path:
    """Two images of two classes, in both parts."""
    from PIL import Image  # noqa: PLC0415

    for part in ("train", "test"):
        for name in ("a", "b"):
            (folder / "images" / part / name).mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (8, 8)).save(folder / "images" / part / name / "one.png")
    return folder / "images"


def parquet(folder: Path) -> Path:
    import pyarrow.parquet as pq  # noqa: PLC0415

    for part in ("train", "test"):
        (folder / "rows" / part).mkdir(parents=True, exist_ok=True)
        rows = pa.table({"x": [1.0, 2.0, 3.0], "label": [0, 1, 0]})
        pq.write_table(rows, folder / "rows" / part / "rows.parquet")
    return folder / "rows"


def valid_calls(folder: Path) -> dict[str, tuple[Callable[..., Any], dict[str, Any], list[str]]]:
    """Of every public name: what is called, arguments that fit, and all parameters."""
    left_out = set[str]().union(*NOT_CALLED.values())
    special = table(folder)
    calls = {}
    for name in public_names():
        thing = namespaces.public(name)
        if name in left_out or not callable(thing) or inspect.isabstract(thing):
            continue
        parameters = [
            each
            for each in inspect.signature(thing).parameters.values()
            if each.kind not in (each.VAR_KEYWORD, each.VAR_POSITIONAL)
        ]
        arguments = dict(special.get(name, {}))
        for each in parameters:
            if each.default is each.empty and each.name not in arguments:
                arguments[each.name] = example(_first(thing, each), f"{name}.{each.name}", folder)
        calls[name] = (thing, arguments, [each.name for each in parameters])
    return calls


def _first(thing: Any, parameter: inspect.Parameter) -> Any:
    """The first of the kinds that a parameter takes."""
    kind = parameter.annotation
    if isinstance(kind, str):
        target = thing.__init__ if inspect.isclass(thing) else thing
        kind = typing.get_type_hints(target).get(parameter.name, kind)
    if hasattr(kind, "__metadata__"):
        kind = kind.__origin__
    options = typing.get_args(kind) if typing.get_origin(kind) in (typing.Union, type(int | str)) else ()
    return options[0] if options else kind
