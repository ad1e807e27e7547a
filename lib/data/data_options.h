// What a recipe says about its data.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lib/base/error.h"

namespace lumen::data {

// Names of the enumerators as recipes spell them, in the order of the enumeration.
enum class Format { kMnist, kCifar10, kDigits, kImages, kCsv, kText, kLines, kJsonl, kFaq, kBin };
inline constexpr std::array<std::string_view, 10> kFormatNames = {
    "mnist", "cifar10", "digits", "images", "csv", "text", "lines", "jsonl", "faq", "bin"};

// An option that does not go with the data or is out of range; kUsage. `option` is the name that
// DataOptions and recipes have for it.
class DataOptionError : public Error {
 public:
  DataOptionError(std::string option, std::string message)
      : Error(ErrorKind::kUsage, std::move(message)), option_(std::move(option)) {}

  const std::string& option() const { return option_; }

 private:
  std::string option_;
};

enum class Split { kTrain, kEval };

// What becomes of a document that has more tokens than a row.
enum class OnTooLong {
  kError,
  kTruncate,  // its beginning is used
  kSkip,      // left out and counted
  kSplit,     // goes on in further rows, each with positions from 0
};
inline constexpr std::array<std::string_view, 4> kOnTooLongNames = {"error", "truncate", "skip",
                                                                    "split"};

enum class OnBadRow {
  kStop,  // Error(kMalformed) "FILE: line L, column C: found …, expected …"
  kSkip,  // left out and counted
};
inline constexpr std::array<std::string_view, 2> kOnBadRowNames = {"stop", "skip"};

// What becomes of the samples at the end of an epoch that do not fill a batch.
enum class LastBatch {
  kAuto,  // training: kDrop, evaluation: kPad; kKeep if there are fewer samples than a step takes
  kDrop,  // not used in this epoch (another epoch drops others)
  kPad,   // filled up with samples whose targets do not count, so that all batches have one shape
  kKeep,  // a smaller batch
};
inline constexpr std::array<std::string_view, 4> kLastBatchNames = {"auto", "drop", "pad", "keep"};

// What the label column of a table is.
enum class LabelKind {
  kAuto,     // kNumber if the column holds a number that is no integer, else kClasses
  kClasses,  // "y" i32: index of the text among the sorted texts of the column
  kNumber,   // "y" f32
};
inline constexpr std::array<std::string_view, 3> kLabelKindNames = {"auto", "classes", "number"};

enum class TextColumns { kOneHot, kDrop };
inline constexpr std::array<std::string_view, 2> kTextColumnsNames = {"onehot", "drop"};

// Everything that decides which batches come out, declared once. Defaults are what small recipes
// want.
struct DataOptions {
  Format format = Format::kText;

  // Files, directories and patterns (* and ? in any part of a path; matches are sorted). What is
  // built in is named "builtin:…" (builtin.h).
  //   mnist    a directory with the four IDX files, or those files, each with or without .gz
  //   cifar10  a directory with *.bin, or such files (a part of one is enough)
  //   digits   nothing: they are drawn
  //   images   directories with one sub-directory of PNG and JPEG files per class, which may have
  //            sub-directories of its own
  //   csv      files with the same header row
  //   text     files, joined in order
  //   lines    files with one item per line
  //   jsonl    files with one object per line: {"messages": […]}, {"conversations": […]},
  //            {"instruction", "input", "output"}, {"prompt", "completion"} or {"text"}; any of
  //            them may end in .gz, as may text, lines and csv
  //   faq      blocks of lines: "Q: " and a question, in several ways, and "A: " and the answer;
  //            each is a conversation. "H: " lines, more ways to ask, are the evaluation split
  //   bin      tokens as uint16 (nanoGPT), or with the header of llm.c
  std::vector<std::string> paths;
  // Evaluation data; all of `paths` is then for training.
  std::vector<std::string> eval_paths;
  // Share of the samples (text and bin: the last share of the tokens) that is kept for evaluation
  // and never trained on. Unset: what the data come with (mnist's t10k files, cifar10's
  // test_batch.bin, digits of their own), else 0.1. 0: no evaluation split.
  std::optional<double> eval_fraction;
  // Of either split, drawn with `seed`; of long texts and bin the first. 0: all.
  int64_t max_samples = 0;

  int64_t batch = 32;  // samples or rows per batch
  // Batches that one step adds up: where the last ones are dropped, they are those of a whole step.
  int64_t batches_per_step = 1;
  bool shuffle = true;  // the training split; evaluation is always in order
  uint64_t seed = 42;
  LastBatch last_batch = LastBatch::kAuto;
  bool prefetch = true;  // batches are made by a thread of their own

  // Language.
  int64_t seq = 256;  // most tokens per row; rows of one document are as long as the longest
  bool pack = false;  // several documents per row; else one, padded (lines, jsonl, documents)
  std::optional<bool> add_bos;  // start tokens before documents; unset: as the tokenizer says, of
                                // long texts none
  std::optional<bool> add_eos;  // end tokens behind documents; unset: of all but chats
  std::string separator;        // text: where a document ends ("<|endoftext|>"); "": one long text
  OnTooLong on_too_long = OnTooLong::kError;
  std::vector<std::string> learn_roles = {"assistant"};  // whose tokens count, the end of turn too
  bool learn_all = false;  // prompts count too, and in chats all that the template adds

  OnBadRow on_bad_row = OnBadRow::kStop;

  // Images.
  int64_t image_size = 0;        // height and width; 0: the format's own (digits 28, images 32)
  int64_t channels = 0;          // 1 or 3; 0: the format's own (digits 1, images 3)
  bool augment = false;          // training: crop after padding by `crop_padding`, `flip`;
                                 // faq: also spellings of add_variants
  int64_t crop_padding = 4;      // with black
  bool flip = true;              // left and right exchanged for half of the images
  int64_t digits_train = 10000;  // digits: samples of either split
  int64_t digits_eval = 2000;
  uint64_t digits_seed = 0;  // another seed, other drawings
  // x = (pixel / 255 − mean) / std per channel. Empty: measured on the training split.
  std::vector<double> mean, std;

  // Tables.
  bool header = true;  // the first row names the columns; else their names are "1", "2", …
  std::string label;   // column; "": the last one
  LabelKind label_kind = LabelKind::kAuto;
  bool integers_are_classes = true;  // in a label whose kind is kAuto
  TextColumns text_columns = TextColumns::kOneHot;
  std::vector<std::string> drop_columns;
  bool standardize = true;  // numbers to mean 0 and variance 1 of the training split
};

}  // namespace lumen::data
