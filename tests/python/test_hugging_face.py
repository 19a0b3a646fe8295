"""Tiny models of Hugging Face's transformers, with random weights: eager, compiled, and generating text."""

from __future__ import annotations

import copy
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
import torch
import torch._dynamo.testing
from torch import Tensor, nn
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    LlamaConfig,
    LlamaForCausalLM,
    T5Config,
    T5ForConditionalGeneration,
    ViTConfig,
    ViTForImageClassification,
)

pytestmark = pytest.mark.usefixtures("no_fallbacks")

WIDTH, WORDS = 32, 96
SIZES = {"hidden_size": WIDTH, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}


def llama() -> nn.Module:
    return LlamaForCausalLM(LlamaConfig(vocab_size=WORDS, num_key_value_heads=2, **SIZES))


def bert() -> nn.Module:
    return BertForSequenceClassification(
        BertConfig(vocab_size=WORDS, num_labels=3, problem_type="single_label_classification", **SIZES)
    )


def vit() -> nn.Module:
    return ViTForImageClassification(
        ViTConfig(image_size=16, patch_size=4, num_labels=3, problem_type="single_label_classification", **SIZES)
    )


def t5() -> nn.Module:
    sizes = {"d_model": WIDTH, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4}
    return T5ForConditionalGeneration(T5Config(vocab_size=WORDS, decoder_start_token_id=0, **sizes))


def words(n: int) -> Tensor:
    return torch.randint(3, WORDS, (2, n))


def sentences(n: int) -> dict[str, Tensor]:
    """The second one is shorter, and filled up with word 0."""
    text, mask = words(n), torch.ones(2, n, dtype=torch.int64)
    mask[1, n // 2 :] = 0
    return {"input_ids": text * mask, "attention_mask": mask}


MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[[int], dict[str, Tensor]]]] = {
    "llama": (llama, lambda n: {**sentences(n), "labels": words(n)}),
    "bert": (bert, lambda n: {**sentences(n), "labels": torch.tensor([2, 0])}),
    "vit": (vit, lambda n: {"pixel_values": torch.rand(2, 3, 16, 16), "labels": torch.tensor([2, 0])}),
    "t5": (t5, lambda n: {**sentences(n), "labels": words(n // 2)}),
}


def pair(make: Callable[[], nn.Module], device: torch.device) -> tuple[nn.Module, nn.Module]:
    torch.manual_seed(0)
    theirs = make().eval()  # no dropout
    return copy.deepcopy(theirs).to(device), theirs


def check(run: Callable[..., Any], ours: nn.Module, theirs: nn.Module, batch: dict[str, Tensor]) -> None:
    """One step's loss, results and gradients."""
    mine = run(**{k: v.to(next(ours.parameters()).device) for k, v in batch.items()})
    want = theirs(**batch)
    torch.testing.assert_close(mine.logits.cpu(), want.logits, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(mine.loss.cpu(), want.loss, rtol=1e-5, atol=1e-6)
    for model, loss in ((ours, mine.loss), (theirs, want.loss)):
        model.zero_grad()
        loss.backward()
    for (name, p), q in zip(ours.named_parameters(), theirs.parameters(), strict=True):
        assert (p.grad is None) == (q.grad is None), name
        if p.grad is not None:
            torch.testing.assert_close(p.grad.cpu(), q.grad, rtol=1e-4, atol=1e-5, msg=name)


@pytest.mark.parametrize("name", MODELS)
def test_losses_and_gradients_are_those_of_the_cpu(name: str, device: torch.device) -> None:
    make, batches = MODELS[name]
    ours, theirs = pair(make, device)
    for n in (12, 12, 17, 9, 26):
        check(ours, ours, theirs, batches(n))


@pytest.mark.usefixtures("pjrt")
@pytest.mark.parametrize("name", MODELS)
def test_compiled_there_is_one_graph(name: str, device: torch.device) -> None:
    make, batches = MODELS[name]
    ours, theirs = pair(make, device)
    torch._dynamo.reset()
    counter = torch._dynamo.testing.CompileCounterWithBackend(device.type)
    run = torch.compile(ours, backend=counter, fullgraph=True)
    for _ in range(2):
        check(run, ours, theirs, batches(12))
    assert counter.frame_count == 1
    if name in ("llama", "bert"):
        for n in (17, 24, 9, 21, 17):
            check(run, ours, theirs, batches(n))
        assert counter.frame_count == 2  # the second one for all lengths


@pytest.mark.parametrize("cache", ["dynamic", "static"])
def test_generated_words_are_those_of_the_cpu(cache: str, device: torch.device, pjrt: ModuleType) -> None:
    ours, theirs = pair(llama, device)

    def generate(model: nn.Module, prompt: Tensor) -> list[list[int]]:
        prompt = prompt.to(next(model.parameters()).device)
        mask = torch.ones_like(prompt)
        with torch.no_grad():
            out = model.generate(  # type: ignore[operator]
                prompt,
                attention_mask=mask,
                max_new_tokens=64,
                do_sample=False,
                pad_token_id=0,
                eos_token_id=None,
                cache_implementation=cache,
            )
        return out.tolist()

    for n in (5, 9, 14, 7, 12, 16):
        prompt = words(n)
        assert generate(ours, prompt) == generate(theirs, prompt)
    late = [words(n) for n in (6, 15, 11)]
    before = pjrt.stats()["compiles"]
    for prompt in late:
        assert generate(ours, prompt) == generate(theirs, prompt)
    # 3 * 64 lengths: what is left are graphs of the few calls that do not change.
    assert pjrt.stats()["compiles"] - before <= 24
