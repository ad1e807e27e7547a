#include "lib/text/normalizer.h"

#include <utility>
#include <vector>

#include "lib/base/error.h"
#include "lib/text/base64.h"
#include "lib/text/byte_level.h"
#include "lib/text/charsmap.h"
#include "lib/text/json_fields.h"
#include "lib/text/pattern.h"
#include "lib/text/unicode.h"

namespace lumen::text {
namespace {

// A normalizer that maps one character after the other.
class CharacterMap : public Normalizer {
 public:
  void apply(std::string& text) const override {
    std::string out;
    out.reserve(text.size());
    for (size_t pos = 0; pos < text.size();) append(out, next_code_point(text, pos));
    text = std::move(out);
  }

 private:
  virtual void append(std::string& out, uint32_t c) const = 0;
};

class Lowercase : public CharacterMap {
  void append(std::string& out, uint32_t c) const override { append_lower(out, c); }
};

class StripAccents : public CharacterMap {
  void append(std::string& out, uint32_t c) const override {
    if (!is_mark(c)) append_utf8(out, c);
  }
};

// The rules of Google's neural machine translation preprocessing.
class Nmt : public CharacterMap {
  void append(std::string& out, uint32_t c) const override {
    const bool removed = (c >= 0x1 && c <= 0x8) || c == 0xB || (c >= 0xE && c <= 0x1F) ||
                         c == 0x7F || c == 0x8F || c == 0x9F;
    if (removed) return;
    const bool space = c == 0x9 || c == 0xA || c == 0xC || c == 0xD || c == 0x1680 ||
                       (c >= 0x200B && c <= 0x200F) || c == 0x2028 || c == 0x2029 || c == 0x2581 ||
                       c == 0xFEFF || c == 0xFFFD;
    append_utf8(out, space ? ' ' : c);
  }
};

class ByteLevelNormalizer : public Normalizer {
 public:
  void apply(std::string& text) const override {
    std::string out;
    out.reserve(text.size() + text.size() / 2);
    for (const char c : text) out += byte_character(static_cast<uint8_t>(c));
    text = std::move(out);
  }
};

class UnicodeForm : public Normalizer {
 public:
  explicit UnicodeForm(Form form) : form_(form) {}
  void apply(std::string& text) const override { text = normalize(text, form_); }

 private:
  Form form_;
};

class Strip : public Normalizer {
 public:
  Strip(bool left, bool right) : left_(left), right_(right) {}
  void apply(std::string& text) const override {
    size_t begin = 0, end = text.size();
    for (size_t pos = 0; left_ && begin < end && is_whitespace(next_code_point(text, pos));) {
      begin = pos;
    }
    while (right_ && end > begin) {
      size_t last = end - 1;
      while (last > begin && (static_cast<uint8_t>(text[last]) & 0xC0) == 0x80) --last;
      size_t pos = last;
      if (!is_whitespace(next_code_point(text, pos))) break;
      end = last;
    }
    text = text.substr(begin, end - begin);
  }

 private:
  bool left_, right_;
};

class Prepend : public Normalizer {
 public:
  explicit Prepend(std::string prefix) : prefix_(std::move(prefix)) {}
  void apply(std::string& text) const override {
    if (!text.empty()) text.insert(0, prefix_);
  }

 private:
  std::string prefix_;
};

class Replace : public Normalizer {
 public:
  Replace(Pattern pattern, std::string content)
      : pattern_(std::move(pattern)), content_(std::move(content)) {}
  void apply(std::string& text) const override { text = pattern_.replace_all(text, content_); }

 private:
  Pattern pattern_;
  std::string content_;
};

class Precompiled : public Normalizer {
 public:
  explicit Precompiled(Charsmap map) : map_(std::move(map)) {}
  void apply(std::string& text) const override { text = normalize_by_grapheme(map_, text); }

