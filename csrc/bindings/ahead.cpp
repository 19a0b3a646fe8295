// Compiles for a chip that is not here. Runs in a child process (torch_pjrt/_ahead.py), because compilers abort.
#include <Python.h>

#include <memory>

#include "bindings/convert.h"
#include "bindings/methods.h"
#include "pjrt/topology.h"

namespace tpj::bindings {
namespace {

PyObject* to_python(const pjrt::Option& value) {
  if (const auto* s = std::get_if<std::string>(&value)) return bindings::to_python(*s);
  if (const auto* i = std::get_if<int64_t>(&value)) return bindings::to_python(*i);
  if (const auto* d = std::get_if<double>(&value)) return bindings::to_python(*d);
  if (const auto* b = std::get_if<bool>(&value)) return PyBool_FromLong(*b);
  return bindings::to_python(pjrt::show(value));
}

// One topology is kept: programs come in series for the same chip.
struct Target {
  std::string key;
  std::unique_ptr<pjrt::Topology> topology;
};

pjrt::Topology& topology_of(const std::string& path, const std::string& name, const pjrt::Options& options,
                            const pjrt::CapOverrides& caps) {
  static Target& kept = *new Target;
  std::string key = path + "\n" + name;
  for (const auto& [option, value] : options) key += "\n" + option + "=" + pjrt::show(value);
  if (kept.key != key) {
    kept.topology = pjrt::Topology::create(pjrt::Plugin::load(path), name, options, caps);
    kept.key = key;
  }
  return *kept.topology;
}

}  // namespace

// Request: path, topology, topology_options, caps, text ("" only describes the topology), compile_overrides, serialize
// ("1" returns the bytes). Answer: devices (list of dicts: kind and attributes), and for a program memory (dict of
// bytes), cost (dict), bytes.
PyObject* compile_ahead(PyObject*, PyObject* request) {
  return guarded([&] {
    const std::string path = get_text(request, "path"), name = get_text(request, "topology"),
                      text = get_text(request, "text");
    const pjrt::Options options = get_options(request, "topology_options");
    pjrt::CapOverrides caps;
    for (const auto& [cap, value] : get_options(request, "caps")) caps[cap] = std::get<std::string>(value);
    pjrt::CompileOptions compile_options;
    compile_options.env_overrides = get_options(request, "compile_overrides");
    const bool wants_bytes = !get_text(request, "serialize").empty();

    std::vector<pjrt::Topology::Device> devices;
    std::unique_ptr<pjrt::Compiled> compiled;
    without_gil([&] {
      pjrt::Topology& topology = topology_of(path, name, options, caps);
      devices = topology.devices();
      if (!text.empty()) compiled = topology.compile(text, compile_options);
    });
    Dict out;
    List listed;
    for (const pjrt::Topology::Device& device : devices) {
      Dict d;
      d.set("kind", device.kind);
      for (const auto& [attribute, value] : device.attributes) d.set_owned(attribute, to_python(value));
      listed.append(d.release());
    }
    out.set_owned("devices", listed.release());
    if (!compiled) return out.release();
    if (const auto memory = compiled->compiled_memory()) {
      Dict d;
      d.set("arguments", memory->argument);
      d.set("outputs", memory->output);
      d.set("temporaries", memory->temp);
      d.set("aliased", memory->alias);
      d.set("code", memory->generated_code);
      out.set_owned("memory", d.release());
    }
    if (const auto cost = compiled->cost_analysis()) {
      Dict d;
      for (const auto& [what, value] : *cost) d.set(what, value);
      out.set_owned("cost", d.release());
    }
    if (wants_bytes) {
      const std::string bytes = compiled->serialize();
      out.set_owned("bytes", PyBytes_FromStringAndSize(bytes.data(), static_cast<Py_ssize_t>(bytes.size())));
    }
    return out.release();
  });
}

}  // namespace tpj::bindings
