#include "lib/runtime/convert.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <vector>

#include "lib/base/error.h"
#include "lib/base/strings.h"
#include "lib/io/gguf_architecture_list.h"
#include "lib/io/importance_matrix.h"
#include "lib/io/mapped_file.h"
#include "lib/runtime/builtin_model.h"
#include "lib/runtime/conversion/conversion.h"
#include "lib/runtime/conversion/diff.h"
#include "lib/runtime/conversion/gguf_file_type.h"
#include "lib/runtime/conversion/inspect.h"
#include "lib/runtime/conversion/verify.h"
#include "lib/runtime/generation/session.h"
#include "lib/runtime/tool/output.h"
#include "lib/runtime/tool/output_directory.h"
#include "models/model.h"

namespace lumen::runtime {
namespace {

// Refuses what is meant as a file, and types that only GGUF has.
void check_directory_output(const ConvertOptions& options) {
  const std::string suffix = std::filesystem::path(*options.output).extension();
  for (const char* file :
       {".bin", ".ggml", ".GGUF", ".json", ".npz", ".onnx", ".pt", ".pth", ".safetensors"}) {
    if (suffix != file) continue;
    fail(ErrorKind::kUsage, "output ", quoted(*options.output), ": expected a name that ends in ",
         ".gguf, or a directory");
  }
  std::error_code ignored;  // of what is not there
  if (std::filesystem::exists(*options.output, ignored) && !io::is_directory(*options.output)) {
    fail(ErrorKind::kCannotCreate, quoted(*options.output), " is a file; expected a directory");
  }
  if (is_quantized(requested_type(options).matrices)) {
    fail(ErrorKind::kUsage, "--type ", options.type,
         " is for GGUF files; a directory takes f32, f16 or bf16");
  }
  if (!options.metadata.empty()) {
    fail(ErrorKind::kUsage, "--set is for GGUF files; a directory has its settings in config.json");
  }
  if (options.imatrix) {
    fail(ErrorKind::kUsage, "--imatrix is for GGUF files whose matrices are rounded to blocks");
  }
  if (options.dry_run) check_output_directory(*options.output, options.force);
}

bool is_importance_matrix(const std::string& path, const io::GgufFile* gguf) {
  if (gguf != nullptr) return io::is_importance_matrix(*gguf);
  return io::is_regular_file(path) && io::begins_importance_matrix(path);
}

// Of llama2.c's files, which have no tokenizer and become directories.
void check_tokenizer_option(const io::ModelFiles& files, const ConvertOptions& options) {
  const bool is_llama2c = files.format == io::ModelFormat::kLlama2c;
  if (!is_llama2c && options.tokenizer) {
    if (files.format == io::ModelFormat::kHuggingFace && files.tokenizer_file.empty()) {
      fail(ErrorKind::kUsage,
           "--tokenizer is for models of llama2.c: put the tokenizer's files into ",
           quoted(files.path), " instead, which has none");
    }
    fail(ErrorKind::kUsage, "--tokenizer has no effect: ", quoted(files.path),
         " is converted with its own; it is for models of llama2.c");
  }
  if (is_llama2c && writes_gguf(options)) {
    fail(ErrorKind::kUnsupported, quoted(files.path), " is ", name(files.format),
         ", which becomes a Hugging Face directory: name one as output, and convert that to GGUF");
  }
  if (is_llama2c && !options.tokenizer) {
    fail(ErrorKind::kUsage, quoted(files.path),
         ": has no tokenizer of its own; name one with --tokenizer tokenizer.bin");
  }
}

// What can be read and written, by the words of the files.
std::string architecture_list(bool json) {
  std::vector<std::string> of_directories, of_gguf, types;
  for (const models::ModelDef* def : models::model_list()) {
    of_directories.insert(of_directories.end(), def->model_types.begin(), def->model_types.end());
  }
  for (const std::string_view name : io::gguf_architectures()) of_gguf.emplace_back(name);
  for (const GgufFileType& type : gguf_file_types()) types.emplace_back(type.name);
  std::ranges::sort(of_directories);
  std::ranges::sort(of_gguf);
  if (json) {
    return io::Json({{"schema", 1},
                     {"model_types", of_directories},
                     {"gguf_architectures", of_gguf},
                     {"types", types}})
               .dump(2) +
           "\n";
  }
  return str("model_type in config.json (", of_directories.size(), ")\n  ",
             join(of_directories, "\n  "), "\ngeneral.architecture in GGUF (", of_gguf.size(),
             ")\n  ", join(of_gguf, "\n  "), "\ntypes that GGUF files are written in (--type)\n  ",
             join(types, "\n  "), "\n");
}

}  // namespace

void declare(CommandLine& line, ConvertOptions& options) {
  const auto matters_to = [&](unsigned tasks) { line.matters_to(tasks, options.given); };
  matters_to(kConvert | kConvertAdapter | kVerify | kDiff);
  line.add_positional(path_field(
      "model", "MODEL", "GGUF or llama2.c file, Hugging Face directory, org/name, LoRA adapter",
      options.model));
  line.add_positional(path_field(
      "output", "OUTPUT", "what to write: FILE.gguf, or a Hugging Face directory", options.output));
  line.group("Convert");
  matters_to(kConvert | kConvertAdapter);
  std::vector<std::string> types;
  for (const GgufFileType& type : gguf_file_types()) types.emplace_back(type.name);
  line.add(choice_field("type",
                        "of matrices, such as q4_k_m; --list-archs names all (f16; GGUF: as is)",
                        options.type, types));
  matters_to(kConvert);
  line.add(path_field("lora", "ADAPTER", "work a LoRA adapter (PEFT, MLX, GGUF) into the weights",
                      options.lora));
  line.add(path_field("imatrix", "FILE",
                      "importance matrix of llama.cpp: what columns count when rounded",
                      options.imatrix));
  matters_to(kConvertAdapter);
  line.add(path_field("base", "MODEL", "the model of an adapter that is converted (what it names)",
                      options.base));
  matters_to(kConvert);
  line.add(switch_field("allow-requantize", "round again what has a quantised type already",
                        options.allow_requantize));
  line.add(text_field("shard-size", "SIZE",
                      "several files of at most SIZE: 2GB (a directory: 5GB; GGUF: one file)",
                      options.shard_size));
  line.add(list_field("set", "KEY=VALUE",
                      "metadata of a GGUF file, e.g. general.name=Ada (repeatable)",
                      options.metadata));
  matters_to(kConvert | kConvertAdapter);
  line.add(switch_field("force", "replace the output if it is there", options.force));
  line.add(switch_field("dry-run", "only tell the size and types of what would be written",
                        options.dry_run));
  matters_to(kConvert | kVerify | kDiff);
  line.add_threads(number_field("threads", "threads to compute with (physical cores)",
                                options.threads, 1, kMaxThreads));
  line.group("Inspect");
  matters_to(kInspect);
  line.add(path_field("inspect", "MODEL",
                      "show config, metadata, tensors, tokenizer, end tokens, templates",
                      options.inspect));
  line.add(switch_field("hashes", "with --inspect: the SHA-256 of each tensor of a model",
                        options.hashes));
  matters_to(kInspect | kConvert);
  line.add(path_field("tokenizer", "FILE", "the tokenizer of a model that has none of its own",
                      options.tokenizer));
  matters_to(kList);
  line.add(switch_field("list-archs",
                        "list the architectures that are known, and the types to write",
                        options.list_archs));
  matters_to(kVerify);
  line.add(switch_field("verify", "compare what MODEL and OUTPUT answer; exit code 3 if not alike",
                        options.verify));
  line.add(number_field("max-kl", "mean KL divergence, in nats, that is no difference (0.1)",
                        options.max_kl, 0, 1e6));
  matters_to(kDiff);
  line.add(switch_field("diff", "compare the tensors of MODEL and OUTPUT: max, rms, cosine of each",
                        options.diff));
  matters_to(~0u);
  line.add_json("print one JSON object, with --dry-run too", options.json);
  line.add_example("lumen-convert runs/lumen-tiny tiny.gguf --type q8_0", "write a GGUF file");
  line.add_example("lumen-convert model-f16.gguf model-q4_k_m.gguf --type q4_k_m",
                   "make a GGUF file smaller");
  line.add_example("lumen-convert model-f16.gguf small.gguf --type q4_k_m --imatrix model.imatrix",
                   "with what llama-imatrix measured");
  line.add_example("lumen-convert base-model merged.gguf --lora runs/my-adapter",
                   "a model and an adapter in one file");
  line.add_example("lumen-convert runs/my-adapter adapter.gguf",
                   "an adapter as a GGUF file, for llama.cpp");
  line.add_example("lumen-convert base-model big.gguf --shard-size 2GB",
                   "big-00001-of-0000N.gguf and the other parts");
  line.add_example("lumen-convert big-00001-of-00003.gguf one.gguf",
                   "the parts of a GGUF file in one, as they are");
  line.add_example("lumen-convert model.gguf hf-model --type bf16",
                   "a Hugging Face directory of a GGUF file");
  line.add_example("lumen-convert stories.bin hf-model --tokenizer tokenizer.bin",
                   "a Hugging Face directory of a llama2.c model");
  line.add_example("lumen-convert model.gguf new.gguf --set general.name=Ada",
                   "the same file under another name");
  line.add_example("lumen-convert --inspect model.gguf", "show what a file holds");
  line.add_example("lumen-convert hf-model model.gguf --diff", "compare their tensors one by one");
  line.add_example("lumen-convert hf-model model.gguf --verify", "compare what the two answer");
}

int convert(const ConvertOptions& options) {
  if (options.inspect) {
    options.given.require(kInspect, "with --inspect");
    const std::string path = find_model(*options.inspect);
    auto gguf = io::read_if_gguf(path);
    const bool is_matrix = is_importance_matrix(path, gguf.get());
    io::Json model;
    if (is_matrix || is_adapter(path, gguf.get())) {
      if (options.hashes) {
        fail(ErrorKind::kUsage, "--hashes is for models; ", quoted(*options.inspect), " is ",
             is_matrix ? "an importance matrix" : "an adapter");
      }
      model = is_matrix ? inspect_importance_matrix(path, std::move(gguf))
                        : inspect_adapter(path, std::move(gguf));
    } else {
      const io::ModelFiles files = open_language_model(*options.inspect, std::move(gguf));
      model = inspect_model(files, options.tokenizer.value_or(""));
      if (options.hashes) add_hashes(files, model);
    }
    write_stdout(options.json ? model.dump() + "\n" : inspection_text(model));
    return 0;
  }
  if (options.list_archs) {
    options.given.require(kList, "with --list-archs");
    write_stdout(architecture_list(options.json));
    return 0;
  }
  if (options.diff) {
    if (options.verify) fail(ErrorKind::kUsage, "--diff and --verify do not go together");
    options.given.require(kDiff, "with --diff");
    if (!options.model || !options.output) {
      fail(ErrorKind::kUsage, "--diff needs two models: lumen-convert MODEL OTHER --diff");
    }
    return diff(options);
  }
  if (options.verify) {
    options.given.require(kVerify, "with --verify");
    if (!options.model || !options.output) {
      fail(ErrorKind::kUsage, "--verify needs two models: lumen-convert SOURCE MODEL --verify");
    }
    return verify(options), 0;
  }
  options.given.require(kConvert | kConvertAdapter, "without --inspect, --verify or --diff");
  if (options.json && !options.dry_run) {
    fail(ErrorKind::kUsage,
         "--json has no effect without --inspect, --verify, --diff or --dry-run");
  }
  if (!options.model || !options.output) {
    fail(ErrorKind::kUsage, "nothing to do: name a model and what to write, or --inspect MODEL");
  }
  if (*options.output == "-") {
    fail(ErrorKind::kUsage,
         "a model cannot be written to standard output: name a file or directory",
         " (./- if it is to be called -)");
  }
  const bool to_gguf = writes_gguf(options);
  shard_bytes(options);  // a usage error comes before the model is opened
  if (!to_gguf) {
    check_directory_output(options);
  } else if (!options.shard_size) {
    refuse_output(*options.output, nullptr, options);
  }
  const std::string path = find_model(*options.model);
  auto gguf = io::read_if_gguf(path);
  if (is_adapter(path, gguf.get())) {
    options.given.require(kConvertAdapter, "with an adapter in the place of a model");
    return convert_adapter(path, options);
  }
  options.given.require(kConvert, "with a model, which is no adapter");
  io::ModelFiles files = open_language_model(*options.model, std::move(gguf));
  if (!to_gguf) refuse_output(*options.output, &files, options);
  check_tokenizer_option(files, options);
  const Source source = open_source(std::move(files), options);
  return to_gguf ? write_gguf(source, options) : write_directory(source, options);
}

}  // namespace lumen::runtime
