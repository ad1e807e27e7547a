#include "lib/io/packed_weights.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "lib/base/checked.h"
#include "lib/base/error.h"
#include "lib/base/limits.h"
#include "lib/base/strings.h"
#include "lib/io/coded_matrix.h"
#include "lib/io/mapped_file.h"

namespace lumen::io {

class PackedFile;

struct Packing {
  std::string_view mark;                // with it a tensor's name says that its layer is packed
  std::vector<std::string_view> parts;  // of a packed layer's other tensors
  std::function<Array(const PackedFile& file, const std::string& layer)> unpack;
};

// The tensors of a file by name, with their bytes.
class PackedFile {
 public:
  explicit PackedFile(const SafetensorsFile& file) : file_(file) {
    for (const SafetensorsTensor& tensor : file.tensors) by_name_.emplace(tensor.name, &tensor);
  }

  const SafetensorsTensor* find(const std::string& name) const {
    const auto found = by_name_.find(name);
    return found == by_name_.end() ? nullptr : found->second;
  }
  const SafetensorsTensor& at(const std::string& name) const {
    const SafetensorsTensor* tensor = find(name);
    if (tensor == nullptr) fail(ErrorKind::kMalformed, "there is no tensor ", quoted(name));
    return *tensor;
  }
  const std::byte* data(const SafetensorsTensor& tensor) const {
    return file_.parts[tensor.part]->data + tensor.offset;
  }

  // The elements of a tensor of floats, in float32.
  std::vector<float> floats(const SafetensorsTensor& tensor) const {
    const std::byte* from = data(tensor);
    std::vector<float> values(tensor.shape.elements());
    const auto read = [&](auto* type) {
      for (size_t i = 0; i < values.size(); ++i) {
        std::remove_pointer_t<decltype(type)> value;
        std::memcpy(&value, from + i * sizeof value, sizeof value);
        if constexpr (std::is_same_v<decltype(type), float*>) {
          values[i] = value;
        } else {
          values[i] = to_float(value);
        }
      }
    };
    if (tensor.type == "F16") {
      read(static_cast<f16*>(nullptr));
    } else if (tensor.type == "BF16") {
      read(static_cast<bf16*>(nullptr));
    } else {
      check_type(tensor, "F32");
      read(static_cast<float*>(nullptr));
    }
    return values;
  }

  // Of a tensor that is read no more: its pages need not stay in memory.
  void drop(const std::string& name) const {
    if (const SafetensorsTensor* tensor = find(name)) {
      drop_pages(*file_.parts[tensor->part], {data(*tensor), tensor->bytes});
    }
  }

  static void check_type(const SafetensorsTensor& tensor, std::string_view type) {
    if (tensor.type == type) return;
    fail(ErrorKind::kMalformed, "tensor ", quoted(tensor.name), ": found ", tensor.type,
         ", expected ", type);
  }
  static void check_shape(const SafetensorsTensor& tensor, const Shape& shape) {
    if (tensor.shape == shape) return;
    fail(ErrorKind::kMalformed, "tensor ", quoted(tensor.name), ": found the shape ",
         to_string(tensor.shape), ", expected ", to_string(shape));
  }