 private:
  Charsmap map_;
};

// What BERT does: https://github.com/google-research/bert, tokenization.py.
class BertNormalizer : public Normalizer {
 public:
  BertNormalizer(bool clean, bool chinese, bool strip_accents, bool lower)
      : clean_(clean), chinese_(chinese), strip_accents_(strip_accents), lower_(lower) {}

  void apply(std::string& text) const override {
    std::string out;
    out.reserve(text.size());
    for (size_t pos = 0; pos < text.size();) {
      uint32_t c = next_code_point(text, pos);
      if (clean_) {
        const bool blank = c == '\t' || c == '\n' || c == '\r';
        if (c == 0 || c == 0xFFFD || (!blank && is_control(c))) continue;
        if (is_whitespace(c)) c = ' ';
      }
      const bool padded = chinese_ && is_ideograph(c);
      if (padded) out += ' ';
      append_utf8(out, c);
      if (padded) out += ' ';
    }
    if (strip_accents_) {
      const std::string decomposed = normalize(out, Form::kNfd);
      out.clear();
      for (size_t pos = 0; pos < decomposed.size();) {
        const uint32_t c = next_code_point(decomposed, pos);
        if (category(c) != Category::kMn) append_utf8(out, c);
      }
    }
    if (lower_) Lowercase().apply(out);
    text = std::move(out);
  }

 private:
  bool clean_, chinese_, strip_accents_, lower_;
};

class NormalizerSequence : public Normalizer {
 public:
  explicit NormalizerSequence(std::vector<std::unique_ptr<Normalizer>> parts)
      : parts_(std::move(parts)) {}
  void apply(std::string& text) const override {
    for (const auto& part : parts_) part->apply(text);
  }

 private:
  std::vector<std::unique_ptr<Normalizer>> parts_;
};

std::unique_ptr<Normalizer> parse_bert_normalizer(const io::Json& json) {
  const bool lower = io::get_bool(json, "lowercase", true);
  return std::make_unique<BertNormalizer>(
      io::get_bool(json, "clean_text", true), io::get_bool(json, "handle_chinese_chars", true),
      io::find_value(json, "strip_accents") ? io::get_bool(json, "strip_accents") : lower, lower);
}

}  // namespace

std::unique_ptr<Normalizer> parse_normalizer(const io::Json& json) {
  if (json.is_null()) return nullptr;
  const std::string type = io::get_string(json, "type");
  return with_context(type, [&]() -> std::unique_ptr<Normalizer> {
    if (type == "Sequence") {
      return std::make_unique<NormalizerSequence>(
          parse_sequence<Normalizer>(json, "normalizers", parse_normalizer));
    }
    if (type == "NFC") return std::make_unique<UnicodeForm>(Form::kNfc);
    if (type == "NFD") return std::make_unique<UnicodeForm>(Form::kNfd);
    if (type == "NFKC") return std::make_unique<UnicodeForm>(Form::kNfkc);
    if (type == "NFKD") return std::make_unique<UnicodeForm>(Form::kNfkd);
    if (type == "Lowercase") return std::make_unique<Lowercase>();
    if (type == "StripAccents") return std::make_unique<StripAccents>();
    if (type == "Nmt") return std::make_unique<Nmt>();
    if (type == "ByteLevel") return std::make_unique<ByteLevelNormalizer>();
    if (type == "BertNormalizer") return parse_bert_normalizer(json);
    if (type == "Prepend") return std::make_unique<Prepend>(io::get_string(json, "prepend"));
    if (type == "Strip") {
      return std::make_unique<Strip>(io::get_bool(json, "strip_left", true),
                                     io::get_bool(json, "strip_right", true));
    }
    if (type == "Replace") {
      return std::make_unique<Replace>(parse_pattern(json), io::get_string(json, "content"));
    }
    if (type == "Precompiled") {
      return std::make_unique<Precompiled>(
          Charsmap(decode_base64(io::get_string(json, "precompiled_charsmap", ""))));
    }
    fail(ErrorKind::kUnsupported, "unknown normalizer");
  });
}

}  // namespace lumen::text
