// Vocabularies of Hugging Face directories as keys of GGUF files.
#include "lib/text/gguf_keys.h"

#include <filesystem>

#include "lib/base/testing.h"
#include "lib/io/atomic_file.h"
#include "lib/io/test_files.h"
#include "lib/text/byte_level.h"
#include "lib/text/gguf_files.h"
#include "lib/text/gguf_pre_tokenizer.h"
#include "lib/text/gguf_vocabulary.h"
#include "lib/text/tokenizer.h"
#include "lib/text/train/train_tokenizer.h"

namespace lumen::text {
namespace {

using lumen::testing::contains;
using lumen::testing::refusal;
using lumen::testing::temporary_directory;
using Ids = std::vector<int32_t>;

constexpr std::string_view kCorpus =
    "The cat and the dog, the bird and the other 12 cats.\n\n  They'll say: naïve café, 東京!\n"
    "for (int i = 0; i < 10; ++i) {\n\treturn i;\n}\n the end of the story <s> <0x41>\n";

const std::string_view kTexts[] = {
    "",
    "the",
    " the",
    "   the  cat ",
    "\n",
    "\n\n the\r\n\tcat \n",
    "They'LL say 1234567 and 3.14",
    "naïve 東京 Москва 🙂🏽 \u00A0x",
    "for (int i = 0; i < 10; ++i) {\n    return \"it's\";\n}",
    "<s>x</s><unk><0x41> [INST]",
};

std::shared_ptr<const Tokenizer> tokenizer_of(const io::GgufWriter& writer) {
  return load_tokenizer(*io::parse_gguf(io::buffer_of(writer.header()), "test"));
}

io::ModelFiles model_in(const std::string& directory, int64_t rows) {
  io::ModelFiles model;
  model.path = directory;
  model.config = {{"vocab_size", rows}};
  return model;
}

// A directory with a tokenizer trained on kCorpus, of whose tokenizer.json `change` may alter
// parts.
std::string trained(TokenizerKind kind, const std::function<void(io::Json&)>& change = {}) {
  TokenizerTraining options;
  options.kind = kind;
  options.vocab_size = kind == TokenizerKind::kCharacters ? 0 : 330;
  options.special_tokens = {"<|im_start|>", "<|im_end|>"};
  options.eos = "<|im_end|>";
  const std::string directory = temporary_directory();
  train_tokenizer({kCorpus}, options, directory);
  if (change) {
    const std::string path = directory + "/tokenizer.json";
    io::Json json = io::read_json(path);
    change(json);
    io::write_file_atomically(path, json.dump());
  }
  return directory;
}

// The same ids for all texts, or with `exact` false for those without control tokens that do not
// begin with a space.
void check_same(const Tokenizer& a, const Tokenizer& b, bool exact) {
  for (const std::string_view text : kTexts) {
    INFO(text);
    const std::string inside = str("x", text);
    const EncodeOptions plain = {.add_special = true, .parse_special = false};
    const Ids ids = a.encode(inside, plain);
    REQUIRE(b.encode(inside, plain) == ids);
    CHECK(b.decode(ids) == a.decode(ids));
    if (!exact) continue;
    REQUIRE(b.encode(text, plain) == a.encode(text, plain));
    for (int32_t id = 0; id < a.vocab_size(); ++id) {
      if (!a.is_special(id)) continue;
      const std::string around = str(text, a.token_text(id), text, " ", a.token_text(id), "\n");
      REQUIRE(b.encode(around) == a.encode(around));
    }
  }
}

// `spelled`: tokens that are characters here have those of their bytes there.
void check_round_trip(const std::string& directory, const std::string& kind, bool spelled = false) {
  const auto original = load_tokenizer(directory);
  constexpr int32_t kSpare = 7;
  io::ModelFiles model = model_in(directory, original->vocab_size() + kSpare);
  const int32_t start = *original->id_of("<|im_start|>");
  model.end_tokens = {{*original->special_ids().eos, "test"}, {start, "test"}};
  model.chat_templates = {{"default", "a"}, {"tool_use", "b"}};
  io::GgufWriter writer;
  CHECK(set_gguf_tokenizer(model, writer).empty());
  const auto file = io::parse_gguf(io::buffer_of(writer.header()), "test");
  const auto copy = load_tokenizer(*file);
  CHECK(copy->kind() == kind);
  CHECK(copy->vocab_size() == original->vocab_size() + kSpare);
  CHECK(copy->adds_bos() == original->adds_bos());
  CHECK(copy->special_ids().eos == original->special_ids().eos);
  CHECK(copy->end_tokens() == Ids{*original->special_ids().eos, start});
  CHECK(file->metadata.get_string("tokenizer.chat_template") == "a");
  CHECK(file->metadata.get_string("tokenizer.chat_template.tool_use") == "b");
  const GgufVocabulary vocabulary = read_gguf_vocabulary(*file);
  CHECK(vocabulary.is(copy->vocab_size() - 1, GgufTokenType::kUnused));
  CHECK(vocabulary.is(start, GgufTokenType::kControl));
  for (int32_t id = 0; id < original->vocab_size(); ++id) {
    std::string text(copy->token_text(id));
    if (spelled && !copy->is_special(id)) text = *bytes_of_spelling(text);
    REQUIRE(text == original->token_text(id));
  }
  check_same(*original, *copy, true);
  // And back, in files of a directory.
  const std::string again = temporary_directory();
  for (const TokenizerFile& each : tokenizer_files(*file)) {
    io::write_file_atomically(again + "/" + each.name, each.content);
  }
  check_same(*original, *load_tokenizer(again), true);
}

io::Json split_by(const std::string& pattern) {
  return {{"type", "Split"},
          {"pattern", {{"Regex", pattern}}},
          {"behavior", "Isolated"},
          {"invert", false}};
}

io::Json byte_level(bool use_regex) {
  return {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", use_regex}};
}

// cl100k's split as Hugging Face files have it.
std::string cl100k(const std::string& number) {
  return R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|)" + number +
         R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
}

// The same of o200k's and Tekken's.
std::string o200k_words(const std::string& ending, const std::string& number) {
  const std::string upper = R"([\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}])", lead = R"([^\r\n\p{L}\p{N}]?)";
  const std::string lower = R"([\p{Ll}\p{Lm}\p{Lo}\p{M}])";
  return lead + upper + "*" + lower + "+" + ending + "|" + lead + upper + "+" + lower + "*" +
         ending + "|" + number + R"(| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
}

io::Json sequence(const io::Json& first, const io::Json& second) {
  return {{"type", "Sequence"}, {"pretokenizers", io::Json::array({first, second})}};
}

}  // namespace

TEST_CASE("trained vocabularies keep their tokens in GGUF") {
  check_round_trip(trained(TokenizerKind::kByteLevelBpe), "GGUF gpt2, gpt-2");
  const std::string characters = trained(TokenizerKind::kCharacters);
  check_round_trip(characters, "GGUF gpt2, gpt-2", true);
  const std::string pieces = trained(TokenizerKind::kSentencePieceBpe);
  check_round_trip(pieces, "GGUF llama");
  std::filesystem::remove(pieces + "/tokenizer.json");
  check_round_trip(pieces, "GGUF llama");
}

TEST_CASE("a split of words is found under the name that GGUF has for it") {
  const auto name_of = [](const io::Json& json, bool ignore_merges) {
    return gguf_pre_tokenizer_name(*parse_pre_tokenizer(json), ignore_merges);
  };
  const io::Json digits = {{"type", "Digits"}, {"individual_digits", true}};
  CHECK(name_of(byte_level(true), false) == "gpt-2");
  CHECK(name_of(sequence(digits, byte_level(true)), false) == "smollm");
  const io::Json llama3 = sequence(split_by(cl100k(R"(\p{N}{1,3})")), byte_level(false));
  CHECK(name_of(llama3, true) == "llama-bpe");
  CHECK(name_of(llama3, false) == "dbrx");
  CHECK(name_of(sequence(split_by(cl100k(R"(\p{N})")), byte_level(false)), false) == "qwen2");
  CHECK(name_of(sequence(split_by(cl100k(R"(\p{N}{1,2})")), byte_level(false)), false).empty());
  CHECK(name_of(byte_level(false), false).empty());
  // As the published files of gpt-oss and Mistral, of Tiny Aya and of K-EXAONE have them.
  const io::Json o200k = split_by(o200k_words("(?i:'s|'t|'re|'ve|'m|'ll|'d)?", R"(\p{N}{1,3})"));
  const io::Json threes = split_by(R"(\d{1,3}(?=(?:\d{3})*\b))");
  const io::Json tekken = sequence(split_by(o200k_words("", R"(\p{N})")), byte_level(false));
  for (const bool ignore_merges : {true, false}) {  // which are the one or the other there
    CHECK(name_of(tekken, ignore_merges) == "tekken");
    CHECK(name_of(sequence(o200k, byte_level(false)), ignore_merges) == "gpt-4o");
  }
  CHECK(name_of(sequence(threes, sequence(o200k, byte_level(false))), false) == "tiny_aya");
  const io::Json phrases = split_by(
      R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N})"
      R"(| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+)");
  CHECK(name_of(sequence(phrases, byte_level(false)), false) == "exaone-moe");
}

