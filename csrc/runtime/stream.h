// Streams and events. A PJRT device runs what it is given in order, so all streams of a device share one queue: a
// stream is a label, waiting for another stream is already done, and an event is the state of the newest buffer when it
// was recorded.
#pragma once

#include <c10/core/Stream.h>

#include <chrono>
#include <memory>
#include <vector>

#include "runtime/buffer.h"

namespace tpj::runtime {

c10::Stream current_stream(int device);
// Returns the stream that was current.
c10::Stream exchange_stream(c10::Stream stream);
c10::Stream new_stream(int device);
c10::Stream default_stream(int device);

class Event {
 public:
  // Everything enqueued on the device so far.
  void record(int device);
  bool is_ready() const;
  // Raises the failure of the work recorded.
  void await();
  // Milliseconds between the completions of two events; waits for neither.
  static double elapsed_ms(const Event& from, const Event& to);

 private:
  // When the work was done; the callback that writes it may outlive the event.
  struct Done {
    std::atomic<bool> known{false};
    std::chrono::steady_clock::time_point time;
  };
  std::vector<BufferRef> pending_;
  std::shared_ptr<Done> done_;
};

}  // namespace tpj::runtime
