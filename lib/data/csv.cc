#include "lib/data/csv.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "lib/base/error.h"
#include "lib/base/limits.h"
#include "lib/base/strings.h"

namespace lumen::data {
namespace {

// What separates the fields of the first line that is not blank.
char separator_of(std::string_view text) {
  char found = ',';
  bool quoted = false;
  text.remove_prefix(std::min(text.find_first_not_of("\r\n"), text.size()));
  for (const char c : text.substr(0, limits::kDataRowBytes)) {
    if (c == '"') quoted = !quoted;
    if (quoted) continue;
    if (c == ',') return ',';
    if (c == '\n' || c == '\r') break;
    if (found == ',' && (c == ';' || c == '\t' || c == '|')) found = c;
  }
  return found;
}

}  // namespace

CsvReader::CsvReader(std::string_view text) : text_(text) {
  if (text_.starts_with("\xEF\xBB\xBF")) text_.remove_prefix(3);
  separator_ = separator_of(text_);
}

void CsvReader::advance() {
  const char c = text_[pos_++];
  if (c == '\n' || (c == '\r' && !text_.substr(pos_).starts_with('\n'))) {
    ++line_;
    column_ = 0;
  }
  if (pos_ == text_.size() || (text_[pos_] & 0xC0) != 0x80) ++column_;
}

bool CsvReader::at_line_end() const {
  return pos_ == text_.size() || text_[pos_] == '\n' || text_[pos_] == '\r';
}

void CsvReader::refuse(int64_t line, int64_t column, std::string_view what) {
  while (!at_line_end()) advance();
  fail(ErrorKind::kMalformed, "line ", line, ", column ", column, ": ", what);
}

void CsvReader::read_quoted(CsvField& field) {
  const int64_t line = line_, column = column_;
  const size_t begin = pos_;
  advance();
  for (;;) {
    if (pos_ == text_.size() || pos_ - begin > limits::kDataRowBytes) {
      // The quote may stand anywhere: the rows behind it are read again.
      const bool found_end = pos_ == text_.size();
      pos_ = begin, line_ = line, column_ = column;
      refuse(line, column,
             found_end ? "found a quote that is never closed"
                       : str("found a quote that is not closed within ", limits::kDataRowBytes,
                             " bytes"));
    }
    const char c = text_[pos_];
    advance();
    if (c == '"') {
      if (pos_ == text_.size() || text_[pos_] != '"') break;
      advance();
    }
    field.text += c;
  }
  if (!at_line_end() && text_[pos_] != separator_) {
    refuse(line_, column_,
           str("found ", quoted(text_.substr(pos_, 1)), " behind a closing quote, expected ",
               separator_ == ',' ? "a comma" : quoted(std::string(1, separator_))));
  }
}

void CsvReader::read_plain(CsvField& field) {
  const size_t begin = pos_;
  while (!at_line_end() && text_[pos_] != separator_) {
    if (text_[pos_] == '"') {
      refuse(line_, column_, "found a quote inside a field that does not begin with one");
    }
    advance();
  }
  field.text = text_.substr(begin, pos_ - begin);
}

bool CsvReader::next(CsvRow& row) {
  row.fields.clear();
  while (pos_ < text_.size() && at_line_end()) advance();
  if (pos_ == text_.size()) return false;
  row.line = line_;
  const size_t begin = pos_;
  for (;;) {
    CsvField field;
    field.column = column_;
    if (pos_ < text_.size() && text_[pos_] == '"') {
      read_quoted(field);
    } else {
      read_plain(field);
    }
    if (!is_valid_utf8(field.text)) {
      const bool wide = text_.starts_with("\xFF\xFE") || text_.starts_with("\xFE\xFF");
      refuse(row.line, field.column,
             wide ? "found UTF-16, expected UTF-8 text" : "found bytes that are no UTF-8 text");
    }
    row.fields.push_back(std::move(field));
    if (pos_ - begin > limits::kDataRowBytes ||
        row.fields.size() > static_cast<size_t>(limits::kDataColumns)) {
      refuse(row.line, column_,
             str("the row has more than ", limits::kDataRowBytes, " bytes or ",
                 limits::kDataColumns, " columns"));
    }
    if (at_line_end()) break;
    advance();  // the separator
  }
  return true;
}

CsvRow CsvReader::read_names(bool has_header) {
  const size_t pos = pos_;
  const int64_t line = line_, column = column_;
  CsvRow names;
  if (!next(names)) fail(ErrorKind::kMalformed, has_header ? "has no header row" : "has no rows");
  if (has_header) return names;
  for (size_t i = 0; i < names.fields.size(); ++i) names.fields[i].text = str(i + 1);
  pos_ = pos, line_ = line, column_ = column;
  return names;
}

void check_width(const CsvRow& row, size_t first_row_fields) {
  if (row.fields.size() == first_row_fields) return;
  const bool longer = row.fields.size() > first_row_fields;
  fail(ErrorKind::kMalformed, "line ", row.line, ", column ",
       longer ? row.fields[first_row_fields].column : row.fields.back().column, ": found ",
       row.fields.size(), row.fields.size() == 1 ? " field" : " fields", ", expected ",
       first_row_fields, " as in the first row");
}

bool parse_finite(std::string_view cell, double& value) {
  const size_t first = cell.find_first_not_of(' ');
  if (first == cell.npos) return false;
  cell = cell.substr(first, cell.find_last_not_of(' ') - first + 1);
  if (cell.starts_with('+')) cell.remove_prefix(1);
  if (!parse_number(cell, value)) {
    // Too large or too small for a double; some machines have more.
    long double wide;
    const auto [end, error] = std::from_chars(cell.data(), cell.data() + cell.size(), wide);
    if (error != std::errc() || end != cell.data() + cell.size()) return false;
    value = static_cast<double>(wide);
  }
  return std::isfinite(static_cast<float>(value));
}

}  // namespace lumen::data