TEST_CASE("every name that is written is read as the same split") {
  for (const char* name : {"gpt-2", "smollm", "llama-bpe", "qwen2", "tekken", "gpt-4o",
                           "deepseek-llm", "tiny_aya", "kimi-k2", "youtu", "exaone-moe", "afmoe",
                           "jais-2", "superbpe", "laguna", "ufakzeka", "spark2_5"}) {
    const GgufPreTokenizer pre = gguf_pre_tokenizer(name);
    CHECK(gguf_pre_tokenizer_name(*pre.split, pre.ignore_merges) == name);
  }
}

namespace {

std::vector<std::string> words_of(const char* pre_tokenizer, const std::string& text) {
  Words words;
  words.text = text;
  words.spans.push_back({0, static_cast<uint32_t>(words.text.size())});
  gguf_pre_tokenizer(pre_tokenizer).split->apply(words);
  std::vector<std::string> found;
  for (const auto& span : words.spans) {
    found.push_back(words.text.substr(span.begin, span.end - span.begin));
  }
  return found;
}

}  // namespace

using Pieces = std::vector<std::string>;

TEST_CASE("numbers are split from their end for Trinity and SuperBPE") {
  CHECK(words_of("afmoe", "1234567x123y45") == Pieces{"1", "234", "567", "x", "123", "y", "45"});
  CHECK(words_of("superbpe", "It's,1234567x!123y45") ==
        Pieces{"It's,", "1", "234", "567", "x!", "123", "y", "45"});
  CHECK(words_of("laguna", "a.b12") == Pieces{"a", ".b", "1", "2"});
}

