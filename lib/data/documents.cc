#include "lib/data/documents.h"

#include <algorithm>
#include <map>
#include <span>

#include "lib/base/check.h"
#include "lib/data/batch_arrays.h"
#include "lib/data/shuffle.h"
#include "lib/io/sha256.h"

namespace lumen::data {
namespace {

// Tokens [begin, begin + slots] of a document; the last is only a target.
struct Piece {
  int64_t document, begin, slots;
};

class RowDataset : public Dataset {
 public:
  RowDataset(std::shared_ptr<const Documents> documents, std::vector<Piece> pieces,
             std::vector<int64_t> begins, const RowSettings& settings)
      : documents_(std::move(documents)),
        pieces_(std::move(pieces)),
        begins_(std::move(begins)),
        settings_(settings) {}

  int64_t samples() const override { return static_cast<int64_t>(begins_.size()) - 1; }

  void collate(const Request& request, Batch& batch) const override {
    const Shape shape = {request.count, settings_.seq};
    auto tokens = writable<int32_t>(batch, "tokens", shape);
    auto targets = writable<int32_t>(batch, "targets", shape);
    auto positions = writable<int32_t>(batch, "positions", shape);
    auto segments = writable<int32_t>(batch, "segments", shape);
    std::fill(tokens.begin(), tokens.end(), settings_.padding);
    std::fill(targets.begin(), targets.end(), kIgnored);
    std::fill(positions.begin(), positions.end(), 0);
    std::fill(segments.begin(), segments.end(), kPadding);
    int64_t counted = 0;
    for (int64_t i = 0; i < request.count; ++i) {
      const auto row = static_cast<size_t>(request.indices[i]);
      int64_t at = i * settings_.seq;
      for (int64_t p = begins_[row]; p < begins_[row + 1]; ++p) {
        const Piece& piece = pieces_[static_cast<size_t>(p)];
        const int32_t* ids = documents_->ids(piece.document) + piece.begin;
        const uint8_t* learned = documents_->learned(piece.document) + piece.begin;
        for (int64_t j = 0; j < piece.slots; ++j, ++at) {
          const auto out = static_cast<size_t>(at);
          const bool counts = i < request.real && learned[j + 1] != 0;
          tokens[out] = ids[j];
          targets[out] = counts ? ids[j + 1] : kIgnored;
          positions[out] = static_cast<int32_t>(j);
          segments[out] = static_cast<int32_t>(p - begins_[row]);
          counted += counts ? 1 : 0;
        }
      }
    }
    batch.samples = request.real;
    batch.tokens = static_cast<double>(counted);
  }

 private:
  std::shared_ptr<const Documents> documents_;
  std::vector<Piece> pieces_;  // of row r: [begins_[r], begins_[r + 1])
  std::vector<int64_t> begins_;
  RowSettings settings_;
};

// Puts every piece where it leaves the least room, among a bounded number of rows not yet full.
std::vector<std::vector<Piece>> pack(const std::vector<Piece>& pieces, int64_t seq) {
  constexpr size_t kOpenRows = 256;
  std::vector<std::vector<Piece>> rows;
  std::multimap<int64_t, size_t> open;  // free tokens → row
  for (const Piece& piece : pieces) {
    size_t row = rows.size();
    int64_t room = seq;
    if (const auto fit = open.lower_bound(piece.slots); fit != open.end()) {
      room = fit->first, row = fit->second;
      open.erase(fit);
    } else {
      rows.emplace_back();
      if (open.size() == kOpenRows) open.erase(open.begin());
    }
    rows[row].push_back(piece);
    if (room > piece.slots) open.emplace(room - piece.slots, row);
  }
  return rows;
}

}  // namespace

void Documents::add(const Document& document) {
  LUMEN_CHECK(document.ids.size() == document.learned.size());
  ids_.insert(ids_.end(), document.ids.begin(), document.ids.end());
  learned_.insert(learned_.end(), document.learned.begin(), document.learned.end());
  begins_.push_back(static_cast<int64_t>(ids_.size()));
}

std::string Documents::sha256() const {
  io::Sha256 hash;
  hash.update(std::as_bytes(std::span(ids_)));
  hash.update(std::as_bytes(std::span(learned_)));
  hash.update(std::as_bytes(std::span(begins_)));
  return hash.hex();
}

void BadRows::note(SourceFile& file, const std::string& message) {
  constexpr size_t kExamples = 10;
  ++file.skipped;
  ++info_.skipped;
  if (info_.skipped_examples.size() < kExamples) info_.skipped_examples.push_back(message);
}

std::shared_ptr<const Dataset> make_rows(std::shared_ptr<const Documents> documents,
                                         const std::vector<int64_t>& selected,
                                         const RowSettings& settings, double& counted) {
  std::vector<Piece> pieces;
  counted = 0;
  const Permutation order(selected.size(), settings.seed, Purpose::kPack, 0);
  for (size_t i = 0; i < selected.size(); ++i) {
    const int64_t document = selected[settings.pack ? order[i] : i];
    const int64_t slots = documents->size(document) - 1;
    for (int64_t begin = 0; begin < slots; begin += settings.seq) {
      const Piece piece = {document, begin, std::min(settings.seq, slots - begin)};
      const uint8_t* learned = documents->learned(document) + begin + 1;
      const auto learns = std::count(learned, learned + piece.slots, 1);
      if (learns == 0) continue;  // a piece with nothing to learn would be a row without a loss
      counted += static_cast<double>(learns);
      pieces.push_back(piece);
    }
  }
  std::vector<int64_t> begins = {0};
  if (settings.pack) {
    std::vector<Piece> ordered;
    ordered.reserve(pieces.size());
    for (const auto& row : pack(pieces, settings.seq)) {
      ordered.insert(ordered.end(), row.begin(), row.end());
      begins.push_back(static_cast<int64_t>(ordered.size()));
    }
    pieces = std::move(ordered);
  } else {
    for (size_t i = 1; i <= pieces.size(); ++i) begins.push_back(static_cast<int64_t>(i));
  }
  return std::make_shared<RowDataset>(std::move(documents), std::move(pieces), std::move(begins),
                                      settings);
}

}  // namespace lumen::data
