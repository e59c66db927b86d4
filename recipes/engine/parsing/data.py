"""The data of a recipe, as its hash has them: by their content, where FIXED does not tell it"""

from collections.abc import Callable, Mapping
from typing import Any

from d5ray.experiment import Experiment
from d5ray.metrics.judge.comparable import DATA
from d5ray.recipes.engine.parsing.fixed import Fixed
from d5ray.training.datasets.catalogue import is_made, load_dataset
from d5ray.training.datasets.dataset import Dataset


def data_of(held: Fixed, make: Callable[[], Any]) -> dict[str, str]:
    """SHA-256 of each data set of the job that is made, by its key in `environment`; raises `DataError`.

    Data that FIXED says as a whole, and that follow from that (made from a seed, or a `Dataset`), are left
    out: FIXED tells them. What comes from files is read, and so are data that FIXED leaves open.
    """
    if fixed_data(held):
        return {}
    job = make()
    fixed = "dataset" not in _fields(job)  # a job that says them otherwise, in FIXED
    return {
        f"{DATA} {name}".rstrip(): _fingerprint(dataset, options)
        for name, (dataset, options) in _datasets(job).items()
        if not (fixed and (isinstance(dataset, Dataset) or is_made(dataset, options)))
    }


def fixed_data(held: Fixed) -> bool:
    """True if FIXED says which data, and they follow from that."""
    own = held.values.get("dataset", {})
    dataset = own.get("dataset")
    if not held.tells("dataset"):
        return False
    if isinstance(dataset, str):
        return is_made(dataset, own.get("dataset_kwargs", {}))
    return isinstance(dataset, Dataset)


def _datasets(job: Any) -> Mapping[str, tuple[str | Dataset, Mapping[str, Any]]]:
    """Name and options of the data sets that a job trains on, by what tells several apart."""
    if isinstance(job, Experiment):
        return {"": (job.dataset, job.dataset_kwargs)}
    own = getattr(job, "datasets", None)
    found: Mapping[str, tuple[str | Dataset, Mapping[str, Any]]] = own() if callable(own) else {}
    return found


def _fingerprint(dataset: str | Dataset, options: Mapping[str, Any]) -> str:
    return (dataset if isinstance(dataset, Dataset) else load_dataset(dataset, **options)).fingerprint


def _fields(job: Any) -> Any:
    return getattr(job, "__dataclass_fields__", {})
