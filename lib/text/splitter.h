// Splitting words at delimiters, in the five ways of Hugging Face tokenizers.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "lib/text/pre_tokenizer.h"

namespace lumen::text {

// Collects the parts of the words of `words`, told one match of the delimiter after the other.
class Splitter {
 public:
  Splitter(Words& words, SplitBehavior behavior, bool invert)
      : words_(words), behavior_(behavior), invert_(invert) {
    parts_.reserve(words.spans.size());
  }

  // Splits all words; find(word, match) calls match(begin, end) for every delimiter in `word` from
  // left to right.
  template <typename Find>
  void run(Find&& find) {
    for (const Words::Span& span : words_.spans) {
      open(span);
      find(words_.word(span), [this](size_t begin, size_t end) { match(begin, end); });
      close();
    }
    std::erase_if(parts_, [](const Words::Span& part) { return part.begin == part.end; });
    if (parts_.empty() || words_.spans.empty() ||
        parts_.front().begin != words_.spans.front().begin) {
      words_.first_at_start = false;
    }
    words_.spans = std::move(parts_);
  }

 private:
  void open(const Words::Span& span) {
    word_ = span;
    done_ = span.begin;
    first_part_ = parts_.size();
    previous_matched_ = false;
  }
  void match(size_t begin, size_t end) {
    const auto from = static_cast<uint32_t>(word_.begin + begin);
    const auto to = static_cast<uint32_t>(word_.begin + end);
    if (from > done_) add(done_, from, invert_);
    add(from, to, !invert_);  // an empty match counts for what its neighbours are merged with
    done_ = to;
  }
  void close() {
    if (word_.end > done_) add(done_, word_.end, invert_);
  }

  void add(uint32_t begin, uint32_t end, bool matched) {
    const bool has_previous = parts_.size() > first_part_;
    bool join = false;
    switch (behavior_) {
      case SplitBehavior::kRemoved:
        if (matched) return;
        break;
      case SplitBehavior::kIsolated:
        break;
      case SplitBehavior::kContiguous:
        join = has_previous && matched == previous_matched_;
        break;
      case SplitBehavior::kMergedWithPrevious:
        join = has_previous && matched && !previous_matched_;
        break;
      case SplitBehavior::kMergedWithNext:
        join = has_previous && !matched && previous_matched_;
        break;
    }
    if (join) {
      parts_.back().end = end;
    } else {
      parts_.push_back({begin, end});
    }
    previous_matched_ = matched;
  }

  Words& words_;
  const SplitBehavior behavior_;
  const bool invert_;
  std::vector<Words::Span> parts_;
  Words::Span word_{};
  uint32_t done_ = 0;
  size_t first_part_ = 0;
  bool previous_matched_ = false;
};

}  // namespace lumen::text
