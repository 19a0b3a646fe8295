// Operators made of others: their results' sizes are data that the arguments' sizes do not bound, or PyTorch has no
// meta kernel to describe them.
#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/native/ForeachUtils.h>

#include <cmath>

#include "eager/kernels.h"

namespace tpj::eager {
namespace {

// ---- sizes that the arguments' sizes do not bound: a first program says how large the result is, and the second one
// makes a result of the next power of two

at::Tensor repeat_interleave(const at::Tensor& repeats, std::optional<int64_t> output_size) {
  TORCH_CHECK(repeats.dim() == 1, "repeat_interleave only accept 1D vector as repeat");
  const bool narrow = repeats.scalar_type() == at::kInt;
  TORCH_CHECK(narrow || repeats.scalar_type() == at::kLong, "repeats has to be Long or Int tensor");
  if (repeats.size(0) == 0) return at::empty_like(repeats);
  const at::Tensor ends = repeats.cumsum(0);
  if (!output_size) {
    const at::Tensor seen = at::stack({repeats.min().to(at::kLong), ends.select(0, -1)}).cpu();
    TORCH_CHECK(seen[0].item<int64_t>() >= 0, "repeats can not be negative");
    output_size = seen[1].item<int64_t>();
  }
  const at::Tensor places = at::arange(power_of_two(*output_size), ends.options());
  return at::searchsorted(ends, places, /*out_int32=*/narrow, /*right=*/true).narrow(0, 0, *output_size);
}

at::Tensor bincount(const at::Tensor& self, const std::optional<at::Tensor>& weights, int64_t minlength) {
  const bool weighted = weights && weights->defined();
  TORCH_CHECK(minlength >= 0, "minlength should be >= 0");
  TORCH_CHECK_NOT_IMPLEMENTED(at::isIntegralType(self.scalar_type(), false), "\"bincount_cpu\" not implemented for '",
                              self.scalar_type(), "'");
  if (self.dim() == 1 && self.numel() == 0) return at::zeros({minlength}, self.options().dtype(at::kLong));
  TORCH_CHECK(self.dim() == 1, "bincount only supports 1-d non-negative integral inputs.");
  TORCH_CHECK(!weighted || (weights->dim() == 1 && weights->size(0) == self.size(0)),
              "weights should be 1-d and have the same length as input");
  const auto [least, greatest] = self.aminmax();
  const at::Tensor range = at::stack({least, greatest}).cpu().to(at::kLong);
  TORCH_CHECK(range[0].item<int64_t>() >= 0, "bincount only supports 1-d non-negative integral inputs.");
  const int64_t size = std::max(range[1].item<int64_t>() + 1, minlength);
  const c10::ScalarType type = !weighted ? at::kLong : weights->scalar_type() == at::kFloat ? at::kFloat : at::kDouble;
  const at::Tensor each = weighted ? weights->to(type) : at::ones_like(self, self.options().dtype(type));
  const at::Tensor bins = at::zeros({power_of_two(size)}, self.options().dtype(type));
  return bins.scatter_add_(0, self.to(at::kLong), each).narrow(0, 0, size);
}

// ---- histograms. An edge belongs to the interval above it, the last one to the last interval.

using Weight = std::optional<at::Tensor>;
using Range = std::optional<c10::ArrayRef<double>>;

// Of points [n, d] and d increasing rows of edges: counts [bins..., of each dimension], or densities.
at::Tensor histogram_of(const at::Tensor& points, at::TensorList edges, const Weight& weight, bool density) {
  const auto options = points.options();
  std::vector<int64_t> sizes;
  at::Tensor place, inside;
  for (size_t d = 0; d < edges.size(); ++d) {
    const int64_t bins = edges[d].size(0) - 1;
    const at::Tensor x = points.select(1, static_cast<int64_t>(d)).contiguous();
    const at::Tensor at = at::searchsorted(edges[d], x, /*out_int32=*/false, /*right=*/true).sub(1).clamp_max(bins - 1);
    const at::Tensor holds = x.ge(edges[d][0]).logical_and(x.le(edges[d][bins]));
    place = d == 0 ? at : place.mul(bins).add(at);
    inside = d == 0 ? holds : inside.logical_and(holds);
    sizes.push_back(bins);
  }
  const bool weighted = weight && weight->defined();
  const at::Tensor each = weighted ? weight->reshape({-1}).to(options) : at::ones({points.size(0)}, options);
  const int64_t all = c10::multiply_integers(sizes);
  // One more bin takes what stands outside.
  at::Tensor hist = at::zeros({all + 1}, options).scatter_add_(0, at::where(inside, place, all), each);
  hist = hist.narrow(0, 0, all).clone().view(sizes);
  if (!density) return hist;
  hist = hist.div(hist.sum());
  for (size_t d = 0; d < edges.size(); ++d) {
    std::vector<int64_t> along(edges.size(), 1);
    along[d] = sizes[d];
    hist = hist.div(edges[d].diff().view(along));
  }
  return hist;
}

// `range` as given, or that of the data, which is read; never empty.
std::vector<std::pair<double, double>> ranges_of(const at::Tensor& points, const Range& range) {
  const auto dims = static_cast<size_t>(points.size(1));
  std::vector<std::pair<double, double>> out(dims, {0, 1});
  if (range) {
    TORCH_CHECK(range->size() == 2 * dims, "torch.histogramdd: for a ", dims,
                "-dimensional histogram range should have ", 2 * dims, " elements, but got ", range->size());
    for (size_t d = 0; d < dims; ++d) out[d] = {(*range)[2 * d], (*range)[2 * d + 1]};
  } else if (points.size(0) > 0) {
    const at::Tensor ends = at::stack({points.amin(0), points.amax(0)}, 1).cpu().to(at::kDouble);
    for (size_t d = 0; d < dims; ++d)
      out[d] = {ends[static_cast<int64_t>(d)][0].item<double>(), ends[static_cast<int64_t>(d)][1].item<double>()};
  }
  for (auto& [low, high] : out) {
    TORCH_CHECK(std::isfinite(low) && std::isfinite(high), "torch.histogramdd: dimension range [", low, ", ", high,
                "] is not finite");
    TORCH_CHECK(low <= high, "torch.histogramdd: min should not exceed max, but got min ", low, " max ", high);
    if (low == high) low -= 0.5, high += 0.5;
  }
  return out;
}

std::vector<at::Tensor> edges_of(const at::Tensor& points, c10::IntArrayRef bins, const Range& range) {
  const auto ranges = ranges_of(points, range);
  std::vector<at::Tensor> out;
  for (size_t d = 0; d < bins.size(); ++d)
    out.push_back(at::linspace(ranges[d].first, ranges[d].second, bins[d] + 1, points.options()));
  return out;
}

// [n, 1] of all elements, or [n, d] of a tensor whose last dimension is d.
at::Tensor numbers_of(const at::Tensor& self) { return self.reshape({-1, 1}); }

at::Tensor points_of(const at::Tensor& self, size_t dims) {
  TORCH_CHECK(self.dim() >= 2, "torch.histogramdd: input tensor should have at least 2 dimensions, but got ",
              self.dim());
  TORCH_CHECK(static_cast<size_t>(self.size(-1)) == dims,
              "histogramdd: The size of bins must be equal to the innermost dimension of the input.");
  return self.flatten(0, -2);
}

using Histogram = std::tuple<at::Tensor, at::Tensor>;

Histogram histogram_counts(const at::Tensor& self, int64_t bins, Range range, const Weight& weight, bool density) {
  const at::Tensor points = numbers_of(self);
  const std::vector<at::Tensor> edges = edges_of(points, {bins}, range);
  return {histogram_of(points, edges, weight, density), edges[0]};
}

Histogram histogram_edges(const at::Tensor& self, const at::Tensor& bins, const Weight& weight, bool density) {
  return {histogram_of(numbers_of(self), {bins.contiguous()}, weight, density), bins.clone()};
}

std::vector<at::Tensor> histogramdd_bin_edges(const at::Tensor& self, c10::IntArrayRef bins, Range range, const Weight&,
                                              bool) {
  return edges_of(points_of(self, bins.size()), bins, range);
}

at::Tensor histogramdd_counts(const at::Tensor& self, c10::IntArrayRef bins, Range range, const Weight& weight,
                              bool density) {
  const at::Tensor points = points_of(self, bins.size());
  return histogram_of(points, edges_of(points, bins, range), weight, density);
}

at::Tensor histogramdd_edges(const at::Tensor& self, at::TensorList bins, const Weight& weight, bool density) {
  std::vector<at::Tensor> edges;
  for (const at::Tensor& e : bins) edges.push_back(e.contiguous());
  return histogram_of(points_of(self, bins.size()), edges, weight, density);
}

// ---- lists whose numbers come packed in a tensor on the CPU

template <auto with_list>
std::vector<at::Tensor> by_numbers(at::TensorList self, at::TensorList a, at::TensorList b, const at::Tensor& numbers) {
  return with_list(self, a, b, at::native::convert_tensor_to_scalar_list(numbers, static_cast<int64_t>(self.size())));
}

template <auto with_list>
void by_numbers_(at::TensorList self, at::TensorList a, at::TensorList b, const at::Tensor& numbers) {
  with_list(self, a, b, at::native::convert_tensor_to_scalar_list(numbers, static_cast<int64_t>(self.size())));
}

// ---- factors

at::Tensor cholesky(const at::Tensor& self, bool upper) {
  TORCH_CHECK(self.dim() >= 2, "cholesky: The input tensor A must have at least 2 dimensions.");
  TORCH_CHECK(self.size(-2) == self.size(-1), "cholesky: A must be batches of square matrices, but they are ",
              self.size(-2), " by ", self.size(-1), " matrices");
  const auto [factor, info] = at::linalg_cholesky_ex(self, upper);
  at::_linalg_check_errors(info, "cholesky", /*is_matrix=*/self.dim() == 2);
  return factor;
}

// ---- gradients

at::Tensor fractional_max_pool3d_backward(const at::Tensor& grad, const at::Tensor& self, c10::IntArrayRef,
                                          c10::IntArrayRef, const at::Tensor& indices) {
  const at::Tensor into = at::zeros_like(self, at::MemoryFormat::Contiguous).flatten(-3);
  return into.scatter_add_(-1, indices.flatten(-3), grad.flatten(-3)).view(self.sizes());
}

// The incoming gradient for losses [n]: of each element, or of their sum or mean.
at::Tensor per_row(const at::Tensor& grad, int64_t reduction, int64_t n) {
  const at::Tensor g = reduction == at::Reduction::None ? grad.reshape({n, 1}) : grad.reshape({1, 1});
  return reduction == at::Reduction::Mean ? g.div(n) : g;
}

// Of sum_(j != t) w_t max(0, margin - x_t + x_j)^p / classes.
at::Tensor multi_margin_loss_backward(const at::Tensor& grad, const at::Tensor& self, const at::Tensor& target,
                                      const at::Scalar& p, const at::Scalar& margin, const Weight& weight,
                                      int64_t reduction) {
  const at::Tensor x = self.dim() < 2 ? self.reshape({1, -1}) : self, t = target.reshape({-1, 1});
  const at::Tensor z = x.sub(x.gather(1, t)).add(margin);
  at::Tensor slopes = p.equal(1) ? z.gt(0).to(x.scalar_type()) : z.clamp_min(0).mul(2);
  slopes = slopes.scatter(1, t, 0);
  if (weight && weight->defined()) slopes = slopes.mul(weight->index_select(0, t.flatten()).unsqueeze(1));
  slopes = slopes.scatter(1, t, slopes.sum(1, true).neg());
  return slopes.div(x.size(1)).mul(per_row(grad, reduction, x.size(0))).view(self.sizes());
}

// Of the sum over targets t (up to the first -1) and all j that are none of max(0, 1 - x_t + x_j) / classes.
at::Tensor multilabel_margin_loss_backward(const at::Tensor& grad, const at::Tensor& self, const at::Tensor& target,
                                           int64_t reduction, const at::Tensor& is_target) {
  const at::Tensor x = self.dim() < 2 ? self.reshape({1, -1}) : self;
  const at::Tensor listed = target.reshape(x.sizes()).ge(0).to(at::kLong).cumprod(1), t = target.reshape(x.sizes());
  const at::Tensor at = t.mul(listed), others = is_target.reshape(x.sizes()).eq(0);
  const at::Tensor z = x.unsqueeze(1).sub(x.gather(1, at).unsqueeze(2)).add(1);  // [n, t, j]
  const at::Tensor hit = z.gt(0).logical_and(listed.unsqueeze(2)).logical_and(others.unsqueeze(1)).to(x.scalar_type());
  const at::Tensor slopes = hit.sum(1).scatter_add(1, at, hit.sum(2).neg());
  return slopes.div(x.size(1)).mul(per_row(grad, reduction, x.size(0))).view(self.sizes());
}

// PyTorch's tensors without memory are for derivatives; here they are zeros.
at::Tensor efficient_zeros(c10::IntArrayRef size, std::optional<c10::ScalarType> dtype,
                           std::optional<c10::Layout> layout, std::optional<c10::Device> device,
                           std::optional<bool> pin_memory) {
  return at::zeros(size, dtype, layout, device, pin_memory);
}

// Calls kernel with the guard that the operators it is made of need.
template <auto kernel>
struct Below;
template <typename Return, typename... Args, Return (*kernel)(Args...)>
struct Below<kernel> {
  static Return call(Args... args) {
    const at::AutoDispatchBelowADInplaceOrView below;
    return kernel(std::forward<Args>(args)...);
  }
};

}  // namespace

void register_composed(torch::Library& lib) {
  const auto out_form = [&](const char* out, const char* name, const char* overload) {
    lib.impl(out, out_function(c10::Dispatcher::singleton().findSchemaOrThrow(name, overload)));
  };
  lib.impl("_efficientzerotensor", &Below<&efficient_zeros>::call);
  using at::_ops::_foreach_addcdiv__ScalarList, at::_ops::_foreach_addcdiv_ScalarList;
  using at::_ops::_foreach_addcmul__ScalarList, at::_ops::_foreach_addcmul_ScalarList;
  lib.impl("_foreach_addcdiv.Tensor", &Below<&by_numbers<&_foreach_addcdiv_ScalarList::call>>::call);
  lib.impl("_foreach_addcdiv_.Tensor", &Below<&by_numbers_<&_foreach_addcdiv__ScalarList::call>>::call);
  lib.impl("_foreach_addcmul.Tensor", &Below<&by_numbers<&_foreach_addcmul_ScalarList::call>>::call);
  lib.impl("_foreach_addcmul_.Tensor", &Below<&by_numbers_<&_foreach_addcmul__ScalarList::call>>::call);
  lib.impl("_histogramdd_bin_edges", &Below<&histogramdd_bin_edges>::call);
  lib.impl("_histogramdd_from_bin_cts", &Below<&histogramdd_counts>::call);
  lib.impl("_histogramdd_from_bin_tensors", &Below<&histogramdd_edges>::call);
  lib.impl("bincount", &Below<&bincount>::call);
  lib.impl("cholesky", &Below<&cholesky>::call);
  lib.impl("fractional_max_pool3d_backward", &Below<&fractional_max_pool3d_backward>::call);
  lib.impl("histogram.bin_ct", &Below<&histogram_counts>::call);
  lib.impl("histogram.bins_tensor", &Below<&histogram_edges>::call);
  lib.impl("multi_margin_loss_backward", &Below<&multi_margin_loss_backward>::call);
  lib.impl("multilabel_margin_loss_backward", &Below<&multilabel_margin_loss_backward>::call);
  lib.impl("repeat_interleave.Tensor", &Below<&repeat_interleave>::call);
  // Their functional forms write running statistics as well, so that no out= form follows from the row.
  out_form("_native_batch_norm_legit.out", "aten::_native_batch_norm_legit", "");
  out_form("native_batch_norm.out", "aten::native_batch_norm", "");
  out_form("rrelu_with_noise.out", "aten::rrelu_with_noise", "");
  out_form("bincount.out", "aten::bincount", "");
  out_form("cholesky.out", "aten::cholesky", "");
  out_form("histogram.bin_ct_out", "aten::histogram", "bin_ct");
  out_form("histogram.bins_tensor_out", "aten::histogram", "bins_tensor");
  out_form("repeat_interleave.Tensor_out", "aten::repeat_interleave", "Tensor");
}

}  // namespace tpj::eager
