"""Metrics of the live page: what a viewer waits for"""

from dataclasses import dataclass
from typing import final

from d5ray.metrics.definitions.side_by_side import OfAContender

PAGE_TIME = "page_time"


@final
@dataclass(frozen=True)
class PageTime(OfAContender):
    """From what a viewer does until the browser has drawn what was asked for, measured in the browser.

    what: "first view" (from the navigation), "zoom", "axis", or "view NAME"
    """

    what: str

    name = PAGE_TIME
    description = "the time until the page's charts are drawn"
