#include "lib/text/gguf_keys.h"

#include <algorithm>
#include <cmath>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "lib/base/error.h"
#include "lib/base/limits.h"
#include "lib/io/gguf.h"
#include "lib/text/base64.h"
#include "lib/text/byte_level.h"
#include "lib/text/gguf_pre_tokenizer.h"
#include "lib/text/gguf_vocabulary.h"
#include "lib/text/sentencepiece_model.h"
#include "lib/text/tokenizer_formats.h"
#include "lib/text/unicode.h"
#include "lib/text/utf8.h"

namespace lumen::text {
namespace {

// Where a directory's vocabulary comes from, and what it is as keys.
class Keys {
 public:
  Keys(const DirectoryVocabulary& source, const io::ModelFiles& model)
      : source_(source), model_files_(model), tokenizer_(parse_tokenizer(source)) {
    rows_ = static_cast<int32_t>(io::get_int(model.config, "vocab_size", 1, limits::kVocab));
    if (tokenizer_->vocab_size() > rows_) {
      fail(ErrorKind::kMismatch, "the tokenizer has ", tokenizer_->vocab_size(),
           " tokens, but vocab_size of config.json is ", rows_, ": they do not belong together");
    }
    unknown_ = tokenizer_->special_ids().unk;
    find_added_tokens();
    list_tokens();
    if (source_.sentencepiece) {
      describe_sentencepiece();
    } else {
      describe_json();
    }
  }

  const Tokenizer& tokenizer() const { return *tokenizer_; }
  bool is_plain(int32_t id) const { return type(id) == GgufTokenType::kNormal; }
  bool is_user_defined(int32_t id) const { return type(id) == GgufTokenType::kUserDefined; }

  // Whether characters that are no tokens become bytes, but in the file the unknown token.
  bool loses_bytes() const { return model_ == "t5" && byte_fallback_; }
  // `text` without such characters.
  std::string sayable(std::string_view text) const {
    if (!loses_bytes()) return std::string(text);
    std::string out;
    for (size_t pos = 0; pos < text.size();) {
      const size_t begin = pos;
      next_code_point(text, pos);
      const std::string_view character = text.substr(begin, pos - begin);
      const std::vector<int32_t> ids = tokenizer_->encode(character, {.add_special = false});
      const bool is_bytes =
          character.size() > 1 && std::any_of(ids.begin(), ids.end(), [&](int32_t id) {
            return type(id) == GgufTokenType::kByte;
          });
      if (!is_bytes) out += character;
    }
    return out;
  }

  // Whether a unigram vocabulary has the same score for both splits of a text, but for rounding,
  // which other readers do otherwise.
  bool are_equally_likely(const std::vector<int32_t>& a, const std::vector<int32_t>& b) const {
    if (model_ != "t5" || tokenizer_->decode(a) != tokenizer_->decode(b)) return false;
    double difference = 0, all = 0;
    for (const auto& [ids, sign] : {std::pair(&a, 1.0), std::pair(&b, -1.0)}) {
      for (const int32_t id : *ids) {
        difference += sign * scores_[static_cast<size_t>(id)];
        all += std::abs(scores_[static_cast<size_t>(id)]);
      }
    }
    constexpr double kRounding = 1e-6;  // of sums in float32
    return std::abs(difference) <= kRounding * all;
  }

  void write(io::GgufWriter& writer) const {
    const auto set = [&](const char* key, io::GgufWriter::Value value) {
      writer.set(str("tokenizer.ggml.", key), std::move(value));
    };
    set("model", model_);
    set("pre", pre_);
    set("tokens", tokens_);
    set("token_type", types_);
    if (model_ != "gpt2") {
      set("scores", scores_);
      set("add_space_prefix", starts_with_space());
    }
    if (model_ == "t5") {
      set("remove_extra_whitespaces", merges_spaces());
      if (!charsmap_.empty()) set("precompiled_charsmap", charsmap_);
    } else if (model_ != "llama") {
      set("merges", merges_);
    }
    const SpecialIds& special = tokenizer_->special_ids();
    const std::optional<int32_t> eos = special.eos ? special.eos : configured("eos_token_id");
    const std::pair<const char*, std::optional<int32_t>> roles[] = {
        {"bos_token_id", special.bos ? special.bos : configured("bos_token_id")},
        {"eos_token_id", eos},
        {"unknown_token_id", unknown_},
        {"padding_token_id", special.pad}};
    for (const auto& [key, id] : roles) {
      if (id) set(key, static_cast<uint32_t>(*id));
    }
    std::vector<const char*> end_keys = {"eom_token_id", "eot_token_id"};
    for (const io::EndToken& end : model_files_.end_tokens) {
      if (end.id == eos || end.id >= rows_ || end_keys.empty()) continue;
      set(end_keys.back(), static_cast<uint32_t>(end.id));
      end_keys.pop_back();
    }
    const std::vector<int32_t> frame = tokenizer_->encode("");
    const bool adds_bos = tokenizer_->adds_bos();
    set("add_bos_token", adds_bos);
    set("add_eos_token", frame.size() > (adds_bos ? 1 : 0) && special.eos == frame.back());
  }

