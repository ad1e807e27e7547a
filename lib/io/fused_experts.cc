#include "lib/io/fused_experts.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <set>
#include <string_view>
#include <vector>

#include "lib/base/check.h"
#include "lib/base/error.h"
#include "lib/base/limits.h"
#include "lib/base/pool.h"
#include "lib/base/strings.h"
#include "lib/io/layer_windows.h"
#include "lib/io/mapped_file.h"
#include "lib/io/write_gguf.h"
#include "lib/tensor/allocator.h"

namespace lumen::io {
namespace {

constexpr const char *kGateUp = "gate_up_proj", *kDown = "down_proj";
constexpr int64_t kMxBlock = 32;  // numbers of MXFP4 in a block
constexpr int64_t kMxBytes = info(DType::kMXFP4).block_bytes;
constexpr int64_t kPieceRows = 64;  // of all parts, that a thread takes at once

// Calls visit(row, column) for all of a matrix, tile by tile: the lines of a tile's rows and those
// of its columns stay in the first cache.
template <typename Visit>
void for_tiles(int64_t rows, int64_t columns, Visit&& visit) {
  constexpr int64_t kTile = 32;
  for (int64_t row = 0; row < rows; row += kTile) {
    for (int64_t column = 0; column < columns; column += kTile) {
      for (int64_t c = column; c < std::min(columns, column + kTile); ++c) {
        for (int64_t r = row; r < std::min(rows, row + kTile); ++r) visit(r, c);
      }
    }
  }
}

// Of x [rows, parts · columns] the columns of `part`, in turn with those of the other parts or
// behind those before, as rows of y [columns, rows].
template <typename T>
void turn(const std::byte* x, int64_t rows, int64_t columns, int64_t parts, int64_t part,
          bool in_turn, std::byte* y) {
  const int64_t step = in_turn ? parts : 1, first = in_turn ? part : part * columns;
  const T* const from = reinterpret_cast<const T*>(x) + first;
  T* const to = reinterpret_cast<T*>(y);
  for_tiles(rows, columns, [&](int64_t r, int64_t c) {
    std::memcpy(to + c * rows + r, from + r * columns * parts + c * step, sizeof(T));
  });
}

// A block of MXFP4 as GGUF has it: the exponent, then 16 bytes with numbers i below and i + 16
// above, from bytes with numbers 2 i below and 2 i + 1 above.
void store_block(std::byte exponent, const std::byte* pairs, std::byte* block) {
  constexpr std::byte kBelow{15}, kAbove{240};
  block[0] = exponent;
  for (int i = 0; i < 8; ++i) {
    const std::byte first = pairs[i], second = pairs[i + 8];
    block[1 + 2 * i] = (first & kBelow) | second << 4;
    block[2 + 2 * i] = first >> 4 | (second & kAbove);
  }
}

// Whether halves are turned: never, in some files, always.
enum class Turned { kNever, kInSome, kAlways };

// What a tensor is made of: matrices of as many experts, `parts` of them in turn or, `halves`, one
// behind the other. Of one that is no expert's, `alone`, they have no number.
class Split {
 public:
  Split(bool halves, std::string place, std::string fused, std::vector<std::string> names,
        Shape shape, bool alone = false, Turned turned = Turned::kNever)
      : halves_(halves),
        alone_(alone),
        turned_(turned),
        place_(std::move(place)),
        fused_(std::move(fused)),
        names_(std::move(names)),
        experts_(shape[0]),
        rows_(shape[1]),
        cols_(shape[2]) {}

  // Takes the tensors of this name out of `tensors` and puts what they are made of there. Pages of
  // a file that were read are given back.
  void run(NamedArrays& tensors, ThreadPool& pool) const {
    if (halves_) {
      const auto found = take(tensors, "");
      const bool looks_turned = turned_ == Turned::kInSome && found &&
                                found->shape() == turned_shape() &&
                                turned_shape() != stacked_shape();
      if (found && (looks_turned || turned_ == Turned::kAlways)) {
        floats(*found, tensors, pool);
      } else if (found) {
        part(*found, tensors);
      }
      return;
    }
    if (const auto found = take(tensors, "")) floats(*found, tensors, pool);
    if (const auto found = take(tensors, "_bias")) biases(*found, tensors);
    if (const auto found = take(tensors, "_blocks")) {
      const auto scales = take(tensors, "_scales");
      if (!scales) {
        fail(ErrorKind::kMalformed, "tensor ", quoted(name("_blocks")), " is there without ",
             quoted(name("_scales")));
      }
      blocks(*found, *scales, tensors, pool);
    }
  }

