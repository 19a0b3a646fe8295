# Target tpj_pjrt_headers: pjrt_c_api.h, its extensions and the XLA FFI headers. They are a pinned dependency, not files
# of this repository: tools/fetch_pjrt_headers.py has pip fetch them into the build folder and checks the SHA-256.

if(NOT TPJ_PJRT_INCLUDE_DIR)
  set(TPJ_PJRT_INCLUDE_DIR ${CMAKE_BINARY_DIR}/pjrt_headers)
  find_package(Python3 REQUIRED COMPONENTS Interpreter)
  execute_process(
    COMMAND ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/tools/fetch_pjrt_headers.py ${TPJ_PJRT_INCLUDE_DIR}
    RESULT_VARIABLE status)
  if(status)
    message(FATAL_ERROR "the PJRT headers could not be fetched (see above); -DTPJ_PJRT_INCLUDE_DIR=<folder> "
                        "takes an already unpacked copy")
  endif()
endif()
if(NOT EXISTS ${TPJ_PJRT_INCLUDE_DIR}/xla/pjrt/c/pjrt_c_api.h)
  message(FATAL_ERROR "${TPJ_PJRT_INCLUDE_DIR} does not hold xla/pjrt/c/pjrt_c_api.h")
endif()

add_library(tpj_pjrt_headers INTERFACE)
target_include_directories(tpj_pjrt_headers SYSTEM INTERFACE ${TPJ_PJRT_INCLUDE_DIR})
