// The element-wise operations whose result has the type of their first operand. One row each; Builder derives a method
// from it.
#pragma once

// X(method, StableHLO mnemonic)
#define TPJ_HLO_UNARY(X)                          \
  X(abs_, "abs") /* not for complex: see abs() */ \
  X(cbrt, "cbrt")                                 \
  X(ceil, "ceil")                                 \
  X(clz, "count_leading_zeros")                   \
  X(cos, "cosine")                                \
  X(exp, "exponential")                           \
  X(expm1, "exponential_minus_one")               \
  X(floor, "floor")                               \
  X(log, "log")                                   \
  X(log1p, "log_plus_one")                        \
  X(logistic, "logistic")                         \
  X(neg, "negate")                                \
  X(not_, "not")                                  \
  X(popcnt, "popcnt")                             \
  X(round_even, "round_nearest_even")             \
  X(rsqrt, "rsqrt")                               \
  X(sign, "sign")                                 \
  X(sin, "sine")                                  \
  X(sqrt, "sqrt")                                 \
  X(tan, "tan")                                   \
  X(tanh, "tanh")

#define TPJ_HLO_BINARY(X)           \
  X(add, "add")                     \
  X(and_, "and")                    \
  X(atan2, "atan2")                 \
  X(div_, "divide")                 \
  X(max, "maximum")                 \
  X(min, "minimum")                 \
  X(mul, "multiply")                \
  X(or_, "or")                      \
  X(pow, "power")                   \
  X(rem_, "remainder")              \
  X(shl, "shift_left")              \
  X(shra, "shift_right_arithmetic") \
  X(shrl, "shift_right_logical")    \
  X(sub, "subtract")                \
  X(xor_, "xor")
