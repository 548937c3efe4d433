// Names that users type: patterns, and suggestions for those that do not exist.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ulpscope {

/// True when the name has `*`, `?` or `[...]` as Python's fnmatch understands them.
bool is_name_pattern(std::string_view name) noexcept;
/// Python's fnmatch.fnmatchcase.
bool matches_name_pattern(const std::string& name, const std::string& pattern);

/// Up to `count` candidates that `name` may have meant, the closest first.
std::vector<std::string> similar_names(std::string_view name, std::span<const std::string> candidates,
                                       std::size_t count = 5);
/// "; did you mean 'a', 'b'?" or an empty text.
std::string did_you_mean(std::string_view name, std::span<const std::string> candidates);

/// Replaces patterns by the candidates that they match, in their order; each name once. A name that exists is no
/// pattern. A pattern without matches gives a warning; an unknown name is an Error(kInvalidArgument) that starts with
/// `where` ("[outputs] network 'x'") and lists similar names.
std::vector<std::string> expand_names(std::span<const std::string> names, std::span<const std::string> candidates,
                                      const std::string& where);

}  // namespace ulpscope
