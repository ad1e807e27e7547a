// What every direction of lumen-convert shares: the model that is read and its tensors. For
// lumen-convert's files only.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lib/base/pool.h"
#include "lib/io/importance_matrix.h"
#include "lib/io/model_files.h"
#include "lib/nn/latent_rows.h"
#include "lib/nn/parameters.h"
#include "lib/runtime/adapters/stored_layout.h"
#include "lib/runtime/conversion/gguf_file_type.h"
#include "lib/runtime/convert.h"
#include "lib/text/gguf_files.h"

namespace lumen::runtime {

// What is written: a model, and what an adapter makes of its weights.
struct Source {
  io::ModelFiles files;
  std::optional<nn::Parameters> parameters;  // with the additions; none without an adapter
  std::optional<io::ImportanceMatrix> importance = {};
};

// The model `files`, with the importance matrix and the adapter that `options` name: tensors that
// it has instead of the model's, and the templates that it was trained with, as in load_session.
// Throws Error as read_importance_matrix, read_adapter and checked_parameters.
Source open_source(io::ModelFiles files, const ConvertOptions& options);

struct LoraAdapter;

// The parameters of the model in `files`, with the additions of `adapter` unless that is null.
// Throws unless the files hold a whole model of an architecture that we have: what is wrong could
// not be seen in the result.
nn::Parameters checked_parameters(const io::ModelFiles& files, const LoraAdapter* adapter);

// The order into which q's and k's rows are brought (nn::reorder_rotary_rows).
enum class RowOrder { kAsTheyAre, kInterleaved, kHalves };

// A tensor of the source and its place in the output.
struct SourceTensor {
  std::string name;    // in Source::files
  std::string target;  // in the output
  Array array;
  RowOrder order = RowOrder::kAsTheyAre;
  std::optional<bool> to_tiled = {};  // heads are reordered (nn::reorder_heads)
  RateForm rate = RateForm::kAsItIs;
  bool is_turned = false;              // the other way round than in the source (nn/conv1d.h)
  std::optional<int> input_part = {};  // of `array` only these rows (nn::input_part)
  int64_t input_rows = 0;              // how many those are
  bool has_fused_inputs = false;       // the two `parts` become one tensor (nn::fused_inputs)
  bool has_latent_rows = false;        // the two `parts` become one tensor (nn::joined_rows)
  std::optional<nn::LatentRows> latent_rows = {};  // of `array` only these
  double shift = 0;                                // added to every number (norm_shift)
  std::vector<double> multipliers = {};            // of its rows (nn::row_multipliers)
  bool has_addition = false;                       // of an adapter
  int64_t rows = 0;                // not 0: so many, those beyond `array` being its first
  std::optional<DType> kept = {};  // the type that it is to have, whatever --type says of others
  // Of a tensor of all experts, or another stack (io::number_in_stack): the matrices of each, of
  // which `array` is the first; of so many that follow each other the rows are of one matrix.
  std::vector<Array> parts = {};
  int64_t stacked = 1;
  // Not 0: such a tensor has every matrix turned, so many of them with their columns in turn or, as
  // `halves`, those of one behind those of the other, as io/fused_experts.h says.
  int64_t in_turn = 0;
  bool halves = false;
  bool is_bias = false;  // of such: the parts are not matrices, but a row for each expert
  bool alone = false;    // the matrix is no expert's: the whole has no axis of them

  Shape shape() const;     // of the whole
  uint64_t bytes() const;  // in the source
};

// The type that a tensor has in any output: vectors, which are small and sensitive, are float32,
// also that which ERNIE has as a row, and norms with a row for each head, and integers stay what
// they are. None for matrices, which have the type that was asked for.
std::optional<DType> fixed_type(const SourceTensor& tensor);

// The values of `tensor` as `dtype`. Throws Error(kMalformed) naming the tensor if it has numbers
// that are not finite, or are not in `dtype`.
Array tensor_values(const Source& source, const SourceTensor& tensor, DType dtype,
                    ThreadPool& pool);

// The tensors of a model under their names in a Hugging Face directory, as it has them; those of a
// tied output are left out.
std::vector<SourceTensor> directory_tensors(const Source& source);

// What becomes of the tensors of a source, one after the other. Shows on a terminal how much is
// done.
class TensorConversion {
 public:
  // `tensors` and `source` must outlive it.
  TensorConversion(const Source& source, const std::vector<SourceTensor>& tensors,
                   const ConvertOptions& options);
  ~TensorConversion();
  TensorConversion(const TensorConversion&) = delete;
  TensorConversion& operator=(const TensorConversion&) = delete;

  // tensor_values, for a writer.
  std::function<Array()> maker(const SourceTensor& tensor, DType dtype);

  // Runs `write`, which calls the makers. Returns the exit code of the tool: 128 + N if signal N
  // ended it.
  int run(const std::function<void()>& write);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Prints what would be written: "out.gguf: 1.5 GiB, 12 tensors: 5 in f16, 7 in f32, 2 files", or
// with --json that as an object.
void tell_dry_run(const ConvertOptions& options, uint64_t bytes, const std::vector<DType>& types,
                  size_t files = 1);

// Whether a GGUF file is to be written, not a directory.
bool writes_gguf(const ConvertOptions& options);

// What --type says; f16 if it is not given.
const GgufFileType& requested_type(const ConvertOptions& options);

// The bytes that --shard-size names; none if it is not given. Throws Error(kUsage).
std::optional<uint64_t> shard_bytes(const ConvertOptions& options);

// Throws Error(kCannotCreate) if `path` is the directory, the file or a part of the model `files`
// (null: not known yet), under whatever name, or a file that is there and may not be replaced.
void refuse_output(const std::string& path, const io::ModelFiles* files,
                   const ConvertOptions& options);

// Converts into the GGUF file or the Hugging Face directory options.output, or tells what that
// would be. Returns the exit code. Throws Error.
int write_gguf(const Source& source, const ConvertOptions& options);
int write_directory(const Source& source, const ConvertOptions& options);

// Adds chat templates to the files of a directory: the only one as a file, several as transformers'
// list in tokenizer_config.json.
void set_templates(const io::ChatTemplates& templates, std::vector<text::TokenizerFile>& files);

// Whether `path` is a LoRA adapter, a directory or the GGUF file `gguf` (null: it is none), and no
// model.
bool is_adapter(const std::string& path, const io::GgufFile* gguf);
// Converts the adapter `path` as write_gguf and write_directory do models.
int convert_adapter(const std::string& path, const ConvertOptions& options);

}  // namespace lumen::runtime
