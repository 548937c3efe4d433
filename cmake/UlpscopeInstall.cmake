# The shared library libulpscope with what find_package(ulpscope) needs, and what `cmake --install` puts where:
#   bin/ulpscope                        the program
#   include/ulpscope/                   the public headers
#   lib/libulpscope.so, lib/libdnnl.so  beside each other: nothing installed depends on the virtual environment
#   lib/cmake/ulpscope/                 find_package(ulpscope), target ulpscope::ulpscope
#   lib/ulpscope/python/ulpscope/       the worker
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(folders core formats graph onnx_schema onnx ops engine backend runtime compare runners calibration precision convert api)
list(TRANSFORM folders PREPEND ulpscope_)
set(archives "")
foreach(folder IN LISTS folders)
  list(APPEND archives $<TARGET_FILE:${folder}>)
endforeach()
list(JOIN archives "," archives)

file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/library.cpp CONTENT "// All of it is in the static libraries.\n")
add_library(ulpscope_library SHARED ${PROJECT_BINARY_DIR}/library.cpp)
# Whole archives: what the public headers declare must be there, whether the library itself uses it or not.
target_link_options(ulpscope_library PRIVATE "LINKER:--whole-archive,${archives},--no-whole-archive")
target_link_libraries(ulpscope_library PRIVATE ${folders})
set_property(TARGET ulpscope_library PROPERTY LINK_LIBRARY_OVERRIDE "WHOLE_ARCHIVE,${folders}")
set(export_map ${PROJECT_SOURCE_DIR}/cmake/libulpscope.map)
target_link_options(ulpscope_library PRIVATE "LINKER:--version-script=${export_map}")
set_property(TARGET ulpscope_library PROPERTY LINK_DEPENDS ${export_map})
target_include_directories(ulpscope_library INTERFACE
  $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
target_compile_features(ulpscope_library INTERFACE cxx_std_20)
set_target_properties(ulpscope_library PROPERTIES OUTPUT_NAME ulpscope EXPORT_NAME ulpscope INSTALL_RPATH "$ORIGIN"
  VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})

# oneDNN comes from PyPI: a copy is installed, under the name that the programs ask for.
if(ULPSCOPE_ONEDNN)
  get_target_property(dnnl_library DNNL::dnnl LOCATION)
  file(REAL_PATH ${dnnl_library} dnnl_library)
  set(dnnl_soname libdnnl.so.3)
endif()

if(SKBUILD)
  return()  # python/CMakeLists.txt says what goes into a wheel
endif()

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/ulpscope)
install(TARGETS ulpscope_library EXPORT ulpscope_targets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
if(ULPSCOPE_ONEDNN)
  install(PROGRAMS ${dnnl_library} DESTINATION ${CMAKE_INSTALL_LIBDIR} RENAME ${dnnl_soname})
endif()
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/ulpscope DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(EXPORT ulpscope_targets NAMESPACE ulpscope:: DESTINATION ${package_dir} FILE ulpscopeConfig.cmake)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/ulpscopeConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/ulpscopeConfigVersion.cmake DESTINATION ${package_dir})

if(TARGET ulpscope)
  set_target_properties(ulpscope PROPERTIES INSTALL_RPATH "$ORIGIN/../${CMAKE_INSTALL_LIBDIR}")
endif()
install(DIRECTORY ${PROJECT_SOURCE_DIR}/python/ulpscope DESTINATION lib/ulpscope/python PATTERN __pycache__ EXCLUDE)
