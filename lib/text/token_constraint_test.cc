// Token masks against a check of every token by itself.
#include "lib/text/token_constraint.h"

#include <random>

#include "lib/base/testing.h"
#include "lib/text/grammar/automaton.h"
#include "lib/text/json_schema.h"

namespace lumen::text {
namespace {

using lumen::testing::source_path;

constexpr const char* kJson = R"(
root   ::= value
value  ::= object | array | string | number | ("true" | "false" | "null") ws
object ::= "{" ws (string ":" ws value ("," ws string ":" ws value)*)? "}" ws
array  ::= "[" ws (value ("," ws value)*)? "]" ws
string ::= "\"" char* "\"" ws
char   ::= [^"\\\x7F\x00-\x1F] | "\\" (["\\bfnrt] | "u" [0-9a-fA-F]{4})
number ::= ("-"? ([0-9] | [1-9] [0-9]{0,15})) ("." [0-9]+)? ([eE] [-+]? [0-9]+)? ws
ws     ::= [ \t\n]{0,9})";

const char* const kGrammars[] = {
    kJson,
    "root ::= [a-z]{3,12} (\" \" [a-zA-Z]+){0,4} [.!?] \"\\n\"?",
    "root ::= (word \" \")* word\nword ::= letter letter*\nletter ::= [a-zé-ü世] | \"'\"",
    "root ::= \"(\" root \")\" root | \"\" | [0-9] root",
    "root ::= s\ns ::= [a-z ] s [.,] | [a-z ] s s | [a-z ]",
    "root ::= [^x]{0,30} \"x\" .*",
};

// Loaded once: the built-in model's, and others.
std::vector<std::shared_ptr<const Tokenizer>> tokenizers() {
  std::vector<std::string> paths = {source_path("testdata/builtin/lumen-tiny.gguf"),
                                    source_path("testdata/models/random-spm.gguf")};
  const std::string shared = lumen::testing::shared_data("tokenizers");
  if (!shared.empty()) {
    for (const char* name : {"hf/gpt2", "hf/smollm2", "spm/mistral_v3.model",
                             "llamacpp-vocab/ggml-vocab-phi-3.gguf"}) {
      paths.push_back(shared + "/" + name);
    }
  }
  std::vector<std::shared_ptr<const Tokenizer>> all;
  for (const std::string& path : paths) all.push_back(load_tokenizer(path));
  return all;
}

bool has(TokenMask mask, int32_t token) {
  return (mask[static_cast<size_t>(token) / 64] >> (token % 64) & 1) != 0;
}

