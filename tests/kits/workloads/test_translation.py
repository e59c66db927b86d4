"""Claims about translation: pairs from a grammar or from files, padding that counts for nothing, BLEU"""

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sacrebleu
import torch

import d5ray as d5
from d5ray.errors import ConfigurationError, DataError
from d5ray.experiment import Experiment
from d5ray.kits.workloads.datasets.made_language import Phrase, Sentence, sentences, word
from d5ray.kits.workloads.datasets.translation import BEGIN, END, PADDING, load_translation
from d5ray.kits.workloads.events.translation import texts, translated
from d5ray.recipes import translation
from d5ray.recipes.engine.recipe import Recipe
from d5ray.recipes.models import Translator

# -- the data ----------------------------------------------------------------------------------------------


def test_the_other_tongue_has_rules_of_its_own() -> None:
    """By hand: verb last, adjective behind, endings for number, article and tense, "not" at the end."""
    dogs, house = Phrase("dog", True, True, "red"), Phrase("house", False, False, None)
    said = Sentence(dogs, "see", house, tense=1, negated=True, place=("near", house), time="today")
    assert said.english == "the red dogs did not see a house near a house today."
    d, h = word("dog"), word("house")
    assert said.translated == (
        f"{word('today')}, {h} {word('near')} {d}ri-en {word('red')}a {h} ta{word('see')}n ke."
    )


def test_no_sentence_comes_twice_and_no_two_mean_the_same() -> None:
    made = list(itertools.islice(sentences(3), 1500))
    assert len({each.english for each in made}) == len({each.translated for each in made}) == 1500


def test_pairs_are_what_they_were_behind_their_tokens() -> None:
    """Source up to <end>; target from <begin>, labels one further on, -100 behind; tests are others."""
    data = load_translation(samples=300, test_samples=40, vocabulary=400, length=40, seed=5)
    again = load_translation(samples=300, test_samples=40, vocabulary=400, length=40, seed=5)
    assert data.fingerprint == again.fingerprint and len(data.classes) == 400
    made = list(itertools.islice(sentences(5), 340))
    kept = {each.english: each.translated for each in made}
    sources = texts(data.train.inputs["source"], data.classes)
    targets = texts(data.train.labels, data.classes)
    assert [kept[source] for source in sources] == targets and len(sources) > 290
    assert not set(sources) & set(texts(data.test.inputs["source"], data.classes))
    shifted = data.train.inputs["target"]
    assert (shifted[:, 0] == BEGIN).all()
    for row, labels in zip(shifted, data.train.labels, strict=True):
        there = labels >= 0
        assert labels[there][-1] == END
        np.testing.assert_array_equal(row[: there.sum()][1:], labels[there][:-1])
        assert (row[there.sum() :] == PADDING).all() and (labels[~there] == -100).all()


def test_files_take_the_place_of_made_pairs(tmp_path: Path) -> None:
    """A line a sentence; empty and long ones are left out; the last tenth is tested, or other files."""
    lines = [f"line {number} of a text" for number in range(40)]
    lines[3], lines[5] = "", "word " * 300
    (tmp_path / "a.en").write_text("\n".join(lines))
    (tmp_path / "a.de").write_text("\n".join(line.upper() for line in lines))
    files: dict[str, Any] = {"source": str(tmp_path / "a.en"), "target": str(tmp_path / "a.de")}
    data = load_translation(**files, vocabulary=300)
    assert (len(data.train), len(data.test)) == (34, 4)
    assert texts(data.train.labels, data.classes)[:4] == [
        "LINE 0 OF A TEXT", "LINE 1 OF A TEXT", "LINE 2 OF A TEXT", "LINE 4 OF A TEXT"
    ]  # fmt: skip
    (tmp_path / "t.en").write_text("line 7\nline 8\n")
    with pytest.raises(DataError, match=r"found 40 lines in .* and 2 in .*, expected as many"):
        load_translation(source=files["source"], target=str(tmp_path / "t.en"), vocabulary=300)
    (tmp_path / "t.de").write_text("LINE 7\nLINE 8\n")
    tests: dict[str, Any] = {"test_source": str(tmp_path / "t.en"), "test_target": str(tmp_path / "t.de")}
    data = load_translation(**files, **tests, vocabulary=300)
    assert (len(data.train), texts(data.test.labels, data.classes)) == (38, ["LINE 7", "LINE 8"])


