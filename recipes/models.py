"""Networks that recipes bring: detector, listener, actor and critic, clicks, GPT-2 in sizes, a translator"""

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

import torch
import torch.nn.functional as F
from torch import nn

from d5ray.checks import check_count, check_share
from d5ray.errors import ConfigurationError, nearest

# Layers, width and heads. 12 layers · width² is about the name; with GPT-2's 50,257 tokens and a context of
# 1,024 the last one is GPT-2 small, 124,439,808 parameters (Radford et al., 2019).
SIZES: Final[Mapping[str, tuple[int, int, int]]] = {
    "1M": (4, 128, 4), "3M": (4, 256, 4), "10M": (6, 384, 6), "25M": (8, 512, 8), "50M": (10, 640, 10),
    "124M": (12, 768, 12),
}  # fmt: skip
SPREAD: Final = 0.02  # of the first weights


class SingleShotDetector(nn.Module):
    """Convolutions that halve an image (3, S, S) until each grid of the boxes (Liu et al., 1512.02325)

    Gives (batch, A, 5 + classes), see `DefaultBoxes`. grids: of the boxes, each half of the one before, the
    first one S / 8. per_cell: boxes of a cell of each. width: channels of the first layer.
    """

    def __init__(self, classes: int, grids: Sequence[int], per_cell: Sequence[int], width: int = 16) -> None:
        super().__init__()
        self.numbers = 5 + classes
        channels = [3, width, 2 * width, 4 * width]
        self.trunk = nn.Sequential(*(_halved(a, b) for a, b in pairwise(channels)))
        last = channels[-1]
        self.further = nn.ModuleList([nn.Identity(), *(_halved(last, last) for _ in range(len(grids) - 1))])
        self.heads = nn.ModuleList(nn.Conv2d(last, boxes * self.numbers, 3, padding=1) for boxes in per_cell)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        features, found = self.trunk(images), []
        for further, head in zip(self.further, self.heads, strict=True):
            features = further(features)
            cells = head(features).permute(0, 2, 3, 1)  # (batch, rows, columns, boxes of a cell · numbers)
            found.append(cells.reshape(len(images), -1, self.numbers))
        return torch.cat(found, dim=1)


class ActorCritic(nn.Module):
    """Two multilayer perceptrons: scores of the actions, and the state's value; (batch, actions + 1).

    The value is `value_scale` times the second one's output: what is to come is worth a hundred, which first
    weights are far from, and a policy forgets what it can while its critic lags behind.
    """

    def __init__(self, observations: int, actions: int, hidden: int = 64, value_scale: float = 50.0) -> None:
        super().__init__()
        self.value_scale = value_scale
        self.actor, self.critic = (
            _perceptron(observations, hidden, actions),
            _perceptron(observations, hidden, 1),
        )

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        value = self.value_scale * self.critic(observations)
        return torch.cat([self.actor(observations), value], dim=1)


