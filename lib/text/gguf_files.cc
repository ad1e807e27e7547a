#include "lib/text/gguf_files.h"

#include <algorithm>
#include <bit>

#include "lib/base/error.h"
#include "lib/base/strings.h"
#include "lib/text/base64.h"
#include "lib/text/byte_level.h"
#include "lib/text/gguf_normalizer.h"
#include "lib/text/gguf_pre_tokenizer.h"
#include "lib/text/gguf_vocabulary.h"
#include "lib/text/sentencepiece_model.h"
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

std::string charsmap_of(const io::GgufFile& file) {
  return gguf_bytes(file, "tokenizer.ggml.precompiled_charsmap");
}

bool merges_spaces(const io::GgufFile& file) {
  return file.metadata.get_bool("tokenizer.ggml.remove_extra_whitespaces", false);
}

std::string unigram(const io::GgufFile& file, const GgufVocabulary& vocabulary,
                    const Tokenizer& tokenizer) {
  // Far below any split of a text: of tokens that no text becomes.
  constexpr double kNever = -1e4;
  io::Json vocab = io::Json::array();
  for (int32_t id = 0; id < vocabulary.tokens->size(); ++id) {
    const GgufTokenType type = vocabulary.types[static_cast<size_t>(id)];
    double score = 0;
    if (type == GgufTokenType::kByte || type == GgufTokenType::kUndefined) {
      score = kNever;
    } else if (type == GgufTokenType::kNormal || type == GgufTokenType::kUnused) {
      score = double{vocabulary.scores[static_cast<size_t>(id)]};
    }
    vocab.push_back(io::Json::array({std::string(vocabulary.tokens->text(id)), score}));
  }
  TokenizerJson parts;
  parts.model = {{"type", "Unigram"},
                 {"unk_id", *tokenizer.special_ids().unk},
                 {"byte_fallback", false},
                 {"vocab", std::move(vocab)}};
  parts.special_tokens = tokens_of(vocabulary, GgufTokenType::kControl);
  for (std::string& token : tokens_of(vocabulary, GgufTokenType::kUnknown)) {
    parts.special_tokens.push_back(std::move(token));
  }
  parts.user_defined = tokens_of(vocabulary, GgufTokenType::kUserDefined);
  parts.bos = first_token(vocabulary, tokenizer);
  if (vocabulary.add_eos) parts.eos = vocabulary.tokens->text(*tokenizer.special_ids().eos);
  const bool merge = merges_spaces(file), prefix = merge || vocabulary.add_space_prefix;
  set_space_marks(prefix, parts);
  // Before spaces become marks: the character map, and the rules for spaces.
  io::Json before = io::Json::array();
  const auto replace = [&](const char* regex, const char* content) {
    before.push_back({{"type", "Replace"}, {"pattern", {{"Regex", regex}}}, {"content", content}});
  };
  if (const std::string map = charsmap_of(file); !map.empty()) {
    before.push_back({{"type", "Precompiled"}, {"precompiled_charsmap", encode_base64(map)}});
  }
  if (merge) {
    replace(R"(\A +| +\z)", "");
    replace(" {2,}", " ");
  }
  io::Json& normalizers = parts.normalizer["normalizers"];
  for (io::Json& each : normalizers) {
    const bool prepends = io::get_string(each, "type") == "Prepend";
    before.push_back(std::move(each));
    // Nothing but spaces has none put before.
    if (prepends) replace("\\A\u2581(?= *\\z)", "");
  }
  normalizers = std::move(before);
  return tokenizer_json(std::move(parts));
}

// A unigram vocabulary with bytes has no such form: as they are of no use to a text there.
bool has_sentencepiece_form(const GgufVocabulary& vocabulary) {
  return vocabulary.model == "llama" ||
         (vocabulary.model == "t5" && tokens_of(vocabulary, GgufTokenType::kByte).empty());
}

// Fields: https://github.com/google/sentencepiece/blob/master/src/sentencepiece_model.proto
std::string sentencepiece_file(const io::GgufFile& file, const GgufVocabulary& vocabulary,
                               const Tokenizer& tokenizer) {
  const bool is_unigram = vocabulary.model == "t5";
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
  trainer.add(3, static_cast<uint64_t>(is_unigram ? PieceModel::kUnigram : PieceModel::kBpe));
  trainer.add(35, uint64_t{!is_unigram});  // byte_fallback
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
  const bool merge = is_unigram && merges_spaces(file);
  if (const std::string map = is_unigram ? charsmap_of(file) : ""; map.empty()) {
    normalizer.add(1, std::string_view("identity"));
  } else {
    normalizer.add(2, std::string_view(map));
  }
  normalizer.add(3, uint64_t{vocabulary.add_space_prefix || merge});
  normalizer.add(4, uint64_t{merge});  // remove_extra_whitespaces
  normalizer.add(5, uint64_t{1});      // escape_whitespaces
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

// A tokenizer.json of the vocabulary, with which of its added tokens take white space along.
std::string with_strips(std::string tokenizer_json, const GgufVocabulary& vocabulary) {
  const auto strips = [](const std::vector<bool>& flags) {
    return std::find(flags.begin(), flags.end(), true) != flags.end();
  };
  if (!strips(vocabulary.lstrip) && !strips(vocabulary.rstrip)) return tokenizer_json;
  io::Json json = io::parse_json(tokenizer_json, "tokenizer.json");
  for (io::Json& token : json["added_tokens"]) {
    const auto id = token["id"].get<size_t>();
    token["lstrip"] = bool{vocabulary.lstrip[id]};
    token["rstrip"] = bool{vocabulary.rstrip[id]};
  }
  return json.dump(1) + "\n";
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
      "  for (int i = 0; i < 10; ++i) {\n\treturn \"it's\";\r\n}   end  A\u030A e\u0301 ";
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
  const std::string& model = vocabulary.model;
  if (model != "llama" && model != "gemma4" && model != "gpt2" && model != "t5") return {};
  for (int32_t id = 0; id < vocabulary.tokens->size(); ++id) {
    if (!is_valid_utf8(vocabulary.tokens->text(id))) return {};  // as JSON is
  }
  io::Json config = config_of(vocabulary, *tokenizer);
  std::vector<TokenizerFile> files;
  try {
    if (has_sentencepiece_form(vocabulary)) {
      files.push_back({"tokenizer.model", sentencepiece_file(file, vocabulary, *tokenizer)});
    }
    std::string json =
        model == "llama" ? sentencepiece_json(files[0].content, first_token(vocabulary, *tokenizer))
        : model == "t5"  ? unigram(file, vocabulary, *tokenizer)
        : model == "gemma4"                ? marked_bpe(file, vocabulary, *tokenizer)
        : has_characters_alone(vocabulary) ? character_bpe(vocabulary, *tokenizer)
                                           : byte_level_bpe(file, vocabulary, *tokenizer);
    files.push_back({"tokenizer.json", with_strips(std::move(json), vocabulary)});
    // Where merging by score is not the same as merging by rank, or a character map by clusters of
    // characters not the same as by the longest match, tokenizer.model stands alone.
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
  // Sentencepiece's rule for spaces beside user-defined tokens is another.
  if (model == "t5" && files.size() > 1) files.erase(files.begin());
  if (files.back().name == "tokenizer.model") config["tokenizer_class"] = "LlamaTokenizer";
  files.push_back({"tokenizer_config.json", config.dump(2) + "\n"});
  return files;
}

}  // namespace lumen::text
