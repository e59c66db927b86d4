"""Data sets in memory: scikit-learn's digits, MNIST, Fashion-MNIST, CIFAR-10 and CIFAR-100."""

from d5ray.training.datasets.catalogue import (
    check_dataset_name,
    check_dataset_options,
    dataset_names,
    load_dataset,
)
from d5ray.training.datasets.dataset import Dataset, Split

__all__ = [
    "Dataset",
    "Split",
    "check_dataset_name",
    "check_dataset_options",
    "dataset_names",
    "load_dataset",
]
