// Fuzz target: rows of jsonl files and blocks of question files, as training reads them.
#include "lib/data/language.h"
#include "lib/io/fuzz/fuzzing.h"
#include "lib/text/tokenizer_formats.h"
#include "lib/text/train/train_tokenizer.h"

namespace lumen::data {
namespace {

// One token per printable ASCII character, and the marks of ChatML.
std::shared_ptr<const text::Tokenizer> character_tokenizer() {
  std::string all = "\n";
  for (char c = ' '; c < '\x7F'; ++c) all += c;
  text::TokenizerTraining training;
  training.special_tokens = {"<|endoftext|>", "<|im_start|>", "<|im_end|>"};
  for (const text::TokenizerFile& file : text::make_tokenizer({all}, training)) {
    if (file.name == "tokenizer.json") {
      return text::parse_tokenizer_json(io::parse_json(file.content, file.name), {});
    }
  }
  std::abort();
}

void read_rows(std::string_view text) {
  static const auto tokenizer = character_tokenizer();
  static const auto chat = text::ChatTemplate::parse(
      "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}"
      "<|im_end|>\n{% endfor %}",
      "fuzz");
  DataOptions options;
  const TextTools tools = {tokenizer.get(), &chat};
  TextEncoder encoder(options, tools);
  for_each_json_row(text, [&](const TextLine& line) {
    io::expect_refusal_or_success([&] {
      const Document document = encode_json_row(line, encoder);
      io::require(document.ids.size() == document.learned.size());
      for (const int32_t id : document.ids) io::require(id >= 0 && id < tokenizer->vocab_size());
    });
  });
}

void read_questions(std::string_view text) {
  DatasetInfo info;
  SourceFile file;
  BadRows bad(OnBadRow::kSkip, info);
  for (const FaqEntry& entry : parse_faq(text, bad, file)) {
    io::require(!entry.question.empty() && !entry.answer.empty());
    std::vector<std::string> questions;
    add_variants(entry, 1, questions);
  }
}

}  // namespace
}  // namespace lumen::data

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lumen;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  io::expect_refusal_or_success([&] { data::read_rows(text); });
  io::expect_refusal_or_success([&] { data::read_questions(text); });
  return 0;
}
