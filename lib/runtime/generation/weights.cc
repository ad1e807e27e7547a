#include "lib/runtime/generation/weights.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <memory>
#include <unordered_map>
#include <utility>

#include "lib/base/error.h"
#include "lib/base/round_up.h"
#include "lib/graph/graph.h"
#include "lib/io/mapped_file.h"
#include "lib/kernels/convert.h"
#include "lib/kernels/panels.h"
#include "lib/kernels/short_panels.h"
#include "lib/tensor/allocator.h"

namespace lumen::runtime {
namespace {

using graph::NodePtr;

// Bytes of a weight that are packed and given back before the next: a fraction of what may be
// resident besides, but many pages, as all threads stop for a moment.
constexpr int64_t kPieceBytes = int64_t{16} << 20;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Panels begin on cache lines.
int64_t bytes_in(Layout layout, const Array& weight) {
  return round_up(matrix_bytes(layout, weight.dtype(), weight.shape()[0], weight.shape()[1]), 64);
}

kernels::Weight as_weight(const Array& weight) {
  return {weight.data(), weight.dtype(), weight.shape()[0], weight.shape()[1]};
}

// The layout that suits the first panel of `weight`, which is in rows.
Layout layout_of_first_panel(const Array& weight) {
  kernels::Weight first = as_weight(weight);
  first.rows = std::min(first.rows, kPanelRows);
  if (!kernels::has_short_panels(first.dtype, first.cols) || !kernels::fast_short_panels()) {
    return Layout::kPanels;
  }
  const auto size =
      static_cast<size_t>(matrix_bytes(Layout::kShortPanels, first.dtype, first.rows, first.cols));
  const Buffer panel = allocate(size);
  return kernels::pack_short_panel(first, 0, panel.data) ? Layout::kShortPanels : Layout::kPanels;
}

[[noreturn]] void fail_nonfinite(const std::string& name, DType dtype, int64_t row) {
  fail(ErrorKind::kMalformed, "tensor ", quoted(name), " has a NaN or infinite ",
       is_quantized(dtype) ? "scale" : "value", " in row ", row,
       "; the file is damaged (lumen-run --allow-nonfinite opens it all the same)");
}

// Calls visit(node, i, whether input i is the weight of a product) for every input of what makes
// `output`.
template <typename Visit>
void for_each_input(const graph::Tensor& output, Visit&& visit) {
  const graph::Graph graph({output.node()});
  for (const NodePtr& node : graph.nodes()) {
    for (size_t i = 0; i < node->inputs.size(); ++i) {
      visit(*node, i, node->op->takes_panels && node->op->takes_panels(*node, i));
    }
  }
}

// Calls visit(input, whether it is such a weight) for every use of a node as input.
template <typename Visit>
void for_each_use(const graph::Tensor& output, Visit&& visit) {
  for_each_input(output, [&](const graph::Node& node, size_t i, bool is_weight) {
    visit(node.inputs[i], is_weight);
  });
}

// Packs all of `from` to `to`, into panels of `layout`, where there are `room` bytes: into others
// if its numbers do not fit short ones. Returns the layout; kRowsAsPanels: the room does not
// suffice.
Layout pack(const Array& from, Layout layout, std::byte* to, int64_t room, ThreadPool& pool) {
  const kernels::Weight w = as_weight(from);
  const int64_t row = row_bytes(w.dtype, w.cols);
  const int64_t panels = (w.rows + kPanelRows - 1) / kPanelRows;
  const int64_t piece = std::max<int64_t>(1, kPieceBytes / (kPanelRows * row));
  // pack_one(panel) is false if the panel does not fit; then nothing else matters.
  const auto pack_all = [&](auto&& pack_one) {
    std::atomic<bool> fits{true};
    pool.parallel_pieces(panels, 1, piece, [&](int64_t first, int64_t last, int) {
      for (int64_t panel = first; panel < last; ++panel) {
        if (!fits) return;
        if (!pack_one(panel)) fits = false;
      }
      const int64_t at = first * kPanelRows * row;
      const int64_t stop = std::min(w.rows, last * kPanelRows) * row;
      io::drop_pages(*from.buffer(), {from.data() + at, static_cast<size_t>(stop - at)});
    });
    return fits.load();
  };
  const auto pack_short = [&](int64_t panel) { return kernels::pack_short_panel(w, panel, to); };
  const auto fits = [&](Layout panels_of) { return bytes_in(panels_of, from) <= room; };
  if (layout == Layout::kShortPanels && fits(layout) && pack_all(pack_short)) return layout;
  if (!fits(Layout::kPanels)) return Layout::kRowsAsPanels;
  pack_all([&](int64_t panel) {
    kernels::pack_panel(w, panel, to + panel * kPanelRows * row);
    return true;
  });
  return Layout::kPanels;
}

// `array`, which is quantised, as `dtype`, and the largest magnitude in it; infinity if a scale is
// not finite.
std::pair<Array, float> widened(const Array& array, DType dtype, ThreadPool& pool) {
  constexpr int64_t kPiece = 2048;  // numbers, a multiple of every block
  constexpr int64_t kGrain = 256;   // pieces that are worth waking a thread
  Array to = Array::zeros(dtype, array.shape());
  std::byte* const out = to.mutable_data();
  std::vector<float> most(static_cast<size_t>(pool.threads()));
  const int64_t pieces = divide_up(array.elements(), kPiece);
  pool.parallel_for(pieces, kGrain, [&](int64_t begin, int64_t end, int thread) {
    float numbers[kPiece];
    float largest = 0;
    for (int64_t at = begin * kPiece; at < end * kPiece; at += kPiece) {
      const int64_t count = std::min(kPiece, array.elements() - at);
      const std::byte* const from = array.data() + row_bytes(array.dtype(), at);
      if (kernels::has_nonfinite(array.dtype(), from, count)) largest = kInfinity;
      kernels::to_float(array.dtype(), from, numbers, count);
      for (int64_t i = 0; i < count; ++i) largest = std::max(largest, std::abs(numbers[i]));
      kernels::from_float(dtype, numbers, out + row_bytes(dtype, at), count);
    }
    float& shared = most[static_cast<size_t>(thread)];
    shared = std::max(shared, largest);
  });
  return {std::move(to), *std::max_element(most.begin(), most.end())};
}

}  // namespace

std::vector<PackableWeight> packable_weights(const graph::Tensor& output) {
  std::vector<NodePtr> nodes;
  std::unordered_map<const graph::Node*, bool> only_weight;
  for_each_use(output, [&](const NodePtr& node, bool is_weight) {
    const auto [found, added] = only_weight.try_emplace(node.get(), true);
    found->second &= is_weight;
    const Array& value = node->value;
    if (added && graph::is_constant(*node) && value.layout() == Layout::kRows &&
        value.shape().rank() == 2 && value.elements() > 0 &&
        kernels::has_panels(value.dtype(), value.shape()[1])) {
      nodes.push_back(node);
    }
  });
  std::vector<PackableWeight> weights;
  for (const NodePtr& node : nodes) {
    if (only_weight.at(node.get())) weights.push_back({node, layout_of_first_panel(node->value)});
  }
  return weights;
}

uint64_t packed_bytes(std::span<const PackableWeight> weights) {
  int64_t bytes = 0;
  for (const auto& [node, layout] : weights) bytes += bytes_in(layout, node->value);
  return static_cast<uint64_t>(bytes);
}

uint64_t product_weight_bytes(const graph::Tensor& output) {
  double bytes = 0;
  for_each_input(output, [&](const graph::Node& node, size_t i, bool is_weight) {
    const bool is_factor = node.op->name == "matmul" && graph::is_constant(*node.inputs[i]);
    if (!is_weight && !is_factor) return;
    const double part = node.op->part_read ? node.op->part_read(node, i) : 1;
    bytes += part * static_cast<double>(node.inputs[i]->value.bytes());
  });
  return static_cast<uint64_t>(std::llround(bytes));
}

bool are_quantized_panels(const graph::Tensor& output) {
  bool all = true;
  for_each_use(output, [&](const NodePtr& node, bool is_weight) {
    const Array& value = node->value;
    if (is_weight && (!is_quantized(value.dtype()) || value.layout() == Layout::kRows)) {
      all = false;
    }
  });
  return all;
}

Repacking::Repacking(std::vector<PackableWeight> weights, uint64_t room)
    : weights_(std::move(weights)) {
  int64_t most = 0;
  for (const auto& weight : weights_) most += bytes_in(Layout::kPanels, weight.node->value);
  memory_ = std::make_shared<const Buffer>(allocate(std::min(static_cast<uint64_t>(most), room)));
  for (const auto& weight : weights_) weight.node->value = weight.node->value.as_panels();
}

RepackedBytes Repacking::advance(uint64_t bytes, ThreadPool& pool, FunctionRef<bool()> is_stopped) {
  RepackedBytes change;
  for (const size_t begin = offset_; !done() && offset_ - begin < bytes && !is_stopped(); ++next_) {
    const auto& [node, expected] = weights_[next_];
    const Array from = node->value;
    const Layout layout = pack(from, expected, memory_->data + offset_,
                               static_cast<int64_t>(memory_->bytes - offset_), pool);
    change.packed -= bytes_in(expected, from);
    if (layout == Layout::kRowsAsPanels) continue;
    node->value = Array::view(memory_, offset_, from.dtype(), from.shape(), layout);
    const int64_t packed = bytes_in(layout, from);
    change.packed += packed;
    change.read += packed - bytes_in(Layout::kPanels, from);
    offset_ += static_cast<size_t>(packed);
  }
  if (done()) *this = {};
  return change;
}

void widen_narrow_rows(NamedArrays& tensors, ThreadPool& pool) {
  constexpr int64_t kColumns = 256;
  constexpr float kLeast = 0x1p-6f, kMost = 65504.0f;
  for (auto& [name, array] : tensors) {
    const bool matrix = array.shape().rank() > 1 && array.elements() > 0;
    if (!is_quantized(array.dtype()) || !matrix || array.shape()[-1] >= kColumns) continue;
    auto [floats, largest] = widened(array, DType::kF16, pool);
    if (largest == kInfinity) continue;
    const bool fits = largest == 0 || (largest >= kLeast && largest <= kMost);
    array = fits ? std::move(floats) : widened(array, DType::kF32, pool).first;
  }
}

void hash_tensors(const NamedArrays& tensors, io::Sha256& hash) {
  constexpr size_t kEnd = 4096, kLine = 64, kLines = 64;
  for (const auto& [name, array] : tensors) {
    hash.update(str(name, " ", lumen::name(array.dtype()), " ", to_string(array.shape()), "\n"));
    const std::span<const std::byte> bytes(array.data(), array.bytes());
    if (bytes.size() <= 2 * kEnd + kLines * kLine) {
      hash.update(bytes);
      continue;
    }
    hash.update(bytes.first(kEnd));
    hash.update(bytes.last(kEnd));
    const size_t step = (bytes.size() - 2 * kEnd - kLine) / kLines;
    for (size_t i = 0; i < kLines; ++i) hash.update(bytes.subspan(kEnd + step * i, kLine));
  }
}

void require_finite(const NamedArrays& tensors, ThreadPool& pool) {
  for (const auto& [name, array] : tensors) {
    if (!is_float(array.dtype()) && !is_quantized(array.dtype())) continue;
    const int64_t rows = array.shape().rank() > 1 ? array.elements() / array.shape()[-1] : 1;
    const int64_t columns = rows > 0 ? array.elements() / rows : 0;
    const int64_t bytes = row_bytes(array.dtype(), columns);
    const DType dtype = array.dtype();
    const std::byte* data = array.data();
    std::atomic<int64_t> bad{-1};
    const int64_t grain = std::max<int64_t>(1, (1 << 20) / std::max<int64_t>(1, bytes));
    pool.parallel_for(rows, grain, [&](int64_t begin, int64_t end, int) {
      for (int64_t row = begin; row < end; ++row) {
        if (kernels::has_nonfinite(dtype, data + row * bytes, columns)) bad = row;
      }
    });
    if (bad >= 0) fail_nonfinite(name, dtype, bad);
  }
}

}  // namespace lumen::runtime
