// The first array of an .npz archive. The input starts with PK, or that is put in front.
#include "compare/array_files.h"
#include "fuzz_target.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace ulpscope;
  std::string bytes(fuzz::as_text(data, size));
  if (!bytes.starts_with("PK")) bytes.insert(0, "PK");
  fuzz::reads({ErrorCode::kInvalidFile, ErrorCode::kUnsupported}, [&] { decode_npy(bytes, "[load] x.npz"); });
  return 0;
}
