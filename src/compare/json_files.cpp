#include "compare/json_files.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "compare/array_files.h"
#include "compare/base64.h"
#include "compare/json_access.h"
#include "core/file.h"
#include "core/messages.h"
#include "ulpscope/error.h"

namespace ulpscope {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kOldPrefix = "__polygraphy_encoded_";
constexpr std::string_view kOldMarker = "polygraphy_serialized_json_type";

/// What a value is, for messages.
std::string describe(const Json& json) {
  switch (json.type()) {
    case Json::value_t::object:
      return "an object";
    case Json::value_t::array:
      return "a list of " + std::to_string(json.size());
    case Json::value_t::string:
      return "a string";
    case Json::value_t::boolean:
      return json.get<bool>() ? "true" : "false";
    case Json::value_t::null:
      return "null";
    default:
      return "the number " + json.dump();
  }
}

/// The marked class of an object, in either of the two ways; empty for none.
std::string class_of(const Json& json) {
  if (!json.is_object()) return "";
  for (const auto& [key, value] : json.items()) {
    if (!value.is_string()) continue;
    if (key == kClass) return value.get<std::string>();
    if (key.starts_with(kOldPrefix) && value.get_ref<const std::string&>() == kOldMarker)
      return key.substr(kOldPrefix.size());
  }
  return "";
}

/// Bytes that were written as characters U+0000 to U+00FF. Nothing if there are others.
std::optional<std::string> from_latin1(std::string_view utf8) {
  std::string result;
  result.reserve(utf8.size());
  for (std::size_t i = 0; i < utf8.size(); ++i) {
    const auto c = static_cast<std::uint8_t>(utf8[i]);
    if (c < 0x80) {
      result += utf8[i];
    } else if ((c == 0xc2 || c == 0xc3) && i + 1 < utf8.size()) {
      result += static_cast<char>((c & 3) << 6 | (static_cast<std::uint8_t>(utf8[++i]) & 0x3f));
    } else {
      return std::nullopt;
    }
  }
  return result;
}

Tensor read_array(const Json& outer, const std::string& where) {
  const Json* inner = &outer;
  std::string type = class_of(outer);
  for (; type == "LazyArray" || type == "LazyNumpyArray"; type = class_of(*inner))
    inner = &member(*inner, "values", where);
  const Json& json = *inner;
  if (type == "Tensor") {
    const Json& saved = member(json, "tensor", where);
    const auto bytes = saved.is_string() ? decode_base64(saved.get_ref<const std::string&>()) : std::nullopt;
    if (!bytes) fail_at(where, "the tensor is not valid base64; is the file damaged?");
    return decode_torch(*bytes, where);
  }
  if (type != "ndarray")
    fail_at(where, "expected an array (an object of class ndarray), got " +
                       (type.empty() ? describe(json) : "one of class " + type));
  const Json& text = member(json, "array", where);
  if (!text.is_string()) fail_at(where, "expected the array as base64 text, got " + describe(text));
  const auto& encoded = text.get_ref<const std::string&>();
  if (const auto bytes = decode_base64(encoded)) return decode_npy(*bytes, where);
  const auto bytes = from_latin1(encoded);
  if (!bytes || !(bytes->starts_with("\x93NUMPY") || bytes->starts_with("PK")))
    fail_at(where, "the array is not valid base64; is the file damaged?");
  return decode_npy(*bytes, where);
}

TensorMap read_map(const Json& json, const std::string& where, const std::string& what) {
  TensorMap result;
  for (const auto& [name, value] : json.items()) {
    if (name == kClass || name.starts_with(kOldPrefix)) continue;
    result.push_back({name, read_array(value, where + ": " + what + " '" + name + "'")});
  }
  return result;
}

TensorMap read_inputs(const Json& json, const std::string& where) {
  const std::string type = class_of(json);
  if (!json.is_object() || !type.empty())
    fail_at(where, "expected an object from input names to arrays, got " +
                       (type.empty() ? describe(json) : "one of class " + type));
  return read_map(json, where, "input");
}

IterationResult read_iteration(const Json& json, const std::string& where) {
  if (class_of(json) != "IterationResult") fail_at(where, "expected an IterationResult, got " + describe(json));
  IterationResult result;
  const Json& outputs = member(json, "outputs", where);
  if (!outputs.is_object()) fail_at(where, "expected an object from output names to arrays, got " + describe(outputs));
  result.outputs = read_map(outputs, where, "output");
  if (const auto runtime = json.find("runtime"); runtime != json.end() && runtime->is_number())
    result.runtime = runtime->get<double>();
  if (const auto name = json.find("runner_name"); name != json.end() && name->is_string())
    result.runner_name = name->get<std::string>();
  return result;
}

/// Nothing that nlohmann-json says about the text is kept but the place: it quotes what it read, which may be
/// megabytes.
Json parse(std::string_view text, const std::string& where) {
  if (!text.empty() && static_cast<std::uint8_t>(text.front()) == 0x80) {
    fail_at(where,
            "expected JSON, got a Python pickle. Pickles can run code, so they are not read. If you trust the file, "
            "convert it in the environment that wrote it: python3 -c \"import pickle, sys; from polygraphy.json import "
            "save_json; save_json(pickle.load(open(sys.argv[1], 'rb')), sys.argv[2])\" FILE FILE.json");
  }
  if (text.starts_with("PK") || text.starts_with("\x93NUMPY"))
    fail_at(
        where,
        "expected JSON, got a NumPy file; try polygraphy.json.save_json([{\"input name\": array}], \"inputs.json\") "
        "in Python");
  try {
    return Json::parse(text.begin(), text.end());
  } catch (const Json::out_of_range&) {
    fail_at(where, "malformed JSON: it holds a number that is too large");
  } catch (const Json::parse_error& error) {
    const std::size_t byte = std::min(error.byte == 0 ? 0 : error.byte - 1, text.size());
    const std::string_view before = text.substr(0, byte);
    const auto line = 1 + std::ranges::count(before, '\n');
    const std::size_t start = before.rfind('\n');
    const std::size_t column = byte - (start == std::string_view::npos ? 0 : start + 1) + 1;
    const bool at_end = byte >= text.size();
    fail_at(where, "malformed JSON at line " + std::to_string(line) + ", column " + std::to_string(column) +
                       (text.empty() ? ": the file is empty"
                        : at_end     ? ": the text ends too early; is the file truncated?"
                        : byte == 0  ? ": no JSON begins so; is it a file of another kind?"
                                     : ""));
  }
}

// Writing

void write_string(std::string& out, std::string_view text) {
  out += Json(std::string(text)).dump(-1, ' ', true, Json::error_handler_t::replace);
}

void write_array(std::string& out, const Tensor& tensor, const std::string& margin) {
  out += "{\n" + margin + "    \"array\": \"";
  const bool in_numpy = tensor.type() != DataType::kBFloat16 && !is_storage_only(tensor.type());
  encode_base64(encode_npy(in_numpy ? tensor : tensor.cast(physical_type(tensor.type()))), out);
  out += "\",\n" + margin + "    \"polygraphy_class\": \"ndarray\"\n" + margin + "}";
}

/// `write` writes one element, on a line of its own.
template <typename Items, typename Write>
void write_sequence(std::string& out, char open, char close, const Items& items, const std::string& margin,
                    const Write& write) {
  out += open;
  bool first = true;
  for (const auto& item : items) {
    out += first ? "\n" : ",\n";
    out += margin + "    ";
    write(item, margin + "    ");
    first = false;
  }
  if (!first) out += "\n" + margin;
  out += close;
}

void write_iteration(std::string& out, const IterationResult& result, const std::string& margin) {
  const std::string inner = margin + "    ";
  out += "{\n" + inner + "\"outputs\": ";
  write_sequence(out, '{', '}', result.outputs, inner, [&](const NamedTensor& output, const std::string& at) {
    write_string(out, output.name);
    out += ": {\n" + at + "    \"values\": ";
    write_array(out, output.tensor, at + "    ");
    out += ",\n" + at + "    \"polygraphy_class\": \"LazyArray\"\n" + at + "}";
  });
  out += ",\n" + inner +
         "\"runtime\": " + (result.runtime && std::isfinite(*result.runtime) ? python_float(*result.runtime) : "null");
  out += ",\n" + inner + "\"runner_name\": ";
  write_string(out, result.runner_name);
  out += ",\n" + inner + "\"polygraphy_class\": \"IterationResult\"\n" + margin + "}";
}

void write_input(std::string& out, const TensorMap& map, const std::string& margin) {
  write_sequence(out, '{', '}', map, margin, [&](const NamedTensor& input, const std::string& at) {
    write_string(out, input.name);
    out += ": ";
    write_array(out, input.tensor, at);
  });
}

std::string input_to_json(const TensorMap& map) {
  std::string out;
  write_input(out, map, "");
  return out;
}

// Files

/// "0000000003.json", so that the order of names is that of iterations.
std::string file_of_iteration(std::size_t index) {
  std::string digits = std::to_string(index);
  return std::string(10 - std::min<std::size_t>(10, digits.size()), '0') + digits + ".json";
}

std::vector<std::filesystem::path> files_of(const std::filesystem::path& path) {
  if (!std::filesystem::is_directory(path)) return {path};
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(path))
    if (entry.path().extension() == ".json") files.push_back(entry.path());
  std::ranges::sort(files);
  if (files.empty())
    throw Error(ErrorCode::kNotFound,
                "[load] " + path.string() + ": No per-iteration files (*.json) are in this folder");
  return files;
}

