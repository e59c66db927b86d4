"""The job of every comparison: contenders that do the same work, in rounds of fresh processes"""

from abc import ABC
from dataclasses import dataclass
from typing import TYPE_CHECKING

from d5ray.kits.laboratory.comparisons.comparison_job import ComparisonJob

if TYPE_CHECKING:
    from d5ray.actors.group.run_row import RunOrigin
    from d5ray.recipes.engine.recipe import Recipe, Result


@dataclass(frozen=True, kw_only=True)
class SideBySide(ComparisonJob, ABC):
    """A recipe's job that compares contenders; see `ComparisonJob` for its values and what a kind defines."""

    def run(self, recipe: "Recipe", origin: "RunOrigin", address: str | None, quiet: bool) -> "Result":
        """Measure everything that is compared, in turn, and judge the results."""
        from d5ray.kits.laboratory.comparisons import rounds  # noqa: PLC0415 - imports Ray

        return rounds.run(self, recipe, origin, address, quiet)
