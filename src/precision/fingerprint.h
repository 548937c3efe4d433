// Hashes that tell whether two searches are about the same things. XXH3, as "xxh3:" and 16 hexadecimal digits.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "compare/tensor_map.h"
#include "graph/network.h"

namespace ulpscope {

/// Of the content. Throws Error(kNotFound), Error(kIo).
std::string hash_of_file(const std::filesystem::path& path);

std::string hash_of_text(std::string_view text);

/// Of names, types, shapes and elements. Empty for no samples.
std::string hash_of_samples(std::span<const TensorMap> samples);

/// Of layers (names, operators, attributes, tensors, requested precisions and types), bodies and constants.
std::string hash_of_network(const Network& network);

}  // namespace ulpscope
