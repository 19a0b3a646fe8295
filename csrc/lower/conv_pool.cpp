// The family of convolution, pooling and resampling, put together from its parts.
#include "lower/row.h"

namespace tpj::lower {

std::vector<Row> conv_rows();
std::vector<Row> pool_rows();
std::vector<Row> resample_rows();

std::vector<Row> conv_pool_rows() {
  std::vector<Row> all = conv_rows();
  for (auto part : {pool_rows, resample_rows}) {
    const std::vector<Row> more = part();
    all.insert(all.end(), more.begin(), more.end());
  }
  return all;
}

}  // namespace tpj::lower