TEST_CASE("masks are what every token by itself says, on random walks") {
  std::mt19937 random(1);
  int checked = 0;
  for (const auto& tokenizer : tokenizers()) {
    const std::vector<int32_t> ends = tokenizer->end_tokens();
    const auto vocabulary = std::make_shared<VocabularyTrie>(*tokenizer, ends);
    const int64_t vocab_size = tokenizer->vocab_size();
    for (const char* gbnf : kGrammars) {
      const Grammar grammar = parse_grammar(gbnf, "test");
      const auto constraint = std::make_shared<TokenConstraint>(grammar, vocabulary);
      for (const bool is_whole : {true, false}) {
        ConstrainedText text(constraint, is_whole);
        grammar::Automaton automaton(grammar.program());  // of its own: nothing is shared
        grammar::State state = automaton.start();
        bool drops = is_whole && vocabulary->drops_first_space();
        for (int step = 0; step < 12 && !text.is_over(); ++step) {
          const TokenMask mask = text.allowed();
          std::vector<int32_t> allowed;
          int wrong = 0;
          for (int32_t token = 0; token < vocab_size; ++token) {
            std::string_view bytes = vocabulary->bytes(token);
            if (drops && bytes.starts_with(' ')) bytes.remove_prefix(1);
            grammar::State next = bytes.empty() ? grammar::kDead : state;
            for (const char c : bytes) next = automaton.next(next, static_cast<uint8_t>(c));
            const bool expected = next != grammar::kDead;
            if (expected) allowed.push_back(token);
            wrong += has(mask, token) != expected ? 1 : 0;
            ++checked;
          }
          CAPTURE(tokenizer->kind(), gbnf, step);
          REQUIRE(wrong == 0);
          CHECK(text.may_end() == automaton.may_end(state));
          if (allowed.empty()) break;
          const int32_t token = allowed[random() % allowed.size()];
          REQUIRE(text.accept(token));
          std::string_view bytes = vocabulary->bytes(token);
          if (drops && bytes.starts_with(' ')) bytes.remove_prefix(1);
          for (const char c : bytes) state = automaton.next(state, static_cast<uint8_t>(c));
          drops = false;
        }
      }
    }
  }
  CHECK(checked > 100'000);
}

TEST_CASE("the bytes of tokens make the text that they decode to") {
  const std::string sample = "{\"a\": [1, true, \"h\u00e9llo \u4e16\u754c \U0001F600\"]}\n  x  y";
  for (const auto& tokenizer : tokenizers()) {
    CAPTURE(tokenizer->kind());
    const auto bytes = tokenizer->token_bytes();
    REQUIRE(bytes.size() == static_cast<size_t>(tokenizer->vocab_size()));
    const auto ids = tokenizer->encode("x" + sample, {.add_special = false});
    std::string joined;
    for (const int32_t id : ids) joined += bytes[static_cast<size_t>(id)];
    const std::string decoded = tokenizer->decode(ids);
    if (joined.starts_with(' ') && !decoded.starts_with(' ')) {
      CHECK(VocabularyTrie(*tokenizer, {}).drops_first_space());
      joined.erase(0, 1);
    }
    CHECK(to_valid_utf8(joined) == decoded);
    for (int32_t id = 0; id < tokenizer->vocab_size(); ++id) {
      if (tokenizer->is_special(id)) REQUIRE(bytes[static_cast<size_t>(id)].empty());
    }
  }
}

TEST_CASE("tokens that end a text are never text, and all ways to write a text are allowed") {
  const auto tokenizer = load_tokenizer(source_path("testdata/models/random-spm.gguf"));
  const std::vector<int32_t> excluded = {*tokenizer->id_of("<0x41>")};
  const VocabularyTrie vocabulary(*tokenizer, excluded);
  CHECK(vocabulary.bytes(excluded[0]).empty());
  CHECK(vocabulary.bytes(-1).empty());
  CHECK(vocabulary.bytes(tokenizer->vocab_size()).empty());
  // Byte tokens beside pieces of one byte.
  const auto whole = std::make_shared<VocabularyTrie>(*tokenizer, std::span<const int32_t>());
  const auto constraint =
      std::make_shared<TokenConstraint>(parse_grammar("root ::= \"e\"", "test"), whole);
  ConstrainedText text(constraint, false);
  int ways = 0;
  for (int32_t id = 0; id < tokenizer->vocab_size(); ++id) {
    CHECK(has(text.allowed(), id) == (whole->bytes(id) == "e"));
    ways += whole->bytes(id) == "e" ? 1 : 0;
  }
  CHECK(ways == 2);
  CHECK_FALSE(text.may_end());
  CHECK_FALSE(text.accept("f"));
  CHECK(text.accept("e"));
  CHECK(text.is_over());
}

TEST_CASE("what is forgotten for want of memory is found anew, by all texts") {
  const auto tokenizer = load_tokenizer(source_path("testdata/builtin/lumen-tiny.gguf"));
  const auto vocabulary = std::make_shared<VocabularyTrie>(*tokenizer, tokenizer->end_tokens());
  const auto constraint =
      std::make_shared<TokenConstraint>(parse_grammar(kJson, "test"), vocabulary);
  ConstrainedText old(constraint, true), text(constraint, true);
  REQUIRE(old.accept("[{\"a\": ["));
  // Deeper and deeper: the states never recur.
  std::mt19937 random(1);
  for (int i = 0; i < 60'000; ++i) {
    REQUIRE(text.accept(random() % 2 == 0 ? "[1,[" : "{\"a\":"));
    text.allowed();
  }
  old.allowed();
  REQUIRE(old.accept("1]}]"));
  CHECK(old.may_end());
}

}  // namespace
}  // namespace lumen::text
