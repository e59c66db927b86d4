"""`main`, where the users' own recipe files import it from; it stands in `d5ray.recipes.engine.command`"""

from d5ray.recipes.engine.command import main

__all__ = ["main"]
