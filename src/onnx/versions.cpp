#include <fmt/format.h>

#include "core/messages.h"
#include "onnx/importer.h"

namespace ulpscope::onnx_model {
namespace {

constexpr std::int64_t kOldestIrVersion = 3;
constexpr std::int64_t kOldestOpset = 7;
constexpr std::int64_t kOldestReadable = 1;  ///< They become 7 as the file is read.
/// The newest opset whose operators src/ops follows.
constexpr std::int64_t kNewestOpset = 28;

}  // namespace

Opsets check_versions(const onnx::ModelProto& model, const std::string& source) {
  const auto refuse = [&](const std::string& message) { throw unsupported("[import] {}: {}", source, message); };
  const std::int64_t ir = model.ir_version();
  if (ir < kOldestIrVersion)
    refuse(fmt::format("expected IR version {} or later, got {}; try onnx.version_converter or a newer exporter",
                       kOldestIrVersion, ir));
  if (ir > onnx::Version::IR_VERSION)
    refuse(fmt::format("its IR version {} is newer than {}, the newest that is known", ir,
                       static_cast<int>(onnx::Version::IR_VERSION)));
  Opsets opsets;
  const auto add = [&](const auto& imports, const std::string& where, Opsets& into) {
    for (const auto& import : imports) {
      const std::string domain = domain_of(import.domain());
      if (domain.empty() && import.version() > kNewestOpset)
        refuse(fmt::format("{} opset {}, which is newer than {}, the newest that is known; try exporting with opset {}",
                           where, import.version(), kNewestOpset, kNewestOpset));
      if (domain.empty() && import.version() < kOldestOpset)
        refuse(
            fmt::format("{} opset {}, which is older than {}, the oldest that is supported; try onnx.version_converter",
                        where, import.version(), import.version() < kOldestReadable ? kOldestReadable : kOldestOpset));
      into[domain] = import.version();
    }
  };
  add(model.opset_import(), "it uses", opsets);
  for (const auto& function : model.functions()) {
    Opsets unused;
    add(function.opset_import(), fmt::format("its function '{}' uses", function.name()), unused);
  }
  return opsets;
}

}  // namespace ulpscope::onnx_model
