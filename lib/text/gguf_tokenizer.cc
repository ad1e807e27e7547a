// The tokenizers inside GGUF files, as llama.cpp runs them.
#include <algorithm>
#include <utility>

#include "lib/base/error.h"
#include "lib/base/limits.h"
#include "lib/io/gguf.h"
#include "lib/text/bpe.h"
#include "lib/text/byte_level.h"
#include "lib/text/gguf_normalizer.h"
#include "lib/text/gguf_pre_tokenizer.h"
#include "lib/text/gguf_specials.h"
#include "lib/text/gguf_vocabulary.h"
#include "lib/text/score_merges.h"
#include "lib/text/stage_decoder.h"
#include "lib/text/unigram.h"
#include "lib/text/utf8.h"
#include "lib/text/word_piece.h"

namespace lumen::text {
namespace {

std::string replace_spaces(std::string_view text) {
  std::string out;
  out.reserve(text.size() + text.size() / 2);
  for (const char c : text) {
    if (c == ' ') {
      out += kSpaceMark;
    } else {
      out += c;
    }
  }
  return out;
}

std::string restore_spaces(std::string_view text) {
  std::string out;
  for (size_t pos = 0; pos < text.size();) {
    const size_t at = std::min(text.find(kSpaceMark, pos), text.size());
    out += text.substr(pos, at - pos);
    if (at < text.size()) out += ' ';
    pos = at + kSpaceMark.size();
  }
  return out;
}

// Turns a part of the text between control tokens into words for the model.
class FragmentRule {
 public:
  virtual ~FragmentRule() = default;
  virtual Words words(std::string_view fragment, bool after_special) const = 0;
  // Whether text must be valid UTF-8.
  virtual bool needs_utf8() const { return true; }
};

Words one_word(std::string text) {
  Words words;
  words.text = std::move(text);
  if (!words.text.empty()) words.spans.push_back({0, static_cast<uint32_t>(words.text.size())});
  return words;
}

// "llama" and "gemma4": the whole fragment is one word, of "llama" with a space in front.
class SpaceMarks : public FragmentRule {
 public:
  explicit SpaceMarks(bool add_prefix) : add_prefix_(add_prefix) {}
  Words words(std::string_view fragment, bool after_special) const override {
    std::string text = replace_spaces(fragment);
    if (add_prefix_ && after_special) text.insert(0, kSpaceMark);
    return one_word(std::move(text));
  }
  bool needs_utf8() const override { return false; }

 private:
  bool add_prefix_;
};

// "gpt2": split by patterns.
class PatternWords : public FragmentRule {
 public:
  explicit PatternWords(std::unique_ptr<PreTokenizer> split) : split_(std::move(split)) {}
  Words words(std::string_view fragment, bool) const override {
    Words words = one_word(std::string(fragment));
    split_->apply(words);
    return words;
  }

 private:
  std::unique_ptr<PreTokenizer> split_;
};

// "bert": words and punctuation, each with a space mark in front.
class BertWords : public FragmentRule {
 public:
  Words words(std::string_view fragment, bool) const override {
    return split_bert_words(fragment, kSpaceMark);
  }
};

// "t5": normalized as sentencepiece does.
class UnigramText : public FragmentRule {
 public:
  explicit UnigramText(GgufNormalizer normalizer) : normalizer_(std::move(normalizer)) {}
  Words words(std::string_view fragment, bool) const override {
    return one_word(normalizer_.normalize(fragment));
  }

