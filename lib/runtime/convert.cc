#include "lib/runtime/convert.h"

#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <map>
#include <system_error>
#include <vector>

#include "lib/base/error.h"
#include "lib/base/limits.h"
#include "lib/base/pool.h"
#include "lib/base/strings.h"
#include "lib/io/hf_cache.h"
#include "lib/io/mapped_file.h"
#include "lib/io/model_files.h"
#include "lib/io/model_formats.h"
#include "lib/io/write_gguf.h"
#include "lib/kernels/convert.h"
#include "lib/nn/parameters.h"
#include "lib/nn/rope.h"
#include "lib/runtime/gguf_file_type.h"
#include "lib/runtime/inspect.h"
#include "lib/runtime/lora.h"
#include "lib/runtime/output.h"
#include "lib/runtime/session.h"
#include "lib/runtime/signals.h"
#include "lib/runtime/weights.h"
#include "lib/text/gguf_keys.h"
#include "models/model.h"

namespace lumen::runtime {
namespace {

void set_tokenizer(const io::ModelFiles& files, io::GgufWriter& writer) {
  if (files.tokenizer_file.empty()) {
    fail(ErrorKind::kMissing, quoted(files.path), ": has no tokenizer to write into the GGUF file");
  }
  for (const std::string& note : text::set_gguf_tokenizer(files, writer)) {
    write_stderr(str("note: ", note, "\n"));
  }
}

// The parameters of the model in `files`, with the additions of `adapter` unless that is null.
// Throws unless the files hold a whole model of an architecture that we have: GGUF says less than
// config.json, so what is wrong could not be seen in the result.
nn::Parameters checked_parameters(const io::ModelFiles& files, const LoraAdapter* adapter) {
  return with_context(files.path, [&] {
    nn::Parameters parameters = nn::Parameters::from_checkpoint(files.tensors);
    if (adapter) parameters = parameters.with_lora(adapter->options, adapter->tensors);
    const auto model = models::find_model_def(files.config).make(files.config, parameters);
    models::check_tensors(parameters);
    return parameters;
  });
}

// A tensor of the source and its place in the file to be.
struct SourceTensor {
  std::string name;  // as the source calls it
  std::string gguf_name;
  Array array;
  bool rotate = false;        // bring its rows into GGUF's order of rotary pairs
  bool has_addition = false;  // of an adapter
};

// What is written: a model, and what an adapter makes of its weights.
struct Source {
  io::ModelFiles files;
  std::optional<nn::Parameters> parameters;  // with the additions; none without an adapter
};

// The model that `options` name, with tensors that the adapter has instead of the model's, and the
// templates that it was trained with, as in load_session.
Source open_source(io::ModelFiles files, const ConvertOptions& options) {
  if (!options.lora) return {std::move(files), std::nullopt};
  if (files.format != io::ModelFormat::kHuggingFace) {
    fail(ErrorKind::kUnsupported, quoted(files.path), " is ", name(files.format),
         "; --lora needs the model as a Hugging Face directory");
  }
  const LoraAdapter adapter = read_adapter(*options.lora, files.config);
  ThreadPool pool(1);
  with_context(*options.lora, [&] {
    check_complete(adapter, files.tensors);
    untie_head(adapter, files.config, files.tensors);
    replace_tensors(adapter.replaced, files.tensors);
    require_finite(adapter.tensors, pool);
  });
  auto templates = io::read_chat_templates(*options.lora);
  if (!templates.empty()) files.chat_templates = std::move(templates);
  nn::Parameters parameters = checked_parameters(files, &adapter);
  return {std::move(files), std::move(parameters)};
}

// Sets the metadata of a Hugging Face directory; returns its tensors.
std::vector<SourceTensor> from_directory(const Source& source, io::GgufWriter& writer) {
  const io::ModelFiles& files = source.files;
  io::gguf_architecture(files.config);  // what cannot be written is told before what is wrong
  if (!source.parameters) checked_parameters(files, nullptr);
  io::set_gguf_config(files.config, writer);
  const std::string path = files.path.substr(0, files.path.find_last_not_of('/') + 1);
  writer.set("general.name", path.substr(path.rfind('/') + 1));
  set_tokenizer(files, writer);
  const bool tied = io::get_bool(files.config, "tie_word_embeddings", false);
  const bool rotate = io::gguf_architecture(files.config) == "llama";
  std::vector<SourceTensor> tensors;
  for (const auto& [name, array] : files.tensors) {
    if (tied && name == "lm_head.weight") continue;
    const std::string gguf_name = io::gguf_tensor_name(name);
    if (gguf_name.empty()) {
      fail(ErrorKind::kUnsupported, quoted(files.path), ": tensor ", quoted(name),
           " has no name in GGUF");
    }
    tensors.push_back({name, gguf_name, array, rotate && nn::has_rotary_rows(name),
                       source.parameters && source.parameters->has_addition(name)});
  }
  const int64_t head_dim = io::get_int(files.config, "head_dim", 1, limits::kDim);
  const std::vector<float> divisors = nn::rope_divisors(files.config, head_dim);
  if (!divisors.empty()) {
    const Shape shape = {static_cast<int64_t>(divisors.size())};
    tensors.push_back(
        {"rope_freqs.weight", "rope_freqs.weight", Array::from<float>(divisors, shape)});
  }
  return tensors;
}

// The same of a GGUF file, whose metadata and tensors keep their names and order.
std::vector<SourceTensor> from_gguf(const io::ModelFiles& files, io::GgufWriter& writer) {
  checked_parameters(files, nullptr);
  const io::GgufMetadata& metadata = files.gguf->metadata;
  for (size_t i = 0; i < metadata.size(); ++i) {
    const std::string_view key = metadata[i].key();
    // What the writer decides, and what joins the parts of a split file.
    if (key == "general.file_type" || key == "general.quantization_version" ||
        key == "general.alignment" || key.starts_with("split.")) {
      continue;
    }
    writer.copy(metadata[i]);
  }
  std::vector<SourceTensor> tensors;
  for (const io::GgufTensor& tensor : files.gguf->tensors) {
    tensors.push_back({tensor.name, tensor.name, files.gguf->array(tensor)});
  }
  return tensors;
}

// What of a tensor is written as what: vectors, which are small and sensitive, in float32, matrices
// as the type of the file says; integers as they are.
class TensorTypes {
 public:
  TensorTypes(const io::ModelFiles& files, const std::vector<SourceTensor>& tensors,
              const ConvertOptions& options)
      : type_(gguf_file_type(options.type)) {
    kind_.layers = io::get_int(files.config, "num_hidden_layers", 1, limits::kLayers);
    kind_.heads_per_kv_head = io::get_int(files.config, "num_attention_heads", 1, limits::kHeads) /
                              io::get_int(files.config, "num_key_value_heads", 1, limits::kHeads);
    kind_.has_output = std::any_of(tensors.begin(), tensors.end(), [](const SourceTensor& tensor) {
      return tensor.gguf_name == "output.weight";
    });
    for (const SourceTensor& tensor : tensors) {
      count(tensor);
      const DType from = tensor.array.dtype();
      if (is_quantized(from) && of(tensor) != from && !options.allow_requantize) {
        fail(ErrorKind::kUsage, quoted(files.path), ": tensor ", quoted(tensor.name), " is ",
             name(from),
             " already, and rounding it again adds to its error: convert the original, ",
             "or say --allow-requantize");
      }
    }
  }

