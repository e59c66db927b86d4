"""Sources, or bytecode, of the user's own classes and functions, with what of the user's they use"""

import ast
import dataclasses
import dis
import functools
import inspect
import json
import linecache
import re
import site
import sys
import sysconfig
import textwrap
import threading
import types
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache, lru_cache
from operator import itemgetter
from pathlib import Path
from typing import Any

from d5ray.identity.checkout import is_benchmark

PLAIN = (type(None), bool, int, float, complex, str, bytes)
SLOTS = (types.MemberDescriptorType, types.GetSetDescriptorType)
USUAL = {"np": "numpy", "nn": "torch.nn", "F": "torch.nn.functional", "tf": "tensorflow", "d5": "d5ray"}
LIBRARIES = frozenset((  # known by name also where one has built them oneself, in the folder of their sources
    "cupy", "flax", "jax", "keras", "numpy", "onnx", "onnxruntime", "ray", "scipy", "sklearn", "tensorflow",
    "torch", "torchvision", "transformers", "triton",
))  # fmt: skip
RECIPES = (Path(__file__).parents[1] / "recipes").resolve()
HEAP_TYPE = 1 << 9  # CPython's flag of a class that a program made
LOADS = ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS")
Code = type | types.FunctionType
_reading = threading.Lock()  # Python's cache of sources may be asked by one thread at a time


@dataclass
class SourceTexts:
    """The texts of a class or function, in the order in which they are met, and the values they use."""

    texts: list[str] = field(default_factory=list)
    values: dict[str, Any] = field(default_factory=dict)

    def keep(self, name: str, value: Any) -> None:
        """Add a value; of two that are called alike, such as those of two closures, both count."""
        while name in self.values and self.values[name] is not value:
            name += "'"
        self.values[name] = value


def is_own(thing: Any) -> bool:
    """True if a class or function is the user's: neither d5ray's, nor Python's, nor an installed package's.

    A shipped recipe counts as the user's, as a benchmark does: the same file runs as a program and as a
    module; but not its data classes, which hashes have always known by name. So does a function of an
    installed package that carries the name of one of the user's: a wrapper.
    """
    if not isinstance(thing, Code) or ("__dataclass_fields__" in vars(thing) and _ships(module_of(thing))):
        return False
    module: Any = getattr(thing, "__module__", None)
    if not isinstance(module, str | None):
        return False
    if module_of(thing) == "builtins":  # so says what `exec` made without a module
        return isinstance(thing, types.FunctionType) or bool(thing.__flags__ & HEAP_TYPE)
    wraps = isinstance(thing, types.FunctionType) and _is_own_module(thing.__globals__.get("__name__", ""))
    return wraps or _is_own_module(module_of(thing))


def module_of(thing: Any) -> str:
    """The name of the module that a class or function says it is of."""
    name = getattr(thing, "__module__", None)
    return name if name and isinstance(name, str) else "builtins"  # Cython's metaclasses have a descriptor


def is_named(function: types.FunctionType) -> bool:
    """True if its name leads to a function, which so is not one of several that another one has made."""
    found: Any = sys.modules.get(module_of(function))
    for name in function.__qualname__.split("."):
        found = getattr(found, name, None)
    return found is function


def told(thing: Code) -> SourceTexts | None:
    """The source of `thing`, of its bases, and of the user's own classes and functions that it uses, with
    the values that they use; None where it is not the user's own. Bytecode and constants stand for a source
    that Python did not keep, or that is not what runs: of `exec`, standard input, or a file edited since.

    Values are the globals that a text names, what a function closes over, its defaults, and attributes of a
    class that its text does not say.
    """
    if not is_own(thing):
        return None
    with _reading:
        teller = _Teller()
        teller.tell(thing)
    return teller.found


def kept(function: types.FunctionType) -> Iterator[tuple[str, Any]]:
    """The names and values that a function closes over, and its defaults."""
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        if name != "__class__":
            yield from ((name, value) for value in _contents(cell))
    for number, value in enumerate(function.__defaults__ or ()):
        yield f"default {number}", value
    yield from ((f"default {name}", value) for name, value in (function.__kwdefaults__ or {}).items())


