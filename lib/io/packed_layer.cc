#include "lib/io/packed_layer.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>
#include <utility>

#include "lib/base/checked.h"
#include "lib/base/error.h"
#include "lib/base/round_up.h"
#include "lib/io/mapped_file.h"

namespace lumen::io {
namespace {

void check_type(const SafetensorsTensor& tensor, std::string_view type) {
  if (tensor.type == type) return;
  fail(ErrorKind::kMalformed, "tensor ", quoted(tensor.name), ": found ", tensor.type,
       ", expected ", type);
}

void check_shape(const SafetensorsTensor& tensor, const Shape& shape) {
  if (tensor.shape == shape) return;
  fail(ErrorKind::kMalformed, "tensor ", quoted(tensor.name), ": found the shape ",
       to_string(tensor.shape), ", expected ", to_string(shape));
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
  m.groups = divide_up(m.cols, group);
  std::vector<int32_t> in_order(m.cols);
  for (int64_t c = 0; c < m.cols; ++c) in_order[c] = static_cast<int32_t>(c / group);
  m.group_of = in_order;
  if (const SafetensorsTensor* index = file.find(name)) {
    check_type(*index, "I32");
    check_shape(*index, {m.cols});
    std::memcpy(m.group_of.data(), file.data(*index), m.cols * sizeof(int32_t));
    for (const int32_t g : m.group_of) {
      if (g >= 0 && g < m.groups) continue;
      fail(ErrorKind::kMalformed, "tensor ", quoted(name), ": found group ", g, ", expected 0 to ",
           m.groups - 1);
    }
  }
  if (m.cols % m.groups == 0 && m.group_of == in_order) m.group_of.clear();
}

// The matrix whose codes are the int8 `codes`, of which those of `m` count from −128.
Array unpacked_signed(const std::byte* codes, CodedMatrix& m) {
  std::vector<std::byte> counted(codes, codes + m.rows * m.cols);
  for (std::byte& code : counted) code ^= std::byte{128};
  m.words = counted.data();
  return unpacked(m);
}

// Where one of a word's eight rows is in AWQ's zero points.
int64_t awq_place(int64_t row) {
  constexpr int kPlace[8] = {0, 4, 1, 5, 2, 6, 3, 7};
  return row / 8 * 8 + kPlace[row % 8];
}

}  // namespace

PackedFile::PackedFile(const SafetensorsFile& file) : file_(file) {
  for (const SafetensorsTensor& tensor : file.tensors) by_name_.emplace(tensor.name, &tensor);
}

const SafetensorsTensor* PackedFile::find(const std::string& name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : found->second;
}

const SafetensorsTensor& PackedFile::at(const std::string& name) const {
  const SafetensorsTensor* tensor = find(name);
  if (tensor == nullptr) fail(ErrorKind::kMalformed, "there is no tensor ", quoted(name));
  return *tensor;
}

const SafetensorsTensor& PackedFile::matrix(const std::string& name) const {
  const SafetensorsTensor& tensor = at(name);
  if (tensor.shape.rank() != 2 || tensor.shape.elements() == 0) {
    fail(ErrorKind::kMalformed, "tensor ", quoted(name), ": found the shape ",
         to_string(tensor.shape), ", expected a matrix");
  }
  return tensor;
}

std::vector<float> PackedFile::floats(const SafetensorsTensor& tensor) const {
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

void PackedFile::drop(const std::string& name) const {
  if (const SafetensorsTensor* tensor = find(name)) {
    drop_pages(*file_.parts[tensor->part], {data(*tensor), tensor->bytes});
  }
}

MatrixExtents extents_at(const Json& object, std::string_view key) {
  const Json* extents = find_value(object, key);
  const auto is_extent = [](const Json& n) {
    return n.is_number_integer() && n >= 1 && n <= kMostPacked;
  };
  if (extents == nullptr || !extents->is_array() || extents->size() != 2 ||
      !std::all_of(extents->begin(), extents->end(), is_extent)) {
    fail(ErrorKind::kMalformed, "key ", quoted(key), ": found ", describe(extents),
         ", expected two integers ≥ 1");
  }
  return {(*extents)[0].get<int64_t>(), (*extents)[1].get<int64_t>()};
}

// gptq and awq, whose scales and zero points are [groups, out].
Array unpack_columns(const PackedFile& file, const std::string& layer, int bits, int64_t group,
                     CodeOrder order, int added_to_zeros) {
  const bool is_awq = order == CodeOrder::kAwq;
  const SafetensorsTensor& codes = file.matrix(layer + ".qweight");
  const SafetensorsTensor& zeros = file.matrix(layer + ".qzeros");
  const SafetensorsTensor& scales = file.matrix(layer + ".scales");
  check_type(codes, "I32");
  check_type(zeros, "I32");
  CodedMatrix m{.bits = bits, .order = order, .words = file.data(codes)};
  m.rows = is_awq ? columns_of(codes, codes.shape[1], bits) : codes.shape[1];
  m.cols = is_awq ? codes.shape[0] : columns_of(codes, codes.shape[0], bits);
  check_whole_words(zeros, m.rows, bits);
  set_groups(file, layer + ".g_idx", group, m);
  const int64_t zero_words = code_words(m.rows, bits);
  check_shape(scales, {m.groups, m.rows});
  check_shape(zeros, {m.groups, zero_words});
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
  const SafetensorsTensor& codes = file.matrix(layer + ".weight");
  const SafetensorsTensor& scales = file.matrix(layer + ".scales");
  const SafetensorsTensor& offsets = file.at(layer + ".biases");
  check_type(codes, "U32");
  check_shape(scales, {codes.shape[0], scales.shape[1]});
  check_shape(offsets, scales.shape);
  CodedMatrix m{.rows = codes.shape[0], .words = file.data(codes), .groups = scales.shape[1]};
  m.cols = (Checked(static_cast<uint64_t>(m.groups)) * static_cast<uint64_t>(group)).value();
  m.bits = static_cast<int>(std::min(codes.shape[1] * 32 / m.cols, int64_t{9}));
  if (m.bits < 1 || m.bits > 8 || m.bits * m.cols != codes.shape[1] * 32) {
    fail(ErrorKind::kMalformed, "tensor ", quoted(codes.name), ": ", codes.shape[1],
         " words do not fit ", m.cols, " columns, ", group, " for each of ", m.groups, " scales");
  }
  m.scale = file.floats(scales);
  m.offset = file.floats(offsets);
  return unpacked(m);
}

// 8-bit floats [out, in]. The scales are one, or [out, groups], or one for each `block`.
Array unpack_floats(const PackedFile& file, const std::string& layer, const std::string& scale_name,
                    MatrixExtents block) {
  const SafetensorsTensor& values = file.matrix(layer + ".weight");
  const SafetensorsTensor& scales = file.at(scale_name);
  check_type(values, "F8_E4M3");
  const int64_t rows = values.shape[0], cols = values.shape[1];
  if (scales.shape.elements() == 1) {
    block = {rows, cols};
  } else {
    file.matrix(scale_name);
    if (block.rows <= 0) block = {1, divide_up(cols, scales.shape[1])};
    check_shape(scales, {divide_up(rows, block.rows), divide_up(cols, block.cols)});
  }
  return unpacked_e4m3(file.data(values), rows, cols, file.floats(scales), block.rows, block.cols);
}

// compressed-tensors' integers: codes [out, words], or int8 [out, in]; scales [out, groups] or one;
// zero points, if any, as words along the rows, [words, groups], or int8 like the scales.
Array unpack_compressed(const PackedFile& file, const std::string& layer, int bits) {
  const bool is_packed = file.find(layer + ".weight_packed") != nullptr;
  const SafetensorsTensor& codes = file.matrix(layer + (is_packed ? ".weight_packed" : ".weight"));
  const SafetensorsTensor& scales = file.at(layer + ".weight_scale");
  const SafetensorsTensor* zeros = file.find(layer + ".weight_zero_point");
  check_type(codes, is_packed ? "I32" : "I8");
  CodedMatrix m{.rows = codes.shape[0], .bits = is_packed ? bits : 8};
  m.cols = is_packed ? columns_of(codes, codes.shape[1], bits) : codes.shape[1];
  check_whole_words(codes, m.cols, m.bits);
  const bool is_single = scales.shape.elements() == 1;
  const int64_t groups = is_single ? 1 : file.matrix(scales.name).shape[1];
  set_groups(file, layer + ".weight_g_idx", divide_up(m.cols, groups), m);
  if (!is_single) check_shape(scales, {m.rows, m.groups});
  m.scale = file.floats(scales);
  if (is_single) m.scale.assign(m.rows, m.scale[0]);
  if (zeros != nullptr) {
    check_type(*zeros, is_packed ? "I32" : "I8");
    if (is_packed) check_whole_words(*zeros, m.rows, bits);
    check_shape(*zeros, is_packed ? Shape{code_words(m.rows, bits), m.groups} : scales.shape);
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
  if (!is_packed) return unpacked_signed(file.data(codes), m);
  m.words = file.data(codes);
  return unpacked(m);
}

Array unpack_int8(const PackedFile& file, const std::string& layer) {
  const SafetensorsTensor& codes = file.matrix(layer + ".weight");
  const SafetensorsTensor& largest = file.at(layer + ".SCB");
  check_type(codes, "I8");
  CodedMatrix m{.rows = codes.shape[0], .cols = codes.shape[1], .bits = 8};
  check_whole_words(codes, m.cols, m.bits);
  if (largest.shape.elements() != m.rows) check_shape(largest, {m.rows});
  m.scale = file.floats(largest);
  for (float& scale : m.scale) scale /= 127;
  m.offset = m.scale;
  for (float& offset : m.offset) offset *= -128;
  return unpacked_signed(file.data(codes), m);
}

Array unpack_ternary(const PackedFile& file, const std::string& layer, bool divides) {
  const SafetensorsTensor& packed = file.matrix(layer + ".weight");
  const SafetensorsTensor& scale = file.at(layer + ".weight_scale");
  check_type(packed, "U8");
  if (scale.shape.elements() != 1) check_shape(scale, {1});
  const int64_t quarter = packed.shape[0] * packed.shape[1];
  TernaryMatrix m{.rows = 4 * packed.shape[0], .cols = packed.shape[1], .scale = 0};
  const float said = file.floats(scale)[0];
  m.scale = divides ? 1 / said : said;
  if (!std::isfinite(m.scale)) {
    fail(ErrorKind::kMalformed, "tensor ", quoted(scale.name), ": found ", said,
         divides ? ", which weights cannot be divided by" : ", expected a finite number");
  }
  m.codes.resize(static_cast<size_t>(4 * quarter));
  const std::byte* const from = file.data(packed);
  for (int64_t i = 0; i < quarter; ++i) {
    for (int part = 0; part < 4; ++part) {
      const auto code = std::to_integer<uint8_t>(from[i] >> (2 * part)) & 3;
      if (code == 3) {
        fail(ErrorKind::kMalformed, "tensor ", quoted(packed.name),
             ": found the code 3, expected 0, 1 or 2 for -1, 0 and 1");
      }
      m.codes[static_cast<size_t>(part * quarter + i)] = static_cast<uint8_t>(code);
    }
  }
  return unpacked(m);
}

Array round_to_ternary(const PackedFile& file, const std::string& layer) {
  const SafetensorsTensor& stored = file.matrix(layer + ".weight");
  const std::vector<float> weights = file.floats(stored);
  double sum = 0;
  for (const float w : weights) sum += std::fabs(w);
  const float mean = static_cast<float>(std::max(sum / static_cast<double>(weights.size()), 1e-5));
  if (!std::isfinite(mean)) {
    fail(ErrorKind::kMalformed, "tensor ", quoted(stored.name), " has a number that is not finite");
  }
  TernaryMatrix m{.rows = stored.shape[0], .cols = stored.shape[1]};
  const float inverse = 1 / mean, scale = 1 / inverse;
  m.scale = stored.type == "BF16"  ? to_float(to_bf16(scale))
            : stored.type == "F16" ? to_float(to_f16(scale))
                                   : scale;
  m.codes.resize(weights.size());
  for (size_t i = 0; i < weights.size(); ++i) {
    const float nearest = std::nearbyint(weights[i] * inverse);
    m.codes[i] = static_cast<uint8_t>(1 + std::clamp(nearest, -1.0f, 1.0f));
  }
  return unpacked(m);
}

Array unpack_table(const PackedFile& file, const std::string& layer) {
  const std::string weight = layer + ".weight", state_name = weight + ".quant_state.bitsandbytes__";
  const SafetensorsTensor& codes = file.at(weight);
  const SafetensorsTensor& scales = file.at(weight + ".absmax");
  const SafetensorsTensor& table = file.at(weight + ".quant_map");
  const SafetensorsTensor* state = file.find(state_name + "nf4");
  if (state == nullptr) state = &file.at(state_name + "fp4");
  check_type(codes, "U8");
  check_shape(table, {16});
  const std::string_view text(reinterpret_cast<const char*>(file.data(*state)), state->bytes);
  const Json description = parse_json(text, str("tensor ", quoted(state->name)));
  return with_context(str("tensor ", quoted(state->name)), [&] {
    const MatrixExtents shape = extents_at(description, "shape");
    TableMatrix m{.rows = shape.rows, .cols = shape.cols};
    const int64_t elements = m.rows * m.cols;
    if (codes.shape.elements() != divide_up(elements, 2))
      check_shape(codes, {divide_up(elements, 2), 1});
    m.block = get_int(description, "blocksize", 1, kMostPacked);
    const int64_t blocks = divide_up(elements, m.block);
    check_shape(scales, {blocks});
    m.codes = file.data(codes);
    m.table = file.floats(table);
    if (find_value(description, "nested_blocksize") == nullptr) {
      m.scale = file.floats(scales);
      return unpacked(m);
    }
    const int64_t nested = get_int(description, "nested_blocksize", 1, kMostPacked);
    const double offset = get_number(description, "nested_offset", -1e30, 1e30);
    const SafetensorsTensor& outer = file.at(weight + ".nested_absmax");
    const SafetensorsTensor& outer_table = file.at(weight + ".nested_quant_map");
    check_type(scales, "U8");
    check_shape(outer, {divide_up(blocks, nested)});
    check_shape(outer_table, {256});
    const std::vector<float> largest = file.floats(outer), values = file.floats(outer_table);
    const std::byte* rounded = file.data(scales);
    m.scale.resize(blocks);
    for (int64_t i = 0; i < blocks; ++i) {
      const float value = values[std::to_integer<size_t>(rounded[i])] * largest[i / nested];
      m.scale[i] = value + static_cast<float>(offset);
    }
    return unpacked(m);
  });
}
}  // namespace lumen::io
