// For tests: text data, a tokenizer whose tokens are characters, and batches as text.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lib/base/testing.h"
#include "lib/data/builtin.h"
#include "lib/data/language.h"
#include "lib/io/atomic_file.h"
#include "lib/text/train/train_tokenizer.h"
#include "lib/text/vocabulary_files.h"

namespace lumen::data::testing {

inline constexpr const char* kChatMl =
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

// One token per printable ASCII character, and the control tokens of ChatML.
inline std::shared_ptr<const text::Tokenizer> character_tokenizer(
    text::TokenizerKind kind = text::TokenizerKind::kCharacters, const std::string& bos = "") {
  std::string all = "\n";
  for (char c = ' '; c < '\x7F'; ++c) all += c;
  text::TokenizerTraining training;
  training.kind = kind;
  training.vocab_size = kind == text::TokenizerKind::kCharacters ? 0 : 400;
  training.special_tokens = {"<|endoftext|>", "<|im_start|>", "<|im_end|>"};
  if (!bos.empty()) training.special_tokens.push_back(bos);
  training.bos = bos;
  if (kind != text::TokenizerKind::kCharacters) all += make_stories().substr(0, 5000);
  return text::parse_files(text::make_tokenizer({all}, training));
}

inline std::string write(const std::string& content, const std::string& name = "data.jsonl") {
  const std::string path = lumen::testing::temporary_directory() + "/" + name;
  io::write_file_atomically(path, content);
  return path;
}

inline DataOptions options_for(Format format, const std::string& path) {
  DataOptions options;
  options.format = format;
  options.paths = {path};
  options.prefetch = false;
  options.shuffle = false;
  options.eval_fraction = 0;
  options.batch = 1;
  return options;
}

// The fields of a batch as vectors.
inline std::vector<int32_t> field(const Batch& batch, const char* name) {
  const auto values = batch.fields.at(name).as<int32_t>();
  return {values.begin(), values.end()};
}

// The text of the tokens, and of the targets that count with '.' for those that do not.
inline std::string tokens_of(const Batch& batch, const text::Tokenizer& tokenizer) {
  return tokenizer.decode(field(batch, "tokens"));
}
inline std::string learned_of(const Batch& batch, const text::Tokenizer& tokenizer) {
  std::string text;
  for (const int32_t id : field(batch, "targets")) {
    const std::vector<int32_t> one = {id};
    if (id == kIgnored) {
      text += '.';
    } else {
      text += tokenizer.is_special(id) ? tokenizer.token_text(id) : tokenizer.decode(one);
    }
  }
  return text;
}

}  // namespace lumen::data::testing
