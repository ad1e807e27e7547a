// Sentencepiece models, trained by the library (https://github.com/google/sentencepiece).
#include <sentencepiece_trainer.h>

#include <string>
#include <unordered_map>
#include <unordered_set>

#include "lib/base/error.h"
#include "lib/text/train/trainers.h"

namespace lumen::text {
namespace {

// The library trains on lines, and leaves out very long ones, so these are cut.
std::vector<std::string> make_lines(const Texts& texts, const std::vector<std::string>& special) {
  constexpr size_t kLongest = 4000;
  std::vector<std::string> lines;
  for_each_part(texts, special, [&](std::string_view part) {
    while (!part.empty()) {
      const size_t end = part.find('\n');
      std::string_view line = part.substr(0, end);
      part.remove_prefix(end == part.npos ? part.size() : end + 1);
      while (!line.empty()) {
        size_t size = std::min(line.size(), kLongest);
        while (size < line.size() && (line[size] & 0xC0) == 0x80) --size;
        lines.emplace_back(line.substr(0, size));
        line.remove_prefix(size);
      }
    }
  });
  return lines;
}

// The distinct characters that pieces are made of: "▁" in any case, which also stands for spaces.
int64_t count_characters(const std::vector<std::string>& lines) {
  std::unordered_set<uint32_t> characters = {0x2581};
  for (const std::string& line : lines) {
    for (size_t at = 0; at < line.size();) characters.insert(next_code_point(line, at));
  }
  characters.erase(' ');
  return static_cast<int64_t>(characters.size());
}

class LineIterator : public sentencepiece::SentenceIterator {
 public:
  explicit LineIterator(const std::vector<std::string>& lines) : lines_(lines) {}
  bool done() const override { return at_ == lines_.size(); }
  void Next() override { ++at_; }
  const std::string& value() const override { return lines_[at_]; }
  sentencepiece::util::Status status() const override { return {}; }

 private:
  const std::vector<std::string>& lines_;
  size_t at_ = 0;
};

// The options are one line for the library, comma-separated inside.
std::string joined_for_library(const std::vector<std::string>& tokens) {
  for (const std::string& token : tokens) {
    if (token.find_first_of(",\n\"") != token.npos) {
      fail_option("special_tokens", "the special token ", quoted(token),
                  " has a comma, a quote or a line break, which sentencepiece cannot take");
    }
    const bool is_byte = token.size() == 6 && token.starts_with("<0x") && token.ends_with('>');
    if (token == "<unk>" || token == "<s>" || token == "</s>" || is_byte) {
      fail_option("special_tokens", "the special token ", quoted(token),
                  " is one that sentencepiece has anyway; leave it out");
    }
  }
  return join(tokens, ",");
}

}  // namespace

std::string sentencepiece_model(const Texts& texts, const TokenizerTraining& options) {
  const std::vector<std::string> lines = make_lines(texts, options.special_tokens);
  if (lines.empty()) {
    fail(ErrorKind::kMalformed, "tokenizer training: there is no text to train on");
  }
  constexpr int64_t kFixed = 3 + 256;  // <unk>, <s>, </s> and the bytes
  const auto special = static_cast<int64_t>(options.special_tokens.size());
  if (options.vocab_size <= kFixed + special) {
    fail_option("vocab_size", "vocab_size = ", options.vocab_size,
                "; sentencepiece needs more than ", kFixed + special, ": ", kFixed,
                " for <unk>, <s>, </s> and the bytes, ", special, " special tokens");
  }
  const bool bpe = options.kind == TokenizerKind::kSentencePieceBpe;
  const std::unordered_map<std::string, std::string> arguments = {
      {"model_type", bpe ? "bpe" : "unigram"},
      {"vocab_size", str(options.vocab_size)},
      {"hard_vocab_limit", "false"},
      {"normalization_rule_name", "identity"},
      {"remove_extra_whitespaces", "false"},
      {"split_digits", "true"},
      {"byte_fallback", "true"},
      {"character_coverage", "0.9995"},
      {"required_chars", "▁"},  // stands before every text, though it may be rare in this one
      {"control_symbols", joined_for_library(options.special_tokens)},
      {"input_sentence_size", "1000000"},
      {"shuffle_input_sentence", "true"},
      {"max_sentence_length", "4192"},
      {"num_threads", "4"},  // fixed: sums are formed per thread
      {"minloglevel", "3"},
  };
  sentencepiece::SetRandomGeneratorSeed(static_cast<unsigned int>(options.seed));
  LineIterator iterator(lines);
  std::string model;
  const auto status = sentencepiece::SentencePieceTrainer::Train(arguments, &iterator, &model);
  if (!status.ok()) {
    // The characters must fit in, but for the rarest: how many of those may be missing only the
    // library knows.
    const int64_t characters = count_characters(lines);
    const int64_t enough = kFixed + special + characters;
    if (options.vocab_size < enough) {
      fail_option("vocab_size", "vocab_size = ", options.vocab_size,
                  " is too small for the characters of the text; ", enough, " is enough: ", kFixed,
                  " for <unk>, <s>, </s> and the bytes, ", special, " special tokens, ", characters,
                  " characters");
    }
    fail(ErrorKind::kUsage, "tokenizer training: sentencepiece could not make ", options.vocab_size,
         " tokens of this text: ", quoted(status.ToString(), 300));
  }
  return model;
}

}  // namespace lumen::text
