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

std::string find_line() {
  if (!Py_IsInitialized() || _Py_IsFinalizing()) return {};
  const PyGILState_STATE gil = PyGILState_Ensure();
  std::string where;
  PyFrameObject* frame = PyThreadState_GetFrame(PyThreadState_Get());
  while (frame != nullptr) {
    PyCodeObject* code = PyFrame_GetCode(frame);
    const char* file = PyUnicode_AsUTF8(code->co_filename);
    if (file != nullptr && !is_library(file))
      where = std::string(file) + ":" + std::to_string(PyFrame_GetLineNumber(frame));
    Py_DECREF(code);
    PyFrameObject* back = PyFrame_GetBack(frame);
    Py_DECREF(frame);
    frame = back;
    if (!where.empty()) {
      Py_XDECREF(frame);
      break;
    }
  }
  PyErr_Clear();
  PyGILState_Release(gil);
  return where;
}

}  // namespace

void install_user_line() { compile::set_user_line(&find_line); }

}  // namespace tpj::bindings