  // The other way round, of float32.
  void join(NamedArrays& tensors, ThreadPool& pool) const {
    std::vector<Array> own;  // of each expert all parts
    for (int64_t e = 0; e < experts_; ++e) {
      for (const std::string& part : names_) {
        auto found = tensors.extract(own_name(e, part));
        if (!found.empty()) own.push_back(std::move(found.mapped()));
      }
    }
    const bool turned = !halves_ || turned_ == Turned::kAlways;
    if (!own.empty()) tensors[name("")] = turned ? joined(own, pool) : stacked(own, pool);
    if (halves_ || !tensors.contains(str(place_, names_[0], ".bias"))) return;
    Array all = Array::zeros(DType::kF32, {experts_, parts() * rows_});
    float* const to = all.as_mutable<float>().data();
    for (int64_t part = 0; part < parts(); ++part) {
      auto found = tensors.extract(str(place_, names_[static_cast<size_t>(part)], ".bias"));
      const auto from = found.mapped().as<float>();
      for (int64_t i = 0; i < experts_ * rows_; ++i) to[i * parts() + part] = from[i];
    }
    tensors[name("_bias")] = std::move(all);
  }

 private:
  std::string name(std::string_view suffix) const { return str(fused_, suffix); }

  std::string own_name(int64_t expert, std::string_view part) const {
    return alone_ ? str(place_, part, ".weight") : str(place_, expert, ".", part, ".weight");
  }

  // Of all matrices one behind the other.
  Shape stacked_shape() const {
    if (alone_) return {parts() * rows_, cols_};
    return {experts_, parts() * rows_, cols_};
  }

  // The same with the rows of each as columns.
  Shape turned_shape() const { return {experts_, cols_, parts() * rows_}; }

  std::optional<Array> take(NamedArrays& tensors, std::string_view suffix) const {
    const auto found = tensors.find(name(suffix));
    if (found == tensors.end()) return std::nullopt;
    Array array = std::move(found->second);
    tensors.erase(found);
    return array;
  }

  void require(const Array& array, std::string_view suffix, const Shape& shape,
               bool of_bytes) const {
    const DType dtype = array.dtype();
    const bool plain = is_float(dtype) && dtype != DType::kF64;
    if (array.shape() == shape && (of_bytes ? dtype == DType::kU8 : plain)) return;
    fail(ErrorKind::kMalformed, "tensor ", quoted(name(suffix)), " is ", lumen::name(dtype), " ",
         to_string(array.shape()), ", expected ", of_bytes ? "u8 " : "f32, f16 or bf16 ",
         to_string(shape), " as config.json says");
  }

  int64_t parts() const { return static_cast<int64_t>(names_.size()); }

  // Room for the matrices of so many parts, which its threads are the first to touch.
  std::shared_ptr<Buffer> room(DType dtype, int64_t parts = 1) const {
    return std::make_shared<Buffer>(
        allocate(static_cast<size_t>(row_bytes(dtype, parts * experts_ * rows_ * cols_))));
  }

  // The matrices of all experts, turned, float32, in one tensor, in turn or, as halves, one behind
  // the other; each is given back when it is copied.
  Array joined(std::vector<Array>& own, ThreadPool& pool) const {
    const int64_t count = parts();
    LUMEN_CHECK(std::ssize(own) == experts_ * count);
    const auto all = room(DType::kF32, count);
    float* const to = reinterpret_cast<float*>(all->data);
    pool.parallel_pieces(experts_, 1, 1, [&](int64_t e, int64_t end, int) {
      for (; e < end; ++e) {
        for (int64_t part = 0; part < count; ++part) {
          Array& matrix = own[static_cast<size_t>(e * count + part)];
          const float* const from = matrix.as<float>().data();
          const int64_t step = halves_ ? 1 : count, first = halves_ ? part * rows_ : part;
          float* const expert = to + e * cols_ * rows_ * count + first;
          for_tiles(cols_, rows_, [&](int64_t col, int64_t row) {
            expert[col * rows_ * count + row * step] = from[row * cols_ + col];
          });
          matrix = {};
        }
      }
    });
    return Array::view(all, 0, DType::kF32, {experts_, cols_, count * rows_});
  }

