// lumen-convert: GGUF files in which one tensor holds what is several in others.
#include <algorithm>
#include <string>

#include "lib/base/testing.h"
#include "lib/io/gguf.h"
#include "lib/io/model_files.h"
#include "lib/io/write_gguf.h"
#include "lib/runtime/conversion/convert_testing.h"
#include "lib/runtime/convert.h"
#include "models/model.h"

namespace lumen::runtime {
namespace {

// `model` as a GGUF file whose matrices have a type, "" for those that they have.
std::string converted_to(const std::string& model, const std::string& type) {
  ConvertOptions options;
  options.model = model;
  options.output = lumen::testing::temporary_directory() + "/model.gguf";
  options.type = type;
  REQUIRE(convert(options) == 0);
  return *options.output;
}

// A GGUF file with the gates and ups of all experts in one tensor, of `rows` rows for each.
std::string with_gates_and_ups(const std::string& path, int64_t rows) {
  const auto file = io::read_gguf(path);
  io::GgufWriter writer;
  for (size_t i = 0; i < file->metadata.size(); ++i) writer.copy(file->metadata[i]);
  for (const io::GgufTensor& tensor : file->tensors) {
    const std::string_view name = tensor.name;
    const size_t gate = name.find("gate_exps.");
    const Array array = file->array(tensor);
    if (gate == std::string::npos) {
      if (name.find("up_exps.") == std::string::npos) writer.add(tensor.name, array);
      continue;
    }
    const std::string layer(name.substr(0, gate)), kind(name.substr(name.rfind('.')));
    const Array up = file->array(*file->find_tensor(str(layer, "up_exps", kind)));
    const int64_t experts = tensor.shape[0];
    const bool is_bias = tensor.shape.rank() == 2;
    Array both = Array::zeros(
        *tensor.dtype, is_bias ? Shape{experts, rows} : Shape{experts, rows, tensor.shape[2]});
    const auto bytes = static_cast<size_t>(array.part(0).bytes());
    for (int64_t e = 0; e < experts && rows == 2 * tensor.shape[1]; ++e) {
      std::byte* const to = both.mutable_data() + static_cast<size_t>(2 * e) * bytes;
      std::copy_n(array.part(e).data(), bytes, to);
      std::copy_n(up.part(e).data(), bytes, to + bytes);
    }
    writer.add(str(layer, "gate_up_exps", kind), both);
  }
  const std::string joined = lumen::testing::temporary_directory() + "/joined.gguf";
  writer.write(joined);
  return joined;
}

}  // namespace

TEST_CASE("files with gates and ups in one tensor are read, and written as those with two") {
  for (const char* type : {"mixtral", "qwen2_moe", "qwen3_5_moe_text", "deepseek_v3", "lfm2_moe",
                           "granitemoe", "gpt_oss"}) {
    INFO(type);
    const models::ModelDef& def = models::find_model_def({{"model_type", type}});
    io::Json config = tiny_config(type);
    make_sayable(config);
    const bool has_own = config.contains("moe_intermediate_size");
    const char* const length = has_own ? "moe_intermediate_size" : "intermediate_size";
    config.update({{"hidden_size", 64}, {length, 32}});
    const std::string directory = model_directory(def, config, text::TokenizerKind::kByteLevelBpe);
    for (const char* as : {"f32", "q8_0"}) {
      const std::string apart = converted_to(directory, as), joined = with_gates_and_ups(apart, 64);
      CHECK(io::read_gguf(joined)->tensors.size() < io::read_gguf(apart)->tensors.size());
      CHECK(logits(joined) == logits(apart));
      check_same_data(*io::read_gguf(converted_to(joined, "")), *io::read_gguf(apart));
    }
    const std::string whole = converted(directory), joined = with_gates_and_ups(whole, 64);
    CHECK(logits(converted_directory(joined, "f32")) == logits(converted_directory(whole, "f32")));
    check_same_data(*io::read_gguf(converted_to(joined, "q8_0")),
                    *io::read_gguf(converted_to(whole, "q8_0")));
    CHECK(lumen::testing::contains(
        lumen::testing::refusal(ErrorKind::kMalformed,
                                [&] { io::open_model(with_gates_and_ups(whole, 63)); }),
        "ffn_gate_up_exps.weight' has 63 rows for an expert, expected as many for its gate as"));
  }
}

namespace {

// The same with queries, keys and values of all layers in one tensor, and `more` rows of zeros.
std::string with_fused_attention(const std::string& path, int64_t more = 0) {
  const auto file = io::read_gguf(path);
  io::GgufWriter writer;
  for (size_t i = 0; i < file->metadata.size(); ++i) writer.copy(file->metadata[i]);
  for (const io::GgufTensor& tensor : file->tensors) {
    const size_t query = tensor.name.find("attn_q.");
    const bool is_other = tensor.name.find("attn_k.") != std::string::npos ||
                          tensor.name.find("attn_v.") != std::string::npos;
    if (query == std::string::npos) {
      if (!is_other) writer.add(tensor.name, file->array(tensor));
      continue;
    }
    const std::string layer = tensor.name.substr(0, query), kind = tensor.name.substr(query + 7);
    const std::string names[] = {tensor.name, layer + "attn_k." + kind, layer + "attn_v." + kind};
    Shape shape = tensor.shape;
    shape[0] = more;
    for (const std::string& name : names) shape[0] += file->find_tensor(name)->shape[0];
    Array all = Array::zeros(*tensor.dtype, shape);
    std::byte* to = all.mutable_data();
    for (const std::string& name : names) {
      const Array part = file->array(*file->find_tensor(name));
      to = std::copy_n(part.data(), part.bytes(), to);
    }
    writer.add(layer + "attn_qkv." + kind, all);
  }
  const std::string fused = lumen::testing::temporary_directory() + "/fused.gguf";
  writer.write(fused);
  return fused;
}

}  // namespace

TEST_CASE("files with queries, keys and values in one tensor are read, and written as usual ones") {
  for (const char* type : {"phi", "llama", "qwen2", "gpt_oss"}) {
    INFO(type);
    io::Json config = tiny_config(type);
    make_sayable(config);
    config.update({{"hidden_size", 64},
                   {"head_dim", 16},
                   {"num_attention_heads", 4},
                   {"num_key_value_heads", type == std::string("phi") ? 4 : 2}});
    const std::string directory = model_directory(models::find_model_def({{"model_type", type}}),
                                                  config, text::TokenizerKind::kByteLevelBpe);
    for (const char* as : {"f32", "q8_0"}) {
      const std::string apart = converted_to(directory, as), fused = with_fused_attention(apart);
      CHECK(io::read_gguf(fused)->find_tensor("blk.0.attn_qkv.weight") != nullptr);
      CHECK(logits(fused) == logits(apart));
      check_same_data(*io::read_gguf(converted_to(fused, "")), *io::read_gguf(apart));
    }
    const std::string apart = converted(directory), fused = with_fused_attention(apart);
    CHECK(logits(converted_directory(fused, "f32")) == logits(converted_directory(apart, "f32")));
    CHECK(lumen::testing::contains(
        lumen::testing::refusal(ErrorKind::kMalformed,
                                [&] { io::open_model(with_fused_attention(apart, 1)); }),
        type == std::string("phi") ? "rows, expected a multiple of 12, the heads of 4 queries"
                                   : "rows, expected a multiple of 8, the heads of 4 queries"));
  }
}

}  // namespace lumen::runtime
