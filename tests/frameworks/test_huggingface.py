"""Claims about models of Hugging Face's transformers: they train as they are, and come out as they came in"""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import d5ray as d5

pytest.importorskip("transformers")
from transformers import GPT2Config, GPT2LMHeadModel, T5Config, T5ForConditionalGeneration
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


def t5() -> Any:
    """A small T5 with random weights; nothing is dropped."""
    sizes = {"d_model": 16, "d_kv": 8, "d_ff": 16, "num_layers": 1, "num_heads": 2, "vocab_size": 64}
    return T5ForConditionalGeneration(
        T5Config(**sizes, dropout_rate=0.0, decoder_start_token_id=0, pad_token_id=0)
    )


LENGTHS = RNG.integers(2, 13, 24)
TEXTS = [{"input_ids": TOKENS[at, :long], "labels": TOKENS[at, :long]} for at, long in enumerate(LENGTHS)]
PAIRS = [
    {"input_ids": TOKENS[at, :long], "labels": TOKENS[-at, : 14 - long]} for at, long in enumerate(LENGTHS)
]
Padded = d5.datasets.Padded
LANGUAGE: dict[str, tuple[Any, Any]] = {
    "next token": (gpt2, Padded(TEXTS, {"input_ids": 0, "labels": -100})),
    "sequence to sequence": (t5, Padded(Padded(PAIRS, {"input_ids": 0}), {"labels": -100}, mask=None)),
}


def plain(make: Any, padded: Any, batch: int) -> dict[str, torch.Tensor]:
    """The model by a loop of PyTorch, that many samples at a time."""
    torch.manual_seed(3)
    model = make()
    optimizer = torch.optim.SGD(model.parameters(), 0.5)
    for first in range(0, len(padded), batch):
        samples = [padded[at] for at in range(first, min(first + batch, len(padded)))]
        names = ("input_ids", "attention_mask", "labels")
        given = {name: torch.from_numpy(np.stack([each[name] for each in samples])) for name in names}
        optimizer.zero_grad()
        model(**given).loss.backward()
        optimizer.step()
    found: dict[str, torch.Tensor] = model.state_dict()
    return found


@pytest.mark.parametrize("pieces", [1, 2, 5])
@pytest.mark.parametrize("kind", LANGUAGE)
def test_padded_sequences_train_as_in_a_loop_and_in_pieces(kind: str, pieces: int) -> None:
    """Pieces count the labels that the model predicts: of a next token all but a sequence's first one."""
    make, padded = LANGUAGE[kind]
    data = d5.from_torch(padded, test=padded, classes=64)
    wanted = experiment(model=make, dataset=data, agents=1, batch_size=10 // pieces, accumulate=pieces)
    with d5.simulate(wanted) as group:
        group.train(progress=False)
        trained = group.state_dict()
    for name, tensor in plain(make, padded, 10).items():
        assert torch.allclose(tensor, trained[name], atol=1e-6), name