  DType of(const SourceTensor& tensor) const {
    const DType dtype = tensor.array.dtype();
    if (!is_float(dtype) && !is_quantized(dtype)) return dtype;
    if (tensor.array.shape().rank() < 2) return DType::kF32;
    return gguf_matrix_type(type_, kind_, tensor.gguf_name, tensor.array.shape());
  }

  // general.file_type, and for blocks the version of their formats.
  void set_keys(io::GgufWriter& writer) const {
    writer.set("general.file_type", type_.number);
    if (is_quantized(type_.matrices)) writer.set("general.quantization_version", uint32_t{2});
  }

  // Says how many matrices did not get the type they should have.
  void tell() const {
    const auto note = [&](int64_t count, int64_t block, std::string_view instead) {
      if (count == 0) return;
      write_stderr(str("note: the rows of ", count, " of ", matrices_,
                       " matrices do not fill blocks of ", block, ": they are written as ", instead,
                       "\n"));
    };
    note(in_blocks_of_32_, 256, "q5_0, q5_1 or q8_0");
    note(in_halves_, 32, "f16");
  }

 private:
  void count(const SourceTensor& tensor) {
    if (tensor.array.shape().rank() < 2) return;
    ++matrices_;
    const DType wanted = gguf_wanted_type(type_, kind_, tensor.gguf_name), got = of(tensor);
    if (got == wanted) return;
    ++(is_quantized(got) ? in_blocks_of_32_ : in_halves_);
  }

