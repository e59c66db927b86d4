"""A page of HTML as tests look at it: its elements, their attributes, and its texts"""

from html.parser import HTMLParser

LOADS = ("src", "href", "xlink:href", "action", "data", "srcset")


class Page(HTMLParser):
    """left: elements that are not closed, or not in their order, as `<br>` never is."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.texts: list[str] = []
        self.left: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        self.left.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if self.left[-1:] == [tag]:
            self.left.pop()
        else:
            self.left.append(f"/{tag}")

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    @property
    def text(self) -> str:
        return " ".join(self.texts)

    @property
    def wanted(self) -> list[tuple[str, str | None]]:
        """What the page would load or execute, but for its own parts."""
        return [
            (name, value)
            for name, value in self.attributes
            if name.startswith("on") or (name in LOADS and value and not value.startswith("#"))
        ]
