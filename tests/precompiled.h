// Compiled once for all test programs (tests/CMakeLists.txt). Sources include what they use all the same.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "../cmake/precompiled.h"
