from d5ray.testing.keras import same_as_keras as same_as_keras
