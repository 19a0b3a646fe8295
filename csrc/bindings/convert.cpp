#include "bindings/convert.h"

#include "base/errors.h"

namespace tpj::bindings {

std::string get_text(PyObject* dict, const char* name) {
  PyObject* v = PyDict_GetItemString(dict, name);
  if (v == nullptr || v == Py_None) return {};
  const char* text = PyUnicode_AsUTF8(v);
  if (text == nullptr) {
    PyErr_Clear();
    fail(ErrorKind::kType, name, " must be a str");
  }
  return text;
}

pjrt::Options get_options(PyObject* dict, const char* name) {
  pjrt::Options out;
  PyObject* options = PyDict_GetItemString(dict, name);
  if (options == nullptr || options == Py_None) return out;
  PyObject *key = nullptr, *value = nullptr;
  Py_ssize_t at = 0;
  while (PyDict_Next(options, &at, &key, &value)) {
    const char* text = PyUnicode_AsUTF8(key);
    if (text == nullptr) {
      PyErr_Clear();
      fail(ErrorKind::kType, "the names in ", name, " must be str");
    }
    if (PyBool_Check(value)) {
      out.emplace_back(text, value == Py_True);
    } else if (PyLong_Check(value)) {
      out.emplace_back(text, static_cast<int64_t>(PyLong_AsLongLong(value)));
    } else if (PyFloat_Check(value)) {
      out.emplace_back(text, PyFloat_AsDouble(value));
    } else if (PyUnicode_Check(value)) {
      out.emplace_back(text, std::string(PyUnicode_AsUTF8(value)));
    } else {
      fail(ErrorKind::kType, name, "['", text, "'] must be a bool, int, float or str");
    }
  }
  return out;
}

Limits get_limits(PyObject* caps) {
  Limits limits;
#define VALUE(name, ...) \
  if (const std::string text = get_text(caps, #name); !text.empty()) limits.name = text == "true";
  TPJ_LIMITS(VALUE)
#undef VALUE
  return limits;
}

}  // namespace tpj::bindings
