// Byte-level BPE (Sennrich et al., "Neural Machine Translation of Rare Words with Subword Units",
// ACL 2016, on bytes as GPT-2 has it): the most frequent pair of neighbours within words becomes a
// token, until there are enough. Of equally frequent pairs the one whose bytes come last is taken,
// which makes the result unique.
#include <algorithm>
#include <memory>
#include <queue>
#include <unordered_map>

#include "lib/base/error.h"
#include "lib/base/limits.h"
#include "lib/text/byte_level.h"
#include "lib/text/pre_tokenizer.h"
#include "lib/text/train/trainers.h"

namespace lumen::text {
namespace {

constexpr int32_t kBytes = 256;

// The distinct words of the texts, as bytes, and how often each occurs.
std::unordered_map<std::string, int64_t> count_words(const Texts& texts,
                                                     const std::vector<std::string>& special) {
  io::Json settings = {{"type", "ByteLevel"}, {"add_prefix_space", false}};
  const std::unique_ptr<PreTokenizer> split = parse_pre_tokenizer(settings);
  split->leave_bytes_plain();
  std::unordered_map<std::string, int64_t> counts;
  for_each_part(texts, special, [&](std::string_view part) {
    constexpr size_t kPiece = 16 << 20;
    while (!part.empty()) {
      size_t size = part.size();
      if (size > kPiece) {
        const size_t line_end = part.rfind('\n', kPiece);
        size = line_end == part.npos || line_end == 0 ? kPiece : line_end;
        while (size < part.size() && (part[size] & 0xC0) == 0x80) ++size;
      }
      Words words;
      words.text = part.substr(0, size);
      words.spans = {{0, static_cast<uint32_t>(size)}};
      split->apply(words);
      for (const Words::Span span : words.spans) ++counts[std::string(words.word(span))];
      part.remove_prefix(size);
    }
  });
  return counts;
}

class BpeTrainer {
 public:
  explicit BpeTrainer(const std::unordered_map<std::string, int64_t>& counts) {
    for (int32_t byte = 0; byte < kBytes; ++byte) {
      tokens_.push_back(std::string(1, static_cast<char>(byte)));
    }
    // Sorted, so that nothing depends on the order of a hash table.
    std::vector<std::pair<std::string_view, int64_t>> sorted(counts.begin(), counts.end());
    std::sort(sorted.begin(), sorted.end());
    for (const auto& [text, count] : sorted) {
      const auto number = static_cast<uint32_t>(words_.size());
      Word& word = words_.emplace_back();
      word.count = count;
      for (const char c : text) word.symbols.push_back(static_cast<uint8_t>(c));
      for (size_t i = 1; i < word.symbols.size(); ++i) {
        change(word.symbols[i - 1], word.symbols[i], number, count);
      }
    }
    for (const auto& [key, pair] : pairs_) push(key);
  }

  // Merges until there are `tokens` of them, bytes included, or no pair occurs twice.
  void run(int64_t tokens) {
    while (static_cast<int64_t>(tokens_.size()) < tokens && !queue_.empty()) {
      const Candidate best = queue_.top();
      queue_.pop();
      const int64_t count = pairs_[best.key].count;
      if (count != best.count) {
        if (count > 1) push(best.key);  // it has become rarer since it was queued
        continue;
      }
      if (count < 2) break;
      merge(best.key);
    }
  }

  const std::vector<std::string>& tokens() const { return tokens_; }
  const std::vector<std::pair<int32_t, int32_t>>& merges() const { return merges_; }

 private:
  struct Word {
    std::vector<int32_t> symbols;
    int64_t count = 0;
  };
  struct Pair {
    int64_t count = 0;
    std::vector<uint32_t> words;  // that have or had it; with repetitions
  };
  struct Candidate {
    int64_t count;
    uint64_t key;
  };
  struct Worse {
    const std::vector<std::string>* tokens;
    bool operator()(const Candidate& a, const Candidate& b) const {
      if (a.count != b.count) return a.count < b.count;
      const auto text = [&](int32_t id) -> const std::string& {
        return (*tokens)[static_cast<size_t>(id)];
      };
      const int order = text(left(a.key)).compare(text(left(b.key)));
      return order != 0 ? order < 0 : text(right(a.key)) < text(right(b.key));
    }
  };

  static uint64_t key_of(int32_t left, int32_t right) {
    return static_cast<uint64_t>(left) << 32 | static_cast<uint32_t>(right);
  }
  static int32_t left(uint64_t key) { return static_cast<int32_t>(key >> 32); }
  static int32_t right(uint64_t key) { return static_cast<int32_t>(key & 0xFFFFFFFF); }

  // A token that no vocabulary may have is not made: a byte is spelled with up to two.
  void push(uint64_t key) {
    const auto size = [&](int32_t id) { return tokens_[static_cast<size_t>(id)].size(); };
    if (2 * (size(left(key)) + size(right(key))) > limits::kPieceBytes) return;
    queue_.push({pairs_[key].count, key});
  }