  // The same with the matrices one behind the other.
  Array stacked(std::vector<Array>& own, ThreadPool& pool) const {
    LUMEN_CHECK(std::ssize(own) == experts_ * parts());
    const auto all = room(DType::kF32, parts());
    const int64_t bytes = row_bytes(DType::kF32, rows_ * cols_);
    pool.parallel_pieces(std::ssize(own), 1, 1, [&](int64_t i, int64_t end, int) {
      for (; i < end; ++i) {
        Array& matrix = own[static_cast<size_t>(i)];
        std::copy_n(matrix.data(), bytes, all->data + i * bytes);
        matrix = {};
      }
    });
    return Array::view(all, 0, DType::kF32, stacked_shape());
  }

  // The matrices of a tensor that has them one behind the other.
  void part(const Array& array, NamedArrays& tensors) const {
    require(array, "", stacked_shape(), false);
    const Array all = array.reshaped({experts_ * parts(), rows_, cols_});
    for (int64_t i = 0; i < experts_ * parts(); ++i) {
      tensors[own_name(i / parts(), names_[static_cast<size_t>(i % parts())])] = all.part(i);
    }
  }

  void add(NamedArrays& tensors, size_t part, DType dtype, std::shared_ptr<Buffer> all) const {
    const Array whole = Array::view(std::move(all), 0, dtype, {experts_, rows_, cols_});
    for (int64_t e = 0; e < experts_; ++e) {
      tensors[own_name(e, names_[part])] = whole.part(e);
    }
  }

  void floats(const Array& array, NamedArrays& tensors, ThreadPool& pool) const {
    require(array, "", turned_shape(), false);
    const DType dtype = array.dtype();
    const int64_t bytes = row_bytes(dtype, rows_ * cols_);
    const auto turned = dtype == DType::kF32 ? turn<uint32_t> : turn<uint16_t>;
    for (size_t part = 0; part < names_.size(); ++part) {
      auto all = room(dtype);
      pool.parallel_pieces(experts_, 1, 1, [&](int64_t e, int64_t end, int) {
        for (; e < end; ++e) {
          turned(array.data() + e * parts() * bytes, cols_, rows_, parts(),
                 static_cast<int64_t>(part), !halves_, all->data + e * bytes);
        }
      });
      add(tensors, part, dtype, std::move(all));
    }
    drop_pages(array);
  }

  void biases(const Array& array, NamedArrays& tensors) const {
    require(array, "_bias", {experts_, parts() * rows_}, false);
    const int64_t size = info(array.dtype()).block_bytes;
    for (size_t part = 0; part < names_.size(); ++part) {
      Array all = Array::zeros(array.dtype(), {experts_, rows_});
      std::byte* const to = all.mutable_data();
      for (int64_t i = 0; i < all.elements(); ++i) {
        const int64_t from = i * parts() + static_cast<int64_t>(part);
        std::memcpy(to + i * size, array.data() + from * size, static_cast<size_t>(size));
      }
      tensors[str(place_, names_[part], ".bias")] = std::move(all);
    }
  }

