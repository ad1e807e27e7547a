// Fuzz target: CSV. A record that is refused must not end the file, and places lie within it.
#include <algorithm>

#include "lib/base/limits.h"
#include "lib/data/csv.h"
#include "lib/io/fuzz/fuzzing.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lumen;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto lines = 1 + std::count(text.begin(), text.end(), '\n') +
                     std::count(text.begin(), text.end(), '\r');  // at most
  data::CsvReader reader(text);
  data::CsvRow row;
  int64_t last = 0;
  // Every call ends a line, so it comes to an end; a refusal leaves `more` true.
  for (bool more = true; more;) {
    io::expect_refusal_or_success([&] {
      more = reader.next(row);
      if (!more) return;
      io::require(row.line > last && row.line <= lines);
      io::require(!row.fields.empty());
      io::require(static_cast<int64_t>(row.fields.size()) <= limits::kDataColumns);
      for (const data::CsvField& field : row.fields) io::require(field.column >= 1);
      last = row.line;
    });
  }
  return 0;
}
