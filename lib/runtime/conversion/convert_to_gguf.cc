// lumen-convert MODEL FILE.gguf: Hugging Face directories and GGUF files to GGUF.
#include <algorithm>
#include <filesystem>
#include <map>
#include <vector>

#include "lib/base/error.h"
#include "lib/base/limits.h"
#include "lib/base/strings.h"
#include "lib/io/atomic_file.h"
#include "lib/io/file_lock.h"
#include "lib/io/layer_windows.h"
#include "lib/io/mapped_file.h"
#include "lib/io/write_gguf.h"
#include "lib/kernels/quantize_blocks.h"
#include "lib/nn/conv1d.h"
#include "lib/nn/decoder.h"
#include "lib/nn/fused_layers.h"
#include "lib/nn/head_order.h"
#include "lib/nn/mamba2.h"
#include "lib/nn/multipliers.h"
#include "lib/nn/rope.h"
#include "lib/runtime/adapters/stored_layout.h"
#include "lib/runtime/conversion/conversion.h"
#include "lib/runtime/conversion/gguf_file_type.h"
#include "lib/runtime/conversion/set_metadata.h"
#include "lib/runtime/tool/output.h"
#include "lib/text/gguf_keys.h"
#include "models/decoder_lm.h"

namespace lumen::runtime {
namespace {

constexpr const char* kOutputName = "lm_head.weight";
constexpr std::string_view kImportanceKeys = "quantize.imatrix.";

void set_tokenizer(const io::ModelFiles& files, io::GgufWriter& writer) {
  if (files.tokenizer_file.empty()) {
    fail(ErrorKind::kMissing, quoted(files.path),
         ": has no tokenizer to write into the GGUF file: ",
         "put its tokenizer.json or tokenizer.model there");
  }
  for (const std::string& note : text::set_gguf_tokenizer(files, writer)) {
    write_stderr(str("note: ", note, "\n"));
  }
}

// Adds a matrix of a stack, as of an expert, to the tensor of all, which is added to `tensors` with
// the first; `stacks` are their places there. The model is known to be whole.
void add_to_stack(int64_t number, const SourceTensor& matrix, std::string_view architecture,
                  std::map<std::string, size_t>& stacks, std::vector<SourceTensor>& tensors) {
  const std::string holding = io::gguf_holding_tensor(matrix.target, architecture);
  const auto [at, is_new] = stacks.emplace(holding, tensors.size());
  if (is_new) tensors.push_back(matrix);
  SourceTensor& all = tensors[at->second];
  all.target = holding;
  const Array& array = matrix.array;
  if (array.dtype() != all.array.dtype()) {
    fail(ErrorKind::kUnsupported, "tensor ", quoted(matrix.name), " is ", name(array.dtype()), ", ",
         quoted(all.name), " is ", name(all.array.dtype()),
         ": they are one tensor in GGUF and must have one type");
  }
  if (holding != matrix.target) all.stacked = 2;  // gate and up
  const bool is_up = all.stacked > 1 && matrix.name.find(".up_proj.") != std::string::npos;
  const auto part = static_cast<size_t>(number * all.stacked + (is_up ? 1 : 0));
  if (all.parts.size() <= part) all.parts.resize(part + 1);
  all.parts[part] = array;
}

// As many rows as a tensor has there: of Gemma 3n's embeddings per layer as many as tokens, as
// those that it has none for have the first (nn::PerLayerEmbedding). 0: those that it has.
int64_t rows_in_gguf(const io::Json& config, const std::string& gguf_name, const Array& array) {
  if (gguf_name != "per_layer_token_embd.weight") return 0;
  const int64_t tokens = io::get_int(config, "vocab_size", 1, limits::kVocab);
  return array.shape()[0] < tokens ? tokens : 0;
}

// The taps of a convolution are a matrix in GGUF, and of Mamba-2 what each head has and the norm of
// groups; ERNIE's corrections of scores are a vector.
Array of_gguf_shape(const io::Json& config, const std::string& gguf_name, const Array& array) {
  const Shape& shape = array.shape();
  if (const int64_t groups = nn::mamba2_groups(config); groups > 0) {
    if (gguf_name.ends_with(".ssm_a") || gguf_name.ends_with(".ssm_d")) {
      return array.reshaped({shape.elements(), 1});
    }
    if (gguf_name.ends_with(".ssm_norm.weight")) {
      return array.reshaped({groups, shape.elements() / groups});
    }
  }
  if (gguf_name.ends_with(".exp_probs_b.bias")) return array.reshaped({shape.elements()});
  const bool is_convolution =
      gguf_name.ends_with(".ssm_conv1d.weight") || gguf_name.ends_with(".shortconv.conv.weight");
  if (!is_convolution || shape.rank() != 3) return array;
  return array.reshaped({shape[0], shape[2]});
}

// Readers of Gemma 3n look for keys and values in every layer, also where those of an earlier one
// are used: those of that one, if the directory has none.
void add_unused_keys(const io::ModelFiles& files, std::vector<SourceTensor>& tensors) {
  if (io::get_string(files.config, "model_type") != "gemma3n_text") return;
  const std::vector<int64_t> keys_of =
      models::shared_keys_of(files.config, io::layer_windows(files.config));
  for (int64_t i = 0; i < std::ssize(keys_of); ++i) {
    if (keys_of[static_cast<size_t>(i)] == i) continue;
    for (const char* part : {"k_proj", "v_proj", "k_norm"}) {
      const auto name = [&](int64_t layer) {
        return str("model.layers.", layer, ".self_attn.", part, ".weight");
      };
      if (files.tensors.contains(name(i))) continue;
      const std::string source = name(keys_of[static_cast<size_t>(i)]);
      SourceTensor unused = *std::ranges::find(tensors, source, &SourceTensor::name);
      unused.target = io::gguf_tensor_name(name(i), "gemma3n");
      tensors.push_back(std::move(unused));
    }
  }
}

// Sets the metadata of a Hugging Face directory; returns its tensors. Those that another program
// packed keep their types with `keep_packed`.
std::vector<SourceTensor> from_directory(const Source& source, bool keep_packed,
                                         io::GgufWriter& writer) {
  const io::ModelFiles& files = source.files;
  // What cannot be written is told before what is wrong.
  const std::string architecture = io::gguf_architecture(files.config);
  if (!source.parameters) checked_parameters(files, nullptr);
  io::set_gguf_config(files.config, writer);
  io::set_gguf_numbers(files.config, files.tensors, writer);
  with_context("generation_config.json",
               [&] { io::set_gguf_sampling(files.generation_config, writer); });
  const std::string path = files.path.substr(0, files.path.find_last_not_of('/') + 1);
  writer.set("general.name", path.substr(path.rfind('/') + 1));
  set_tokenizer(files, writer);
  const bool tied = io::get_bool(files.config, "tie_word_embeddings", false);
  const bool rotate = io::gguf_reorders_rotary_rows(architecture);
  const bool tiles = nn::may_tile_heads(files.config);
  const bool turns = nn::conv1d_order(files.config) == nn::WeightOrder::kInOut;
  std::vector<SourceTensor> tensors;
  std::map<std::string, size_t> stacks;  // places in `tensors`
  for (const auto& [name, array] : files.tensors) {
    const bool is_written = !name.starts_with("mtp.") && !io::is_gguf_number(name);
    if ((tied && name == kOutputName) || !is_written) continue;
    const std::string first_part = nn::input_part_name(name, 0);  // of what is two tensors there
    const std::string gguf_name =
        io::gguf_tensor_name(first_part.empty() ? name : first_part, architecture);
    if (gguf_name.empty()) {
      fail(ErrorKind::kUnsupported, quoted(files.path), ": tensor ", quoted(name),
           " has no name in GGUF");
    }
    SourceTensor tensor{name, gguf_name, of_gguf_shape(files.config, gguf_name, array)};
    tensor.rows = rows_in_gguf(files.config, gguf_name, array);
    if (keep_packed && is_quantized(array.dtype())) tensor.kept = array.dtype();
    if (const auto number = io::number_in_stack(name)) {
      add_to_stack(*number, tensor, architecture, stacks, tensors);
      continue;
    }
    if (rotate && nn::has_rotary_rows(name)) tensor.order = RowOrder::kInterleaved;
    if (tiles && nn::has_grouped_heads(name)) tensor.to_tiled = true;
    tensor.rate = rate_form(name, true);
    tensor.is_turned = turns && nn::is_conv1d_weight(files.config, name, array);
    tensor.shift = norm_shift(files.config, name, 0);
    tensor.multipliers = nn::row_multipliers(files.config, name);
    tensor.has_addition = source.parameters && source.parameters->has_addition(name);
    // Readers look for the rows of keys and those of values.
    if (architecture == "kimi-linear" && gguf_name.ends_with(".attn_kv_b.weight")) {
      for (const bool are_keys : {true, false}) {
        SourceTensor& rows = tensors.emplace_back(tensor);
        rows.target.replace(rows.target.rfind("kv_b"), 4, are_keys ? "k_b" : "v_b");
        rows.latent_rows = nn::latent_rows(files.config, are_keys);
      }
      continue;
    }
    if (first_part.empty()) {
      tensors.push_back(std::move(tensor));
      continue;
    }
    for (const int part : {0, 1}) {
      SourceTensor& rows = tensors.emplace_back(tensor);
      rows.target = io::gguf_tensor_name(nn::input_part_name(name, part), architecture);
      rows.input_part = part;
      rows.input_rows = nn::input_rows(files.config, part);
    }
  }
  add_unused_keys(files, tensors);
  // An output that is the embedding times another number is a tensor of its own there, and so it is
  // for readers of GPT-2.
  const std::string embedding = io::hugging_face_name("token_embd.weight", architecture);
  if (std::vector<double> of_output = nn::row_multipliers(files.config, kOutputName);
      tied &&
      (of_output != nn::row_multipliers(files.config, embedding) || nn::has_conv1d(files.config))) {
    SourceTensor output{embedding, "output.weight", files.tensors.at(embedding)};
    if (keep_packed && is_quantized(output.array.dtype())) output.kept = output.array.dtype();
    output.multipliers = std::move(of_output);
    tensors.push_back(std::move(output));
  }
  const int64_t rotary_dim = nn::DecoderConfig(files.config).rotary_dim;
  for (const auto& [name, numbers] : nn::rope_tensors(files.config, rotary_dim)) {
    tensors.push_back(SourceTensor{
        name, name, Array::from<float>(numbers, {static_cast<int64_t>(numbers.size())})});
  }
  return tensors;
}

// Whether the tensors keep their types: those of a GGUF file, if nothing else is asked for.
bool keeps_types(const Source& source, const ConvertOptions& options) {
  const bool keeps = source.files.gguf != nullptr && options.type.empty();
  if (!keeps || source.parameters) return keeps;  // what an adapter changes is rounded again
  for (const auto& [is_given, option] :
       {std::pair(options.imatrix.has_value(), "--imatrix"),
        std::pair(options.allow_requantize, "--allow-requantize")}) {
    if (!is_given) continue;
    fail(ErrorKind::kUsage, option, " has no effect without --type: the tensors of ",
         quoted(source.files.path), " keep the types that they have");
  }
  return true;
}

// Sets the metadata of a GGUF file as it has them.
void copy_metadata(const Source& source, bool keep_types, io::GgufWriter& writer) {
  const io::GgufMetadata& metadata = source.files.gguf->metadata;
  for (size_t i = 0; i < metadata.size(); ++i) {
    const std::string_view key = metadata[i].key();
    const bool of_types = key == "general.file_type" || key == "general.quantization_version";
    // What the writer decides, what joins the parts of a split file, what an adapter may change.
    const bool of_importance = source.importance && key.starts_with(kImportanceKeys);
    if ((of_types && !keep_types) || of_importance || key == "general.alignment" ||
        key.starts_with("split.") ||
        (source.parameters && key.starts_with("tokenizer.chat_template"))) {
      continue;
    }
    writer.copy(metadata[i]);
  }
  if (source.parameters) io::set_gguf_chat_templates(source.files.chat_templates, writer);
}

// The matrices of such a name that the model has.
std::vector<Array> matrices_of(const io::ModelFiles& files, const std::string& name) {
  std::vector<Array> matrices;
  for (int64_t i = 0; i < io::stack_size(name, files.config).count; ++i) {
    matrices.push_back(files.tensors.at(io::name_in_stack(name, i)));
  }
  return matrices;
}

// Whether they are those of a tensor of the file, as they lie there.
bool are_parts(const std::vector<Array>& matrices, const Array& all) {
  for (size_t i = 0; i < matrices.size(); ++i) {
    if (matrices[i].data() != all.part(static_cast<int64_t>(i)).data()) return false;
  }
  return true;
}

// The same of a GGUF file, whose metadata and tensors keep their names and order, but that those of
// single experts become one of all, gates and ups in one tensor two, and q, k and v three.
std::vector<SourceTensor> from_gguf(const Source& source, bool keep_types, io::GgufWriter& writer) {
  const io::ModelFiles& files = source.files;
  if (!source.parameters) checked_parameters(files, nullptr);
  copy_metadata(source, keep_types, writer);
  std::vector<SourceTensor> tensors;
  const std::string architecture = io::gguf_architecture(files.config);
  std::map<std::string, size_t> stacks;  // places in `tensors`
  const auto add = [&](const std::string& name, const std::string& target, DType own_type,
                       const Array& array) {
    SourceTensor tensor{name, target, of_gguf_shape(files.config, target, array)};
    tensor.has_addition = source.parameters && source.parameters->has_addition(name);
    if (keep_types) tensor.kept = own_type;
    if (const auto number = io::number_in_stack(name)) {
      tensor.target = io::gguf_tensor_name(name, architecture);
      return add_to_stack(*number, tensor, architecture, stacks, tensors);
    }
    tensors.push_back(std::move(tensor));
  };
  for (const io::GgufTensor& tensor : files.gguf->tensors) {
    if (const auto both = io::gguf_gate_and_up(tensor.name, files.config); !both[0].empty()) {
      for (const std::string& names : both) {
        if (!io::is_stack(names)) {  // biases, a row for each
          add(names, io::gguf_tensor_name(names, architecture), *tensor.dtype,
              files.tensors.at(names));
          continue;
        }
        for (int64_t e = 0; e < io::expert_count(files.config); ++e) {
          const std::string name = io::name_in_stack(names, e);
          add(name, tensor.name, *tensor.dtype, files.tensors.at(name));
        }
      }
      continue;
    }
    if (const auto qkv = io::gguf_query_key_value(tensor.name, files.config); !qkv[0].empty()) {
      for (const std::string& name : qkv) {
        add(name, io::gguf_tensor_name(name, architecture), *tensor.dtype, files.tensors.at(name));
      }
      continue;
    }
    const std::string name = io::gguf_model_tensor(tensor.name, files.config);
    if (!io::is_stack(name)) {
      add(name, tensor.name, *tensor.dtype, files.tensors.at(name));
      continue;
    }
    const std::vector<Array> own = matrices_of(files, name);
    const Array all = files.gguf->array(tensor);
    if (!source.parameters || are_parts(own, all)) {
      add(name, tensor.name, *tensor.dtype, all);
      continue;
    }
    for (size_t i = 0; i < own.size(); ++i) {  // an adapter is worked into them
      add(io::name_in_stack(name, static_cast<int64_t>(i)), tensor.name, *tensor.dtype, own[i]);
    }
  }
  // An adapter may have parted the head from the embedding.
  if (files.tensors.contains(kOutputName) && !files.gguf->find_tensor("output.weight")) {
    add(kOutputName, "output.weight", *files.gguf->find_tensor("token_embd.weight")->dtype,
        files.tensors.at(kOutputName));
  }
  return tensors;
}

// Which type each tensor gets: see fixed_type; matrices as the type of the file says.
class TensorTypes {
 public:
  TensorTypes(const io::ModelFiles& files, const std::vector<SourceTensor>& tensors,
              const ConvertOptions& options)
      : type_(requested_type(options)),
        keeps_some_(std::any_of(tensors.begin(), tensors.end(), [](const SourceTensor& tensor) {
          return tensor.kept.has_value();
        })) {
    kind_.layers = io::get_int(files.config, "num_hidden_layers", 1, limits::kLayers);
    kind_.heads_per_kv_head = io::get_int(files.config, "num_attention_heads", 1, limits::kHeads) /
                              io::get_int(files.config, "num_key_value_heads", 1, limits::kHeads);
    kind_.has_output = std::any_of(tensors.begin(), tensors.end(), [](const SourceTensor& tensor) {
      return tensor.target == "output.weight";
    });
    const bool has_experts = std::any_of(tensors.begin(), tensors.end(), [](const auto& tensor) {
      return tensor.target.ends_with("_exps.weight");
    });
    if (type_.experts && !has_experts) {
      fail(ErrorKind::kUsage, "--type ", type_.name, " is for mixtures of experts, and ",
           quoted(files.path), " has none: say q8_0, or q4_k_m for about 4 bits");
    }
    for (const SourceTensor& tensor : tensors) {
      if (!tensor.kept) count(tensor);
      const DType from = tensor.array.dtype(), to = of(tensor);
      const bool is_rounded = is_quantized(from) && to != from && to != DType::kF32;
      if (is_rounded && !options.allow_requantize) {
        fail(ErrorKind::kUsage, quoted(files.path), ": tensor ", quoted(tensor.target), " is ",
             name(from),
             " already, and rounding it again adds to its error: convert the original, ",
             "or say --allow-requantize");
      }
    }
  }