def test_wrong_files_are_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("one\ntwo\nthree\n")
    a = str(tmp_path / "a")
    for wrong, said in (
        ({"source": a}, "source is given without target"),
        ({"target": a}, "target is given without source"),
        ({"test_source": a, "test_target": a}, "test_source is given without source"),
        ({"source": a, "target": f"{a}c"}, "no file fits"),
        ({"source": a, "target": a, "length": 2}, "found no pair to test on of at most 2 tokens"),
        ({"vocabulary": 258}, "vocabulary is 258"),
    ):
        with pytest.raises((DataError, ConfigurationError)) as found:
            load_translation(**{"vocabulary": 300, **wrong})  # type: ignore[arg-type]
        assert said in str(found.value) and "\n" not in str(found.value)


# -- the network -------------------------------------------------------------------------------------------


def test_padding_and_later_tokens_change_nothing() -> None:
    """In float64: more padding behind a source, and another target behind a place, leave its scores."""
    torch.manual_seed(3)
    model = Translator(50, 12, width=16, heads=2, depth=2).double().eval()
    source, target = torch.randint(3, 50, (2, 6)), torch.randint(3, 50, (2, 7))
    scores = model(source, target)
    padded = torch.cat([source, torch.zeros(2, 4, dtype=torch.long)], dim=1)
    torch.testing.assert_close(model(padded, target), scores, rtol=1e-12, atol=1e-12)
    other = target.clone()
    other[:, 4:] = torch.randint(3, 50, (2, 3))
    torch.testing.assert_close(model(source, other)[:, :4], scores[:, :4], rtol=1e-12, atol=1e-12)
    assert not torch.allclose(model(source, other)[:, 4:], scores[:, 4:])
    with pytest.raises(ConfigurationError, match=r"a sentence has 13 tokens.*set model.context=13"):
        model(torch.zeros(1, 13, dtype=torch.long), target[:1])


class Copies:
    """A network that is sure that the target is the source."""

    def inference(self, inputs: dict[str, Any]) -> Any:
        source, target = inputs["source"], inputs["target"]
        return np.eye(30)[source[:, : target.shape[1]]]


def test_decoding_ends_each_sentence_at_its_end() -> None:
    sources = np.array([[5, 6, END, 0, 0], [7, END, 0, 0, 0], [8, 9, 10, 11, 12]])
    executor: Any = Copies()
    found = translated(executor, sources, 5)
    np.testing.assert_array_equal(found, sources)


# -- the recipe --------------------------------------------------------------------------------------------


@pytest.mark.full
def test_a_short_run_begins_to_translate_and_bleu_is_sacrebleus(tmp_path: Path) -> None:
    """Two simulated agents; the recorded BLEU is what sacreBLEU says of the final model's translations."""
    data = {"dataset": "translation", "dataset_kwargs": {"samples": 600, "test_samples": 20, "length": 40}}
    fixed = {key: value for key, value in translation.FIXED.items() if not key.startswith("dataset")}
    short = Recipe.of(
        fixed | data | {"epochs": 4}, translation.MUTABLE, translation.METRICS, name="short",
        overrides={"model.context": 40, "model.width": 64, "optimizer": "Adam(0.003)"},
    ).made()  # fmt: skip
    assert isinstance(short, Experiment)
    with d5.simulate(short, root=tmp_path) as group:
        group.train(progress=False)
        tables, model = group.tables(), group.model()
    losses = d5.metrics.Rows(tables, "test_loss", "test").value
    assert losses[-1] < 0.6 * losses[0]
    assert len(d5.metrics.Rows(tables, "bleu")) == 4  # of two agents, after the third epoch and at the end

    class Network:
        def inference(self, inputs: dict[str, Any]) -> Any:
            with torch.no_grad():
                return model(**{name: torch.tensor(each) for name, each in inputs.items()}).numpy()

    loaded = short.load_dataset()
    executor: Any = Network()
    found = texts(translated(executor, loaded.test.inputs["source"], 40), loaded.classes)
    true = texts(loaded.test.labels, loaded.classes)
    expected = sacrebleu.corpus_bleu(found, [true]).score
    assert d5.metrics.BLEU().estimate(tables).value == pytest.approx(expected, abs=1e-9)
