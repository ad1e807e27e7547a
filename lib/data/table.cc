#include "lib/data/table.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <set>

#include "lib/base/error.h"
#include "lib/base/limits.h"
#include "lib/data/batch_arrays.h"
#include "lib/data/csv.h"
#include "lib/data/documents.h"
#include "lib/data/shuffle.h"
#include "lib/data/source.h"
#include "lib/io/mapped_file.h"

namespace lumen::data {
namespace {

struct Column {
  std::string name;
  std::vector<std::string> cells;
  std::vector<int64_t> places;  // of each cell, the character of its line where it begins
};

// The columns that are used, all of the same height.
struct Table {
  struct RowPlace {
    size_t file;
    int64_t line;
    Split split;
  };
  std::vector<std::string> header;
  int64_t header_line = 1;      // of the first file
  std::vector<Column> columns;  // as many as the header
  std::vector<RowPlace> rows;

  int64_t height() const { return static_cast<int64_t>(rows.size()); }
};

class TableDataset : public Dataset {
 public:
  struct Content {
    int64_t features = 0;
    std::vector<float> x;  // [rows, features]
    std::vector<int32_t> classes;
    std::vector<float> numbers;  // the label where it is a number
  };

  TableDataset(std::shared_ptr<const Content> content, std::vector<int64_t> selected)
      : content_(std::move(content)), selected_(std::move(selected)) {}

  int64_t samples() const override { return static_cast<int64_t>(selected_.size()); }

  void collate(const Request& request, Batch& batch) const override {
    const Content& table = *content_;
    auto x = writable<float>(batch, "x", {request.count, table.features});
    const bool numbers = !table.numbers.empty();
    std::span<int32_t> classes;
    std::span<float> values;
    if (numbers) values = writable<float>(batch, "y", {request.count});
    if (!numbers) classes = writable<int32_t>(batch, "y", {request.count});
    for (int64_t i = 0; i < request.count; ++i) {
      const int64_t row = selected_[static_cast<size_t>(request.indices[i])];
      std::copy_n(table.x.begin() + row * table.features, table.features,
                  x.begin() + i * table.features);
      const auto out = static_cast<size_t>(i), from = static_cast<size_t>(row);
      if (numbers) values[out] = i < request.real ? table.numbers[from] : kIgnoredNumber;
      if (!numbers) classes[out] = i < request.real ? table.classes[from] : kIgnored;
    }
    batch.samples = request.real;
    batch.tokens = static_cast<double>(request.real);
  }

