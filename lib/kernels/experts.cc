// Tokens are sorted by expert. Few of them: all chosen experts in two sweeps over their weights,
// gate and up, then down, each shared by all threads, as one product by one expert would be too
// little for them. Many: expert by expert, as a product of many rows.
#include "lib/kernels/experts.h"

#include <algorithm>
#include <cstring>

#include "lib/base/round_up.h"
#include "lib/kernels/elementwise.h"
#include "lib/kernels/expert_routes.h"
#include "lib/kernels/products/few_rows.h"

namespace lumen::kernels {
namespace {

// At least so many columns of gate and up in a piece: each starts with cold memory.
constexpr int64_t kPieceColumns = 512;
// At most so many columns of all `down` matrices: their products stay in the first cache.
constexpr int64_t kMostDownColumns = 512;

// out = silu(gate) · up, or its like; it may be `gate`.
void gated(const ExpertsArgs& args, const float* gate, const float* up, int64_t n, float* out) {
  if (args.clamped.limit != 0) return clamped_swiglu(args.clamped, gate, up, n, out);
  (args.gelu ? block::gelu_tanh : block::silu)(&gate, out, n, nullptr);
  const float* const factors[] = {out, up};
  block::mul(factors, out, n, nullptr);
}

// x = relu(x)².
void squared_relu(int64_t n, float* x) {
  const float* const in = x;
  block::relu(&in, x, n, nullptr);
  const float* const factors[] = {x, x};
  block::mul(factors, x, n, nullptr);
}

// ---- Few tokens.

// The slots of one expert, and their rows before a product with its weights.
struct Group {
  int64_t expert, first;
  FewRows rows;
};

struct FewBuffers {
  float *gathered, *inner, *up;  // of each slot: x, and the products with gate and up
  float* parts;                  // of each thread: products with a piece of `down`
  Group* groups;
  std::byte* rounded;  // of all groups
  std::byte* panels;   // of each thread

  FewBuffers(MemoryPieces& pieces, const ExpertsShape& s, int threads)
      : gathered(pieces.take(s.m * s.used * s.hidden)),
        inner(pieces.take(s.m * s.used * s.intermediate)),
        up(pieces.take(s.m * s.used * s.intermediate)),
        parts(pieces.take(threads * s.m * kMostDownColumns)),
        groups(pieces.take_as<Group>(std::min(s.experts, s.m * s.used))),
        rounded(pieces.take_as<std::byte>(rounded_bytes(s))),
        panels(pieces.take_as<std::byte>(threads * panel_bytes(s))) {}

  static int64_t widest(const ExpertsShape& s) { return std::max(s.hidden, s.intermediate); }
  static int64_t panel_bytes(const ExpertsShape& s) {
    return static_cast<int64_t>(most_panel_bytes(widest(s)));
  }
  // What all groups take at most: no group more than as many of one row, or than one of all tokens.
  static int64_t rounded_bytes(const ExpertsShape& s) {
    const int64_t slots = s.m * s.used;
    const auto one = static_cast<int64_t>(few_rows_bytes(1, widest(s)));
    const auto all = static_cast<int64_t>(few_rows_bytes(s.m, widest(s)));
    return std::min(slots * one, std::min(s.experts, slots) * all);
  }
};

class FewTokens {
 public:
  FewTokens(ThreadPool& pool, const ExpertsArgs& args, const Routes& routes, MemoryPieces& pieces)
      : pool_(pool),
        args_(args),
        routes_(routes),
        shape_(shape_of(args)),
        buffers_(pieces, shape_, pool.threads()) {}

  void run() {
    gather();
    sweep_gate_and_up();
    place_groups(buffers_.inner, shape_.intermediate, args_.down);
    each_group([](const Group& group) { round_few_rows(group.rows); });
    sweep_down();
  }

 private:
  template <class Body>
  void each_group(Body&& body) {
    pool_.parallel_for(routes_.actives, 1, [&](int64_t g, int64_t end, int) {
      for (; g < end; ++g) body(buffers_.groups[g]);
    });
  }

  // Places what is rounded of the rows `x` [slots, cols] of all groups.
  void place_groups(const float* x, int64_t cols, std::span<const Weight> first,
                    std::span<const Weight> second = {}) {
    std::byte* memory = buffers_.rounded;
    for (int64_t g = 0; g < routes_.actives; ++g) {
      Group& group = buffers_.groups[g];
      group.expert = routes_.active[g];
      group.first = routes_.begin[group.expert];
      const auto expert = static_cast<size_t>(group.expert);
      const Weight by[] = {first[expert], second.empty() ? first[expert] : second[expert]};
      const int64_t count = routes_.count(group.expert);
      group.rows = place_few_rows(x + group.first * cols, cols, count, by, memory);
      memory += few_rows_bytes(count, cols);
    }
  }

