#include "onnx/edit.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <unordered_map>

#include "core/messages.h"
#include "graph/name_match.h"
#include "graph/outputs.h"
#include "onnx/wire.h"
#include "ulpscope/error.h"

namespace ulpscope {
namespace {

using onnx_wire::Field;
using onnx_wire::Reader;
using onnx_wire::WireType;
using Bytes = std::span<const std::byte>;

constexpr std::uint32_t kGraphNode = 1, kGraphInput = 11, kGraphOutput = 12, kGraphInfo = 13;  // GraphProto
constexpr std::uint32_t kNodeOutput = 2, kNodeOperator = 4;                                    // NodeProto
constexpr std::uint32_t kInfoName = 1;                                                         // ValueInfoProto

/// What the outputs of a graph can be, and what the file says about them.
struct GraphSummary {
  std::vector<std::string> computed;  ///< Outputs of nodes that are not Constant.
  std::vector<std::string> all;       ///< These, outputs of Constant nodes and inputs.
  std::vector<std::string> outputs;
  std::unordered_map<std::string, Bytes> described;  ///< The ValueInfoProto of a name.
};

std::string name_of_info(Bytes info, const std::byte* origin) {
  Reader reader(info, origin);
  std::string name;
  for (Field field; reader.next(field);)
    if (field.number == kInfoName) name = onnx_wire::as_text(field.payload);
  return name;
}

GraphSummary summarize(Bytes graph, const std::byte* origin) {
  GraphSummary summary;
  Reader reader(graph, origin);
  for (Field field; reader.next(field);) {
    if (field.type != WireType::kBytes) continue;
    if (field.number == kGraphNode) {
      std::vector<std::string> outputs;
      bool constant = false;
      Reader node(field.payload, origin);
      for (Field inner; node.next(inner);) {
        if (inner.number == kNodeOutput && !inner.payload.empty())
          outputs.emplace_back(onnx_wire::as_text(inner.payload));
        if (inner.number == kNodeOperator) constant = onnx_wire::as_text(inner.payload) == "Constant";
      }
      if (!constant) summary.computed.insert(summary.computed.end(), outputs.begin(), outputs.end());
      summary.all.insert(summary.all.end(), outputs.begin(), outputs.end());
    } else if (field.number == kGraphInput || field.number == kGraphOutput || field.number == kGraphInfo) {
      std::string name = name_of_info(field.payload, origin);
      if (field.number == kGraphInput) summary.all.push_back(name);
      if (field.number == kGraphOutput) summary.outputs.push_back(name);
      summary.described.emplace(std::move(name), field.payload);
    }
  }
  return summary;
}

std::vector<std::string> select(const GraphSummary& summary, const std::string& where,
                                std::span<const std::string> marked, std::span<const std::string> excluded) {
  std::vector<std::string> selected = summary.outputs;
  if (is_mark_all(marked) || (marked.size() == 1 && marked[0] == "*"))
    selected = summary.computed;
  else if (!marked.empty())
    selected = expand_names(marked, summary.all, where);
  for (const std::string& name : expand_names(excluded, summary.all, where)) std::erase(selected, name);
  if (selected.empty()) throw invalid_argument("{}: no outputs are selected", where);
  return selected;
}

}  // namespace

void EditedModel::refer(Bytes bytes) {
  if (!bytes.empty()) pieces_.push_back(onnx_wire::as_text(bytes));
}

void EditedModel::own(std::string text) {
  if (!text.empty()) pieces_.push_back(owned_.emplace_back(std::move(text)));
}

std::string EditedModel::join() const {
  std::size_t size = 0;
  for (std::string_view piece : pieces_) size += piece.size();
  std::string result;
  result.reserve(size);
  for (std::string_view piece : pieces_) result.append(piece);
  return result;
}

EditedModel with_outputs(Bytes model, const std::string& source, std::span<const std::string> marked,
                         std::span<const std::string> excluded) {
  const std::string where = fmt::format("[outputs] {}", source);
  const auto fail = [&](const std::string& what) { throw invalid_file("{}: {}", where, what); };
  EditedModel result;
  GraphSummary summary;
  std::optional<Field> graph;
  std::vector<Bytes> kept;  // of the graph, neighbors joined
  std::size_t kept_size = 0;
  try {
    Reader reader(model, model.data());
    for (Field field; reader.next(field);) {
      if (field.number != onnx_wire::kModelGraph || field.type != WireType::kBytes) continue;
      if (graph) throw invalid_file("not a valid ONNX file: it has two graphs");
      graph = field;
    }
    if (!graph) throw invalid_file("not a valid ONNX file: it has no graph");
    summary = summarize(graph->payload, model.data());
    Reader fields(graph->payload, model.data());
    for (Field field; fields.next(field);) {
      if (field.number == kGraphOutput) continue;
      kept_size += field.whole.size();
      if (!kept.empty() && kept.back().data() + kept.back().size() == field.whole.data())
        kept.back() = {kept.back().data(), kept.back().size() + field.whole.size()};
      else
        kept.push_back(field.whole);
    }
  } catch (const Error& error) {
    fail(error.what());
  }
  std::string outputs;
  for (const std::string& name : select(summary, where, marked, excluded)) {
    const auto found = summary.described.find(name);
    std::string info;
    if (found == summary.described.end()) onnx_wire::append_bytes_field(info, kInfoName, name);
    onnx_wire::append_bytes_field(
        outputs, kGraphOutput,
        found == summary.described.end() ? std::string_view(info) : onnx_wire::as_text(found->second));
  }
  std::string head;
  onnx_wire::append_varint(head, onnx_wire::kModelGraph << 3 | 2);
  onnx_wire::append_varint(head, kept_size + outputs.size());
  result.refer({model.data(), graph->whole.data()});
  result.own(std::move(head));
  for (Bytes bytes : kept) result.refer(bytes);
  result.own(std::move(outputs));
  const std::byte* const end = graph->whole.data() + graph->whole.size();
  result.refer({end, model.data() + model.size()});
  return result;
}

}  // namespace ulpscope
