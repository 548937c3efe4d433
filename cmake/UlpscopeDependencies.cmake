# What the project builds with. scripts/setup.sh installs it.
set(venv "${PROJECT_SOURCE_DIR}/.venv")
if(SKBUILD AND NOT ULPSCOPE_VENV)  # pip puts the packages into an environment of its own
  execute_process(
    COMMAND ${Python_EXECUTABLE} -c "import onnx, pathlib; print(next(p for p in pathlib.Path(onnx.__file__).parents if (p / 'lib/cmake/dnnl').exists()))"
    OUTPUT_VARIABLE venv OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
endif()
set(ULPSCOPE_VENV "${venv}" CACHE PATH "The project's virtual environment: oneDNN and the ONNX schema come from it")
list(APPEND CMAKE_PREFIX_PATH ${ULPSCOPE_VENV})

find_package(Threads REQUIRED)
if(ULPSCOPE_OPENMP)
  find_package(OpenMP REQUIRED COMPONENTS CXX)
endif()
find_package(fmt REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(Protobuf REQUIRED)
if(ULPSCOPE_ONEDNN)
  find_package(dnnl CONFIG REQUIRED)
endif()
find_path(XXHASH_INCLUDE_DIR xxhash.h REQUIRED)
find_library(XXHASH_LIBRARY xxhash REQUIRED)
