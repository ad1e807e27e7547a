#include "lib/data/feature_rows.h"

#include <algorithm>
#include <map>
#include <set>

#include "lib/base/error.h"
#include "lib/base/limits.h"
#include "lib/base/strings.h"
#include "lib/data/csv.h"
#include "lib/data/source.h"

namespace lumen::data {
namespace {

// Where a feature comes from.
struct Origin {
  size_t column;
  std::string text;  // 1 where the cell is this; of numbers nothing
  bool is_number;
};

std::vector<Origin> find_origins(const CsvRow& header, const std::vector<std::string>& names) {
  const auto column_of = [&](std::string_view name) {
    const auto found = std::find_if(header.fields.begin(), header.fields.end(),
                                    [&](const CsvField& field) { return field.text == name; });
    return static_cast<size_t>(found - header.fields.begin());
  };
  std::vector<Origin> origins;
  for (const std::string& name : names) {
    size_t column = column_of(name);
    if (column < header.fields.size()) {
      origins.push_back({column, "", true});
      continue;
    }
    size_t equals = name.find('=');
    while (equals != name.npos && column_of(name.substr(0, equals)) == header.fields.size()) {
      equals = name.find('=', equals + 1);
    }
    if (equals == name.npos) {
      fail(ErrorKind::kMismatch, "line ", header.line, ": there is no column for the feature ",
           quoted(name, 40), " of the network");
    }
    origins.push_back({column_of(name.substr(0, equals)), name.substr(equals + 1), false});
  }
  return origins;
}

// The texts that have features, by column.
using Texts = std::map<size_t, std::set<std::string>>;

Texts texts_of(const std::vector<Origin>& origins) {
  Texts texts;
  for (const Origin& origin : origins) {
    if (!origin.is_number) texts[origin.column].insert(origin.text);
  }
  return texts;
}

void require_known(const CsvRow& header, const CsvRow& row, const Texts& texts) {
  for (const auto& [column, known] : texts) {
    const CsvField& cell = row.fields[column];
    if (known.count(cell.text) > 0) continue;
    fail(ErrorKind::kMalformed, "line ", row.line, ", column ", cell.column, ": found ",
         quoted(cell.text, 40), ", expected what training had in ",
         quoted(header.fields[column].text, 40), ": ",
         join(std::vector<std::string>(known.begin(), known.end()), ", "));
  }
}

}  // namespace

FeatureRows read_feature_rows(const std::string& path, const FeatureNames& features) {
  SourceFile file;
  const Source source = read_source(path, limits::kDataUnpackedBytes, file);
  return with_context(source.place(), [&] {
    CsvReader reader(source.text());
    const CsvRow header = reader.read_names(features.has_header);
    CsvRow row;
    const std::vector<Origin> origins = find_origins(header, features.names);
    const Texts texts = texts_of(origins);
    FeatureRows result;
    while (reader.next(row)) {
      check_width(row, header.fields.size());
      require_known(header, row, texts);
      for (size_t i = 0; i < origins.size(); ++i) {
        const CsvField& cell = row.fields[origins[i].column];
        double value = cell.text == origins[i].text;
        if (origins[i].is_number && !parse_finite(cell.text, value)) {
          fail(ErrorKind::kMalformed, "line ", row.line, ", column ", cell.column, ": found ",
               quoted(cell.text, 40), ", expected a number from -3.4e38 to 3.4e38");
        }
        result.x.push_back(static_cast<float>((value - features.mean[i]) / features.std[i]));
      }
      result.lines.push_back(row.line);
    }
    return result;
  });
}

}  // namespace lumen::data
