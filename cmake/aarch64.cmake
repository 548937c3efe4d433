# Compiles for Linux on aarch64 with Debian's cross compiler, against the folder that scripts/sysroot.sh makes.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_CXX_FLAGS_INIT -Wno-psabi)  # Notes on what older compilers did.
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
cmake_path(SET CMAKE_SYSROOT NORMALIZE ${CMAKE_CURRENT_LIST_DIR}/../build/sysroot-aarch64)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)  # protoc and Python run here.
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)

# Where qemu is, tests run and are listed as on any machine.
find_program(ULPSCOPE_QEMU NAMES qemu-aarch64-static qemu-aarch64)
if(ULPSCOPE_QEMU)
  set(CMAKE_CROSSCOMPILING_EMULATOR ${ULPSCOPE_QEMU} -L ${CMAKE_SYSROOT})
endif()
