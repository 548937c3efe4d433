// The two ways in which a request can end early.
#pragma once

#include <memory>
#include <stdexcept>
#include <string>

#include "ulpscope/export.h"

namespace ulpscope {

/// What kind of thing went wrong, for callers that react to it. People read the message.
enum class ErrorCode {
  kInvalidArgument,  ///< A value, name, shape or type that does not fit.
  kNotFound,         ///< A file, layer, tensor, program or module that is not there.
  kUnsupported,      ///< Well-formed, but outside of what ulpscope does.
  kInvalidFile,      ///< A file whose content is malformed.
  kIo,               ///< The operating system refused (permissions, full disk, ...).
  kBuild,            ///< No engine satisfies the constraints.
  kScript,           ///< A user's script or the Python worker failed.
  kInterrupted,      ///< The user asked to stop (Ctrl-C).
};

/// Where in a network something went wrong.
struct ErrorPlace {
  std::string stage;  ///< "infer", "run", "adjoint", ...
  std::string layer;  ///< The layer's name.
  std::string op;     ///< Its operator.
};

/// Ends a request; the user or the machine can fix the cause. Messages follow
/// "[stage] where: expected ..., got ...; try ...".
class ULPSCOPE_API Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  /// what() is "[stage] layer 'x' (Op): " and the message.
  Error(ErrorCode code, const std::string& message, ErrorPlace place);

  ErrorCode code() const noexcept { return code_; }
  /// Null for an error that is not about a layer.
  const ErrorPlace* place() const noexcept { return place_.get(); }
  /// This error, said of that place; unchanged when it has one.
  Error at(ErrorPlace place) const;
  /// This error, said of the model in that file: "[stage] FILE: ..."; unchanged where it names the file, or there is
  /// none (empty).
  Error of_file(const std::string& file) const;

 private:
  ErrorCode code_;
  std::shared_ptr<const ErrorPlace> place_;
};

/// A defect of ulpscope itself. Unrelated to Error on purpose: nobody should catch both by accident.
class ULPSCOPE_API InternalError : public std::logic_error {
 public:
  explicit InternalError(const std::string& message) : std::logic_error(message) {}
};

}  // namespace ulpscope
