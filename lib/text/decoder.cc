#include "lib/text/decoder.h"

#include <array>
#include <utility>

#include "lib/base/error.h"
#include "lib/base/strings.h"
#include "lib/text/byte_level.h"
#include "lib/text/json_fields.h"
#include "lib/text/pattern.h"

namespace lumen::text {
namespace {

// Room that stages set aside so that ordinary tokens allocate nothing.
constexpr size_t kReservedBytes = 4 * limits::kPieceBytes;

// `text` with every `from` replaced, in `out`.
void replace_into(std::string& out, std::string_view text, std::string_view from,
                  std::string_view to) {
  out.clear();
  size_t pos = 0;
  for (size_t at = text.find(from); at != std::string_view::npos; at = text.find(from, pos)) {
    out += text.substr(pos, at - pos);
    out += to;
    pos = at + from.size();
  }
  out += text.substr(pos);
}

// Removes the spaces that joining English words leaves before punctuation and contractions.
void clean_up(std::string& text) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 11> kRules = {{
      {" .", "."},
      {" ?", "?"},
      {" !", "!"},
      {" ,", ","},
      {" ' ", "'"},
      {" n't", "n't"},
      {" 'm", "'m"},
      {" do not", " don't"},
      {" 's", "'s"},
      {" 've", "'ve"},
      {" 're", "'re"},
  }};
  std::string out;
  for (const auto& [from, to] : kRules) {
    if (text.find(from) == std::string::npos) continue;
    replace_into(out, text, from, to);
    std::swap(text, out);
  }
}

class Stage : public DecodeStage {
 public:
  explicit Stage(DecodeStage& next) : next_(next) { buffer_.reserve(kReservedBytes); }
  void finish() override { next_.finish(); }
  bool takes_bytes() const override { return next_.takes_bytes(); }

 protected:
  DecodeStage& next_;
  std::string buffer_;
};

// A decoder whose stage takes `parameters` after the next stage.
template <typename StageType, typename... Parameters>
Decoder decoder_of(Parameters... parameters) {
  return [parameters...](DecodeStage& next) -> std::unique_ptr<DecodeStage> {
    return std::make_unique<StageType>(next, parameters...);
  };
}

// Bytes to characters.
class Utf8Stage : public Stage {
 public:
  explicit Utf8Stage(DecodeStage& next) : Stage(next) { pending_.reserve(kReservedBytes); }
  void push(std::string_view token) override {
    pending_ += token;
    flush(false);
  }
  void finish() override {
    flush(true);
    next_.finish();
  }

 protected:
  void flush(bool at_end) {
    buffer_.clear();
    if (takes_bytes()) {
      std::swap(buffer_, pending_);
    } else {
      pending_.erase(0, append_valid_utf8(buffer_, pending_, at_end));
    }
    if (!buffer_.empty()) next_.push(buffer_);
  }
  std::string pending_;
};

class ByteLevelStage : public Utf8Stage {
 public:
  using Utf8Stage::Utf8Stage;
  void push(std::string_view token) override {
    const size_t before = pending_.size();
    for (size_t pos = 0; pos < token.size();) {
      const int byte = byte_of_character(next_code_point(token, pos));
      if (byte < 0) {  // not of the alphabet: an added token stands for itself
        pending_.resize(before);
        pending_ += token;
        break;
      }
      pending_ += static_cast<char>(byte);
    }
    flush(false);
  }
};

// Runs of byte tokens "<0x0A>" become characters; a run that is not UTF-8 becomes one U+FFFD for
// each of its bytes, so it is held back until it ends.
class ByteFallbackStage : public Stage {
 public:
  explicit ByteFallbackStage(DecodeStage& next) : Stage(next) { run_.reserve(kReservedBytes); }
  void push(std::string_view token) override {
    const int byte = byte_of(token);
    if (byte >= 0) {
      run_ += static_cast<char>(byte);
    } else {
      flush();
      next_.push(token);
    }
  }
  void finish() override {
    flush();
    next_.finish();
  }

 private:
  // Two hex digits of either case, or a plus sign and one: what Rust's from_str_radix takes.
  static int byte_of(std::string_view token) {
    if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return -1;
    const int high = token[3] == '+' ? 0 : digit(token[3]), low = digit(token[4]);
    return high < 0 || low < 0 ? -1 : high * 16 + low;
  }
  static int digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    const char lower = static_cast<char>(c | 0x20);
    return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
  }
  void flush() {
    if (run_.empty()) return;
    if (takes_bytes() || is_valid_utf8(run_)) {
      next_.push(run_);
    } else {
      for (size_t i = 0; i < run_.size(); ++i) next_.push("\uFFFD");
    }
    run_.clear();
  }
  std::string run_;
};

// Joins everything into one token.
class GatherStage : public Stage {
 public:
  using Stage::Stage;
  void push(std::string_view token) override { buffer_ += token; }
  void finish() override {
    next_.push(buffer_);
    buffer_.clear();
    next_.finish();
  }
};

