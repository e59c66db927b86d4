"""Claims about the language model: it is GPT-2, counted as the paper counts, and learns a text in tokens"""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

import d5ray as d5
from d5ray.experiment import Experiment
from d5ray.recipes import language_model
from d5ray.recipes.engine.recipe import Recipe
from d5ray.recipes.models import GPT, SIZES, gpt_flops

TINY: dict[str, Any] = {"vocabulary": 300, "size": "1M", "context": 16, "depth": 2, "width": 32, "heads": 2}


def recipe(overrides: dict[str, Any] | None = None, **fixed: Any) -> Recipe:
    """The recipe with overrides, and, to be short, with other fixed values."""
    return Recipe.of(
        language_model.FIXED | fixed, language_model.MUTABLE, language_model.METRICS,
        name="language_model", overrides=overrides,
    )  # fmt: skip


def shapes_of(module: torch.nn.Module) -> dict[str, tuple[int, ...]]:
    return {name: tuple(each.shape) for name, each in module.named_parameters()}


# -- the network -------------------------------------------------------------------------------------------


def huggingface(ours: GPT) -> torch.nn.Module:
    """Hugging Face's GPT-2 of the same size, with the same weights; its products take transposed ones."""
    from transformers import GPT2Config, GPT2LMHeadModel  # noqa: PLC0415 - seconds

    block = ours.h[0]
    assert isinstance(block.attn, torch.nn.Module) and isinstance(block.attn.heads, int)
    config = GPT2Config(
        vocab_size=ours.wte.num_embeddings, n_positions=ours.wpe.num_embeddings,
        n_embd=ours.wte.embedding_dim, n_layer=len(ours.h), n_head=block.attn.heads,
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
    )  # fmt: skip
    theirs: torch.nn.Module = GPT2LMHeadModel(config).double()
    own = {f"transformer.{name}": tensor for name, tensor in ours.state_dict().items()}
    linear = ("c_attn.weight", "c_proj.weight", "c_fc.weight")
    given = {name: tensor.T if name.endswith(linear) else tensor for name, tensor in own.items()}
    missing, unknown = theirs.load_state_dict(given, strict=False)
    assert missing == ["lm_head.weight"] and not unknown  # which is the embedding's own
    return theirs


