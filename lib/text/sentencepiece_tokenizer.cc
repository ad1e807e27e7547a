// Sentencepiece models (https://github.com/google/sentencepiece), encoded by the library.
#include <sentencepiece_processor.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <unordered_set>
#include <utility>

#include "lib/base/error.h"
#include "lib/text/added_tokens.h"
#include "lib/text/sentencepiece_model.h"
#include "lib/text/stage_decoder.h"
#include "lib/text/tokenizer_formats.h"
#include "lib/text/utf8.h"
#include "lib/text/vocabulary.h"

namespace lumen::text {
namespace {

// Decodes as the library: space marks become spaces, of those at the beginning one (or with
// `strip_all` one per token) is dropped; of bytes that form no character each becomes U+FFFD.
class PieceDecoder : public TokenDecoder {
 public:
  struct Rules {
    bool strip_first = true, strip_all = true;
    std::string unk_surface;
  };
  using Kind = PieceType;
  // The piece of an id; a type and a text.
  using Lookup = std::function<std::pair<Kind, std::string_view>(int32_t id)>;

  PieceDecoder(Rules rules, Lookup lookup) : rules_(std::move(rules)), lookup_(std::move(lookup)) {
    bytes_.reserve(8);
  }

  void push(int32_t id, std::string& out) override {
    auto [kind, text] = lookup_(id);
    const size_t before = out.size();
    if (kind == Kind::kByte) {
      bytes_ += static_cast<char>(byte_of_token(text));
      flush_bytes(out, false);
    } else {
      flush_bytes(out, true);
      started_ = started_ || out.size() > before;
      if (stripped_ || started_) at_start_ = false;
      stripped_ = false;
      if (kind == Kind::kUnknown) {
        out += rules_.unk_surface;
      } else if (kind == Kind::kUserDefined || kind == Kind::kNormal || kind == Kind::kUnused) {
        append_piece(text, out);
      }
    }
    started_ = started_ || out.size() > before;
  }

  void finish(std::string& out) override {
    flush_bytes(out, true);
    started_ = stripped_ = false;
    at_start_ = true;
  }

  // Appends `text` with spaces for space marks.
  static void append_spaced(std::string_view text, std::string& out) {
    for (size_t pos = 0; pos < text.size();) {
      const size_t at = std::min(text.find(kSpaceMark, pos), text.size());
      out += text.substr(pos, at - pos);
      if (at < text.size()) out += ' ';
      pos = at + kSpaceMark.size();
    }
  }

 private:
  void append_piece(std::string_view text, std::string& out) {
    if (at_start_ && (rules_.strip_first || rules_.strip_all) && text.starts_with(kSpaceMark)) {
      text.remove_prefix(kSpaceMark.size());
      stripped_ = !rules_.strip_all;
    }
    append_spaced(text, out);
  }

  void flush_bytes(std::string& out, bool at_end) {
    while (!bytes_.empty()) {
      size_t length = 1;  // of the character at the front
      while (length <= bytes_.size() &&
             !is_valid_utf8(std::string_view(bytes_).substr(0, length))) {
        ++length;
      }
      if (length <= bytes_.size()) {
        out.append(bytes_, 0, length);
        bytes_.erase(0, length);
      } else if (!at_end && incomplete_utf8_suffix(bytes_) == bytes_.size()) {
        return;
      } else {
        out += "\uFFFD";
        bytes_.erase(0, 1);
      }
    }
  }

  const Rules rules_;
  const Lookup lookup_;
  std::string bytes_;      // of an incomplete character
  bool started_ = false;   // text has come out
  bool at_start_ = true;   // leading spaces are still dropped
  bool stripped_ = false;  // the last token lost its space
};

// Decodes everything at the end: for models that rewrite the whole text.
class WholeDecoder : public TokenDecoder {
 public:
  using Decode = std::function<std::string(const std::vector<int>&)>;
  explicit WholeDecoder(Decode decode) : decode_(std::move(decode)) {}
  void push(int32_t id, std::string&) override { ids_.push_back(id); }
  void finish(std::string& out) override {
    out += decode_(ids_);
    ids_.clear();
  }

