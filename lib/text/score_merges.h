// Sentencepiece's form of byte-pair encoding, where two neighbours join if they spell a token, the
// one with the highest score first.
#pragma once

#include <span>

#include "lib/text/bpe.h"
#include "lib/text/vocabulary.h"

namespace lumen::text {

// Tables with a merge for every way to put a token together from two others or characters, ranked
// by score. `byte_ids[b]` (-1 for none) stands for byte b of characters that no token begins with.
// Throws Error(kMalformed) if there are more than limits::kMerges ways.
BpeTables score_merges(const Vocabulary& vocabulary, std::span<const float> scores,
                       const std::array<int32_t, 256>& byte_ids);

}  // namespace lumen::text
