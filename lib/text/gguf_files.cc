#include "lib/text/gguf_files.h"

#include <algorithm>
#include <bit>

#include "lib/base/error.h"
#include "lib/base/strings.h"
#include "lib/text/byte_level.h"
#include "lib/text/gguf_pre_tokenizer.h"
#include "lib/text/gguf_vocabulary.h"
#include "lib/text/tokenizer_formats.h"
#include "lib/text/train/trainers.h"
#include "lib/text/utf8.h"

namespace lumen::text {
namespace {

// Tokens of a type, which a text may spell, in the order of their ids.
std::vector<std::string> tokens_of(const GgufVocabulary& vocabulary, GgufTokenType type) {
  std::vector<std::string> tokens;
  for (int32_t id = 0; id < vocabulary.tokens->size(); ++id) {
    if (vocabulary.is(id, type)) {
      tokens.emplace_back(vocabulary.tokens->text(id));
    }
  }
  return tokens;
}

// The token that is put before every text, or "".
std::string first_token(const GgufVocabulary& vocabulary, const Tokenizer& tokenizer) {
  if (!tokenizer.adds_bos()) return "";
  return std::string(vocabulary.tokens->text(*tokenizer.special_ids().bos));
}

// Byte-pair encoding with the merges of the file, without fallback for what is unknown.
io::Json merging_model(const io::GgufFile& file, const GgufVocabulary& vocabulary) {
  io::Json vocab = io::Json::object();
  for (int32_t id = 0; id < vocabulary.tokens->size(); ++id) {
    append_member(vocab, std::string(vocabulary.tokens->text(id)), id);
  }
  io::Json merges = io::Json::array();
  if (const auto list = file.metadata.find("tokenizer.ggml.merges")) {
    for (size_t i = 0; i < list->size(); ++i) merges.push_back(std::string(list->string_at(i)));
  }
  return bpe_model(std::move(vocab), std::move(merges));
}

// Whether all tokens that a text may spell are single characters, spelled in bytes.
bool has_characters_alone(const GgufVocabulary& vocabulary) {
  const std::vector<std::string> tokens = tokens_of(vocabulary, GgufTokenType::kNormal);
  return std::all_of(tokens.begin(), tokens.end(), [](const std::string& token) {
    const auto bytes = bytes_of_spelling(token);
    return bytes && is_one_character(*bytes);
  });
}

// Of such a vocabulary, which needs no merges: tokenizers asks that all they make are tokens.
std::string character_bpe(const GgufVocabulary& vocabulary, const Tokenizer& tokenizer) {
  io::Json vocab = io::Json::object();
  for (int32_t id = 0; id < vocabulary.tokens->size(); ++id) {
    const std::string token(vocabulary.tokens->text(id));
    const bool is_normal = vocabulary.is(id, GgufTokenType::kNormal);
    append_member(vocab, is_normal ? *bytes_of_spelling(token) : token, id);
  }
  TokenizerJson parts = parts_of_characters(std::move(vocab));
  parts.special_tokens = tokens_of(vocabulary, GgufTokenType::kControl);
  parts.user_defined = tokens_of(vocabulary, GgufTokenType::kUserDefined);
  parts.bos = first_token(vocabulary, tokenizer);
  return tokenizer_json(std::move(parts));
}

std::string byte_level_bpe(const io::GgufFile& file, const GgufVocabulary& vocabulary,
                           const Tokenizer& tokenizer) {
  const GgufPreTokenizer pre = gguf_pre_tokenizer(vocabulary.pre);
  io::Json parts = io::Json::array();
  for (const std::string& pattern : pre.patterns) {
    parts.push_back({{"type", "Split"},
                     {"pattern", {{"Regex", pattern}}},
                     {"behavior", "Isolated"},
                     {"invert", false}});
  }
  const io::Json byte_level = {{"type", "ByteLevel"},
                               {"add_prefix_space", false},
                               {"trim_offsets", true},
                               {"use_regex", false}};
  parts.push_back(byte_level);
  io::Json model = merging_model(file, vocabulary);
  model["ignore_merges"] = pre.ignore_merges;
  return tokenizer_json(
      {.model = std::move(model),
       .normalizer = nullptr,
       .pre_tokenizer = {{"type", "Sequence"}, {"pretokenizers", std::move(parts)}},
       .decoder = byte_level,
       .special_tokens = tokens_of(vocabulary, GgufTokenType::kControl),
       .user_defined = tokens_of(vocabulary, GgufTokenType::kUserDefined),
       .bos = first_token(vocabulary, tokenizer)});
}

// Gemma 4's: characters, or their bytes, with marks for spaces, and the merges.
std::string marked_bpe(const io::GgufFile& file, const GgufVocabulary& vocabulary,
                       const Tokenizer& tokenizer) {
  io::Json model = merging_model(file, vocabulary);
  model["byte_fallback"] = model["fuse_unk"] = true;
  if (const auto unk = tokenizer.special_ids().unk) {
    model["unk_token"] = std::string(vocabulary.tokens->text(*unk));
  }
  TokenizerJson parts;
  parts.model = std::move(model);
  parts.special_tokens = tokens_of(vocabulary, GgufTokenType::kControl);
  parts.user_defined = tokens_of(vocabulary, GgufTokenType::kUserDefined);
  parts.bos = first_token(vocabulary, tokenizer);
  set_space_marks(vocabulary.add_space_prefix, parts);
  return tokenizer_json(std::move(parts));
}

// A protobuf message, field by field.
class Message {
 public:
  void add(uint32_t field, uint64_t value) {
    append_varint(field << 3);
    append_varint(value);
  }
  void add(uint32_t field, float value) {
    append_varint(field << 3 | 5);
    const auto bits = std::bit_cast<uint32_t>(value);
    for (int shift = 0; shift < 32; shift += 8) bytes_ += static_cast<char>(bits >> shift);
  }
  void add(uint32_t field, std::string_view value) {
    append_varint(field << 3 | 2);
    append_varint(value.size());
    bytes_ += value;
  }
  const std::string& bytes() const { return bytes_; }

