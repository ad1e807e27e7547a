// A sentencepiece model as tokenizer.json, which programs without the library read.
#include <algorithm>
#include <tuple>
#include <utility>

#include "lib/base/error.h"
#include "lib/text/sentencepiece_model.h"
#include "lib/text/train/trainers.h"
#include "lib/text/utf8.h"
#include "lib/text/vocabulary.h"

namespace lumen::text {
namespace {

// Pieces that text is made of.
bool is_text(const SentencepieceModel::Piece& piece) {
  return piece.type == PieceType::kNormal;
}

io::Json merging_model(const SentencepieceModel& model) {
  Vocabulary vocabulary;
  io::Json vocab = io::Json::object();
  for (size_t id = 0; id < model.pieces.size(); ++id) {
    vocabulary.set(static_cast<int64_t>(id), model.pieces[id].text);
    append_member(vocab, std::string(model.pieces[id].text), id);
  }
  const auto text_piece = [&](std::string_view text) {
    const int32_t id = vocabulary.find(text);
    return id >= 0 && is_text(model.pieces[static_cast<size_t>(id)]) ? id : -1;
  };
  // Every way to put a piece together, the highest score of the result first.
  using Merge = std::tuple<float, int32_t, int32_t>;  // −score, left, right
  std::vector<Merge> ways;
  for (const SentencepieceModel::Piece& piece : model.pieces) {
    if (!is_text(piece)) continue;
    for (size_t cut = character_bytes(piece.text[0]); cut < piece.text.size();
         cut += character_bytes(piece.text[cut])) {
      const int32_t left = text_piece(piece.text.substr(0, cut));
      const int32_t right = text_piece(piece.text.substr(cut));
      if (left >= 0 && right >= 0) ways.emplace_back(-piece.score, left, right);
    }
  }
  std::sort(ways.begin(), ways.end());
  io::Json merges = io::Json::array();
  for (const auto& [cost, left, right] : ways) {
    merges.push_back(str(vocabulary.text(left), " ", vocabulary.text(right)));
  }
  io::Json result = bpe_model(std::move(vocab), std::move(merges));
  result["fuse_unk"] = result["byte_fallback"] = true;
  return result;
}

io::Json unigram_model(const SentencepieceModel& model) {
  // Far below any split of a text: tokenizer.json has no other way to say that text which spells a
  // byte token is not that token. It still is if the vocabulary lacks one of its characters:
  // unknown characters score 10 less than the least piece.
  constexpr double kNever = -1e4;
  io::Json vocab = io::Json::array();
  for (const SentencepieceModel::Piece& piece : model.pieces) {
    const double score = is_text(piece) ? double{piece.score} : kNever;
    vocab.push_back(io::Json::array({std::string(piece.text), score}));
  }
  return {{"type", "Unigram"}, {"byte_fallback", true}, {"vocab", std::move(vocab)}};
}

}  // namespace

std::string sentencepiece_json(std::string_view bytes, const std::string& bos) {
  const SentencepieceModel model = check_sentencepiece(bytes);
  TokenizerJson parts;
  const bool is_bpe = model.kind == PieceModel::kBpe;
  parts.model = is_bpe ? merging_model(model) : unigram_model(model);
  set_space_marks(model.add_dummy_prefix, parts);
  for (size_t id = 0; id < model.pieces.size(); ++id) {
    const SentencepieceModel::Piece& piece = model.pieces[id];
    const bool special = piece.type == PieceType::kControl || piece.type == PieceType::kUnknown;
    if (special) parts.special_tokens.emplace_back(piece.text);
    if (piece.type == PieceType::kUserDefined) parts.user_defined.emplace_back(piece.text);
    if (piece.type != PieceType::kUnknown) continue;
    if (is_bpe) {
      parts.model["unk_token"] = std::string(piece.text);
    } else {
      parts.model["unk_id"] = id;
    }
  }
  parts.bos = bos;
  return tokenizer_json(std::move(parts));
}

}  // namespace lumen::text