  const GgufFileType& type_;
  GgufModelKind kind_;
  int64_t matrices_ = 0, in_blocks_of_32_ = 0, in_halves_ = 0;
};

// The values of a tensor as `dtype`.
Array stored(const Source& source, const SourceTensor& tensor, int64_t head_dim, DType dtype,
             ThreadPool& pool) {
  const std::string place = io::place_of(source.files.path);
  const auto check = [&](const Array& array, auto... problem) {
    if (!kernels::has_nonfinite(array.dtype(), array.data(), array.elements())) return;
    fail(ErrorKind::kMalformed, place, ": tensor ", quoted(tensor.name), problem...);
  };
  check(tensor.array, " has a NaN or infinite value; the file is damaged");
  const bool is_as_it_was = !tensor.rotate && !tensor.has_addition;
  if (is_as_it_was && dtype == tensor.array.dtype()) return tensor.array;
  Array values =
      tensor.has_addition ? source.parameters->merged(tensor.name) : nn::float32_copy(tensor.array);
  if (tensor.rotate) values = nn::reorder_rotary_rows(values, head_dim, true);
  if (dtype == DType::kF32) return values;
  Array result = Array::zeros(dtype, values.shape());
  kernels::from_float(pool, dtype, values.as<float>().data(), result.mutable_data(),
                      values.elements());
  check(result, " has numbers too large for ", name(dtype), ": use --type bf16 or f32");
  return result;
}

// Thrown where the user wants no more.
struct Stopped {};

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

// What the file will be: its size, and how many tensors of which types.
std::string describe(const io::GgufWriter& writer, const std::vector<SourceTensor>& tensors,
                     const TensorTypes& types) {
  std::map<std::string_view, int64_t> counts;
  for (const SourceTensor& tensor : tensors) ++counts[name(types.of(tensor))];
  std::string out = str(human_bytes(writer.bytes()), ", ", tensors.size(), " tensors:");
  const char* separator = " ";
  for (const auto& [type, count] : counts) {
    out += str(separator, count, " in ", type);
    separator = ", ";
  }
  return out;
}

int write_gguf(const Source& source, const ConvertOptions& options) {
  const io::ModelFiles& files = source.files;
  if (files.format == io::ModelFormat::kLlama2c) {
    fail(ErrorKind::kUnsupported, quoted(files.path), " is ", name(files.format),
         "; only Hugging Face directories and GGUF files can be converted so far");
  }
  io::GgufWriter writer;
  const std::vector<SourceTensor> tensors = files.format == io::ModelFormat::kGguf
                                                ? from_gguf(files, writer)
                                                : from_directory(source, writer);
  const TensorTypes types(files, tensors, options);
  types.set_keys(writer);
  types.tell();
  const int64_t head_dim = io::get_int(files.config, "head_dim", 1, limits::kDim);
  ThreadPool pool(static_cast<int>(options.threads.value_or(default_thread_count())));
  SignalWatch signals;
  uint64_t bytes = 0;
  for (const SourceTensor& tensor : tensors) bytes += tensor.array.bytes();
  WriteProgress progress(bytes);
  for (const SourceTensor& tensor : tensors) {
    const DType dtype = types.of(tensor);
    writer.add(tensor.gguf_name, dtype, tensor.array.shape(), [&, dtype] {
      if (*signals.stop_flag()) throw Stopped();
      Array array = stored(source, tensor, head_dim, dtype, pool);
      progress.advance(tensor.array.bytes());
      return array;
    });
  }
  if (options.dry_run) {
    write_stdout(str(io::place_of(*options.output), ": ", describe(writer, tensors, types), "\n"));
    return 0;
  }
  try {
    writer.write(*options.output);
  } catch (const Stopped&) {
    return 128 + (signals.termination() != 0 ? signals.termination() : SIGINT);
  }
  return 0;
}

}  // namespace

void declare(CommandLine& line, ConvertOptions& options) {
  line.matters_to(kConvert, options.given);
  line.add_positional(path_field("model", "MODEL",
                                 "what to convert: GGUF file, Hugging Face directory or org/name",
                                 options.model));
  line.add_positional(path_field("output", "FILE.gguf", "the file to write", options.output));
  line.group("Convert");
  std::vector<std::string> types;
  for (const GgufFileType& type : gguf_file_types()) types.emplace_back(type.name);
  line.add(choice_field("type", "of matrices; vectors stay float32 (f16)", options.type, types));
  line.add(path_field("lora", "DIR", "work this LoRA adapter (PEFT) into the model's weights",
                      options.lora));
  line.add(switch_field("allow-requantize", "round again what has a quantised type already",
                        options.allow_requantize));
  line.add(switch_field("force", "replace the file if it is there", options.force));
  line.add(switch_field("dry-run", "only tell the size and types of the file that would be written",
                        options.dry_run));
  line.add(number_field("threads", "threads to compute with (physical cores)", options.threads, 1,
                        kMaxThreads),
           "t", "LUMEN_THREADS");
  line.group("Inspect");
  line.matters_to(kInspect, options.given);
  line.add(path_field("inspect", "MODEL",
                      "show config, metadata, tensors, tokenizer, end tokens, templates",
                      options.inspect));
  line.add(path_field("tokenizer", "FILE", "the tokenizer of a model that has none of its own",
                      options.tokenizer));
  line.add_json("print one JSON object", options.json);
  line.add_example("lumen-convert runs/lumen-tiny tiny.gguf --type q8_0", "write a GGUF file");
  line.add_example("lumen-convert model-f16.gguf model-q4_k_m.gguf --type q4_k_m",
                   "make a GGUF file smaller");
  line.add_example("lumen-convert base-model merged.gguf --lora runs/my-adapter",
                   "a model and an adapter in one file");
  line.add_example("lumen-convert --inspect model.gguf", "show what a file holds");
}

int convert(const ConvertOptions& options) {
  if (options.inspect) {
    options.given.require(kInspect, "with --inspect");
    const io::Json model =
        inspect_model(open_language_model(*options.inspect), options.tokenizer.value_or(""));
    write_stdout(options.json ? model.dump() + "\n" : inspection_text(model));
    return 0;
  }
  options.given.require(kConvert, "without --inspect");
  if (!options.model || !options.output) {
    fail(ErrorKind::kUsage,
         "nothing to do: name a model and the file to write, or --inspect MODEL");
  }
  if (!options.output->ends_with(".gguf")) {
    fail(ErrorKind::kUsage, "output ", quoted(*options.output), ": expected a name that ends in ",
         ".gguf");
  }
  if (io::is_regular_file(*options.output) && !options.force) {
    fail(ErrorKind::kCannotCreate, quoted(*options.output), " exists; --force replaces it");
  }
  io::ModelFiles files = open_language_model(*options.model);
  std::error_code ignored;  // of a file that is not there
  if (std::filesystem::equivalent(files.path, *options.output, ignored)) {
    fail(ErrorKind::kCannotCreate, "output ", quoted(*options.output),
         " is the model itself, which would be lost: name another file");
  }
  return write_gguf(open_source(std::move(files), options), options);
}

}  // namespace lumen::runtime