class ReplaceStage : public Stage {
 public:
  ReplaceStage(DecodeStage& next, std::string from, std::string to)
      : Stage(next), from_(std::move(from)), to_(std::move(to)) {}
  void push(std::string_view token) override {
    replace_into(buffer_, token, from_, to_);
    next_.push(buffer_);
  }

 private:
  std::string from_, to_;
};

class RegexReplaceStage : public Stage {
 public:
  RegexReplaceStage(DecodeStage& next, Pattern pattern, std::string content)
      : Stage(next), pattern_(std::move(pattern)), content_(std::move(content)) {}
  void push(std::string_view token) override { next_.push(pattern_.replace_all(token, content_)); }

 private:
  Pattern pattern_;
  std::string content_;
};

// Strips every token.
class StripStage : public Stage {
 public:
  StripStage(DecodeStage& next, std::string content, size_t start, size_t stop)
      : Stage(next), content_(std::move(content)), start_(start), stop_(stop) {}
  void push(std::string_view token) override {
    for (size_t i = 0; i < start_ && token.starts_with(content_); ++i) {
      token.remove_prefix(content_.size());
    }
    for (size_t i = 0; i < stop_ && token.ends_with(content_); ++i) {
      token.remove_suffix(content_.size());
    }
    next_.push(token);
  }

 private:
  std::string content_;
  size_t start_, stop_;
};

// Strips the beginning of the text whose parts the tokens are.
class LeadingStripStage : public Stage {
 public:
  LeadingStripStage(DecodeStage& next, std::string content, size_t count)
      : Stage(next), content_(std::move(content)), count_(count), left_(count) {}
  void push(std::string_view token) override {
    for (; left_ > 0 && token.starts_with(content_); --left_) token.remove_prefix(content_.size());
    if (token.empty()) return;
    left_ = 0;
    next_.push(token);
  }
  void finish() override {
    left_ = count_;
    next_.finish();
  }

 private:
  std::string content_;
  size_t count_, left_;
};

// The replacement character becomes a space, in the first token nothing.
class MetaspaceStage : public Stage {
 public:
  MetaspaceStage(DecodeStage& next, std::string replacement, bool drop_first)
      : Stage(next), replacement_(std::move(replacement)), drop_first_(drop_first) {}
  void push(std::string_view token) override {
    replace_into(buffer_, token, replacement_, first_ && drop_first_ ? "" : " ");
    first_ = false;
    next_.push(buffer_);
  }
  void finish() override {
    first_ = true;
    next_.finish();
  }

 private:
  std::string replacement_;
  bool drop_first_, first_ = true;
};

class WordPieceStage : public Stage {
 public:
  WordPieceStage(DecodeStage& next, std::string prefix, bool cleanup)
      : Stage(next), prefix_(std::move(prefix)), cleanup_(cleanup) {}
  void push(std::string_view token) override {
    buffer_.clear();
    if (!first_) {
      if (token.starts_with(prefix_)) {
        token.remove_prefix(prefix_.size());
      } else {
        buffer_ += ' ';
      }
    }
    first_ = false;
    buffer_ += token;
    if (cleanup_) clean_up(buffer_);
    next_.push(buffer_);
  }
  void finish() override {
    first_ = true;
    next_.finish();
  }

 private:
  std::string prefix_;
  bool cleanup_, first_ = true;
};

// The suffix that ends words becomes a space, in the last token nothing.
class WordSuffixStage : public Stage {
 public:
  WordSuffixStage(DecodeStage& next, std::string suffix) : Stage(next), suffix_(std::move(suffix)) {
    held_.reserve(kReservedBytes);
  }
  void push(std::string_view token) override {
    if (holds_) pass(" ");
    held_ = token;
    holds_ = true;
  }
  void finish() override {
    if (holds_) pass("");
    holds_ = false;
    next_.finish();
  }

 private:
  void pass(std::string_view to) {
    replace_into(buffer_, held_, suffix_, to);
    next_.push(buffer_);
  }
  std::string suffix_, held_;
  bool holds_ = false;
};

// Connectionist temporal classification: repeated tokens count once.
class CtcStage : public Stage {
 public:
  CtcStage(DecodeStage& next, std::string pad, std::string delimiter, bool cleanup)
      : Stage(next), pad_(std::move(pad)), delimiter_(std::move(delimiter)), cleanup_(cleanup) {}
  void push(std::string_view token) override {
    if (started_ && token == previous_) return;
    started_ = true;
    previous_ = token;
    replace_into(buffer_, token, pad_, "");
    if (cleanup_) {
      clean_up(buffer_);
      std::string spaced;
      replace_into(spaced, buffer_, delimiter_, " ");
      std::swap(buffer_, spaced);
    }
    if (!buffer_.empty()) next_.push(buffer_);
  }
  void finish() override {
    started_ = false;
    next_.finish();
  }

 private:
  std::string pad_, delimiter_, previous_;
  bool cleanup_, started_ = false;
};