 private:
  const Decode decode_;
  std::vector<int> ids_;
};

// Unknown characters side by side are one unknown token, which the library joins in the square of
// their number. With byte fallback it does not: each becomes the pieces of its bytes, which are
// joined here, in time for their number. Immutable; may be used from several threads.
class LongUnknown {
 public:
  // Does nothing for models that have byte pieces of their own.
  explicit LongUnknown(const SentencepieceModel& model)
      : pieces_(static_cast<int>(model.pieces.size())) {
    const auto is_byte = [](const auto& piece) { return byte_of_token(piece.text) >= 0; };
    if (model.byte_fallback || std::any_of(model.pieces.begin(), model.pieces.end(), is_byte)) {
      return;
    }
    proto_ = model.trimmed;
    for (int byte = 0; byte < 256; ++byte) {  // pieces = {piece: "<0x0A>", type: BYTE}
      const std::string token = byte_token(static_cast<uint8_t>(byte));
      proto_ += str("\x0A\x0A\x0A\x06", token, "\x18\x06");
    }
    proto_ += "\x12\x03\x98\x02\x01";  // trainer_spec = {byte_fallback: true}
    known_.resize(0x110000);
    known_[' '] = true;
    for (const auto& piece : model.pieces) {
      size_t pos = 0;
      const uint32_t character = next_code_point(piece.text, pos);
      if (pos == piece.text.size()) known_[character] = true;
    }
  }

  // Whether `text` may have so long a run of unknown characters that this is worth its time.
  bool is_in(std::string_view text) const {
    constexpr size_t kLong = 4096;
    if (proto_.empty()) return false;
    size_t run = 0;
    for (size_t pos = 0; pos < text.size() && run < kLong;) {
      run = known_[next_code_point(text, pos)] ? 0 : run + 1;
    }
    return run == kLong;
  }

  // As the library encodes `text`.
  sentencepiece::util::Status encode(std::string_view text, std::vector<int>& ids) const {
    std::call_once(once_, [&] { status_ = processor_.LoadFromSerializedProto(proto_); });
    if (!status_.ok()) return status_;
    const auto status = processor_.Encode({text.data(), text.size()}, &ids);
    // The byte pieces come behind all others.
    const auto joined = std::unique(ids.begin(), ids.end(),
                                    [&](int a, int b) { return a >= pieces_ && b >= pieces_; });
    ids.erase(joined, ids.end());
    for (int& id : ids) id = id < pieces_ ? id : processor_.unk_id();
    return status;
  }

 private:
  int pieces_;
  std::string proto_;
  std::vector<bool> known_;  // code points that are pieces
  mutable std::once_flag once_;
  mutable sentencepiece::util::Status status_;
  mutable sentencepiece::SentencePieceProcessor processor_;
};

class SentencepieceTokenizer : public Tokenizer {
 public:
  SentencepieceTokenizer(std::string_view bytes, const TokenizerConfig* config) {
    const SentencepieceModel model = check_sentencepiece(bytes);
    load(model.trimmed);
    long_unknown_ = std::make_unique<LongUnknown>(model);
    for (size_t id = 0; id < model.pieces.size(); ++id) {
      vocabulary_.set(static_cast<int64_t>(id), model.pieces[id].text);
      types_.push_back(model.pieces[id].type);
    }
    rules_ = {model.add_dummy_prefix, model.remove_extra_whitespaces, model.unk_surface};
    has_denormalizer_ = model.has_denormalizer;
    const auto id = [](int value) {
      return value < 0 ? std::nullopt : std::optional<int32_t>(value);
    };
    special_.bos = id(processor_.bos_id());
    special_.eos = id(processor_.eos_id());
    special_.unk = id(processor_.unk_id());
    special_.pad = id(processor_.pad_id());
    add_bos_ = special_.bos.has_value();
    add_eos_ = !add_bos_ && special_.eos.has_value();
    collect_added_tokens(config);
    if (config != nullptr) configure(*config);
  }

