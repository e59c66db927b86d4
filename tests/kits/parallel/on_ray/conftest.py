"""One embedded Ray for all launches of these tests, and none afterwards"""

from collections.abc import Iterator

import pytest

import d5ray as d5


@pytest.fixture(scope="session", autouse=True)
def ray_ends() -> Iterator[None]:
    yield
    d5.shutdown()
