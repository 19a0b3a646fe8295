// The Python module torch_pjrt._C, in plain CPython: registration, statistics, switches. Tensors never pass here; they
// go through PyTorch's dispatcher.
#include <Python.h>

#include <map>
#include <string>

#include "base/flags.h"
#include "bindings/api.h"
#include "bindings/convert.h"
#include "bindings/methods.h"
#include "compile/compiler.h"

namespace tpj::bindings {
namespace {

// ---- registration

// register(config: dict): name, spec, path, create_options, compile_overrides, override_operations, caps, missing
PyObject* register_backend(PyObject*, PyObject* config) {
  return guarded([&] {
    BackendConfig c;
    c.device_name = get_text(config, "device_name");
    c.spec_name = get_text(config, "spec_name");
    c.path = get_text(config, "path");
    c.missing = get_text(config, "missing");
    c.create_options = get_options(config, "create_options");
    c.compile_overrides = get_options(config, "compile_overrides");
    for (const auto& [name, unused] : get_options(config, "override_operations")) c.override_operations.push_back(name);
    for (const auto& [name, value] : get_options(config, "caps")) c.caps[name] = std::get<std::string>(value);
    register_all(c);
    install_tracer();
    return none();
  });
}

// ---- statistics

PyObject* stats(PyObject*, PyObject*) {
  return guarded([] {
    without_gil([] { flush(); });
    Dict d;
    for (const auto& [name, value] : integer_stats()) d.set(name, value);
    d.set("compile_seconds", compile_seconds());
    return d.release();
  });
}

PyObject* fallback_counts(PyObject*, PyObject*) {
  return guarded([] {
    Dict d;
    for (const auto& [name, n] : fallback_table()) d.set(name, n);
    return d.release();
  });
}

PyObject* reset(PyObject*, PyObject*) {
  return guarded([] {
    without_gil([] { flush(); });
    reset_stats();
    return none();
  });
}

PyObject* run_noted(PyObject*, PyObject*) {
  return guarded([] {
    without_gil([] { flush(); });
    return none();
  });
}

PyObject* log(PyObject*, PyObject*) {
  return guarded([] {
    List list;
    for (const LogEntry& e : compile_entries()) {
      Dict d;
      d.set("operator", e.what);
      d.set("reason", e.reason);
      d.set("where", e.where);
      d.set("started", e.started);
      d.set("seconds", e.seconds);
      list.append(d.release());
    }
    return list.release();
  });
}

PyObject* rows(PyObject*, PyObject*) {
  return guarded([] {
    Dict d;
    for (const auto& [overload, row] : row_table()) d.set(overload, row);
    return d.release();
  });
}

// ---- device

PyObject* device_count(PyObject*, PyObject*) { return PyLong_FromLong(count_devices()); }
PyObject* is_available(PyObject*, PyObject*) { return PyBool_FromLong(available()); }
PyObject* is_initialized(PyObject*, PyObject*) { return PyBool_FromLong(initialized()); }
PyObject* is_in_bad_fork(PyObject*, PyObject*) { return PyBool_FromLong(bad_fork()); }

PyObject* init(PyObject*, PyObject*) {
  return guarded([] {
    without_gil([] { initialize(); });
    return none();
  });
}

// describe() -> dict: plugin, platform, capabilities, devices. Makes the client.
PyObject* describe(PyObject*, PyObject*) {
  return guarded([] {
    const ClientInfo info = without_gil([] { return client_info(); });
    Dict d;
    d.set("plugin", info.plugin);
    d.set("path", info.path);
    d.set("api_minor", int64_t{info.api_minor});
    d.set("platform", info.platform);
    d.set("platform_version", info.platform_version);
    List devices;
    for (const std::string& kind : info.devices) devices.append(to_python(kind));
    d.set_owned("devices", devices.release());
    List caps;
    for (const auto& [name, value, help] : info.caps) {
      List row;
      for (const std::string& s : {name, value, help}) row.append(to_python(s));
      caps.append(row.release());
    }
    d.set_owned("capabilities", caps.release());
    return d.release();
  });
}

PyObject* user_line(PyObject*, PyObject*) {
  return guarded([] { return to_python(compile::user_line()); });
}

// ---- flags

PyObject* set_flag_value(PyObject*, PyObject* args) {
  const char *name = nullptr, *value = nullptr;
  if (!PyArg_ParseTuple(args, "ss", &name, &value)) return nullptr;
  return guarded([&] {
    without_gil([] { flush(); });
    set_flag(name, value);
    return none();
  });
}

PyObject* flag_list(PyObject*, PyObject*) {
  return guarded([] {
    List list;
    for (const FlagInfo& f : list_flags()) {
      List row;
      for (const std::string& s : {std::string(f.name), f.value, std::string(f.help)}) row.append(to_python(s));
      list.append(row.release());
    }
    return list.release();
  });
}

// forbid_compile(+1 or -1)
PyObject* forbid_compile(PyObject*, PyObject* delta) {
  const long n = PyLong_AsLong(delta);
  if (n == -1 && PyErr_Occurred() && !PyErr_ExceptionMatches(PyExc_ValueError)) return nullptr;
  return guarded([&] {
    without_gil([] { flush(); });
    change_forbidden(static_cast<int>(n));
    return none();
  });
}

// bench_last_program(n) -> mean microseconds of the bare plugin execute
PyObject* bench_last_program(PyObject*, PyObject* n) {
  return guarded([&] { return PyFloat_FromDouble(bench_last(static_cast<int>(PyLong_AsLong(n)))); });
}

// bench_meter(True) starts; bench_meter(False) -> (calls, ns in our kernels, of which in the plugin)
PyObject* bench_meter(PyObject*, PyObject* on) {
  return guarded([&]() -> PyObject* {
    if (PyObject_IsTrue(on)) {
      start_meter();
      return none();
    }
    const MeterReading r = stop_meter();
    return Py_BuildValue("(LLLL)", r.calls, r.kernel_ns, r.flush_ns, r.plugin_ns);
  });
}

PyObject* traced_programs(PyObject*, PyObject* number) {
  return guarded([&] {
    List list;
    const auto bytes = [](const std::string& s) {
      return PyBytes_FromStringAndSize(s.data(), static_cast<Py_ssize_t>(s.size()));
    };
    for (const auto& [key, program] : programs_of_traced(PyLong_AsLongLong(number)))
      list.append(Py_BuildValue("(NN)", bytes(key), bytes(program)));
    return list.release();
  });
}

PyObject* offer_program(PyObject*, PyObject* args) {
  PyObject *key = nullptr, *program = nullptr;
  if (!PyArg_ParseTuple(args, "SS", &key, &program)) return nullptr;
  return guarded([&] {
    const auto text = [](PyObject* o) {
      return std::string(PyBytes_AS_STRING(o), static_cast<size_t>(PyBytes_GET_SIZE(o)));
    };
    offer(text(key), text(program));
    return none();
  });
}

PyMethodDef kMethods[] = {
    {"add_traced", add_traced, METH_VARARGS, "Keeps a traced function; its number."},
    {"bench_meter", bench_meter, METH_O, "Where this thread's calls spend their time."},
    {"bench_last_program", bench_last_program, METH_O, "Mean microseconds of the newest program's bare execute."},
    {"compile_ahead", compile_ahead, METH_O, "Compiles a module for a chip that is not here."},
    {"compile_log", log, METH_NOARGS, "Every compile: operator, reason, where, seconds."},
    {"describe", describe, METH_NOARGS, "The plugin at work."},
    {"device_count", device_count, METH_NOARGS, "Devices of this process; 0 without a usable plugin."},
    {"drop_traced", drop_traced, METH_O, "Gives a traced function back."},
    {"fallbacks", fallback_counts, METH_NOARGS, "Operator -> calls that ran on the CPU."},
    {"flush", run_noted, METH_NOARGS, "Runs the calls that are noted."},
    {"flags", flag_list, METH_NOARGS, "Every switch: name, value, help."},
    {"forbid_compile", forbid_compile, METH_O, "Counts the scopes in which a compile is an error."},
    {"init", init, METH_NOARGS, "Makes the client now."},
    {"is_available", is_available, METH_NOARGS, "True if a plugin is there."},
    {"is_in_bad_fork", is_in_bad_fork, METH_NOARGS, "True in a child forked after the client was made."},
    {"is_initialized", is_initialized, METH_NOARGS, "True once the client is made."},
    {"lower_graph", lower_graph, METH_VARARGS, "A traced function as a StableHLO module."},
    {"offer_program", offer_program, METH_VARARGS, "Takes a key and bytes of a program as if it were on disk."},
    {"register", register_backend, METH_O, "Registers the device with PyTorch."},
    {"reset_stats", reset, METH_NOARGS, "Zeroes the counters and the compile log."},
    {"rows", rows, METH_NOARGS, "Overload -> row that serves it."},
    {"set_flag", set_flag_value, METH_VARARGS, "Changes a switch."},
    {"stats", stats, METH_NOARGS, "Counters."},
    {"traced_programs", traced_programs, METH_O, "(key, bytes) of each program that a traced function has run."},
    {"user_line", user_line, METH_NOARGS, "The innermost line that is not PyTorch's or ours: file:line."},
    {nullptr, nullptr, 0, nullptr},
};

PyModuleDef kModule = {PyModuleDef_HEAD_INIT,
                       "torch_pjrt._C",
                       "The core of torch_pjrt.",
                       -1,
                       kMethods,
                       nullptr,
                       nullptr,
                       nullptr,
                       nullptr};

}  // namespace
}  // namespace tpj::bindings

PyMODINIT_FUNC PyInit__C() {
  tpj::bindings::install_user_line();
  return PyModule_Create(&tpj::bindings::kModule);
}
