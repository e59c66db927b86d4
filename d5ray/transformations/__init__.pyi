from d5ray.training.transformations import CentreCrop as CentreCrop
from d5ray.training.transformations import Crop as Crop
from d5ray.training.transformations import Cutout as Cutout
from d5ray.training.transformations import Normalize as Normalize
from d5ray.training.transformations import RandomFlip as RandomFlip
from d5ray.training.transformations import ReplicateBatch as ReplicateBatch
from d5ray.training.transformations import Resize as Resize
from d5ray.training.transformations import Sampled as Sampled
