#include "lib/runtime/conversion/conversion.h"

#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <map>
#include <system_error>

#include "lib/base/error.h"
#include "lib/base/limits.h"
#include "lib/base/strings.h"
#include "lib/io/mapped_file.h"
#include "lib/io/write_gguf.h"
#include "lib/kernels/convert.h"
#include "lib/kernels/quantize_blocks.h"
#include "lib/nn/conv1d.h"
#include "lib/nn/fused_layers.h"
#include "lib/nn/head_order.h"
#include "lib/nn/latent_attention.h"
#include "lib/nn/multipliers.h"
#include "lib/nn/rope.h"
#include "lib/runtime/adapters/apply_adapter.h"
#include "lib/runtime/adapters/stored_layout.h"
#include "lib/runtime/generation/weights.h"
#include "lib/runtime/tool/output.h"
#include "lib/runtime/tool/signals.h"
#include "models/model.h"

namespace lumen::runtime {
namespace {

// What the columns of matrices that are rounded to blocks of `dtype` count, of all the same or of
// each its own; empty: all columns the same.
std::span<const float> column_weights(const Source& source, const SourceTensor& tensor,
                                      DType dtype) {
  if (!source.importance || !kernels::can_quantize(dtype)) return {};
  const auto found = source.importance->columns.find(tensor.target);
  if (found == source.importance->columns.end()) return {};
  return found->second;
}

// The values of a tensor as `dtype`, `weights` as of column_weights.
Array stored(const Source& source, const SourceTensor& tensor, int64_t head_dim, DType dtype,
             std::span<const float> weights, ThreadPool& pool) {
  const std::string place = io::place_of(source.files.path);
  const auto check = [&](const Array& array, auto... problem) {
    if (!kernels::has_nonfinite(array.dtype(), array.data(), array.elements())) return;
    fail(ErrorKind::kMalformed, place, ": tensor ", quoted(tensor.name), problem...);
  };
  check(tensor.array, " has a NaN or infinite value; the file is damaged");
  const auto ordered = [&](const Array& array) {
    if (tensor.is_turned) return nn::turned(array);
    if (tensor.latent_rows) return tensor.latent_rows->of(array);
    if (tensor.input_part) return nn::input_part(array, source.files.config, *tensor.input_part);
    if (tensor.to_tiled) {
      return nn::reorder_heads(array, tensor.name, source.files.config, *tensor.to_tiled);
    }
    if (tensor.order == RowOrder::kAsTheyAre) return array;
    return nn::reorder_rotary_rows(array, head_dim, tensor.order == RowOrder::kInterleaved);
  };
  const bool changes = tensor.has_addition || tensor.shift != 0 ||
                       tensor.rate != RateForm::kAsItIs || !tensor.multipliers.empty();
  if (!changes && dtype == tensor.array.dtype()) {
    Array same = ordered(tensor.array);
    if (same.dtype() == dtype) return same;
  }
  Array values = ordered(tensor.has_addition ? source.parameters->merged(tensor.name)
                                             : nn::float32_copy(tensor.array));
  if (tensor.shift != 0) values = shifted(values, tensor.shift);
  values = nn::with_multipliers(with_rate_form(values, tensor.rate), tensor.multipliers);
  if (dtype == DType::kF32) return values;
  Array result = Array::zeros(dtype, values.shape());
  if (!weights.empty()) {
    const int64_t columns = values.shape()[-1], bytes = row_bytes(dtype, columns);
    const int64_t rows = values.shape()[-2], sets = static_cast<int64_t>(weights.size()) / columns;
    pool.parallel_pieces(values.elements() / columns, 1, 1, [&](int64_t row, int64_t end, int) {
      for (; row < end; ++row) {
        const float* own = weights.data() + (sets > 1 ? row / rows * columns : 0);
        kernels::quantize_blocks(dtype, values.as<float>().data() + row * columns,
                                 result.mutable_data() + row * bytes, columns, own);
      }
    });
  } else {
    kernels::from_float(pool, dtype, values.as<float>().data(), result.mutable_data(),
                        values.elements());
  }
  check(result, " has numbers too large for ", name(dtype), ": use --type bf16 or f32");
  return result;
}

// The same with rows that are missing, each the first.
Array stored_with_rows(const Source& source, const SourceTensor& tensor, int64_t head_dim,
                       DType dtype, ThreadPool& pool) {
  const Array given = stored(source, tensor, head_dim, dtype, {}, pool);
  Array whole = Array::zeros(dtype, tensor.shape());
  const auto row = static_cast<size_t>(row_bytes(dtype, given.shape()[1]));
  std::memcpy(whole.mutable_data(), given.data(), given.bytes());
  for (size_t at = given.bytes(); at < whole.bytes(); at += row) {
    std::memcpy(whole.mutable_data() + at, given.data(), row);
  }
  return whole;
}

// The same of all its parts, one behind the other.
Array stored_whole(const Source& source, const SourceTensor& tensor, int64_t head_dim, DType dtype,
                   ThreadPool& pool) {
  if (tensor.rows > 0) return stored_with_rows(source, tensor, head_dim, dtype, pool);
  const std::span<const float> weights = column_weights(source, tensor, dtype);
  if (tensor.parts.empty()) return stored(source, tensor, head_dim, dtype, weights, pool);
  Array whole = Array::zeros(dtype, tensor.shape());
  std::byte* to = whole.mutable_data();
  const auto columns = static_cast<size_t>(tensor.array.shape()[-1]);
  const bool own = weights.size() > columns;  // of each part
  for (size_t i = 0; i < tensor.parts.size(); ++i) {
    const int64_t number = static_cast<int64_t>(i) / tensor.stacked;
    const SourceTensor part{tensor.alone ? tensor.name : io::name_in_stack(tensor.name, number),
                            tensor.target, tensor.parts[i]};
    const Array array = stored(source, part, head_dim, dtype,
                               own ? weights.subspan(i * columns, columns) : weights, pool);
    std::memcpy(to, array.data(), array.bytes());
    to += array.bytes();
  }
  return whole;
}

// The same of parts that are turned: of so many in turn, [rows, columns] each, the row r of the
// part p becomes the column r · in_turn + p or, of halves, p · rows + r. Rows of biases are one.
Array stored_in_turn(const Source& source, const SourceTensor& tensor, int64_t head_dim,
                     DType dtype, ThreadPool& pool) {
  Array whole = Array::zeros(dtype, tensor.shape());
  const int64_t columns = tensor.is_bias ? 1 : tensor.array.shape()[1];
  const int64_t rows = tensor.array.elements() / columns, count = std::ssize(tensor.parts);
  const auto size = static_cast<size_t>(info(dtype).block_bytes);
  std::byte* const to = whole.mutable_data();
  for (int64_t i = 0; i < count; ++i) {
    const SourceTensor part{tensor.name, tensor.target, tensor.parts[static_cast<size_t>(i)]};
    const Array array = stored(source, part, head_dim, dtype, {}, pool);
    const int64_t first = i / tensor.in_turn * columns, turn = i % tensor.in_turn;
    pool.parallel_for(columns, 16, [&](int64_t c, int64_t end, int) {
      for (; c < end; ++c) {
        for (int64_t r = 0; r < rows; ++r) {
          const int64_t column = tensor.halves ? turn * rows + r : r * tensor.in_turn + turn;
          const int64_t at = (first + c) * rows * tensor.in_turn + column;
          std::memcpy(to + at * static_cast<int64_t>(size),
                      array.data() + (r * columns + c) * static_cast<int64_t>(size), size);
        }
      }
    });
  }
  return whole;
}

// The same of the two parts of a layer (nn/fused_layers.h) as one tensor.
Array stored_inputs(const Source& source, const SourceTensor& tensor, int64_t head_dim, DType dtype,
                    ThreadPool& pool) {
  Array parts[2];
  for (const int part : {0, 1}) {
    SourceTensor own{nn::input_part_name(tensor.target, part), tensor.target,
                     tensor.parts[static_cast<size_t>(part)]};
    own.has_addition = source.parameters && source.parameters->has_addition(own.name);
    parts[part] = stored(source, own, head_dim, dtype, {}, pool);
  }
  return nn::fused_inputs(parts[0], parts[1], source.files.config);
}

// The same of k_b_proj and v_b_proj as one tensor.
Array stored_latents(const Source& source, const SourceTensor& tensor, int64_t head_dim,
                     DType dtype, ThreadPool& pool) {
  const SourceTensor whole{tensor.name, tensor.target,
                           nn::joined_rows(tensor.parts[0], tensor.parts[1])};
  return stored(source, whole, head_dim, dtype, {}, pool);
}

// Thrown where the user wants no more.
struct Stopped {};

}  // namespace

// Shows on a terminal how much is written; throws Stopped after a signal.
class WriteProgress {
 public:
  explicit WriteProgress(uint64_t bytes) : bytes_(bytes) {}
  ~WriteProgress() {
    if (shown_) tell("\r\033[K");
  }
  WriteProgress(const WriteProgress&) = delete;
  WriteProgress& operator=(const WriteProgress&) = delete;