 private:
  GgufNormalizer normalizer_;
};

class GgufTokenizer : public Tokenizer {
 public:
  explicit GgufTokenizer(const io::GgufFile& file)
      : vocabulary_(read_gguf_vocabulary(file)), specials_(vocabulary_) {
    if (vocabulary_.model == "llama") {
      build_llama();
    } else if (vocabulary_.model == "gpt2") {
      build_gpt2(file);
    } else if (vocabulary_.model == "gemma4") {
      build_gemma4(file);
    } else if (vocabulary_.model == "bert") {
      build_bert();
    } else {
      build_t5(file);
    }
    if (vocabulary_.add_bos && !vocabulary_.special.bos) vocabulary_.add_bos = false;
    if (vocabulary_.add_eos && !vocabulary_.special.eos) vocabulary_.add_eos = false;
    if (vocabulary_.add_sep && !vocabulary_.special.sep) vocabulary_.add_sep = false;
    for (int32_t id = 0; id < vocabulary_.tokens->size(); ++id) pieces_.set(id, piece(id));
    decoders_ = {make_utf8_decoder()};
    if (vocabulary_.add_space_prefix || vocabulary_.model == "bert") {
      decoders_.push_back(make_leading_strip(" ", 1));
    }
  }

  std::string kind() const override {
    const std::string pre = vocabulary_.model == "gpt2" ? str(", ", vocabulary_.pre) : "";
    return str("GGUF ", vocabulary_.model, pre);
  }

  std::vector<int32_t> encode(std::string_view text, const EncodeOptions& options) const override {
    std::vector<int32_t> ids;
    if (options.add_special && vocabulary_.add_bos) ids.push_back(*vocabulary_.special.bos);
    encode_rest(text, 0, options.parse_special.value_or(options.add_special), ids, nullptr);
    if (options.add_special && vocabulary_.add_eos) ids.push_back(*vocabulary_.special.eos);
    if (options.add_special && vocabulary_.add_sep) ids.push_back(*vocabulary_.special.sep);
    return ids;
  }

  void encode_rest(std::string_view text, size_t begin, std::optional<bool> parse_special,
                   std::vector<int32_t>& ids, std::vector<Checkpoint>* checkpoints) const override {
    check_length(text);
    text.remove_prefix(begin);
    std::string repaired;
    if (rule_->needs_utf8() && !is_valid_utf8(text)) {
      text = repaired = to_valid_utf8(text);
      checkpoints = nullptr;  // its bytes are others
    }
    const std::unique_ptr<Model::State> state = model_->make_state();
    bool after_special = true;
    std::vector<size_t> boundaries;
    const std::vector<Fragment> parts = specials_.split(
        text, parse_special.value_or(false), checkpoints == nullptr ? nullptr : &boundaries);
    auto boundary = boundaries.begin();
    for (size_t i = 0; i < parts.size(); ++i) {
      const Fragment& part = parts[i];
      if (part.id >= 0) {
        ids.push_back(part.id);
        after_special = true;
        const size_t next = i + 1 < parts.size() ? parts[i + 1].begin : text.size();
        if (boundary == boundaries.end() || *boundary != next) continue;
        const size_t place = begin + *boundary++;
        checkpoints->push_back({place, ids.size(), place + specials_.lookahead()});
        continue;
      }
      const Words words =
          rule_->words(text.substr(part.begin, part.end - part.begin), after_special);
      for (const Words::Span& span : words.spans) {
        model_->tokenize(words.word(span), state.get(), ids);
      }
      after_special = false;
    }
  }

  std::unique_ptr<TokenDecoder> make_decoder(bool skip_special) const override {
    return make_piece_decoder(*this, decoders_, pieces_, skip_special);
  }

  int32_t vocab_size() const override { return vocabulary_.tokens->size(); }
  std::string_view token_text(int32_t id) const override { return vocabulary_.tokens->text(id); }
  std::vector<std::string> token_bytes() const override {
    return bytes_by_id(*this, [this](int32_t id) { return std::string(pieces_.text(id)); });
  }
  std::optional<int32_t> id_of(std::string_view token) const override {
    const int32_t id = vocabulary_.tokens->find(token);
    return id < 0 ? std::nullopt : std::optional(id);
  }
  bool is_special(int32_t id) const override {
    return vocabulary_.is(id, GgufTokenType::kControl) ||
           vocabulary_.is(id, GgufTokenType::kUnknown);
  }
  const SpecialIds& special_ids() const override { return vocabulary_.special; }
  std::vector<int32_t> end_tokens() const override { return vocabulary_.ends; }
  bool adds_bos() const override { return vocabulary_.add_bos; }

