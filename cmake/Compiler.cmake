# Language level, warnings, optimisation, sanitizers and ccache: the same for every target, because a precompiled
# header is refused by a translation unit that was configured differently.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()
if(TPJ_DEBUG)
  # -O1, not -O0: g++ silently refuses a header that was precompiled at another level below -O1.
  set(CMAKE_CXX_FLAGS_RELEASE "-O1 -g")
else()
  set(CMAKE_CXX_FLAGS_RELEASE "-O2 -DNDEBUG")
endif()
add_compile_options(-Wall -Wextra)
if(TPJ_WERROR)
  add_compile_options(-Werror)
endif()

if(TPJ_SANITIZE)
  add_compile_options(-fsanitize=${TPJ_SANITIZE} -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${TPJ_SANITIZE})
endif()

find_program(TPJ_CCACHE_PROGRAM ccache)
if(TPJ_CCACHE AND TPJ_CCACHE_PROGRAM AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # The sloppiness is what lets ccache accept a precompiled header. Base folder and "no hash of the working folder" let
  # two clones on one machine share the cache.
  set(CMAKE_CXX_COMPILER_LAUNCHER
      env CCACHE_SLOPPINESS=pch_defines,time_macros CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} CCACHE_NOHASHDIR=1
      ${TPJ_CCACHE_PROGRAM})
  message(STATUS "ccache: ${TPJ_CCACHE_PROGRAM}")
else()
  message(STATUS "ccache: not used")
endif()
