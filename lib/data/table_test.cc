#include "lib/data/table.h"

#include <cmath>

#include "lib/base/testing.h"
#include "lib/data/csv.h"
#include "lib/io/atomic_file.h"

namespace lumen::data {
namespace {

using lumen::testing::contains;
using lumen::testing::refusal;

std::vector<std::vector<std::string>> parse(std::string_view text) {
  CsvReader reader(text);
  std::vector<std::vector<std::string>> rows;
  for (CsvRow row; reader.next(row);) {
    rows.emplace_back();
    for (const CsvField& field : row.fields) rows.back().push_back(field.text);
  }
  return rows;
}

using Rows = std::vector<std::vector<std::string>>;

TEST_CASE("CSV as RFC 4180 has it") {
  CHECK(parse("a,b\r\n1,2\r\n") == Rows{{"a", "b"}, {"1", "2"}});
  CHECK(parse("a,b\n\n1,") == Rows{{"a", "b"}, {"1", ""}});
  CHECK(parse("\"a,\"\"b\"\"\nc\",d") == Rows{{"a,\"b\"\nc", "d"}});
  CHECK(parse(",\n,,") == Rows{{"", ""}, {"", "", ""}});
  CHECK(parse("\xEF\xBB\xBF\"x\"") == Rows{{"x"}});
  CHECK(parse("").empty());
  CHECK(parse("a,b\r1,\"2\r3\"\r\r4,5") == Rows{{"a", "b"}, {"1", "2\r3"}, {"4", "5"}});
  CHECK(parse("a,b\r1,2\n3,4\r\n") == Rows{{"a", "b"}, {"1", "2"}, {"3", "4"}});
  CHECK(parse("a,b\r1,\"x\ny\"\r3,4\r") == Rows{{"a", "b"}, {"1", "x\ny"}, {"3", "4"}});
  CsvReader reader("é,\"b\nc\",d\nx");
  CsvRow row;
  REQUIRE(reader.next(row));
  CHECK(row.fields[1].column == 3);
  CHECK(row.fields[2].column == 4);  // of the second line
  REQUIRE(reader.next(row));
  CHECK(row.line == 3);
}

TEST_CASE("fields are separated as in the first line") {
  CHECK(parse("a;b\n1,5;2\n") == Rows{{"a", "b"}, {"1,5", "2"}});
  CHECK(parse("\r\na\tb;c\r\n1\t\r\n") == Rows{{"a", "b;c"}, {"1", ""}});
  CHECK(parse("a|b\n\"1|2\"|3\n") == Rows{{"a", "b"}, {"1|2", "3"}});
  CHECK(parse("a;b,c\n1;2,3\n") == Rows{{"a;b", "c"}, {"1;2", "3"}});
  CHECK(parse("\xEF\xBB\xBF\"a,\nb\";c\n1;2") == Rows{{"a,\nb", "c"}, {"1", "2"}});
  CHECK(parse("a\n1;2\n") == Rows{{"a"}, {"1;2"}});
}

TEST_CASE("broken CSV is refused at its place, and reading goes on behind it") {
  const auto why = [](std::string_view text, int good_rows_after) {
    CsvReader reader(text);
    CsvRow row;
    const std::string message = refusal(ErrorKind::kMalformed, [&] {
      while (reader.next(row)) continue;
    });
    int rows = 0;
    while (reader.next(row)) ++rows;
    CHECK(rows == good_rows_after);
    return message;
  };
  CHECK(contains(why("a,b\n1,\"open\n2,3\n", 1), "line 2, column 3: found a quote that is never"));
  CHECK(contains(why("a,b\n1,x\"y\n2,3\n", 1), "line 2, column 4: found a quote inside"));
  CHECK(contains(why("a,b\n\"x\"y,1\n2,3\n", 1), "line 2, column 4: found 'y' behind"));
  CHECK(contains(why("a;b\n\"x\",1\n2;3\n", 1),
                 "line 2, column 4: found ',' behind a closing quote, expected ';'"));
  CHECK(contains(why("a,b\n1,\xFF\n2,3\n", 1), "line 2, column 3: found bytes that are no UTF-8"));
}

std::string write_table(const std::string& content) {
  const std::string path = lumen::testing::temporary_directory() + "/t.csv";
  io::write_file_atomically(path, content);
  return path;
}

DataOptions options_for(const std::string& path) {
  DataOptions options;
  options.format = Format::kCsv;
  options.paths = {path};
  options.eval_fraction = 0;
  options.prefetch = false;
  options.shuffle = false;
  options.batch = 4;
  return options;
}

TEST_CASE("a table becomes features and classes") {
  DataOptions options =
      options_for(write_table("size,colour,kind\n1,red,b\n2,blue,a\n3,red,b\n4,red,c\n"));
  DatasetInfo info;
  Batch batch;
  open_stream(options, Split::kTrain, {}, &info)->next(batch);
  CHECK(info.classes == std::vector<std::string>{"a", "b", "c"});
  CHECK(info.feature_names == std::vector<std::string>{"size", "colour=blue", "colour=red"});
  CHECK(info.mean[0] == 2.5);
  CHECK(info.std[0] == Approx(std::sqrt(1.25)));
  const auto x = batch.fields.at("x").as<float>();
  CHECK(batch.fields.at("x").shape() == Shape{4, 3});
  CHECK(x[0] == Approx(-1.5 / std::sqrt(1.25)));
  CHECK(x[1] == 0);
  CHECK(x[2] == 1);
  const auto y = batch.fields.at("y").as<int32_t>();
  CHECK(std::vector<int32_t>(y.begin(), y.end()) == std::vector<int32_t>{1, 0, 1, 2});

  options.label = "size";
  options.text_columns = TextColumns::kDrop;
  CHECK(contains(refusal(ErrorKind::kMismatch, [&] { open_data(options); }),
                 "t.csv: the table has no column beside its label"));
  options.text_columns = TextColumns::kOneHot;
  options.label_kind = LabelKind::kNumber;
  const auto stream = open_stream(options, Split::kTrain, {}, &info);
  CHECK(info.classes.empty());
  stream->next(batch);
  CHECK(batch.fields.at("y").as<float>()[3] == 4);
}

TEST_CASE("numbers as classes are in the order of their values") {
  const Data data = open_data(options_for(write_table("x,y\n1,10\n2,9\n3,-1\n")));
  CHECK(data.info.classes == std::vector<std::string>{"-1", "9", "10"});
}

TEST_CASE("bad rows of a table are named or skipped") {
  const std::string path = write_table("a,b\n1,x\n2\n3,x,y\n,z\n4,w\n");
  DataOptions options = options_for(path);
  CHECK(contains(refusal(ErrorKind::kMalformed, [&] { open_data(options); }),
                 "t.csv: line 3, column 1: found 1 field, expected 2 as in the first row"));
  options.on_bad_row = OnBadRow::kSkip;
  const Data data = open_data(options);
  CHECK(data.info.skipped == 3);
  CHECK(data.info.train_samples == 2);
  CHECK(contains(data.info.skipped_examples[1], "line 4, column 5: found 3 fields"));
  CHECK(contains(data.info.skipped_examples[2], "line 5, column 1: found an empty field"));
  options.label = "aa";
  CHECK(contains(refusal(ErrorKind::kMismatch, [&] { open_data(options); }), "no column 'aa'"));
  options.label = "";
  options.paths = {path, write_table("a,c\n1,2\n")};
  CHECK(contains(refusal(ErrorKind::kMalformed, [&] { open_data(options); }), "the header is"));
  options.paths = {write_table("a,a\n1,2\n")};
  CHECK(contains(refusal(ErrorKind::kMalformed, [&] { open_data(options); }), "column 3"));
}

TEST_CASE("a column of numbers stays one where a few are missing") {
  std::string rows = "x,y\n";
  for (int i = 0; i < 20; ++i) rows += i == 7 ? "NA,b\n" : str(i, ",", i % 2 ? "a" : "b", "\n");
  DataOptions options = options_for(write_table(rows));
  CHECK(contains(refusal(ErrorKind::kMalformed, [&] { open_data(options); }),
                 "t.csv: line 9, column 1: found 'NA', expected a number"));
  options.on_bad_row = OnBadRow::kSkip;
  const Data data = open_data(options);
  CHECK(data.info.feature_names == std::vector<std::string>{"x"});
  CHECK(data.info.train_samples == 19);
  CHECK(data.info.files[0].samples == 19);
  CHECK(data.info.files[0].skipped == 1);
  CHECK(data.info.mean[0] == Approx((190.0 - 7) / 19));
  options.eval_fraction.reset();
  options.eval_paths = {write_table("x,y\n100,a\nNA,b\n101,b\n")};
  CHECK(open_data(options).info.eval_samples == 2);

  // A number to be predicted does not become a class either, unless classes are asked for.
  std::string labels = "x,y\n";
  for (int i = 0; i < 20; ++i) labels += str(i, ",", i == 3 ? "1e999" : str(i, ".5"), "\n");
  options = options_for(write_table(labels));
  CHECK(contains(refusal(ErrorKind::kMalformed, [&] { open_data(options); }),
                 "t.csv: line 5, column 3: found '1e999', expected a number"));
  options.label_kind = LabelKind::kClasses;
  CHECK(open_data(options).info.classes.size() == 20);
}

TEST_CASE("a number that float32 does not have is refused, not learnt from as infinite") {
  for (const bool standardize : {false, true}) {
    DataOptions options = options_for(write_table("x,y\n1,a\n2,b\n1e39,a\n4,b\n"));
    options.standardize = standardize;
    CHECK(contains(refusal(ErrorKind::kMalformed, [&] { open_data(options); }),
                   "t.csv: line 4, column 1: found '1e39', expected a number from -3.4e38 to "
                   "3.4e38 in 'x'"));
  }
}

TEST_CASE("a number too small for a float is zero") {
  DataOptions options = options_for(write_table("x,y\n1e-400,a\n-1e-50,b\n1e-4000,a\n3,b\n"));
  options.standardize = false;
  options.eval_fraction = 0;
  const Data data = open_data(options);
  CHECK(data.info.train_samples == 4);
  double value = 1;
  CHECK(parse_finite(" 1e-400", value));
  CHECK(value == 0);
  CHECK_FALSE(parse_finite("1e400", value));
}

TEST_CASE("a few bad cells do not make texts of a short column of numbers") {
  DataOptions options = options_for(write_table("a,y\n1,x\n2,z\n1e999,z\n3,x\n"));
  CHECK(contains(refusal(ErrorKind::kMalformed, [&] { open_data(options); }),
                 "t.csv: line 4, column 1: found '1e999', expected a number"));
  options.on_bad_row = OnBadRow::kSkip;
  CHECK(open_data(options).info.feature_names == std::vector<std::string>{"a"});
  options.paths = {write_table("a,y\n1,2.5\n2,nan\n n/a,4.5\n4,7.1\n-inf,1\n6,3\n")};
  const Data data = open_data(options);
  CHECK(data.info.skipped == 3);
  CHECK(data.info.classes.empty());
  CHECK(data.info.feature_names == std::vector<std::string>{"a"});
  options.paths = {write_table("a,y\n1,x\n2,y\nLarge,y\nNA,x\n")};  // texts all the same
  CHECK(open_data(options).info.feature_names.size() == 4);
}

TEST_CASE("a table that is not one is refused with the reason") {
  DataOptions options =
      options_for(write_table(std::string("\xFF\xFE"
                                          "a\0,\0y\0",
                                          8)));
  CHECK(contains(refusal(ErrorKind::kMalformed, [&] { open_data(options); }),
                 "t.csv: line 1, column 1: found UTF-16, expected UTF-8 text"));
  options.paths = {write_table("\n5.1,3.5,setosa\n4.9,3.0,setosa\n7.0,3.2,versicolor\n")};
  CHECK(contains(
      refusal(ErrorKind::kMalformed, [&] { open_data(options); }),
      "t.csv: line 2, column 1: found '5.1', '3.5', 'setosa' as the names of columns, "
      "which look like a row of data: say that it has no names (data.header = false) or put "
      "a row of them above it"));
  options.paths = {write_table("400,410,420\n0.1,0.2,5\n0.2,0.1,6\n")};
  CHECK(contains(refusal(ErrorKind::kMalformed, [&] { open_data(options); }), "(data.label)"));
  options.label = "420";  // so they are names
  CHECK(open_data(options).info.feature_names == std::vector<std::string>{"400", "410"});
  options.label = "";
  for (const char* names : {"0,1,2", "1,2,3", "400,410,kind"}) {
    options.paths = {write_table(str(names, "\n0.1,0.2,5\n0.2,0.1,6\n"))};
    CHECK(open_data(options).info.train_samples == 2);
  }
  options.paths = {write_table("a;y\n1,5;x\n2,5;z\n")};
  CHECK(contains(refusal(ErrorKind::kMalformed, [&] { open_data(options); }),
                 "t.csv: line 2, column 1: found '1,5', expected a number with a decimal point in "
                 "'a' (or name that in drop_columns)"));
  options.paths = {write_table("a,y\n1,5\n2,6\n3,nan\n")};
  CHECK(contains(refusal(ErrorKind::kMalformed, [&] { open_data(options); }),
                 "found 'nan', expected a number from -3.4e38 to 3.4e38 in 'y' "
                 "(data.on_bad_row = \"skip\" leaves such rows out)"));
  options.paths = {write_table("1,1,2\n0.1,0.2,5\n")};
  CHECK(contains(refusal(ErrorKind::kMalformed, [&] { open_data(options); }),
                 "the header has the name '1', expected a name that is not empty and not there "
                 "already: the first row names the columns (or name that in drop_columns, or say "
                 "header = false)"));
  options.paths = {write_table("a,y\n1,x\n2,x\n")};
  CHECK(contains(refusal(ErrorKind::kMismatch, [&] { open_data(options); }),
                 "t.csv: the label column 'y' is 'x' in every row"));
  options.paths = {write_table("a,y\n1,x\n2,z\n")};
  options.eval_fraction.reset();
  options.eval_paths = {write_table("a,y\n")};
  CHECK(contains(refusal(ErrorKind::kMalformed, [&] { open_data(options); }),
                 options.eval_paths[0] + ": has nothing to evaluate on"));
  std::swap(options.paths, options.eval_paths);
  CHECK(contains(refusal(ErrorKind::kMalformed, [&] { open_data(options); }),
                 options.paths[0] + ": the table has no rows to train on"));
}

TEST_CASE("columns without a name, or with one that is there twice, can be left out") {
  DataOptions options = options_for(write_table(",x,x,z,y,\n0,1,2,3,a,\n1,2,3,4,b,\n"));
  CHECK(contains(refusal(ErrorKind::kMalformed, [&] { open_data(options); }), "column 1: "));
  options.drop_columns = {""};
  CHECK(contains(refusal(ErrorKind::kMalformed, [&] { open_data(options); }), "has the name 'x'"));
  options.drop_columns = {"", "x"};
  CHECK(contains(refusal(ErrorKind::kUsage, [&] { open_data(options); }),
                 "'' is the label, which is not dropped; data.label names another"));
  options.label = "y";
  CHECK(open_data(options).info.feature_names == std::vector<std::string>{"z"});
}

TEST_CASE("the columns of a table without a header are numbered") {
  DataOptions options = options_for(write_table("\n1;y;setosa\n3;x;virginica\n1;x;setosa\n"));
  options.header = false;
  DatasetInfo info;
  Batch batch;
  const auto stream = open_stream(options, Split::kTrain, {}, &info);
  CHECK(info.feature_names == std::vector<std::string>{"1", "2=x", "2=y"});
  CHECK(info.classes == std::vector<std::string>{"setosa", "virginica"});
  CHECK(info.train_samples == 3);
  CHECK_FALSE(info.has_header);
  stream->next(batch);
  CHECK(batch.fields.at("x").as<float>()[2] == 1);  // of the first row
  options.label = "1";
  options.drop_columns = {"2"};
  CHECK(open_data(options).info.feature_names ==
        std::vector<std::string>{"3=setosa", "3=virginica"});
  options.paths = {write_table("1,1,2\n0.1,0.2\n")};
  CHECK(contains(refusal(ErrorKind::kMalformed, [&] { open_data(options); }),
                 "t.csv: line 2, column 5: found 2 fields, expected 3 as in the first row"));
  options.paths = {write_table("\n")};
  CHECK(contains(refusal(ErrorKind::kMalformed, [&] { open_data(options); }), "has no rows"));
}

TEST_CASE("a class that only the evaluation data have is refused at its place") {
  DataOptions options = options_for(write_table("x,y\n1,a\n2,b\n3,a\n"));
  options.eval_fraction.reset();
  options.on_bad_row = OnBadRow::kSkip;
  const std::string eval = options.paths[0] + ".eval.csv";
  io::write_file_atomically(eval, "x,y\n?,b\n1,b\n22,c\n");
  options.eval_paths = {eval};
  CHECK(contains(refusal(ErrorKind::kMismatch, [&] { open_data(options); }),
                 ".eval.csv: line 4, column 4: found 'c', a class that the training data do not"));
  io::write_file_atomically(eval, "x,y\n1,b\n22,b\n");
  CHECK(open_data(options).info.classes == std::vector<std::string>{"a", "b"});
}

TEST_CASE("a label that is not used is a contradiction of options") {
  DataOptions options = options_for(write_table("x,y\n1,a\n2,b\n"));
  options.drop_columns = {"y"};
  CHECK_THROWS_AS(open_data(options), DataOptionError);
  CHECK(contains(refusal(ErrorKind::kUsage, [&] { open_data(options); }),
                 "'y' is the label, which is not dropped"));
}

TEST_CASE("fewer samples than a batch takes make a smaller one") {
  DataOptions options = options_for(write_table("x,y\n1,a\n2,b\n3,a\n"));
  Batch batch;
  for (const auto& [size, rows] : {std::pair(8, 3), std::pair(2, 2)}) {
    options.batch = size;
    open_stream(options, Split::kTrain, {})->next(batch);
    CHECK(batch.fields.at("x").shape() == Shape{rows, 1});
  }
  options.batch = 8;
  options.last_batch = LastBatch::kPad;
  open_stream(options, Split::kTrain, {})->next(batch);
  CHECK(batch.fields.at("x").shape() == Shape{8, 1});
}

TEST_CASE("integers as label are classes unless numbers are wanted") {
  DataOptions options = options_for(write_table("x,y\n1,10\n2,9\n3,-1\n"));
  options.integers_are_classes = false;
  CHECK(open_data(options).info.classes.empty());
}

TEST_CASE("standardisation does not look at the evaluation split") {
  std::string rows = "x,y\n";
  for (int i = 0; i < 100; ++i) rows += str(i, ",", i % 2, "\n");
  DataOptions options = options_for(write_table(rows));
  options.eval_fraction = 0.3;
  options.batch = 70;
  DatasetInfo info;
  Batch batch;
  open_stream(options, Split::kTrain, {}, &info)->next(batch);
  double sum = 0;
  for (const float value : batch.fields.at("x").as<float>()) sum += value;
  CHECK(std::abs(sum) < 1e-4);
  CHECK(info.eval_samples == 30);
  CHECK(info.mean[0] != Approx(49.5));
}

TEST_CASE("a column of one value is not divided by what rounding leaves of its deviation") {
  std::string rows = "x,c,y\n";
  for (int i = 0; i < 100; ++i) rows += str(i, ",0.1,", i % 2, "\n");
  DataOptions options = options_for(write_table(rows));
  options.eval_fraction.reset();
  options.eval_paths = {write_table("x,c,y\n1,0.2,1\n")};
  DatasetInfo info;
  Batch batch;
  REQUIRE(open_stream(options, Split::kEval, {}, &info)->next(batch));
  CHECK(info.mean[1] == 0.1);
  CHECK(info.std[1] == 1);
  CHECK(batch.fields.at("x").as<float>()[1] == Approx(0.1));
}

TEST_CASE("integers that are equal are one class, however they are written") {
  // As pandas writes a column once it had gaps.
  DataOptions options = options_for(write_table("x,y\n1,0\n2,1\n3,10\n4,2\n"));
  options.eval_fraction.reset();
  options.eval_paths = {write_table("x,y\n1,10.0\n2,1.0\n3,0.0\n")};
  DatasetInfo info;
  Batch batch;
  REQUIRE(open_stream(options, Split::kEval, {}, &info)->next(batch));
  CHECK(info.classes == std::vector<std::string>{"0", "1", "2", "10"});
  const auto y = batch.fields.at("y").as<int32_t>();
  CHECK(std::vector<int32_t>(y.begin(), y.begin() + 3) == std::vector<int32_t>{3, 1, 0});
  // Not texts that only look like it, nor numbers that a double rounds.
  options = options_for(write_table("x,y\n1,1.1\n2,1.10\n3,2\n"));
  options.label_kind = LabelKind::kClasses;
  CHECK(open_data(options).info.classes.size() == 3);
  options = options_for(write_table("x,y\n1,9007199254740992\n2,9007199254740993\n"));
  CHECK(open_data(options).info.classes.size() == 2);
}

TEST_CASE("the tables of the shared data are read") {
  LUMEN_SHARED_DATA(iris, "datasets/csv/iris.csv");
  LUMEN_SHARED_DATA(penguins, "datasets/csv/penguins.csv");
  const Data data = open_data(options_for(iris));
  CHECK(data.info.train_samples == 150);
  CHECK(data.info.classes == std::vector<std::string>{"setosa", "versicolor", "virginica"});
  DataOptions options = options_for(penguins);
  options.label = "species";
  CHECK(contains(refusal(ErrorKind::kMalformed, [&] { open_data(options); }), "line 5"));
  options.on_bad_row = OnBadRow::kSkip;
  const Data birds = open_data(options);
  CHECK(birds.info.train_samples == 333);
  CHECK(birds.info.skipped == 11);
}

}  // namespace
}  // namespace lumen::data