template <typename Read>
auto read_json_file(const std::filesystem::path& path, const Read& read) {
  const std::string where = "[load] " + path.string();
  if (std::filesystem::is_regular_file(path) && std::filesystem::file_size(path) > 0) {
    const auto file = MappedFile::open(path);
    const std::string_view text(reinterpret_cast<const char*>(file->bytes().data()), file->bytes().size());
    return file->read_whole([&] { return read(text, where); });
  }
  return read(read_file(path), where);
}

}  // namespace

std::string inputs_to_json(const std::vector<TensorMap>& iterations) {
  std::string out;
  write_sequence(out, '[', ']', iterations, "",
                 [&](const TensorMap& map, const std::string& margin) { write_input(out, map, margin); });
  return out;
}

std::string results_to_json(const RunResults& results) {
  std::string out = "{\n    \"lst\": ";
  write_sequence(out, '[', ']', results, "    ", [&](const auto& runner, const std::string& margin) {
    out += "[\n" + margin + "    ";
    write_string(out, runner.first);
    out += ",\n" + margin + "    ";
    write_sequence(out, '[', ']', runner.second, margin + "    ",
                   [&](const IterationResult& result, const std::string& at) { write_iteration(out, result, at); });
    out += "\n" + margin + "]";
  });
  return out + ",\n    \"polygraphy_class\": \"RunResults\"\n}";
}

