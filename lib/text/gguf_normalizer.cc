#include "lib/text/gguf_normalizer.h"

#include <utility>

#include "lib/base/error.h"
#include "lib/text/unicode.h"
#include "lib/text/utf8.h"

namespace lumen::text {
namespace {

bool stands_alone(uint32_t c) {
  const Category found = category(c);
  const bool punctuation = found >= Category::kPc && found <= Category::kPs;
  const bool symbol = found >= Category::kSc && found <= Category::kSo;
  return punctuation || (c < 0x7F && symbol) || is_ideograph(c);
}

}  // namespace

std::string gguf_bytes(const io::GgufFile& file, const char* key) {
  std::string bytes;
  const auto value = file.metadata.find(key);
  if (!value) return bytes;
  if (!value->is_array() ||
      (value->element_type() != io::GgufType::kU8 && value->element_type() != io::GgufType::kI8)) {
    fail(ErrorKind::kMalformed, "key ", key, " is no array of bytes");
  }
  bytes.reserve(value->size());
  for (size_t i = 0; i < value->size(); ++i) bytes += static_cast<char>(value->int_at(i));
  return bytes;
}

Words split_bert_words(std::string_view text, std::string_view mark) {
  Words words;
  bool open = false;  // a word is being put together
  const auto append = [&](uint32_t c) {
    if (!open) {
      const auto begin = static_cast<uint32_t>(words.text.size());
      words.spans.push_back({begin, begin});
      words.text += mark;
      open = true;
    }
    append_lower(words.text, c);
    words.spans.back().end = static_cast<uint32_t>(words.text.size());
  };
  for (size_t pos = 0; pos < text.size();) {
    const uint32_t c = decomposition_base(next_code_point(text, pos));
    if (is_whitespace(c)) {
      open = false;
    } else if (c == 0 || c == 0xFFFD || is_control(c) || is_mark(c)) {
      continue;
    } else if (stands_alone(c)) {
      open = false;
      append(c);
      open = false;
    } else {
      append(c);
    }
  }
  return words;
}

GgufNormalizer::GgufNormalizer(const io::GgufFile& file,
                               const std::vector<std::string_view>& user_defined,
                               bool add_space_prefix)
    : map_(gguf_bytes(file, "tokenizer.ggml.precompiled_charsmap")),
      prefix_(add_space_prefix),
      merge_spaces_(file.metadata.get_bool("tokenizer.ggml.remove_extra_whitespaces", false)) {
  std::vector<std::pair<std::string_view, int32_t>> keys;
  for (const std::string_view text : user_defined) keys.emplace_back(text, 0);
  user_defined_ = Trie(std::move(keys));
}

std::string GgufNormalizer::normalize(std::string_view text) const {
  std::string out;
  out.reserve(text.size() + text.size() / 2);
  bool prefixed = false, in_word = false;
  for (size_t pos = 0; pos < text.size();) {
    const std::string_view rest = text.substr(pos);
    std::string_view replacement;
    if (const size_t length = user_defined_.longest(rest).first; length > 0) {
      replacement = rest.substr(0, length);
      pos += length;
    } else if (const Charsmap::Match match = map_.longest(rest); match.length > 0) {
      replacement = match.replacement;
      pos += match.length;
    } else {
      const size_t begin = pos;
      next_code_point(text, pos);
      replacement = text.substr(begin, pos - begin);
    }
    check_normalized_size(out.size());
    for (const char c : replacement) {
      if (c != ' ') {
        if (!in_word && ((prefix_ && !prefixed) || merge_spaces_)) {
          out += kSpaceMark;
          prefixed = true;
        }
        in_word = true;
        out += c;
      } else {
        in_word = false;
        if (!merge_spaces_) out += kSpaceMark;
      }
    }
  }
  return out;
}

}  // namespace lumen::text
