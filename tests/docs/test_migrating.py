"""Claims about the page for those who come from elsewhere: 15 lines here, and theirs do what is said"""

import importlib
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from tests.conftest import python
from tests.docs.guide import THEIRS, blocks
from tests.docs.page import DOCS

PAGE = DOCS / "guide/migrating.md"
MOST_LINES = 15
OURS = [block.text for block in blocks(PAGE) if block.kind == "python"]
PEERS = dict(
    zip(
        ("ddp", "lightning", "accelerate", "ray_train"),
        [block.text for block in blocks(PAGE) if block.kind == THEIRS],
        strict=True,
    )
)
COMMANDS = {  # the module that starts each in two processes, and where its weights are then
    "ddp": (["-m", "torch.distributed.run", "--nproc-per-node=2"], "gpt.pt"),
    "lightning": ([], "gpt.ckpt"),
    "accelerate": (
        ["-m", "accelerate.commands.launch", "--cpu", "--num_processes=2"],
        "out/model.safetensors",
    ),
    "ray_train": ([], "gpt.pt"),
}


def test_two_workers_bfloat16_and_the_weights_are_fifteen_lines() -> None:
    """Beside model, data and loss: imports, experiment, training and file; the page's program runs them."""
    model_and_data, training, *_ = OURS
    lines = [line for line in training.splitlines() if line.strip()]
    assert len(lines) <= MOST_LINES
    for wanted in ("agents=2", 'precision="bfloat16"', "d5.launch(", "torch.save(group.state_dict()"):
        assert wanted in training
    assert "d5ray" not in model_and_data
    assert not re.search(r";|^\s*if .*: \S", training, re.MULTILINE)  # no two statements in a line


def losses(weights: dict[str, torch.Tensor]) -> tuple[float, float]:
    """The loss of the page's model on its test text, with its first weights and with these."""
    names: dict[str, Any] = {}
    exec(compile(OURS[0], str(PAGE), "exec"), names)
    torch.manual_seed(1)
    model, text = names["GPT"](), names["Text"](names["words"][:500])
    samples = [text[number] for number in range(len(text))]
    tokens, following = (torch.stack(each) for each in zip(*samples, strict=True))
    with torch.no_grad():
        before = names["next_byte"](model(tokens), following).item()
        missing, unexpected = model.load_state_dict(weights, strict=False)
        assert set(missing) <= {"head.weight"} and not unexpected  # it is tied to another
        return before, names["next_byte"](model(tokens), following).item()


@pytest.mark.full
@pytest.mark.parametrize("peer", PEERS)
def test_their_lines_train_the_same_model(peer: str, tmp_path: Path) -> None:
    """In two processes, where the package is there: its weights fit the model, and are better than none."""
    if peer in ("lightning", "accelerate"):
        try:
            importlib.import_module(peer)
        except ImportError:
            pytest.skip(f"{peer} is not installed")
    command, file = COMMANDS[peer]
    script = tmp_path / "page.py"
    script.write_text(f"{OURS[0]}\nout = {str(tmp_path / file)!r}\n{PEERS[peer]}", encoding="utf-8")
    own = {"HOME": str(tmp_path), "OMP_NUM_THREADS": "1", "RAY_USAGE_STATS_ENABLED": "0"}
    python("-W", "ignore", *command, script, cwd=tmp_path, env=own, seconds=120)
    found: Any = load_file(tmp_path / file) if file.endswith("tensors") else torch.load(tmp_path / file)
    tensors = found.get("state_dict", found)
    before, after = losses({name.removeprefix("model."): tensor for name, tensor in tensors.items()})
    assert after < 0.85 * before