 private:
  GgufTokenType type(int32_t id) const {
    return static_cast<GgufTokenType>(types_[static_cast<size_t>(id)]);
  }
  void set_type(int32_t id, GgufTokenType type) {
    types_[static_cast<size_t>(id)] = static_cast<int32_t>(type);
  }

  std::optional<int32_t> configured(const char* key) const {
    const io::Json* id = io::find_value(model_files_.config, key);
    if (id != nullptr && id->is_array() && !id->empty()) id = &(*id)[0];
    if (id == nullptr || !id->is_number_integer() || *id < 0 || *id >= rows_) return std::nullopt;
    return id->get<int32_t>();
  }

  // Whether a space mark comes before a text.
  bool starts_with_space() const {
    const std::vector<int32_t> ids = tokenizer_->encode("a", {.add_special = false});
    return !ids.empty() && tokenizer_->token_text(ids[0]).starts_with(kSpaceMark);
  }

  // Whether spaces in a row count as one.
  bool merges_spaces() const {
    const EncodeOptions plain = {.add_special = false};
    return tokenizer_->encode("a  a", plain) == tokenizer_->encode("a a", plain);
  }

  void find_added_tokens() {
    if (const io::Json* tokens = io::find_value(source_.json, "added_tokens")) {
      for (const io::Json& token : *tokens) added_.insert(io::get_string(token, "content"));
    }
    for (const AddedToken& token : configured_added_tokens(source_.config)) {
      added_.insert(token.content);
    }
  }

  void list_tokens() {
    for (int32_t id = 0; id < rows_; ++id) {
      const std::string_view token = tokenizer_->token_text(id);
      GgufTokenType type = GgufTokenType::kNormal;
      if (token.empty()) {
        type = GgufTokenType::kUnused;
      } else if (tokenizer_->is_special(id)) {
        type = GgufTokenType::kControl;
      } else if (added_.count(std::string(token)) > 0) {
        type = GgufTokenType::kUserDefined;
      }
      tokens_.push_back(token.empty() ? str("[PAD", id, "]") : std::string(token));
      types_.push_back(static_cast<int32_t>(type));
    }
  }

  void describe_sentencepiece() {
    const SentencepieceModel model = check_sentencepiece(*source_.sentencepiece);
    const bool is_unigram = model.kind == PieceModel::kUnigram;
    if (!is_unigram && model.kind != PieceModel::kBpe) {
      refuse("a sentencepiece model of words or characters");
    }
    byte_fallback_ = model.byte_fallback || !is_unigram;
    use_pieces();
    for (size_t id = 0; id < model.pieces.size(); ++id) {
      const SentencepieceModel::Piece& piece = model.pieces[id];
      scores_[id] = piece.score;
      types_[id] = static_cast<int32_t>(piece.type);  // the numbers of both formats are the same
      if (piece.type == PieceType::kUnknown) unknown_ = static_cast<int32_t>(id);
    }
    if (is_unigram) describe_unigram(model.charsmap, least_score());
  }

  void describe_json() {
    const io::Json& model = source_.json["model"];
    if (const io::Json* vocab = io::find(model, "vocab"); vocab != nullptr && vocab->is_array()) {
      return describe_unigram_json(model);
    }
    const bool is_bpe = io::get_string(model, "type", "BPE") == "BPE" && io::find(model, "merges");
    if (!is_bpe) refuse(tokenizer_->kind());
    for (const io::Json& merge : model["merges"]) {
      const auto [left, right] = split_merge(merge);
      merges_.push_back(str(left, " ", right));
    }
    byte_fallback_ = io::get_bool(model, "byte_fallback", false);
    if (byte_fallback_) {
      use_pieces();
      // Readers of Gemma 4 take merges by their ranks.
      if (io::get_string(model_files_.config, "model_type", "").starts_with("gemma4")) {
        model_ = "gemma4";
      } else {
        score_merged_tokens();
      }
    } else if (has_characters_alone()) {
      describe_characters();
    } else {
      describe_byte_level(io::get_bool(model, "ignore_merges", false));
    }
  }