 private:
  const SafetensorsFile& file_;
  std::unordered_map<std::string_view, const SafetensorsTensor*> by_name_;
};

namespace {

constexpr std::string_view kTakeAnother = "; take the model in BF16 or F16, or a GGUF file of it";

// Bits of a code, or columns of a group, as configs say them.
constexpr int64_t kMostBits = 8, kMostGroup = int64_t{1} << 30;

// A tensor that must have two axes, which are not empty.
const SafetensorsTensor& matrix(const PackedFile& file, const std::string& name) {
  const SafetensorsTensor& tensor = file.at(name);
  if (tensor.shape.rank() != 2 || tensor.shape.elements() == 0) {
    fail(ErrorKind::kMalformed, "tensor ", quoted(name), ": found the shape ",
         to_string(tensor.shape), ", expected a matrix");
  }
  return tensor;
}

// Columns of the matrix whose rows have `words` words of 32 bits.
int64_t columns_of(const SafetensorsTensor& tensor, int64_t words, int bits) {
  const int64_t cols = words * 32 / bits;
  if (cols * bits != words * 32) {
    fail(ErrorKind::kMalformed, "tensor ", quoted(tensor.name), ": ", words,
         " words are no whole number of codes of ", bits, " bits");
  }
  return cols;
}

// Number `i` of those of `bits` bits each in `count` words of 32.
int number_at(const std::byte* words, int64_t count, int64_t i, int bits) {
  const int64_t first = i * bits / 32;
  uint64_t word = 0;  // with the next, in which the number may go on
  std::memcpy(&word, words + 4 * first, first + 1 < count ? 8 : 4);
  return static_cast<int>(word >> (i * bits % 32) & ((1 << bits) - 1));
}

// Codes and zero points fill whole words.
void check_whole_words(const SafetensorsTensor& tensor, int64_t numbers, int bits) {
  if (numbers * bits % 32 == 0) return;
  fail(ErrorKind::kUnsupported, "tensor ", quoted(tensor.name), ": ", numbers, " numbers of ", bits,
       " bits do not fill whole words", kTakeAnother);
}

// Sets the groups of `m`'s columns: `group` columns each, one group if it is not positive, or as
// the tensor `name` says, if there is one.
void set_groups(const PackedFile& file, const std::string& name, int64_t group, CodedMatrix& m) {
  if (group <= 0) group = m.cols;
  m.groups = (m.cols + group - 1) / group;
  std::vector<int32_t> in_order(m.cols);
  for (int64_t c = 0; c < m.cols; ++c) in_order[c] = static_cast<int32_t>(c / group);
  m.group_of = in_order;
  if (const SafetensorsTensor* index = file.find(name)) {
    PackedFile::check_type(*index, "I32");
    PackedFile::check_shape(*index, {m.cols});
    std::memcpy(m.group_of.data(), file.data(*index), m.cols * sizeof(int32_t));
    for (const int32_t g : m.group_of) {
      if (g >= 0 && g < m.groups) continue;
      fail(ErrorKind::kMalformed, "tensor ", quoted(name), ": found group ", g, ", expected 0 to ",
           m.groups - 1);
    }
  }
  if (m.cols % m.groups == 0 && m.group_of == in_order) m.group_of.clear();
}

// Where one of a word's eight rows is in AWQ's zero points.
int64_t awq_place(int64_t row) {
  constexpr int kPlace[8] = {0, 4, 1, 5, 2, 6, 3, 7};
  return row / 8 * 8 + kPlace[row % 8];
}

// gptq and awq, whose scales and zero points are [groups, out].
Array unpack_columns(const PackedFile& file, const std::string& layer, int bits, int64_t group,
                     CodeOrder order, int added_to_zeros) {
  const bool is_awq = order == CodeOrder::kAwq;
  const SafetensorsTensor& codes = matrix(file, layer + ".qweight");
  const SafetensorsTensor& zeros = matrix(file, layer + ".qzeros");
  const SafetensorsTensor& scales = matrix(file, layer + ".scales");
  PackedFile::check_type(codes, "I32");
  PackedFile::check_type(zeros, "I32");
  CodedMatrix m{.bits = bits, .order = order, .words = file.data(codes)};
  m.rows = is_awq ? columns_of(codes, codes.shape[1], bits) : codes.shape[1];
  m.cols = is_awq ? codes.shape[0] : columns_of(codes, codes.shape[0], bits);
  check_whole_words(zeros, m.rows, bits);
  set_groups(file, layer + ".g_idx", group, m);
  const int64_t zero_words = code_words(m.rows, bits);
  PackedFile::check_shape(scales, {m.groups, m.rows});
  PackedFile::check_shape(zeros, {m.groups, zero_words});
  const std::vector<float> stored = file.floats(scales);
  m.scale.resize(stored.size());
  m.offset.resize(stored.size());
  for (int64_t g = 0; g < m.groups; ++g) {
    const std::byte* words = file.data(zeros) + 4 * g * zero_words;
    for (int64_t r = 0; r < m.rows; ++r) {
      const int stored_zero = number_at(words, zero_words, is_awq ? awq_place(r) : r, bits);
      const int zero = (stored_zero + added_to_zeros) & ((1 << bits) - 1);
      const float scale = stored[g * m.rows + r];
      m.scale[r * m.groups + g] = scale;
      m.offset[r * m.groups + g] = -scale * static_cast<float>(zero);
    }
  }
  return unpacked(m);
}

// MLX: X.weight [out, words], scales and biases [out, groups].
Array unpack_mlx(const PackedFile& file, const std::string& layer, int64_t group) {
  const SafetensorsTensor& codes = matrix(file, layer + ".weight");
  const SafetensorsTensor& scales = matrix(file, layer + ".scales");
  const SafetensorsTensor& offsets = file.at(layer + ".biases");
  PackedFile::check_type(codes, "U32");
  PackedFile::check_shape(scales, {codes.shape[0], scales.shape[1]});
  PackedFile::check_shape(offsets, scales.shape);
  CodedMatrix m{.rows = codes.shape[0], .words = file.data(codes), .groups = scales.shape[1]};
  m.cols = (Checked(static_cast<uint64_t>(m.groups)) * static_cast<uint64_t>(group)).value();
  m.bits = static_cast<int>(std::min(codes.shape[1] * 32 / m.cols, kMostBits + 1));
  if (m.bits < 1 || m.bits > kMostBits || m.bits * m.cols != codes.shape[1] * 32) {
    fail(ErrorKind::kMalformed, "tensor ", quoted(codes.name), ": ", codes.shape[1],
         " words do not fit ", m.cols, " columns, ", group, " for each of ", m.groups, " scales");
  }
  m.scale = file.floats(scales);
  m.offset = file.floats(offsets);
  return unpacked(m);
}

// Extents of the blocks that share a scale; not positive: all there is.
struct ScaleBlock {
  int64_t rows = 0, cols = 0;
};

// 8-bit floats [out, in]. The scales are one, or [out, groups], or one for each `block`.
Array unpack_floats(const PackedFile& file, const std::string& layer, const std::string& scale_name,
                    ScaleBlock block) {
  const SafetensorsTensor& values = matrix(file, layer + ".weight");
  const SafetensorsTensor& scales = file.at(scale_name);
  PackedFile::check_type(values, "F8_E4M3");
  const int64_t rows = values.shape[0], cols = values.shape[1];
  if (scales.shape.elements() == 1) {
    block = {rows, cols};
  } else {
    matrix(file, scale_name);
    if (block.rows <= 0) block = {1, (cols + scales.shape[1] - 1) / scales.shape[1]};
    const auto blocks = [](int64_t extent, int64_t each) { return (extent + each - 1) / each; };
    PackedFile::check_shape(scales, {blocks(rows, block.rows), blocks(cols, block.cols)});
  }
  return unpacked_e4m3(file.data(values), rows, cols, file.floats(scales), block.rows, block.cols);
}

// compressed-tensors' integers: codes [out, words], or int8 [out, in]; scales [out, groups] or one;
// zero points, if any, as words along the rows, [words, groups], or int8 like the scales.
Array unpack_compressed(const PackedFile& file, const std::string& layer, int bits) {
  const bool is_packed = file.find(layer + ".weight_packed") != nullptr;
  const SafetensorsTensor& codes = matrix(file, layer + (is_packed ? ".weight_packed" : ".weight"));
  const SafetensorsTensor& scales = file.at(layer + ".weight_scale");
  const SafetensorsTensor* zeros = file.find(layer + ".weight_zero_point");
  PackedFile::check_type(codes, is_packed ? "I32" : "I8");
  CodedMatrix m{.rows = codes.shape[0], .bits = is_packed ? bits : 8};
  m.cols = is_packed ? columns_of(codes, codes.shape[1], bits) : codes.shape[1];
  check_whole_words(codes, m.cols, m.bits);
  const bool is_single = scales.shape.elements() == 1;
  const int64_t groups = is_single ? 1 : matrix(file, scales.name).shape[1];
  set_groups(file, layer + ".weight_g_idx", (m.cols + groups - 1) / groups, m);
  if (!is_single) PackedFile::check_shape(scales, {m.rows, m.groups});
  m.scale = file.floats(scales);
  if (is_single) m.scale.assign(m.rows, m.scale[0]);
  if (zeros != nullptr) {
    PackedFile::check_type(*zeros, is_packed ? "I32" : "I8");
    if (is_packed) check_whole_words(*zeros, m.rows, bits);
    PackedFile::check_shape(*zeros,
                            is_packed ? Shape{code_words(m.rows, bits), m.groups} : scales.shape);
  }
  // A number among the integers around zero, counted from the lowest.
  const auto zero_of = [&](int64_t row, int64_t group) {
    if (zeros == nullptr) return 1 << (m.bits - 1);
    const std::byte* from = file.data(*zeros);
    if (!is_packed) {
      return static_cast<int>(static_cast<int8_t>(from[is_single ? 0 : row * m.groups + group])) +
             128;
    }
    return number_at(from + 4 * (row * bits / 32 * m.groups + group), 1, row % (32 / bits), bits);
  };
  m.offset.resize(m.scale.size());
  for (int64_t r = 0; r < m.rows; ++r) {
    for (int64_t g = 0; g < m.groups; ++g) {
      const int64_t at = r * m.groups + g;
      m.offset[at] = -m.scale[at] * static_cast<float>(zero_of(r, g));
    }
  }
  m.words = file.data(codes);
  std::vector<std::byte> counted;
  if (!is_packed) {
    counted.assign(m.words, m.words + m.rows * m.cols);
    for (std::byte& code : counted) code ^= std::byte{128};
    m.words = counted.data();
  }
  return unpacked(m);
}

[[noreturn]] void fail_variant(const Json& packing, std::string_view key,
                               std::string_view expected) {
  fail(ErrorKind::kUnsupported, "key ", quoted(key), ": found ", describe(find(packing, key)),
       ", Lumen unpacks ", expected, kTakeAnother);
}

Packing gptq_packing(const Json& packing) {
  const auto bits = static_cast<int>(get_int(packing, "bits", 1, 64));
  if (bits != 2 && bits != 3 && bits != 4 && bits != 8) {
    fail_variant(packing, "bits", "2, 3, 4 and 8");
  }
  const std::string format = get_string(packing, "checkpoint_format", "gptq");
  if (format != "gptq" && format != "gptq_v2") {
    fail_variant(packing, "checkpoint_format", "'gptq' and 'gptq_v2'");
  }
  const int64_t group = get_int(packing, "group_size", -1, kMostGroup);
  const int added = format == "gptq" ? 1 : 0;  // it stores zero points less one
  return {".qweight",
          {".qzeros", ".scales", ".g_idx"},
          [=](const PackedFile& file, const std::string& layer) {
            return unpack_columns(file, layer, bits, group, CodeOrder::kColumns, added);
          }};
}

Packing awq_packing(const Json& packing) {
  // Older files have names of their own.
  const char* bits = find_value(packing, "bits") != nullptr ? "bits" : "w_bit";
  const char* size = find_value(packing, "group_size") != nullptr ? "group_size" : "q_group_size";
  if (get_int(packing, bits, 1, 64) != 4) fail_variant(packing, bits, "4");
  const std::string version = get_string(packing, "version", "gemm");
  if (version != "gemm" && version != "GEMM") {
    fail_variant(packing, "version", "'gemm'");
  }
  const int64_t group = get_int(packing, size, -1, kMostGroup);
  return {
      ".qweight", {".qzeros", ".scales"}, [=](const PackedFile& file, const std::string& layer) {
        return unpack_columns(file, layer, 4, group, CodeOrder::kAwq, 0);
      }};
}

// The two extents under `key`; none if it is not there.
ScaleBlock block_of(const Json& object, std::string_view key) {
  const Json* extents = find_value(object, key);
  if (extents == nullptr) return {};
  const auto is_extent = [](const Json& n) {
    return n.is_number_integer() && n >= 1 && n <= kMostGroup;
  };
  if (!extents->is_array() || extents->size() != 2 ||
      !std::all_of(extents->begin(), extents->end(), is_extent)) {
    fail(ErrorKind::kMalformed, "key ", quoted(key), ": found ", describe(extents),
         ", expected two integers ≥ 1");
  }
  return {(*extents)[0].get<int64_t>(), (*extents)[1].get<int64_t>()};
}

Packing fp8_packing(const Json& packing) {
  const ScaleBlock block = block_of(packing, "weight_block_size");
  return {".weight_scale_inv",
          {".weight", ".input_scale", ".activation_scale"},
          [=](const PackedFile& file, const std::string& layer) {
            return unpack_floats(file, layer, layer + ".weight_scale_inv", block);
          }};
}

// The "weights" of the only group in "config_groups".
const Json& compressed_weights(const Json& packing) {
  const Json* groups = find_value(packing, "config_groups");
  if (groups == nullptr || !groups->is_object() || groups->empty()) {
    fail(ErrorKind::kMalformed, "key 'config_groups': found ", describe(groups),
         ", expected an object with a group");
  }
  if (groups->size() > 1) {
    fail(ErrorKind::kUnsupported, "key 'config_groups': found ", groups->size(),
         " groups, Lumen unpacks one", kTakeAnother);
  }
  const Json* weights = find_value(*groups->begin(), "weights");
  if (weights == nullptr || !weights->is_object()) {
    fail(ErrorKind::kMalformed, "key 'weights': found ", describe(weights), ", expected an object");
  }
  return *weights;
}

Packing compressed_packing(const Json& packing) {
  const Json& weights = compressed_weights(packing);
  const std::string format = get_string(packing, "format");
  const auto bits = static_cast<int>(get_int(weights, "num_bits", 1, 64));
  const bool is_float = format == "float-quantized";
  if (!is_float && format != "pack-quantized" && format != "int-quantized") {
    fail_variant(packing, "format", "'pack-quantized', 'int-quantized' and 'float-quantized'");
  }
  if (bits != 8 && (bits != 4 || format != "pack-quantized")) {
    fail_variant(weights, "num_bits", format == "pack-quantized" ? "4 and 8" : "8");
  }
  const ScaleBlock block = block_of(weights, "block_structure");
  return {".weight_scale",
          {".weight", ".weight_packed", ".weight_shape", ".weight_zero_point", ".weight_g_idx",
           ".input_scale", ".input_zero_point", ".input_global_scale", ".output_scale"},
          [=](const PackedFile& file, const std::string& layer) {
            return is_float ? unpack_floats(file, layer, layer + ".weight_scale", block)
                            : unpack_compressed(file, layer, bits);
          }};
}

// `packing`: groups of the model, and of layers that differ under their names.
Packing mlx_packing(const Json& packing) {
  if (get_string(packing, "mode", "affine") != "affine") fail_variant(packing, "mode", "'affine'");
  return {".scales",
          {".weight", ".biases"},
          [packing](const PackedFile& file, const std::string& layer) {
            const Json* own = find_value(packing, layer);
            return unpack_mlx(file, layer,
                              get_int(own != nullptr && own->is_object() ? *own : packing,
                                      "group_size", 1, kMostGroup));
          }};
}

constexpr std::pair<std::string_view, Packing (*)(const Json& packing)> kMethods[] = {
    {"gptq", gptq_packing},
    {"awq", awq_packing},
    {"fp8", fp8_packing},
    {"compressed-tensors", compressed_packing},
};

// The layer of the tensor `name` if it ends in `suffix`; "" otherwise.
std::string layer_before(std::string_view name, std::string_view suffix) {
  return name.ends_with(suffix) ? std::string(name.substr(0, name.size() - suffix.size())) : "";
}

// Whether the tensor is a scale of keys, values or what else other programs round as they compute.
bool is_cache_scale(std::string_view name) {
  return name.ends_with(".k_scale") || name.ends_with(".v_scale") || name.ends_with(".q_scale");
}

// A bias of zeros, which some gptq files give layers that have none.
bool is_zero_bias(const PackedFile& file, const Packing& packing, const SafetensorsTensor& tensor) {
  const std::string layer = layer_before(tensor.name, ".bias");
  if (layer.empty() || file.find(layer + std::string(packing.mark)) == nullptr) return false;
  for (const char* name : {".q_proj", ".k_proj", ".v_proj"}) {
    if (layer.ends_with(name)) return false;  // Qwen2's may be zero too
  }
  const std::byte* data = file.data(tensor);
  return std::all_of(data, data + tensor.bytes, [](std::byte b) { return b == std::byte{0}; });
}

}  // namespace

std::shared_ptr<const Packing> packing_of(const Json& config) {
  if (const Json* packing = find_value(config, "quantization")) {
    return with_context("key 'quantization'",
                        [&] { return std::make_shared<Packing>(mlx_packing(*packing)); });
  }
  const Json* packing = find_value(config, "quantization_config");
  if (packing == nullptr) return nullptr;
  return with_context("key 'quantization_config'", [&]() -> std::shared_ptr<const Packing> {
    const std::string method = get_string(*packing, "quant_method");
    for (const auto& [name, read] : kMethods) {
      if (method == name) return std::make_shared<Packing>(read(*packing));
    }
    fail_variant(*packing, "quant_method", "'gptq', 'awq', 'fp8', 'compressed-tensors' and MLX's");
  });
}

void erase_packing(Json& config) {
  config.erase("quantization_config");
  config.erase("quantization");
}

NamedArrays unpacked_weights(const SafetensorsFile& stored, const Packing& packing) {
  const PackedFile file(stored);
  const std::string mark(packing.mark);
  const auto is_part = [&](std::string_view name) {
    return std::any_of(packing.parts.begin(), packing.parts.end(), [&](std::string_view part) {
      const std::string layer = layer_before(name, part);
      return !layer.empty() && file.find(layer + mark) != nullptr;
    });
  };
  NamedArrays arrays;
  for (const SafetensorsTensor& tensor : stored.tensors) {
    if (const std::string layer = layer_before(tensor.name, mark); !layer.empty()) {
      const auto [at, is_new] = arrays.emplace(layer + ".weight", packing.unpack(file, layer));
      if (!is_new) fail(ErrorKind::kMalformed, "tensor ", quoted(at->first), " is there twice");
      file.drop(tensor.name);
      for (std::string_view part : packing.parts) file.drop(layer + std::string(part));
    } else if (!is_part(tensor.name) && !is_cache_scale(tensor.name) &&
               !is_zero_bias(file, packing, tensor)) {
      arrays.emplace(tensor.name, stored.array(tensor));
    }
  }
  return arrays;
}

}  // namespace lumen::io
