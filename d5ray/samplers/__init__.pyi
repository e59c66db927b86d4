from d5ray.training.samplers.bucket import BucketSampler as BucketSampler
from d5ray.training.samplers.choice import ChoiceSampler as ChoiceSampler
from d5ray.training.samplers.sampler import BlockShuffleSampler as BlockShuffleSampler
from d5ray.training.samplers.sampler import OrderedSampler as OrderedSampler
from d5ray.training.samplers.sampler import ShuffleSampler as ShuffleSampler
from d5ray.training.samplers.validation import LabelBias as LabelBias
from d5ray.training.samplers.validation import check_sampler as check_sampler
from d5ray.training.samplers.validation import label_bias as label_bias
