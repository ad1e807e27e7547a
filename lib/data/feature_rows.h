// Rows of a table for a network that was trained on one.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lumen::data {

// What training made of a table's columns (DatasetInfo): features with the name of a column of
// numbers, or "column=text", which is 1 where the column has that text, else 0; then
// x = (value − mean) / std.
struct FeatureNames {
  std::vector<std::string> names;
  std::vector<double> mean, std;  // of the same length
  bool has_header = true;         // the first row names the columns; else they are "1", "2", …
};

struct FeatureRows {
  std::vector<float> x;        // [lines.size(), names.size()], row by row
  std::vector<int64_t> lines;  // where each row begins in the file
};

// The rows of the CSV file at `path` (.gz too), whose header names the columns in any order; others
// are left out. Without a header they are in the order of training, and the label's may be left out
// where it was the last. Throws Error: kMissing, kIo; kMalformed "PATH: line L, column C: …" for
// what the format forbids, a cell that is no finite number, or a text that training did not see;
// kMismatch if a column is not there.
FeatureRows read_feature_rows(const std::string& path, const FeatureNames& features);

}  // namespace lumen::data
