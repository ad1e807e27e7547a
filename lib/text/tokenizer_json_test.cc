// Small tokenizers made on the spot: every component of tokenizer.json, and what is refused.
#include "lib/text/tokenizer_json.h"

#include "lib/base/error.h"
#include "lib/base/random.h"
#include "lib/base/testing.h"
#include "lib/text/byte_level.h"
#include "lib/text/vocabulary.h"

namespace lumen::text {
namespace {

using io::Json;
using Ids = std::vector<int32_t>;

std::shared_ptr<const Tokenizer> make(const Json& json) {
  return parse_tokenizer_json(json, {});
}

Json parse(const char* text) {
  return io::parse_json(text, "test");
}

// BPE with all byte tokens (id = byte), where words show: characters inside of words are spelled
// with '#' in front, and everything is spelled in bytes.
Json byte_model() {
  Json vocabulary = Json::object();
  for (int byte = 0; byte < 256; ++byte) vocabulary[byte_token(static_cast<uint8_t>(byte))] = byte;
  return {{"type", "BPE"},
          {"byte_fallback", true},
          {"continuing_subword_prefix", "#"},
          {"vocab", vocabulary},
          {"merges", Json::array()}};
}

// What the normalizer and pre-tokenizer make of a text: words joined by '|'.
std::string words(const Json& normalizer, const Json& pre_tokenizer, const std::string& text) {
  const auto tokenizer =
      make({{"normalizer", normalizer}, {"pre_tokenizer", pre_tokenizer}, {"model", byte_model()}});
  std::string bytes;
  for (const int32_t id : tokenizer->encode(text)) bytes += static_cast<char>(id);
  std::string out;
  bool inside = false;
  for (size_t pos = 0; pos < bytes.size(); inside = true) {
    if (bytes[pos] == '#') {
      ++pos;
    } else if (inside) {
      out += '|';
    }
    append_utf8(out, next_code_point(bytes, pos));
  }
  return out;
}

std::string normalized(const char* normalizer, const std::string& text) {
  return words(parse(normalizer), Json(), text);
}

std::string split(const char* pre_tokenizer, const std::string& text) {
  return words(Json(), parse(pre_tokenizer), text);
}

// A decoder over the tokens of a vocabulary that is a list of strings.
std::string decoded(const char* decoder, const std::vector<std::string>& tokens) {
  Json vocabulary = Json::object();
  Ids ids;
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (!vocabulary.contains(tokens[i])) vocabulary[tokens[i]] = i;
    ids.push_back(vocabulary[tokens[i]].get<int32_t>());
  }
  const auto tokenizer = make(
      {{"model", {{"type", "WordLevel"}, {"vocab", vocabulary}}}, {"decoder", parse(decoder)}});
  TokenStream stream(tokenizer);
  std::string streamed;
  for (const int32_t id : ids) {
    stream.push(id, streamed);
    CHECK(is_valid_utf8(streamed));
  }
  stream.finish(streamed);
  CHECK(streamed == tokenizer->decode(ids));
  return streamed;
}

ErrorKind json_refusal(const Json& json) {
  try {
    make(json);
  } catch (const Error& error) {
    return error.kind();
  }
  return ErrorKind::kInternal;
}

Json small_bpe() {
  return parse(R"({"model": {"type": "BPE", "unk_token": "?",
      "vocab": {"?": 0, "a": 1, "b": 2, "ab": 3, "abab": 4, "x": 5},
      "merges": ["a b", ["ab", "ab"]]}})");
}

}  // namespace

TEST_CASE("Normalizers rewrite the text", "[tokenizer_json]") {
  CHECK(normalized(R"({"type": "NFC"})", "e\u0301") == "\u00E9");
  CHECK(normalized(R"({"type": "Lowercase"})", "AÉ\u0130") == "aéi\u0307");
  CHECK(normalized(R"({"type": "StripAccents"})", "e\u0301x") == "ex");
  CHECK(normalized(R"({"type": "Strip"})", " \ta b\u3000") == "a b");
  CHECK(normalized(R"({"type": "Strip", "strip_left": false})", " a ") == " a");
  CHECK(normalized(R"({"type": "Prepend", "prepend": "_"})", "a") == "_a");
  CHECK(normalized(R"({"type": "Prepend", "prepend": "_"})", "") == "");
  CHECK(normalized(R"({"type": "Replace", "pattern": {"String": "ab"}, "content": "c"})", "aabb") ==
        "acb");
  CHECK(normalized(R"({"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": "_"})",
                   "a   b c") == "a_b c");
  CHECK(normalized(R"({"type": "Nmt"})",
                   "a\x01"
                   "b\u200Bc") == "ab c");
  CHECK(normalized(R"({"type": "ByteLevel"})", "é ") == "Ã©Ġ");
  CHECK(normalized(R"({"type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true,
                      "strip_accents": null, "lowercase": true})",
                   "É\x01\t漢") == "e  漢 ");
  CHECK(normalized(R"({"type": "Sequence", "normalizers": [{"type": "NFD"},
                      {"type": "StripAccents"}, {"type": "Lowercase"}]})",
                   "É") == "e");
}

