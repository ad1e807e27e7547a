#include "lib/text/pre_tokenizer.h"

#include <algorithm>
#include <array>
#include <utility>

#include "lib/base/error.h"
#include "lib/text/byte_level.h"
#include "lib/text/json_fields.h"
#include "lib/text/pattern.h"
#include "lib/text/splitter.h"
#include "lib/text/unicode.h"

namespace lumen::text {
namespace {

// GPT-2's split (https://github.com/openai/gpt-2, src/encoder.py).
constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

// Rewrites every word by rewrite(word, index, out), which appends to out.
template <typename Rewrite>
void rewrite_words(Words& words, Rewrite&& rewrite) {
  std::string text;
  text.reserve(words.text.size() + words.text.size() / 8);
  for (size_t i = 0; i < words.spans.size(); ++i) {
    const auto begin = static_cast<uint32_t>(text.size());
    rewrite(words.word(words.spans[i]), i, text);
    if (text.size() > UINT32_MAX / 2) fail(ErrorKind::kResource, "the text grows beyond 2 GiB");
    words.spans[i] = {begin, static_cast<uint32_t>(text.size())};
  }
  words.text = std::move(text);
}

class PatternSplit : public PreTokenizer {
 public:
  PatternSplit(Pattern pattern, SplitBehavior behavior, bool invert)
      : pattern_(std::move(pattern)), behavior_(behavior), invert_(invert) {}
  void apply(Words& words) const override {
    PatternMatcher matcher(pattern_);
    Splitter(words, behavior_, invert_).run([&](std::string_view word, auto match) {
      matcher.find_all(word, match);
    });
  }

 private:
  Pattern pattern_;
  SplitBehavior behavior_;
  bool invert_;
};

// Splits at every character of a class.
class CharacterSplit : public PreTokenizer {
 public:
  CharacterSplit(bool (*is_delimiter)(uint32_t), SplitBehavior behavior)
      : is_delimiter_(is_delimiter), behavior_(behavior) {}
  void apply(Words& words) const override {
    Splitter(words, behavior_, false).run([&](std::string_view word, auto match) {
      for (size_t pos = 0; pos < word.size();) {
        const size_t begin = pos;
        if (is_delimiter_(next_code_point(word, pos))) match(begin, pos);
      }
    });
  }

 private:
  bool (*is_delimiter_)(uint32_t);
  SplitBehavior behavior_;
};

// Words and runs of other non-space characters: \w+|[^\w\s]+ of UTS #18.
class WordSplit : public PreTokenizer {
 public:
  void apply(Words& words) const override {
    Splitter(words, SplitBehavior::kRemoved, true).run([](std::string_view word, auto match) {
      size_t begin = 0;
      int kind = kSpace;
      for (size_t pos = 0; pos < word.size();) {
        const size_t here = pos;
        const uint32_t c = next_code_point(word, pos);
        const int next = is_word(c) ? kWord : is_whitespace(c) ? kSpace : kOther;
        if (next == kind) continue;
        if (kind != kSpace) match(begin, here);
        begin = here;
        kind = next;
      }
      if (kind != kSpace) match(begin, word.size());
    });
  }

 private:
  static constexpr int kWord = 0, kOther = 1, kSpace = 2;
};

// Splits where the script changes. Spaces belong to what is before them; before all they are
// dropped.
class ScriptSplit : public PreTokenizer {
 public:
  void apply(Words& words) const override {
    Splitter(words, SplitBehavior::kRemoved, true).run([](std::string_view word, auto match) {
      size_t begin = 0;
      int current = 0;
      for (size_t pos = 0; pos < word.size();) {
        const size_t here = pos;
        const int next = script(next_code_point(word, pos));
        if (next == 0 || next == current) continue;
        if (current != 0) match(begin, here);
        begin = here;
        current = next;
      }
      if (current != 0) match(begin, word.size());
    });
  }
  bool splits_words() const override { return false; }  // not at spaces
};

class FixedLength : public PreTokenizer {
 public:
  explicit FixedLength(size_t length) : length_(length) {}
  void apply(Words& words) const override {
    Splitter(words, SplitBehavior::kIsolated, false).run([&](std::string_view word, auto match) {
      size_t begin = 0, characters = 0;
      for (size_t pos = 0; pos < word.size();) {
        next_code_point(word, pos);
        if (++characters % length_ == 0) match(std::exchange(begin, pos), pos);
      }
    });
  }

