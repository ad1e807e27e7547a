// From options to streams of batches: the door of this room.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lib/base/pool.h"
#include "lib/data/batch.h"
#include "lib/data/data_options.h"
#include "lib/text/chat_template.h"
#include "lib/text/tokenizer.h"

namespace lumen::data {

// One file that was read, or what is built in.
struct SourceFile {
  std::string path;
  uint64_t bytes = 0;
  std::string sha256;   // lower-case hexadecimal, of the file as it lies on disk
  int64_t samples = 0;  // images, rows or documents that were taken from it
  int64_t skipped = 0;  // bad ones, which the options allow to skip
  // Documents with more tokens than a row: left out, or used in part.
  int64_t too_long = 0, cut = 0;
};

// What was found, for messages, model shapes and the run directory.
struct DatasetInfo {
  std::string description;  // one line: "MNIST, 60000 + 10000 images of 1×28×28, 10 classes"
  std::vector<SourceFile> files;

  int64_t train_samples = 0, eval_samples = 0;  // images, table rows, or rows of `seq` tokens
  int64_t documents = 0;                        // lines, jsonl, separated text
  double train_tokens = 0, eval_tokens = 0;     // targets that count, per epoch
  int64_t skipped = 0;                          // bad rows
  int64_t too_long = 0, cut = 0;                // the same of all files
  std::vector<std::string> skipped_examples;    // messages of the first few bad rows

  Shape feature_shape;  // of one sample of "x": [channels, height, width] or [features]
  std::vector<std::string> classes;        // names, where "y" is a class
  std::vector<std::string> feature_names;  // of a table's features after one-hot
  bool has_header = true;                  // the first row of a table names its columns
  std::vector<double> mean,
      std;                  // per channel, or per feature of a table: x = (value − mean) / std
  bool open_chats = false;  // there are conversations, and none ends with TextTools::answer_ends
  std::string dropped;      // characters that the vocabulary has no token for: "'x' and 'y'", or ""
  int64_t vocab_size = 0;   // of the tokenizer; bin: one more than the largest token
  // Of all tokens of text and which of them are learned, lower-case hexadecimal: what tokenizer and
  // chat template made of the files. "" for other data.
  std::string tokens_sha256;
};

// Samples that can be put into batches in any order. Immutable: safe from several threads.
class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual int64_t samples() const = 0;

  // Makes `batch` out of the samples named, of which the first `real` count; the others only fill
  // it. `epoch` and `seed` drive what is random (augmentation, where windows begin). Arrays of
  // `batch` with the right shape are written in place. `pool`, if not null, may share the work: the
  // batch is the same.
  struct Request {
    const int64_t* indices;
    int64_t count;
    int64_t real;
    uint64_t seed;
    uint64_t epoch;
    ThreadPool* pool = nullptr;
  };
  virtual void collate(const Request& request, Batch& batch) const = 0;
};

// Both splits, read once.
struct Data {
  std::shared_ptr<const Dataset> train;
  std::shared_ptr<const Dataset> eval;  // null if there is no evaluation split
  DatasetInfo info;
};

// What turns text into tokens. Needed by text, lines and jsonl; the pointers must outlive only the
// call. Without `tokenizer`, text and lines fail: make a character tokenizer with
// text/train/train_tokenizer.h. `chat_template` renders {"messages"}. `end_token` ends documents
// where the tokenizer names no eos_token: a model's config may. `answer_ends` are the tokens at
// which the model will stop.
struct TextTools {
  const text::Tokenizer* tokenizer = nullptr;
  const text::ChatTemplate* chat_template = nullptr;
  std::optional<int32_t> end_token = {};
  std::vector<int32_t> answer_ends = {};
  int64_t vocab_size = 0;  // bin without a tokenizer: the model's; 0: as the files need
};

// Reads what `options` name. Throws Error: kMissing (no such file, with what to do), kMalformed
// (FILE: line and column), kUsage (options that make no sense together), kUnsupported.
Data open_data(const DataOptions& options, const TextTools& tools = {});

// The words in the data that `options` name, for training a tokenizer: whole files of text and
// lines, the strings of jsonl and faq. Throws as open_data.
std::vector<std::string> read_texts(const DataOptions& options);

// A stream over one split of `data`, shuffled, batched and prefetched as `options` say. Without a
// thread to prefetch, `pool` makes the batches, or null the caller alone; next() is then called
// where a pool may be. Throws Error(kUsage) if the split has no samples.
std::unique_ptr<BatchStream> make_stream(const Data& data, Split split, const DataOptions& options,
                                         ThreadPool* pool = nullptr);

// Both of these, for one split; `info` receives what was found unless it is null.
std::unique_ptr<BatchStream> open_stream(const DataOptions& options, Split split,
                                         const TextTools& tools = {}, DatasetInfo* info = nullptr);

}  // namespace lumen::data