  // `bytes` more are done.
  void advance(uint64_t bytes) {
    done_ += bytes;
    if (!is_terminal(STDERR_FILENO)) return;
    shown_ = true;
    tell(str("\rwritten: ", 100 * done_ / std::max<uint64_t>(bytes_, 1), " %\033[K"));
  }

 private:
  // A terminal that is gone ends nothing.
  static void tell(std::string_view text) {
    try {
      write_stderr(text);
    } catch (const Error&) {
    }
  }

  uint64_t bytes_, done_ = 0;
  bool shown_ = false;
};

nn::Parameters checked_parameters(const io::ModelFiles& files, const LoraAdapter* adapter) {
  return with_context(files.path, [&] {
    nn::Parameters parameters = nn::Parameters::from_checkpoint(files.tensors);
    if (adapter) {
      parameters = parameters.with_lora(adapter->options, adapter->tensors, adapter->place);
    }
    const auto model = models::find_model_def(files.config).make(files.config, parameters);
    models::check_tensors(parameters);
    return parameters;
  });
}

namespace {

// Throws if the adapter adds to a matrix whose rows a file has apart, where they would stay as they
// are.
void require_joined_rows(const io::ModelFiles& files, const LoraAdapter& adapter,
                         const std::string& place) {
  const bool apart = std::ranges::any_of(files.tensors, [](const auto& tensor) {
    return !nn::joined_rows_name(tensor.first).empty();
  });
  const bool adds = std::ranges::any_of(adapter.tensors, [](const auto& tensor) {
    return tensor.first.find(".kv_b_proj.") != std::string::npos;
  });
  if (!apart || !adds) return;
  fail(ErrorKind::kUnsupported, "adapter ", place, ": adds to kv_b_proj, of which ",
       quoted(files.path), " has the rows of keys and of values apart: make a directory of it, ",
       "lumen-convert MODEL.gguf DIRECTORY, and convert that with --lora");
}

}  // namespace

Source open_source(io::ModelFiles files, const ConvertOptions& options) {
  std::optional<io::ImportanceMatrix> importance;
  if (options.imatrix) importance = io::read_importance_matrix(*options.imatrix);
  if (!options.lora) return {std::move(files), std::nullopt, std::move(importance)};
  LoraAdapter adapter = read_adapter(*options.lora, files.config);
  ThreadPool pool(1);
  require_joined_rows(files, adapter, *options.lora);
  with_context(*options.lora, [&] {
    require_finite(adapter.tensors, pool);
    apply_adapter(adapter, files.config, files.tensors);
  });
  auto templates = io::read_chat_templates(*options.lora);
  if (!templates.empty()) files.chat_templates = std::move(templates);
  nn::Parameters parameters = checked_parameters(files, &adapter);
  return {std::move(files), std::move(parameters), std::move(importance)};
}

Shape SourceTensor::shape() const {
  if (input_part) return {input_rows, array.shape()[1]};
  if (is_turned) return {array.shape()[1], array.shape()[0]};
  if (latent_rows) return latent_rows->shape(array.shape());
  if (rows > 0) return {rows, array.shape()[1]};
  if (parts.empty()) return array.shape();
  if (has_fused_inputs) {
    return {parts[0].shape()[0] + parts[1].shape()[0], array.shape()[1]};
  }
  if (has_latent_rows) {
    const Shape &keys = parts[0].shape(), &values = parts[1].shape();
    return {keys[0] * (keys[2] + values[1]), keys[1]};
  }
  if (in_turn > 0) {
    const Shape& each = array.shape();
    if (is_bias) return {each[0], in_turn * each[1]};
    return {std::ssize(parts) / in_turn, each[1], in_turn * each[0]};
  }
  Shape whole;
  if (!alone) whole.push_back(std::ssize(parts) / stacked);
  whole.push_back(stacked * array.shape()[0]);
  for (int axis = 1; axis < array.shape().rank(); ++axis) whole.push_back(array.shape()[axis]);
  return whole;
}

uint64_t SourceTensor::bytes() const {
  uint64_t sum = parts.empty() ? array.bytes() : 0;
  for (const Array& part : parts) sum += part.bytes();
  return sum;
}

std::optional<DType> fixed_type(const SourceTensor& tensor) {
  const Array& array = tensor.array;
  if (!is_float(array.dtype()) && !is_quantized(array.dtype())) return array.dtype();
  // Some norms have a row for each head.
  const bool is_row =
      tensor.name.ends_with(".e_score_correction_bias") || tensor.name.ends_with("norm.weight");
  if (array.shape().rank() < 2 || is_row) return DType::kF32;
  return std::nullopt;
}

bool writes_gguf(const ConvertOptions& options) {
  return options.output->ends_with(".gguf");
}

const GgufFileType& requested_type(const ConvertOptions& options) {
  return gguf_file_type(options.type.empty() ? "f16" : options.type);
}

std::optional<uint64_t> shard_bytes(const ConvertOptions& options) {
  if (!options.shard_size) return std::nullopt;
  constexpr std::pair<std::string_view, double> kUnits[] = {
      {"KB", 1e3},     {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12}, {"KiB", 0x1p10}, {"MiB", 0x1p20},
      {"GiB", 0x1p30}, {"K", 1e3},  {"M", 1e6},  {"G", 1e9},   {"T", 1e12}};
  for (const auto& [unit, bytes] : kUnits) {
    if (!options.shard_size->ends_with(unit)) continue;
    const std::string_view digits =
        std::string_view(*options.shard_size).substr(0, options.shard_size->size() - unit.size());
    double number = 0;
    if (parse_number(digits, number) && number * bytes >= 1 && number * bytes < 1e18) {
      return static_cast<uint64_t>(number * bytes);
    }
  }
  fail(ErrorKind::kUsage, "--shard-size ", quoted(*options.shard_size),
       ": expected a size such as 5GB, 500MB or 2GiB");
}

void refuse_output(const std::string& path, const io::ModelFiles* files,
                   const ConvertOptions& options) {
  std::vector<std::string> inputs;
  if (files) inputs = files->gguf ? files->gguf->part_paths : std::vector{files->path};
  for (const std::string& input : inputs) {
    std::error_code ignored;  // of what is not there
    if (!std::filesystem::equivalent(input, path, ignored)) continue;
    fail(ErrorKind::kCannotCreate, "output ", quoted(path),
         " is the model itself, which would be lost: name another ",
         io::is_directory(path) ? "directory" : "file");
  }
  const std::string above = std::filesystem::path(path).parent_path();
  if (!above.empty() && writes_gguf(options) && !io::is_directory(above)) {
    fail(ErrorKind::kCannotCreate, "output ", quoted(path), ": there is no directory ",
         quoted(above), "; make it first");
  }
  if (!io::is_regular_file(path) || options.force) return;
  fail(ErrorKind::kCannotCreate, quoted(path), " exists; --force replaces it");
}

Array tensor_values(const Source& source, const SourceTensor& tensor, DType dtype,
                    ThreadPool& pool) {
  const auto store = tensor.in_turn > 0        ? stored_in_turn
                     : tensor.has_fused_inputs ? stored_inputs
                     : tensor.has_latent_rows  ? stored_latents
                                               : stored_whole;
  const int64_t head_dim = io::get_int(source.files.config, "head_dim", 1, limits::kDim);
  return store(source, tensor, head_dim, dtype, pool);
}

struct TensorConversion::State {
  State(const Source& from, uint64_t bytes, const ConvertOptions& options)
      : source(from),
        pool(static_cast<int>(options.threads.value_or(default_thread_count()))),
        progress(bytes) {}

