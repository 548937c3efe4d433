#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "compare/array_files.h"
#include "core/memory.h"
#include "core/messages.h"
#include "ulpscope/error.h"

namespace ulpscope {
namespace {

/// What the pickle of a tensor takes, many times over.
constexpr std::size_t kLargestPickle = 4096;
constexpr std::string_view kRebuild = "torch._utils _rebuild_tensor_v2", kDictionary = "collections OrderedDict";

/// A value on the pickle's stack. Names of functions and classes are "module name".
struct Item {
  enum class Kind : std::uint8_t { kOther, kMark, kNumber, kText, kName, kTuple, kStorage, kTensor };
  Kind kind = Kind::kOther;
  std::int64_t number = 0;
  std::string text;
  std::shared_ptr<const std::vector<Item>> tuple;  ///< Shared, since what is recalled may be recalled often.

  const std::vector<Item>& items() const {
    static const std::vector<Item> none;
    return tuple == nullptr ? none : *tuple;
  }
};

/// The opcodes that torch.save writes for a tensor. Everything else is refused, and nothing is called.
class Pickle {
 public:
  Pickle(std::string_view bytes, std::string_view where) : bytes_(bytes), where_(where) {
    if (bytes.size() > kLargestPickle) refuse("a pickle of more than one tensor");
  }

  /// The arguments of the function that makes the tensor.
  Item tensor() {
    for (;;) {
      const auto code = static_cast<std::uint8_t>(take(1)[0]);
      if (code == '.') break;
      step(code);
    }
    Item result = pop();
    if (result.kind != Item::Kind::kTensor) refuse("something else");
    return result;
  }

 private:
  [[noreturn]] void refuse(std::string_view what) const {
    throw unsupported("{}: expected one tensor as torch.save writes it, got {}; try saving tensor.numpy() instead",
                      where_, what);
  }

  [[noreturn]] void damaged() const { throw invalid_file("{}: the pickle of the tensor is damaged", where_); }

  std::string_view take(std::size_t count) {
    if (count > bytes_.size() - at_) damaged();
    at_ += count;
    return bytes_.substr(at_ - count, count);
  }

  std::uint64_t number(std::size_t width) {
    std::uint64_t value = 0;
    std::size_t shift = 0;
    for (const char byte : take(width)) value |= std::uint64_t{static_cast<std::uint8_t>(byte)} << (8 * shift++);
    return value;
  }

  std::string line() {
    const std::size_t end = bytes_.find('\n', at_);
    if (end == std::string_view::npos) damaged();
    std::string text(take(end - at_));
    take(1);
    return text;
  }

  Item pop() {
    if (stack_.empty()) damaged();
    Item item = std::move(stack_.back());
    stack_.pop_back();
    return item;
  }

  void push(Item::Kind kind, std::int64_t value = 0, std::string text = {}) {
    stack_.push_back({kind, value, std::move(text), nullptr});
  }

  void push_as(Item::Kind kind, const Item& tuple) { stack_.push_back({kind, 0, {}, tuple.tuple}); }

  void push_tuple(std::size_t count) {
    if (count > stack_.size()) damaged();
    std::vector<Item> items(stack_.end() - static_cast<std::ptrdiff_t>(count), stack_.end());
    stack_.resize(stack_.size() - count);
    // A tensor's are three deep: storage, sizes and strides among its arguments.
    const auto is_deep = [](const Item& item) {
      return std::ranges::any_of(item.items(), [](const Item& inner) { return !inner.items().empty(); });
    };
    if (std::ranges::any_of(items, is_deep)) refuse("something nested");
    stack_.push_back({Item::Kind::kTuple, 0, {}, std::make_shared<const std::vector<Item>>(std::move(items))});
  }

  void push_tuple_to_mark() {
    std::size_t count = 0;
    while (count < stack_.size() && stack_[stack_.size() - 1 - count].kind != Item::Kind::kMark) ++count;
    if (count == stack_.size()) damaged();
    push_tuple(count);
    const Item tuple = pop();
    stack_.back() = tuple;  // In the place of the mark.
  }