def test_loss_and_gradients_are_those_of_hugging_faces_gpt2() -> None:
    """The same weights, in float64: the loss, and the gradient of every parameter."""
    torch.manual_seed(5)
    ours = GPT(**TINY).double()
    theirs = huggingface(ours)
    tokens = torch.randint(300, (3, 17))
    loss = torch.nn.functional.cross_entropy(ours(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
    logits = theirs(input_ids=tokens[:, :-1]).logits
    expected = torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
    assert loss.item() == pytest.approx(expected.item(), rel=1e-12)
    torch.autograd.backward(loss)
    torch.autograd.backward(expected)
    found = dict(ours.named_parameters())
    for name, parameter in theirs.named_parameters():
        gradient = found[name.removeprefix("transformer.")].grad
        assert gradient is not None and parameter.grad is not None
        same = parameter.grad.T if gradient.shape != parameter.grad.shape else parameter.grad
        if name.endswith(("c_attn.weight", "c_proj.weight", "c_fc.weight")):
            same = parameter.grad.T
        torch.testing.assert_close(gradient, same, rtol=1e-9, atol=1e-12)


def test_the_largest_is_gpt2_small() -> None:
    """124,439,808 parameters, as Hugging Face's `gpt2`; the sizes are about their names."""
    with torch.device("meta"):
        largest = GPT(50_257, "124M")
        counts = {name: 12 * depth * width**2 for name, (depth, width, _) in SIZES.items()}
    assert sum(parameter.numel() for parameter in largest.parameters()) == 124_439_808
    for name, count in list(counts.items())[:-1]:
        assert 0.75 < count / (float(name[:-1]) * 1e6) < 1.1


def test_palms_count_is_what_pytorch_counts() -> None:
    """Forwards and backwards; the embedding's rows are looked up, and their products are the scores'."""
    torch.manual_seed(5)
    model = GPT(**TINY)
    tokens = torch.randint(300, (4, 16))
    with FlopCounterMode(display=False) as counter:
        scores = model(tokens)
        torch.autograd.backward(scores.logsumexp(-1).mean())
    expected = 4 * gpt_flops(shapes_of(model), (16,))
    norms = 6 * 16 * 4 * sum(math.prod(s) for n, s in shapes_of(model).items() if len(s) == 1)  # no products
    attention = 12 * 2 * 32 * 16 * 16 * 4
    assert counter.get_total_flops() == pytest.approx(expected - norms, abs=attention)


def test_a_size_that_there_is_not_is_named() -> None:
    with pytest.raises(d5.D5Error, match=r"size is '124m'.*'124M'"):
        GPT(300, "124m")
    with pytest.raises(d5.D5Error, match="take heads that divide the width"):
        GPT(300, width=30, heads=4)
    with pytest.raises(d5.D5Error, match=r"a sample has 9 tokens.*set model.context=9"):
        GPT(300, context=8)(torch.zeros(1, 9, dtype=torch.long))


# -- the recipe --------------------------------------------------------------------------------------------


def sums(folder: Path) -> str:
    rng = np.random.default_rng(1)
    text = "".join(f"{a} plus {b} equals {a + b}\n" for a, b in rng.integers(0, 10, (600, 2)))
    (folder / "sums.txt").write_text(text)
    return str(folder / "sums.txt")


SHORT: dict[str, Any] = {
    "dataset.vocabulary": 300, "dataset.length": 16, "model_kwargs": TINY, "batch_size": 8,
    "optimizer": "AdamW(0.01)",
}  # fmt: skip


@pytest.mark.full
def test_a_short_run_learns_its_own_text(tmp_path: Path) -> None:
    """600 sums, their numbers drawn from ten: 2 log₂ 10 bits for about 20 bytes are to be guessed."""
    short = recipe({**SHORT, "dataset.text": sums(tmp_path)}, epochs=6).made()
    assert isinstance(short, Experiment)
    with d5.simulate(short, root=tmp_path) as group:
        group.train(progress=False)
        tables = group.tables()
    bits = d5.metrics.TextBitsPerByte().estimate(tables).value
    assert bits is not None and 0.3 < bits < 0.9
    data = short.load_dataset()
    labels = data.test.labels
    loss = d5.metrics.TestLoss().estimate(tables).value
    assert loss is not None
    from d5ray.kits.workloads.datasets.tokens import lengths_of  # noqa: PLC0415

    expected = loss * labels.size / lengths_of(data.classes)[labels].sum() / math.log(2)
    assert bits == pytest.approx(expected, rel=1e-12)


@pytest.mark.full
def test_pieces_and_short_products_train_the_same_model(tmp_path: Path) -> None:
    """Four pieces of a batch give its parameters; in bfloat16 they are near; tokens are counted once."""
    text = sums(tmp_path)
    found = {}
    ways: dict[str, dict[str, Any]] = {
        "whole": {"batch_size": 8},
        "pieces": {"batch_size": 2, "accumulate": 4},
        "short": {"batch_size": 8, "precision": "bfloat16"},
    }
    for name, more in ways.items():
        experiment = recipe({**SHORT, "dataset.text": text, "optimizer": "SGD(0.1)", **more}).made()
        with d5.simulate(experiment, root=tmp_path) as group:
            group.train(6, progress=False)
            found[name] = group.parameters()["wte.weight"], group.tables()
    np.testing.assert_allclose(found["pieces"][0], found["whole"][0], rtol=1e-4, atol=1e-6)
    assert not np.array_equal(found["short"][0], found["whole"][0])
    np.testing.assert_allclose(found["short"][0], found["whole"][0], atol=2e-3)
    for _, tables in found.values():
        assert d5.metrics.Rows(tables, "tokens").value.tolist() == [8 * 16] * 12  # six steps of two agents
        assert len(d5.metrics.Rows(tables, "agent_peak_flop_rate")) == 4  # before and behind, of each


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"text": "nowhere.txt"}, "no file fits 'nowhere.txt'"),
        ({"text": "bytes.bin"}, "found the byte 0x80 at 128, expected text in UTF-8"),
        ({"text": "little.txt"}, "found 6 tokens to train"),
        ({"vocabulary": 9}, "vocabulary is 9"),
    ],
)
def test_wrong_texts_are_one_sentence(
    wrong: dict[str, Any], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bytes.bin").write_bytes(bytes(range(256)) * 50)
    (tmp_path / "little.txt").write_text("one two three " * 2)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(d5.D5Error, match=said) as error:
        d5.datasets.load_dataset("tokens", **wrong)
    assert "\n" not in str(error.value)
