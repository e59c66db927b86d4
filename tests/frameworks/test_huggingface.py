"""Claims about models of Hugging Face's transformers: they train as they are, and come out as they came in"""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import d5ray as d5

pytest.importorskip("transformers")
from transformers import GPT2Config, GPT2LMHeadModel
from transformers.utils import logging

logging.set_verbosity_error()
RNG = np.random.default_rng(5)
TOKENS = RNG.integers(0, 64, (48, 16))
TRAIN, TEST = (d5.datasets.Split(part.copy(), part.copy()) for part in (TOKENS[:32], TOKENS[32:]))
TEXT = d5.Dataset("tokens", TRAIN, TEST, tuple(map(str, range(64))))


def gpt2() -> Any:
    """A small GPT-2 with random weights, whose head is its embedding; nothing is dropped."""
    settings = {
        "embd_pdrop": 0.0,
        "attn_pdrop": 0.0,
        "resid_pdrop": 0.0,
        "bos_token_id": 0,
        "eos_token_id": 0,
    }
    return GPT2LMHeadModel(
        GPT2Config(n_layer=2, n_head=2, n_embd=16, vocab_size=64, n_positions=16, **settings)
    )


def experiment(**changes: Any) -> d5.Experiment:
    values: dict[str, Any] = {
        "model": gpt2, "dataset": TEXT, "optimizer": d5.optimizers.SGD(0.5), "loss": "model", "seed": 3,
        "train_sampler": d5.samplers.OrderedSampler(), "batch_size": 4, "agents": 2,
    }  # fmt: skip
    return d5.Experiment(**(values | changes))


@pytest.fixture(scope="module")
def run() -> d5.Run:
    with d5.simulate(experiment()) as group:
        group.train(progress=False)
    return d5.Run(group.folder)


def test_two_agents_train_it_as_a_loop_of_pytorch_does(run: d5.Run) -> None:
    """The loop sees both agents' samples in one batch, and takes the model's own loss."""
    torch.manual_seed(3)
    alone = gpt2()
    optimizer = torch.optim.SGD(alone.parameters(), 0.5)
    for first in range(0, 32, 8):
        tokens = torch.from_numpy(TRAIN.inputs[first : first + 8])
        optimizer.zero_grad()
        alone(tokens, labels=tokens).loss.backward()
        optimizer.step()
    trained = run.state_dict()
    for name, tensor in alone.state_dict().items():
        assert torch.allclose(tensor, trained[name], atol=2e-6), name


def test_the_file_of_a_run_is_read_by_from_pretrained(run: d5.Run, tmp_path: Path) -> None:
    """Beside its config.json: every weight, the head tied to the embedding; and save_pretrained writes it."""
    model = d5.load_model(run)
    assert isinstance(model, GPT2LMHeadModel) and model.lm_head.weight is model.transformer.wte.weight
    shutil.copy(run.folder / "model.safetensors", tmp_path)
    model.config.save_pretrained(tmp_path)
    model.save_pretrained(tmp_path / "saved")
    for folder in (tmp_path, tmp_path / "saved"):
        read = GPT2LMHeadModel.from_pretrained(folder)
        assert all(
            torch.equal(tensor, read.state_dict()[name]) for name, tensor in model.state_dict().items()
        )


def test_a_loss_of_scores_sees_its_logits() -> None:
    """With labels moved by one, d5ray's own loss and accuracy over tokens, as of the logits alone."""
    moved = d5.datasets.Split(TOKENS[:, :-1].copy(), TOKENS[:, 1:].copy())
    data = d5.Dataset("moved", moved, moved, TEXT.classes)
    wanted = experiment(dataset=data, loss=d5.operators.SoftmaxCrossEntropyLoss())
    with d5.simulate(wanted) as group:
        group.train(progress=False)
        model = group.model()
        rows = group.metrics().to_pylist()
    (accuracy,) = {row["value"] for row in rows if row["metric"] == "test_accuracy"}
    with torch.no_grad():
        logits = model(torch.from_numpy(moved.inputs)).logits
    right = (logits.argmax(-1).numpy() == moved.labels).mean()
    assert accuracy == pytest.approx(float(right), abs=1e-9)
