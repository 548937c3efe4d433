// NumPy's array files.
#include "compare/array_files.h"
#include "fuzz_target.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace ulpscope;
  fuzz::reads({ErrorCode::kInvalidFile, ErrorCode::kUnsupported}, [&] {
    const Tensor tensor = decode_npy(fuzz::as_text(data, size), "[load] x.npy");
    const Tensor again = decode_npy(encode_npy(tensor), "[load] again");
    if (again.shape() != tensor.shape() || again.type() != tensor.type()) fuzz::finding("the array changed");
  });
  return 0;
}