// What tokens become without a decoder.
class SpaceStage : public Stage {
 public:
  using Stage::Stage;
  void push(std::string_view token) override {
    if (!std::exchange(first_, false)) next_.push(" ");
    next_.push(token);
  }
  void finish() override {
    first_ = true;
    next_.finish();
  }

 private:
  bool first_ = true;
};

void require_text(const std::string& text, const char* key) {
  if (text.empty()) fail(ErrorKind::kMalformed, "'", key, "' is empty");
}

Decoder parse_metaspace_decoder(const io::Json& json) {
  std::string replacement;
  append_utf8(replacement, get_character(json, "replacement", "▁"));
  const bool prefix = io::get_bool(json, "add_prefix_space", true);
  const std::string scheme = io::get_string(json, "prepend_scheme", prefix ? "always" : "never");
  return decoder_of<MetaspaceStage>(replacement, scheme != "never");
}

Decoder parse_replace(const io::Json& json) {
  const std::string content = io::get_string(json, "content");
  const io::Json* pattern = io::find(json, "pattern");
  if (pattern != nullptr && io::find(*pattern, "String") != nullptr) {
    const std::string from = io::get_string(*pattern, "String");
    require_text(from, "pattern");
    return decoder_of<ReplaceStage>(from, content);
  }
  return decoder_of<RegexReplaceStage>(parse_pattern(json), content);
}

// A decoder of the file, and what it does to the ones after it.
struct Parsed {
  Decoder decoder;
  bool joins = false;                // all tokens into one
  std::optional<Decoder> of_joined;  // the same on the parts of one joined token, if possible
};

Parsed parse_strip(const io::Json& json) {
  std::string content;
  append_utf8(content, get_character(json, "content", ""));
  const auto start = static_cast<size_t>(io::get_int(json, "start", 0, 1 << 20));
  const auto stop = static_cast<size_t>(io::get_int(json, "stop", 0, 1 << 20));
  Parsed parsed{decoder_of<StripStage>(content, start, stop), false, std::nullopt};
  if (stop == 0) parsed.of_joined = make_leading_strip(content, start);
  return parsed;
}

void parse_into(std::vector<Parsed>& out, const io::Json& json) {
  const std::string type = io::get_string(json, "type");
  with_context(type, [&] {
    const auto add = [&](Decoder decoder, bool joins = false) {
      out.push_back({std::move(decoder), joins, std::nullopt});
    };
    if (type == "Sequence") {
      const io::Json* decoders = io::find(json, "decoders");
      if (decoders == nullptr || !decoders->is_array()) {
        fail(ErrorKind::kMalformed, "'decoders' is ", io::describe(decoders),
             ", expected an array");
      }
      for (const io::Json& element : *decoders) parse_into(out, element);
    } else if (type == "ByteLevel") {
      add(decoder_of<ByteLevelStage>(), true);
    } else if (type == "Fuse") {
      add(nullptr, true);
    } else if (type == "ByteFallback") {
      add(decoder_of<ByteFallbackStage>());
    } else if (type == "Metaspace") {
      add(parse_metaspace_decoder(json));
    } else if (type == "Replace") {
      add(parse_replace(json));
    } else if (type == "Strip") {
      out.push_back(parse_strip(json));
    } else if (type == "WordPiece") {
      add(decoder_of<WordPieceStage>(io::get_string(json, "prefix", "##"),
                                     io::get_bool(json, "cleanup", true)));
    } else if (type == "BPEDecoder") {
      const std::string suffix = io::get_string(json, "suffix", "</w>");
      require_text(suffix, "suffix");
      add(decoder_of<WordSuffixStage>(suffix));
    } else if (type == "CTC") {
      const std::string pad = io::get_string(json, "pad_token", "<pad>");
      const std::string delimiter = io::get_string(json, "word_delimiter_token", "|");
      require_text(pad, "pad_token");
      require_text(delimiter, "word_delimiter_token");
      add(decoder_of<CtcStage>(pad, delimiter, io::get_bool(json, "cleanup", true)));
    } else {
      fail(ErrorKind::kUnsupported, "unknown decoder");
    }
  });
}

}  // namespace

Decoder make_utf8_decoder() {
  return decoder_of<Utf8Stage>();
}

Decoder make_leading_strip(std::string content, size_t count) {
  return decoder_of<LeadingStripStage>(std::move(content), count);
}

std::vector<Decoder> parse_decoders(const io::Json& json) {
  if (json.is_null()) return {decoder_of<SpaceStage>()};
  std::vector<Parsed> parsed;
  parse_into(parsed, json);
  std::vector<Decoder> decoders;
  for (size_t i = 0; i < parsed.size(); ++i) {
    if (parsed[i].decoder) decoders.push_back(parsed[i].decoder);
    if (!parsed[i].joins || i + 1 == parsed.size()) continue;
    // What follows sees one joined token. Streaming needs a form that takes its parts.
    if (i + 2 == parsed.size() && parsed[i + 1].of_joined) {
      decoders.push_back(*parsed[i + 1].of_joined);
      break;
    }
    decoders.push_back(decoder_of<GatherStage>());
  }
  return decoders;
}

}  // namespace lumen::text
