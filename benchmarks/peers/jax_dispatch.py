"""The dispatch cases as jitted JAX functions on JAX's CPU backend; see `rounds.py`."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from rounds import Case, serve

jax.config.update("jax_platforms", "cpu")

a, b = jnp.ones((4, 4), jnp.float32), jnp.full((4, 4), 0.5, jnp.float32)
scalar = jnp.float32(3)
add = jax.jit(lambda x, y: x + y)
scale = jax.jit(lambda x: x * 2.5)
relu = jax.jit(jax.nn.relu)
add_into = jax.jit(lambda x, y: x + y, donate_argnums=0)
mm = jax.jit(jnp.matmul)
names = globals()


def wait() -> None:
    """JAX runs programs in order on a device, so the last one ends last."""
    add(a, b).block_until_ready()


serve(
    {
        "a + b": Case("add(a, b)", names, wait),
        "a * 2.5": Case("scale(a)", names, wait),
        "relu(a)": Case("relu(a)", names, wait),
        "a.add_(b)": Case("c = add_into(c, b)", names, wait, setup="c = jnp.ones((4, 4), jnp.float32)"),
        "mm(a, b)": Case("mm(a, b)", names, wait),
        "x.item()": Case("scalar.item()", names),
    },
    {"jax": jax.__version__},
)
