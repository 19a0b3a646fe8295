# Target tpj_torch: headers and libraries of the PyTorch that the Python interpreter finds. Two include folders and three
# libraries are all we need; find_package(Torch) would also look for whatever torch itself was built with.

find_package(Python3 REQUIRED COMPONENTS Interpreter Development.Module)

# find_spec does not run torch: importing it takes seconds, and would load our own half-built module.
execute_process(
  COMMAND ${Python3_EXECUTABLE} -c
          "import importlib.util as u; s = u.find_spec('torch'); print(s.submodule_search_locations[0] if s else '')"
  OUTPUT_VARIABLE TPJ_TORCH_DIR OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
if(NOT TPJ_TORCH_DIR)
  message(FATAL_ERROR "${Python3_EXECUTABLE} has no torch; install it, or configure with -DTPJ_TORCH=OFF")
endif()
file(STRINGS ${TPJ_TORCH_DIR}/version.py version_line REGEX "^__version__")
string(REGEX MATCH "[0-9]+\\.[0-9]+\\.[0-9]+[^']*" torch_version "${version_line}")
message(STATUS "torch ${torch_version}: ${TPJ_TORCH_DIR}")

add_library(tpj_torch INTERFACE)
target_include_directories(tpj_torch SYSTEM INTERFACE ${TPJ_TORCH_DIR}/include)
target_compile_definitions(tpj_torch INTERFACE _GLIBCXX_USE_CXX11_ABI=1)
foreach(library torch torch_cpu c10)
  find_library(TPJ_LIB_${library} ${library} PATHS ${TPJ_TORCH_DIR}/lib NO_DEFAULT_PATH REQUIRED)
  target_link_libraries(tpj_torch INTERFACE ${TPJ_LIB_${library}})
endforeach()

# The one precompiled header. It takes half a minute and 1.2 GB to make, so it is made once, by the first target that has
# sources, and the others reuse it; that works because all of them have the same options and definitions.
function(tpj_use_torch_pch target)
  if(NOT EXISTS ${PROJECT_SOURCE_DIR}/csrc/runtime/torch_pch.h)
    return()
  endif()
  get_property(owner GLOBAL PROPERTY TPJ_PCH_OWNER)
  if(owner)
    target_precompile_headers(${target} REUSE_FROM ${owner})
  else()
    target_precompile_headers(${target} PRIVATE ${PROJECT_SOURCE_DIR}/csrc/runtime/torch_pch.h)
    set_property(GLOBAL PROPERTY TPJ_PCH_OWNER ${target})
  endif()
endfunction()
