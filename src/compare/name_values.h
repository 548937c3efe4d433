// Option values of the form `name:value`, where names may contain colons.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "ulpscope/per_name.h"
#include "ulpscope/shape.h"

namespace ulpscope {

/// Bounds of generated values, both inclusive.
struct ValueRange {
  double low = 0.0;
  double high = 1.0;
};

/// What `--postprocess top-5,axis=1` asks for.
struct TopK {
  std::int64_t k = 0;
  std::int64_t axis = -1;
};

using OptionScalar = std::variant<std::int64_t, double, std::string>;

/// A parsed value: "[1,x]" is a list, everything else one scalar: an integer, else a number ("inf", "1e-3"), else a
/// string without its quotes.
struct OptionValue {
  std::vector<OptionScalar> items;
  bool is_list = false;
};

struct NameAndText {
  std::string name;  ///< Empty when there is no colon.
  std::string text;
};

/// Splits at the last colon.
NameAndText split_name(std::string_view argument);
OptionValue parse_value(std::string_view text);

/// The functions below throw Error(kInvalidArgument); `option` ("--atol") starts their messages.

/// "name:value" or "value".
PerName<double> parse_numbers(std::string_view option, const std::vector<std::string>& arguments);
/// The same words as Python prints their numbers ("1", "0.5"); words without a number are left out.
PerName<std::string> number_texts(const std::vector<std::string>& arguments);
PerName<std::int64_t> parse_integers(std::string_view option, const std::vector<std::string>& arguments);
PerName<std::string> parse_strings(std::string_view option, const std::vector<std::string>& arguments);
/// "[name:][lo,hi]".
PerName<ValueRange> parse_ranges(std::string_view option, const std::vector<std::string>& arguments);
/// "name:[1,3,224,224]", and the older "name,1x3x224x224"; "[]" is a scalar; -1 and other text ("batch") is -1.
std::vector<std::pair<std::string, Shape>> parse_shapes(std::string_view option,
                                                        const std::vector<std::string>& arguments);
/// "[out:]top-5[,axis=1]".
PerName<TopK> parse_top_k(std::string_view option, const std::vector<std::string>& arguments);

}  // namespace ulpscope
