#include "lib/runtime/generation/constraint.h"

#include <algorithm>
#include <limits>

#include "lib/base/error.h"
#include "lib/base/limits.h"
#include "lib/io/mapped_file.h"
#include "lib/runtime/generation/thoughts.h"
#include "lib/text/json_schema.h"

namespace lumen::runtime {
namespace {

constexpr float kImpossible = -std::numeric_limits<float>::infinity();
constexpr size_t kKeptConstraints = 8;
constexpr int kGapTokens = 2;
constexpr std::string_view kBlank = " \t\r\n";

io::JsonLimits schema_limits() {
  io::JsonLimits limits;
  limits.bytes = limits::kGrammarBytes;
  limits.depth = static_cast<int>(limits::kGrammarDepth);
  return limits;
}

}  // namespace

std::optional<text::Grammar> requested_grammar(const std::optional<std::string>& grammar,
                                               const std::optional<std::string>& json_schema) {
  if (grammar) {
    return text::parse_grammar(io::read_file(*grammar, limits::kGrammarBytes),
                               io::place_of(*grammar));
  }
  if (!json_schema) return std::nullopt;
  const size_t begin = json_schema->find_first_not_of(kBlank);
  const bool is_inline = begin != json_schema->npos && (*json_schema)[begin] == '{';
  const io::Json schema = is_inline ? io::parse_json(*json_schema, "--json-schema", schema_limits())
                                    : io::read_json(*json_schema, schema_limits());
  return text::json_schema_grammar(schema,
                                   is_inline ? "--json-schema" : io::place_of(*json_schema));
}

ConstraintSource::ConstraintSource(std::shared_ptr<const text::Tokenizer> tokenizer,
                                   std::vector<int32_t> end_tokens)
    : tokenizer_(std::move(tokenizer)), end_tokens_(std::move(end_tokens)) {}

std::shared_ptr<text::TokenConstraint> ConstraintSource::of(text::Grammar grammar) {
  if (!vocabulary_) {
    vocabulary_ = with_context("a grammar cannot be followed with this tokenizer", [&] {
      return std::make_shared<text::VocabularyTrie>(*tokenizer_, end_tokens_);
    });
  }
  return std::make_shared<text::TokenConstraint>(std::move(grammar), vocabulary_);
}

template <typename Make>
std::shared_ptr<text::TokenConstraint> ConstraintSource::kept(const std::string& key,
                                                              const Make& make) {
  auto found = kept_.find(key);
  if (found == kept_.end()) {
    auto constraint = of(make());
    if (kept_.size() >= kKeptConstraints) {
      kept_.erase(std::min_element(kept_.begin(), kept_.end(), [](const auto& a, const auto& b) {
        return a.second.last_use < b.second.last_use;
      }));
    }
    found = kept_.emplace(key, Kept{std::move(constraint)}).first;
  }
  found->second.last_use = ++uses_;
  return found->second.constraint;
}

std::shared_ptr<text::TokenConstraint> ConstraintSource::of_grammar(const std::string& gbnf) {
  return kept("grammar " + gbnf, [&] { return text::parse_grammar(gbnf, "grammar"); });
}

std::shared_ptr<text::TokenConstraint> ConstraintSource::of_schema(const io::Json& schema) {
  return kept("schema " + schema.dump(),
              [&] { return text::json_schema_grammar(schema, "json_schema"); });
}

AnswerConstraint::AnswerConstraint(std::shared_ptr<text::TokenConstraint> constraint,
                                   std::shared_ptr<const text::Tokenizer> tokenizer,
                                   std::span<const int32_t> prompt, bool continues_text,
                                   const ChannelReader* channels,
                                   std::span<const int32_t> end_tokens)
    : constraint_(std::move(constraint)),
      tokenizer_(std::move(tokenizer)),
      end_tokens_(end_tokens),
      closing_(open_thinking(*tokenizer_, prompt).closing),
      channels_(channels),
      text_(constraint_, !continues_text && closing_.empty()) {
  if (channels_ != nullptr) {
    if (!channels_->in_shown_text()) phase_ = Phase::kChannels;
    return;
  }
  if (closing_.empty()) return;
  phase_ = Phase::kThinking;
  const text::VocabularyTrie& vocabulary = constraint_->vocabulary();
  for (int32_t token = 0; token < vocabulary.size(); ++token) {
    const std::string_view bytes = vocabulary.bytes(token);
    if (!bytes.empty() && bytes.find_first_not_of(kBlank) == bytes.npos) blanks_.push_back(token);
  }
}

std::span<const float> AnswerConstraint::mask(std::span<const float> logits) {
  const auto vocab = logits.size();
  masked_.resize(vocab);
  if (phase_ == Phase::kThinking || phase_ == Phase::kChannels) {
    std::copy(logits.begin(), logits.end(), masked_.begin());
    for (const int32_t end : end_tokens_) {
      if (static_cast<size_t>(end) < vocab) masked_[static_cast<size_t>(end)] = kImpossible;
    }
    return masked_;
  }
  const text::TokenMask allowed = text_.allowed();
  bool any = false;
  for (size_t i = 0; i < vocab; i += 64) {
    const uint64_t word = i / 64 < allowed.size() ? allowed[i / 64] : 0;
    const size_t end = std::min(i + 64, vocab);
    any = any || word != 0;
    if (word == 0) {
      std::fill(masked_.data() + i, masked_.data() + end, kImpossible);
    } else if (word == ~uint64_t{0}) {
      std::copy(logits.data() + i, logits.data() + end, masked_.data() + i);
    } else {
      for (size_t j = i; j < end; ++j) {
        masked_[j] = (word >> (j - i) & 1) != 0 ? logits[j] : kImpossible;
      }
    }
  }
  const auto allow = [&](int32_t token) {
    if (static_cast<size_t>(token) >= vocab) return;
    masked_[static_cast<size_t>(token)] = logits[static_cast<size_t>(token)];
    any = true;
  };
  if (phase_ == Phase::kGap && gap_tokens_ < kGapTokens) {
    for (const int32_t token : blanks_) allow(token);
  }
  const bool may_end = text_.may_end();
  if (may_end) {
    for (const int32_t end : end_tokens_) allow(end);
  }
  if (any) return masked_;
  if (may_end) return {};
  fail(ErrorKind::kMismatch,
       "the vocabulary has no token for what has to follow here by the grammar or schema: allow "
       "only characters that the model can write");
}

void AnswerConstraint::accept(int32_t token) {
  if (phase_ == Phase::kThinking) return think(token);
  if (phase_ == Phase::kChannels) {
    if (channels_->in_shown_text()) phase_ = Phase::kText;
    return;
  }
  const std::string_view bytes = constraint_->vocabulary().bytes(token);
  const bool is_blank = bytes.find_first_not_of(kBlank) == bytes.npos;
  if (text_.accept(token)) {
    phase_ = Phase::kText;
  } else if (phase_ == Phase::kGap && is_blank) {
    ++gap_tokens_;
  }
}

// A tag that the rest of its token contradicts closes nothing.
void AnswerConstraint::think(int32_t token) {
  std::string_view piece = constraint_->vocabulary().bytes(token);
  if (piece.empty()) piece = tokenizer_->token_text(token);  // a control token
  tail_ += piece;
  const size_t at = tail_.find(closing_);
  if (at != tail_.npos) {
    std::string_view rest = std::string_view(tail_).substr(at + closing_.size());
    rest.remove_prefix(std::min(rest.find_first_not_of(kBlank), rest.size()));
    if (rest.empty()) {
      phase_ = Phase::kGap;
    } else if (text_.accept(rest)) {
      phase_ = Phase::kText;
    }
  }
  const size_t keep = std::min(tail_.size(), closing_.size() - 1);
  tail_.erase(0, tail_.size() - keep);
}

}  // namespace lumen::runtime
