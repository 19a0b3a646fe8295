// torch.accelerator.Graph on our device.
#include <ATen/core/GraphImplInterface.h>

#include <fstream>

#include "eager/kernels.h"
#include "exec/capture.h"
#include "runtime/device.h"
#include "runtime/errors.h"

namespace tpj::eager {
namespace {

class Graph final : public at::GraphImplInterface {
 public:
  // There are no pools, and a graph is compiled when it ends: whether to keep what it was made from changes nothing.
  explicit Graph(const at::GraphImplArgs&) {}

  void capture_begin(at::MempoolId_t, at::GraphCaptureMode) override {
    TORCH_CHECK(!capture_, "This graph instance already owns a captured graph. To capture a new graph, create a new ",
                "instance or call reset.");
    runtime::translate([&] { capture_ = std::make_unique<exec::Capture>(runtime::current_device()); });
    is_open_ = true;
  }
  void capture_end() override {
    TORCH_CHECK(is_open_, "capture_end without a capture_begin before");
    is_open_ = false;
    try {
      runtime::translate([&] { capture_->end(); });
    } catch (...) {
      capture_.reset();
      throw;
    }
  }
  void instantiate() override { captured("instantiate"); }
  void replay() override {
    runtime::translate([&] { captured("replay").replay(); });
  }
  void reset() override {
    capture_.reset();
    is_open_ = false;
  }
  at::MempoolId_t pool() const override { return {0, 0}; }
  void enable_debug_mode() override {}
  void debug_dump(const std::string& path) override {
    std::ofstream file(path);
    file << captured("debug_dump").describe();
    TORCH_CHECK(file.flush(), "cannot write ", path);
  }

 private:
  exec::Capture& captured(const char* what) {
    TORCH_CHECK(capture_ && !is_open_, "Called Graph::", what, " without a preceding successful capture.");
    return *capture_;
  }

  std::unique_ptr<exec::Capture> capture_;
  bool is_open_ = false;
};

}  // namespace

void register_graph() {
  at::GraphImplRegistry()->Register(c10::DeviceTypeName(c10::kPrivateUse1, /*lower_case=*/false),
                                    [](const at::GraphImplArgs& args) -> std::unique_ptr<at::GraphImplInterface> {
                                      return std::make_unique<Graph>(args);
                                    });
}

}  // namespace tpj::eager
