#!/usr/bin/env python3
"""Prints csrc/lower/special_tables.h (then ``make format``), the Chebyshev series of special functions; needs mpmath.

A series is a smooth function f on [lo, hi]: f(v) = sum of c[k] T_k((2v - lo - hi) / (hi - lo)), the first term
whole. Its coefficients are sums over Chebyshev nodes (https://dlmf.nist.gov/3.11#ii), cut where they no longer matter
to float64; a program in float32 leaves out the further ones which do not matter to float32.
"""

from collections.abc import Callable, Iterator
from functools import partial

from mpmath import mp, mpf

Function = Callable[[mpf], mpf]
mp.dps = 60
NODES = 120
CUT = mpf(2) ** -56  # of the greatest coefficient


def coefficients(f: Function, lo: mpf, hi: mpf, cut: mpf) -> list[mpf]:
    angles = [mp.pi * (k + mpf(1) / 2) / NODES for k in range(NODES)]
    values = [f((lo + hi) / 2 + (hi - lo) / 2 * mp.cos(angle)) for angle in angles]
    c = [2 * sum(v * mp.cos(j * a) for v, a in zip(values, angles, strict=True)) / NODES for j in range(NODES)]
    c[0] /= 2
    limit = cut * max(abs(x) for x in c)
    while len(c) > 1 and abs(c[-1]) < limit:
        c.pop()
    return c


# ---- Bessel functions for large arguments: modulus and phase as two slow functions of 1 / x^2, v
# (https://dlmf.nist.gov/10.17.E3): J_n = sqrt(2 / (pi x)) (P cos w - Q sin w), Y_n with (P sin w + Q cos w).


def hankel(n: int) -> tuple[Function, Function]:
    def parts(v: mpf) -> tuple[mpf, mpf]:
        x = 1 / mp.sqrt(v)
        scale, w = mp.sqrt(mp.pi * x / 2), x - mp.pi * (2 * n + 1) / 4
        j, y = scale * mp.besselj(n, x), scale * mp.bessely(n, x)
        return j * mp.cos(w) + y * mp.sin(w), x * (y * mp.cos(w) - j * mp.sin(w))

    return lambda v: parts(v)[0], lambda v: parts(v)[1]


def y0_regular(v: mpf) -> mpf:
    x = mp.sqrt(v)
    return mp.bessely(0, x) - 2 / mp.pi * mp.log(x) * mp.besselj(0, x)


def y1_regular(v: mpf) -> mpf:
    x = mp.sqrt(v)
    return (mp.bessely(1, x) - 2 / mp.pi * (mp.log(x) * mp.besselj(1, x) - 1 / x)) / x


def k0_regular(v: mpf) -> mpf:
    x = mp.sqrt(v)
    return mp.besselk(0, x) + mp.log(x / 2) * mp.besseli(0, x)


def k1_regular(v: mpf) -> mpf:
    x = mp.sqrt(v)
    return x * (mp.besselk(1, x) - mp.log(x / 2) * mp.besseli(1, x))


# ---- Airy: https://dlmf.nist.gov/9.7, with z = (2/3) |x|^(3/2)


def airy_decay(v: mpf) -> mpf:  # v = 1 / z
    x = (3 / v / 2) ** (mpf(2) / 3)
    return 2 * mp.sqrt(mp.pi) * mp.root(x, 4) * mp.exp(1 / v) * mp.airyai(x)


def airy_wave(v: mpf) -> tuple[mpf, mpf]:  # v = 1 / z^2
    z = 1 / mp.sqrt(v)
    x = (3 * z / 2) ** (mpf(2) / 3)
    scale, w = mp.sqrt(mp.pi) * mp.root(x, 4), z - mp.pi / 4
    a, b = scale * mp.airyai(-x), scale * mp.airybi(-x)
    return a * mp.cos(w) - b * mp.sin(w), z * (a * mp.sin(w) + b * mp.cos(w))


def zeta(x: float) -> mpf:
    return mpf(2) / 3 * mpf(x) ** (mpf(3) / 2)


# ---- the normal distribution


def erfcx(v: mpf) -> mpf:  # v = 1 / (x + 4)
    x = 1 / v - 4
    return (1 + 2 * x) * mp.exp(x * x) * mp.erfc(x)


def ndtri_central(v: mpf) -> mpf:  # v = (p - 1/2)^2
    y = mp.sqrt(v)
    return mp.sqrt(2) * mp.erfinv(2 * y) / y


def ndtri_tail(z: mpf) -> mpf:  # z = sqrt(-2 log p); z - |x|, times z
    x = z
    for _ in range(200):  # Newton's method on log p
        q = mp.erfc(x / mp.sqrt(2)) / 2
        step = (mp.log(q) + z * z / 2) * q / (mp.exp(-x * x / 2) / mp.sqrt(2 * mp.pi))
        x += step
        if abs(step) < mpf(10) ** -45:
            break
    return z * (z - x)


# ---- the incomplete gamma function for large a: https://dlmf.nist.gov/8.12, with m = x / a - 1


def phi_over_square(m: mpf) -> mpf:
    return (m - mp.log(1 + m)) / (m * m)


