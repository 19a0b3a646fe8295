// Plain CPython in a few lines: owned objects, conversions, the one error boundary.
#pragma once

#include <Python.h>

#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>

#include "base/limits.h"
#include "pjrt/named_value.h"

namespace tpj::bindings {

inline PyObject* none() { return Py_NewRef(Py_None); }
inline PyObject* to_python(const std::string& s) {
  return PyUnicode_FromStringAndSize(s.data(), static_cast<Py_ssize_t>(s.size()));
}
inline PyObject* to_python(int64_t v) { return PyLong_FromLongLong(v); }
inline PyObject* to_python(double v) { return PyFloat_FromDouble(v); }

// An owned container that is given away at the end.
class Dict {
 public:
  Dict() : d_(PyDict_New()) {}
  ~Dict() { Py_XDECREF(d_); }
  Dict(const Dict&) = delete;
  template <typename T>
  void set(const std::string& name, const T& value) {
    set_owned(name, to_python(value));
  }
  void set_owned(const std::string& name, PyObject* value) {
    PyDict_SetItemString(d_, name.c_str(), value);
    Py_DECREF(value);
  }
  PyObject* release() { return std::exchange(d_, nullptr); }

 private:
  PyObject* d_;
};

class List {
 public:
  List() : l_(PyList_New(0)) {}
  ~List() { Py_XDECREF(l_); }
  List(const List&) = delete;
  void append(PyObject* owned) {
    PyList_Append(l_, owned);
    Py_DECREF(owned);
  }
  PyObject* release() { return std::exchange(l_, nullptr); }

 private:
  PyObject* l_;
};

// Turns the current C++ exception into a Python exception of the same kind. Call inside catch.
void set_python_error();

// Runs f; a C++ exception becomes a Python one.
template <typename F>
PyObject* guarded(F&& f) {
  try {
    return f();
  } catch (...) {
    set_python_error();
    return nullptr;
  }
}

// Runs f with the interpreter lock released.
template <typename F>
auto without_gil(F&& f) {
  struct Release {
    PyThreadState* state = PyEval_SaveThread();
    ~Release() { PyEval_RestoreThread(state); }
  } release;
  return f();
}

// config[name] as text ("" for None or absent) and as a dict of plugin options.
std::string get_text(PyObject* dict, const char* name);
pjrt::Options get_options(PyObject* dict, const char* name);

// Of a dict of capabilities ("true", "false"); those that are no limits are left out.
Limits get_limits(PyObject* caps);

}  // namespace tpj::bindings
