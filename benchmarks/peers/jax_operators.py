"""The operator cases as jitted JAX functions on JAX's CPU backend; see `rounds.py`."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy
from jax import lax
from operator_cases import OPERATORS, SIZES, name_of, shapes
from rounds import Case, serve

jax.config.update("jax_platforms", "cpu")

cases = {}
for n in SIZES:
    operands = {
        name: jnp.asarray(numpy.abs(numpy.sin(numpy.arange(numpy.prod(shape)))).reshape(shape) + 0.1, jnp.float32)
        for name, shape in shapes(n).items()
    }
    operands["m"] = operands["x"] > 0.5
    operands["i"] = jnp.asarray(numpy.arange(n) * 7 % n, jnp.int32)
    last = jax.jit(lambda x: x[0])
    for operator, (_, expression) in OPERATORS.items():
        scope = {"jax": jax, "jnp": jnp, "lax": lax, "n": n}
        used = [name for name in operands if name in compile(expression, operator, "eval").co_names]
        call = jax.jit(eval(f"lambda {', '.join(used)}: {expression}", scope))
        names = {"call": call, **operands}
        cases[name_of(operator, n)] = Case(
            f"call({', '.join(used)})", names, lambda last=last, v=operands["v"]: last(v).block_until_ready()
        )

serve(cases, {"jax": jax.__version__})