def bytecode(code: types.CodeType) -> str:
    """Code as text: instructions, names and constants, but not the file and the lines that it stood in."""
    numbers = [code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags]
    names = [list(each) for each in (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)]
    run = [code.co_code.hex(), code.co_exceptiontable.hex()]
    return json.dumps([*run, *numbers, *names, [_constant(each) for each in code.co_consts]])


def is_plain(value: Any) -> bool:
    """True if the value is data: a number, a text, or a container of such."""
    left, seen = [value], set()
    while left:
        each = left.pop()
        if isinstance(each, (dict, list, tuple, set, frozenset)):
            if id(each) not in seen:  # it may hold itself
                seen.add(id(each))
                left += [*each.keys(), *each.values()] if isinstance(each, dict) else each
        elif not isinstance(each, PLAIN):
            return False
    return True


class _Teller:
    """Follows a class or function to all of the user's own that it uses."""

    def __init__(self) -> None:
        self.found = SourceTexts()
        self._seen: set[int] = set()

    def tell(self, thing: Code) -> None:
        """Add a class or function, and what it uses, once."""
        if id(thing) in self._seen:
            return
        self._seen.add(id(thing))
        if isinstance(thing, types.FunctionType):
            text = _text_of_function(thing)
            self.found.texts.append(bytecode(thing.__code__) if text is None else text)
            self._uses(thing, thing)
            if text is not None and not _tells(text, thing):
                self.found.texts.append(bytecode(thing.__code__))
            return
        text = _text_of_class(thing)
        if text is None:
            self.found.texts.append(f"class {thing.__qualname__}")
        elif not any(text in each for each in self.found.texts):
            self.found.texts.append(text)
        for base in thing.__mro__[1:]:
            if _follows(thing, base):
                self.tell(base)
            elif text is None:
                self.found.keep(f"{thing.__qualname__}: base {base.__qualname__}", base)
        if is_own(type(thing)) and _follows(thing, type(thing)):
            self.tell(type(thing))
        members = list(_members(thing))
        for name, member in members if text is not None else sorted(members, key=itemgetter(0)):
            self._member(thing, name, member, text)

    def _member(self, kind: type, name: str, member: Any, text: str | None) -> None:
        """Add an attribute of a class; text: the class's source, which says most of them."""
        key = f"{kind.__qualname__}: {name}"
        for function in (functions := list(_functions(member))):
            if text is not None and _is_within(kind, function):
                self._uses(kind, function)
            elif text is None or not (_is_generated(kind, function) or name.startswith("_")):
                self.use(kind, key, function, always=True)
        if text is None and isinstance(member, functools.partialmethod):
            self.found.keep(f"{key} given", [list(member.args), member.keywords])
        if functions or isinstance(member, SLOTS):
            return
        if text is None or (re.search(rf"\b{re.escape(name)}\b", text) and not _says(text, name, member)):
            self.use(kind, key, member, always=True)

    def _uses(self, thing: Code, function: types.FunctionType) -> None:
        """Add what a function uses, for the class or function that it is of."""
        codes = list(_codes(function.__code__))
        names = {name: None for code in codes for name in code.co_names}
        steps = (each for code in codes for each in dis.get_instructions(code))
        loaded = {each.argval for each in steps if each.opname in LOADS}
        for name in filter(function.__globals__.__contains__, names):
            value = function.__globals__[name]
            if name in loaded or _follows(thing, value) or is_plain(value):
                self._named(thing, f"{function.__qualname__}: {name}", value, names)
        for name, value in kept(function):
            if isinstance(value, types.ModuleType):
                self._named(thing, f"{function.__qualname__}: {name}", value, names)
            self.use(thing, f"{function.__qualname__}: {name}", value, always=True)

    def _named(self, thing: Code, name: str, value: Any, names: dict[str, None]) -> None:
        """Add a global; of a module of the user's, what is named after a dot."""
        if not isinstance(value, types.ModuleType) or not _is_own_module(value.__name__):
            self.use(thing, name, value, always=not _is_as_usual(name, value))
        elif id(value) not in self._seen:
            self._seen.add(id(value))
            for attribute in names:
                if attribute in vars(value):
                    self._named(thing, f"{name}.{attribute}", vars(value)[attribute], names)
            self._seen.discard(id(value))

    def use(self, thing: Code, name: str, value: Any, *, always: bool = False) -> None:
        """Add something that is used: the user's code by its text, all else by its value."""
        if _follows(thing, value):
            self.tell(value)
        elif always:
            self.found.keep(name, value)


