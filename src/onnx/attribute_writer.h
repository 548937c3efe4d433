// Attributes of a layer as the fields of AttributeProto. Internal to this folder.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "onnx-ml.pb.h"

namespace ulpscope::onnx_model {

/// Numbers, texts and lists of them: an overload for each type that such an attribute may have. Visitors of whole
/// attributes derive from it.
class PlainAttributeWriter {
 public:
  PlainAttributeWriter(const std::string& name, onnx::AttributeProto& proto) : proto_(proto) { proto_.set_name(name); }

  void operator()(std::int64_t value) const {
    proto_.set_type(onnx::AttributeProto::INT);
    proto_.set_i(value);
  }
  void operator()(float value) const {
    proto_.set_type(onnx::AttributeProto::FLOAT);
    proto_.set_f(value);
  }
  void operator()(const std::string& value) const {
    proto_.set_type(onnx::AttributeProto::STRING);
    proto_.set_s(value);
  }
  void operator()(const std::vector<std::int64_t>& values) const {
    proto_.set_type(onnx::AttributeProto::INTS);
    proto_.mutable_ints()->Add(values.begin(), values.end());
  }
  void operator()(const std::vector<float>& values) const {
    proto_.set_type(onnx::AttributeProto::FLOATS);
    proto_.mutable_floats()->Add(values.begin(), values.end());
  }
  void operator()(const std::vector<std::string>& values) const {
    proto_.set_type(onnx::AttributeProto::STRINGS);
    for (const std::string& value : values) proto_.add_strings(value);
  }

 protected:
  onnx::AttributeProto& proto_;
};

}  // namespace ulpscope::onnx_model
