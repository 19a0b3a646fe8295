// C++ exceptions -> Python exceptions, for the functions of module.cpp.
#include <c10/util/Exception.h>

#include "base/errors.h"
#include "bindings/convert.h"

namespace tpj::bindings {
namespace {

PyObject* type_of(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::kIndex:
      return PyExc_IndexError;
    case ErrorKind::kNotImplemented:
      return PyExc_NotImplementedError;
    case ErrorKind::kOutOfMemory:
      return PyExc_MemoryError;
    case ErrorKind::kType:
      return PyExc_TypeError;
    case ErrorKind::kValue:
      return PyExc_ValueError;
    default:
      return PyExc_RuntimeError;
  }
}

}  // namespace

void set_python_error() {
  try {
    throw;
  } catch (const Error& e) {
    PyErr_SetString(type_of(e.kind()), e.what());
  } catch (const c10::Error& e) {
    PyErr_SetString(PyExc_RuntimeError, e.what_without_backtrace());
  } catch (const std::exception& e) {
    PyErr_SetString(PyExc_RuntimeError, e.what());
  }
}

}  // namespace tpj::bindings