 private:
  std::shared_ptr<const Content> content_;
  std::vector<int64_t> selected_;
};

std::string header_text(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) {
    text += (text.empty() ? "" : ", ") + quoted(name, 30);
    if (text.size() > 300) return text + ", …";
  }
  return text;
}

// Names that are empty or there twice are those of columns in `dropped`, if at all: an index that
// pandas wrote, a separator at the end of every line.
void read_header(const CsvRow& row, const std::vector<std::string>& dropped, Table& table) {
  const auto has = [](const std::vector<std::string>& list, const std::string& name) {
    return std::find(list.begin(), list.end(), name) != list.end();
  };
  std::vector<std::string> names;
  for (const CsvField& field : row.fields) {
    if ((field.text.empty() || has(names, field.text)) && !has(dropped, field.text)) {
      fail(ErrorKind::kMalformed, "line ", row.line, ", column ", field.column,
           ": the header has the name ", quoted(field.text),
           ", expected a name that is not empty and not there already: the first row names the "
           "columns (or name that in drop_columns, or say header = false)");
    }
    names.push_back(field.text);
  }
  if (table.header.empty()) {
    table.header = names;
    table.header_line = row.line;
    table.columns.resize(names.size());
    for (size_t i = 0; i < names.size(); ++i) table.columns[i].name = names[i];
  } else if (names != table.header) {
    fail(ErrorKind::kMalformed, "line ", row.line, ", column 1: the header is ", header_text(names),
         ", that of the first file ", header_text(table.header));
  }
}

// Adds a row, whole or not at all.
void add_row(const CsvRow& row, const std::vector<bool>& used, size_t file, Split split,
             Table& table) {
  check_width(row, table.header.size());
  for (size_t i = 0; i < used.size(); ++i) {
    if (used[i] && row.fields[i].text.find_first_not_of(' ') == std::string::npos) {
      fail(ErrorKind::kMalformed, "line ", row.line, ", column ", row.fields[i].column,
           ": found an empty field, expected a value of ", quoted(table.header[i], 40),
           " (data.on_bad_row = \"skip\" leaves such rows out)");
    }
  }
  for (size_t i = 0; i < used.size(); ++i) {
    if (!used[i]) continue;
    table.columns[i].cells.push_back(row.fields[i].text);
    table.columns[i].places.push_back(row.fields[i].column);
  }
  table.rows.push_back({file, row.line, split});
}

bool is_number(const std::string& cell) {
  double value;
  return parse_finite(cell, value);
}

// Whether a cell has the form of a number, though it may be none: "1e99", "-inf".
bool looks_like_number(std::string_view cell) {
  const size_t first = cell.find_first_not_of(' ');
  if (first == cell.npos) return false;
  cell = cell.substr(first, cell.find_last_not_of(' ') - first + 1);
  if (cell.starts_with('+')) cell.remove_prefix(1);
  double value;
  const auto [end, error] = std::from_chars(cell.data(), cell.data() + cell.size(), value);
  return error != std::errc::invalid_argument && end == cell.data() + cell.size();
}

// "1,5", as spreadsheets write it in much of Europe.
bool has_decimal_comma(std::string cell) {
  const size_t comma = cell.find(',');
  if (comma == cell.npos) return false;
  cell[comma] = '.';
  return looks_like_number(cell);
}

// Whether a cell is one of the usual ways to write that a value is missing.
bool is_missing(const std::string& cell) {
  std::string plain;
  for (const char c : cell) {
    if (c != ' ') plain += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  }
  constexpr std::string_view kMissing[] = {"na", "n/a", "#n/a", "nan",  "-nan",
                                           "?",  "-",   "null", "none", "missing"};
  return std::find(std::begin(kMissing), std::end(kMissing), plain) != std::end(kMissing);
}

// Whether a column is meant to be one of numbers: nearly all cells that are not marked as missing
// have the form of one.
bool is_meant_as_numbers(const Column& column) {
  constexpr double kNearlyAll = 0.8;
  int64_t there = 0, numbers = 0;
  for (const std::string& cell : column.cells) {
    if (is_missing(cell)) continue;
    ++there;
    numbers += looks_like_number(cell) || has_decimal_comma(cell) ? 1 : 0;
  }
  return numbers > 0 && static_cast<double>(numbers) >= kNearlyAll * static_cast<double>(there);
}

class TableReader {
 public:
  TableReader(const DataOptions& options, DatasetInfo& info)
      : options_(options), info_(info), bad_(options.on_bad_row, info) {}

  // Adds the rows of `paths`.
  void read(const std::vector<std::string>& paths, Split split) {
    for (const std::string& path : expand_paths(paths)) {
      SourceFile& file = info_.files.emplace_back();
      const Source source = read_source(path, limits::kDataUnpackedBytes, file);
      with_context(source.place(), [&] { read_file(source, split, file); });
    }
  }

  // A table without a header would lose its first row. Names are taken for such a row if each is a
  // number, or a text that its column has again; not if they count from 0 or 1 (as pandas does), or
  // if the options name one of them.
  void check_header() const {
    if (!options_.header || !options_.label.empty() || !options_.drop_columns.empty()) return;
    const size_t base = !table_.header.empty() && table_.header[0] == "1" ? 1 : 0;
    bool counts = true, any_number = false;
    for (size_t c = 0; c < table_.columns.size(); ++c) {
      const auto& [name, cells, places] = table_.columns[c];
      counts = counts && name == str(c + base);
      if (is_number(name)) {
        any_number = true;
      } else if (std::find(cells.begin(), cells.end(), name) == cells.end()) {
        return;
      }
    }
    if (!any_number || counts) return;
    fail(
        ErrorKind::kMalformed, io::place_of(info_.files[0].path), ": line ", table_.header_line,
        ", column 1: found ", header_text(table_.header),
        " as the names of columns, which look like a row of data: say that it has no names "
        "(data.header = false) or put a row of them above it; if these are names, say which one is "
        "the label (data.label)");
  }

  // Columns that are meant as numbers have to be numbers: "NA" in a few rows would else make a text
  // of every one of them, and classes of the numbers to be predicted.
  void check_numbers() {
    std::vector<bool> good(table_.rows.size(), true);
    for (size_t c = 0; c < table_.columns.size(); ++c) {
      const Column& column = table_.columns[c];
      if (!used_[c] || (c == label_ && options_.label_kind == LabelKind::kClasses)) continue;
      if (!is_meant_as_numbers(column)) continue;
      for (size_t row = 0; row < column.cells.size(); ++row) {
        if (good[row] && !is_number(column.cells[row])) good[row] = false, refuse_cell(column, row);
      }
    }
    keep_rows(good);
  }

  const Table& table() const { return table_; }
  size_t label() const { return label_; }
  const std::vector<bool>& used() const { return used_; }