TEST_CASE("Pre-tokenizers split the text", "[tokenizer_json]") {
  CHECK(split(R"({"type": "Whitespace"})", "it's 1½ ok") == "it|'|s|1|½|ok");
  CHECK(split(R"({"type": "WhitespaceSplit"})", " a  b. ") == "a|b.");
  CHECK(split(R"({"type": "BertPreTokenizer"})", "a,b c") == "a|,|b|c");
  CHECK(split(R"({"type": "Punctuation"})", "a..b") == "a|.|.|b");
  CHECK(split(R"({"type": "Punctuation", "behavior": "Contiguous"})", "a..b") == "a|..|b");
  CHECK(split(R"({"type": "Digits", "individual_digits": true})", "a12") == "a|1|2");
  CHECK(split(R"({"type": "Digits", "individual_digits": false})", "a12b") == "a|12|b");
  const auto scripts = [](const char* text) {
    return split(R"({"type": "UnicodeScripts"})", text);
  };
  CHECK(scripts("どこで生れ。Yes") == "どこで生れ|。|Yes");
  CHECK(scripts("  Ω 1a\u00A0 \u0301") == "Ω |1|a|\u00A0 |\u0301");
  CHECK(scripts("ab 12!?中あア한ー、x") == "ab |12!?|中あア|한|ー|、|x");
  CHECK(scripts("  ") == "");
  CHECK(split(R"({"type": "CharDelimiterSplit", "delimiter": "-"})", "a-b--c") == "a|b|c");
  CHECK(split(R"({"type": "FixedLength", "length": 2})", "abcde") == "ab|cd|e");
  CHECK(split(R"({"type": "ByteLevel", "add_prefix_space": true})", "it's ok") == "Ġit|'s|Ġok");
  const std::string delimiters = R"({"type": "Split", "pattern": {"String": "-"}, "behavior": )";
  const std::string text = "-a--b";
  const std::pair<const char*, const char*> kBehaviors[] = {
      {"\"Removed\"}", "a|b"},
      {"\"Isolated\"}", "-|a|-|-|b"},
      {"\"MergedWithPrevious\"}", "-|a-|-|b"},
      {"\"MergedWithNext\"}", "-a|-|-b"},
      {"\"Contiguous\"}", "-|a|--|b"},
      {"\"Removed\", \"invert\": true}", "-|-|-"}};
  for (const auto& [behavior, expected] : kBehaviors) {
    CHECK(split((delimiters + behavior).c_str(), text) == expected);
  }
}

TEST_CASE("Metaspace marks the first word by its scheme", "[tokenizer_json]") {
  const auto metaspace = [](const std::string& scheme, const std::string& text) {
    return split(
        (R"({"type": "Metaspace", "replacement": "▁", "prepend_scheme": ")" + scheme + R"("})")
            .c_str(),
        text);
  };
  CHECK(metaspace("always", "a b") == "▁a|▁b");
  CHECK(metaspace("never", "a b") == "a|▁b");
  CHECK(metaspace("first", " a") == "▁a");
  CHECK(split(R"({"type": "Sequence", "pretokenizers": [{"type": "Digits"},
                 {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first",
                  "split": false}]})",
              "a1 b") == "▁a|1|▁b");
}

TEST_CASE("Decoders join tokens, at once and token by token", "[tokenizer_json]") {
  CHECK(decoded("null", {"a", "b"}) == "a b");
  CHECK(decoded(R"({"type": "ByteLevel"})", {"Ã", "©Ġ", "Ã"}) == "é \uFFFD");
  CHECK(decoded(R"({"type": "Metaspace", "replacement": "▁"})", {"▁a", "▁b"}) == "a b");
  CHECK(decoded(R"({"type": "WordPiece"})", {"do", "##g", ",", "n't"}) == "dog,n't");
  CHECK(decoded(R"({"type": "BPEDecoder", "suffix": "</w>"})", {"a", "b</w>", "c</w>"}) == "ab c");
  CHECK(decoded(R"({"type": "CTC"})", {"a", "a", "<pad>", "a", "|", "b"}) == "aa b");
  const char* llama = R"({"type": "Sequence", "decoders": [
      {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"},
      {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]})";
  CHECK(decoded(llama, {"▁a", "<0xC3>", "<0xA9>", "▁b"}) == "aé b");
  // A run of bytes that is not UTF-8 as a whole loses every byte.
  CHECK(decoded(llama, {"▁", "<0xC3>", "<0xA9>", "<0xC3>"}) == "\uFFFD\uFFFD\uFFFD");
  CHECK(decoded(R"({"type": "Sequence", "decoders": [{"type": "Fuse"},
                   {"type": "Replace", "pattern": {"Regex": "a+"}, "content": "x"}]})",
                {"a", "ab", "a"}) == "xbx");
}

