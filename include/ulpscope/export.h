// Marks what the shared library promises to its users.
#pragma once

#if defined(_WIN32)
#define ULPSCOPE_API
#else
#define ULPSCOPE_API __attribute__((visibility("default")))
#endif
