#include "exec/run.h"

#include <ATen/core/Generator.h>
#include <ATen/core/TensorBody.h>

#include <algorithm>
#include <chrono>

#include "base/flags.h"
#include "runtime/allocator.h"
#include "runtime/device.h"
#include "runtime/errors.h"
#include "runtime/generator.h"

namespace tpj::exec {
namespace {

using runtime::BufferRef;
using runtime::Cell;

constexpr size_t kInline = 16;

struct Last {
  const Program* program = nullptr;
  std::vector<BufferRef> args;
  int device = 0;
};
thread_local bool t_keep_last = false;
thread_local Last t_last;

// The cell's buffer as the program expects it; a cell that was never written is filled now.
BufferRef cell_buffer(Cell& cell, const BufferType* type) {
  BufferRef buffer = cell.load();
  if (!buffer) [[unlikely]] {
    buffer = runtime::uninitialized(type, cell.device());
    cell.store(buffer);
  }
  return buffer;
}

const c10::IValue& at_path(const c10::IValue* args, const ArgPath& path, c10::IValue& item) {
  const c10::IValue& v = args[path.arg];
  if (path.item < 0) return v;
  item = v.isTensorList() ? c10::IValue(v.toTensorList().get(static_cast<size_t>(path.item)))
                          : v.toListRef()[static_cast<size_t>(path.item)];
  return item;
}

BufferRef rng_buffer(const Program& program, const Param& param, const c10::IValue* args, size_t n_args, int device) {
  at::Generator generator;
  for (size_t i = 0; i < n_args; ++i)
    if (args[i].isGenerator()) generator = args[i].toGenerator();
  if (!generator.defined()) generator = runtime::default_generator(device);
  TORCH_CHECK(generator.device().type() == c10::kPrivateUse1, "Expected a '", runtime::config().device_name,
              "' device type for generator but found '", generator.device().type(), "'");
  const auto [seed, offset] = static_cast<runtime::Generator*>(generator.unsafeGetGeneratorImpl())->reserve(param.counters);
  const uint64_t state[2] = {seed, offset};
  (void)program;
  static const BufferType* type = BufferType::intern(DType::U64, {2});
  return runtime::upload(state, type, device);
}

at::Tensor make_tensor(const TensorSpec& spec, int device, BufferRef buffer) {
  static c10::Allocator* allocator = c10::GetAllocator(c10::kPrivateUse1);
  c10::Storage storage(c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), spec.storage_nbytes,
                                                             Cell::make(device, spec.storage_nbytes, std::move(buffer)), allocator, true));
  at::Tensor t = at::detail::make_tensor<c10::TensorImpl>(std::move(storage), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                                          c10::scalarTypeToTypeMeta(spec.dtype));
  t.unsafeGetTensorImpl()->set_sizes_and_strides(spec.sizes, spec.strides, spec.offset);
  return t;
}

c10::IValue make_result(const Result& r, const c10::IValue* args, int device, const BufferRef* outputs) {
  switch (r.kind) {
    case Result::Kind::kFresh: return make_tensor(r.spec, device, r.output < 0 ? BufferRef() : outputs[r.output]);
    case Result::Kind::kArgument: return args[r.path.arg];
    case Result::Kind::kUndefined: return at::Tensor();
    case Result::Kind::kList: {
      c10::List<at::Tensor> list;
      for (const Result& item : r.items) list.push_back(make_result(item, args, device, outputs).toTensor());
      return list;
    }
  }
  return {};
}

void apply_resize(const Resize& resize, const c10::IValue* args) {
  c10::IValue item;
  const at::Tensor t = at_path(args, resize.path, item).toTensor();
  auto* impl = t.unsafeGetTensorImpl();
  const c10::Storage& storage = impl->unsafe_storage();
  if (storage.nbytes() < resize.spec.storage_nbytes) {
    Cell* cell = Cell::of(*storage.unsafeGetStorageImpl());
    runtime::check_size(cell->device(), resize.spec.storage_nbytes);
    cell->set_nbytes(resize.spec.storage_nbytes);
    storage.unsafeGetStorageImpl()->set_nbytes(resize.spec.storage_nbytes);
  }
  impl->set_sizes_and_strides(resize.spec.sizes, resize.spec.strides, resize.spec.offset);
}

}  // namespace

