// The layers that a trial runs in higher precision.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ulpscope/export.h"
#include "ulpscope/precision.h"

namespace ulpscope {

/// Layers with a precision each. Sets over one table of names share it, and take a byte per layer.
class ULPSCOPE_API RaisedLayers {
 public:
  /// Distinct names. Whoever made it may append to it.
  using Table = std::shared_ptr<const std::vector<std::string>>;
  /// Per name: 0 where the layer is not raised, else `mark_of` its precision. Zeros at the end are left out.
  using Marks = std::vector<std::uint8_t>;

  static constexpr std::uint8_t mark_of(Precision precision) noexcept {
    return static_cast<std::uint8_t>(1 + static_cast<int>(precision));
  }

  RaisedLayers() = default;
  /// With a table of its own.
  RaisedLayers(std::initializer_list<std::pair<std::string, Precision>> layers);
  /// REQUIRES: as many marks as names, or fewer.
  RaisedLayers(Table table, Marks marks);

  const Table& table() const noexcept { return table_; }
  const Marks& marks() const noexcept { return marks_; }
  std::size_t size() const noexcept;
  bool empty() const noexcept { return marks_.empty(); }
  /// Names and precisions in the order of the table: the network's, in what a search tries.
  std::vector<std::pair<std::string, Precision>> layers() const;

  /// The same layers in the same precisions, whatever their tables.
  friend ULPSCOPE_API bool operator==(const RaisedLayers& a, const RaisedLayers& b);

 private:
  Table table_;
  Marks marks_;
};

}  // namespace ulpscope
