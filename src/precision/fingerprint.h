// Hashes that tell whether two searches are about the same things. XXH3, as "xxh3:" and 16 hexadecimal digits.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "compare/tensor_map.h"
#include "core/file.h"
#include "graph/network.h"
#include "precision/search.h"

namespace ulpscope {

/// Of the content. Throws Error(kNotFound), Error(kIo).
std::string hash_of_file(const MappedFile& file);
std::string hash_of_file(const std::filesystem::path& path);

std::string hash_of_bytes(std::span<const std::byte> bytes);
std::string hash_of_text(std::string_view text);

/// Of names, types, shapes and elements. Empty for no samples.
std::string hash_of_samples(std::span<const TensorMap> samples);

/// Of layers (names, operators, attributes, tensors, requested precisions and types), bodies and constants.
std::string hash_of_network(const Network& network);

/// What must be equal for a journal to be continued: model, data, criterion, and what decides about trials.
/// `model_hash`: hash_of_file of the model.
Fingerprint fingerprint_of(const SearchTask& task, const SearchData& data, const CriterionOptions& criterion,
                           const Criterion& judge, const std::string& model_hash, const std::string& version);

}  // namespace ulpscope
