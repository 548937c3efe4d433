// JSON files: values that JSON lacks, and reading that says where it failed.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ulpscope::json {

using Json = nlohmann::ordered_json;

/// A number that reads back with the same bits; "inf", "-inf" and "nan" as text, since JSON has no number for them.
Json from_double(double value);

/// A value within a document and its place ("layers[3].reason"), which messages name.
class Reader {
 public:
  /// `where`: "[journal] 'x.jsonl', line 2".
  Reader(const Json& json, std::string where) : json_(&json), where_(std::move(where)) {}

  /// Throws Error(kInvalidFile) "where: path: expected ..., got ...".
  [[noreturn]] void fail(const std::string& expected) const;
  bool has(const char* key) const;
  bool is_null() const { return json_->is_null(); }
  Reader at(const char* key) const;
  double real() const;
  std::int64_t integer() const;
  /// One from `low` to `high`.
  template <typename Int = int>
  Int integer(std::int64_t low, std::int64_t high, const std::string& expected) const {
    const std::int64_t value = integer();
    if (value < low || value > high) fail(expected);
    return static_cast<Int>(value);
  }
  bool boolean() const;
  std::string text() const;

  /// Calls `visit(Reader)` for each element of a list.
  template <typename F>
  void each(F visit) const {
    if (!json_->is_array()) fail("a list");
    for (std::size_t i = 0; i < json_->size(); ++i)
      visit(Reader((*json_)[i], where_, path_ + "[" + std::to_string(i) + "]"));
  }
  /// Calls `visit(key, Reader)` for each member of an object.
  template <typename F>
  void members(F visit) const {
    if (!json_->is_object()) fail("an object");
    for (const auto& [key, value] : json_->items())
      visit(key, Reader(value, where_, path_.empty() ? key : path_ + "." + key));
  }

 private:
  Reader(const Json& json, std::string where, std::string path)
      : json_(&json), where_(std::move(where)), path_(std::move(path)) {}
  const Json* json_;
  std::string where_, path_;
};

/// The place of a text in a list of those that are allowed.
std::size_t to_place(const Reader& reader, std::span<const std::string_view> names);
/// `names`: of the values of an enum, in their order.
template <typename Enum>
Enum to_enum(const Reader& reader, std::span<const std::string_view> names) {
  return static_cast<Enum>(to_place(reader, names));
}
/// Calls `read(row, Reader)` for each of the rows and its element of a list, which has to have as many.
template <typename Row, typename F>
void each_row(const Reader& column, std::vector<Row>& rows, F read) {
  std::size_t row = 0;
  column.each([&](const Reader& value) {
    if (row < rows.size()) read(rows[row], value);
    ++row;
  });
  if (row != rows.size()) column.fail("as many as layers, " + std::to_string(rows.size()));
}
/// A finite number of 0 or more.
double not_negative(const Reader& reader);
/// A list of so many numbers.
std::vector<double> to_reals(const Reader& reader, std::size_t count, const std::string& expected);
std::vector<std::string> to_texts(const Reader& reader);

/// Parses; nothing for malformed text. Nesting and sizes are bounded by the text.
bool parse(std::string_view text, Json& json);

}  // namespace ulpscope::json