def _is_own_module(name: str) -> bool:
    if name.partition(".")[0] == "d5ray":
        return name.startswith("d5ray.recipes.")
    if name == "__main__":  # of an agent it is Ray's, but what was sent there is the user's
        return True
    if (top := name.partition(".")[0]) in sys.stdlib_module_names or top in LIBRARIES:
        return False
    file = getattr(sys.modules.get(name), "__file__", None)
    return file is None or not _installed(file)


def _ships(module: str) -> bool:
    """True if a loaded module is one of d5ray's recipes, what they share, or a benchmark."""
    if not module.startswith("d5ray.recipes."):
        return is_benchmark(module)
    file = getattr(sys.modules.get(module), "__file__", None)
    return file is not None and Path(file).resolve().is_relative_to(RECIPES)


def _is_as_usual(name: str, value: Any) -> bool:
    """True if a global that is installed has the name that everybody calls it by: then a text tells it."""
    name = re.split("[:. ]+", name)[-1]
    if isinstance(value, types.ModuleType):
        return value.__name__ == USUAL.get(name, name)
    return (
        isinstance(value, (type, types.FunctionType, types.BuiltinFunctionType))
        and module_of(value).partition(".")[0] in sys.stdlib_module_names - {"__main__"}
        and value.__name__ == name
    )


def _follows(thing: Code, other: Any) -> bool:
    """True if the other one's source belongs to that of `thing`: what recipes share is d5ray's own."""
    if not is_own(other):
        return False
    module = module_of(other)
    return module == module_of(thing) or not (module.startswith("d5ray.") or is_benchmark(module))


# -- texts ------------------------------------------------------------------------------------------------


def _text_of_function(function: types.FunctionType) -> str | None:
    """The source of a function, where Python has it and it is what runs."""
    code, module = function.__code__, sys.modules.get(function.__globals__.get("__name__", ""))
    if module is None or vars(module) is not function.__globals__:
        return None  # it came by value from another process, whose files may be others
    if code not in _compiled(code.co_filename):
        return None
    try:
        return inspect.getsource(code)
    except (OSError, TypeError, SyntaxError):
        return None


def _text_of_class(kind: type) -> str | None:
    """The source of a class, where Python has it and it is what runs."""
    try:
        text = inspect.getsource(kind)
        file = inspect.getsourcefile(kind) or ""
    except (OSError, TypeError, SyntaxError, AttributeError):  # the last from torch, of a class of no module
        return None
    if sum(code.co_qualname == kind.__qualname__ for code in _compiled(file)) != 1:
        return None  # it is not there, or not the only one of its name
    functions = [f for _, member in _members(kind) for f in _functions(member) if _is_within(kind, f)]
    texts = map(_text_of_function, functions)
    return text if all(each is not None and each in text for each in texts) else None


def _compiled(file: str) -> frozenset[types.CodeType]:
    """All code that a source file, or a cell of a notebook, is compiled to now."""
    linecache.checkcache(file)
    return _compiled_text("".join(linecache.getlines(file)), file)


@lru_cache(maxsize=64)
def _compiled_text(text: str, file: str) -> frozenset[types.CodeType]:
    try:
        return frozenset(_codes(compile(text, file, "exec", dont_inherit=True)))
    except (SyntaxError, ValueError):
        return frozenset()


def _tells(text: str, function: types.FunctionType) -> bool:
    """True if the text tells a function from all others: not one line with two of a lambda's kind."""
    if function.__code__.co_name != "<lambda>":
        return True
    try:
        tree = ast.parse(textwrap.dedent(text).strip())
    except SyntaxError:  # a part of a statement, which may end too early
        return False
    return sum(isinstance(node, ast.Lambda) for node in ast.walk(tree)) == 1


