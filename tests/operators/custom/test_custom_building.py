"""Building operators in C++: errors with the user's line, what is kept, several processes at once"""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import d5ray as d5
from d5ray.errors import ConfigurationError, DataError, OperatorError, StorageError
from d5ray.operators.custom.cpp import compilers
from tests.operators.custom.listings import IPOWOP, QUICK
from tests.patience import patience

FLOAT = d5.TensorDescriptor("float32", (3,))
X = np.array([1, 2, 3], "float32")
PLUS = """
struct plus : deep500::CustomOperator {
    void forward(const float *x, float *y) { for (int i = 0; i < 3; ++i) y[i] = x[i] + AMOUNT; }
};
"""


@pytest.fixture
def empty_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A D5RAY_HOME in which nothing has been built."""
    monkeypatch.setenv("D5RAY_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def plus(amount: object = 1, source: Any = PLUS, **options: Any) -> d5.CustomCppOp:
    """x + amount."""
    return d5.compile_custom_cppop(
        "plus", source, [FLOAT], [FLOAT], **{"definitions": {"AMOUNT": amount}, "flags": QUICK, **options}
    )


def libraries(home: Path) -> dict[Path, int]:
    """What has been built, and when."""
    return {path: path.stat().st_mtime_ns for path in home.glob("operators/*/*.so")}


@pytest.mark.full
def test_an_error_shows_the_users_own_line() -> None:
    """File, line, the line itself and a mark below it, and nothing of the wrapper."""
    with pytest.raises(OperatorError, match="the C\\+\\+ operator ipowop does not compile") as error:
        d5.compile_custom_cppop(
            "ipowop",
            IPOWOP.replace("output[i] = std", "outputs[i] = std"),
            [FLOAT],
            [FLOAT],
            definitions={"DPOWER": 2},
            arguments=(3,),
        )
    lines = str(error.value).splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith("ipowop.cpp:12:13: error: "))
    assert "outputs" in lines[at]
    assert lines[at + 1].endswith("outputs[i] = std::pow(input[i], DPOWER);")
    assert "^" in lines[at + 2]
    assert "wrapper" not in str(error.value)


@pytest.mark.full
def test_an_error_in_a_template_shows_the_users_line_too() -> None:
    """What only fails for the type that it is used with; how the compiler came there is left out."""
    with pytest.raises(OperatorError) as error:
        plus(
            source=PLUS.replace("struct plus", "template <typename T> struct plus").replace(
                "x[i] +", "*x[i] +"
            )
        )
    assert "plus.cpp:3:" in str(error.value)
    assert "wrapper" not in str(error.value)


def test_an_error_in_a_file_names_the_file(tmp_path: Path) -> None:
    """By its path, as an editor can open it."""
    path = tmp_path / "my plus.cpp"
    path.write_text(PLUS.replace("y[i] =", "z[i] ="))
    with pytest.raises(OperatorError) as error:
        plus(source=path)
    assert f"{path}:3:" in str(error.value)


MUST = "of plus must be public and take"


@pytest.mark.parametrize(
    ("found", "given", "options", "message"),
    [
        ("const float *x", "const double *x", {}, rf"forward {MUST} \(const float\*, float\*\)"),
        ("    void", "private: void", {}, rf"forward {MUST}"),
        ("{\n", "{ plus(int) {}\n", {}, "the constructor takes arguments, but none are given"),
        ("", "", {"arguments": (1, "a")}, r"no constructor of plus takes the arguments given, \(int, str\)"),
        (
            "{\n",
            "{ void backward(float *) {}\n",
            {},
            rf"backward {MUST} \(const float\*, const float\*, const ",
        ),
    ],
)
def test_a_class_that_does_not_fit_is_told_in_a_sentence(
    found: str, given: str, options: dict[str, Any], message: str
) -> None:
    """Constructors and methods of other parameters than the tensors ask for."""
    with pytest.raises(OperatorError, match=message) as error:
        plus(source=PLUS.replace(found, given, 1), **options)
    assert len(str(error.value).splitlines()) == 1


def test_a_name_that_the_code_has_not_is_told() -> None:
    """With the one that it has."""
    with pytest.raises(ConfigurationError, match=r"has no class plusses \(did you mean 'plus'\?\)"):
        d5.compile_custom_cppop("plusses", PLUS, [FLOAT], [FLOAT])
    with pytest.raises(ConfigurationError, match="is no name of a class"):
        d5.compile_custom_cppop("plus; int x", PLUS, [FLOAT], [FLOAT])


@pytest.mark.full
def test_what_was_built_is_taken_again(empty_home: Path) -> None:
    """The same file with the same time stamp; anything that matters gives another one."""
    np.testing.assert_array_equal(plus().forward(X), X + 1)
    first = libraries(empty_home)
    assert len(first) == 1
    plus()
    assert libraries(empty_home) == first
    np.testing.assert_array_equal(plus(2).forward(X), X + 2)
    np.testing.assert_array_equal(plus(source=PLUS.replace("x[i] +", "x[i] -")).forward(X), X - 1)
    plus(flags=("-O0",))
    assert len(libraries(empty_home)) == 4
    assert libraries(empty_home).items() >= first.items()


@pytest.mark.full
def test_a_changed_file_is_built_again_also_when_only_an_included_one_changed(
    tmp_path: Path, empty_home: Path
) -> None:
    """In the same process, which has the older one loaded."""
    header, path = tmp_path / "amount.h", tmp_path / "plus.cpp"
    header.write_text("#define AMOUNT 5\n")
    path.write_text('#include "amount.h"\n' + PLUS)
    older = plus(source=str(path), definitions={})
    np.testing.assert_array_equal(older.forward(X), X + 5)
    header.write_text("#define AMOUNT 6\n")
    np.testing.assert_array_equal(plus(source=path, definitions={}).forward(X), X + 6)
    np.testing.assert_array_equal(older.forward(X), X + 5)
    header.unlink()
    with pytest.raises(OperatorError, match=r"plus.cpp:1:\d+: fatal error: amount.h"):
        plus(source=path, definitions={})


@pytest.mark.full
def test_a_damaged_library_is_built_again(empty_home: Path) -> None:
    """As a full disk leaves it."""
    imports = "import sys; from tests.operators.custom.test_custom_building import plus, X"
    program = f"{imports}; print(*plus().forward(X))"
    assert _python(program, empty_home).stdout == "2.0 3.0 4.0\n"
    (library,) = libraries(empty_home)
    library.write_bytes(library.read_bytes()[:2000])
    assert _python(program, empty_home).stdout == "2.0 3.0 4.0\n"


@pytest.mark.full
def test_processes_that_build_the_same_at_once_build_it_once(empty_home: Path) -> None:
    """All of them get the operator; nothing else is left beside it."""
    program = "from tests.operators.custom.test_custom_building import plus, X; print(*plus(7).forward(X))"
    processes = [_started(program, empty_home) for _ in range(3)]
    said = [process.communicate(timeout=patience(200)) for process in processes]
    assert [out for out, _ in said] == ["8.0 9.0 10.0\n"] * 3, said
    (library,) = libraries(empty_home)
    assert sorted(path.name for path in library.parent.iterdir()) == sorted(
        ["built.json", "lock", library.name]
    )


@pytest.mark.full
def test_what_a_killed_process_left_is_cleared_away(empty_home: Path) -> None:
    """By the next one that builds the same."""
    plus()
    (library,) = libraries(empty_home)
    library.unlink()
    (library.parent / "building-dead").mkdir()
    (library.parent / "building-dead" / "made.so").write_text("half")
    plus()
    assert not (library.parent / "building-dead").exists()


def test_a_missing_compiler_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """With what to install; or that the one that is named is not there."""
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigurationError, match=r"no C\+\+ compiler was found .*apt install g\+\+"):
        plus()
    monkeypatch.setenv("CXX", "my-compiler -x")
    with pytest.raises(ConfigurationError, match=r"'my-compiler -x' \(named in CXX\) was not found: install"):
        plus()
    with pytest.raises(ConfigurationError, match=r"nvcc' \(which CUDA sources need\) was not found: .*CUDA"):
        compilers.find(cuda=True)
    (tmp_path / "false").write_text("#!/bin/sh\nexit 3\n")
    (tmp_path / "false").chmod(0o755)
    with pytest.raises(ConfigurationError, match=r"false --version failed with exit code 3"):
        plus(compiler="false")


def test_flags_that_a_compiler_does_not_know_are_left_out() -> None:
    """Those of d5ray; the user's own are an error that says so."""
    found = compilers.find()
    assert not found._knows("-fno-such-flag")
    assert found.flags(None)[: len(compilers.ALWAYS)] == compilers.ALWAYS
    assert "-O3" in found.flags(None)
    assert found.flags(("-std=c++20",)) == ("-fPIC", "-shared", "-fvisibility=hidden", "-std=c++20")
    with pytest.raises(OperatorError, match="no-such-flag"):
        plus(flags=("-fno-such-flag",))


def test_files_and_folders_that_cannot_be_used_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The user's file, an empty text, D5RAY_HOME."""
    with pytest.raises(DataError, match=r"the C\+\+ file .*none.cpp cannot be read \(No such file"):
        plus(source=tmp_path / "none.cpp")
    with pytest.raises(ConfigurationError, match="give the code as a text"):
        plus(source=" ")
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("D5RAY_HOME", str(tmp_path / "file"))
    with pytest.raises(StorageError, match="name another one in D5RAY_HOME"):
        plus()


def _started(program: str, home: Path) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", program],
        env=os.environ | {"D5RAY_HOME": str(home)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def _python(program: str, home: Path) -> "subprocess.CompletedProcess[str]":
    process = _started(program, home)
    out, err = process.communicate(timeout=patience(200))
    return subprocess.CompletedProcess(program, process.returncode, out, err)