TEST_CASE("spaces are split into pieces of powers of two for Jais 2") {
  CHECK(words_of("jais-2", "a" + std::string(14, ' ') + "b 1234") ==
        Pieces{"a", "ĠĠĠĠĠĠĠĠ", "ĠĠĠĠ", "Ġ", "Ġb", "Ġ", "123", "4"});
}

TEST_CASE(
    "names of llama.cpp for splits that others have too are known, with their rules for merges") {
  for (const char* name : {"glm4", "glm5", "minicpm5", "youtu", "jina-v5-nano"}) {
    INFO(name);
    CHECK(gguf_pre_tokenizer(name).ignore_merges);
  }
  for (const char* name : {"chatglm-bpe", "f2llmv2", "hy_v4", "talkie", "cohere2moe", "kimi-k2"}) {
    INFO(name);
    CHECK_FALSE(gguf_pre_tokenizer(name).ignore_merges);
  }
}

// Characters other than ASCII that the vocabulary lacks are bytes there, and one unknown token
// here.
TEST_CASE("unigram vocabularies keep their tokens in GGUF") {
  const std::string directory = trained(TokenizerKind::kSentencePieceUnigram);
  for (const bool json : {true, false}) {
    if (!json) std::filesystem::remove(directory + "/tokenizer.json");
    const auto original = load_tokenizer(directory);
    constexpr int32_t kSpare = 3;
    io::GgufWriter writer;
    const auto notes =
        set_gguf_tokenizer(model_in(directory, original->vocab_size() + kSpare), writer);
    CAPTURE(notes);
    REQUIRE(notes.size() == 2);
    CHECK(contains(notes[0], "characters that its vocabulary lacks, unless they are ASCII"));
    CHECK(contains(notes[1], "nothing but spaces"));
    const auto file = io::parse_gguf(io::buffer_of(writer.header()), "test");
    const auto copy = load_tokenizer(*file);
    CHECK(copy->kind() == "GGUF t5");
    CHECK(copy->adds_bos() == original->adds_bos());
    CHECK(copy->special_ids().eos == original->special_ids().eos);
    CHECK(copy->special_ids().unk == original->special_ids().unk);
    const GgufVocabulary vocabulary = read_gguf_vocabulary(*file);
    CHECK(vocabulary.is(*original->id_of("<0xE6>"), GgufTokenType::kByte));
    CHECK(vocabulary.is(copy->vocab_size() - 1, GgufTokenType::kUnused));
    const std::string again = temporary_directory();
    for (const TokenizerFile& each : tokenizer_files(*file)) {
      io::write_file_atomically(again + "/" + each.name, each.content);
    }
    const auto returned = load_tokenizer(again);
    CHECK(returned->kind() == "Unigram (tokenizer.json)");
    const int32_t unknown = *original->special_ids().unk;
    for (const std::string_view text : kTexts) {
      // tokenizer.json makes a byte of text that spells it, if it lacks one of the characters.
      if (json && text.find("<0x41>") != text.npos) continue;
      for (const std::string& each :
           {std::string(text), str("x", text, "\t[PAD", original->vocab_size() + 1, "] ~^{|")}) {
        INFO(each);
        for (const bool parse : {false, true}) {
          const EncodeOptions how = {.add_special = true, .parse_special = parse};
          Ids expected;
          for (const int32_t id : original->encode(each, how)) {
            if (!vocabulary.is(id, GgufTokenType::kByte)) {
              expected.push_back(id);
            } else if (expected.empty() || expected.back() != unknown) {
              expected.push_back(unknown);
            }
          }
          REQUIRE(copy->encode(each, how) == expected);
          REQUIRE(returned->encode(each, how) == expected);
        }
      }
    }
    for (const std::string_view spaces : {" ", "   "}) {
      CHECK(returned->encode(spaces) == copy->encode(spaces));
    }
    for (int32_t id = 0; id < original->vocab_size(); ++id) {
      if (original->is_special(id)) continue;  // the library gives no name, or " ⁇ "
      const Ids one = {*original->id_of("▁"), id};
      REQUIRE(copy->decode(one) == original->decode(one));
      REQUIRE(returned->decode(one) == original->decode(one));
    }
  }
}