  // Whether texts become their characters, without those that are no tokens.
  bool has_characters_alone() const {
    const auto is_null = [&](const char* part) {
      return io::find_value(source_.json, part) == nullptr;
    };
    if (!is_null("normalizer") || !is_null("pre_tokenizer") || tokenizer_->special_ids().unk) {
      return false;
    }
    for (int32_t id = 0; id < rows_; ++id) {
      if (is_plain(id) && !is_one_character(tokens_[static_cast<size_t>(id)])) return false;
    }
    return true;
  }

  // As BPE of bytes that only joins those of a character, one after the other: what comes between
  // need not be a token.
  void describe_characters() {
    model_ = "gpt2";
    pre_ = "gpt-2";
    std::unordered_set<std::string> seen;
    for (int32_t id = 0; id < rows_; ++id) {
      if (!is_plain(id)) continue;
      std::string spelling;
      for (const char byte : std::exchange(tokens_[static_cast<size_t>(id)], "")) {
        const std::string_view next = byte_character(static_cast<uint8_t>(byte));
        std::string merge = str(spelling, " ", next);
        if (!spelling.empty() && seen.insert(merge).second) merges_.push_back(std::move(merge));
        spelling += next;
      }
      tokens_[static_cast<size_t>(id)] = std::move(spelling);
    }
  }

  void use_pieces() {
    model_ = "llama";
    scores_.assign(tokens_.size(), 0);
    for (int32_t id = 0; byte_fallback_ && id < rows_; ++id) {
      if (is_plain(id) && byte_of_token(tokens_[static_cast<size_t>(id)]) >= 0) {
        set_type(id, GgufTokenType::kByte);
      }
    }
    if (unknown_) set_type(*unknown_, GgufTokenType::kUnknown);
  }

  void describe_unigram_json(const io::Json& model) {
    byte_fallback_ = io::get_bool(model, "byte_fallback", false);
    const io::Json& vocab = model["vocab"];
    unknown_.reset();
    if (io::find_value(model, "unk_id") != nullptr) {
      unknown_ = static_cast<int32_t>(io::get_int(model, "unk_id", 0, rows_ - 1));
    }
    use_pieces();
    float least = 0;
    for (size_t id = 0; id < vocab.size(); ++id) {
      scores_[id] = vocab[id][1].get<float>();
      least = id == 0 ? scores_[id] : std::min(least, scores_[id]);
    }
    std::string charsmap;
    const io::Json* normalizer = io::find_value(source_.json, "normalizer");
    if (const io::Json* map = normalizer ? precompiled(*normalizer) : nullptr) {
      charsmap = decode_base64(io::get_string(*map, "precompiled_charsmap", ""));
    }
    describe_unigram(charsmap, least);
  }

  // The first character map among the normalizers, or null.
  static const io::Json* precompiled(const io::Json& normalizer) {
    if (io::get_string(normalizer, "type", "") == "Precompiled") return &normalizer;
    if (const io::Json* parts = io::find_value(normalizer, "normalizers")) {
      for (const io::Json& part : *parts) {
        if (const io::Json* found = precompiled(part)) return found;
      }
    }
    return nullptr;
  }

  // Of the pieces that texts are made of.
  float least_score() const {
    float least = 0;
    bool first = true;
    for (int32_t id = 0; id < rows_; ++id) {
      if (!is_plain(id)) continue;
      least = first ? scores_[static_cast<size_t>(id)]
                    : std::min(least, scores_[static_cast<size_t>(id)]);
      first = false;
    }
    return least;
  }

  // `least` is the score from which on unknown characters count for the tokenizer.
  void describe_unigram(std::string_view charsmap, float least) {
    model_ = "t5";
    charsmap_.assign(charsmap.begin(), charsmap.end());
    if (!unknown_) refuse("a unigram vocabulary without a token for what is unknown");
    std::unordered_set<std::string_view> characters;
    for (int32_t id = 0; id < rows_; ++id) {
      const std::string_view token = tokens_[static_cast<size_t>(id)];
      if ((is_plain(id) || is_user_defined(id)) && is_one_character(token)) {
        characters.insert(token);
      }
    }
    check_unknown_scores(characters, least);
    // Readers know no bytes as fallback. Those that are characters can be said as such, but for
    // NUL, which ends a string, and the space, which is a mark.
    std::vector<std::pair<size_t, std::string>> added;
    for (int32_t id = 0; byte_fallback_ && id < rows_; ++id) {
      const auto i = static_cast<size_t>(id);
      if (type(id) != GgufTokenType::kByte) continue;
      const int byte = byte_of_token(tokens_[i]);
      const std::string character(1, static_cast<char>(byte));
      if (byte > 0 && byte < 0x80 && byte != ' ' && !characters.contains(character)) {
        added.emplace_back(i, character);
      }
    }
    for (auto& [id, character] : added) {
      tokens_[id] = std::move(character);
      scores_[id] = least;
      set_type(static_cast<int32_t>(id), GgufTokenType::kNormal);
    }
    for (int32_t id = 0; id < rows_; ++id) {  // a text may spell them
      constexpr float kNever = -1e6f;         // less than their characters, of −1e4 at least
      if (type(id) == GgufTokenType::kUnused) scores_[static_cast<size_t>(id)] = kNever;
    }
  }

