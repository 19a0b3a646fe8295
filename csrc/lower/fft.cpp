// Discrete Fourier transforms. `normalization` is PyTorch's enumeration: 0 none, 1 by the square root of the number of
// points, 2 by that number.
#include <cmath>

#include "lower/common.h"
#include "lower/row.h"

namespace tpj::lower {
namespace {

// One StableHLO transform along `dim`; `size` is the length of the result there.
Value transform(Builder& b, const Value& x, std::string_view kind, int64_t dim, int64_t points, int64_t size,
                DType to) {
  const int64_t rank = x.rank();
  Dims swap;
  for (int64_t i = 0; i < rank; ++i) swap.push_back(i);
  std::swap(swap[static_cast<size_t>(dim)], swap.back());
  const bool last = dim == rank - 1;
  const Value in = last ? x : b.transpose(x, swap);
  Dims dims = in.dims();
  dims.back() = size;
  const Value out = b.fft(in, kind, {points}, {to, dims});
  return last ? out : b.transpose(out, swap);
}

Value along(Builder& b, Value x, const Dims& dims, bool forward) {
  for (int64_t d : dims) {
    const int64_t n = x.dims()[static_cast<size_t>(d)];
    x = transform(b, x, forward ? "FFT" : "IFFT", d, n, n, x.dtype());
  }
  return x;
}

// StableHLO's inverse transforms divide by the number of points.
Value scaled(Builder& b, const Value& x, int64_t normalization, int64_t points, bool forward) {
  const auto n = static_cast<double>(points);
  const double factor = (normalization == 0 ? 1 : normalization == 1 ? 1 / std::sqrt(n) : 1 / n) * (forward ? 1 : n);
  if (factor == 1) return x;
  if (!is_complex(x.dtype())) return b.mul(x, b.like(x, factor));
  const Value re = b.real(x), im = b.imag(x);
  return b.complex(b.mul(re, b.like(re, factor)), b.mul(im, b.like(im, factor)));
}

Dims transform_dims(const Call& c) {
  Dims dims = c.ints(1);
  for (int64_t& d : dims) d = normalized_dim(d, static_cast<int64_t>(c.type(0).dims.size()));
  return dims;
}

// (self, dim, normalization, forward)
Values complex_to_complex(Call& c) {
  const Dims dims = transform_dims(c);
  const bool forward = c.flag(3);
  const Value x = c.tensor(0);
  return {scaled(c.b, along(c.b, x, dims, forward), c.integer(2), size_over(x.dims(), dims), forward)};
}

// (self, dim, normalization, onesided): the last of `dim` is the one that is halved.
Values real_to_complex(Call& c) {
  Builder& b = c.b;
  Dims dims = transform_dims(c);
  const Value x = c.tensor(0);
  const int64_t points = size_over(x.dims(), dims);
  const DType to = complex_of(x.dtype());
  if (dims.empty()) return {b.convert(x, to)};
  Value y;
  if (c.flag(3)) {
    const int64_t last = dims.back(), n = x.dims()[static_cast<size_t>(last)];
    dims.pop_back();
    y = transform(b, x, "RFFT", last, n, n / 2 + 1, to);
  } else {
    y = b.complex(x, b.like(x, 0));
  }
  return {scaled(b, along(b, y, dims, true), c.integer(2), points, true)};
}

// (self, dim, normalization, last_dim_size)
Values complex_to_real(Call& c) {
  Builder& b = c.b;
  Dims dims = transform_dims(c);
  const int64_t n = c.integer(3), last = dims.back(), half = n / 2 + 1;
  const int64_t points = size_over(c.result_dims(), dims);
  dims.pop_back();
  Value x = along(b, c.tensor(0), dims, false);
  const int64_t have = x.dims()[static_cast<size_t>(last)];
  if (have > half) x = b.slice_dim(x, last, 0, half);
  if (have < half) {
    Dims high(x.dims().size(), 0), none(x.dims().size(), 0);
    high[static_cast<size_t>(last)] = half - have;
    x = b.pad(x, b.complex_constant({x.dtype(), {}}, 0, 0), none, high, none);
  }
  const DType to = x.dtype() == DType::C128 ? DType::F64 : DType::F32;
  return {scaled(b, transform(b, x, "IRFFT", last, n, n, to), c.integer(2), points, false)};
}

}  // namespace

std::vector<Row> fft_rows() {
  return {
      {"_fft_c2c", complex_to_complex},
      {"_fft_c2r", complex_to_real},
      {"_fft_r2c", real_to_complex},
  };
}

}  // namespace tpj::lower
