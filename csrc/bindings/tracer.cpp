// Calls torch_pjrt._decompose.trace and turns plain Python data into a graph and back. The interpreter lock is taken
// here and nowhere else on that path. Functions that Python traced come in the same form.
#include <Python.h>

#include "base/errors.h"
#include "bindings/api.h"
#include "bindings/convert.h"
#include "bindings/methods.h"
#include "bridge/module.h"
#include "eager/kernels.h"
#include "eager/register.h"

namespace tpj::bindings {
namespace {

using exec::Plain;
using exec::PlainList;

PyObject* ints(const std::vector<int64_t>& values) {
  PyObject* t = PyTuple_New(static_cast<Py_ssize_t>(values.size()));
  for (size_t i = 0; i < values.size(); ++i)
    PyTuple_SET_ITEM(t, static_cast<Py_ssize_t>(i), PyLong_FromLongLong(values[i]));
  return t;
}

PyObject* to_object(const Plain& p) {
  if (const auto* b = std::get_if<bool>(&p.v)) return PyBool_FromLong(*b);
  if (const auto* i = std::get_if<int64_t>(&p.v)) return PyLong_FromLongLong(*i);
  if (const auto* d = std::get_if<double>(&p.v)) return PyFloat_FromDouble(*d);
  if (const auto* z = std::get_if<std::complex<double>>(&p.v)) return PyComplex_FromDoubles(z->real(), z->imag());
  if (const auto* s = std::get_if<std::string>(&p.v)) return to_python(*s);
  if (const auto* t = std::get_if<exec::TensorDescription>(&p.v))
    return Py_BuildValue("(sLNN)", "tensor", static_cast<long long>(t->dtype), ints(t->sizes), ints(t->strides));
  if (const auto* list = std::get_if<PlainList>(&p.v)) {
    PyObject* t = PyTuple_New(static_cast<Py_ssize_t>(list->size()));
    for (size_t i = 0; i < list->size(); ++i) PyTuple_SET_ITEM(t, static_cast<Py_ssize_t>(i), to_object((*list)[i]));
    return t;
  }
  return none();
}

Plain from_object(PyObject* o);

PlainList from_tuple(PyObject* t) {
  PlainList out;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(t); ++i) out.push_back(from_object(PyTuple_GET_ITEM(t, i)));
  return out;
}

Plain from_object(PyObject* o) {
  if (o == Py_None) return {};
  if (PyBool_Check(o)) return {o == Py_True};
  if (PyLong_Check(o)) return {static_cast<int64_t>(PyLong_AsLongLong(o))};
  if (PyFloat_Check(o)) return {PyFloat_AS_DOUBLE(o)};
  if (PyComplex_Check(o)) return {std::complex<double>(PyComplex_RealAsDouble(o), PyComplex_ImagAsDouble(o))};
  if (PyUnicode_Check(o)) return {std::string(PyUnicode_AsUTF8(o))};
  if (!PyTuple_Check(o)) fail(ErrorKind::kType, "a traced graph holds a ", Py_TYPE(o)->tp_name);
  if (PyTuple_GET_SIZE(o) == 3 && PyUnicode_Check(PyTuple_GET_ITEM(o, 0)) &&
      PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(o, 0), "ref") == 0)
    return {exec::Ref{static_cast<int>(PyLong_AsLong(PyTuple_GET_ITEM(o, 1))),
                      static_cast<int>(PyLong_AsLong(PyTuple_GET_ITEM(o, 2)))}};
  return {from_tuple(o)};
}

