#include "lib/runtime/conversion/verify.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lib/base/error.h"
#include "lib/base/limits.h"
#include "lib/base/random.h"
#include "lib/base/strings.h"
#include "lib/data/builtin.h"
#include "lib/io/mapped_file.h"
#include "lib/runtime/generation/language_model.h"
#include "lib/runtime/generation/prompt_format.h"
#include "lib/runtime/generation/session.h"
#include "lib/runtime/tool/output.h"

namespace lumen::runtime {
namespace {

using io::Json;

constexpr int64_t kPositions = 256;
constexpr size_t kTextBytes = 2'000;

// log(Σ exp(x)).
double log_sum(std::span<const float> logits) {
  const double largest = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(logit - largest);
  return largest + std::log(sum);
}

size_t likeliest(std::span<const float> logits) {
  return static_cast<size_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

void require_numbers(std::span<const float> logits, const char* whose, int64_t position) {
  for (const float logit : logits) {
    if (!std::isnan(logit) && logit != INFINITY) continue;
    fail(ErrorKind::kMalformed, "the logits of the ", whose, " at position ", position,
         " are not all numbers");
  }
}

// The vocabulary of a model, or null if it has none that is known here.
std::shared_ptr<const text::Tokenizer> vocabulary_of(const io::ModelFiles& files) {
  try {
    return PromptFormat::load(files, "").tokenizer();
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::kMalformed) throw;
    return nullptr;
  }
}

std::vector<int32_t> read_text(const io::ModelFiles& files, std::string& problem) {
  const auto tokenizer = vocabulary_of(files);
  if (!tokenizer) {
    problem = "has no tokenizer";
    return {};
  }
  return tokenizer->encode(data::make_stories().substr(0, kTextBytes));
}

Array logits_of(const io::ModelFiles& files, std::span<const int32_t> ids,
                const ConvertOptions& options) {
  LoadOptions load;
  load.context = static_cast<int64_t>(ids.size());
  load.kv_type = DType::kF32;
  load.repack = false;
  if (options.threads) load.threads = static_cast<int>(*options.threads);
  return LanguageModel::load(files, load)->logits(ids);
}

int64_t rows_of(const io::ModelFiles& files) {
  return io::get_int(files.config, "vocab_size", 1, limits::kVocab);
}

Json to_json(const ConvertOptions& options, const Agreement& a, const std::string& text,
             bool agrees) {
  return {{"schema", 1},
          {"source", to_valid_utf8(*options.model)},
          {"model", to_valid_utf8(*options.output)},
          {"text", text},
          {"positions", a.positions},
          {"mean_kl", a.mean_divergence},
          {"max_kl", a.largest_divergence},
          {"same_top_1", a.same_first},
          {"min_cosine", a.smallest_cosine},
          {"max_logit_difference", a.largest_difference},
          {"source_perplexity", a.source_perplexity},
          {"perplexity", a.perplexity},
          {"agrees", agrees}};
}

std::string to_text(const Agreement& a, const std::string& text) {
  std::string out = str("text        ", a.positions, " tokens, ", text, "\n");
  out += str("divergence  mean ", fixed(a.mean_divergence, 6), ", largest ",
             fixed(a.largest_divergence, 6), " (KL, in nats)\n");
  out += str("likeliest   the same token at ", fixed(100 * a.same_first, 2), " % of positions\n");
  out += str("logits      smallest cosine ", fixed(a.smallest_cosine, 6), ", largest difference ",
             fixed(a.largest_difference, 4), "\n");
  out += str("perplexity  ", fixed(a.source_perplexity, 4), " of the source, ",
             fixed(a.perplexity, 4), "\n");
  return out;
}

}  // namespace

Agreement compare_logits(const Array& source, const Array& other, std::span<const int32_t> ids) {
  const auto vocab = static_cast<size_t>(source.shape()[1]),
             other_vocab = static_cast<size_t>(other.shape()[1]);
  const size_t shared = std::min(vocab, other_vocab);
  const auto all = source.as<float>(), other_all = other.as<float>();
  Agreement a;
  a.positions = source.shape()[0];
  double log_likelihood = 0, other_log_likelihood = 0;
  for (int64_t i = 0; i < a.positions; ++i) {
    const auto at = static_cast<size_t>(i);
    const auto p = all.subspan(at * vocab, shared), q = other_all.subspan(at * other_vocab, shared);
    require_numbers(p, "source", i);
    require_numbers(q, "model", i);
    const double log_p = log_sum(p), log_q = log_sum(q);
    double divergence = 0, product = 0, p_square = 0, q_square = 0;
    for (size_t k = 0; k < shared; ++k) {
      const double x = p[k], y = q[k], share = std::exp(x - log_p);
      // A token that is ruled out (−∞) has no part; the share of one that only the other rules out
      // makes the divergence infinite.
      if (share > 0) divergence += share * ((x - log_p) - (y - log_q));
      if (std::isinf(x) || std::isinf(y)) continue;
      product += x * y;
      p_square += x * x;
      q_square += y * y;
      a.largest_difference = std::max(a.largest_difference, std::abs(x - y));
    }
    divergence = std::max(divergence, 0.0);  // but for rounding it is not below
    a.mean_divergence += divergence;
    a.largest_divergence = std::max(a.largest_divergence, divergence);
    a.same_first += likeliest(p) == likeliest(q);
    const double lengths = std::sqrt(p_square * q_square);
    if (lengths > 0) a.smallest_cosine = std::min(a.smallest_cosine, product / lengths);
    if (at + 1 < ids.size()) {
      const auto next = static_cast<size_t>(ids[at + 1]);
      log_likelihood += p[next] - log_p;
      other_log_likelihood += q[next] - log_q;
    }
  }
  const auto count = static_cast<double>(a.positions);
  a.mean_divergence /= count;
  a.same_first /= count;
  const double predicted = std::max(count - 1, 1.0);
  a.source_perplexity = std::exp(-log_likelihood / predicted);
  a.perplexity = std::exp(-other_log_likelihood / predicted);
  return a;
}

void verify(const ConvertOptions& options) {
  const io::ModelFiles source = open_language_model(*options.model);
  const io::ModelFiles other = open_language_model(*options.output);
  const int64_t vocab = std::min(rows_of(source), rows_of(other));
  const int64_t most = std::min(
      io::get_int(source.config, "max_position_embeddings", 1, limits::kContext, kPositions),
      io::get_int(other.config, "max_position_embeddings", 1, limits::kContext, kPositions));
  std::string problem, other_problem;
  std::vector<int32_t> ids = read_text(source, problem);
  const std::vector<int32_t> other_ids = read_text(other, other_problem);
  std::string text = "the same ids from both tokenizers";
  bool same_tokens = true;
  if (!problem.empty()) {
    text = "drawn, as the source has no tokenizer";
    Philox random(42);
    for (int64_t i = 0; i < kPositions; ++i) {
      ids.push_back(static_cast<int32_t>(random.below(static_cast<uint64_t>(vocab))));
    }
  } else if (!other_problem.empty()) {
    text = "read by the source's tokenizer, as the other has none";
  } else if (ids != other_ids) {
    same_tokens = false;
    const auto at = std::mismatch(ids.begin(), ids.end(), other_ids.begin(), other_ids.end()).first;
    text = str("which the tokenizers read differently from token ", at - ids.begin(), " on");
  }
  ids.resize(std::min(ids.size(), static_cast<size_t>(std::min(most, kPositions))));
  for (const int32_t id : ids) {
    if (id < vocab) continue;
    fail(ErrorKind::kMismatch, "the text has token ", id, ", and the smaller model only ", vocab,
         ": the models do not have the same vocabulary");
  }
  Array logits = logits_of(source, ids, options);
  const Agreement agreement = compare_logits(logits, logits_of(other, ids, options), ids);
  const double limit = options.max_kl.value_or(kMaxDivergence);
  const bool agrees = same_tokens && agreement.mean_divergence <= limit;
  write_stdout(options.json ? to_json(options, agreement, text, agrees).dump(2) + "\n"
                            : to_text(agreement, text));
  if (agrees) return;
  fail(ErrorKind::kCheckFailed, io::place_of(*options.output), ": does not answer as ",
       io::place_of(*options.model), " does: ",
       same_tokens ? str("the mean divergence is above ", limit) : "its tokenizer is another");
}

}  // namespace lumen::runtime
