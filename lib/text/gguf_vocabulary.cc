#include "lib/text/gguf_vocabulary.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "lib/base/error.h"

namespace lumen::text {
namespace {

using io::GgufType;
using io::GgufValue;

constexpr std::string_view kPrefix = "tokenizer.ggml.";

// Spellings that end a turn or text whatever the keys say; files often mark them as ordinary.
constexpr std::array<std::string_view, 14> kEnds = {
    "<|eot_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>",        "<|endoftext|>",
    "<|eom_id|>", "<EOT>",      "_<EOT>",  "<|end_of_text|>",      "<end_of_utterance>",
    "<eos>",      "<|return|>", "<turn|>", "<｜end▁of▁sentence｜>"};

// Spellings of fill-in-the-middle tokens, which are control tokens too.
constexpr std::array<std::string_view, 24> kFillInTheMiddle = {
    "<|fim_prefix|>", "<fim-prefix>", "<fim_prefix>", "<｜fim▁begin｜>", "<PRE>",
    "<|fim_suffix|>", "<fim-suffix>", "<fim_suffix>", "<｜fim▁hole｜>",  "<SUF>",
    "<|fim_middle|>", "<fim-middle>", "<fim_middle>", "<｜fim▁end｜>",   "<MID>",
    "<|fim_pad|>",    "<fim-pad>",    "<fim_pad>",    "<PAD>",           "<|fim_repo|>",
    "<|repo_name|>",  "<fim-repo>",   "<REPO>",       "<|file_sep|>"};

class Reader {
 public:
  explicit Reader(const io::GgufFile& file) : file_(file) {}

  GgufVocabulary read() {
    out_.model = file_.metadata.get_string(key("model"));
    out_.pre = file_.metadata.get_string(key("pre"), "default");
    read_tokens();
    read_scores();
    read_types();
    set_defaults();
    read_special_ids();
    out_.add_bos = file_.metadata.get_bool(key("add_bos_token"), out_.add_bos);
    out_.add_eos = file_.metadata.get_bool(key("add_eos_token"), out_.add_eos);
    out_.add_sep = file_.metadata.get_bool(key("add_sep_token"), out_.add_sep);
    out_.add_space_prefix = file_.metadata.get_bool(key("add_space_prefix"), out_.add_space_prefix);
    mark_control_tokens();
    if (out_.model == "gemma4") mark_line_ends();
    mark_strips();
    return std::move(out_);
  }

 private:
  static std::string key(std::string_view name) { return str(kPrefix, name); }

  std::optional<GgufValue> array(std::string_view name) const {
    const std::optional<GgufValue> value = file_.metadata.find(key(name));
    if (value && !value->is_array()) {
      fail(ErrorKind::kMalformed, "key ", key(name), " has type ", io::name(value->type()),
           ", expected an array");
    }
    return value;
  }
  // An array with one element per token.
  std::optional<GgufValue> per_token(std::string_view name) const {
    const std::optional<GgufValue> value = array(name);
    if (value && value->size() != count()) {
      fail(ErrorKind::kMalformed, "key ", key(name), " has ", value->size(),
           " elements, expected one for each of ", count(), " tokens");
    }
    return value;
  }
  [[noreturn]] static void wrong_elements(const GgufValue& value, std::string_view expected) {
    fail(ErrorKind::kMalformed, "key ", quoted(value.key()), " is an array of ",
         io::name(value.element_type()), ", expected ", expected);
  }

  size_t count() const { return static_cast<size_t>(out_.tokens->size()); }

  void read_tokens() {
    const std::optional<GgufValue> tokens = array("tokens");
    if (!tokens || tokens->size() == 0) {
      fail(ErrorKind::kMalformed, "key ", key("tokens"), " is missing or empty: no vocabulary");
    }
    if (tokens->element_type() != GgufType::kString) wrong_elements(*tokens, "string");
    out_.tokens->reserve(tokens->size());
    for (size_t i = 0; i < tokens->size(); ++i) {
      const std::string_view text = tokens->string_at(i);
      out_.tokens->set(static_cast<int64_t>(i), text.empty() ? str("[EMPTY_", i, "]") : text);
    }
  }

  void read_scores() {
    out_.scores.assign(count(), 0);
    const std::optional<GgufValue> scores = per_token("scores");
    if (!scores) return;
    if (scores->element_type() != GgufType::kF32) wrong_elements(*scores, "f32");
    for (size_t i = 0; i < count(); ++i) {
      out_.scores[i] = static_cast<float>(scores->number_at(i));
      if (!std::isfinite(out_.scores[i])) {
        fail(ErrorKind::kMalformed, "the score of token ", i, " is ", out_.scores[i]);
      }
    }
  }

  void read_types() {
    out_.types.assign(count(), GgufTokenType::kNormal);
    const std::optional<GgufValue> types = per_token("token_type");
    if (!types) return;
    if (types->element_type() != GgufType::kI32 && types->element_type() != GgufType::kU32) {
      wrong_elements(*types, "i32");
    }
    for (size_t i = 0; i < count(); ++i) {
      const int64_t type = types->int_at(i);
      const bool known = type >= 0 && type <= static_cast<int64_t>(GgufTokenType::kByte);
      out_.types[i] = known ? static_cast<GgufTokenType>(type) : GgufTokenType::kUndefined;
    }
  }