  void call() {
    const Item arguments = pop(), function = pop();
    if (function.kind != Item::Kind::kName || arguments.kind != Item::Kind::kTuple) damaged();
    if (function.text == kDictionary) return push(Item::Kind::kOther);
    if (function.text != kRebuild) refuse("'" + function.text + "'");
    push_as(Item::Kind::kTensor, arguments);
  }

  void remember(std::uint64_t place) {
    if (stack_.empty()) damaged();
    memo_[place] = stack_.back();
  }

  void recall(std::uint64_t place) {
    const auto found = memo_.find(place);
    if (found == memo_.end()) damaged();
    stack_.push_back(found->second);
  }

  void step(std::uint8_t code) {
    if (push_value(code) || use_memo(code)) return;
    switch (code) {
      case '(':
        return push(Item::Kind::kMark);
      case 't':
        return push_tuple_to_mark();
      case ')':
        return push(Item::Kind::kTuple);
      case 0x85:
      case 0x86:
      case 0x87:
        return push_tuple(code - 0x84u);
      case 'Q':
        return push_as(Item::Kind::kStorage, pop());
      case 'R':
        return call();
      case 0x80:  // The protocol.
        take(1);
        return;
      case 0x95:  // The length of a frame.
        take(8);
        return;
      default:
        refuse(fmt::format("a pickle with the opcode {}", code));
    }
  }

  bool push_value(std::uint8_t code) {
    using Kind = Item::Kind;
    if (code == 'X' || code == 0x8c) {
      push(Kind::kText, 0, std::string(take(number(code == 'X' ? 4 : 1))));
    } else if (code == 'K' || code == 'M') {
      push(Kind::kNumber, static_cast<std::int64_t>(number(code == 'K' ? 1 : 2)));
    } else if (code == 'J') {
      push(Kind::kNumber, static_cast<std::int32_t>(number(4)));
    } else if (code == 0x8a) {
      push_long();
    } else if (code == 'c') {
      const std::string module = line();
      push(Kind::kName, 0, module + " " + line());
    } else if (code == 0x93) {
      const Item name = pop(), module = pop();
      push(Kind::kName, 0, module.text + " " + name.text);
    } else if (code == 0x88 || code == 0x89 || code == 'N' || code == '}' || code == ']') {
      push(Kind::kOther);
    } else {
      return false;
    }
    return true;
  }

  bool use_memo(std::uint8_t code) {
    if (code == 'q' || code == 'r')
      remember(number(code == 'q' ? 1 : 4));
    else if (code == 'h' || code == 'j')
      recall(number(code == 'h' ? 1 : 4));
    else if (code == 0x94)
      remember(memo_.size());
    else
      return false;
    return true;
  }

  void push_long() {
    const std::size_t width = number(1);
    if (width > 8) refuse("a number of more than 64 bits");
    std::uint64_t value = number(width);
    // Little-endian with a sign.
    if (width > 0 && width < 8 && (value >> (8 * width - 1) & 1) != 0) value |= ~std::uint64_t{0} << (8 * width);
    push(Item::Kind::kNumber, static_cast<std::int64_t>(value));
  }