 private:
  void refuse_cell(const Column& column, size_t row) {
    const Table::RowPlace& place = table_.rows[row];
    const std::string& cell = column.cells[row];
    SourceFile& file = info_.files[place.file];
    --file.samples;
    const auto refuse = [&] {
      bad_.guard(file, [&] {
        fail(ErrorKind::kMalformed, "line ", place.line, ", column ", column.places[row],
             ": found ", quoted(cell, 40), ", expected a number ",
             looks_like_number(cell)   ? "from -3.4e38 to 3.4e38 in "
             : has_decimal_comma(cell) ? "with a decimal point in "
                                       : "as nearly all are of ",
             quoted(column.name, 40),
             &column == &table_.columns[label_]
                 ? " (data.on_bad_row = \"skip\" leaves such rows out)"
                 : " (or name that in drop_columns)");
      });
    };
    with_context(io::place_of(file.path), refuse);
  }

  void keep_rows(const std::vector<bool>& good) {
    size_t kept = 0;
    for (size_t row = 0; row < good.size(); ++row) {
      if (!good[row]) continue;
      table_.rows[kept] = table_.rows[row];
      for (Column& column : table_.columns) {
        if (column.cells.empty()) continue;
        if (kept == row) continue;
        column.cells[kept] = std::move(column.cells[row]);
        column.places[kept] = column.places[row];
      }
      ++kept;
    }
    table_.rows.resize(kept);
    for (Column& column : table_.columns) {
      if (column.cells.empty()) continue;
      column.cells.resize(kept);
      column.places.resize(kept);
    }
  }

  void read_file(const Source& source, Split split, SourceFile& file) {
    CsvReader reader(source.text());
    read_header(reader.read_names(options_.header), options_.drop_columns, table_);
    if (used_.empty()) choose_columns();
    CsvRow row;
    for (bool more = true; more;) {
      bad_.guard(file, [&] {
        more = reader.next(row);
        if (!more) return;
        add_row(row, used_, info_.files.size() - 1, split, table_);
        ++file.samples;
      });
    }
  }

  size_t find(const std::string& name) const {
    const auto found = std::find(table_.header.begin(), table_.header.end(), name);
    if (found == table_.header.end()) {
      const std::string near = nearest(name, table_.header);
      fail(ErrorKind::kMismatch, "has no column ", quoted(name),
           near.empty() ? "" : ", did you mean " + quoted(near) + "?", "; its columns are ",
           header_text(table_.header));
    }
    return static_cast<size_t>(found - table_.header.begin());
  }

  void choose_columns() {
    used_.assign(table_.header.size(), true);
    label_ = options_.label.empty() ? table_.header.size() - 1 : find(options_.label);
    for (const std::string& name : options_.drop_columns) {
      for (size_t i = find(name); i < used_.size(); ++i) {
        if (table_.header[i] == name) used_[i] = false;
      }
    }
    if (!used_[label_]) {
      throw DataOptionError(
          "drop_columns", str(quoted(table_.header[label_]), " is the label, which is not dropped",
                              options_.label.empty() ? "; data.label names another" : ""));
    }
  }

  const DataOptions& options_;
  DatasetInfo& info_;
  BadRows bad_;
  Table table_;
  std::vector<bool> used_;
  size_t label_ = 0;
};

bool all_numbers(const Column& column) {
  return std::all_of(column.cells.begin(), column.cells.end(), is_number);
}

std::vector<std::string> distinct(const Column& column) {
  const std::set<std::string> texts(column.cells.begin(), column.cells.end());
  return {texts.begin(), texts.end()};
}

// Columns of features in the making.
struct Features {
  std::vector<std::vector<float>> columns;
  std::vector<std::string> names;
  std::vector<double> mean, std;

  void add_numbers(const Column& column, const std::vector<int64_t>& train, bool standardize) {
    std::vector<double> values(column.cells.size());
    for (size_t i = 0; i < values.size(); ++i) parse_finite(column.cells[i], values[i]);
    double average = 0, deviation = 1;
    if (standardize) measure(values, train, average, deviation);
    std::vector<float> scaled(values.size());
    for (size_t i = 0; i < values.size(); ++i) {
      scaled[i] = static_cast<float>((values[i] - average) / deviation);
    }
    add(column.name, std::move(scaled), average, deviation);
  }