def _says(text: str, name: str, value: Any) -> bool:
    """True if the source of a class sets an attribute to this value, in so many words."""
    try:
        (statement,) = ast.parse(textwrap.dedent(text)).body
    except (SyntaxError, ValueError):
        return False
    found: list[Any] = []
    for each in getattr(statement, "body", ()):
        targets = [each.target] if isinstance(each, ast.AnnAssign) else getattr(each, "targets", ())
        if any(isinstance(target, ast.Name) and target.id == name for target in targets):
            found.append(each.value)
    try:
        said = ast.literal_eval(found[-1])
    except (IndexError, TypeError, ValueError):
        return False
    return type(said) is type(value) and repr(said) == repr(value)


# -- parts ------------------------------------------------------------------------------------------------


def _members(kind: type) -> Iterator[tuple[str, Any]]:
    """What a class defines itself, but for what Python adds; a data class's fields with their defaults."""
    fields = vars(kind).get("__dataclass_fields__", {})
    for each in fields.values():
        for name, default in ((each.name, each.default), (f"{each.name}()", each.default_factory)):
            if default is not dataclasses.MISSING and each.name in vars(kind).get("__annotations__", {}):
                yield name, default
    for name, member in vars(kind).items():
        added = name.startswith("__") and name.endswith("__") and not any(_functions(member))
        if not (added or name in fields or name.startswith("_abc_")):
            yield name, member


def _functions(member: Any) -> Iterator[types.FunctionType]:
    """The functions within an attribute of a class: itself, a property's, or what a decorator wraps."""
    if isinstance(member, types.FunctionType):
        yield member
    elif isinstance(member, property):
        for function in (member.fget, member.fset, member.fdel):
            yield from _functions(function)
    elif isinstance(member, (staticmethod, classmethod)):
        yield from _functions(member.__func__)
    elif isinstance(member, (functools.cached_property, functools.partialmethod)):
        yield from _functions(member.func)
    elif not isinstance(member, type) and (inner := wrapped(member)) is not None:
        yield from _functions(inner)


def wrapped(value: Any) -> Any:
    """The function that a decorator such as `functools.lru_cache` was given; None of all else."""
    given = inspect.getattr_static(value, "__dict__", None)
    given = getattr(value, "__dict__", None) if given is not None else None
    return given.get("__wrapped__") if isinstance(given, dict) else None


def _is_within(kind: type, function: types.FunctionType) -> bool:
    """True if a function stands in a class's source, and was not put there afterwards."""
    return function.__code__.co_qualname.startswith(f"{kind.__qualname__}.")


def _is_generated(kind: type, function: types.FunctionType) -> bool:
    """True if a function was made from what a class's source says, as a data class's `__init__` is."""
    made = "__dataclass_fields__" in vars(kind) or issubclass(kind, tuple)
    if not (made and function.__name__.startswith("__")) or _is_within(kind, function):
        return False
    module = function.__globals__.get("__name__", "")
    return function.__code__.co_filename.startswith("<") or not _is_own_module(module)


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _codes(constant)


def _constant(value: Any) -> Any:
    if isinstance(value, types.CodeType):
        return bytecode(value)
    if isinstance(value, tuple):
        return [_constant(each) for each in value]
    if isinstance(value, frozenset):
        return sorted(map(repr, value))
    return f"{type(value).__name__} {value!r}"


def _contents(cell: types.CellType) -> tuple[Any, ...]:
    """The contents of a cell; one of a function that is still being defined is empty."""
    try:
        return (cell.cell_contents,)
    except ValueError:
        return ()


@cache
def _installed(file: str) -> bool:
    path = Path(file).resolve()
    return any(path.is_relative_to(folder) for folder in (*_folders(), *_of_packages(tuple(sys.path))))


@cache
def _folders() -> tuple[Path, ...]:
    """The folders of installed packages and Python's own modules."""
    known = [sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    known += [*site.getsitepackages(), site.getusersitepackages()]
    return tuple(Path(folder).resolve() for folder in known if folder)


@cache
def _of_packages(paths: tuple[str, ...]) -> tuple[Path, ...]:
    """Those of these folders with installed packages, such as a cluster's modules put into PYTHONPATH."""
    folders = [Path(path).resolve() for path in paths]
    return tuple(folder for folder in folders if any(folder.glob("*.dist-info")))
