#include "lib/text/growing_text.h"

#include <algorithm>

#include "lib/base/generator.h"
#include "lib/base/testing.h"
#include "lib/io/json.h"
#include "lib/text/tokenizer_json.h"

namespace lumen::text {
namespace {

using io::Json;
using Ids = std::vector<int32_t>;

// Texts of control tokens, parts of them, blanks and words, of which each has a beginning in common
// with the one before: their tokens, and those of their beginnings, must be as without it.
void check_growing(const Tokenizer& tokenizer, uint64_t seed) {
  std::vector<std::string> pieces = {" ",       "  ",     "\n",     "\n\n", "\t",   "a",
                                     "the cat", ".",      "<",      "|>",   "é",    "東京",
                                     "🙂",    "\u00A0", "\u3000", "<|",   "1234", "’s"};
  std::vector<std::string> control;
  for (int32_t id = 0; id < tokenizer.vocab_size() && control.size() < 40; ++id) {
    if (tokenizer.is_special(id)) control.emplace_back(tokenizer.token_text(id));
  }
  if (tokenizer.id_of("[MARK]")) pieces.emplace_back("[MARK]");
  for (const std::string& token : control) {
    pieces.push_back(token);
    pieces.push_back(token.substr(0, token.size() / 2));
  }
  Generator generator(seed);
  const auto below = [&](size_t count) {
    return static_cast<size_t>(generator.next_u64() % count);
  };
  GrowingText growing(tokenizer, true);
  const EncodeOptions how = {.add_special = false, .parse_special = true};
  std::string text;
  for (int round = 0; round < 60; ++round) {
    text.resize(text.size() - below(text.size() + 1) * below(2));
    for (size_t count = below(20); count > 0; --count) {
      const bool is_control = !control.empty() && below(3) == 0;
      text += is_control ? control[below(control.size())] : pieces[below(pieces.size())];
    }
    INFO(tokenizer.kind() << " " << lumen::quoted(text, 400));
    const Ids all = tokenizer.encode(text, how);
    REQUIRE(growing.encode(text) == all);
    for (int i = 0; i < 8; ++i) {
      const size_t size = below(text.size() + 1);
      const Ids part = tokenizer.encode(std::string_view(text).substr(0, size), how);
      const bool begins =
          part.size() <= all.size() && std::equal(part.begin(), part.end(), all.begin());
      INFO("the first " << size << " bytes");
      REQUIRE(growing.beginning(size) == (begins ? std::optional(part.size()) : std::nullopt));
    }
  }
}

TEST_CASE("a text that grows has the tokens that it has by itself") {
  LUMEN_SHARED_DATA(folder, "tokenizers");
  for (const char* name :
       {"hf/bert-base-uncased", "hf/gpt2", "hf/llama-2", "hf/llama-3.2-1b-instruct", "hf/minimind",
        "hf/phi-3-mini", "hf/qwen2.5-instruct", "hf/smollm2", "hf/t5-small-compact",
        "spm/llama2.model", "spm/t5-small.model", "spm/llama2.tokenizer.bin",
        "llamacpp-vocab/ggml-vocab-bert-bge.gguf", "llamacpp-vocab/ggml-vocab-deepseek-coder.gguf",
        "llamacpp-vocab/ggml-vocab-llama-spm.gguf", "llamacpp-vocab/ggml-vocab-phi-3.gguf"}) {
    check_growing(*load_tokenizer(folder + "/" + name), 1);
  }
}

TEST_CASE("a text grows behind tokens that take blanks along or stand alone") {
  for (const char* more : {R"("lstrip": true)", R"("rstrip": true)", R"("single_word": true)",
                           R"("normalized": true)", R"("lstrip": true, "rstrip": true)"}) {
    for (const char* blanks : {"", R"(, {"id": 7, "content": "  "}, {"id": 8, "content": "\n"})"}) {
      const auto tokenizer = parse_tokenizer_json(
          io::parse_json(
              str(R"({"model": {"type": "BPE", "unk_token": "?", "vocab": {"?": 0,)",
                  R"( "a": 1, " ": 2, "<": 3, "|": 4}, "merges": []}, "added_tokens": [)",
                  R"({"id": 5, "content": "[MARK]", )", more, R"(},)",
                  R"( {"id": 6, "content": "<|end|>", "special": true, )", more, "}", blanks, "]}"),
              "test"),
          {});
      for (uint64_t seed = 1; seed < 6; ++seed) check_growing(*tokenizer, seed);
    }
  }
}

TEST_CASE("behind a control token a text is encoded without what stands before") {
  const auto tokenizer = parse_tokenizer_json(
      io::parse_json(R"({"model": {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": []},
                         "added_tokens": [{"id": 2, "content": "<|end|>", "special": true}]})",
                     "test"),
      {});
  std::vector<Tokenizer::Checkpoint> checkpoints;
  Ids ids;
  tokenizer->encode_rest("ab<|end|>ba<|end|>", 0, true, ids, &checkpoints);
  CHECK(ids == Ids{0, 1, 2, 1, 0, 2});
  REQUIRE(checkpoints.size() == 2);
  CHECK(checkpoints[0].text == 9);
  CHECK(checkpoints[0].ids == 3);
  CHECK(checkpoints[0].known > 9);
  ids.resize(3);
  tokenizer->encode_rest("ab<|end|>bb", 9, true, ids, nullptr);
  CHECK(ids == Ids{0, 1, 2, 1, 1});
}

}  // namespace
}  // namespace lumen::text
