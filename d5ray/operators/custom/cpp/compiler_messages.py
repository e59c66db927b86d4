"""Messages of a compiler, without those about the wrapper"""

import re

# GCC and Clang write file:line:column: error: text, nvcc file(line): error: text.
_DIAGNOSTIC = re.compile(
    r"^(?P<file>[^\s:(][^:(]*)(:\d+(:\d+)?|\(\d+\)): (?:fatal |catastrophic )?(?P<kind>error|warning|note)"
    r"( #[-\w]+)?: (?P<text>.*)$"
)
_OURS = re.compile(r'd5ray: (?P<text>.*?)"?$')
_CONTEXT = re.compile(
    r"^(In file included from| +from |\S+: In |\S+: At |\S+:\d+(:\d+)?:( {3}|\s+(required|recursively)))"
)


def complaints(output: str) -> list[str]:
    """d5ray's messages about the user's class in the wrapper: constructors and methods that do not fit."""
    told = [said for block in _blocks(output.splitlines()) if (said := _told(block))]
    return list(dict.fromkeys(told))


def readable(output: str, wrapper: str) -> str:
    """The diagnostics about the user's code: file, line, the line itself and the place in it.

    wrapper: the file name of the generated code. Where only that is complained of, the output as it is.
    """
    own = [block for block in _blocks(output.splitlines()) if not _is_about(block, wrapper)]
    if not any(_kind(block) == "error" for block in own):
        return output.strip()
    return "\n".join(line for block in own for line in block if wrapper not in line).strip()


def _blocks(lines: list[str]) -> list[list[str]]:
    """The diagnostics, each with what stands before it about how the compiler came there."""
    blocks: list[list[str]] = []
    begun = False  # only context so far
    for line in lines:
        starts = _DIAGNOSTIC.match(line) is not None
        context = _CONTEXT.match(line) is not None and not starts
        if not blocks or (starts and not begun) or (context and not begun):
            blocks.append([])
        begun = context
        blocks[-1].append(line)
    return blocks


def _head(block: list[str]) -> "re.Match[str] | None":
    return next((found for line in block if (found := _DIAGNOSTIC.match(line))), None)


def _kind(block: list[str]) -> str:
    head = _head(block)
    return head["kind"] if head else ""


def _is_about(block: list[str], wrapper: str) -> bool:
    head = _head(block)
    return head is not None and (head["file"].endswith((wrapper, "deep500/binding.h")))


def _told(block: list[str]) -> str:
    """The message of a failed static_assert of ours."""
    head = _head(block)
    if head is None or head["kind"] != "error":
        return ""
    found = _OURS.search(head["text"])
    return found["text"] if found else ""
