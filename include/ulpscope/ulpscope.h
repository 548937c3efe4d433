// Everything that the library offers.
#pragma once

#include "ulpscope/data_type.h"
#include "ulpscope/error.h"
#include "ulpscope/log.h"
#include "ulpscope/onnx_engine.h"
#include "ulpscope/shape.h"
#include "ulpscope/tensor.h"
