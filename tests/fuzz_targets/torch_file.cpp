// A tensor of torch: the input is the pickle in its archive, beside four elements of every type.
#include "compare/array_files.h"
#include "fuzz_target.h"

namespace {

void append(std::string& bytes, std::size_t value, int width) {
  for (int i = 0; i < width; ++i) bytes += static_cast<char>(value >> (8 * i));
}

/// A stored entry: its header and elements, and its line of the directory.
void add(std::string& archive, std::string& directory, const std::string& name, const std::string& content) {
  const std::size_t offset = archive.size();
  const auto sizes = [&](std::string& to) {
    to.append(14, '\0');  // Version, flags, method, time and checksum.
    append(to, content.size(), 4);
    append(to, content.size(), 4);
    append(to, name.size(), 2);
  };
  archive += std::string("PK\x03\x04", 4);
  sizes(archive);
  append(archive, 0, 2);
  archive += name + content;
  directory += std::string("PK\x01\x02", 4);
  append(directory, 0, 2);
  sizes(directory);
  directory.append(12, '\0');
  append(directory, offset, 4);
  directory += name;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace ulpscope;
  std::string archive, directory;
  add(archive, directory, "archive/data.pkl", std::string(fuzz::as_text(data, size)));
  add(archive, directory, "archive/data/0", std::string(32, '\x3f'));
  const std::size_t begin = archive.size();
  archive += directory + std::string("PK\x05\x06", 4);
  append(archive, 0, 4);
  append(archive, 2, 2);
  append(archive, 2, 2);
  append(archive, directory.size(), 4);
  append(archive, begin, 4);
  append(archive, 0, 2);
  fuzz::reads({ErrorCode::kInvalidFile, ErrorCode::kUnsupported}, [&] { decode_torch(archive, "[load] x.json"); });
  return 0;
}
