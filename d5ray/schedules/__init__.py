"""Schedules: a hyperparameter, or the batch size, as a function of the step or the epoch"""

from d5ray.names.lazy import lazily

__getattr__, __dir__ = lazily(__name__)
