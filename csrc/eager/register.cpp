#include "eager/register.h"

#include "eager/changing.h"
#include "eager/kernels.h"
#include "exec/queue.h"
#include "runtime/generator.h"

namespace tpj::eager {
namespace {

// What Python needs and plain CPython cannot carry: PyTorch's own objects.
void register_helpers() {
  static torch::Library& tpj = *new torch::Library(torch::Library::DEF, "tpj", std::nullopt, __FILE__, __LINE__);
  tpj.def("default_generator(int index) -> Generator?",
          [](int64_t index) { return runtime::default_generator(static_cast<int>(index)); });
  register_traced(tpj);
  register_changing(tpj);
  tpj.def("manual_seed_all(int seed) -> ()", [](int64_t seed) { runtime::seed_all(static_cast<uint64_t>(seed)); });
}

}  // namespace

void register_operators() {
  static torch::Library& aten =
      *new torch::Library(torch::Library::IMPL, "aten", c10::DispatchKey::PrivateUse1, __FILE__, __LINE__);
  register_storage_ops(aten);
  register_copy_ops(aten);
  register_rows(aten);
  register_composed(aten);
  register_fallback();
  register_autocast();
  register_graph();
  register_helpers();
  runtime::set_settler(&exec::flush);
}

}  // namespace tpj::eager
