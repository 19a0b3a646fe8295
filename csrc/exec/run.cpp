#include "exec/run.h"

#include <ATen/core/Generator.h>
#include <ATen/core/TensorBody.h>

#include <algorithm>

#include "base/flags.h"
#include "compile/compiler.h"
#include "exec/queue.h"
#include "runtime/allocator.h"
#include "runtime/device.h"
#include "runtime/errors.h"
#include "runtime/generator.h"

namespace tpj::exec {
namespace {

using runtime::BufferRef;
using runtime::Cell;

struct Last {
  const Program* program = nullptr;
  std::vector<BufferRef> args;
  int device = 0;
};
thread_local bool t_recording = false;  // for bench_last_program: remembers each program and donates nothing
thread_local Last t_last;

// The cell's buffer under its lock; what was never written is filled as the program expects it.
const BufferRef& defined(Cell& cell, const BufferType* type) {
  if (!cell.locked()) [[unlikely]]
    cell.store_locked(runtime::uninitialized(type, cell.device()));
  return cell.locked();
}

const c10::IValue& at_path(const c10::IValue* args, const ArgPath& path, c10::IValue& item) {
  const c10::IValue& v = args[path.arg];
  if (path.item < 0) return v;
  item = v.isTensorList() ? c10::IValue(v.toTensorList().get(static_cast<size_t>(path.item)))
                          : v.toListRef()[static_cast<size_t>(path.item)];
  return item;
}

Number rng_state(const Param& param, const c10::IValue* args, size_t n_args, int device) {
  at::Generator generator;
  for (size_t i = 0; i < n_args; ++i)
    if (args[i].isGenerator()) generator = args[i].toGenerator();
  if (!generator.defined()) generator = runtime::default_generator(device);
  TORCH_CHECK(!is_capturing(device) || generator == runtime::default_generator(device),
              refused_by_capture("random numbers of a generator that is not the device's own"));
  TORCH_CHECK(generator.device().type() == c10::kPrivateUse1, "Expected a '", runtime::config().device_name,
              "' device type for generator but found '", generator.device().type(), "'");
  const auto [seed, offset] =
      static_cast<runtime::Generator*>(generator.unsafeGetGeneratorImpl())->reserve(param.counters);
  return {seed, offset};
}

at::Tensor make_tensor(const TensorSpec& spec, int device, BufferRef buffer) {
  static c10::Allocator* allocator = c10::GetAllocator(c10::kPrivateUse1);
  c10::Storage storage(c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), spec.storage_nbytes,
                                                             Cell::make(device, spec.storage_nbytes, std::move(buffer)),
                                                             allocator, true));
  at::Tensor t = at::detail::make_tensor<c10::TensorImpl>(
      std::move(storage), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), c10::scalarTypeToTypeMeta(spec.dtype));
  t.unsafeGetTensorImpl()->set_sizes_and_strides(spec.sizes, spec.strides, spec.offset);
  return t;
}

