// Changes of an ONNX file that leave everything else in it byte for byte as it is.
#pragma once

#include <cstddef>
#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ulpscope {

/// A file made of pieces of the original, which has to outlive it, and new pieces. Nothing large is copied: hand
/// `pieces` to write_file (core/file.h), or `join` them.
class EditedModel {
 public:
  EditedModel() = default;
  EditedModel(EditedModel&&) = default;
  EditedModel& operator=(EditedModel&&) = default;

  std::span<const std::string_view> pieces() const noexcept { return pieces_; }
  std::string join() const;

  /// Refers to `text`, or moves it in.
  void refer(std::span<const std::byte> bytes);
  void own(std::string text);

 private:
  std::deque<std::string> owned_;
  std::vector<std::string_view> pieces_;
};

/// The model with other outputs. `marked`: names of tensors, in this order, or patterns, or the two words `mark all`
/// (or `*`): every output of every node of the top graph that is not a Constant; empty: the model's own outputs.
/// `excluded` is taken out of these. Entries of values that the file does not describe have a name only; ONNX Runtime
/// infers their types. Where the file has external data, the result has to be loaded from the model's folder (written
/// beside it, or with ONNX Runtime's `session.model_external_initializers_file_folder_path`).
/// Throws Error: kInvalidFile, and kInvalidArgument for unknown names (with similar ones) and when no output is left.
EditedModel with_outputs(std::span<const std::byte> model, const std::string& source,
                         std::span<const std::string> marked, std::span<const std::string> excluded);

}  // namespace ulpscope
