// The layers of packed_weights.h: the tensors that each consists of, and its weight unpacked from
// them. For this room only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "lib/io/coded_matrix.h"
#include "lib/io/json.h"
#include "lib/io/safetensors.h"

namespace lumen::io {

// What to do about a file that Lumen does not unpack: the end of a sentence.
inline constexpr std::string_view kTakeAnother =
    "; take the model in BF16 or F16, or a GGUF file of it";

// The tensors of a file by name, with their bytes. Throws Error(kMalformed) naming the tensor.
class PackedFile {
 public:
  explicit PackedFile(const SafetensorsFile& file);

  // Null if there is none.
  const SafetensorsTensor* find(const std::string& name) const;
  const SafetensorsTensor& at(const std::string& name) const;
  // One that must have two axes, which are not empty.
  const SafetensorsTensor& matrix(const std::string& name) const;

  const std::byte* data(const SafetensorsTensor& tensor) const {
    return file_.parts[tensor.part]->data + tensor.offset;
  }
  // The elements of a tensor of F16, BF16 or F32, in float32.
  std::vector<float> floats(const SafetensorsTensor& tensor) const;

  // Of a tensor that is read no more: its pages need not stay in memory.
  void drop(const std::string& name) const;

 private:
  const SafetensorsFile& file_;
  std::unordered_map<std::string_view, const SafetensorsTensor*> by_name_;
};

// The most columns of a group, of a block or of a matrix, as files say them.
inline constexpr int64_t kMostPacked = int64_t{1} << 30;

// Of a matrix, or of the blocks that share a scale, which not positive are all there is.
struct MatrixExtents {
  int64_t rows = 0, cols = 0;
};

// The two extents under `key` of `object`. Throws Error(kMalformed) unless there are two from 1 to
// kMostPacked.
MatrixExtents extents_at(const Json& object, std::string_view key);

// Each gives the weight [out, in] of the layer that is called `layer`. They throw Error: kMalformed
// for missing tensors, or shapes or types that do not fit; kUnsupported for codes that do not fill
// whole words; as unpacked (coded_matrix.h).

// gptq and awq: codes of `bits`, in `order`; scales and zero points [groups, out] of `group`
// columns each, all if it is not positive. What is added to stored zero points is added modulo
// 2^bits.
Array unpack_columns(const PackedFile& file, const std::string& layer, int bits, int64_t group,
                     CodeOrder order, int added_to_zeros);

// MLX: X.weight [out, words], scales and biases [out, groups] of `group` columns each.
Array unpack_mlx(const PackedFile& file, const std::string& layer, int64_t group);

// 8-bit floats [out, in]. The scales are one, or [out, groups], or one for each `block`.
Array unpack_floats(const PackedFile& file, const std::string& layer, const std::string& scale_name,
                    MatrixExtents block);

// compressed-tensors' integers: codes of `bits` [out, words], or int8 [out, in]; scales
// [out, groups] or one; zero points, if any, as words along the rows, [words, groups], or int8 like
// the scales.
Array unpack_compressed(const PackedFile& file, const std::string& layer, int bits);

// bitsandbytes: int8 [out, in], and X.SCB [out], which 127 stands for.
Array unpack_int8(const PackedFile& file, const std::string& layer);

// BitNet: codes 0, 1 and 2 for −1, 0 and 1 in bytes [out / 4, in], of which bits 2i and 2i + 1 are
// those of the i-th quarter of the rows, and X.weight_scale [1], which weights are multiplied by,
// or divided by.
Array unpack_ternary(const PackedFile& file, const std::string& layer, bool divides);

// BitNet before it is packed: floats [out, in], in place of which layers compute with s · (−1, 0 or
// 1), s being the mean of their sizes, rounded as they are, and the closest of the three.
Array round_to_ternary(const PackedFile& file, const std::string& layer);

// bitsandbytes: nibbles for numbers of a table, the first in the upper half of its byte, and a
// scale for some consecutive elements, which may be rounded to another table.
Array unpack_table(const PackedFile& file, const std::string& layer);

}  // namespace lumen::io
