"""Samplers: the order of an epoch's samples, which of them each agent gets, and checks of that"""

from d5ray.training.samplers.bucket import BucketSampler
from d5ray.training.samplers.choice import ChoiceSampler
from d5ray.training.samplers.sampler import BlockShuffleSampler, OrderedSampler, Sampler, ShuffleSampler
from d5ray.training.samplers.shards import Draw, Shards, Sharing
from d5ray.training.samplers.validation import LabelBias, check_sampler, label_bias

__all__ = [
    "BlockShuffleSampler",
    "BucketSampler",
    "ChoiceSampler",
    "Draw",
    "LabelBias",
    "OrderedSampler",
    "Sampler",
    "Shards",
    "Sharing",
    "ShuffleSampler",
    "check_sampler",
    "label_bias",
]
