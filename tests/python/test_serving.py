"""Serving: requests of all lengths come and go, their keys and values lie in pages, and nothing compiles once warm."""

from __future__ import annotations

import random
from collections.abc import Callable
from types import ModuleType
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

WORDS, WIDTH, HEADS, LAYERS = 64, 32, 4, 2
PAGE, PAGES, LONGEST, SLOTS = 8, 60, 64, 4  # page 0 belongs to nobody: idle slots write there


class Decoder(nn.Module):
    """Takes new words of some requests, writes their keys and values into pages, and attends to what the pages hold."""

    def __init__(self) -> None:
        super().__init__()
        self.word, self.place = nn.Embedding(WORDS, WIDTH), nn.Embedding(LONGEST, WIDTH)
        self.project = nn.ModuleList(nn.Linear(WIDTH, 3 * WIDTH) for _ in range(LAYERS))
        self.out = nn.ModuleList(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU()) for _ in range(LAYERS))
        self.keys = nn.ParameterList(torch.zeros(PAGES * PAGE, HEADS, WIDTH // HEADS) for _ in range(LAYERS))
        self.values = nn.ParameterList(torch.zeros(PAGES * PAGE, HEADS, WIDTH // HEADS) for _ in range(LAYERS))

    def forward(self, words: Tensor, places: Tensor, rows: Tensor, table: Tensor) -> Tensor:
        """The next word of each request.

        Args:
            words: (requests, new words), with their ``places`` in the text and the ``rows`` of the pages that they get.
            table: (requests, LONGEST), the row of each place of the text.
        """
        x = self.word(words) + self.place(places)
        visible = torch.arange(LONGEST, device=words.device) <= places[:, None, :, None]
        for project, out, keys, values in zip(self.project, self.out, self.keys, self.values, strict=True):
            q, k, v = (t.unflatten(-1, (HEADS, -1)) for t in project(F.layer_norm(x, (WIDTH,))).chunk(3, -1))
            keys[rows] = k
            values[rows] = v
            k, v = keys[table].transpose(1, 2), values[table].transpose(1, 2)
            y = F.scaled_dot_product_attention(q.transpose(1, 2), k, v, attn_mask=visible)
            x = x + out(y.transpose(1, 2).flatten(-2))
        return (x[:, -1] @ self.word.weight.T).argmax(-1)


class Request(NamedTuple):
    words: list[int]  # so far
    end: int  # how many there are to be
    pages: list[int]

    def row(self, place: int) -> int:
        return self.pages[place // PAGE] * PAGE + place % PAGE


def requests(n: int) -> list[Request]:
    draw = random.Random(n)
    made = []
    for _ in range(n):
        prompt = [draw.randrange(WORDS) for _ in range(draw.randint(2, 40))]
        made.append(Request(prompt, min(LONGEST, len(prompt) + draw.randint(1, 20)), []))
    return made


def serve(step: Callable[..., Tensor], waiting: list[Request], device: torch.device) -> list[list[int]]:
    """Greedy words of all requests; a new one begins as soon as another ends."""

    def run(batch: list[Request | None], new: int) -> list[int]:
        words, places, rows, table = [], [], [], []
        for r in batch:
            at = range(len(r.words) - new, len(r.words)) if r else range(new)
            words.append([r.words[i] if r else 0 for i in at])
            places.append(list(at))
            rows.append([r.row(i) if r else 0 for i in at])
            table.append([r.row(i) if r and i < len(r.words) else 0 for i in range(LONGEST)])
        return step(*(torch.tensor(t).to(device) for t in (words, places, rows, table))).tolist()

    free = list(range(1, PAGES))
    queue, slots = list(waiting), [None] * SLOTS  # type: ignore[var-annotated]
    while queue or any(slots):
        for i in range(SLOTS):
            if slots[i] is None and queue:
                slots[i] = r = queue.pop(0)
                r.pages.extend(free.pop() for _ in range(-(-r.end // PAGE)))
                r.words.extend(run([r], len(r.words)))
        for r, word in zip(slots, run(slots, 1), strict=True):
            if r:
                r.words.append(word)
        for i, r in enumerate(slots):
            if r and len(r.words) >= r.end:
                free.extend(r.pages)
                slots[i] = None
    return [r.words for r in waiting]


@pytest.mark.parametrize("how", ["eager", "compiled"])
def test_two_hundred_requests_compile_nothing(
    how: str, device: torch.device, pjrt: ModuleType, no_fallbacks: None
) -> None:
    torch.manual_seed(0)
    theirs = Decoder().requires_grad_(False)
    ours = Decoder().requires_grad_(False)
    ours.load_state_dict(theirs.state_dict())
    ours.to(device)
    call: Any = ours
    if how == "compiled":
        torch._dynamo.reset()
        call = torch.compile(ours, fullgraph=True)
    with torch.no_grad():
        for _ in range(2):  # a graph may be compiled when it comes again
            serve(call, requests(60), device)
        before = pjrt.stats()["compiles"]
        found = serve(call, requests(200), device)
        # Eager: the first lengths have programs of their own, and graphs with them come as rarely as they do.
        assert pjrt.stats()["compiles"] - before <= (8 if how == "eager" else 0)
        assert found == serve(theirs, requests(200), torch.device("cpu"))
