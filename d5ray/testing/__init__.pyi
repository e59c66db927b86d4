from d5ray.distributed.group.in_threads import in_group as in_group
from d5ray.testing.keras import same_as_keras as same_as_keras
from d5ray.testing.torch import same_as_torch as same_as_torch