 private:
  // The token of each byte, "<0x0A>" or the character itself, or that of what is unknown.
  std::array<int32_t, 256> byte_ids() const {
    const Vocabulary& tokens = *vocabulary_.tokens;
    std::array<int32_t, 256> ids;
    for (int byte = 0; byte < 256; ++byte) {
      const auto b = static_cast<uint8_t>(byte);
      int32_t id = tokens.find(byte_token(b));
      if (id < 0) id = tokens.find(std::string(1, static_cast<char>(byte)));
      ids[b] = id < 0 ? vocabulary_.special.unk.value_or(-1) : id;
    }
    return ids;
  }

  void build_llama() {
    model_ =
        std::make_unique<Bpe>(score_merges(*vocabulary_.tokens, vocabulary_.scores, byte_ids()));
    rule_ = std::make_unique<SpaceMarks>(vocabulary_.add_space_prefix);
  }

  void build_gemma4(const io::GgufFile& file) {
    BpeTables tables;
    tables.vocabulary = vocabulary_.tokens.get();
    tables.first_virtual = vocabulary_.tokens->size();
    tables.byte_symbols = byte_ids();
    tables.long_words = true;
    read_merges(file, tables);
    model_ = std::make_unique<Bpe>(std::move(tables));
    rule_ = std::make_unique<SpaceMarks>(vocabulary_.add_space_prefix);
  }

  void build_gpt2(const io::GgufFile& file) {
    GgufPreTokenizer pre = gguf_pre_tokenizer(vocabulary_.pre);
    vocabulary_.add_bos =
        file.metadata.get_bool("tokenizer.ggml.add_bos_token", vocabulary_.add_bos || pre.add_bos);
    vocabulary_.add_sep =
        file.metadata.get_bool("tokenizer.ggml.add_sep_token", vocabulary_.add_sep || pre.add_sep);
    BpeTables tables;
    tables.vocabulary = vocabulary_.tokens.get();
    tables.first_virtual = vocabulary_.tokens->size();
    tables.ignore_merges = pre.ignore_merges;
    tables.plain_bytes = pre.split->leave_bytes_plain();
    read_merges(file, tables);
    model_ = std::make_unique<Bpe>(std::move(tables));
    rule_ = std::make_unique<PatternWords>(std::move(pre.split));
  }

  void read_merges(const io::GgufFile& file, BpeTables& tables) const {
    const auto merges = file.metadata.find("tokenizer.ggml.merges");
    if (!merges || !merges->is_array() || merges->element_type() != io::GgufType::kString) {
      fail(ErrorKind::kMalformed,
           "key tokenizer.ggml.merges is missing or no array of strings, but the model is ",
           vocabulary_.model);
    }
    if (merges->size() > limits::kMerges) {
      fail(ErrorKind::kMalformed, merges->size(), " merges, the limit is ", limits::kMerges);
    }
    tables.merges.reserve(merges->size());
    std::string joined;
    for (size_t rank = 0; rank < merges->size(); ++rank) {
      const std::string_view merge = merges->string_at(rank);
      const size_t space = merge.find(' ', 1);
      if (space == std::string_view::npos || space + 1 == merge.size()) {
        fail(ErrorKind::kMalformed, "merge ", rank, " is ", quoted(merge),
             ", expected two tokens with a space between");
      }
      const std::string_view left = merge.substr(0, space), right = merge.substr(space + 1);
      joined.assign(left).append(right);
      const int32_t left_id = symbol(left, tables), right_id = symbol(right, tables);
      if (tables.merges.find(left_id, right_id) != nullptr) continue;
      tables.merges.set(left_id, right_id, {static_cast<uint32_t>(rank), symbol(joined, tables)});
    }
  }

