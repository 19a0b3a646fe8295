// Reading and writing a strided view of a dense base inside a program. The only place that knows how.
//
// A base is the row-major content of a storage in its natural dimensions. A view is sizes, strides and offset in
// elements of its own dtype, as PyTorch keeps them.
#pragma once

#include <optional>
#include <vector>

#include <c10/util/ArrayRef.h>

#include "hlo/builder.h"

namespace tpj::exec {

using hlo::Builder;
using hlo::Dims;
using hlo::Type;
using hlo::Value;

struct View {
  DType dtype;
  Dims sizes, strides;
  int64_t offset = 0;

  Type type() const { return {dtype, sizes}; }
};

// One dimension of a frame: the base seen as an array of these extents (outermost first), of which the view takes
// `count` elements from `start` by `step`. `view_dim` is the view's dimension, or -1 where the view stands still (count
// 1).
struct Axis {
  int64_t extent, start, count, step;
  int view_dim;
};

// The frame in which the view is a strided slice, following the base's own dimensions where possible (so that the
// reshape to it is free on chips with tiled layouts). Empty when there is none: overlapping or irregular strides.
// Dimensions of size 1 and stride 0 are not in it.
std::optional<std::vector<Axis>> find_frame(const View& view, const Dims& base);

// True when the view takes every element of a storage of `numel` elements exactly once.
bool covers(const View& view, int64_t numel);

// A view's offset is fixed + number * unit. The number is an input of the program, so that a loop over x[i] or x[:, i]
// compiles once; unit 0 says that there is none. `block`: a contiguous block at a multiple of its own size, whatever
// the base's dimensions are; else all of the offset in those dimensions of the base that the view stands still in.
struct Offset {
  int64_t fixed = 0, unit = 0;
  bool block = false;
};

// `base`: its dimensions in elements of the view's dtype, empty when its own are of another size; `numel` in any case.
Offset split_offset(c10::IntArrayRef sizes, c10::IntArrayRef strides, int64_t offset, c10::IntArrayRef base,
                    int64_t numel);

// The view's dense value. `number` (0-d, I64) belongs to `offset`, which may have none.
Value read_view(Builder& b, const Value& base, View view, const Offset& offset = {}, const Value& number = {});

// `base` with the view's elements replaced by `value` (of the view's type). The result has the base's dtype seen as the
// view's and the base's dimensions where the dtype is the same. The view must not overlap itself.
Value write_view(Builder& b, const Value& base, View view, const Value& value, const Offset& offset = {},
                 const Value& number = {});

// The dense value of a view that covers its storage, in storage order: dimensions sorted by stride.
Value to_storage_order(Builder& b, const View& view, const Value& value);

// The same bytes as elements of another type: the last dimension grows or shrinks.
Value view_as(Builder& b, const Value& base, DType dtype);

}  // namespace tpj::exec
