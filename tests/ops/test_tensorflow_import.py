"""TensorFlow is imported on demand, quietly, and beside PyTorch"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.patience import patience

REPOSITORY = Path(__file__).parent.parent.parent


def run(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """A fresh Python; the variables with which TensorFlow is told what to say are not inherited."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("TF_")}
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**inherited, "PYTHONPATH": str(REPOSITORY), **environment},
        capture_output=True,
        text=True,
        timeout=patience(250),
        check=False,
    )


def test_nothing_else_imports_it() -> None:
    """Neither d5ray, nor the catalogue, nor the array operators."""
    code = (
        "import sys, d5ray.ops.catalogue, d5ray.ops.arrays, d5ray.operators.nodes.node_context\n"
        "print('tensorflow' in sys.modules)"
    )
    assert run(code).stdout == "False\n"


@pytest.mark.full
def test_it_starts_without_a_word_and_beside_pytorch() -> None:
    """Nothing is written to either stream; both compute in one process, on more than one thread."""
    code = (
        "import torch; a = torch.ones(600, 600); assert float((a @ a)[0, 0]) == 600\n"
        "from d5ray.ops.tensorflow import FACTORIES\n"
        "from d5ray.ops.tensorflow.library import tf\n"
        "x = tf.ones((4, 3, 64, 64)); w = tf.ones((8, 3, 3, 3))\n"
        "from d5ray.operators.nodes.node import Node\n"
        "from d5ray.operators.nodes.node_context import NodeContext\n"
        "y = tf.function(FACTORIES['Conv'](NodeContext(Node('Conv', ('x', 'w'), ('y',)))))(x, w)\n"
        "z = torch.nn.functional.conv2d(torch.ones(4, 3, 64, 64), torch.ones(8, 3, 3, 3))\n"
        "assert y.shape == z.shape and float(y[0, 0, 0, 0]) == float(z[0, 0, 0, 0]) == 27\n"
        "z.requires_grad_().sum().backward(); assert float((a @ a)[0, 0]) == 600\n"
    )
    done = run(code)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.slow
def test_what_others_write_meanwhile_is_let_through() -> None:
    """Only TensorFlow's own notices are held back: also a line that C code writes to the stream is shown."""
    code = (
        "import importlib.abc, os, sys\n"
        "class Noisy(importlib.abc.MetaPathFinder):\n"
        "    def find_spec(self, name, path, target=None):\n"
        "        if name == 'tensorflow':\n"
        "            os.write(2, b'a line of somebody\\n'); sys.stderr.write('and of Python\\n')\n"
        "sys.meta_path.insert(0, Noisy())\n"
        "import d5ray.ops.tensorflow.library\n"
    )
    done = run(code)
    assert done.returncode == 0
    assert done.stderr == "a line of somebody\nand of Python\n"


def test_without_it_the_error_says_what_to_install() -> None:
    """One sentence, with the extra's name."""
    code = "import sys; sys.modules['tensorflow'] = None\nimport d5ray.ops.tensorflow"
    done = run(code)
    assert done.returncode == 1
    assert "ConfigurationError: TensorFlow cannot be imported" in done.stderr
    assert "pip install 'd5ray[tensorflow]'" in done.stderr