  std::string kind() const override { return "sentencepiece"; }

  std::vector<int32_t> encode(std::string_view text, const EncodeOptions& options) const override {
    std::vector<int32_t> ids;
    if (options.add_special && add_bos_) ids.push_back(*special_.bos);
    encode_rest(text, 0, options.parse_special, ids, nullptr);
    if (options.add_special && add_eos_) ids.push_back(*special_.eos);
    return ids;
  }

  void encode_rest(std::string_view text, size_t begin, std::optional<bool> parse_special,
                   std::vector<int32_t>& ids, std::vector<Checkpoint>* checkpoints) const override {
    check_length(text);
    const auto encode_part = [&](std::string_view part) {
      std::vector<int> part_ids;
      const auto status = long_unknown_->is_in(part)
                              ? long_unknown_->encode(part, part_ids)
                              : processor_.Encode({part.data(), part.size()}, &part_ids);
      if (!status.ok()) {
        fail(ErrorKind::kMalformed,
             "sentencepiece cannot encode the text: ", quoted(status.ToString(), 200));
      }
      ids.insert(ids.end(), part_ids.begin(), part_ids.end());
    };
    if (!parse_special.value_or(parses_special_)) return encode_part(text);
    const auto found = [&](const Fragment& part) {
      if (part.id < 0) return encode_part(text.substr(part.begin, part.end - part.begin));
      ids.push_back(part.id);
      if (checkpoints != nullptr && added_.is_boundary(text, part)) {
        checkpoints->push_back({part.end, ids.size(), part.end + added_.lookahead()});
      }
    };
    added_.split(text, false, true, found, begin);
  }

  std::unique_ptr<TokenDecoder> make_decoder(bool skip_special) const override {
    if (has_denormalizer_) {
      return std::make_unique<WholeDecoder>(
          [this](const std::vector<int>& ids) { return decode_by_library(ids); });
    }
    return std::make_unique<PieceDecoder>(
        rules_, [this, skip_special](int32_t id) -> std::pair<PieceType, std::string_view> {
          if (id >= 0 && static_cast<size_t>(id) < types_.size()) {
            return {types_[static_cast<size_t>(id)], vocabulary_.text(id)};
          }
          const AddedToken* added = added_.find(id);
          const bool visible = added != nullptr && !(skip_special && added->special);
          if (!visible) return {PieceType::kControl, ""};
          return {PieceType::kUserDefined, added->content};
        });
  }

  int32_t vocab_size() const override {
    int32_t size = vocabulary_.size();
    for (const AddedToken& token : added_.all()) size = std::max(size, token.id + 1);
    return size;
  }
  std::string_view token_text(int32_t id) const override {
    if (vocabulary_.contains(id)) return vocabulary_.text(id);
    const AddedToken* added = added_.find(id);
    return added == nullptr ? std::string_view() : added->content;
  }
  std::vector<std::string> token_bytes() const override {
    if (has_denormalizer_) {
      fail(ErrorKind::kUnsupported,
           "the vocabulary rewrites whole texts (a denormalizer), so its tokens have no bytes of "
           "their own");
    }
    return bytes_by_id(*this, [this](int32_t id) -> std::string {
      if (!vocabulary_.contains(id)) return std::string(token_text(id));
      const PieceType type = types_[static_cast<size_t>(id)];
      if (type == PieceType::kByte) {
        return std::string(1, static_cast<char>(byte_of_token(vocabulary_.text(id))));
      }
      std::string bytes;
      PieceDecoder::append_spaced(vocabulary_.text(id), bytes);
      return bytes;
    });
  }
  std::optional<int32_t> id_of(std::string_view token) const override {
    if (const int32_t id = vocabulary_.find(token); id >= 0) return id;
    const AddedToken* added = added_.find(token);
    return added == nullptr ? std::nullopt : std::optional(added->id);
  }
  bool is_special(int32_t id) const override {
    if (vocabulary_.contains(id)) {
      const PieceType type = types_[static_cast<size_t>(id)];
      return type == PieceType::kControl || type == PieceType::kUnknown;
    }
    const AddedToken* added = added_.find(id);
    return added != nullptr && added->special;
  }
  const SpecialIds& special_ids() const override { return special_; }
  std::vector<int32_t> end_tokens() const override {
    return special_.eos ? std::vector<int32_t>{*special_.eos} : std::vector<int32_t>{};
  }
  bool adds_bos() const override { return add_bos_; }