exec::Graph to_graph(PyObject* result) {
  exec::Graph graph;
  PyObject* nodes = PyTuple_GET_ITEM(result, 0);
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(nodes); ++i) {
    PyObject* node = PyTuple_GET_ITEM(nodes, i);
    graph.nodes.push_back({PyUnicode_AsUTF8(PyTuple_GET_ITEM(node, 0)), from_tuple(PyTuple_GET_ITEM(node, 1))});
    if (PyTuple_GET_SIZE(node) < 4) continue;
    graph.nodes.back().file = PyUnicode_AsUTF8(PyTuple_GET_ITEM(node, 2));
    graph.nodes.back().line = static_cast<int>(PyLong_AsLong(PyTuple_GET_ITEM(node, 3)));
    if (PyTuple_GET_SIZE(node) < 5) continue;
    PyObject* parts = PyTuple_GET_ITEM(node, 4);
    for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(parts); ++k)
      graph.nodes.back().graphs.push_back(to_graph(PyTuple_GET_ITEM(parts, k)));
  }
  graph.outputs = from_tuple(PyTuple_GET_ITEM(result, 1));
  return graph;
}

std::optional<exec::Graph> trace(const std::string& overload, const PlainList& arguments) {
  if (!Py_IsInitialized() || _Py_IsFinalizing()) return std::nullopt;
  struct Gil {
    PyGILState_STATE state = PyGILState_Ensure();
    ~Gil() { PyGILState_Release(state); }
  } gil;
  std::optional<exec::Graph> graph;
  PyObject* module = PyImport_ImportModule("torch_pjrt._decompose");
  PyObject* result =
      module ? PyObject_CallMethod(module, "trace", "sN", overload.c_str(), to_object(Plain{arguments})) : nullptr;
  if (result != nullptr && PyTuple_Check(result)) {
    try {
      graph = to_graph(result);
    } catch (const Error&) {
      graph.reset();
    }
  }
  Py_XDECREF(result);
  Py_XDECREF(module);
  PyErr_Clear();
  return graph;
}

}  // namespace

PyObject* lower_graph(PyObject*, PyObject* args) {
  const char* name = nullptr;
  PyObject *inputs = nullptr, *traced = nullptr, *caps = nullptr;
  if (!PyArg_ParseTuple(args, "sO!O!O!", &name, &PyTuple_Type, &inputs, &PyTuple_Type, &traced, &PyDict_Type, &caps))
    return nullptr;
  return guarded([&] {
    const Limits limits = get_limits(caps);
    std::vector<exec::TensorDescription> described;
    for (const Plain& p : from_tuple(inputs)) {  // ("tensor", dtype, sizes, strides)
      const auto& parts = std::get<PlainList>(p.v);
      exec::TensorDescription t{std::get<int64_t>(parts[1].v), {}, {}};
      for (const Plain& n : std::get<PlainList>(parts[2].v)) t.sizes.push_back(std::get<int64_t>(n.v));
      for (const Plain& n : std::get<PlainList>(parts[3].v)) t.strides.push_back(std::get<int64_t>(n.v));
      described.push_back(std::move(t));
    }
    const exec::Graph graph = to_graph(traced);
    const bridge::Module module =
        without_gil([&] { return bridge::lower(name, graph, described, &eager::find_form, limits); });
    const auto show = [](const std::vector<pjrt::TensorType>& types) {
      List list;
      for (const pjrt::TensorType& t : types) list.append(to_python(pjrt::show(t)));
      return list.release();
    };
    Dict out;
    out.set("text", module.text);
    out.set_owned("parameters", show(module.parameters));
    out.set_owned("results", show(module.results));
    List sources;
    for (const int source : module.sources) sources.append(to_python(int64_t{source}));
    out.set_owned("sources", sources.release());
    return out.release();
  });
}

PyObject* add_traced(PyObject*, PyObject* args) {
  const char* name = nullptr;
  Py_ssize_t inputs = 0;
  PyObject* traced = nullptr;
  if (!PyArg_ParseTuple(args, "snO!", &name, &inputs, &PyTuple_Type, &traced)) return nullptr;
  return guarded([&] { return to_python(eager::add_traced(name, to_graph(traced), static_cast<size_t>(inputs))); });
}

PyObject* drop_traced(PyObject*, PyObject* number) {
  return guarded([&] {
    eager::drop_traced(PyLong_AsLongLong(number));
    return none();
  });
}

void install_tracer() { eager::set_tracer(&trace); }

}  // namespace tpj::bindings
