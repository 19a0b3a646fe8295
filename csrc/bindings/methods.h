// The functions of torch_pjrt._C that are not in module.cpp.
#pragma once

#include <Python.h>

namespace tpj::bindings {

// tracer.cpp. lower_graph(name, inputs, (nodes, outputs), capabilities) -> dict: text, parameters, results, sources. As
// of _decompose.py, with nodes of (operator, arguments, file, line).
PyObject* lower_graph(PyObject*, PyObject* args);

// add_traced(name, inputs: int, (nodes, outputs)) -> int, a number for torch.ops.tpj.run_traced until drop_traced(it).
PyObject* add_traced(PyObject*, PyObject* args);
PyObject* drop_traced(PyObject*, PyObject* number);

// ahead.cpp. compile_ahead(request: dict) -> dict; see there.
PyObject* compile_ahead(PyObject*, PyObject* request);

}  // namespace tpj::bindings