 private:
  size_t length_;
};

class ByteSpelling : public PreTokenizer {
 public:
  void apply(Words& words) const override {
    if (plain_) return;
    rewrite_words(words, [](std::string_view word, size_t, std::string& out) {
      for (const char c : word) out += byte_character(static_cast<uint8_t>(c));
    });
  }
  bool leave_bytes_plain() override { return plain_ = true; }
  bool splits_words() const override { return false; }

 private:
  bool plain_ = false;
};

class PrefixSpace : public PreTokenizer {
 public:
  void apply(Words& words) const override {
    rewrite_words(words, [](std::string_view word, size_t, std::string& out) {
      if (!word.starts_with(' ')) out += ' ';
      out += word;
    });
  }
  bool splits_words() const override { return false; }
};

enum class PrependScheme { kAlways, kFirst, kNever };

// Spaces become a visible character, as in sentencepiece.
class Metaspace : public PreTokenizer {
 public:
  Metaspace(std::string replacement, PrependScheme prepend, bool split)
      : replacement_(std::move(replacement)), prepend_(prepend), split_(split) {}

  void apply(Words& words) const override {
    rewrite_words(words, [&](std::string_view word, size_t index, std::string& out) {
      const bool marked = word.starts_with(' ') || word.starts_with(replacement_);
      const bool wanted = prepend_ == PrependScheme::kAlways ||
                          (prepend_ == PrependScheme::kFirst && index == 0 && words.first_at_start);
      if (wanted && !marked) out += replacement_;
      for (size_t pos = 0; pos < word.size();) {
        const size_t space = std::min(word.find(' ', pos), word.size());
        out.append(word, pos, space - pos);
        if (space < word.size()) out += replacement_;
        pos = space + 1;
      }
    });
    if (!split_) return;
    const Pattern pattern = Pattern::literal(replacement_);
    PatternMatcher matcher(pattern);
    Splitter(words, SplitBehavior::kMergedWithNext, false)
        .run([&](std::string_view word, auto match) { matcher.find_all(word, match); });
  }
  bool splits_words() const override { return split_; }

 private:
  std::string replacement_;
  PrependScheme prepend_;
  bool split_;
};

class PreTokenizerSequence : public PreTokenizer {
 public:
  explicit PreTokenizerSequence(std::vector<std::unique_ptr<PreTokenizer>> parts)
      : parts_(std::move(parts)) {}
  void apply(Words& words) const override {
    for (const auto& part : parts_) part->apply(words);
  }
  bool leave_bytes_plain() override {
    return !parts_.empty() && parts_.back()->leave_bytes_plain();
  }
  bool splits_words() const override {
    for (const auto& part : parts_) {
      if (part->splits_words()) return true;
    }
    return false;
  }