  void change(int32_t left, int32_t right, uint32_t word, int64_t by) {
    Pair& pair = pairs_[key_of(left, right)];
    pair.count += by;
    if (by > 0 && (pair.words.empty() || pair.words.back() != word)) pair.words.push_back(word);
  }

  void merge(uint64_t key) {
    const auto token = static_cast<int32_t>(tokens_.size());
    tokens_.push_back(tokens_[static_cast<size_t>(left(key))] +
                      tokens_[static_cast<size_t>(right(key))]);
    merges_.emplace_back(left(key), right(key));
    std::vector<uint32_t> words = std::move(pairs_[key].words);
    std::sort(words.begin(), words.end());
    words.erase(std::unique(words.begin(), words.end()), words.end());
    changed_.clear();
    for (const uint32_t number : words) merge_in_word(key, token, number);
    pairs_.erase(key);
    std::sort(changed_.begin(), changed_.end());
    changed_.erase(std::unique(changed_.begin(), changed_.end()), changed_.end());
    for (const uint64_t other : changed_) {
      if (other != key) push(other);
    }
  }

  void merge_in_word(uint64_t key, int32_t token, uint32_t number) {
    Word& word = words_[number];
    std::vector<int32_t>& symbols = word.symbols;
    std::vector<int32_t> merged;
    for (size_t i = 0; i < symbols.size(); ++i) {
      const bool here =
          i + 1 < symbols.size() && symbols[i] == left(key) && symbols[i + 1] == right(key);
      merged.push_back(here ? token : symbols[i]);
      if (here) ++i;
    }
    if (merged.size() == symbols.size()) return;
    for (size_t i = 1; i < symbols.size(); ++i) {
      change(symbols[i - 1], symbols[i], number, -word.count);
    }
    symbols = std::move(merged);
    for (size_t i = 1; i < symbols.size(); ++i) {
      change(symbols[i - 1], symbols[i], number, word.count);
      // Only pairs with the new token can have become more frequent.
      if (symbols[i - 1] == token || symbols[i] == token) {
        changed_.push_back(key_of(symbols[i - 1], symbols[i]));
      }
    }
  }

  std::vector<std::string> tokens_;
  std::vector<std::pair<int32_t, int32_t>> merges_;
  std::vector<Word> words_;
  std::unordered_map<uint64_t, Pair> pairs_;
  std::vector<uint64_t> changed_;
  std::priority_queue<Candidate, std::vector<Candidate>, Worse> queue_{Worse{&tokens_}};
};

// A token in the byte-level alphabet.
std::string spelling(std::string_view bytes) {
  std::string out;
  for (const char c : bytes) out += byte_character(static_cast<uint8_t>(c));
  return out;
}

}  // namespace

std::string byte_level_bpe_json(const Texts& texts, const TokenizerTraining& options) {
  const auto special = static_cast<int64_t>(options.special_tokens.size());
  if (options.vocab_size < kBytes + special) {
    fail_option("vocab_size", "vocab_size = ", options.vocab_size,
                "; byte-level BPE needs at least ", kBytes + special, ": ", kBytes, " bytes and ",
                special, " special tokens");
  }
  BpeTrainer trainer(count_words(texts, options.special_tokens));
  trainer.run(options.vocab_size - special);
  // Bytes come first in the order of their characters, as in GPT-2's vocabulary.
  std::vector<std::string> alphabet;
  for (int byte = 0; byte < kBytes; ++byte) {
    alphabet.emplace_back(byte_character(static_cast<uint8_t>(byte)));
  }
  std::sort(alphabet.begin(), alphabet.end());
  io::Json vocabulary = io::Json::object();
  for (std::string& character : alphabet) {
    append_member(vocabulary, std::move(character), vocabulary.size());
  }
  const std::vector<std::string>& tokens = trainer.tokens();
  for (size_t i = kBytes; i < tokens.size(); ++i) {
    append_member(vocabulary, spelling(tokens[i]), vocabulary.size());
  }
  io::Json merges = io::Json::array();
  for (const auto& [left, right] : trainer.merges()) {
    merges.push_back(spelling(tokens[static_cast<size_t>(left)]) + " " +
                     spelling(tokens[static_cast<size_t>(right)]));
  }
  const io::Json byte_level = {{"type", "ByteLevel"},
                               {"add_prefix_space", false},
                               {"trim_offsets", true},
                               {"use_regex", true}};
  return tokenizer_json({.model = bpe_model(std::move(vocabulary), std::move(merges)),
                         .normalizer = nullptr,
                         .pre_tokenizer = byte_level,
                         .decoder = byte_level,
                         .special_tokens = options.special_tokens,
                         .user_defined = {},
                         .bos = options.bos});
}

}  // namespace lumen::text
