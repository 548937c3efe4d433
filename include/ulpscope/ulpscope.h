// Everything that the library offers.
#pragma once

#include "ulpscope/answer.h"
#include "ulpscope/calibrate.h"
#include "ulpscope/convert.h"
#include "ulpscope/criterion.h"
#include "ulpscope/data_type.h"
#include "ulpscope/error.h"
#include "ulpscope/log.h"
#include "ulpscope/model.h"
#include "ulpscope/onnx_engine.h"
#include "ulpscope/per_name.h"
#include "ulpscope/precision.h"
#include "ulpscope/report.h"
#include "ulpscope/search.h"
#include "ulpscope/shape.h"
#include "ulpscope/tensor.h"
#include "ulpscope/verify.h"
