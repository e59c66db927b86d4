"""Data sets: published ones in memory; images in folders, Parquet and made-up samples of any size"""

from d5ray.training.datasets.catalogue import (
    check_dataset_name,
    check_dataset_options,
    dataset_names,
    load_dataset,
    training_samples,
)
from d5ray.training.datasets.dataset import Dataset, Split
from d5ray.training.datasets.image_folder import ImageFolder
from d5ray.training.datasets.parquet import Parquet
from d5ray.training.datasets.samples import Samples, Subset
from d5ray.training.datasets.synthetic import Synthetic

__all__ = [
    "Dataset",
    "ImageFolder",
    "Parquet",
    "Samples",
    "Split",
    "Subset",
    "Synthetic",
    "check_dataset_name",
    "check_dataset_options",
    "dataset_names",
    "load_dataset",
    "training_samples",
]
