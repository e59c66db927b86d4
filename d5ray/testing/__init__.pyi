from d5ray.testing.keras import same_as_keras as same_as_keras
from d5ray.testing.torch import same_as_torch as same_as_torch
