"""Report before it is a page or a text: sections of tables, figures and sentences"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, final

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

Mark = Literal["", "good", "bad", "open", "differs"]


@final
@dataclass(frozen=True)
class TableCell:
    """A text of a table that stands out."""

    text: str
    mark: Mark = ""


@final
@dataclass(frozen=True)
class ReportTable:
    """Rows of texts. numeric: the columns whose texts are numbers; folded: shown when it is asked for."""

    title: str
    header: tuple[str, ...]
    rows: Sequence[tuple[str | TableCell, ...]]
    numeric: frozenset[int] = frozenset()
    folded: bool = False


@final
@dataclass(frozen=True)
class Figure:
    """A picture, which is drawn when it is needed.

    name: of its file, without an ending; told: in words what is seen, for those who cannot see it too.
    """

    name: str
    title: str
    told: str
    draw: "Callable[[], Drawing]"


@final
@dataclass(frozen=True)
class Note:
    """A sentence; it stands out if something is to be known before a figure is believed."""

    text: str
    warning: bool = False


Block = ReportTable | Figure | Note


@final
@dataclass(frozen=True)
class Section:
    """A part of the report. key: by which it is linked to."""

    key: str
    title: str
    blocks: tuple[Block, ...]


@final
@dataclass(frozen=True)
class ReportDocument:
    """A report. verdicts: what the runs came to, word by word; facts: what is said at the top."""

    title: str
    verdicts: tuple[TableCell, ...]
    facts: tuple[tuple[str, str], ...]
    sections: tuple[Section, ...] = field(default=())

    @property
    def figures(self) -> list[Figure]:
        """All pictures, in their order."""
        return [block for section in self.sections for block in section.blocks if isinstance(block, Figure)]
