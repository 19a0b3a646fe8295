# tpj_folder(<name> [TORCH] SOURCES <file>... [LINKS <folder or target>...])
#
# Makes the library tpj_<name> of csrc/<name>. LINKS are the arrows which docs/design.md allows this folder:
# a plain name is another folder. TORCH adds libtorch and the one precompiled header, which tpj_runtime builds.
# It is an object library: a row or an operator registers itself from a static initialiser, and a linker drops such an
# object from an archive when nothing names it. So the Python module and the tests name every folder they consist of.
# A folder without sources yet becomes an interface library, so that its arrows still hold.
function(tpj_folder name)
  cmake_parse_arguments(arg "TORCH" "" "SOURCES;LINKS" ${ARGN})

  file(GLOB found RELATIVE ${CMAKE_CURRENT_SOURCE_DIR} CONFIGURE_DEPENDS *.cpp)
  foreach(file IN LISTS found)
    if(NOT file IN_LIST arg_SOURCES)
      message(WARNING "csrc/${name}/${file} is not listed in csrc/${name}/CMakeLists.txt, so it is not built")
    endif()
  endforeach()

  set(scope PUBLIC)
  if(arg_SOURCES)
    add_library(tpj_${name} OBJECT ${arg_SOURCES})
  else()
    add_library(tpj_${name} INTERFACE)
    set(scope INTERFACE)
  endif()
  target_include_directories(tpj_${name} ${scope} ${PROJECT_SOURCE_DIR}/csrc)
  foreach(link IN LISTS arg_LINKS)
    if(TARGET tpj_${link})
      set(link tpj_${link})
    endif()
    target_link_libraries(tpj_${name} ${scope} ${link})
  endforeach()

  if(arg_TORCH)
    target_link_libraries(tpj_${name} ${scope} tpj_torch)
    if(arg_SOURCES)
      tpj_use_torch_pch(tpj_${name})
    endif()
  endif()
endfunction()
