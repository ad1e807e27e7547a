#include "lib/text/gguf_keys.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "lib/base/error.h"
#include "lib/base/limits.h"
#include "lib/io/gguf.h"
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
    if (model_ != "llama") set("merges", merges_);
    const SpecialIds& special = tokenizer_->special_ids();
    const std::optional<int32_t> eos = special.eos ? special.eos : configured("eos_token_id");
    const std::pair<const char*, std::optional<int32_t>> roles[] = {
        {"bos_token_id", special.bos ? special.bos : configured("bos_token_id")},
        {"eos_token_id", eos},
        {"unknown_token_id", special.unk},
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
    if (!model.is_bpe) refuse("a sentencepiece model that is not BPE");
    use_pieces();
    for (size_t id = 0; id < model.pieces.size(); ++id) {
      const SentencepieceModel::Piece& piece = model.pieces[id];
      scores_[id] = piece.score;
      types_[id] = static_cast<int32_t>(piece.type);  // the numbers of both formats are the same
    }
  }

  void describe_json() {
    const io::Json& model = source_.json["model"];
    const bool is_bpe = io::get_string(model, "type", "BPE") == "BPE" && io::find(model, "merges");
    if (!is_bpe) refuse(tokenizer_->kind());
    for (const io::Json& merge : model["merges"]) {
      const auto [left, right] = split_merge(merge);
      merges_.push_back(str(left, " ", right));
    }
    if (io::get_bool(model, "byte_fallback", false)) {
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
    for (int32_t id = 0; id < rows_; ++id) {
      if (is_plain(id) && byte_of_token(tokens_[static_cast<size_t>(id)]) >= 0) {
        set_type(id, GgufTokenType::kByte);
      }
    }
    if (const auto unk = tokenizer_->special_ids().unk) set_type(*unk, GgufTokenType::kUnknown);
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
         "byte-level BPE, BPE with bytes as fallback (Llama 2, Mistral), and characters");
  }

  const DirectoryVocabulary& source_;
  const io::ModelFiles& model_files_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  int32_t rows_ = 0;  // tokens that the model has
  std::unordered_set<std::string> added_;
  std::string model_, pre_ = "default";
  std::vector<std::string> tokens_, merges_;
  std::vector<float> scores_;
  std::vector<int32_t> types_;
};

std::shared_ptr<const Tokenizer> read_back(const Keys& keys) {
  io::GgufWriter writer;
  keys.write(writer);
  const auto bytes = std::make_shared<std::string>(writer.header());
  auto buffer = std::make_shared<Buffer>();
  buffer->data = reinterpret_cast<std::byte*>(bytes->data());
  buffer->bytes = bytes->size();
  buffer->owner = bytes;
  return load_tokenizer(*io::parse_gguf(buffer, "the vocabulary as GGUF"));
}

bool same_ids(const Tokenizer& a, const Tokenizer& b, std::string_view text, bool parse_special) {
  const EncodeOptions options = {.add_special = true, .parse_special = parse_special};
  return a.encode(text, options) == b.encode(text, options);
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

// Throws unless composed text (NFC) of single spaces, without control tokens, gives the same ids.
// Returns whether more spaces do too, other than at the beginning.
bool check_plain_text(const Keys& keys, const Tokenizer& copy) {
  std::vector<std::string> texts = {
      "One",
      "two  spaces ",
      "\n",
      "\n\nlines\r\n\r\n\tend \n ",
      "<s>x</s>",
      "Once upon a time, there weren't 1234567 cats: 3.14 naïve café — 東京 и Москва "
      "🙂🏽!\n\n",
      "for (int i = 0; i < 10; ++i) {\n\treturn \"it's\";\r\n}   end ",
      "\u00A0\u3000ﬁÅ①½  ٣"};
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
  bool spaces_agree = true;
  for (const std::string& each : texts) {
    const std::string text = normalize(each, Form::kNfc);
    if (same_ids(keys.tokenizer(), copy, text, false)) continue;
    spaces_agree = false;
    if (!same_ids(keys.tokenizer(), copy, single_spaced(text), false)) {
      fail(ErrorKind::kUnsupported,
           "a GGUF file cannot say what this tokenizer does: ", quoted(text, 100),
           " would become other tokens");
    }
  }
  return spaces_agree;
}

std::vector<std::string> differences(const Keys& keys, const Tokenizer& copy, bool spaces_agree) {
  std::vector<std::string> notes;
  const auto note = [&](std::string_view what) {
    notes.push_back(str("GGUF cannot say what the tokenizer does with ", what,
                        ": other tokens than from the directory"));
  };
  const auto same = [&](std::string_view text) {
    return same_ids(keys.tokenizer(), copy, text, true);
  };
  if (!same("e\u0301")) note("characters that are not composed (NFC)");
  if (!spaces_agree || !same("  a")) note("spaces at the beginning of a text or in a row");
  for (int32_t id = 0; id < copy.vocab_size(); ++id) {
    const std::string_view token = copy.token_text(id);
    if (!copy.is_special(id) || same(str("a ", token, " b", token, "c"))) continue;
    note("text beside control tokens");
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
    const bool spaces_agree = check_plain_text(keys, *copy);
    keys.write(writer);
    io::set_gguf_chat_templates(model.chat_templates, writer);
    return differences(keys, *copy, spaces_agree);
  });
}

}  // namespace lumen::text
