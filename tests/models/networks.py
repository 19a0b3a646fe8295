"""The networks: a perceptron, a small CNN, ResNet-18 for 32x32 images, a small GPT."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional


def perceptron(inputs: int = 64, hidden: int = 128, classes: int = 10) -> nn.Module:
    """Two hidden layers; (N, inputs) to (N, classes)."""
    return nn.Sequential(
        nn.Linear(inputs, hidden),
        nn.ReLU(),
        nn.Linear(hidden, hidden),
        nn.ReLU(),
        nn.Linear(hidden, classes),
    )


def small_cnn(classes: int = 10) -> nn.Module:
    """Two convolutions and a pooling; (N, 1, 8, 8) to (N, classes)."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(32 * 16, classes),
    )


class ResidualBlock(nn.Module):
    """Two 3x3 convolutions around which the input is added, through a 1x1 where the shape changes."""

    def __init__(self, channels_in: int, channels_out: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels_in, channels_out, 3, stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(channels_out)
        self.conv2 = nn.Conv2d(channels_out, channels_out, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(channels_out)
        self.shortcut = nn.Sequential()
        if stride != 1 or channels_in != channels_out:
            self.shortcut = nn.Sequential(
                nn.Conv2d(channels_in, channels_out, 1, stride, bias=False), nn.BatchNorm2d(channels_out)
            )

    def forward(self, x: Tensor) -> Tensor:
        out = functional.relu(self.norm1(self.conv1(x)), inplace=True)
        out = self.norm2(self.conv2(out))
        out += self.shortcut(x)
        return functional.relu(out, inplace=True)


class ResNet18(nn.Module):
    """The 18-layer residual network with the 3x3 stem that is usual for 32x32 images.

    Four stages of two blocks; ``width`` channels in the first, doubled at each later one.
    (N, 3, 32, 32) to (N, classes). The last normalisation of each block starts at 0, so that a block
    starts as its shortcut: else rounding differences grow tenfold per step in the first steps, and
    two correct devices part ways (1e-7 becomes 1e-2 in six steps).
    """

    def __init__(self, width: int = 64, classes: int = 10) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU())
        blocks: list[nn.Module] = []
        channels = width
        for stage in range(4):
            for stride in (1 if stage == 0 else 2, 1):
                blocks.append(ResidualBlock(channels, width << stage, stride))
                channels = width << stage
        self.blocks = nn.Sequential(*blocks)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.head = nn.Linear(channels, classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
            elif isinstance(module, ResidualBlock):
                nn.init.zeros_(module.norm2.weight)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.pool(self.blocks(self.stem(x))).flatten(1))


class SelfAttention(nn.Module):
    """Causal attention of several heads; (N, T, width) to the same."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        q, k, v = (
            part.view(batch, length, self.heads, width // self.heads).transpose(1, 2)
            for part in self.qkv(x).split(width, dim=2)
        )
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(mixed.transpose(1, 2).reshape(batch, length, width))


class TransformerBlock(nn.Module):
    """Attention, then a GELU perceptron, each on the normalised input and added to it."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attention = SelfAttention(width, heads)
        self.norm2 = nn.LayerNorm(width)
        self.perceptron = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.perceptron(self.norm2(x))


class TinyGPT(nn.Module):
    """A decoder over characters whose output layer shares the embedding's weights.

    int64 (N, T) to logits (N, T, vocabulary), T at most ``context``.
    """

    def __init__(self, vocabulary: int, context: int, width: int = 128, layers: int = 4, heads: int = 4) -> None:
        super().__init__()
        self.token = nn.Embedding(vocabulary, width)
        self.position = nn.Embedding(context, width)
        self.blocks = nn.Sequential(*(TransformerBlock(width, heads) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        nn.init.normal_(self.token.weight, std=0.02)
        self.head.weight = self.token.weight

    def forward(self, tokens: Tensor) -> Tensor:
        places = torch.arange(tokens.shape[1], device=tokens.device)
        return self.head(self.norm(self.blocks(self.token(tokens) + self.position(places))))


class LlamaBlock(nn.Module):
    """Pre-normalised attention with rotary positions and grouped key-value heads, and a gated feed-forward network."""

    def __init__(self, width: int, heads: int, kv_heads: int, hidden: int) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.size = heads, kv_heads, width // heads
        self.norm_attention, self.norm_feed = nn.RMSNorm(width), nn.RMSNorm(width)
        self.q = nn.Linear(width, width, bias=False)
        self.k = nn.Linear(width, kv_heads * self.size, bias=False)
        self.v = nn.Linear(width, kv_heads * self.size, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.gate = nn.Linear(width, hidden, bias=False)
        self.up = nn.Linear(width, hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)

    def rotate(self, x: Tensor) -> Tensor:
        """[batch, heads, length, size]: pairs of the two halves turned by position * 10000^(-2i / size) (RoFormer)."""
        half = self.size // 2
        steps = torch.arange(half, device=x.device, dtype=torch.float32) / half
        position = torch.arange(x.shape[2], device=x.device, dtype=torch.float32)
        angle = position[:, None] * torch.pow(10000.0, -steps)
        sin, cos = angle.sin().to(x.dtype), angle.cos().to(x.dtype)
        first, second = x.split(half, dim=-1)
        return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        y = self.norm_attention(x)
        q, k, v = (
            layer(y).view(batch, length, heads, self.size).transpose(1, 2)
            for layer, heads in ((self.q, self.heads), (self.k, self.kv_heads), (self.v, self.kv_heads))
        )
        together = nn.functional.scaled_dot_product_attention(
            self.rotate(q), self.rotate(k), v, is_causal=True, enable_gqa=self.heads != self.kv_heads
        )
        x = x + self.out(together.transpose(1, 2).reshape(batch, length, width))
        y = self.norm_feed(x)
        return x + self.down(nn.functional.silu(self.gate(y)) * self.up(y))


class Llama(nn.Module):
    """Logits of the next token for tokens [batch, length]; the defaults are small, ``Llama(**LLAMA_7B)`` is not."""

    def __init__(
        self,
        vocabulary: int,
        width: int = 64,
        layers: int = 4,
        heads: int = 4,
        kv_heads: int = 2,
        hidden: int = 128,
    ) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.blocks = nn.Sequential(*(LlamaBlock(width, heads, kv_heads, hidden) for _ in range(layers)))
        self.norm = nn.RMSNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.norm(self.blocks(self.embed(tokens))))


LLAMA_7B = {"vocabulary": 32000, "width": 4096, "layers": 32, "heads": 32, "kv_heads": 32, "hidden": 11008}