bool is_saved_as_folder(const std::filesystem::path& path, std::size_t iterations) {
  std::error_code ignored;
  if (path.has_extension()) return false;
  if (std::filesystem::is_directory(path, ignored) || !path.has_filename()) return true;
  return iterations > 1 && !std::filesystem::exists(path, ignored);
}

void save_inputs(const std::filesystem::path& path, const std::vector<TensorMap>& iterations) {
  if (!is_saved_as_folder(path, iterations.size())) return write_file(path, inputs_to_json(iterations));
  for (std::size_t i = 0; i < iterations.size(); ++i)
    write_file(path / file_of_iteration(i), input_to_json(iterations[i]));
}

void save_results(const std::filesystem::path& path, const RunResults& results) {
  std::size_t iterations = 0;
  for (const auto& [runner, list] : results) iterations = std::max(iterations, list.size());
  if (!is_saved_as_folder(path, iterations)) return write_file(path, results_to_json(results));
  for (std::size_t i = 0; i < iterations; ++i) {
    RunResults one;
    for (const auto& [runner, list] : results)
      if (i < list.size()) one.emplace_back(runner, std::vector<IterationResult>{list[i]});
    write_file(path / file_of_iteration(i), results_to_json(one));
  }
}

std::vector<TensorMap> inputs_from_json(std::string_view text, const std::string& where) {
  const Json json = parse(text, where);
  const std::string type = class_of(json);
  if (type == "RunResults") fail_at(where, "expected inputs, got results of runners; try --load-outputs for this file");
  if (json.is_object()) return {read_inputs(json, where)};
  if (!json.is_array())
    fail_at(where, "expected a list with one object (input name to array) per iteration, got " + describe(json));
  std::vector<TensorMap> result;
  for (const Json& element : json)
    result.push_back(read_inputs(element, where + ": iteration " + std::to_string(result.size())));
  return result;
}

RunResults results_from_json(std::string_view text, const std::string& where) {
  const Json json = parse(text, where);
  const std::string type = class_of(json);
  if (type != "RunResults") {
    const std::string got = type.empty() ? describe(json) : "an object of class " + type;
    fail_at(where, "expected an object of class RunResults, got " + got +
                       (json.is_array() ? "; if these are inputs, try --load-inputs" : ""));
  }
  const Json& list = member(json, "lst", where);
  if (!list.is_array())
    fail_at(where, "expected a list of (runner name, iterations) in \"lst\", got " + describe(list));
  RunResults results;
  for (const Json& pair : list) {
    const std::string at = where + ": runner " + std::to_string(results.size());
    if (!pair.is_array() || pair.size() != 2 || !pair[0].is_string() || !pair[1].is_array())
      fail_at(at, "expected [name, [iterations]], got " + describe(pair));
    auto& [name, iterations] = results.emplace_back(pair[0].get<std::string>(), std::vector<IterationResult>{});
    for (const Json& iteration : pair[1]) {
      iterations.push_back(read_iteration(iteration, at + ": iteration " + std::to_string(iterations.size())));
      if (iterations.back().runner_name.empty()) iterations.back().runner_name = name;
    }
  }
  return results;
}

std::vector<TensorMap> load_inputs(const std::filesystem::path& path) {
  std::vector<TensorMap> result;
  for (const auto& file : files_of(path))
    for (TensorMap& map : read_json_file(file, inputs_from_json)) result.push_back(std::move(map));
  return result;
}

RunResults load_results(const std::filesystem::path& path) {
  RunResults result;
  for (const auto& file : files_of(path)) {
    RunResults part = read_json_file(file, results_from_json);
    if (result.empty()) {
      result = std::move(part);
      continue;
    }
    if (part.size() != result.size())
      throw invalid_file("[load] " + file.string() + ": expected " + std::to_string(result.size()) +
                         " runners as in the files before it, got " + std::to_string(part.size()));
    for (std::size_t i = 0; i < part.size(); ++i)
      for (IterationResult& iteration : part[i].second) result[i].second.push_back(std::move(iteration));
  }
  return result;
}

}  // namespace ulpscope