  void gather() {
    const int64_t cols = shape_.hidden;
    place_groups(buffers_.gathered, cols, args_.up, args_.gate);
    each_group([&](const Group& group) {
      for (int64_t r = 0; r < group.rows.m; ++r) {
        const int64_t slot = group.first + r;
        std::memcpy(buffers_.gathered + slot * cols, args_.x + routes_.token[slot] * args_.x_stride,
                    static_cast<size_t>(cols) * sizeof(float));
      }
      round_few_rows(group.rows);
    });
  }

  std::byte* panel(int thread) const {
    return buffers_.panels + thread * FewBuffers::panel_bytes(shape_);
  }

  // The columns of all groups, one after the other, whole panels of each.
  void sweep_gate_and_up() {
    const int64_t columns = round_up(shape_.intermediate, kPanelRows);
    const int64_t all = columns * routes_.actives;
    const int64_t quarter = round_up(divide_up(all, 4 * pool_.threads()), kPanelRows);
    pool_.parallel_pieces(all, kPanelRows, std::max(quarter, kPieceColumns),
                          [&](int64_t begin, int64_t end, int thread) {
                            while (begin < end) {
                              const int64_t g = begin / columns, first = g * columns;
                              const int64_t stop = std::min(end, first + columns);
                              gate_and_up(buffers_.groups[g], begin - first,
                                          std::min(stop - first, shape_.intermediate), thread);
                              begin = stop;
                            }
                          });
  }

  void gate_and_up(const Group& group, int64_t begin, int64_t end, int thread) const {
    if (begin >= end) return;
    const int64_t stride = shape_.intermediate, at = group.first * stride + begin;
    const auto expert = static_cast<size_t>(group.expert);
    float *const inner = buffers_.inner + at, *const up = buffers_.up + at;
    if (args_.gate.empty()) {
      dot_few_rows(args_.up[expert], begin, end, group.rows, panel(thread), inner, stride);
      for (int64_t r = 0; r < group.rows.m; ++r) squared_relu(end - begin, inner + r * stride);
      return;
    }
    dot_few_rows(args_.gate[expert], begin, end, group.rows, panel(thread), inner, stride);
    dot_few_rows(args_.up[expert], begin, end, group.rows, panel(thread), up, stride);
    for (int64_t r = 0; r < group.rows.m; ++r) {
      float* const row = inner + r * stride;
      add_bias(args_.gate_bias, group.expert, begin, end, row);
      add_bias(args_.up_bias, group.expert, begin, end, up + r * stride);
      gated(args_, row, up + r * stride, end - begin, row);
    }
  }

  // Every piece of the columns of y by all groups: sums are formed in one order.
  void sweep_down() {
    const int64_t quarter = round_up(divide_up(shape_.hidden, 4 * pool_.threads()), kPanelRows);
    pool_.parallel_pieces(shape_.hidden, kPanelRows, std::min(quarter, kMostDownColumns),
                          [&](int64_t begin, int64_t end, int thread) {
                            for (int64_t at = begin; at < end; at += kMostDownColumns) {
                              down(at, std::min(end, at + kMostDownColumns), thread);
                            }
                          });
  }

  void down(int64_t begin, int64_t end, int thread) const {
    const int64_t columns = end - begin;
    float* const parts = buffers_.parts + thread * shape_.m * kMostDownColumns;
    for (int64_t t = 0; t < args_.m; ++t) {
      std::fill_n(args_.y + t * shape_.hidden + begin, columns, 0.0f);
    }
    for (int64_t g = 0; g < routes_.actives; ++g) {
      const Group& group = buffers_.groups[g];
      dot_few_rows(args_.down[static_cast<size_t>(group.expert)], begin, end, group.rows,
                   panel(thread), parts, columns);
      for (int64_t r = 0; r < group.rows.m; ++r) {
        const int64_t slot = group.first + r;
        add_bias(args_.down_bias, group.expert, begin, end, parts + r * columns);
        add_scaled_row(parts + r * columns, routes_.weight[slot], columns,
                       args_.y + routes_.token[slot] * shape_.hidden + begin);
      }
    }
  }

  ThreadPool& pool_;
  const ExpertsArgs& args_;
  const Routes& routes_;
  const ExpertsShape shape_;
  const FewBuffers buffers_;
};

// ---- Many tokens.

struct ManyBuffers {
  float *gathered, *inner, *out;  // of an expert's tokens
  std::byte* workspace;           // of linear

  ManyBuffers(MemoryPieces& pieces, const ExpertsShape& s, int threads)
      : gathered(pieces.take(s.m * s.hidden)),
        inner(pieces.take(s.m * s.intermediate)),
        out(pieces.take(s.m * s.hidden)),
        workspace(pieces.take_as<std::byte>(linear_bytes(s, threads))) {}

