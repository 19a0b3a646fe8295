"""Real data without a download: scikit-learn's digits and the text of Python's own documentation."""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor, nn

Batch = tuple[Tensor, Tensor]


@cache
def _digits() -> tuple[Tensor, Tensor]:
    """Images (1797, 1, 8, 8) in 0..1 and labels (1797,), shuffled once."""
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    pixels = torch.as_tensor(images, dtype=torch.float32).reshape(-1, 1, 8, 8) / 16
    return pixels[order], torch.as_tensor(labels)[order]


def digit_images(count: int, size: int) -> list[Batch]:
    """``count`` batches of ``size`` digits, (size, 1, 8, 8); the data starts again at its end."""
    images, labels = _digits()
    picks = (torch.arange(count * size) % len(labels)).view(count, size)
    return [(images[pick], labels[pick]) for pick in picks]


def digit_vectors(count: int, size: int) -> list[Batch]:
    """The same digits as vectors, (size, 64)."""
    return [(images.flatten(1), labels) for images, labels in digit_images(count, size)]


def large_digit_images(count: int, size: int) -> list[Batch]:
    """The same digits enlarged to three channels of 32x32 pixels with mean 0 and deviation near 1."""
    enlarge = nn.Upsample(scale_factor=4, mode="bilinear")
    return [
        ((enlarge(images).expand(-1, 3, -1, -1).contiguous() - 0.3) / 0.35, labels)
        for images, labels in digit_images(count, size)
    ]


@cache
def _text() -> tuple[Tensor, int]:
    """The character numbers of Python's language reference, and how many characters there are."""
    from pydoc_data.topics import topics

    text = "\n".join(topics[name] for name in sorted(topics))
    numbers = {character: number for number, character in enumerate(sorted(set(text)))}
    return torch.tensor([numbers[character] for character in text]), len(numbers)


def vocabulary() -> int:
    """How many different characters the text has."""
    return _text()[1]


def text_windows(count: int, size: int, length: int) -> list[Batch]:
    """``count`` batches of ``size`` windows of the text and of the characters that follow, (size, length)."""
    text, _ = _text()
    generator = torch.Generator().manual_seed(0)
    batches = []
    for _ in range(count):
        starts = torch.randint(len(text) - length - 1, (size, 1), generator=generator)
        windows = text[starts + torch.arange(length + 1)]
        batches.append((windows[:, :-1].contiguous(), windows[:, 1:].contiguous()))
    return batches