c10::IValue make_result(const Result& r, const c10::IValue* args, int device, const BufferRef* outputs) {
  switch (r.kind) {
    case Result::Kind::kFresh:
      return make_tensor(r.spec, device, r.output < 0 ? BufferRef() : outputs[r.output]);
    case Result::Kind::kArgument:
      return args[r.path.arg];
    case Result::Kind::kUndefined:
      return at::Tensor();
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

constinit thread_local Meter* t_meter = nullptr;

namespace {

// The inputs that no write depends on.
void load_inputs(const Program& program, const Inputs& inputs, const c10::IValue* args, size_t n_args, int device,
                 Held& held, Numbers& numbers) {
  for (size_t i = 0; i < program.params.size(); ++i) {
    const Param& p = program.params[i];
    c10::IValue item;
    switch (p.kind) {
      case Param::Kind::kCell:
        if (!p.cell_is_written) {
          Cell& cell = *inputs.cells[static_cast<size_t>(p.cell)];
          held[i] = cell.load();
          if (!held[i]) [[unlikely]] {
            const auto lock = cell.lock();
            held[i] = defined(cell, p.type);
          }
        }
        break;
      case Param::Kind::kNumber:
        numbers[i] = number_of(at_path(args, p.path, item), p.dtype);
        break;
      case Param::Kind::kOffset: {
        const int64_t offset = at_path(args, p.path, item).toTensor().storage_offset();
        numbers[i] = number_of((offset - p.offset.fixed) / p.offset.unit, p.dtype);
        break;
      }
      case Param::Kind::kRng:
        numbers[i] = rng_state(p, args, n_args, device);
        break;
    }
  }
}

// Runs the call, or notes it. Where cells are written, load, compute and store are one step for other threads.
void compute(const Program& program, Inputs& inputs, const c10::IValue* args, size_t n_args, int device, bool fused,
             Held& outputs) {
  Held held(program.params.size());
  Numbers numbers(program.params.size());
  load_inputs(program, inputs, args, n_args, device, held, numbers);
  c10::SmallVector<std::unique_lock<std::mutex>, 16> locks;
  c10::SmallVector<int64_t, 16> keep;  // may be donated but must not: somebody else holds them
  if (!program.writes.empty()) {
    c10::SmallVector<Cell*, 16> cells;
    for (const Write& w : program.writes) cells.push_back(inputs.cells[static_cast<size_t>(w.cell)]);
    if (cells.size() > 1) std::sort(cells.begin(), cells.end());
    for (Cell* c : cells) locks.push_back(c->lock());
    for (size_t i = 0; i < program.params.size(); ++i) {
      const Param& p = program.params[i];
      if (p.kind != Param::Kind::kCell || !p.cell_is_written) continue;
      const BufferRef& buffer = defined(*inputs.cells[static_cast<size_t>(p.cell)], p.type);
      held[i] = buffer;
      // The cell's reference and ours: nobody else.
      if (p.written_by >= 0 && (buffer.use_count() != 2 || t_recording)) keep.push_back(static_cast<int64_t>(i));
    }
  }
  if (fused) {
    for (const BufferRef& b : held)
      if (b && !b->is_promise()) b->settle();  // throws for what could not be computed
    note(program, held, numbers, device, outputs);
  } else {
    c10::SmallVector<PJRT_Buffer*, 16> out(program.outputs.size(), nullptr);
    execute(program, held, numbers, keep, device, out);
    for (size_t i = 0; i < out.size(); ++i)
      outputs[i] = c10::make_intrusive<runtime::DeviceBuffer>(pjrt::Buffer(runtime::client().state(), out[i]),
                                                              program.outputs[i], device, program.name.c_str());
  }
  for (const Write& w : program.writes)
    inputs.cells[static_cast<size_t>(w.cell)]->store_locked(outputs[static_cast<size_t>(w.output)]);
}

}  // namespace

bool is_fused() { return flags().EAGER.front() == 'f' && !t_recording; }

std::unique_ptr<Program> complete(std::unique_ptr<Program> lowered, std::string what, std::string reason) {
  lowered->record = {.what = std::move(what), .reason = std::move(reason), .where = compile::user_line()};
  if ((!is_fused() || lowered->runs_alone) && !lowered->text.empty()) lowered->executable();
  return lowered;
}

void execute(const Program& program, Held& held, const Numbers& numbers, const c10::SmallVectorImpl<int64_t>& keep,
             int device, c10::SmallVectorImpl<PJRT_Buffer*>& outputs) {
  const Program::Executable executable = program.executable();
  c10::SmallVector<PJRT_Buffer*, 16> raw;
  for (size_t i = 0; i < held.size(); ++i) {
    const Param& p = program.params[i];
    if (p.kind == Param::Kind::kRng) {
      static const BufferType* const type = BufferType::intern(DType::U64, {2});
      held[i] = runtime::upload(numbers[i].data(), type, device);
    } else if (p.kind != Param::Kind::kCell) {
      held[i] = number_buffer(numbers[i], p.dtype, device);
    }
    raw.push_back(held[i]->raw());
  }
  if (t_meter) [[unlikely]]
    t_meter->plugin -= Meter::now();
  executable->enqueue(raw.data(), raw.size(), outputs.data(), device, keep.data(), keep.size());
  if (t_meter) [[unlikely]]
    t_meter->plugin += Meter::now();
  // Before the outputs are counted: they may live in the same memory.
  for (size_t i = 0; i < held.size(); ++i)
    if (program.params[i].written_by >= 0 && std::find(keep.begin(), keep.end(), static_cast<int64_t>(i)) == keep.end())
      held[i]->mark_donated();
  if (t_recording) [[unlikely]]
    t_last = {&program, {held.begin(), held.end()}, device};
}

void run(const Program& program, Inputs& inputs, const c10::IValue* args, size_t n_args, Results* results) {
  const int device = inputs.device_or_current();
  const bool captured = is_capturing(device);
  const bool fused = captured || (is_fused() && !program.runs_alone);
  if (fused) make_room(device);
  Held outputs(program.outputs.size());
  if (!outputs.empty()) {
    try {
      compute(program, inputs, args, n_args, device, fused, outputs);
    } catch (const Error& e) {
      const std::string where = compile::user_line();
      throw Error(e.kind(), str("[", program.name, "] ", e.what(), where.empty() ? "" : ", at ", where));
    }
  }
  if (flags().EAGER == "debug" && !captured) [[unlikely]]
    for (const BufferRef& b : outputs) b->await();
  for (const Resize& r : program.resizes) apply_resize(r, args);

  if (results == nullptr) return;
  for (const Result& r : program.results) results->push_back(make_result(r, args, device, outputs.data()));
}

void replace_arguments(torch::jit::Stack& stack, size_t n_args, Results& results) {
  torch::jit::drop(stack, n_args);
  for (c10::IValue& v : results) stack.push_back(std::move(v));
}

double bench_last_program(int n) {
  if (n <= 0) {
    t_recording = true;
    t_last = {};
    return 0;
  }
  t_recording = false;
  TPJ_CHECK(t_last.program, "bench_last_program(0), then one operator on this thread, then bench_last_program(n)");
  const Program& program = *t_last.program;
  std::vector<PJRT_Buffer*> raw;
  std::vector<int64_t> keep;  // nothing is donated: the inputs are used again
  for (size_t i = 0; i < t_last.args.size(); ++i) {
    raw.push_back(t_last.args[i]->raw());
    keep.push_back(static_cast<int64_t>(i));
  }
  std::vector<PJRT_Buffer*> out(program.outputs.size());
  const int64_t start = Meter::now();
  for (int i = 0; i < n; ++i) {
    program.executable()->enqueue(raw.data(), raw.size(), out.data(), t_last.device, keep.data(), keep.size());
    for (PJRT_Buffer* b : out) pjrt::Buffer(runtime::client().state(), b).reset();
  }
  const auto spent = static_cast<double>(Meter::now() - start);
  t_last = {};
  return spent / n / 1e3;
}

}  // namespace tpj::exec
