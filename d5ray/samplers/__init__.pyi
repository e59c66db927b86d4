from d5ray.training.samplers import BlockShuffleSampler as BlockShuffleSampler
from d5ray.training.samplers import BucketSampler as BucketSampler
from d5ray.training.samplers import ChoiceSampler as ChoiceSampler
from d5ray.training.samplers import LabelBias as LabelBias
from d5ray.training.samplers import OrderedSampler as OrderedSampler
from d5ray.training.samplers import ShuffleSampler as ShuffleSampler
from d5ray.training.samplers import check_sampler as check_sampler
from d5ray.training.samplers import label_bias as label_bias