  DType of(const SourceTensor& tensor) const {
    if (tensor.kept) return *tensor.kept;
    if (const auto fixed = fixed_type(tensor)) return *fixed;
    return gguf_matrix_type(type_, kind_, tensor.target, tensor.shape());
  }

  // general.file_type, if one type tells of all, and for blocks the version of their formats.
  void set_keys(io::GgufWriter& writer) const {
    if (!keeps_some_) writer.set("general.file_type", type_.number);
    if (keeps_some_ || is_quantized(type_.matrices)) {
      writer.set("general.quantization_version", uint32_t{2});
    }
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
    const DType wanted = gguf_wanted_type(type_, kind_, tensor.target), got = of(tensor);
    if (got == wanted) return;
    ++(is_quantized(got) ? in_blocks_of_32_ : in_halves_);
  }

  const GgufFileType& type_;
  bool keeps_some_;
  GgufModelKind kind_;
  int64_t matrices_ = 0, in_blocks_of_32_ = 0, in_halves_ = 0;
};

// Checks the importance matrix against the matrices that are rounded to blocks, says which of them
// it lacks, and sets the keys by which such files are known.
void use_importance(const io::ImportanceMatrix& importance,
                    const std::vector<SourceTensor>& tensors, const TensorTypes& types,
                    std::string_view type, io::GgufWriter& writer) {
  const std::string place = io::place_of(importance.path);
  std::vector<std::string> lacking;
  int32_t used = 0;
  for (const SourceTensor& tensor : tensors) {
    if (!kernels::can_quantize(types.of(tensor))) continue;
    const auto found = importance.columns.find(tensor.target);
    if (found == importance.columns.end()) {
      lacking.push_back(tensor.target);
      continue;
    }
    ++used;
    const Shape shape = tensor.shape();
    const auto columns = static_cast<size_t>(shape[-1]);
    const auto matrices = static_cast<size_t>(shape.rank() == 3 ? shape[0] : 1);
    if (found->second.size() == columns || found->second.size() == columns * matrices) continue;
    fail(ErrorKind::kMismatch, place, ": ", quoted(tensor.target), " has ", found->second.size(),
         " columns, the model's ", columns, ": is it of this model?");
  }
  if (used == 0 && lacking.empty()) {
    fail(ErrorKind::kUsage, "--imatrix has no effect with --type ", type,
         ": it is for blocks with a choice of scales, such as q4_k_m's");
  }
  if (used == 0) {
    fail(ErrorKind::kMismatch, place, ": has none of the ", lacking.size(),
         " matrices that are rounded to blocks (", quoted(lacking.front()),
         ", …): is it of this model?");
  }
  if (!lacking.empty()) {
    write_stderr(str("note: ", place, " has nothing on ", quoted(lacking.front()),
                     lacking.size() > 1 ? str(" and ", lacking.size() - 1, " more matrices") : "",
                     ": all their columns count alike\n"));
  }
  const auto set = [&](const char* name, const io::GgufWriter::Value& value) {
    writer.set(str(kImportanceKeys, name), value);
  };
  set("file", importance.path.substr(importance.path.rfind('/') + 1));
  if (!importance.texts.empty()) set("dataset", to_valid_utf8(importance.texts.front()));
  set("entries_count", used);
  if (importance.chunks > 0) set("chunks_count", static_cast<int32_t>(importance.chunks));
}

}  // namespace

int write_gguf(const Source& source, const ConvertOptions& options) {
  const io::ModelFiles& files = source.files;
  io::GgufWriter writer;
  const bool keep_types = keeps_types(source, options);
  const std::vector<SourceTensor> tensors =
      files.format == io::ModelFormat::kGguf ? from_gguf(source, keep_types, writer)
                                             : from_directory(source, options.type.empty(), writer);
  const TensorTypes types(files, tensors, options);
  if (!keep_types) types.set_keys(writer);
  types.tell();
  if (source.importance) {
    use_importance(*source.importance, tensors, types, requested_type(options).name, writer);
  }
  set_metadata(options.metadata, writer);
  TensorConversion conversion(source, tensors, options);
  std::vector<DType> dtypes;
  for (const SourceTensor& tensor : tensors) {
    dtypes.push_back(types.of(tensor));
    writer.add(tensor.target, dtypes.back(), tensor.shape(),
               conversion.maker(tensor, dtypes.back()));
  }
  const uint64_t most = shard_bytes(options).value_or(~uint64_t{0});
  const std::vector<std::string> paths = writer.parts(*options.output, most);
  for (const std::string& path : paths) refuse_output(path, &files, options);
  if (options.dry_run) {
    tell_dry_run(options, writer.bytes(), dtypes, paths.size());
    return 0;
  }
  const std::filesystem::path output = *options.output;
  io::FileLock lock(output.parent_path() / ("." + output.filename().string() + ".lock"),
                    io::place_of(output), "conversion", "name another output");
  lock.remove_at_end();
  // What a conversion that has ended since may have left.
  for (const std::string& path : paths) refuse_output(path, &files, options);
  return conversion.run([&] { writer.write_parts(output, most); });
}

}  // namespace lumen::runtime