  const Source& source;
  ThreadPool pool;
  SignalWatch signals;
  WriteProgress progress;
};

TensorConversion::TensorConversion(const Source& source, const std::vector<SourceTensor>& tensors,
                                   const ConvertOptions& options) {
  uint64_t bytes = 0;
  for (const SourceTensor& tensor : tensors) bytes += tensor.bytes();
  state_ = std::make_unique<State>(source, bytes, options);
}

TensorConversion::~TensorConversion() = default;

std::function<Array()> TensorConversion::maker(const SourceTensor& tensor, DType dtype) {
  return [this, &tensor, dtype] {
    if (*state_->signals.stop_flag()) throw Stopped();
    Array array = tensor_values(state_->source, tensor, dtype, state_->pool);
    state_->progress.advance(tensor.bytes());
    return array;
  };
}

int TensorConversion::run(const std::function<void()>& write) {
  try {
    write();
  } catch (const Stopped&) {
    const int signal = state_->signals.termination();
    return 128 + (signal != 0 ? signal : SIGINT);
  }
  return 0;
}

void tell_dry_run(const ConvertOptions& options, uint64_t bytes, const std::vector<DType>& types,
                  size_t files) {
  std::map<std::string_view, int64_t> counts;
  for (const DType type : types) ++counts[name(type)];
  if (options.json) {
    const io::Json plan = {{"schema", 1},    {"output", *options.output}, {"bytes", bytes},
                           {"files", files}, {"tensors", types.size()},   {"types", counts}};
    write_stdout(plan.dump() + "\n");
    return;
  }
  std::string out =
      str(io::place_of(*options.output), ": ", human_bytes(bytes), ", ", types.size(), " tensors:");
  const char* separator = " ";
  for (const auto& [type, count] : counts) {
    out += str(separator, count, " in ", type);
    separator = ", ";
  }
  write_stdout(out + (files > 1 ? str(", ", files, " files\n") : "\n"));
}

}  // namespace lumen::runtime
