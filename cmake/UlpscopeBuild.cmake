# How every target of the project is compiled.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release)
endif()

find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # Paths below the project are the same for every copy and build folder of it; precompiled headers need the rest.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} CCACHE_NOHASHDIR=1
    CCACHE_SLOPPINESS=include_file_ctime,include_file_mtime,pch_defines,time_macros ${CCACHE_PROGRAM})
endif()

add_library(ulpscope_options INTERFACE)
target_compile_options(ulpscope_options INTERFACE
  -Wall -Wextra -Wno-missing-field-initializers $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>
  -ffp-contract=off  # a*b+c is two roundings on every processor; fused ones are written as std::fma
  $<$<STREQUAL:${CMAKE_SYSTEM_PROCESSOR},aarch64>:-fsigned-char>  # as on x86-64
  # GCC looks for memory to take back from 256 MB on, which costs a seventh of its time; so from 2 GB on.
  $<$<CXX_COMPILER_ID:GNU>:--param=ggc-min-heapsize=1048576>
  $<$<BOOL:${ULPSCOPE_WARNINGS_AS_ERRORS}>:-Werror>)
target_link_libraries(ulpscope_options INTERFACE fmt::fmt Threads::Threads
  $<$<BOOL:${ULPSCOPE_OPENMP}>:OpenMP::OpenMP_CXX>)
target_include_directories(ulpscope_options INTERFACE
  $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/src>)

option(ULPSCOPE_UNITY_BUILD "Compile several sources at once: twice as fast from scratch, slower after a change" ON)
set(ULPSCOPE_UNITY_SOURCES 24 CACHE STRING "How many sources are compiled at once")

# The headers of the standard library and fmt are most of what a source reads: they are compiled once, for all targets.
add_library(ulpscope_precompiled OBJECT ${PROJECT_SOURCE_DIR}/cmake/precompiled.cpp)
target_precompile_headers(ulpscope_precompiled PRIVATE ${PROJECT_SOURCE_DIR}/cmake/precompiled.h)
target_link_libraries(ulpscope_precompiled PRIVATE ulpscope_options)

#   ulpscope_precompile(<target>): the target reads them compiled.
function(ulpscope_precompile target)
  target_precompile_headers(${target} REUSE_FROM ulpscope_precompiled)
endfunction()

#   ulpscope_optimize(<target> <level>): GCC's -O in release builds: 3 for loops over elements, 2 for what makes plans,
#   1 for the rest, which compiles in two thirds of the time (docs/performance.md). No level changes a bit of the results.
function(ulpscope_optimize target level)
  target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O${level}>)
endfunction()

#   ulpscope_batches(<target>): its sources are compiled many at once.
function(ulpscope_batches target)
  ulpscope_precompile(${target})
  set_target_properties(${target} PROPERTIES
    UNITY_BUILD ${ULPSCOPE_UNITY_BUILD} UNITY_BUILD_BATCH_SIZE ${ULPSCOPE_UNITY_SOURCES})
endfunction()

# One static library per folder of src/, from all of its sources: a wrong dependency is a link error.
#   ulpscope_folder(<name> [RECURSE] [LEVEL <1, 2 or 3>] [LOOPS <pattern>...] [WITHOUT <source>...]
#                   [DEPENDS <target>...] [PRIVATE <target>...])
# LEVEL: of ulpscope_optimize, 3 where it is not given; sources of LOOPS are compiled with 3 all the same.
function(ulpscope_folder name)
  cmake_parse_arguments(ARG "RECURSE" "LEVEL" "LOOPS;WITHOUT;DEPENDS;PRIVATE" ${ARGN})
  if(ARG_RECURSE)
    file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cpp)
  else()
    file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cpp)
  endif()
  if(ARG_WITHOUT)
    list(TRANSFORM ARG_WITHOUT PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/)
    list(REMOVE_ITEM sources ${ARG_WITHOUT})
  endif()
  string(REPLACE "/" "_" target ulpscope_${name})
  if(ARG_LOOPS)
    list(TRANSFORM ARG_LOOPS PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/)
    file(GLOB loops CONFIGURE_DEPENDS ${ARG_LOOPS})
    if(ARG_WITHOUT)
      list(REMOVE_ITEM loops ${ARG_WITHOUT})
    endif()
    list(REMOVE_ITEM sources ${loops})
    add_library(${target}_loops OBJECT ${loops})
    target_link_libraries(${target}_loops PRIVATE ulpscope_options ${ARG_DEPENDS} ${ARG_PRIVATE})
    ulpscope_batches(${target}_loops)
    list(APPEND sources $<TARGET_OBJECTS:${target}_loops>)
  endif()
  add_library(${target} STATIC ${sources})
  target_link_libraries(${target} PUBLIC ulpscope_options ${ARG_DEPENDS} PRIVATE ${ARG_PRIVATE})
  ulpscope_batches(${target})
  if(ARG_LEVEL)
    ulpscope_optimize(${target} ${ARG_LEVEL})
  endif()
endfunction()
