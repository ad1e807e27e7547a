// Documents as tokens, one behind the other, with the targets that count.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lib/base/error.h"
#include "lib/data/data.h"
#include "lib/io/mapped_file.h"

namespace lumen::data {

// Tokens of a document before they are stored.
struct Document {
  std::vector<int32_t> ids;
  std::vector<bool> learned;  // whether the token counts as a target; as many as ids
};

// All documents of a data set. Not thread-safe while it is filled.
class Documents {
 public:
  void add(const Document& document);

  int64_t count() const { return static_cast<int64_t>(begins_.size()) - 1; }
  int64_t size(int64_t document) const { return begins_[at(document) + 1] - begins_[at(document)]; }
  const int32_t* ids(int64_t document) const { return ids_.data() + begins_[at(document)]; }
  const uint8_t* learned(int64_t document) const { return learned_.data() + begins_[at(document)]; }
  std::string sha256() const;  // of all of it, lower-case hexadecimal

 private:
  static size_t at(int64_t document) { return static_cast<size_t>(document); }

  std::vector<int32_t> ids_;
  std::vector<uint8_t> learned_;
  std::vector<int64_t> begins_ = {0};
};

// Collects what is wrong with rows: throws it, or counts it, as the options say.
class BadRows {
 public:
  BadRows(OnBadRow policy, DatasetInfo& info) : policy_(policy), info_(info) {}

  // Runs `read`; an Error(kMalformed) from it is a bad row of `file`.
  template <typename Read>
  void guard(SourceFile& file, Read&& read) {
    try {
      read();
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::kMalformed || policy_ == OnBadRow::kStop) throw;
      note(file, str(io::place_of(file.path), ": ", error.what()));
    }
  }

 private:
  void note(SourceFile& file, const std::string& message);

  OnBadRow policy_;
  DatasetInfo& info_;
};

// Rows of `seq` tokens over documents [first, last): packed or one each.
struct RowSettings {
  int64_t seq = 0;
  bool pack = false;
  int32_t padding = 0;  // token of positions without a document
  uint64_t seed = 0;    // the order in which documents are packed
};

// A data set of such rows, of the selected documents. Documents longer than a row continue in
// further rows, each piece a segment of its own; every target is in exactly one piece.
// `counted` receives the number of targets that count.
std::shared_ptr<const Dataset> make_rows(std::shared_ptr<const Documents> documents,
                                         const std::vector<int64_t>& selected,
                                         const RowSettings& settings, double& counted);

}  // namespace lumen::data
