"""Data sets: published ones, folders of images, Parquet, and made-up samples of any size"""

from d5ray.names.lazy import lazily

__getattr__, __dir__ = lazily(__name__)
