#include "lib/text/train/train_tokenizer.h"

#include <filesystem>

#include "lib/base/testing.h"
#include "lib/io/json.h"
#include "lib/io/mapped_file.h"
#include "lib/text/tokenizer.h"
#include "lib/text/vocabulary_files.h"

namespace lumen::text {
namespace {

using lumen::testing::contains;
using lumen::testing::refusal;

std::shared_ptr<const Tokenizer> trained(const std::vector<std::string_view>& texts,
                                         const TokenizerTraining& options) {
  return parse_files(make_tokenizer(texts, options));
}

TokenizerTraining training(TokenizerKind kind, int64_t vocab_size = 0) {
  TokenizerTraining options;
  options.kind = kind;
  options.vocab_size = vocab_size;
  return options;
}

constexpr std::string_view kText =
    "Der Fuchs läuft.  Two  spaces,\ttabs\nand\n\nlines; 日本語 and 😀, 123 tokens.\n"
    "the cat and the dog and the bird, the end of the story and the beginning of the other\n";

std::string round_trip(const Tokenizer& tokenizer, std::string_view text) {
  return tokenizer.decode(tokenizer.encode(text, {.add_special = false, .parse_special = false}));
}

TEST_CASE("characters become tokens by code point") {
  const auto tokenizer = trained({"banana\nb", " é"}, training(TokenizerKind::kCharacters));
  CHECK(tokenizer->vocab_size() == 7);
  CHECK(tokenizer->encode("\n abné", {.add_special = false}) ==
        std::vector<int32_t>{0, 1, 2, 3, 4, 5});
  CHECK(tokenizer->id_of("<|endoftext|>") == 6);
  CHECK(tokenizer->is_special(6));
  CHECK(tokenizer->special_ids().eos == 6);
  CHECK_FALSE(tokenizer->adds_bos());
  CHECK(tokenizer->encode("a<|endoftext|>") == std::vector<int32_t>{2, 6});
}

TEST_CASE("text comes back exactly") {
  const std::string text = std::string(kText) + " leading and trailing \n\n ";
  CHECK(round_trip(*trained({text}, training(TokenizerKind::kCharacters)), text) == text);
  for (const auto kind : {TokenizerKind::kByteLevelBpe, TokenizerKind::kSentencePieceUnigram,
                          TokenizerKind::kSentencePieceBpe}) {
    const auto tokenizer = trained({text}, training(kind, 330));
    INFO(tokenizer->kind());
    CHECK(round_trip(*tokenizer, text) == text);
    const std::string other = "Ünseen characters: ж Ω 🚀 \t\r\n  <s> ▁";
    if (kind == TokenizerKind::kByteLevelBpe) CHECK(round_trip(*tokenizer, other) == other);
    CHECK(tokenizer->encode("the cat", {.add_special = false}).size() < 7);
    CHECK(tokenizer->id_of("<|endoftext|>").has_value());
    CHECK(tokenizer->special_ids().eos == tokenizer->id_of("<|endoftext|>"));
    CHECK(
        tokenizer->encode("a<|endoftext|>", {.add_special = false, .parse_special = true}).back() ==
        tokenizer->special_ids().eos);
  }
}

TEST_CASE("a text without spaces and lines gives a tokenizer that is read and knows spaces") {
  std::string text;
  for (int i = 0; i < 5000; ++i) text += "abcdefgh";
  for (const auto kind : {TokenizerKind::kByteLevelBpe, TokenizerKind::kSentencePieceUnigram,
                          TokenizerKind::kSentencePieceBpe}) {
    const auto tokenizer = trained({text}, training(kind, 400));
    INFO(tokenizer->kind());
    for (const std::string& words : {std::string("two words"), text}) {
      CHECK(round_trip(*tokenizer, words) == words);
    }
  }
}

TEST_CASE("training gives the same tokenizer every time") {
  for (const auto kind : {TokenizerKind::kCharacters, TokenizerKind::kByteLevelBpe,
                          TokenizerKind::kSentencePieceUnigram, TokenizerKind::kSentencePieceBpe}) {
    const auto first = make_tokenizer({kText}, training(kind, 320));
    const auto second = make_tokenizer({kText}, training(kind, 320));
    REQUIRE(first.size() == second.size());
    for (size_t i = 0; i < first.size(); ++i) CHECK(first[i].content == second[i].content);
  }
}

// Programs that have tokenizer.json read it, others tokenizer.model.
TEST_CASE("both files of a sentencepiece tokenizer give the same tokens") {
  for (const auto kind : {TokenizerKind::kSentencePieceUnigram, TokenizerKind::kSentencePieceBpe}) {
    for (const bool with_bos : {false, true}) {
      TokenizerTraining options = training(kind, 330);
      options.special_tokens = {"<|endoftext|>", "<|start|>"};
      if (with_bos) options.bos = "<|start|>";
      const std::string directory = lumen::testing::temporary_directory();
      train_tokenizer({kText}, options, directory);
      const auto json = load_tokenizer(directory);
      std::filesystem::remove(directory + "/tokenizer.json");
      const auto model = load_tokenizer(directory);
      INFO(json->kind());
      REQUIRE(contains(json->kind(), "tokenizer.json"));
      REQUIRE(model->kind() == "sentencepiece");
      REQUIRE(json->vocab_size() == model->vocab_size());
      CHECK(json->adds_bos() == with_bos);
      CHECK(model->adds_bos() == with_bos);
      CHECK(json->special_ids().bos == model->special_ids().bos);
      CHECK(json->special_ids().eos == model->special_ids().eos);
      for (int32_t id = 0; id < json->vocab_size(); ++id) {
        REQUIRE(json->token_text(id) == model->token_text(id));
        REQUIRE(json->is_special(id) == model->is_special(id));
      }
      for (const std::string_view text :
           {kText, std::string_view("the"), std::string_view(" the"),
            std::string_view("  the   cat "), std::string_view("   "), std::string_view("\n"),
            std::string_view("\r\n\tthe\n\n cat"), std::string_view("Ünseen ж Ω 🚀 e\u0301 \u00A0"),
            std::string_view("the<|endoftext|>the <|endoftext|> cat<|endoftext|><|start|>\n<s>x"),
            std::string_view("<|endoftext|> 123456 <unk>aaaaaaaaaaaa"),
            std::string_view("▁the ▁▁ cat")}) {
        INFO(text);
        for (const bool parse : {false, true}) {
          const EncodeOptions how = {.add_special = true, .parse_special = parse};
          const auto ids = json->encode(text, how);
          CHECK(model->encode(text, how) == ids);
          if (!parse) CHECK(model->decode(ids, true) == json->decode(ids, true));
        }
      }
    }
  }
}

TEST_CASE("a limit on characters makes the rarest unknown") {
  const auto tokenizer = trained({"aaaabbbccd"}, training(TokenizerKind::kCharacters, 4));
  CHECK(tokenizer->vocab_size() == 4);  // a, b, <unk>, <|endoftext|>
  CHECK(tokenizer->encode("abcd", {.add_special = false}) == std::vector<int32_t>{0, 1, 2, 2});
}

TEST_CASE("BOS is put first where one is named") {
  for (const auto kind : {TokenizerKind::kCharacters, TokenizerKind::kByteLevelBpe,
                          TokenizerKind::kSentencePieceBpe}) {
    TokenizerTraining options = training(kind, 330);
    options.special_tokens = {"<|start|>", "<|end|>"};
    options.bos = "<|start|>";
    options.eos = "<|end|>";
    options.chat_template = "{{ messages[0].content }}";
    const auto tokenizer = trained({kText}, options);
    INFO(tokenizer->kind());
    CHECK(tokenizer->adds_bos());
    CHECK(tokenizer->special_ids().bos == tokenizer->id_of("<|start|>"));
    CHECK(tokenizer->encode("the").front() == tokenizer->id_of("<|start|>"));
    CHECK(contains(make_tokenizer({kText}, options).back().content, "messages[0].content"));
  }
}

TEST_CASE("special tokens in the text are not trained on") {
  const auto tokenizer = trained({"aa<|endoftext|>aa"}, training(TokenizerKind::kCharacters));
  CHECK(tokenizer->vocab_size() == 2);
}

// The reference of the shared data was made with the same rule for pairs that are equally frequent.
TEST_CASE("byte-level BPE merges what the reference merges") {
  LUMEN_SHARED_DATA(folder, "tokenizers/bpe-training-cs336");
  const std::string text = io::read_file(folder + "/corpus.en", 1 << 20);
  const auto files = make_tokenizer({text}, training(TokenizerKind::kByteLevelBpe, 500));
  const io::Json json = io::parse_json(files[0].content, "tokenizer.json");
  std::string merges;
  for (const io::Json& merge : json["model"]["merges"]) merges += merge.get<std::string>() + "\n";
  std::string expected = io::read_file(folder + "/train-bpe-reference-merges.txt", 1 << 20);
  if (!expected.ends_with('\n')) expected += '\n';
  CHECK(merges == expected);
}

TEST_CASE("tokenizer training refuses what cannot be") {
  const auto why = [](const std::vector<std::string_view>& texts, const TokenizerTraining& options,
                      ErrorKind kind = ErrorKind::kUsage) {
    return refusal(kind, [&] { make_tokenizer(texts, options); });
  };
  CHECK(
      contains(why({""}, training(TokenizerKind::kCharacters), ErrorKind::kMalformed), "no text"));
  CHECK(contains(why({""}, training(TokenizerKind::kSentencePieceBpe, 400), ErrorKind::kMalformed),
                 "no text"));
  CHECK(contains(why({"a", "\xFF"}, training(TokenizerKind::kCharacters), ErrorKind::kMalformed),
                 "text 2 is not UTF-8"));
  CHECK(contains(why({"abc"}, training(TokenizerKind::kCharacters, 2)), "no room"));
  CHECK(contains(why({"abc"}, training(TokenizerKind::kByteLevelBpe, 256)), "at least 257"));
  CHECK(contains(why({"abc"}, training(TokenizerKind::kByteLevelBpe)), "has to be given"));
  CHECK(contains(why({"abc"}, training(TokenizerKind::kSentencePieceBpe, 260)), "more than 260"));
  for (const auto kind : {TokenizerKind::kSentencePieceBpe, TokenizerKind::kSentencePieceUnigram}) {
    // a to i, ä, the point and "▁"
    CHECK(why({"abc def ghi ä. abc"}, training(kind, 262)) ==
          "vocab_size = 262 is too small for the characters of the text; 272 is enough: 259 for "
          "<unk>, <s>, </s> and the bytes, 1 special tokens, 12 characters");
    CHECK(trained({"abc def ghi ä. abc"}, training(kind, 272))->vocab_size() == 272);
  }
  TokenizerTraining options = training(TokenizerKind::kCharacters);
  options.pad = "<pad>";
  CHECK(contains(why({"abc"}, options), "pad is '<pad>'"));
  options.special_tokens = {"x", "x"};
  CHECK(contains(why({"abc"}, options), "named twice"));
  TokenizerTraining pieces = training(TokenizerKind::kSentencePieceBpe, 400);
  for (const char* token : {"</s>", "<0x0A>"}) {
    pieces.special_tokens = {"<|endoftext|>", token};
    CHECK(contains(why({"abc"}, pieces), "is one that sentencepiece has anyway; leave it out"));
  }
}

TEST_CASE("a text with fewer pieces than asked for gives fewer tokens") {
  const auto tokenizer = trained({"aaaa"}, training(TokenizerKind::kByteLevelBpe, 5000));
  CHECK(tokenizer->vocab_size() < 262);
}

}  // namespace
}  // namespace lumen::text
