// CSV as RFC 4180 has it: fields in commas, quotes doubled inside quoted ones, mostly a header row.
// Or with semicolons, tabs or bars in the place of commas, as spreadsheets write them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lumen::data {

struct CsvField {
  std::string text;
  int64_t column = 0;  // where it begins, in characters from 1
};

struct CsvRow {
  std::vector<CsvField> fields;
  int64_t line = 0;  // where it begins
};

// Reads the records of a text one by one. Fields are separated by commas; where the first line has
// none outside quotes, by the first of ; tab | in it. Lines end in LF, CRLF or CR; blank lines
// are left out, a byte-order mark too. The text must outlive it.
class CsvReader {
 public:
  explicit CsvReader(std::string_view text);

  // The next record; false at the end. Throws Error(kMalformed) "line L, column C: …" for an open
  // quote, text behind a closing quote, a byte that is no UTF-8, or a record over
  // limits::kDataRowBytes or limits::kDataColumns; the next call goes on with the next line.
  bool next(CsvRow& row);

  // The names of the columns, before any other record is read: the first one or, without
  // `has_header`, "1", "2", … at the places of its fields; it is then the next one still. Throws as
  // next, and Error(kMalformed) if there is no record.
  CsvRow read_names(bool has_header);

 private:
  void read_quoted(CsvField& field);
  void read_plain(CsvField& field);
  [[noreturn]] void refuse(int64_t line, int64_t column, std::string_view what);
  void advance();
  bool at_line_end() const;

  std::string_view text_;
  char separator_;
  size_t pos_ = 0;
  int64_t line_ = 1, column_ = 1;
};

// Throws Error(kMalformed) unless `row` has as many fields as the first row.
void check_width(const CsvRow& row, size_t first_row_fields);

// Whether a cell is a number that is finite in float32, which `value` then is, or 0 if it is too
// small for a double; spaces around it do not count.
bool parse_finite(std::string_view cell, double& value);

}  // namespace lumen::data
