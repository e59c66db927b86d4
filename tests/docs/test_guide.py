"""Claims about the guide: pages run and show what they say, commands are commands, links lead on"""

import importlib
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import d5ray as d5
from d5ray.cli.app import app
from d5ray.cli.dashboard import PAGE
from d5ray.errors import ConfigurationError
from d5ray.operators.custom import registry
from d5ray.operators.nodes import inference
from d5ray.operators.nodes.node import Node
from tests.conftest import python
from tests.docs.guide import GUIDE, NEEDS, RUNS, THEIRS, blocks, follow
from tests.docs.page import DOCS, LESSONS, REPOSITORY
from tests.metrics.statistics.test_estimates import steps_of, tables

Names = Mapping[str, Any]
# Ray, measurements, pictures
LONG = (
    "actors",
    "deploying",
    "jax",
    "meshes",
    "microbatches",
    "migrating",
    "own_data",
    "recipes",
    "reports",
    "tuning",
)
WARNS = {"own_data": [pytest.mark.filterwarnings("ignore::DeprecationWarning")]}  # Ray Data, of its settings
FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?!https?:|#)(?P<path>[^)#]+)")
RUNNABLE = ("python", "sh", RUNS)


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(
            page, id=page.stem, marks=[pytest.mark.full] * (page.stem in LONG) + WARNS.get(page.stem, [])
        )
        for page in GUIDE
    ],
)
def test_a_page_runs_and_shows_what_it_says(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In an empty folder, with a home of its own: every example defines what it uses."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("D5RAY_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(registry, "_registered", {})
    monkeypatch.setattr(inference, "_rules", dict(inference._rules))
    if "ray.init(" in page.read_text(encoding="utf-8"):  # in a process that has no Ray yet, as its reader's
        _followed_alone(page, tmp_path)
        return
    names, wrong = follow(page, tmp_path)
    assert wrong == []
    if page.stem in CHECKS:
        CHECKS[page.stem](names)


def _followed_alone(page: Path, folder: Path) -> None:
    """Do what a page says in a process of its own."""
    program = (
        "import sys; from pathlib import Path; from tests.docs.guide import follow; "
        f"wrong = follow(Path({str(page)!r}), Path({str(folder)!r}))[1]; print(wrong); sys.exit(bool(wrong))"
    )
    python("-W", "ignore", "-c", program, cwd=folder, seconds=240)


@pytest.mark.parametrize("page", GUIDE, ids=lambda page: page.stem)
def test_a_page_opens_with_an_example(page: Path) -> None:
    """Of Python, or of commands, before its first section; and no block is of another kind."""
    text = page.read_text(encoding="utf-8")
    first, *_ = blocks(page)
    assert first.kind in RUNNABLE
    assert first.text in text.partition("\n## ")[0]
    kinds = {block.kind for block in blocks(page) if not block.kind.startswith(NEEDS)}
    assert kinds <= {*RUNNABLE, "text", THEIRS}


def test_pages_import_what_is_public() -> None:
    """Names of a namespace, frameworks, the catalogue of operators, recipes; and nothing from within."""
    places = (
        "d5ray",
        *(f"d5ray.{stub.parent.name}" for stub in Path(d5.__file__).parent.glob("*/__init__.pyi")),
    )
    others = ("d5ray.frameworks.", "d5ray.ops.", "d5ray.recipes.")
    said = re.compile(r"^\s*(?:from|import) (d5ray[\w.]*)", re.MULTILINE)
    for page in (*GUIDE, *LESSONS.glob("*.md"), REPOSITORY / "README.md"):
        inner = [name for name in said.findall(page.read_text(encoding="utf-8")) if name not in places]
        assert all(name.startswith(others) and name.count(".") == 2 for name in inner), (
            f"{page.name}: {inner}"
        )


@pytest.mark.parametrize("page", GUIDE, ids=lambda page: page.stem)
def test_code_that_is_not_run_everywhere_is_python(page: Path) -> None:
    """That of other frameworks, and what needs a package that may not be there."""
    for block in blocks(page):
        if block.kind == THEIRS or block.kind.startswith(NEEDS):
            compile(block.text, f"{page.name}:{block.line}", "exec")


@pytest.mark.full
@pytest.mark.filterwarnings("ignore")  # of packages that are not the tests' own
def test_models_of_torchvision_and_timm_are_trained_as_the_page_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The modules that come out are theirs, with running statistics that have moved."""
    packages = ("torchvision", "timm")
    try:
        for package in packages:
            importlib.import_module(package)
    except (ImportError, RuntimeError) as error:  # the latter where it was built for another PyTorch
        pytest.skip(f"{error}")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("D5RAY_HOME", str(tmp_path / "home"))
    names, _ = follow(DOCS / "guide/bring_your_own.md", tmp_path, tuple(NEEDS + each for each in packages))
    for name, package in zip(("resnet", "small"), packages, strict=True):
        model = names[name]
        assert type(model).__module__.partition(".")[0] == package and not model.training
        assert not torch.equal(model.bn1.running_mean, torch.zeros_like(model.bn1.running_mean))


@pytest.mark.parametrize("page", GUIDE, ids=lambda page: page.stem)
def test_commands_and_options_of_a_page_exist(page: Path) -> None:
    """Every `d5ray COMMAND --option`, in blocks and in sentences."""
    import typer.main  # noqa: PLC0415

    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    sentences = FENCED.sub("", page.read_text(encoding="utf-8"))
    shell = [block.text.replace("\\\n", "") for block in blocks(page) if block.kind in ("sh", RUNS)]
    said = re.findall(
        r"\bd5ray (?=[a-z])([^\n#`]*)", "\n".join([*shell, *re.findall(r"`([^`\n]*)`", sentences)])
    )
    named = [words.split() for words in said]
    assert named
    for command, *words in named:
        assert command in commands, command
        found = commands[command]
        inner = getattr(found, "commands", {})
        found = inner.get(words[0] if words else "", inner.get(PAGE, found))  # of `d5ray dashboard`, `bench`
        options = {option for parameter in found.params for option in parameter.opts}
        assert {word for word in words if word.startswith("--")} <= options, (command, words)


@pytest.mark.parametrize("page", GUIDE, ids=lambda page: page.stem)
def test_a_page_leads_somewhere_and_is_found(page: Path) -> None:
    """Its links and pictures exist, tests that it names too, and the index leads to it."""
    text = page.read_text(encoding="utf-8")
    for link in LINK.finditer(FENCED.sub("", text)):
        assert (page.parent / link["path"]).exists(), link["path"]
    for named in re.findall(r"`(tests/[\w/*.]+)`", text):
        assert list(REPOSITORY.glob(named)), named
    assert f"(guide/{page.name})" in (DOCS / "index.md").read_text(encoding="utf-8")


# -- what else the pages promise ------------------------------------------------------------------------


def _bring_your_own(names: Names) -> None:
    """The generator's points lie where the data's do, and it began somewhere else."""
    torch.manual_seed(3)
    with torch.no_grad():
        made = names["generator"](torch.randn(4000, 2)).mean(0)
    assert torch.linalg.vector_norm(made - torch.tensor([3.0, -2.0])) < 0.7


def _metrics(names: Names) -> None:
    """The metric of one's own on planted rows: its value, criterion, direction, and what it reads."""
    criterion = names["METRICS"][0]
    run = tables(steps_of(np.array([[0.1, 0.2], [0.3, 0.1]])))
    assert criterion.metric.estimate(run).value == 0.3
    assert criterion.judge(run).verdict == "PASS"
    assert "no row of step_time" in criterion.judge(tables([])).reason
    assert criterion.metric.reads() == ("step_time",)
    with pytest.raises(ConfigurationError, match="points the wrong way"):
        _ = criterion.metric >= 1


def _deploying(names: Names) -> None:
    """The loss of the parameters that were fed is a smaller one, by PyTorch's own scores and loss."""
    scores, labels = torch.from_numpy(names["scores"]), torch.from_numpy(names["labels"])
    assert F.cross_entropy(scores, labels).item() < names["loss"]


def _splitting(names: Names) -> None:
    """The gradients of the parts are those of the whole network; what is divided is what was said."""
    executor = names["d5fw"].from_onnx(names["network"])
    executor.inference_and_backprop({"input": names["x"], "labels": names["y"]})
    expected = {name: executor.fetch(gradient) for name, gradient in names["network"].gradient()}
    assert set(expected) == set(names["whole"])
    for name, value in expected.items():
        np.testing.assert_allclose(names["whole"][name], value, rtol=1e-4, atol=1e-6)
    assert names["travels"].num_rows == 1
    assert names["holds"]["layout"].to_pylist()[:2] == ["divided along axis 0"] * 2


def _stages(names: Names) -> None:
    """The gradients of the pieces, against the executor of the whole network."""
    whole = names["d5fw"].from_onnx(names["network"])
    whole.inference_and_backprop({"input": names["x"], "labels": names["y"]})
    expected = {name: whole.fetch(gradient) for name, gradient in names["network"].gradient()}
    for place in (names["one"], names["other"]):
        flat = place.get(place.gradients)
        for slot in place.slots:
            np.testing.assert_allclose(
                flat[slot.offset : slot.offset + slot.size].reshape(slot.shape), expected.pop(slot.name),
                rtol=1e-4, atol=1e-7,
            )  # fmt: skip
    assert not expected


def _operators(names: Names) -> None:
    """What is called PyTorch's own function is that; what is built computes what theirs do."""
    assert names["relu"] is torch.relu
    torch.testing.assert_close(
        names["image_scores"], F.relu(F.conv2d(torch.ones(1, 3, 8, 8), torch.ones(2, 3, 3, 3), padding=1))
    )
    x, w = (torch.from_numpy(names[name].numpy()) for name in ("x", "w"))
    torch.testing.assert_close(torch.from_numpy(names["y"].numpy()), F.conv2d(x, w, padding=1, groups=2))
    a = np.linspace(-2, 2, 5)
    np.testing.assert_allclose(
        names["activated"], F.gelu(torch.from_numpy(a), approximate="tanh").numpy(), rtol=1e-12
    )


def _custom_operators(names: Names) -> None:
    """The node that was registered becomes the class; gradients are compared by the page itself."""
    made = registry.operator_of(Node("IPow", ("x",), ("y",), {"power": 2}, domain="my.domain"))
    assert type(made) is names["IPowOp"]


CHECKS: dict[str, Callable[[Names], None]] = {
    "bring_your_own": _bring_your_own,
    "custom_operators": _custom_operators,
    "metrics": _metrics,
    "operators": _operators,
    "splitting": _splitting,
    "deploying": _deploying,
    "stages": _stages,
}