  void add_one_hot(const Column& column) {
    const std::vector<std::string> texts = distinct(column);
    constexpr size_t kMostValues = size_t{1} << 30;
    const size_t wanted = columns.size() + texts.size();
    if (wanted > static_cast<size_t>(limits::kDataColumns) ||
        wanted > kMostValues / column.cells.size()) {
      fail(ErrorKind::kMalformed, "column ", quoted(column.name), " has ", texts.size(),
           " different texts, too many to be a feature each; name it in drop_columns");
    }
    for (const std::string& text : texts) {
      std::vector<float> values(column.cells.size());
      for (size_t i = 0; i < values.size(); ++i) values[i] = column.cells[i] == text ? 1.f : 0.f;
      add(column.name + "=" + text, std::move(values), 0, 1);
    }
  }

 private:
  // Mean and standard deviation of the training rows. Those of one value are exact: its rounded
  // mean would make a deviation of 1e-17 of it, and of any other value later 1e16.
  static void measure(const std::vector<double>& values, const std::vector<int64_t>& train,
                      double& average, double& deviation) {
    const auto value_of = [&](int64_t row) { return values[static_cast<size_t>(row)]; };
    average = value_of(train.front());
    const auto is_same = [&](int64_t row) { return value_of(row) == average; };
    if (std::all_of(train.begin(), train.end(), is_same)) return;
    double sum = 0, squares = 0;
    for (const int64_t row : train) sum += value_of(row);
    average = sum / static_cast<double>(train.size());
    for (const int64_t row : train) {
      const double off = value_of(row) - average;
      squares += off * off;
    }
    if (squares > 0) deviation = std::sqrt(squares / static_cast<double>(train.size()));
  }

  void add(std::string name, std::vector<float> values, double average, double deviation) {
    columns.push_back(std::move(values));
    names.push_back(std::move(name));
    mean.push_back(average);
    std.push_back(deviation);
  }
};

double value_of(const std::string& cell) {
  double value = 0;
  parse_finite(cell, value);
  return value;
}

bool is_integer(const std::string& cell) {
  double value;
  return parse_finite(cell, value) && value == std::floor(value);
}

// The texts of each class, its name first: in sorted order, numbers in that of their values. Equal
// integers are one class, because a column of them is written as "1.0" once some are missing; not
// those that a double may have rounded.
std::vector<std::vector<std::string>> spellings_of_classes(const Column& column, bool numbers,
                                                           bool integers) {
  std::vector<std::string> texts = distinct(column);
  if (numbers) {
    std::stable_sort(texts.begin(), texts.end(), [](const auto& left, const auto& right) {
      const double a = value_of(left), b = value_of(right);
      return a < b || (a == b && left.size() < right.size());
    });
  }
  constexpr double kFirstRounded = 9007199254740992;  // 2^53
  const auto is_same = [&](const std::string& a, const std::string& b) {
    return integers && value_of(a) == value_of(b) && std::abs(value_of(a)) < kFirstRounded;
  };
  std::vector<std::vector<std::string>> classes;
  for (std::string& text : texts) {
    if (!classes.empty() && is_same(classes.back()[0], text)) {
      classes.back().push_back(std::move(text));
    } else {
      classes.push_back({std::move(text)});
    }
  }
  return classes;
}

void read_classes(const Column& column, bool numbers, bool integers, TableDataset::Content& content,
                  DatasetInfo& info) {
  std::map<std::string, int32_t> number_of;
  for (const auto& spellings : spellings_of_classes(column, numbers, integers)) {
    for (const std::string& text : spellings) {
      number_of[text] = static_cast<int32_t>(info.classes.size());
    }
    info.classes.push_back(spellings[0]);
  }
  if (info.classes.size() > static_cast<size_t>(limits::kDataClasses)) {
    fail(ErrorKind::kMalformed, "column ", quoted(column.name), " has ", info.classes.size(),
         " classes; the limit is ", limits::kDataClasses);
  }
  if (info.classes.size() == 1) {
    fail(ErrorKind::kMismatch, "the label column ", quoted(column.name), " is ",
         quoted(info.classes[0], 40), " in every row: there is nothing to learn");
  }
  for (const std::string& cell : column.cells) content.classes.push_back(number_of.at(cell));
}

void read_label(const Column& column, const DataOptions& options, TableDataset::Content& content,
                DatasetInfo& info) {
  const LabelKind kind = options.label_kind;
  const bool numbers = all_numbers(column);
  const bool integers = std::all_of(column.cells.begin(), column.cells.end(), is_integer);
  if (kind == LabelKind::kNumber && !numbers) {
    fail(ErrorKind::kMismatch, "label_kind is number, but column ", quoted(column.name),
         " has cells that are no numbers");
  }
  const bool classes_of_integers = options.integers_are_classes && integers;
  if (kind == LabelKind::kNumber || (kind == LabelKind::kAuto && numbers && !classes_of_integers)) {
    for (const std::string& cell : column.cells) {
      content.numbers.push_back(static_cast<float>(value_of(cell)));
    }
    return;
  }
  read_classes(column, numbers, integers, content, info);
}

std::shared_ptr<TableDataset::Content> make_content(const DataOptions& options, const Table& table,
                                                    const std::vector<bool>& used, size_t label,
                                                    const std::vector<int64_t>& train,
                                                    DatasetInfo& info) {
  auto content = std::make_shared<TableDataset::Content>();
  read_label(table.columns[label], options, *content, info);
  Features features;
  for (size_t i = 0; i < table.columns.size(); ++i) {
    if (!used[i] || i == label) continue;
    if (all_numbers(table.columns[i])) {
      features.add_numbers(table.columns[i], train, options.standardize);
    } else if (options.text_columns == TextColumns::kOneHot) {
      features.add_one_hot(table.columns[i]);
    }
  }
  content->features = static_cast<int64_t>(features.columns.size());
  if (content->features == 0) {
    fail(ErrorKind::kMismatch, "the table has no column beside its label that is a feature");
  }
  content->x.reserve(table.rows.size() * features.columns.size());
  for (size_t row = 0; row < table.rows.size(); ++row) {
    for (const auto& column : features.columns) content->x.push_back(column[row]);
  }
  info.feature_shape = {content->features};
  info.feature_names = std::move(features.names);
  info.has_header = options.header;
  info.mean = std::move(features.mean);
  info.std = std::move(features.std);
  return content;
}

// A class that only data for evaluation have cannot be learned: a slip, or other data.
void check_eval_classes(const TableReader& reader, const std::vector<int32_t>& classes,
                        int64_t train_rows, const DatasetInfo& info) {
  if (classes.empty()) return;  // the label is a number
  const Table& table = reader.table();
  const std::set<int32_t> known(classes.begin(), classes.begin() + train_rows);
  for (auto row = static_cast<size_t>(train_rows); row < classes.size(); ++row) {
    if (known.contains(classes[row])) continue;
    const Table::RowPlace& place = table.rows[row];
    const Column& column = table.columns[reader.label()];
    fail(ErrorKind::kMismatch, io::place_of(info.files[place.file].path), ": line ", place.line,
         ", column ", column.places[row], ": found ", quoted(column.cells[row], 40),
         ", a class that the training data do not have");
  }
}

}  // namespace