  // What an unknown character costs matters only for pieces that hold one. Readers count from the
  // least score of plain pieces, and take the ASCII ones for known (see above).
  void check_unknown_scores(const std::unordered_set<std::string_view>& characters, float least) {
    const bool same = least == least_score();
    if (same && !byte_fallback_) return;
    for (int32_t id = 0; id < rows_; ++id) {
      const std::string_view token = tokens_[static_cast<size_t>(id)];
      if (!is_plain(id) || is_one_character(token)) continue;
      for (size_t pos = 0; pos < token.size();) {
        const size_t begin = pos;
        next_code_point(token, pos);
        const std::string_view character = token.substr(begin, pos - begin);
        if (characters.contains(character) || (same && character.size() > 1)) continue;
        refuse(str("a unigram vocabulary whose token ", quoted(token), " holds ", quoted(character),
                   ", which is no token,"));
      }
    }
  }

  // A score for every merged token, the higher the earlier: merging by score is then the same as
  // merging by rank. Tokens that are not merged come last, as sentencepiece has it.
  void score_merged_tokens() {
    std::unordered_map<std::string_view, int32_t> ids;
    for (int32_t id = 0; id < rows_; ++id) ids[tokens_[static_cast<size_t>(id)]] = id;
    std::vector<bool> scored(tokens_.size());
    int32_t rank = 0;
    for (const std::string& merge : merges_) {
      std::string joined = merge;
      joined.erase(merge.find(' '), 1);
      const auto found = ids.find(joined);
      if (found == ids.end()) refuse(str("BPE with the merge ", quoted(merge)));
      const auto id = static_cast<size_t>(found->second);
      if (scored[id]) continue;
      scored[id] = true;
      scores_[id] = static_cast<float>(-rank++);
    }
    for (int32_t id = 0; id < rows_; ++id) {
      const auto i = static_cast<size_t>(id);
      if (is_plain(id) && !scored[i]) scores_[i] = static_cast<float>(-rank++);
    }
  }

  void describe_byte_level(bool ignore_merges) {
    const std::unique_ptr<PreTokenizer> split =
        parse_pre_tokenizer(source_.json.value("pre_tokenizer", io::Json()));
    model_ = "gpt2";
    if (split != nullptr) pre_ = gguf_pre_tokenizer_name(*split, ignore_merges);
    if (split == nullptr || !split->leave_bytes_plain()) {  // which changes it
      refuse("BPE of characters without bytes as fallback");
    }
    if (pre_.empty()) {
      fail(ErrorKind::kUnsupported, "GGUF has no name (tokenizer.ggml.pre) for the way in which ",
           "pre_tokenizer splits text into words");
    }
  }

  [[noreturn]] static void refuse(const std::string& found) {
    fail(ErrorKind::kUnsupported, found, " cannot be written into a GGUF file; possible are ",
         "byte-level BPE, BPE with bytes as fallback (Llama 2, Mistral), unigram, and characters");
  }

  const DirectoryVocabulary& source_;
  const io::ModelFiles& model_files_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  int32_t rows_ = 0;  // tokens that the model has
  std::optional<int32_t> unknown_;
  bool byte_fallback_ = false;  // bytes stand for unknown characters
  std::unordered_set<std::string> added_;
  std::string model_, pre_ = "default";
  std::vector<uint8_t> charsmap_;  // of unigram
  std::vector<std::string> tokens_, merges_;
  std::vector<float> scores_;
  std::vector<int32_t> types_;
};

std::shared_ptr<const Tokenizer> read_back(const Keys& keys) {
  io::GgufWriter writer;
  keys.write(writer);
  return load_tokenizer(*writer.read_back("the vocabulary as GGUF"));
}

// `text` without spaces at its ends, and single ones elsewhere.
std::string single_spaced(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c != ' ' || (!out.empty() && out.back() != ' ')) out += c;
  }
  if (out.ends_with(' ')) out.pop_back();
  return out;
}