void run(const Program& program, Inputs& inputs, torch::jit::Stack& stack, size_t n_args) {
  const c10::IValue* args = stack.data() + (stack.size() - n_args);
  const int device = inputs.device < 0 ? runtime::current_device() : inputs.device;
  c10::SmallVector<BufferRef, kInline> outputs(program.outputs.size());
  if (program.executable) {
    c10::SmallVector<BufferRef, kInline> held;
    c10::SmallVector<PJRT_Buffer*, kInline> raw;
    c10::SmallVector<int64_t, kInline> keep;  // inputs that may be donated but must not: somebody else holds them
    for (size_t i = 0; i < program.params.size(); ++i) {
      const Param& p = program.params[i];
      switch (p.kind) {
        case Param::Kind::kCell: {
          held.push_back(cell_buffer(*inputs.cells[static_cast<size_t>(p.cell)], p.type));
          // Ours and the cell's: nobody else.
          if (p.written_by >= 0 && held.back().use_count() != 2) keep.push_back(static_cast<int64_t>(i));
          break;
        }
        case Param::Kind::kBlock: {
          c10::IValue item;
          const at::Tensor& t = at_path(args, p.path, item).toTensor();
          held.push_back(number_buffer(t.storage_offset() / t.numel(), DType::I64, device));
          break;
        }
        case Param::Kind::kNumber: {
          c10::IValue item;
          held.push_back(number_buffer(at_path(args, p.path, item), p.dtype, device));
          break;
        }
        case Param::Kind::kRng: held.push_back(rng_buffer(program, p, args, n_args, device)); break;
      }
      raw.push_back(held.back()->raw());
    }
    c10::SmallVector<PJRT_Buffer*, kInline> out(program.outputs.size());
    program.executable->enqueue(raw.data(), raw.size(), out.data(), device, keep.data(), keep.size());
    for (size_t i = 0; i < out.size(); ++i)
      outputs[i] = c10::make_intrusive<runtime::DeviceBuffer>(pjrt::Buffer(program.executable->state(), out[i]), program.outputs[i], device,
                                                              program.name.c_str());
    for (size_t i = 0; i < program.params.size(); ++i)
      if (program.params[i].written_by >= 0 && std::find(keep.begin(), keep.end(), static_cast<int64_t>(i)) == keep.end())
        held[i]->mark_donated();
    if (t_keep_last) [[unlikely]]
      t_last = {&program, {held.begin(), held.end()}, device};
  }
  if (flags().EAGER == "debug") [[unlikely]]
    for (const BufferRef& b : outputs) b->await();
  for (const Resize& r : program.resizes) apply_resize(r, args);
  for (const Write& w : program.writes) inputs.cells[static_cast<size_t>(w.cell)]->store(outputs[static_cast<size_t>(w.output)]);

  if (program.results.size() == 1) [[likely]] {
    c10::IValue result = make_result(program.results[0], args, device, outputs.data());
    torch::jit::drop(stack, n_args);
    stack.push_back(std::move(result));
  } else {
    c10::SmallVector<c10::IValue, 4> results;
    for (const Result& r : program.results) results.push_back(make_result(r, args, device, outputs.data()));
    torch::jit::drop(stack, n_args);
    for (c10::IValue& v : results) stack.push_back(std::move(v));
  }
}

double bench_last_program(int n) {
  // The next call is remembered; the first use of this function only switches that on.
  if (!t_keep_last || t_last.program == nullptr) {
    t_keep_last = true;
    TPJ_CHECK(n <= 0, "run an operator on this thread first (the first call of bench_last_program only starts the recording)");
    return 0;
  }
  const Program& program = *t_last.program;
  std::vector<PJRT_Buffer*> raw;
  std::vector<int64_t> keep;  // nothing is donated: the inputs are used again
  for (size_t i = 0; i < t_last.args.size(); ++i) {
    raw.push_back(t_last.args[i]->raw());
    keep.push_back(static_cast<int64_t>(i));
  }
  std::vector<PJRT_Buffer*> out(program.outputs.size());
  std::vector<double> times;
  for (int i = 0; i < n; ++i) {
    const auto start = std::chrono::steady_clock::now();
    program.executable->enqueue(raw.data(), raw.size(), out.data(), t_last.device, keep.data(), keep.size());
    for (PJRT_Buffer* b : out) pjrt::Buffer(program.executable->state(), b).reset();
    times.push_back(std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count());
  }
  std::nth_element(times.begin(), times.begin() + n / 2, times.end());
  return times[static_cast<size_t>(n / 2)];
}

}  // namespace tpj::exec