  // What holds where the file is silent.
  void set_defaults() {
    const auto id = [&](int32_t value) {
      return static_cast<size_t>(value) < count() ? std::optional(value) : std::nullopt;
    };
    SpecialIds& special = out_.special;
    if (out_.model == "llama") {
      special.bos = id(1), special.eos = id(2), special.unk = id(0);
      out_.add_bos = out_.add_space_prefix = true;
    } else if (out_.model == "bert") {
      special.bos = id(101), special.sep = id(102), special.unk = id(100), special.pad = id(0);
      special.mask = id(103);
      out_.add_bos = true;
    } else if (out_.model == "t5") {
      special.eos = id(1), special.unk = id(2), special.pad = id(0);
      out_.add_eos = out_.add_space_prefix = true;
    } else if (out_.model == "gpt2") {
      special.bos = special.eos = id(11);
    } else if (out_.model == "gemma4") {
      out_.add_bos = true;
    } else {
      fail(ErrorKind::kUnsupported, "tokenizer.ggml.model is ", quoted(out_.model),
           ", supported are llama, gpt2, gemma4, bert and t5");
    }
  }

  std::optional<int32_t> read_id(std::string_view name) const {
    const std::string full = key(name);
    if (!file_.metadata.find(full)) return std::nullopt;
    const int64_t id = file_.metadata.get_int(full, INT64_MIN, INT64_MAX);
    // All ones is how converters write "none".
    if (id == -1 || id == UINT32_MAX) return std::nullopt;
    if (id < 0 || id >= static_cast<int64_t>(count())) {
      fail(ErrorKind::kMalformed, "key ", full, " is ", id, ", but there are ", count(), " tokens");
    }
    return static_cast<int32_t>(id);
  }

  void read_special_ids() {
    const std::pair<std::string_view, std::optional<int32_t>*> kRoles[] = {
        {"bos_token_id", &out_.special.bos},       {"eos_token_id", &out_.special.eos},
        {"unknown_token_id", &out_.special.unk},   {"padding_token_id", &out_.special.pad},
        {"seperator_token_id", &out_.special.sep}, {"separator_token_id", &out_.special.sep},
        {"mask_token_id", &out_.special.mask}};
    for (const auto& [name, id] : kRoles) {
      if (const std::optional<int32_t> given = read_id(name)) *id = given;
    }
    for (const auto& id : {out_.special.eos, read_id("eot_token_id"), read_id("eom_token_id")}) {
      if (id) add_end(*id);
    }
  }

  void add_end(int32_t id) {
    if (std::find(out_.ends.begin(), out_.ends.end(), id) == out_.ends.end()) {
      out_.ends.push_back(id);
    }
  }

  void make_control(int32_t id) { out_.types[static_cast<size_t>(id)] = GgufTokenType::kControl; }

  void mark_control_tokens() {
    for (const std::string_view text : kEnds) {
      const int32_t id = out_.tokens->find(text);
      if (id < 0) continue;
      make_control(id);
      add_end(id);
    }
    for (const std::string_view text : kFillInTheMiddle) {
      if (const int32_t id = out_.tokens->find(text); id >= 0) make_control(id);
    }
  }

  // Several line ends that are a token are it whole; there are no merges to it.
  void mark_line_ends() {
    for (int32_t id = 0; id < out_.tokens->size(); ++id) {
      const std::string_view text = out_.tokens->text(id);
      if (text.size() < 2 || text.find_first_not_of('\n') != text.npos) continue;
      out_.types[static_cast<size_t>(id)] = GgufTokenType::kUserDefined;
    }
  }

  // Files do not say which tokens take white space along; the models that need it are known.
  void mark_strips() {
    out_.lstrip.assign(count(), false);
    out_.rstrip.assign(count(), false);
    std::string name(file_.metadata.get_string("general.name", ""));
    for (char& c : name) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c);
    if (out_.pre == "jina-v2-de" || out_.pre == "jina-v2-es" || out_.pre == "jina-v2-code") {
      if (const int32_t id = out_.tokens->find("<mask>"); id >= 0) {
        out_.lstrip[static_cast<size_t>(id)] = true;
      }
    } else if (name.find("phi-3") != std::string::npos || name.find("phi3") != std::string::npos) {
      for (size_t i = 0; i < count(); ++i) {
        const std::string_view text = out_.tokens->text(static_cast<int32_t>(i));
        const GgufTokenType type = out_.types[i];
        const bool found = type == GgufTokenType::kControl || type == GgufTokenType::kUnknown ||
                           type == GgufTokenType::kUserDefined || text == "</s>";
        out_.rstrip[i] = found && text != "<unk>" && text != "<s>" && text != "<|endoftext|>";
      }
    }
  }

  const io::GgufFile& file_;
  GgufVocabulary out_;
};

}  // namespace

GgufVocabulary read_gguf_vocabulary(const io::GgufFile& file) {
  return Reader(file).read();
}

}  // namespace lumen::text