// Where the ids of plain text are the same.
struct Agreement {
  bool spaces = true;  // in texts with several in a row, other than at the beginning
  bool ties = true;    // where splits are equally likely
};

// Throws unless composed text (NFC) of single spaces, without control tokens, gives the same ids,
// but for ties.
Agreement check_plain_text(const Keys& keys, const Tokenizer& copy) {
  std::vector<std::string> texts = {
      "One",
      "two  spaces ",
      "\n",
      "\n\nlines\r\n\r\n\tend \n ",
      "<s>x</s>",
      "Once upon a time, there weren't 1234567 cats: 3.14 naïve café — 東京 и Москва "
      "🙂🏽!\n\n",
      "for (int i = 0; i < 10; ++i) {\n\treturn \"it's\";\r\n}   end ",
      "\u00A0\u3000ﬁÅ①½  ٣ x"};
  constexpr int32_t kTokensOfText = 64;
  for (int32_t begin = 0; begin < copy.vocab_size(); begin += kTokensOfText) {
    std::string text = "x";
    const int32_t end = std::min(begin + kTokensOfText, copy.vocab_size());
    for (int32_t id = begin; id < end; ++id) {
      if (!keys.is_plain(id)) continue;
      text += keys.tokenizer().decode(std::span(&id, 1));
      text += id % 3 == 0 ? "\n" : " ";
    }
    texts.push_back(std::move(text));
  }
  Agreement agreement;
  const auto agrees = [&](std::string_view text) {
    const EncodeOptions plain = {.add_special = true, .parse_special = false};
    const std::vector<int32_t> ids = keys.tokenizer().encode(text, plain);
    const std::vector<int32_t> copied = copy.encode(text, plain);
    if (ids == copied) return true;
    const bool tie = keys.are_equally_likely(ids, copied);
    if (tie) agreement.ties = false;
    return tie;
  };
  for (const std::string& each : texts) {
    const std::string text = keys.sayable(normalize(each, Form::kNfc));
    if (agrees(text)) continue;
    agreement.spaces = false;
    if (!agrees(single_spaced(text))) {
      fail(ErrorKind::kUnsupported,
           "a GGUF file cannot say what this tokenizer does: ", quoted(text, 100),
           " would become other tokens");
    }
  }
  return agreement;
}

std::vector<std::string> differences(const Keys& keys, const Tokenizer& copy,
                                     const Agreement& agreement) {
  std::vector<std::string> notes;
  const auto note = [&](std::string_view what) {
    notes.push_back(str("GGUF cannot say what the tokenizer does with ", what,
                        ": other tokens than from the directory"));
  };
  const auto same = [&](std::string_view text) {
    const EncodeOptions whole = {.add_special = true, .parse_special = true};
    return keys.tokenizer().encode(text, whole) == copy.encode(text, whole);
  };
  if (keys.loses_bytes()) note("characters that its vocabulary lacks, unless they are ASCII");
  if (!same(keys.sayable("e\u0301"))) note("characters that are not composed (NFC)");
  if (!agreement.ties) note("words whose splits are equally likely");
  if (!agreement.spaces || !same("  a")) note("spaces at the beginning of a text or in a row");
  if (same("  a") && !same("  ")) note("a text of nothing but spaces");
  for (int32_t id = 0; id < copy.vocab_size(); ++id) {
    const std::string_view token = copy.token_text(id);
    if (!copy.is_special(id) || same(str("a ", token, " b", token, "c"))) continue;
    note("text beside control tokens");
    break;
  }
  for (int32_t id = 0; id < copy.vocab_size(); ++id) {
    const std::string_view token = copy.token_text(id);
    if (!keys.is_user_defined(id) || same(str("a ", token, " b", token, "c"))) continue;
    note("text beside user-defined tokens");
    break;
  }
  return notes;
}

}  // namespace

std::vector<std::string> set_gguf_tokenizer(const io::ModelFiles& model, io::GgufWriter& writer) {
  const DirectoryVocabulary source = read_directory_vocabulary(model.path);
  return with_context(source.path, [&] {
    const Keys keys(source, model);
    const std::shared_ptr<const Tokenizer> copy = read_back(keys);
    const Agreement agreement = check_plain_text(keys, *copy);
    keys.write(writer);
    io::set_gguf_chat_templates(model.chat_templates, writer);
    return differences(keys, *copy, agreement);
  });
}

}  // namespace lumen::text