  void blocks(const Array& blocks, const Array& scales, NamedArrays& tensors,
              ThreadPool& pool) const {
    if (cols_ % kMxBlock != 0) {
      fail(ErrorKind::kMalformed, "tensor ", quoted(name("_blocks")), ": rows of ", cols_,
           " numbers are not whole blocks of ", kMxBlock);
    }
    const int64_t in_row = cols_ / kMxBlock;
    require(blocks, "_blocks", {experts_, parts() * rows_, in_row, kMxBlock / 2}, true);
    require(scales, "_scales", {experts_, parts() * rows_, in_row}, true);
    std::vector<std::shared_ptr<Buffer>> all;
    for (size_t part = 0; part < names_.size(); ++part) all.push_back(room(DType::kMXFP4));
    const int64_t bytes = row_bytes(DType::kMXFP4, cols_);
    pool.parallel_pieces(experts_ * rows_, 1, kPieceRows, [&](int64_t row, int64_t end, int) {
      for (; row < end; ++row) {
        for (int64_t part = 0; part < parts(); ++part) {
          std::byte* to = all[static_cast<size_t>(part)]->data + row * bytes;
          const int64_t first = (row * parts() + part) * in_row;
          for (int64_t i = first; i < first + in_row; ++i, to += kMxBytes) {
            store_block(scales.data()[i], blocks.data() + i * kMxBlock / 2, to);
          }
        }
      }
    });
    for (size_t part = 0; part < names_.size(); ++part) {
      add(tensors, part, DType::kMXFP4, std::move(all[part]));
    }
    drop_pages(blocks);
  }

  static void drop_pages(const Array& array) {
    io::drop_pages(*array.buffer(), {array.data(), static_cast<size_t>(array.bytes())});
  }