 private:
  void append_varint(uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_ += static_cast<char>(value | 0x80);
    bytes_ += static_cast<char>(value);
  }
  std::string bytes_;
};

// Fields: https://github.com/google/sentencepiece/blob/master/src/sentencepiece_model.proto
std::string sentencepiece_bpe(const GgufVocabulary& vocabulary, const Tokenizer& tokenizer) {
  Message model;
  for (int32_t id = 0; id < vocabulary.tokens->size(); ++id) {
    GgufTokenType type = vocabulary.types[static_cast<size_t>(id)];
    if (type == GgufTokenType::kUndefined) type = GgufTokenType::kUnused;
    Message piece;
    piece.add(1, vocabulary.tokens->text(id));
    piece.add(2, vocabulary.scores[static_cast<size_t>(id)]);
    piece.add(3, uint64_t{static_cast<uint8_t>(type)});  // the numbers of both formats are the same
    model.add(1, piece.bytes());
  }
  Message trainer, normalizer;
  trainer.add(3, uint64_t{2});   // model_type BPE
  trainer.add(35, uint64_t{1});  // byte_fallback
  const SpecialIds& special = tokenizer.special_ids();
  const std::pair<uint32_t, std::optional<int32_t>> roles[] = {
      {40, special.unk}, {41, special.bos}, {42, special.eos}, {43, special.pad}};
  constexpr uint32_t kPieces = 5;  // unk_id is 40, unk_piece 45, and so on
  for (const auto& [field, id] : roles) {
    // Sign-extended: −1 is how an absent one is written.
    trainer.add(field, static_cast<uint64_t>(static_cast<int64_t>(id.value_or(-1))));
    if (id) trainer.add(field + kPieces, vocabulary.tokens->text(*id));
  }
  model.add(2, trainer.bytes());
  normalizer.add(1, std::string_view("identity"));
  normalizer.add(3, uint64_t{vocabulary.add_space_prefix});
  normalizer.add(4, uint64_t{0});  // remove_extra_whitespaces
  normalizer.add(5, uint64_t{1});  // escape_whitespaces
  model.add(3, normalizer.bytes());
  return model.bytes();
}

io::Json config_of(const GgufVocabulary& vocabulary, const Tokenizer& tokenizer) {
  io::Json config = {{"tokenizer_class", "PreTrainedTokenizerFast"},
                     {"clean_up_tokenization_spaces", false},
                     {"add_bos_token", tokenizer.adds_bos()},
                     {"add_eos_token", vocabulary.add_eos}};
  const SpecialIds& special = tokenizer.special_ids();
  const std::pair<const char*, std::optional<int32_t>> roles[] = {{"bos_token", special.bos},
                                                                  {"eos_token", special.eos},
                                                                  {"unk_token", special.unk},
                                                                  {"pad_token", special.pad}};
  for (const auto& [role, id] : roles) {
    if (id) config[role] = std::string(vocabulary.tokens->text(*id));
  }
  return config;
}

// Whether two tokenizers give the same ids: their sizes and special tokens, and the tokens of a
// text of many kinds, each control and user-defined token in it.
bool same_tokens(const Tokenizer& a, const Tokenizer& b, const GgufVocabulary& vocabulary) {
  if (a.vocab_size() != b.vocab_size() || a.adds_bos() != b.adds_bos() ||
      a.special_ids().bos != b.special_ids().bos || a.special_ids().eos != b.special_ids().eos) {
    return false;
  }
  std::string probe =
      "Once upon a time, there weren't 1234567 cats: 3.14, naïve café — 東京 и Москва "
      "🙂🏽!\n\n"
      "  for (int i = 0; i < 10; ++i) {\n\treturn \"it's\";\r\n}   end ";
  for (const GgufTokenType type : {GgufTokenType::kControl, GgufTokenType::kUserDefined}) {
    for (const std::string& token : tokens_of(vocabulary, type)) {
      probe += str(token, "text ", token, "\n");
    }
  }
  for (const bool parse : {false, true}) {
    for (const std::string_view text : {std::string_view(probe), std::string_view("One")}) {
      const EncodeOptions options = {.add_special = true, .parse_special = parse};
      if (a.encode(text, options) != b.encode(text, options)) return false;
    }
  }
  return true;
}

}  // namespace

std::vector<TokenizerFile> tokenizer_files(const io::GgufFile& file) {
  const std::shared_ptr<const Tokenizer> tokenizer = load_tokenizer(file);
  const GgufVocabulary vocabulary = read_gguf_vocabulary(file);
  const bool pieces = vocabulary.model == "llama", marked = vocabulary.model == "gemma4";
  if (!pieces && !marked && vocabulary.model != "gpt2") return {};
  const bool characters = !pieces && !marked && has_characters_alone(vocabulary);
  io::Json config = config_of(vocabulary, *tokenizer);
  std::vector<TokenizerFile> files;
  try {
    if (pieces) files.push_back({"tokenizer.model", sentencepiece_bpe(vocabulary, *tokenizer)});
    files.push_back({"tokenizer.json",
                     pieces
                         ? sentencepiece_json(files[0].content, first_token(vocabulary, *tokenizer))
                     : marked     ? marked_bpe(file, vocabulary, *tokenizer)
                     : characters ? character_bpe(vocabulary, *tokenizer)
                                  : byte_level_bpe(file, vocabulary, *tokenizer)});
    // Where merging by score is not the same as merging by rank, tokenizer.model stands alone.
    for (const TokenizerConfig beside = {config, {}, {}}; !files.empty(); files.pop_back()) {
      const std::string& content = files.back().content;
      const auto again =
          files.back().name == "tokenizer.json"
              ? parse_tokenizer_json(io::parse_json(content, "tokenizer.json"), beside)
              : parse_sentencepiece(content, &beside);
      if (same_tokens(*tokenizer, *again, vocabulary)) break;
    }
  } catch (const Error&) {
    return {};  // a vocabulary that the other format cannot have: twice the same token, …
  }
  if (files.empty()) return {};
  if (files.back().name == "tokenizer.model") config["tokenizer_class"] = "LlamaTokenizer";
  files.push_back({"tokenizer_config.json", config.dump(2) + "\n"});
  return files;
}

}  // namespace lumen::text