// With a character map, and spaces in a row as one; an end token behind every text.
TEST_CASE("T5's vocabularies keep their tokens in GGUF") {
  LUMEN_SHARED_DATA(root, "tokenizers");
  const std::string json = temporary_directory(), pieces = temporary_directory();
  std::filesystem::copy_file(root + "/hf/t5-small-compact/tokenizer.json",
                             json + "/tokenizer.json");
  std::filesystem::copy_file(root + "/spm/t5-small.model", pieces + "/tokenizer.model");
  io::write_file_atomically(json + "/tokenizer_config.json", R"({"eos_token": "</s>"})");
  for (const std::string& directory : {json, pieces}) {
    INFO(directory);
    const auto original = load_tokenizer(directory);
    io::GgufWriter writer;
    const auto notes = set_gguf_tokenizer(model_in(directory, original->vocab_size()), writer);
    // The library adds scores up as float32.
    const bool is_json = directory == json;
    REQUIRE(notes.size() == (is_json ? 0 : 1));
    if (!is_json) CHECK(contains(notes[0], "equally likely"));
    const auto file = io::parse_gguf(io::buffer_of(writer.header()), "test");
    const auto copy = load_tokenizer(*file);
    CHECK(copy->kind() == "GGUF t5");
    CHECK(file->metadata.get_bool("tokenizer.ggml.remove_extra_whitespaces", false));
    CHECK(file->metadata.find("tokenizer.ggml.precompiled_charsmap")->size() > 10'000);
    const std::string again = temporary_directory();
    for (const TokenizerFile& each : tokenizer_files(*file)) {
      io::write_file_atomically(again + "/" + each.name, each.content);
    }
    const auto returned = load_tokenizer(again);
    for (const std::string_view text : kTexts) {
      INFO(text);
      for (const std::string& each : {std::string(text), str(text, "</s>", text, "  ﬁ\t①½ x")}) {
        const Ids ids = original->encode(each, {.add_special = true, .parse_special = true});
        CHECK(copy->encode(each) == ids);
        CHECK(returned->encode(each) == ids);
        CHECK(ids.back() == 1);
      }
    }
  }
}

TEST_CASE("what GGUF cannot say of a vocabulary is told") {
  const auto notes = [](const std::string& directory, bool spaces_agree = true) {
    io::GgufWriter writer;
    const auto original = load_tokenizer(directory);
    const auto told = set_gguf_tokenizer(model_in(directory, original->vocab_size()), writer);
    if (spaces_agree) check_same(*original, *tokenizer_of(writer), false);
    return told;
  };
  const auto normalized = notes(trained(TokenizerKind::kByteLevelBpe, [](io::Json& json) {
    json["normalizer"] = {{"type", "NFC"}};
  }));
  REQUIRE(normalized.size() == 1);
  CHECK(contains(normalized[0], "NFC"));
  // Sentencepiece's own rules.
  const auto collapsed =
      notes(trained(TokenizerKind::kSentencePieceBpe,
                    [](io::Json& json) {
                      io::Json& parts = json["normalizer"]["normalizers"];
                      parts.insert(parts.begin(), io::Json({{"type", "Replace"},
                                                            {"pattern", {{"Regex", " {2,}"}}},
                                                            {"content", " "}}));
                    }),
            false);
  REQUIRE(collapsed.size() == 1);
  CHECK(contains(collapsed[0], "in a row"));
  // Mistral's way: a space only before the whole text.
  const auto first = notes(trained(TokenizerKind::kSentencePieceBpe, [](io::Json& json) {
    json["normalizer"] = nullptr;
    json["pre_tokenizer"] = {
        {"type", "Metaspace"}, {"replacement", "▁"}, {"prepend_scheme", "first"}, {"split", false}};
  }));
  REQUIRE(first.size() == 2);
  CHECK(contains(first[0], "beginning"));
  CHECK(contains(first[1], "control tokens"));
}

TEST_CASE("vocabularies that GGUF does not have are refused") {
  const auto why = [](const std::string& directory, ErrorKind kind = ErrorKind::kUnsupported,
                      int64_t rows = 400) {
    return refusal(kind, [&] {
      io::GgufWriter writer;
      set_gguf_tokenizer(model_in(directory, rows), writer);
    });
  };
  const auto unigram = [&](const std::function<void(io::Json&)>& change) {
    return why(trained(TokenizerKind::kSentencePieceUnigram, change));
  };
  CHECK(contains(unigram([](io::Json& json) { json["model"]["unk_id"] = nullptr; }),
                 "without a token for what is unknown"));
  CHECK(contains(unigram([](io::Json& json) { json["normalizer"] = nullptr; }),
                 "cannot say what this tokenizer does"));
  // Readers count from another score for what is unknown: "☃" has no token.
  CHECK(contains(unigram([](io::Json& json) { json["model"]["vocab"][300][0] = "th☃"; }),
                 "token 'th☃' holds '☃', which is no token, cannot be written"));
  CHECK(contains(why(trained(TokenizerKind::kCharacters,
                             [](io::Json& json) { json["model"]["unk_token"] = "a"; })),
                 "without bytes as fallback"));
  CHECK(contains(why(trained(TokenizerKind::kByteLevelBpe), ErrorKind::kMismatch, 100),
                 "do not belong together"));
  CHECK(contains(
      why(trained(TokenizerKind::kByteLevelBpe,
                  [](io::Json& json) {
                    json["pre_tokenizer"] = sequence({{"type", "Digits"}}, byte_level(true));
                  })),
      "tokenizer.ggml.pre"));
  CHECK(contains(why(trained(TokenizerKind::kByteLevelBpe,
                             [](io::Json& json) {
                               json["normalizer"] = {{"type", "Lowercase"}};
                             })),
                 "cannot say what this tokenizer does"));
}

TEST_CASE("the tokenizers of published models keep their tokens in GGUF") {
  LUMEN_SHARED_DATA(root, "tokenizers/hf");
  const std::pair<const char*, const char*> vocabularies[] = {
      {"gpt2", "GGUF gpt2, gpt-2"},
      {"llama-2", "GGUF llama"},
      {"llama-3.2-1b-instruct", "GGUF gpt2, llama-bpe"},
      {"minimind", "GGUF gpt2, gpt-2"},
      {"mistral-7b-v0.1", "GGUF llama"},
      {"phi-3-mini", "GGUF llama"},
      {"qwen2.5-instruct", "GGUF gpt2, qwen2"},
      {"smollm2", "GGUF gpt2, smollm"},
  };
  for (const auto& [name, kind] : vocabularies) {
    INFO(name);
    const std::string directory = str(root, "/", name);
    const auto original = load_tokenizer(directory);
    io::GgufWriter writer;
    const auto notes = set_gguf_tokenizer(model_in(directory, original->vocab_size() + 64), writer);
    const auto copy = tokenizer_of(writer);
    CHECK(copy->kind() == kind);
    CHECK(copy->adds_bos() == original->adds_bos());
    check_same(*original, *copy, notes.empty());
  }
}

}  // namespace lumen::text
