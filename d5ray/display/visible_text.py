"""Visible text: what a terminal or a page would obey, or hide, is shown in its place"""

import unicodedata

# Controls, formats (bidirectional overrides, zero-width characters, tags), halves of pairs, line ends
HIDDEN = {"Cc", "Cf", "Cs", "Zl", "Zp"}
_PICTURES = {code: chr(0x2400 + code) for code in range(32)} | {0x7F: "␡"}


def one_line(text: str) -> str:
    """The text on one line, in which every character that is not seen has its picture or its number.

    >>> one_line("a\\x1b[31mb\\nc"), one_line("\\u202etxt\\x9b"), one_line("naïve [kernel] 漢字")
    ('a␛[31mb␊c', '\\\\u202etxt\\\\x9b', 'naïve [kernel] 漢字')
    """
    return text if text.isprintable() else "".join(map(_shown, text))


def visible(text: str) -> str:
    """A text over several lines with control characters made visible, but for line ends and tabs.

    >>> print(visible("first\\n\\tsecond\\rthird"))
    first
            second␍third
    """
    return "\n".join(map(one_line, text.expandtabs().split("\n")))


def _shown(character: str) -> str:
    if unicodedata.category(character) not in HIDDEN:
        return character
    code = ord(character)
    return _PICTURES.get(code) or ascii(character)[1:-1]