class FrameScores(nn.Module):
    """Scores for every fourth window of log-mel pictures: (batch, windows / 4, classes + 1).

    Two convolutions that halve bands and windows, then two over time alone, whose kernels see 40 windows.
    width: channels of the first; the last score is that of the blank.
    """

    def __init__(self, bands: int, classes: int, width: int = 16, hidden: int = 96) -> None:
        super().__init__()
        self.picture = nn.Sequential(_halved(1, width), _halved(width, 2 * width))
        self.over_time = nn.Sequential(
            nn.Conv1d(2 * width * (bands // 4), hidden, 5, padding=2),
            nn.BatchNorm1d(hidden),
            nn.ReLU(),
            nn.Conv1d(hidden, hidden, 5, padding=2),
            nn.BatchNorm1d(hidden),
            nn.ReLU(),
            nn.Conv1d(hidden, classes + 1, 1),
        )

    def forward(self, pictures: torch.Tensor) -> torch.Tensor:
        found = self.picture(pictures).flatten(1, 2)  # (batch, channels · bands / 4, windows / 4)
        scores: torch.Tensor = self.over_time(found).transpose(1, 2)
        return scores


class FactorizationMachine(nn.Module):
    """z = b + Σ_i w_i + Σ_{i<j} ⟨v_i, v_j⟩ over the rows i of a sample; gives the scores (0, z) of no and yes

    (Rendle, doi 10.1109/ICDM.2010.127.) One embedding holds w and v of a row side by side: 1 + `factors`.
    """

    def __init__(self, buckets: int, factors: int = 7) -> None:
        super().__init__()
        self.rows = nn.Embedding(buckets, 1 + factors)
        self.bias = nn.Parameter(torch.zeros(1))
        with torch.no_grad():
            self.rows.weight.normal_(0.0, 0.05)
            self.rows.weight[:, 0] = 0.0

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        found = self.rows(rows)  # (batch, fields, 1 + factors)
        weights, factors = found[..., 0], found[..., 1:]
        pairs = (factors.sum(dim=1) ** 2 - (factors**2).sum(dim=1)).sum(dim=1) / 2
        score = self.bias + weights.sum(dim=1) + pairs
        return torch.stack([torch.zeros_like(score), score], dim=1)


class GPT(nn.Module):
    """Tokens (batch, length) become scores (batch, length, vocabulary) of the token that follows each.

    GPT-2 (Radford et al., Language models are unsupervised multitask learners, 2019): blocks that normalize
    before each branch, learned positions, GELU by its approximation with tanh, scores by the embedding's own
    weights. It has 12 L W² + 13 L W + 2 W + (vocabulary + context) W parameters, of L layers of width W.

    vocabulary  tokens; those of the data set
    size        a name of `SIZES`; depth, width and heads say otherwise
    context     the longest sequence
    dropout     the share behind the embedding, of the attention, and at the end of every branch
    """

    def __init__(
        self,
        vocabulary: int,
        size: str = "1M",
        context: int = 1024,
        *,
        depth: int | None = None,
        width: int | None = None,
        heads: int | None = None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        if size not in SIZES:
            raise ConfigurationError(f"size is {size!r}: {nearest(str(size), SIZES)}")
        own = SIZES[size]
        layers, features, parts = (
            a if b is None else b for a, b in zip(own, (depth, width, heads), strict=True)
        )
        for name, value in (("depth", layers), ("heads", parts), ("context", context)):
            check_count(name, value, 1)
        check_count("vocabulary", vocabulary, 2)
        check_share("dropout", dropout) if dropout else None
        if features % parts:
            raise ConfigurationError(
                f"width is {features} and heads is {parts}: take heads that divide the width"
            )
        self.wte = nn.Embedding(vocabulary, features)
        self.wpe = nn.Embedding(context, features)
        self.drop = nn.Dropout(dropout)
        self.h = nn.ModuleList(GPTBlock(features, parts, dropout) for _ in range(layers))
        self.ln_f = nn.LayerNorm(features)
        self.apply(_first_weights)
        for name, weight in self.named_parameters():
            if name.endswith("c_proj.weight"):  # so that what all branches add up to stays as large
                nn.init.normal_(weight, 0.0, SPREAD / math.sqrt(2 * layers))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        length = tokens.shape[1]
        if length > self.wpe.num_embeddings:
            raise ConfigurationError(
                f"a sample has {length} tokens, and the model's context is {self.wpe.num_embeddings}: set "
                f"model.context={length}"
            )
        x = self.drop(self.wte(tokens) + self.wpe.weight[:length])  # (batch, length, width)
        for block in self.h:
            x = block(x)
        return F.linear(self.ln_f(x), self.wte.weight)


class GPTBlock(nn.Module):
    """x + attention(norm(x)), then x + perceptron(norm(x)); (batch, length, width)."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attn = CausalHeads(width, heads, dropout)
        layers = {"c_fc": nn.Linear(width, 4 * width), "c_proj": nn.Linear(4 * width, width)}
        self.mlp = nn.ModuleDict(layers)
        self.drop = nn.Dropout(dropout)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attn(self.ln_1(x))
        inner = F.gelu(self.mlp["c_fc"](self.ln_2(x)), approximate="tanh")
        found: torch.Tensor = x + self.drop(self.mlp["c_proj"](inner))
        return found


class CausalHeads(nn.Module):
    """Attention of each position to itself and those before it, by several heads."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.c_attn, self.c_proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.drop = nn.Dropout(dropout)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        split = self.c_attn(x).unflatten(-1, (3, self.heads, -1))  # (batch, length, 3, heads, features)
        query, key, value = split.permute(2, 0, 3, 1, 4)
        dropout = self.dropout if self.training else 0.0
        found = F.scaled_dot_product_attention(query, key, value, dropout_p=dropout, is_causal=True)
        together: torch.Tensor = self.drop(self.c_proj(found.transpose(1, 2).flatten(2)))
        return together


class Translator(nn.Module):
    """Scores (batch, target length, vocabulary) of what follows each token of a target, given the source.

    An encoder and a decoder (Vaswani et al., arXiv:1706.03762), normalized before each branch, with learned
    positions; one embedding for both languages, which is also that of the scores. Token 0 is padding, which
    nothing attends to in a source.
    """

    def __init__(
        self,
        vocabulary: int,
        context: int = 64,
        *,
        width: int = 96,
        heads: int = 4,
        depth: int = 2,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        for name, value in (("depth", depth), ("heads", heads), ("context", context)):
            check_count(name, value, 1)
        check_count("vocabulary", vocabulary, 2)
        if width % heads:
            raise ConfigurationError(
                f"width is {width} and heads is {heads}: take heads that divide the width"
            )
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
        own: dict[str, Any] = {
            "d_model": width, "nhead": heads, "dim_feedforward": 4 * width, "dropout": dropout,
            "activation": "gelu", "batch_first": True, "norm_first": True,
        }  # fmt: skip
        encoding, decoding = (
            nn.TransformerEncoderLayer(**own),
            nn.TransformerDecoderLayer(**own),
        )
        self.encoder = nn.TransformerEncoder(encoding, depth, nn.LayerNorm(width), enable_nested_tensor=False)
        self.decoder = nn.TransformerDecoder(decoding, depth, nn.LayerNorm(width))
        for name, weight in self.named_parameters():
            if weight.ndim > 1 and ("encoder" in name or "decoder" in name):
                nn.init.xavier_uniform_(weight)  # the layers are copies of one
        nn.init.normal_(self.tokens.weight, 0.0, width**-0.5)
        nn.init.normal_(self.positions.weight, 0.0, width**-0.5)

    def forward(self, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        padding = source == 0  # (batch, source length)
        padding[:, 0] = False
        length = target.shape[1]
        later = torch.ones(length, length, dtype=torch.bool, device=target.device).triu(1)
        memory = self.encoder(self._embedded(source), src_key_padding_mask=padding)
        found = self.decoder(self._embedded(target), memory, tgt_mask=later, memory_key_padding_mask=padding)
        return F.linear(found, self.tokens.weight)

    def _embedded(self, tokens: torch.Tensor) -> torch.Tensor:
        if tokens.shape[1] > self.positions.num_embeddings:
            raise ConfigurationError(
                f"a sentence has {tokens.shape[1]} tokens, and the model's context is "
                f"{self.positions.num_embeddings}: set model.context={tokens.shape[1]}"
            )
        found: torch.Tensor = self.tokens(tokens) + self.positions.weight[: tokens.shape[1]]
        return found


def gpt_flops(shapes: Mapping[str, tuple[int, ...]], sample_shape: tuple[int, ...]) -> float:
    """Operations of a sample's forward and backward pass:  T (6 N + 12 L W T),  PaLM's count.

    N are the parameters without the positions, which are only added; L layers of width W; T tokens in a
    sample. Attention counts as if it were to all positions (Chowdhery et al., arXiv:2204.02311, appendix B).
    """
    (length,) = sample_shape
    counted = sum(math.prod(shape) for name, shape in shapes.items() if not name.startswith("wpe"))
    layers = sum(name.endswith("attn.c_attn.weight") for name in shapes)
    width = shapes["wte.weight"][1]
    return float(length * (6 * counted + 12 * layers * width * length))


def _halved(inputs: int, outputs: int) -> nn.Sequential:
    """(inputs, S, S) to (outputs, S/2, S/2)."""
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, padding=1, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(),
        nn.MaxPool2d(2),
    )


def _perceptron(inputs: int, hidden: int, outputs: int) -> nn.Sequential:
    last = nn.Linear(hidden, outputs)
    with torch.no_grad():
        last.weight.mul_(0.1)
    return nn.Sequential(nn.Linear(inputs, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh(), last)


def _first_weights(module: nn.Module) -> None:
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, 0.0, SPREAD)
    if isinstance(module, nn.Linear):
        nn.init.zeros_(module.bias)
