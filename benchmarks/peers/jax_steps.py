"""Training steps of the workloads `mlp` and `gpt` (tests/models/zoo.py) by hand in JAX, jitted whole; see `rounds.py`.

Parameters and optimizer state are donated; batches come from NumPy and the loss is read, in each step.
"""

from __future__ import annotations

import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy
from rounds import Case, serve

jax.config.update("jax_platforms", "cpu")
WIDTH, LAYERS, HEADS, VOCABULARY, CONTEXT = 128, 4, 4, 103, 64
RANDOM = numpy.random.default_rng(0)


def dense(inputs: int, outputs: int) -> dict[str, Any]:
    bound = inputs**-0.5
    return {
        "w": jnp.asarray(RANDOM.uniform(-bound, bound, (inputs, outputs)), jnp.float32),
        "b": jnp.zeros(outputs, jnp.float32),
    }


def norm() -> dict[str, Any]:
    return {"g": jnp.ones(WIDTH, jnp.float32), "b": jnp.zeros(WIDTH, jnp.float32)}


def linear(p: Any, x: Any) -> Any:
    return x @ p["w"] + p["b"]


def normalised(p: Any, x: Any) -> Any:
    centred = x - x.mean(-1, keepdims=True)
    return centred * jax.lax.rsqrt((centred * centred).mean(-1, keepdims=True) + 1e-5) * p["g"] + p["b"]


def mlp(p: Any, x: Any) -> Any:
    return linear(p[2], jax.nn.relu(linear(p[1], jax.nn.relu(linear(p[0], x)))))


def block(p: Any, x: Any) -> Any:
    n, t, _ = x.shape
    q, k, v = (
        part.reshape(n, t, HEADS, WIDTH // HEADS).transpose(0, 2, 1, 3)
        for part in jnp.split(linear(p["qkv"], normalised(p["norm1"], x)), 3, -1)
    )
    scores = jnp.where(jnp.tril(jnp.ones((t, t), bool)), q @ k.swapaxes(-1, -2) * (WIDTH // HEADS) ** -0.5, -jnp.inf)
    mixed = (jax.nn.softmax(scores) @ v).transpose(0, 2, 1, 3).reshape(n, t, WIDTH)
    x = x + linear(p["out"], mixed)
    hidden = jax.nn.gelu(linear(p["up"], normalised(p["norm2"], x)), approximate=False)
    return x + linear(p["down"], hidden)


def gpt(p: Any, tokens: Any) -> Any:
    x = p["token"][tokens] + p["position"][: tokens.shape[1]]
    for layer in p["blocks"]:
        x = block(layer, x)
    return normalised(p["norm"], x) @ p["token"].T


def trainer(model: Any, params: Any, decay: float, beta: float, clip: float | None, batch: Any) -> Any:
    """A function that makes a step and returns the loss; and the seconds of its first call."""

    def loss_of(params: Any, x: Any, y: Any) -> Any:
        logits = jax.nn.log_softmax(model(params, x))
        return -jnp.take_along_axis(logits, y[..., None], -1).mean()

    def step(params: Any, m: Any, v: Any, count: Any, x: Any, y: Any) -> Any:
        loss, grads = jax.value_and_grad(loss_of)(params, x, y)
        if clip is not None:
            size = jnp.sqrt(sum((g * g).sum() for g in jax.tree.leaves(grads)))
            grads = jax.tree.map(lambda g: g * jnp.minimum(clip / (size + 1e-6), 1.0), grads)
        count = count + 1
        m = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, m, grads)
        v = jax.tree.map(lambda v, g: beta * v + (1 - beta) * g * g, v, grads)

        def update(p: Any, m: Any, v: Any) -> Any:
            root = jnp.sqrt(v / (1 - beta**count)) + 1e-8
            return p * (1 - 1e-3 * decay) - 1e-3 * m / (1 - 0.9**count) / root

        return jax.tree.map(update, params, m, v), m, v, count, loss

    jitted = jax.jit(step, donate_argnums=(0, 1, 2, 3))
    zeros = jax.tree.map(jnp.zeros_like, params)
    state = [params, zeros, jax.tree.map(jnp.copy, zeros), jnp.zeros((), jnp.float32)]

    def run() -> float:
        *state[:], loss = jitted(*state, *batch)
        return loss.item()

    start = time.perf_counter()
    run()
    return run, time.perf_counter() - start


vectors = (RANDOM.random((64, 64), numpy.float32), RANDOM.integers(10, size=64, dtype=numpy.int32))
texts = tuple(RANDOM.integers(100, size=(8, CONTEXT), dtype=numpy.int32) for _ in range(2))
blocks = [
    {
        "norm1": norm(),
        "qkv": dense(WIDTH, 3 * WIDTH),
        "out": dense(WIDTH, WIDTH),
        "norm2": norm(),
        "up": dense(WIDTH, 4 * WIDTH),
        "down": dense(4 * WIDTH, WIDTH),
    }
    for _ in range(LAYERS)
]
embeddings = {
    name: jnp.asarray(RANDOM.normal(0, 0.02, (size, WIDTH)), jnp.float32)
    for name, size in (("token", VOCABULARY), ("position", CONTEXT))
}
mlp_step, mlp_first = trainer(mlp, [dense(64, 128), dense(128, 128), dense(128, 10)], 0.01, 0.999, None, vectors)
gpt_step, gpt_first = trainer(gpt, {**embeddings, "blocks": blocks, "norm": norm()}, 0.1, 0.95, 1.0, texts)
serve(
    {"mlp": Case("mlp_step()", globals()), "gpt": Case("gpt_step()", globals())},
    {"jax": jax.__version__, "mlp first step, s": f"{mlp_first:.2f}", "gpt first step, s": f"{gpt_first:.2f}"},
)
