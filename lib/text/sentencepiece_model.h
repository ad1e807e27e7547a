// The protobuf message of a sentencepiece .model, checked before the library sees it: the library
// trusts piece sizes and character maps and crashes on some hostile ones.
// Format: https://github.com/google/sentencepiece/blob/master/src/sentencepiece_model.proto
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lumen::text {

enum class PieceType : uint8_t { kNormal = 1, kUnknown, kControl, kUserDefined, kUnused, kByte };

// The numbers of trainer_spec.model_type.
enum class PieceModel : uint8_t { kUnigram = 1, kBpe, kWords, kCharacters };

// What the checks found; views are into the file's bytes.
struct SentencepieceModel {
  struct Piece {
    std::string_view text;
    float score = 0;
    PieceType type = PieceType::kNormal;
  };
  std::vector<Piece> pieces;
  PieceModel kind = PieceModel::kUnigram;
  bool byte_fallback = false;       // unknown characters become the pieces of their bytes
  std::string unk_surface = " ⁇ ";  // what the unknown token decodes to
  bool add_dummy_prefix = true, remove_extra_whitespaces = true;
  std::string_view charsmap;  // of the normalizer (charsmap.h); may be empty
  bool has_denormalizer = false;
  // The message without what loading does not need: what to give to the library.
  std::string trimmed;
};

// Throws Error(kMalformed) unless every length, type, score and table is in order.
SentencepieceModel check_sentencepiece(std::string_view bytes);

}  // namespace lumen::text
