#include "lower/row.h"

#include <algorithm>

namespace tpj::lower {
namespace {

std::vector<Row> collect() {
  std::vector<Row> all;
  for (auto family : {activation_rows, conv_pool_rows,  counted_rows, fft_rows,      foreach_optim_rows, index_rows,
                      jacobi_rows,     linalg_rows,     loss_rows,    lu_rows,       matmul_rows,        norm_loss_rows,
                      pointwise_rows,  polynomial_rows, qr_rows,      random_rows,   recurrent_rows,     reduce_rows,
                      sort_scan_rows,  special_rows,    unary_rows,   view_copy_rows}) {
    const std::vector<Row> part = family();
    all.insert(all.end(), part.begin(), part.end());
  }
  std::sort(all.begin(), all.end(), [](const Row& a, const Row& b) { return a.name < b.name; });
  for (size_t i = 1; i < all.size(); ++i)
    TPJ_ASSERT(all[i - 1].name != all[i].name, "two rows are named ", all[i].name);
  return all;
}

const std::vector<Row>& table() {
  static const std::vector<Row>& all = *new std::vector<Row>(collect());
  return all;
}

}  // namespace

std::span<const Row> rows() { return table(); }

const Row* find_row(std::string_view name) {
  const auto at = std::lower_bound(table().begin(), table().end(), name,
                                   [](const Row& r, std::string_view n) { return r.name < n; });
  return at != table().end() && at->name == name ? &*at : nullptr;
}

}  // namespace tpj::lower