  std::string_view bytes_, where_;
  std::size_t at_ = 0;
  std::vector<Item> stack_;
  std::map<std::uint64_t, Item> memo_;
};

std::optional<DataType> type_of_storage(const std::string& name) {
  static const std::map<std::string, DataType> types = {
      {"torch FloatStorage", DataType::kFloat32}, {"torch DoubleStorage", DataType::kFloat64},
      {"torch HalfStorage", DataType::kFloat16},  {"torch BFloat16Storage", DataType::kBFloat16},
      {"torch LongStorage", DataType::kInt64},    {"torch IntStorage", DataType::kInt32},
      {"torch ShortStorage", DataType::kInt16},   {"torch CharStorage", DataType::kInt8},
      {"torch ByteStorage", DataType::kUInt8},    {"torch BoolStorage", DataType::kBool},
  };
  const auto found = types.find(name);
  return found == types.end() ? std::nullopt : std::optional(found->second);
}

std::optional<Shape> numbers_of(const Item& tuple) {
  Shape result;
  for (const Item& item : tuple.items()) {
    if (item.kind != Item::Kind::kNumber || item.number < 0) return std::nullopt;
    result.push_back(item.number);
  }
  return result;
}

/// Elements of a storage, in the order of the tensor. REQUIRES: all of them lie in it.
void gather(const char* from, const Shape& strides, std::size_t width, Tensor& result) {
  const Shape& shape = result.shape();
  Shape place(shape.size(), 0);
  auto* to = static_cast<char*>(result.raw());
  std::int64_t at = 0;
  for (std::int64_t count = result.size(); count > 0; --count, to += width) {
    std::memcpy(to, from + static_cast<std::size_t>(at) * width, width);
    for (std::size_t d = shape.size(); d-- > 0;) {
      at += strides[d];
      if (++place[d] < shape[d]) break;
      at -= strides[d] * shape[d];
      place[d] = 0;
    }
  }
}

}  // namespace

Tensor decode_torch(std::string_view bytes, std::string_view where) {
  if (!bytes.starts_with("PK"))
    throw unsupported("{}: expected a tensor that torch 1.6 or later saved; try saving tensor.numpy() instead", where);
  std::map<std::string, std::string> files;
  std::string folder;
  for (auto& [name, content] : files_of_npz(bytes, where)) {
    if (name.ends_with("/data.pkl")) folder = name.substr(0, name.size() - std::string_view("data.pkl").size());
    files.emplace(std::move(name), std::move(content));
  }
  const auto file = [&](const std::string& name) -> const std::string& {
    const auto found = files.find(folder + name);
    if (found == files.end()) throw invalid_file("{}: expected the file {} in the tensor's archive", where, name);
    return found->second;
  };
  const Item made = Pickle(file("data.pkl"), where).tensor();
  const std::vector<Item>& arguments = made.items();
  const auto damaged = [&] { return invalid_file("{}: the tensor does not fit its elements", where); };
  if (arguments.size() < 4 || arguments[0].kind != Item::Kind::kStorage || arguments[0].items().size() < 5)
    throw damaged();
  const std::vector<Item>& storage = arguments[0].items();
  const std::optional<DataType> type = type_of_storage(storage[1].text);
  if (!type) throw unsupported("{}: expected elements that NumPy has, or bfloat16, got '{}'", where, storage[1].text);
  if (const auto order = files.find(folder + "byteorder"); order != files.end() && order->second != "little")
    throw unsupported("{}: expected little-endian elements, got {}", where, order->second);
  const std::string& elements = file("data/" + storage[2].text);
  const std::optional<Shape> shape = numbers_of(arguments[2]), strides = numbers_of(arguments[3]);
  const std::int64_t offset = arguments[1].number;
  if (!shape || !strides || shape->size() != strides->size() || offset < 0) throw damaged();

  const std::size_t width = size_of(*type);
  const auto held = static_cast<std::int64_t>(elements.size() / width);
  const std::optional<std::uint64_t> wanted = bytes_of(*type, *shape);
  if (!wanted || *wanted > elements.size())
    throw unsupported("{}: expected a tensor with all its elements in the file; try tensor.contiguous()", where);
  std::int64_t left = held - 1 - offset;  // Elements behind the first one.
  for (std::size_t d = 0; d < shape->size() && *wanted > 0; ++d) {
    const std::int64_t steps = (*shape)[d] - 1, stride = (*strides)[d];
    if (steps > 0 && stride > 0 && steps > left / stride) throw damaged();
    left -= steps * (steps > 0 ? stride : 0);
  }
  if (*wanted > 0 && left < 0) throw damaged();
  Tensor result(*type, *shape);
  if (*wanted > 0) gather(elements.data() + static_cast<std::size_t>(offset) * width, *strides, width, result);
  return result;
}

}  // namespace ulpscope