  bool halves_, alone_;
  Turned turned_;
  std::string place_, fused_;
  std::vector<std::string> names_;
  int64_t experts_, rows_, cols_;
};

constexpr std::string_view kSparse = "block_sparse_moe.", kShared = "shared_mlp.";
constexpr std::string_view kExperts = "experts.", kAnyExperts = ".experts.";
constexpr std::string_view kLfmExperts = ".feed_forward.experts.";  // whose matrices are w1, w3, w2

// Of Granite 4.0 without experts the shared layer is in other parts (nn/fused_layers.h).
bool is_granite(const Json& config) {
  return get_string(config, "model_type", "").starts_with("granitemoe") && expert_count(config) > 0;
}

// Granite with windows has experts as transformers 5 has them.
bool has_parameters(const Json& config) {
  return get_string(config, "model_type", "") == "granitemoe_swa";
}

// The name of the tensor of all below a block of Granite's, "….shared_mlp."; of experts of Granite
// with windows as others have it.
std::string granite_name(const Json& config, std::string_view block, bool down) {
  if (has_parameters(config) && block.ends_with(kSparse)) {
    return str(block, kExperts, down ? kDown : kGateUp);
  }
  return str(block, down ? "output_linear.weight" : "input_linear.weight");
}

// What the name of a tensor begins with if it is of a layer's experts, "model.….mlp.experts.",
// "model.….feed_forward.experts." or "model.layers.N.experts.".
std::string_view experts_place(std::string_view name) {
  const size_t at = name.find(kAnyExperts);
  if (at == name.npos || !name.starts_with("model.")) return "";
  const std::string_view last = name.substr(0, at).substr(name.rfind('.', at - 1) + 1);
  int64_t layer = 0;
  const bool is_any = last == "mlp" || last == "feed_forward" || parse_number(last, layer);
  return is_any ? name.substr(0, at + kAnyExperts.size()) : "";
}

// As for_experts, of Granite, all layers of which have experts.
template <typename Visit>
void for_granite_experts(const Json& config, int64_t experts, int64_t hidden, int64_t inner,
                         Visit&& visit) {
  const int64_t layers = get_int(config, "num_hidden_layers", 1, limits::kLayers);
  const bool may_share =
      get_string(config, "model_type") != "granitemoe" && !has_parameters(config);
  const int64_t shared =
      may_share ? get_int(config, "shared_intermediate_size", 0, limits::kDim, 0) : 0;
  for (int64_t i = 0; i < layers; ++i) {
    const auto both = [&](std::string_view block, std::string_view place, int64_t count,
                          int64_t size, bool alone) {
      const std::string whole = str("model.layers.", i, ".", block), own = str(whole, place);
      visit(Split(true, own, granite_name(config, whole, false), {"gate_proj", "up_proj"},
                  {count, size, hidden}, alone));
      visit(Split(true, own, granite_name(config, whole, true), {kDown}, {count, hidden, size},
                  alone));
    };
    both(kSparse, kExperts, experts, inner, false);
    if (shared > 0) both(kShared, "", 1, shared, true);
  }
}

// Calls visit(split) for all tensors of experts that `tensors` has places of.
template <typename Visit>
void for_experts(const Json& config, const NamedArrays& tensors, Visit&& visit) {
  const int64_t experts = expert_count(config);
  const int64_t hidden = get_int(config, "hidden_size", 1, limits::kDim);
  const bool has_own_size = find_value(config, "moe_intermediate_size") != nullptr;
  const int64_t inner = get_int(
      config, has_own_size ? "moe_intermediate_size" : "intermediate_size", 1, limits::kDim);
  if (is_granite(config)) return for_granite_experts(config, experts, hidden, inner, visit);
  const bool halves = experts_form(config) != ExpertsForm::kInTurn;
  const std::string type = get_string(config, "model_type", "");
  const Turned turned = type == "llama4_text"         ? Turned::kAlways
                        : type == "qwen3_vl_moe_text" ? Turned::kInSome
                                                      : Turned::kNever;
  std::set<std::string_view> names;
  for (const auto& [name, array] : tensors) names.insert(experts_place(name));
  names.erase("");
  const std::vector<std::string> places(names.begin(), names.end());  // tensors come and go
  for (const std::string& place : places) {
    const bool lfm = place.ends_with(kLfmExperts) && type.starts_with("lfm2");
    const char *const gate = lfm ? "w1" : "gate_proj", *const up = lfm ? "w3" : "up_proj";
    visit(
        Split(halves, place, place + kGateUp, {gate, up}, {experts, inner, hidden}, false, turned));
    visit(Split(halves, place, place + kDown, {lfm ? "w2" : kDown}, {experts, hidden, inner}, false,
                turned));
  }
}

}  // namespace

ExpertsForm experts_form(const Json& config) {
  const std::string type = get_string(config, "model_type", "");
  if (type == "gpt_oss") return ExpertsForm::kInTurn;
  if (type == "llama4_text") return ExpertsForm::kTurned;
  const bool halves = type == "qwen3_5_moe_text" || type == "gemma4_text" || type == "mistral4" ||
                      is_granite(config);
  return halves ? ExpertsForm::kHalves : ExpertsForm::kEachItsOwn;
}

std::string fused_name(const Json& config, std::string_view name) {
  if (experts_form(config) == ExpertsForm::kEachItsOwn) return "";
  const bool down = name.find(str(".", kDown, ".")) != name.npos;
  if (!is_granite(config)) {
    const std::string_view place = experts_place(name);
    if (place.empty()) return "";
    return str(place, down ? kDown : kGateUp, number_in_stack(name) ? "" : "_bias");
  }
  for (const std::string& block : {str(".", kSparse), str(".", kShared)}) {
    if (has_parameters(config) && block.ends_with(kShared)) continue;
    const size_t at = name.find(block), end = at + block.size();
    if (at == name.npos || name.find("_proj.", end) == name.npos) continue;
    return granite_name(config, name.substr(0, end), down);
  }
  return "";
}

void split_experts(const Json& config, NamedArrays& tensors) {
  // Nothing is looked for, and no thread started, where all experts have their own.
  const bool has_any = std::ranges::any_of(tensors, [&](const auto& tensor) {
    const std::string_view name = tensor.first, place = experts_place(name);
    if (is_granite(config)) {
      return name.ends_with("put_linear.weight") || name.ends_with(str(".", kExperts, kGateUp));
    }
    const std::string_view rest = name.substr(place.size());
    return !place.empty() && (rest.starts_with(kGateUp) || rest.starts_with(kDown));
  });
  if (!has_any) return;
  ThreadPool pool(default_thread_count());
  for_experts(config, tensors, [&](const Split& split) { split.run(tensors, pool); });
}

void join_experts(const Json& config, NamedArrays& tensors) {
  ThreadPool pool(default_thread_count());
  for_experts(config, tensors, [&](const Split& split) { split.join(tensors, pool); });
}

}  // namespace lumen::io
