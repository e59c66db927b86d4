from d5ray.training.datasets import ImageFolder as ImageFolder
from d5ray.training.datasets import Parquet as Parquet
from d5ray.training.datasets import Samples as Samples
from d5ray.training.datasets import Split as Split
from d5ray.training.datasets import Subset as Subset
from d5ray.training.datasets import Synthetic as Synthetic
from d5ray.training.datasets import load_dataset as load_dataset
from d5ray.training.datasets.log_mel import LogMel as LogMel