TEST_CASE("BPE merges, falls back and fuses", "[tokenizer_json]") {
  Json json = small_bpe();
  CHECK(make(json)->encode("ababab") == Ids{4, 3});
  CHECK(make(json)->encode("ayyb") == Ids{1, 0, 0, 2});
  json["model"]["fuse_unk"] = true;
  CHECK(make(json)->encode("ayyb") == Ids{1, 0, 2});
  json["model"]["ignore_merges"] = true;
  json["model"]["vocab"]["aba"] = 6;
  CHECK(make(json)->encode("aba") == Ids{6});
  json["model"]["unk_token"] = nullptr;
  CHECK(make(json)->encode("xyx") == Ids{5, 5});
}

TEST_CASE("Long words give the same ids as short ones", "[tokenizer_json]") {
  // Without a split the whole text is one word, cut only where no merge can join.
  const auto tokenizer = make(small_bpe());
  Philox random(3);
  std::string text;
  for (int i = 0; i < 20'000; ++i) text += "abx"[random.below(3)];
  Ids expected;
  for (size_t pos = 0; pos < text.size();) {
    const size_t end = std::min(text.find('x', pos), text.size());
    const Ids part = tokenizer->encode(text.substr(pos, end - pos));
    expected.insert(expected.end(), part.begin(), part.end());
    if (end < text.size()) expected.push_back(5);
    pos = end + 1;
  }
  CHECK(tokenizer->encode(text) == expected);
}

TEST_CASE("Unigram takes the best split", "[tokenizer_json]") {
  const auto tokenizer = make(parse(R"({"model": {"type": "Unigram", "unk_id": 0, "vocab": [
      ["<unk>", 0], ["a", -1], ["b", -1], ["ab", -1.5], ["abb", -4]]}})"));
  CHECK(tokenizer->encode("abb") == Ids{3, 2});
  CHECK(tokenizer->encode("ayyb") == Ids{1, 0, 2});
}

TEST_CASE("WordPiece takes the longest match", "[tokenizer_json]") {
  const auto tokenizer = make(parse(R"({"pre_tokenizer": {"type": "WhitespaceSplit"},
      "model": {"type": "WordPiece", "unk_token": "[UNK]", "max_input_chars_per_word": 4,
      "vocab": {"[UNK]": 0, "un": 1, "##do": 2, "##d": 3}}})"));
  CHECK(tokenizer->encode("undo und uno undodo") == Ids{1, 2, 1, 3, 0, 0});
}

TEST_CASE("Added tokens are found before the model", "[tokenizer_json]") {
  Json json = small_bpe();
  json["added_tokens"] = parse(R"([
      {"id": 6, "content": "<s>", "special": true},
      {"id": 7, "content": "<s>>", "special": false, "normalized": false},
      {"id": 8, "content": "[M]", "special": true, "lstrip": true, "rstrip": true},
      {"id": 9, "content": "word", "special": false, "single_word": true},
      {"id": 10, "content": "\n", "normalized": false, "lstrip": true, "rstrip": true}])");
  const auto tokenizer = make(json);
  CHECK(tokenizer->vocab_size() == 11);
  CHECK(tokenizer->encode("a<s>b") == Ids{1, 6, 2});
  CHECK(tokenizer->encode("a<s>>b") == Ids{1, 7, 2});
  CHECK(tokenizer->encode("a  [M] b") == Ids{1, 8, 2});
  CHECK(tokenizer->encode("a[M]\n\nb") == Ids{1, 8, 2});  // tokenizers 0.23.3: no empty tokens
  CHECK(tokenizer->encode("a\n\n\nb") == Ids{1, 10, 2});
  CHECK(tokenizer->encode("a word").back() == 9);
  CHECK(tokenizer->encode("words").back() != 9);
  CHECK(tokenizer->encode("<s>", {.parse_special = false}) == Ids{0, 0, 0});
  CHECK(tokenizer->decode(Ids{1, 6, 2}) == "a <s> b");
  CHECK(tokenizer->decode(Ids{1, 6, 99, -5, 2}, true) == "a b");
  CHECK(tokenizer->is_special(6));
  CHECK_FALSE(tokenizer->is_special(7));
  CHECK(tokenizer->id_of("<s>>") == 7);
  CHECK(tokenizer->id_of("none") == std::nullopt);
}

