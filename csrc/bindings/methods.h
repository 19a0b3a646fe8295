// The functions of torch_pjrt._C that are not in module.cpp.
#pragma once

#include <Python.h>

namespace tpj::bindings {

// tracer.cpp. lower_graph(name, inputs, (nodes, outputs), capabilities) -> dict: text, parameters, results, sources. As
// of _decompose.py, with nodes of (operator, arguments, file, line).
PyObject* lower_graph(PyObject*, PyObject* args);

// ahead.cpp. compile_ahead(request: dict) -> dict; see there.
PyObject* compile_ahead(PyObject*, PyObject* request);

}  // namespace tpj::bindings
