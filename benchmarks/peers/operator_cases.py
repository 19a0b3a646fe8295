"""Common operators at three sizes, as PyTorch and as JAX write them. Only the standard library: see `rounds.py`.

Operands of size n: ``x``, ``y`` [n, n], positive; ``v`` [n]; ``m`` [n, n] bool; ``i`` [n] int64 below n;
``p``, ``q`` [8, n, 64]; ``image`` [4, 16, h, h] and ``kernel`` [32, 16, 3, 3] with h = n / 16 + 8.
"""

from __future__ import annotations

SIZES = (16, 256, 1024)

# name: (PyTorch's, JAX's), over the operands above and n.
OPERATORS = {
    "add": ("x + y", "x + y"),
    "argmax": ("x.argmax(-1)", "jnp.argmax(x, -1)"),
    "amax": ("x.amax(-1)", "x.max(-1)"),
    "avg_pool2d": (
        "F.avg_pool2d(image, 2)",
        "lax.reduce_window(image, 0.0, lax.add, (1, 1, 2, 2), (1, 1, 2, 2), 'VALID') / 4",
    ),
    "bfloat16": ("x.bfloat16()", "x.astype(jnp.bfloat16)"),
    "bmm": ("torch.bmm(p, q.mT)", "p @ jnp.swapaxes(q, 1, 2)"),
    "cat": ("torch.cat([x, y])", "jnp.concatenate([x, y])"),
    "clamp": ("x.clamp(0.2, 0.8)", "jnp.clip(x, 0.2, 0.8)"),
    "conv2d": ("F.conv2d(image, kernel)", "lax.conv(image, kernel, (1, 1), 'VALID')"),
    "cross_entropy": (
        "F.cross_entropy(x, i)",
        "-jnp.take_along_axis(jax.nn.log_softmax(x, -1), i[:, None], 1).mean()",
    ),
    "cumsum": ("x.cumsum(-1)", "jnp.cumsum(x, -1)"),
    "div": ("x / y", "x / y"),
    "embedding": ("F.embedding(i, x)", "jnp.take(x, i, axis=0)"),
    "exp": ("x.exp()", "jnp.exp(x)"),
    "gelu": ("F.gelu(x)", "jax.nn.gelu(x, approximate=False)"),
    "index_add": ("x.index_add(0, i, y)", "x.at[i].add(y)"),
    "index_select": ("x.index_select(1, i)", "jnp.take(x, i, axis=1)"),
    "layer_norm": (
        "F.layer_norm(x, (n,), v, v)",
        "(x - x.mean(-1, keepdims=True)) * lax.rsqrt(x.var(-1, keepdims=True) + 1e-5) * v + v",
    ),
    "linear": ("F.linear(x, y, v)", "x @ y.T + v"),
    "log_softmax": ("x.log_softmax(-1)", "jax.nn.log_softmax(x, -1)"),
    "matmul": ("x @ y", "x @ y"),
    "maximum": ("torch.maximum(x, y)", "jnp.maximum(x, y)"),
    "mean": ("x.mean(-1)", "x.mean(-1)"),
    "mul": ("x * 2.5", "x * 2.5"),
    "pow": ("x**3", "x**3"),
    "rsqrt": ("x.rsqrt()", "lax.rsqrt(x)"),
    "sigmoid": ("x.sigmoid()", "jax.nn.sigmoid(x)"),
    "silu": ("F.silu(x)", "jax.nn.silu(x)"),
    "softmax": ("x.softmax(-1)", "jax.nn.softmax(x, -1)"),
    "sort": ("x.sort(-1)", "lax.sort((x, lax.broadcasted_iota(jnp.int32, x.shape, 1)), num_keys=1)"),
    "strided copy": ("x[:, ::2].clone()", "x[:, ::2]"),
    "sum": ("x.sum()", "x.sum()"),
    "sum over rows": ("x.sum(0)", "x.sum(0)"),
    "tanh": ("x.tanh()", "jnp.tanh(x)"),
    "topk": ("x.topk(8)", "lax.top_k(x, 8)"),
    "transposed copy": ("x.t().contiguous()", "x.T"),
    "tril": ("x.tril()", "jnp.tril(x)"),
    "where": ("torch.where(m, x, y)", "jnp.where(m, x, y)"),
}


def shapes(n: int) -> dict[str, tuple[int, ...]]:
    """Of the float operands."""
    h = n // 16 + 8
    stack = (8, n, 64)
    image = (4, 16, h, h)
    return {"x": (n, n), "y": (n, n), "v": (n,), "p": stack, "q": stack, "image": image, "kernel": (32, 16, 3, 3)}


def name_of(operator: str, n: int) -> str:
    return f"{operator}, {n}"