TEST_CASE("Post-processors frame the text", "[tokenizer_json]") {
  Json json = small_bpe();
  json["post_processor"] = parse(R"({"type": "TemplateProcessing",
      "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A"}}],
      "special_tokens": {"<s>": {"id": "<s>", "ids": [5], "tokens": ["<s>"]}}})");
  CHECK(make(json)->encode("a") == Ids{5, 1});
  CHECK(make(json)->encode("a", {.add_special = false}) == Ids{1});
  CHECK(make(json)->adds_bos());
  json["post_processor"] =
      parse(R"({"type": "RobertaProcessing", "cls": ["x", 5], "sep": ["?", 0]})");
  CHECK(make(json)->encode("a") == Ids{5, 1, 0});
}

TEST_CASE("Byte-level text comes back as it was", "[tokenizer_json]") {
  Json vocabulary = Json::object();
  for (int byte = 0; byte < 256; ++byte) {
    vocabulary[std::string(byte_character(static_cast<uint8_t>(byte)))] = byte;
  }
  vocabulary["Ġt"] = 256;
  const auto tokenizer =
      make({{"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}}},
            {"decoder", {{"type", "ByteLevel"}}},
            {"model", {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", Json::array({"Ġ t"})}}}});
  Philox random(11);
  for (int round = 0; round < 500; ++round) {
    std::string text;
    for (uint64_t i = random.below(60); i > 0; --i) {
      uint32_t c = random.below(2) == 0 ? 32 + static_cast<uint32_t>(random.below(96))
                                        : static_cast<uint32_t>(random.below(0x11000));
      if (c - 0xD800 < 0x800) c = ' ';
      append_utf8(text, c);
    }
    const Ids ids = tokenizer->encode(text);
    CHECK(tokenizer->decode(ids) == text);
  }
  CHECK(tokenizer->encode(" t\xFF") == Ids{256, 0xEF, 0xBF, 0xBD});
}

TEST_CASE("What is wrong is refused", "[tokenizer_json]") {
  const auto with = [](const char* key, Json value) {
    Json json = small_bpe();
    json["model"][key] = std::move(value);
    return json;
  };
  CHECK(json_refusal(Json::object()) == ErrorKind::kMalformed);
  CHECK(json_refusal(with("type", "Magic")) == ErrorKind::kUnsupported);
  CHECK(json_refusal(with("merges", Json::array({"a zz"}))) == ErrorKind::kMalformed);
  CHECK(json_refusal(with("merges", Json::array({"a"}))) == ErrorKind::kMalformed);
  CHECK(json_refusal(with("merges", Json::array({"a b c"}))) == ErrorKind::kMalformed);
  CHECK(json_refusal(with("merges", Json::array({7}))) == ErrorKind::kMalformed);
  CHECK(json_refusal(with("merges", Json::array({Json::array({"a"})}))) == ErrorKind::kMalformed);
  CHECK(json_refusal(with("merges", "a b")) == ErrorKind::kMalformed);
  CHECK(json_refusal(with("vocab", Json::array())) == ErrorKind::kMalformed);
  CHECK(json_refusal(with("vocab", parse(R"({"a": -1})"))) == ErrorKind::kMalformed);
  CHECK(json_refusal(with("vocab", parse(R"({"a": 99999999999})"))) == ErrorKind::kMalformed);
  CHECK(json_refusal(with("vocab", parse(R"({"a": "b"})"))) == ErrorKind::kMalformed);
  CHECK(json_refusal(with("vocab", Json{{std::string(5000, 'a'), 0}})) == ErrorKind::kMalformed);
  CHECK(json_refusal(with("fuse_unk", 7)) == ErrorKind::kMalformed);
  for (const char* part : {"normalizer", "pre_tokenizer", "post_processor", "decoder"}) {
    Json json = small_bpe();
    json[part] = parse(R"({"type": "Magic"})");
    CHECK(json_refusal(json) == ErrorKind::kUnsupported);
    json[part] = parse(R"({"type": 5})");
    CHECK(json_refusal(json) == ErrorKind::kMalformed);
    json[part] = parse(R"([])");
    CHECK(json_refusal(json) == ErrorKind::kMalformed);
  }
  Json json = small_bpe();
  json["normalizer"] = parse(R"({"type": "Precompiled", "precompiled_charsmap": "AAA="})");
  CHECK(json_refusal(json) == ErrorKind::kMalformed);
  json["normalizer"] = parse(R"({"type": "Precompiled", "precompiled_charsmap": "!"})");
  CHECK(json_refusal(json) == ErrorKind::kMalformed);
}

}  // namespace lumen::text