  // The id of a token, or of a virtual symbol that falls apart into the tokens of its bytes.
  int32_t symbol(std::string_view text, BpeTables& tables) const {
    if (const int32_t id = vocabulary_.tokens->find(text); id >= 0) return id;
    int32_t index = tables.virtual_symbols.find(text);
    if (index < 0) {
      index = static_cast<int32_t>(tables.expansions.size());
      tables.virtual_symbols.set(index, text);
      std::vector<int32_t>& ids = tables.expansions.emplace_back();
      for (const char c : text) {
        const int32_t id = vocabulary_.tokens->find(std::string_view(&c, 1));
        if (id >= 0) ids.push_back(id);
      }
    }
    return tables.first_virtual + index;
  }

  void build_bert() {
    if (!vocabulary_.special.unk)
      fail(ErrorKind::kMalformed, "the vocabulary has no unknown token");
    WordPiece::Tables tables;
    tables.vocabulary = vocabulary_.tokens.get();
    tables.max_characters = SIZE_MAX;
    tables.unk = *vocabulary_.special.unk;
    model_ = std::make_unique<WordPiece>(std::move(tables));
    rule_ = std::make_unique<BertWords>();
    vocabulary_.add_bos = vocabulary_.add_sep = true;
    vocabulary_.add_eos = false;
  }

  void build_t5(const io::GgufFile& file) {
    const Vocabulary& tokens = *vocabulary_.tokens;
    UnigramTables tables;
    tables.vocabulary = &tokens;
    tables.unk = vocabulary_.special.unk;
    tables.joins_unknown = false;
    tables.min_score = 0;
    bool first = true;
    std::vector<std::string_view> user_defined;
    for (int32_t id = 0; id < tokens.size(); ++id) {
      const bool user = vocabulary_.is(id, GgufTokenType::kUserDefined);
      const double score = vocabulary_.scores[static_cast<size_t>(id)];
      tables.scores.push_back(user ? 0 : score);
      if (user) user_defined.push_back(tokens.text(id));
      if (vocabulary_.is(id, GgufTokenType::kNormal)) {
        tables.min_score = first ? score : std::min(tables.min_score, score);
        first = false;
      }
      if (user || vocabulary_.is(id, GgufTokenType::kNormal) ||
          vocabulary_.is(id, GgufTokenType::kUnused)) {
        tables.pieces.push_back(id);
      }
    }
    model_ = std::make_unique<Unigram>(std::move(tables));
    rule_ = std::make_unique<UnigramText>(
        GgufNormalizer(file, user_defined, vocabulary_.add_space_prefix));
  }

  // The bytes that a token stands for.
  std::string piece(int32_t id) const {
    const std::string_view text = vocabulary_.tokens->text(id);
    switch (vocabulary_.types[static_cast<size_t>(id)]) {
      case GgufTokenType::kNormal:
        if (vocabulary_.model != "gpt2") return restore_spaces(text);
        return bytes_of_spelling(text).value_or(std::string(text));
      case GgufTokenType::kByte: {
        const int byte = byte_of_token(text);
        return byte < 0 ? std::string(text) : std::string(1, static_cast<char>(byte));
      }
      case GgufTokenType::kUnknown:
      case GgufTokenType::kControl:
      case GgufTokenType::kUserDefined:
        return std::string(text);
      case GgufTokenType::kUndefined:
      case GgufTokenType::kUnused:
        return "";
    }
    return "";
  }

  GgufVocabulary vocabulary_;
  GgufSpecials specials_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<FragmentRule> rule_;
  Vocabulary pieces_;  // bytes of each token
  std::vector<Decoder> decoders_;
};

}  // namespace

std::shared_ptr<const Tokenizer> load_tokenizer(const io::GgufFile& file) {
  return with_context(file.path, [&] { return std::make_shared<GgufTokenizer>(file); });
}

}  // namespace lumen::text
