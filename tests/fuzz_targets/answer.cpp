// The answer of a search, and its journal.
#include "ulpscope/answer.h"

#include "fuzz_target.h"
#include "precision/journal.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace ulpscope;
  const std::string_view text = fuzz::as_text(data, size);
  fuzz::reads({ErrorCode::kInvalidFile}, [&] {
    const AnswerFile file = answer_from_json(text, "[answer] 'x'");
    const std::string written = answer_to_json(file);
    if (answer_to_json(answer_from_json(written, "[answer] 'again'")) != written) fuzz::finding("the answer changed");
  });
  static const fuzz::Folder folder;
  static const std::string header =
      "{\"format\":\"ulpscope-journal\",\"version\":2,\"made_for\":[[\"model\",\"m\"],[\"metric\",\"rel-l2\"]],"
      "\"names\":[\"MatMul\",\"Add\",\"y\"]}\n";
  for (const bool with_header : {true, false}) {
    write_file(folder / "x.jsonl", (with_header ? header : "") + std::string(text));
    fuzz::reads({ErrorCode::kInvalidFile, ErrorCode::kInvalidArgument}, [&] {
      Journal journal = Journal::resume(folder / "x.jsonl", {{"model", "m"}, {"metric", "rel-l2"}});
      const std::size_t count = journal.trials().size();
      journal.add(Trial{});
      if (Journal::resume(folder / "x.jsonl", {{"model", "m"}, {"metric", "rel-l2"}}).trials().size() != count + 1)
        fuzz::finding("the journal lost trials");
    });
  }
  return 0;
}