def temme_coefficients(count: int, order: int) -> list[list[mpf]]:
    """Taylor coefficients in eta of c_0 ... c_(count-1) of DLMF 8.12.10-11."""
    n = order + 2 * count + 4
    # m = sum a_k eta^k, from eta (1 + m) = m dm/deta.
    a = [mpf(0), mpf(1)]
    for k in range(2, n + 2):
        inner = sum(a[i] * (k + 1 - i) * a[k + 1 - i] for i in range(2, k))
        a.append((a[k - 1] - inner) / (k + 1))
    # eta / m = sum r_k eta^k
    r = [mpf(1)]
    for k in range(1, n + 1):
        r.append(-sum(a[i + 1] * r[k - i] for i in range(1, k + 1)))
    # Gamma(a) = sqrt(2 pi / a) (a / e)^a sum g_k a^-k: g_k = (2k + 1)!! a_(2k+1)
    g = [mp.fac2(2 * k + 1) * a[2 * k + 1] for k in range(count)]
    c = [[r[k + 1] for k in range(n)]]  # 1 / m - 1 / eta
    for k in range(1, count):
        last = c[-1]
        # (1 / eta) d/deta c_(k-1) + (-1)^k g_k / m; the terms in 1 / eta cancel.
        c.append([(j + 2) * last[j + 2] + (-1) ** k * g[k] * r[j + 1] for j in range(len(last) - 2)])
    return c


def series() -> Iterator[tuple[str, Function, mpf, mpf, mpf]]:
    def entry(name: str, f: Function, lo: float | mpf, hi: float | mpf, cut: mpf = CUT) -> tuple:
        return name, f, mpf(lo), mpf(hi), cut

    p0, q0 = hankel(0)
    p1, q1 = hankel(1)
    yield entry("I0Small", lambda x: mp.exp(-x) * mp.besseli(0, x), 0, 8)
    yield entry("I0Large", lambda v: mp.exp(-1 / v) * mp.besseli(0, 1 / v) / mp.sqrt(v), 0, 0.125)
    yield entry("K0Small", k0_regular, 0, 4)
    yield entry("K0Large", lambda v: mp.exp(1 / v) * mp.besselk(0, 1 / v) / mp.sqrt(v), 0, 0.5)
    yield entry("K1Small", k1_regular, 0, 4)
    yield entry("K1Large", lambda v: mp.exp(1 / v) * mp.besselk(1, 1 / v) / mp.sqrt(v), 0, 0.5)
    yield entry("J0Small", lambda v: mp.besselj(0, mp.sqrt(v)), 0, 64)
    yield entry("Y0Small", y0_regular, 0, 64)
    yield entry("P0", p0, 0, mpf(1) / 64)
    yield entry("Q0", q0, 0, mpf(1) / 64)
    yield entry("J1Small", lambda v: mp.besselj(1, mp.sqrt(v)) / mp.sqrt(v), 0, 64)
    yield entry("Y1Small", y1_regular, 0, 64)
    yield entry("P1", p1, 0, mpf(1) / 64)
    yield entry("Q1", q1, 0, mpf(1) / 64)
    yield entry("AiryDecay", airy_decay, 0, 1 / zeta(2))
    yield entry("AiryRight", mp.airyai, 0, 2)
    yield entry("AiryLeft", mp.airyai, -5, 0)
    yield entry("AiryP", lambda v: airy_wave(v)[0], 0, 1 / zeta(5) ** 2)
    yield entry("AiryQ", lambda v: airy_wave(v)[1], 0, 1 / zeta(5) ** 2)
    yield entry("Erfcx", erfcx, 0, 0.25)
    yield entry("NdtriCentral", ndtri_central, 0, mpf(0.375) ** 2)
    yield entry("NdtriTail", ndtri_tail, 2, 8)
    yield entry("NdtriFarTail", ndtri_tail, 8, 40)
    yield entry("GammaRest", lambda a: (mp.rgamma(1 + a) - 1) / a, 0, 1)
    yield entry("GammaStar", lambda v: mp.sqrt(2 * mp.pi * v) * mp.exp(-(1 + mp.log(v)) / v) * mp.rgamma(1 / v), 0, 1)
    yield entry("Phi", phi_over_square, mpf("-0.3"), mpf("0.3"))
    for k, c in enumerate(temme_coefficients(10, 60)):
        yield entry(f"Temme{k}", partial(mp.polyval, c[::-1]), mpf("-0.35"), mpf("0.35"), CUT * 20**k)


HEADER = """\
// Chebyshev series of lower/special.cpp; printed by tools/special_tables.py, which says what each is.
#pragma once

namespace tpj::lower {

// sum of c[k] T_k((2v - lo - hi) / (hi - lo)) over k < count, for v in [lo, hi].
struct Chebyshev {
  double lo, hi;
  int count;
  double c[MOST];
};
"""


def main() -> None:
    every = [(name, lo, hi, coefficients(f, lo, hi, cut)) for name, f, lo, hi, cut in series()]
    print(HEADER.replace("MOST", str(max(len(c) for *_, c in every))))
    for name, lo, hi, c in every:
        numbers = ", ".join(repr(float(x)) for x in c)
        print(f"inline constexpr Chebyshev k{name}{{{float(lo)!r}, {float(hi)!r}, {len(c)}, {{{numbers}}}}};")
    print("\n}  // namespace tpj::lower")


if __name__ == "__main__":
    main()