 private:
  void load(const std::string& proto) {
    std::string problem;
    try {
      const auto status = processor_.LoadFromSerializedProto(proto);
      if (!status.ok()) problem = status.ToString();
    } catch (const std::exception& error) {  // of the library's double-array trie
      problem = error.what();
    }
    if (!problem.empty()) {
      fail(ErrorKind::kMalformed, "sentencepiece refuses the model: ", quoted(problem, 200));
    }
  }

  // Control pieces, and in a Hugging Face directory the unknown one and what it adds to the
  // vocabulary.
  void collect_added_tokens(const TokenizerConfig* config) {
    std::vector<AddedToken> tokens;
    std::unordered_set<std::string> listed;
    for (int32_t id = 0; id < vocabulary_.size(); ++id) {
      const PieceType type = types_[static_cast<size_t>(id)];
      if (type == PieceType::kControl || (config != nullptr && type == PieceType::kUnknown)) {
        const std::string text(vocabulary_.text(id));
        listed.insert(text);
        tokens.push_back({text, id, true, false, false, false, false});
      }
    }
    if (config != nullptr) {
      for (AddedToken& token : configured_added_tokens(*config)) {
        token.normalized = false;
        const int32_t known = vocabulary_.find(token.content);
        if (known >= 0) token.id = known;
        if (listed.insert(token.content).second) tokens.push_back(std::move(token));
      }
    }
    added_ = AddedTokens(std::move(tokens), nullptr);
  }

  void configure(const TokenizerConfig& config) {
    parses_special_ = true;
    const auto role = [&](const char* name, std::optional<int32_t>& id) {
      const std::string token = configured_token(config, name);
      if (const auto found = token.empty() ? std::nullopt : id_of(token)) id = found;
    };
    role("bos_token", special_.bos);
    role("eos_token", special_.eos);
    role("unk_token", special_.unk);
    role("pad_token", special_.pad);
    add_bos_ = io::get_bool(config.config, "add_bos_token", add_bos_) && special_.bos.has_value();
    add_eos_ = io::get_bool(config.config, "add_eos_token", add_eos_) && special_.eos.has_value();
  }

  std::string decode_by_library(const std::vector<int>& ids) const {
    std::vector<int> known;
    for (const int id : ids) {
      if (vocabulary_.contains(id)) known.push_back(id);
    }
    return processor_.DecodeIds(known);
  }

  sentencepiece::SentencePieceProcessor processor_;
  std::unique_ptr<LongUnknown> long_unknown_;
  Vocabulary vocabulary_;
  std::vector<PieceType> types_;
  AddedTokens added_;
  PieceDecoder::Rules rules_;
  SpecialIds special_;
  bool has_denormalizer_ = false, add_bos_ = false, add_eos_ = false, parses_special_ = false;
};

}  // namespace

std::shared_ptr<const Tokenizer> parse_sentencepiece(std::string_view bytes,
                                                     const TokenizerConfig* config) {
  return std::make_shared<SentencepieceTokenizer>(bytes, config);
}

}  // namespace lumen::text
