"""Claims about files whose names are those of Python's modules or of libraries"""

from pathlib import Path

import pytest

from d5ray.errors import ConfigurationError
from d5ray.identity.shadowing import check_shadowing
from tests.conftest import python


@pytest.mark.parametrize(
    ("name", "taken"),
    [
        ("random.py", "random"), ("torch.py", "torch"), ("select.py", "select"),
        ("queue/__init__.py", "queue"),
        ("ray.py", "ray"), ("logging.cpython-311-x86_64-linux-gnu.so", "logging"),
        ("test.py", ""), ("random.txt", ""), ("data.py", ""), ("queue/other.py", ""),
        ("torch/__init__.py", ""),
        ("torch_model.py", ""),
    ],
)  # fmt: skip
def test_file_that_hides_a_module_is_named(name: str, taken: str, tmp_path: Path) -> None:
    """Only what Python would import in a module's place is refused, by its path, and with what it hides."""
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("")
    if not taken:
        check_shadowing([str(tmp_path)])
        return
    with pytest.raises(ConfigurationError, match=f"{tmp_path}.*{taken!r}"):
        check_shadowing([str(tmp_path)])


SCRIPT = """
import d5ray as d5, numpy as np, torch
data = d5.from_arrays(np.zeros((4, 2), np.float32), np.array([0, 1, 0, 1]))
e = d5.Experiment(model=torch.nn.Linear(2, 2), dataset=data, optimizer=d5.optimizers.SGD(0.1), agents=1,
                  batch_size=2)
try:
    d5.{call}(e)
except d5.D5Error as error:
    print(error)
"""


@pytest.mark.parametrize("call", ["launch", pytest.param("simulate", marks=pytest.mark.full)])
def test_run_beside_such_a_file_is_refused_before_anything_starts(call: str, tmp_path: Path) -> None:
    """A program beside whose file another one hides a module that agents import hears of it at once."""
    (tmp_path / "imaplib.py").write_text("raise OSError")
    (tmp_path / "main.py").write_text(SCRIPT.replace("{call}", call))
    assert "imaplib.py would be imported" in python(tmp_path / "main.py").out
