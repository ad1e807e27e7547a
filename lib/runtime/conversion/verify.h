// Whether a converted model computes what its source computes: lumen-convert SOURCE MODEL --verify.
#pragma once

#include <cstdint>
#include <span>

#include "lib/runtime/convert.h"
#include "lib/tensor/array.h"

namespace lumen::runtime {

// How far the distributions of the next token are apart, over the positions of one text.
struct Agreement {
  int64_t positions = 0;
  double mean_divergence = 0, largest_divergence = 0;  // KL(source ‖ other), in nats
  double same_first = 0;                               // share with the same likeliest token
  double smallest_cosine = 1;                          // of the logits of a position
  double largest_difference = 0;                       // of a logit
  double source_perplexity = 0, perplexity = 0;        // of the text
};

// Compares logits, float32 [positions, vocab] and [positions, vocab'], of the tokens that both
// vocabularies have; `ids` is the text. Throws Error(kMalformed) if a logit is no number.
Agreement compare_logits(const Array& source, const Array& other, std::span<const int32_t> ids);

// The verb: prints the agreement of options.output with options.model on a text of our own, read by
// the source's tokenizer (on drawn tokens if it has none). Throws Error: kCheckFailed if the mean
// divergence is above options.max_kl or the tokenizers read the text differently; kMismatch if the
// text has tokens that a model lacks.
void verify(const ConvertOptions& options);

}  // namespace lumen::runtime