 private:
  std::vector<std::unique_ptr<PreTokenizer>> parts_;
};

SplitBehavior parse_behavior(const io::Json& json, std::string_view fallback) {
  constexpr std::array<std::pair<std::string_view, SplitBehavior>, 5> kNames = {{
      {"Removed", SplitBehavior::kRemoved},
      {"Isolated", SplitBehavior::kIsolated},
      {"MergedWithPrevious", SplitBehavior::kMergedWithPrevious},
      {"MergedWithNext", SplitBehavior::kMergedWithNext},
      {"Contiguous", SplitBehavior::kContiguous},
  }};
  const std::string name = io::get_string(json, "behavior", fallback);
  for (const auto& [known, behavior] : kNames) {
    if (name == known) return behavior;
  }
  fail(ErrorKind::kUnsupported, "unknown split behavior ", quoted(name));
}

std::unique_ptr<PreTokenizer> parse_byte_level(const io::Json& json) {
  std::vector<std::unique_ptr<PreTokenizer>> parts;
  if (io::get_bool(json, "add_prefix_space", true)) {
    parts.push_back(std::make_unique<PrefixSpace>());
  }
  if (io::get_bool(json, "use_regex", true)) {
    parts.push_back(make_regex_split(kGpt2Pattern, SplitBehavior::kIsolated));
  }
  parts.push_back(make_byte_spelling());
  return make_pre_tokenizer_sequence(std::move(parts));
}

std::unique_ptr<PreTokenizer> parse_metaspace(const io::Json& json) {
  std::string replacement;
  append_utf8(replacement, get_character(json, "replacement", "▁"));
  const bool prefix = io::get_bool(json, "add_prefix_space", true);
  const std::string scheme = io::get_string(json, "prepend_scheme", prefix ? "always" : "never");
  PrependScheme prepend = PrependScheme::kAlways;
  if (scheme == "first") {
    prepend = PrependScheme::kFirst;
  } else if (scheme == "never") {
    prepend = PrependScheme::kNever;
  } else if (scheme != "always") {
    fail(ErrorKind::kUnsupported, "unknown prepend_scheme ", quoted(scheme));
  }
  return std::make_unique<Metaspace>(replacement, prepend, io::get_bool(json, "split", true));
}

std::unique_ptr<PreTokenizer> parse_bert() {
  std::vector<std::unique_ptr<PreTokenizer>> parts;
  parts.push_back(std::make_unique<CharacterSplit>(is_whitespace, SplitBehavior::kRemoved));
  parts.push_back(std::make_unique<CharacterSplit>(is_punctuation, SplitBehavior::kIsolated));
  return make_pre_tokenizer_sequence(std::move(parts));
}

std::unique_ptr<PreTokenizer> parse_delimiter(const io::Json& json) {
  std::string delimiter;
  append_utf8(delimiter, get_character(json, "delimiter", ""));
  return std::make_unique<PatternSplit>(Pattern::literal(delimiter), SplitBehavior::kRemoved,
                                        false);
}

}  // namespace

std::unique_ptr<PreTokenizer> make_regex_split(std::string_view pattern, SplitBehavior behavior) {
  return std::make_unique<PatternSplit>(Pattern::regex(pattern), behavior, false);
}

std::unique_ptr<PreTokenizer> make_byte_spelling() {
  return std::make_unique<ByteSpelling>();
}

std::unique_ptr<PreTokenizer> make_pre_tokenizer_sequence(
    std::vector<std::unique_ptr<PreTokenizer>> parts) {
  return std::make_unique<PreTokenizerSequence>(std::move(parts));
}

std::unique_ptr<PreTokenizer> parse_pre_tokenizer(const io::Json& json) {
  if (json.is_null()) return nullptr;
  const std::string type = io::get_string(json, "type");
  return with_context(type, [&]() -> std::unique_ptr<PreTokenizer> {
    if (type == "Sequence") {
      return make_pre_tokenizer_sequence(
          parse_sequence<PreTokenizer>(json, "pretokenizers", parse_pre_tokenizer));
    }
    if (type == "ByteLevel") return parse_byte_level(json);
    if (type == "Metaspace") return parse_metaspace(json);
    if (type == "BertPreTokenizer") return parse_bert();
    if (type == "Whitespace") return std::make_unique<WordSplit>();
    if (type == "WhitespaceSplit") {
      return std::make_unique<CharacterSplit>(is_whitespace, SplitBehavior::kRemoved);
    }
    if (type == "Punctuation") {
      return std::make_unique<CharacterSplit>(is_punctuation, parse_behavior(json, "Isolated"));
    }
    if (type == "Digits") {
      const bool individual = io::get_bool(json, "individual_digits", false);
      return std::make_unique<CharacterSplit>(
          is_number, individual ? SplitBehavior::kIsolated : SplitBehavior::kContiguous);
    }
    if (type == "UnicodeScripts") return std::make_unique<ScriptSplit>();
    if (type == "Split") {
      return std::make_unique<PatternSplit>(parse_pattern(json), parse_behavior(json, ""),
                                            io::get_bool(json, "invert", false));
    }
    if (type == "CharDelimiterSplit") return parse_delimiter(json);
    if (type == "FixedLength") {
      return std::make_unique<FixedLength>(
          static_cast<size_t>(io::get_int(json, "length", 1, 1 << 20, 5)));
    }
    fail(ErrorKind::kUnsupported, "unknown pre-tokenizer");
  });
}

}  // namespace lumen::text
