#include "lib/io/llama2c.h"

#include <cstdlib>

#include "lib/base/checked.h"
#include "lib/base/error.h"
#include "lib/base/limits.h"
#include "lib/io/byte_reader.h"
#include "lib/io/mapped_file.h"

namespace lumen::io {
namespace {

constexpr uint32_t kVersion1Magic = 0x616B3432;  // "ak42" as a number
constexpr uint64_t kVersionedHeaderBytes = 256;

// Hands out the arrays of the file one after the other.
class WeightReader {
 public:
  WeightReader(std::shared_ptr<const Buffer> buffer, uint64_t offset, Llama2cFile& file)
      : buffer_(std::move(buffer)), offset_(offset), file_(file) {}

  // The next array of shape `shape`; the sizes were checked against the file's before.
  void take(const std::string& name, const Shape& shape) {
    const Array array = mapped_array(buffer_, offset_, DType::kF32, shape);
    offset_ += array.bytes();
    file_.tensors.emplace(name, array);
  }

  // The same for every layer: "model.layers.N." + `suffix`.
  void take_layers(const std::string& suffix, const Shape& shape) {
    for (int64_t layer = 0; layer < file_.layers; ++layer) {
      take(str("model.layers.", layer, ".", suffix), shape);
    }
  }

 private:
  std::shared_ptr<const Buffer> buffer_;
  uint64_t offset_;
  Llama2cFile& file_;
};

int64_t field(ByteReader& reader, std::string_view name, int64_t lo, int64_t hi) {
  const int64_t value = reader.read<int32_t>();
  if (value < lo || value > hi) {
    fail(ErrorKind::kMalformed, "not a model file Lumen knows (GGUF, a Hugging Face directory or ",
         "llama2.c): as a llama2.c file its field '", name, "' is ", value, ", expected ", lo,
         " to ", hi);
  }
  return value;
}

void read_fields(ByteReader& reader, Llama2cFile& file) {
  file.dim = field(reader, "dim", 1, limits::kDim);
  file.hidden_dim = field(reader, "hidden_dim", 1, limits::kDim);
  file.layers = field(reader, "n_layers", 1, limits::kLayers);
  file.heads = field(reader, "n_heads", 1, limits::kHeads);
  file.kv_heads = field(reader, "n_kv_heads", 1, limits::kHeads);
  const int64_t vocab = static_cast<int64_t>(limits::kVocab);
  // Version 0 marks a classifier of its own by a negative size; version 1 has a flag.
  file.vocab = field(reader, "vocab_size", file.version == 0 ? -vocab : 1, vocab);
  file.context = field(reader, "max_seq_len", 1, limits::kContext);
  file.tied = file.version == 0 ? file.vocab > 0 : reader.read<uint8_t>() != 0;
  file.vocab = std::abs(file.vocab);
  if (file.vocab == 0 || file.dim % file.heads != 0 || file.dim / file.heads % 2 != 0 ||
      file.heads % file.kv_heads != 0) {
    fail(ErrorKind::kMalformed, "dim ", file.dim, ", n_heads ", file.heads, ", n_kv_heads ",
         file.kv_heads, " and vocab_size ", file.vocab,
         " do not make a model: heads must divide dim evenly into even sizes, and n_kv_heads must "
         "divide n_heads");
  }
}

// Version 0 stores two tables of rotary frequencies, which are not needed.
uint64_t rope_table_elements(const Llama2cFile& file) {
  return file.version == 0 ? static_cast<uint64_t>(file.context * (file.dim / file.heads)) : 0;
}

uint64_t expected_bytes(const Llama2cFile& file, uint64_t header_bytes) {
  const Checked dim = static_cast<uint64_t>(file.dim);
  const Checked hidden = static_cast<uint64_t>(file.hidden_dim);
  const Checked kv_dim = static_cast<uint64_t>(file.dim / file.heads * file.kv_heads);
  const Checked vocab = static_cast<uint64_t>(file.vocab);
  const Checked per_layer = dim * 2 + dim * dim * 2 + kv_dim * dim * 2 + hidden * dim * 3;
  const Checked elements = vocab * dim * (file.tied ? 1 : 2) +
                           per_layer * static_cast<uint64_t>(file.layers) + dim +
                           rope_table_elements(file);
  return (elements * sizeof(float) + header_bytes).value();
}

void take_matrices(WeightReader& weights, const Llama2cFile& file) {
  const int64_t kv_dim = file.dim / file.heads * file.kv_heads;
  weights.take_layers("self_attn.q_proj.weight", {file.dim, file.dim});
  weights.take_layers("self_attn.k_proj.weight", {kv_dim, file.dim});
  weights.take_layers("self_attn.v_proj.weight", {kv_dim, file.dim});
  weights.take_layers("self_attn.o_proj.weight", {file.dim, file.dim});
  if (file.version == 0) weights.take_layers("post_attention_layernorm.weight", {file.dim});
  weights.take_layers("mlp.gate_proj.weight", {file.hidden_dim, file.dim});
  weights.take_layers("mlp.down_proj.weight", {file.dim, file.hidden_dim});
  weights.take_layers("mlp.up_proj.weight", {file.hidden_dim, file.dim});
}

void take_weights(std::shared_ptr<const Buffer> buffer, uint64_t offset, Llama2cFile& file) {
  WeightReader weights(buffer, offset, file);
  if (file.version == 0) {
    weights.take("model.embed_tokens.weight", {file.vocab, file.dim});
    weights.take_layers("input_layernorm.weight", {file.dim});
    take_matrices(weights, file);
    weights.take("model.norm.weight", {file.dim});
  } else {
    weights.take_layers("input_layernorm.weight", {file.dim});
    weights.take_layers("post_attention_layernorm.weight", {file.dim});
    weights.take("model.norm.weight", {file.dim});
    weights.take("model.embed_tokens.weight", {file.vocab, file.dim});
    take_matrices(weights, file);
  }
  if (!file.tied) {
    // The classifier ends the file, behind the rotary tables of version 0.
    const Shape shape{file.vocab, file.dim};
    const uint64_t bytes = static_cast<uint64_t>(shape.elements()) * sizeof(float);
    file.tensors.emplace("lm_head.weight",
                         mapped_array(buffer, buffer->bytes - bytes, DType::kF32, shape));
  }
}

Llama2cFile parse_llama2c(std::shared_ptr<const Buffer> buffer) {
  ByteReader reader({buffer->data, buffer->bytes});
  Llama2cFile file;
  uint64_t header_bytes = 7 * sizeof(int32_t);
  ByteReader magic = reader;
  if (buffer->bytes >= sizeof kVersion1Magic && magic.read<uint32_t>() == kVersion1Magic) {
    reader = magic;
    header_bytes = kVersionedHeaderBytes;
    file.version = reader.read<int32_t>();
    if (file.version == 2) {
      fail(ErrorKind::kUnsupported,
           "a llama2.c checkpoint of version 2 (int8 groups); export it as version 0 or 1, or "
           "convert the model to GGUF with Q8_0");
    }
    if (file.version != 1) {
      fail(ErrorKind::kMalformed, "llama2.c version ", file.version, "; Lumen reads 0 and 1");
    }
  }
  read_fields(reader, file);
  const uint64_t expected = expected_bytes(file, header_bytes);
  if (buffer->bytes != expected) {
    fail(ErrorKind::kMalformed, "as a llama2.c checkpoint (dim ", file.dim, ", ", file.layers,
         " layers, vocabulary ", file.vocab, ") it must have ", expected, " bytes; it has ",
         buffer->bytes, buffer->bytes < expected ? " (truncated download?)" : "");
  }
  file.file_bytes = buffer->bytes;
  take_weights(std::move(buffer), header_bytes, file);
  return file;
}

}  // namespace

Llama2cFile parse_llama2c(std::shared_ptr<const Buffer> bytes, const std::string& path) {
  return with_context(place_of(path), [&] { return parse_llama2c(std::move(bytes)); });
}

}  // namespace lumen::io
