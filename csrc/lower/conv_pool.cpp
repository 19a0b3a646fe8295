// The family of convolution, pooling, resampling and sampling at places, put together from its parts.
#include "lower/row.h"

namespace tpj::lower {

std::vector<Row> conv_rows();
std::vector<Row> grid_sample_rows();
std::vector<Row> pool_rows();
std::vector<Row> resample_rows();

std::vector<Row> conv_pool_rows() {
  std::vector<Row> all = conv_rows();
  for (auto part : {grid_sample_rows, pool_rows, resample_rows}) {
    const std::vector<Row> more = part();
    all.insert(all.end(), more.begin(), more.end());
  }
  return all;
}

}  // namespace tpj::lower