  static int64_t linear_bytes(const ExpertsShape& s, int threads) {
    const auto bytes = [&](int64_t cols) {
      return linear_workspace_bytes(s.m, cols, threads, true);
    };
    return static_cast<int64_t>(combine_bytes(s.m, s.intermediate) +
                                std::max(bytes(s.hidden), bytes(s.intermediate)));
  }
};

// What `expert` makes of x in `product`, up to the product with `down`. Biases have a place, which
// what combines does not see: one product is finished, and then the other combined with it.
void gate_and_up(ThreadPool& pool, const ExpertsArgs& args, int64_t expert, LinearArgs product) {
  const auto at = static_cast<size_t>(expert);
  if (args.gate.empty()) {
    const auto square = [](int64_t, int64_t begin, int64_t end, float* piece) {
      squared_relu(end - begin, piece);
    };
    const Epilogue square_pieces = square;
    product.weights = args.up.subspan(at, 1);
    product.epilogue = &square_pieces;
    return linear(pool, product);
  }
  const Weight gate_and_up[] = {args.gate[at], args.up[at]};
  const int64_t n = gate_and_up[0].rows;
  if (args.gate_bias.data == nullptr) {
    const auto combine = [&](const float* gate, const float* up, int64_t count, float* out) {
      gated(args, gate, up, count, out);
    };
    const Combine combine_pieces = combine;
    product.weights = gate_and_up;
    product.combine = &combine_pieces;
    return linear(pool, product);
  }
  float* const products = reinterpret_cast<float*>(product.workspace);  // where they are combined
  const auto add_up = [&](int64_t, int64_t begin, int64_t end, float* piece) {
    add_bias(args.up_bias, expert, begin, end, piece);
  };
  const auto finish = [&](int64_t row, int64_t begin, int64_t end, float* piece) {
    add_bias(args.gate_bias, expert, begin, end, piece);
    gated(args, piece, products + row * n + begin, end - begin, piece);
  };
  const Epilogue up_epilogue = add_up, gate_epilogue = finish;
  product.workspace += combine_bytes(product.m, n);
  LinearArgs up = product;
  up.weights = args.up.subspan(at, 1);
  up.y = products;
  up.epilogue = &up_epilogue;
  linear(pool, up);
  product.weights = args.gate.subspan(at, 1);
  product.epilogue = &gate_epilogue;
  linear(pool, product);
}

void one_expert(ThreadPool& pool, const ExpertsArgs& args, const Routes& routes, int64_t expert,
                const ManyBuffers& buffers) {
  const ExpertsShape shape = shape_of(args);
  const int64_t count = routes.count(expert);
  gather_rows(pool, routes, expert, args.x, args.x_stride, shape.hidden, buffers.gathered);
  gate_and_up(pool, args, expert,
              {.x = buffers.gathered,
               .x_stride = shape.hidden,
               .m = count,
               .weights = {},
               .y = buffers.inner,
               .y_stride = shape.intermediate,
               .workspace = buffers.workspace});
  const auto add_down = [&](int64_t, int64_t begin, int64_t end, float* piece) {
    add_bias(args.down_bias, expert, begin, end, piece);
  };
  const Epilogue down_epilogue = add_down;
  linear(pool, {.x = buffers.inner,
                .x_stride = shape.intermediate,
                .m = count,
                .weights = args.down.subspan(static_cast<size_t>(expert), 1),
                .y = buffers.out,
                .y_stride = shape.hidden,
                .workspace = buffers.workspace,
                .epilogue = args.down_bias.data != nullptr ? &down_epilogue : nullptr});
  scatter_rows(pool, routes, expert, buffers.out, shape.hidden, true, args.y);
}

}  // namespace

size_t experts_workspace_bytes(const ExpertsShape& shape, int threads) {
  MemoryPieces routes(nullptr), few(nullptr), many(nullptr);
  const Routes routed(routes, shape);
  ExpertsShape least = shape;
  least.m = std::min(shape.m, kFewRowsPanels);
  const FewBuffers few_buffers(few, least, threads);
  if (shape.m > kFewRows) const ManyBuffers many_buffers(many, shape, threads);
  return taken_bytes(routes) + std::max(taken_bytes(few), taken_bytes(many));
}

void experts(ThreadPool& pool, const ExpertsArgs& args) {
  if (args.m == 0) return;
  const ExpertsShape shape = shape_of(args);
  MemoryPieces pieces = pieces_of(args.workspace);
  Routes routes(pieces, shape);
  route(pool, args, routes);
  const auto& gate = args.gate.empty() ? args.up : args.gate;
  const int64_t few = std::min(
      {few_rows_of_experts(gate), few_rows_of_experts(args.up), few_rows_of_experts(args.down)});
  if (args.m <= few) return FewTokens(pool, args, routes, pieces).run();
  const ManyBuffers buffers(pieces, shape, pool.threads());
  std::fill_n(args.y, args.m * shape.hidden, 0.0f);
  for (int64_t i = 0; i < routes.actives; ++i) {
    one_expert(pool, args, routes, routes.active[i], buffers);
  }
}

}  // namespace lumen::kernels
