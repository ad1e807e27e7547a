#include "lib/runtime/convert.h"

#include "lib/base/error.h"
#include "lib/base/limits.h"
#include "lib/base/strings.h"
#include "lib/io/hf_cache.h"
#include "lib/io/mapped_file.h"
#include "lib/io/model_files.h"
#include "lib/io/write_gguf.h"
#include "lib/kernels/convert.h"
#include "lib/nn/parameters.h"
#include "lib/nn/rope.h"
#include "lib/runtime/inspect.h"
#include "lib/runtime/output.h"
#include "lib/runtime/session.h"
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

// Throws unless the files hold a whole model of an architecture that we have: GGUF says less than
// config.json, so what is wrong could not be seen in the result.
void check_model(const io::ModelFiles& files) {
  with_context(files.path, [&] {
    const nn::Parameters parameters = nn::Parameters::from_checkpoint(files.tensors);
    const auto model = models::find_model_def(files.config).make(files.config, parameters);
    models::check_tensors(parameters);
  });
}

// `values` of a tensor at `place` in the type for the file.
Array stored(const std::string& place, const std::string& tensor, const Array& values,
             DType dtype) {
  Array result = nn::stored_as(values, dtype);
  const auto is_bad = [](const Array& array) {
    return kernels::has_nonfinite(array.dtype(), array.data(), array.elements());
  };
  if (is_bad(values)) {
    fail(ErrorKind::kMalformed, place, ": tensor ", quoted(tensor),
         " has a NaN or infinite value; the file is damaged");
  }
  if (is_bad(result)) {
    fail(ErrorKind::kMalformed, place, ": tensor ", quoted(tensor), " has numbers too large for ",
         name(result.dtype()), ": use --type bf16 or f32");
  }
  return result;
}

void write_gguf(const io::ModelFiles& files, const ConvertOptions& options) {
  if (files.format != io::ModelFormat::kHuggingFace) {
    fail(ErrorKind::kUnsupported, quoted(files.path), " is ", name(files.format),
         "; only Hugging Face directories can be converted so far");
  }
  io::GgufWriter writer;
  io::gguf_architecture(files.config);  // what cannot be written is told before what is wrong
  check_model(files);
  io::set_gguf_config(files.config, writer);
  const std::string path = files.path.substr(0, files.path.find_last_not_of('/') + 1);
  writer.set("general.name", path.substr(path.rfind('/') + 1));
  set_tokenizer(files, writer);
  const bool tied = io::get_bool(files.config, "tie_word_embeddings", false);
  const bool rotate = io::gguf_architecture(files.config) == "llama";
  const int64_t head_dim = io::get_int(files.config, "head_dim", 1, limits::kDim);
  for (const auto& [name, array] : files.tensors) {
    if (tied && name == "lm_head.weight") continue;
    const std::string gguf_name = io::gguf_tensor_name(name);
    if (gguf_name.empty()) {
      fail(ErrorKind::kUnsupported, quoted(files.path), ": tensor ", quoted(name),
           " has no name in GGUF");
    }
    Array values = nn::float32_copy(array);
    if (rotate && nn::has_rotary_rows(name)) {
      values = nn::reorder_rotary_rows(values, head_dim, true);
    }
    writer.add(gguf_name,
               stored(io::place_of(files.path), name, values, *dtype_named(options.type)));
  }
  const std::vector<float> divisors = nn::rope_divisors(files.config, head_dim);
  if (!divisors.empty()) {
    writer.add("rope_freqs.weight",
               Array::from<float>(divisors, {static_cast<int64_t>(divisors.size())}));
  }
  writer.write(*options.output);
}

}  // namespace

void declare(CommandLine& line, ConvertOptions& options) {
  line.matters_to(kConvert, options.given);
  line.add_positional(path_field(
      "model", "MODEL", "Hugging Face directory or org/name to convert: Llama, Mistral, Qwen",
      options.model));
  line.add_positional(path_field("output", "FILE.gguf", "the file to write", options.output));
  line.group("Convert");
  line.add(choice_field("type", "of matrices; vectors stay float32 (f16)", options.type,
                        {"f32", "f16", "bf16", "q8_0"}));
  line.add(switch_field("force", "replace the file if it is there", options.force));
  line.group("Inspect");
  line.matters_to(kInspect, options.given);
  line.add(path_field("inspect", "MODEL",
                      "show config, metadata, tensors, tokenizer, end tokens, templates",
                      options.inspect));
  line.add(path_field("tokenizer", "FILE", "the tokenizer of a model that has none of its own",
                      options.tokenizer));
  line.add_json("print one JSON object", options.json);
  line.add_example("lumen-convert runs/lumen-tiny tiny.gguf --type q8_0", "write a GGUF file");
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
  write_gguf(open_language_model(*options.model), options);
  return 0;
}

}  // namespace lumen::runtime
