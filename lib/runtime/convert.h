// Model files from one format into another: lumen-convert.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lib/runtime/tool/command_line.h"

namespace lumen::runtime {

// What lumen-convert can do; every option says which of it it matters to.
enum ConvertTask : unsigned {
  kConvert = 1,
  kConvertAdapter = 2,
  kInspect = 4,
  kVerify = 8,
  kList = 16,
  kDiff = 32
};

// The mean divergence of verify() that is taken for agreement: types of four bits have about half.
inline constexpr double kMaxDivergence = 0.1;

struct ConvertOptions {
  std::optional<std::string> model, output;
  // One of gguf_file_types; "": f16, or in GGUF what each tensor has, if it is from GGUF or another
  // program packed it.
  std::string type;
  std::optional<std::string> shard_size;  // of each file: "5GB"
  std::optional<std::string> lora;        // an adapter to work into the weights
  std::optional<std::string> base;        // the model of an adapter that is converted
  std::optional<std::string> imatrix;     // what the columns of matrices count when rounded
  std::vector<std::string> metadata;      // of a GGUF file: KEY=VALUE
  bool allow_requantize = false;
  bool force = false, dry_run = false;
  std::optional<int64_t> threads;

  std::optional<std::string> inspect;  // a model: path or org/name
  std::optional<std::string> tokenizer;
  bool hashes = false;
  bool list_archs = false;
  bool verify = false, diff = false;
  std::optional<double> max_kl;  // absent: kMaxDivergence
  bool json = false;

  GivenOptions given;
};

// Adds the options of lumen-convert to `line`; they write to `options`.
void declare(CommandLine& line, ConvertOptions& options);

// The verb of lumen-convert. Returns the exit code, 128 + N after signal N, which leaves no file;
// throws Error.
int convert(const ConvertOptions& options);

}  // namespace lumen::runtime
