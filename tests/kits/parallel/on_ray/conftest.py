"""One embedded Ray for all launches of these tests, and none afterwards"""

from tests.actors.conftest import ray_ends as ray_ends
