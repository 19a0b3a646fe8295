// Where in the user's code are we? Python's frames, without torch's own files and ours.
#include <Python.h>

#include <string>
#include <string_view>

#include "bindings/api.h"
#include "compile/compiler.h"

namespace tpj::bindings {
namespace {

bool is_library(std::string_view file) {
  return file.find("/torch/") != std::string_view::npos || file.find("/torch_pjrt/") != std::string_view::npos ||
         file.starts_with("<frozen");
}

// Calls f(file, frame) for the frames from the innermost on, until it says true.
template <typename F>
void each_frame(F&& f) {
  if (!Py_IsInitialized() || _Py_IsFinalizing()) return;
  const PyGILState_STATE gil = PyGILState_Ensure();
  PyFrameObject* frame = PyThreadState_GetFrame(PyThreadState_Get());
  while (frame != nullptr) {
    PyCodeObject* code = PyFrame_GetCode(frame);
    const char* file = PyUnicode_AsUTF8(code->co_filename);
    const bool done = file != nullptr && f(std::string_view(file), frame);
    Py_DECREF(code);
    PyFrameObject* back = done ? nullptr : PyFrame_GetBack(frame);
    Py_DECREF(frame);
    frame = back;
  }
  PyErr_Clear();
  PyGILState_Release(gil);
}

std::string find_line() {
  std::string where;
  each_frame([&](std::string_view file, PyFrameObject* frame) {
    if (is_library(file)) return false;
    where = std::string(file) + ":" + std::to_string(PyFrame_GetLineNumber(frame));
    return true;
  });
  return where;
}

bool is_printing() {
  bool answer = false;
  each_frame([&](std::string_view file, PyFrameObject*) {
    answer = file.ends_with("/torch/_tensor_str.py");
    return true;
  });
  return answer;
}

}  // namespace

void install_user_line() {
  compile::set_user_line(&find_line);
  set_is_printing(&is_printing);
}

}  // namespace tpj::bindings