Data open_table(const DataOptions& options) {
  Data data;
  DatasetInfo& info = data.info;
  TableReader reader(options, info);
  reader.read(options.paths, Split::kTrain);
  reader.read(options.eval_paths, Split::kEval);
  reader.check_header();
  reader.check_numbers();
  const auto& rows = reader.table().rows;
  const auto first_eval = std::find_if(rows.begin(), rows.end(),
                                       [](const auto& row) { return row.split == Split::kEval; });
  const int64_t train_rows = first_eval - rows.begin();
  SplitIndices split;
  if (options.eval_paths.empty()) {
    split = split_indices(train_rows, options.eval_fraction.value_or(0.1), options.max_samples,
                          options.seed);
  } else {
    split.train = split_indices(train_rows, 0, options.max_samples, options.seed).train;
    split.eval =
        split_indices(reader.table().height() - train_rows, 0, options.max_samples, options.seed)
            .train;
    for (int64_t& row : split.eval) row += train_rows;
  }
  if (split.train.empty()) {
    fail(ErrorKind::kMalformed, io::place_of(info.files[0].path),
         ": the table has no rows to train on",
         info.skipped > 0 ? str(" (", info.skipped, " bad ones left out)") : "");
  }
  const auto content = with_context(io::place_of(info.files[0].path), [&] {
    return make_content(options, reader.table(), reader.used(), reader.label(), split.train, info);
  });
  if (!options.eval_paths.empty()) {
    check_eval_classes(reader, content->classes, train_rows, info);
  }
  info.train_samples = static_cast<int64_t>(split.train.size());
  info.eval_samples = static_cast<int64_t>(split.eval.size());
  info.train_tokens = static_cast<double>(info.train_samples);
  info.eval_tokens = static_cast<double>(info.eval_samples);
  info.description =
      str("table, ", info.train_samples, " + ", info.eval_samples, " rows, ", content->features,
          " features, ",
          info.classes.empty() ? "a number as label" : str(info.classes.size(), " classes"));
  const bool any_eval = !split.eval.empty();
  data.train = std::make_shared<TableDataset>(content, std::move(split.train));
  if (any_eval) data.eval = std::make_shared<TableDataset>(content, std::move(split.eval));
  return data;
}

}  // namespace lumen::data
