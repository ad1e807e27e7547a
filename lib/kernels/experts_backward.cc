#include <algorithm>

#include "lib/base/check.h"
#include "lib/kernels/convert.h"
#include "lib/kernels/elementwise.h"
#include "lib/kernels/expert_routes.h"
#include "lib/kernels/experts.h"

namespace lumen::kernels {
namespace {

constexpr int64_t kRowsAtOnce = 4;

// Of an expert's tokens; `inner` are the products with gate and up, or up alone, side by side, and
// then their gradients.
struct Buffers {
  float *x, *dy, *inner, *dinner, *dx;
  float* values;  // of each thread, a row
  float* floats;  // a matrix as float32
  std::byte* workspace;

  Buffers(MemoryPieces& pieces, const ExpertsShape& s, int threads)
      : x(pieces.take(s.m * s.hidden)),
        dy(pieces.take(s.m * s.hidden)),
        inner(pieces.take(s.m * 2 * s.intermediate)),
        dinner(pieces.take(s.m * s.intermediate)),
        dx(pieces.take(s.m * s.hidden)),
        values(pieces.take(threads * s.intermediate)),
        floats(pieces.take(s.hidden * s.intermediate)),
        workspace(pieces.take_as<std::byte>(product_bytes(s, threads))) {}

  static int64_t product_bytes(const ExpertsShape& s, int threads) {
    return static_cast<int64_t>(
        std::max({linear_workspace_bytes(s.m, s.hidden, threads),
                  gemm_workspace_bytes(s.m, s.intermediate, s.hidden, threads),
                  gemm_workspace_bytes(s.m, s.hidden, s.intermediate, threads)}));
  }
};

// The numbers of `w`, in `memory` unless they are float32 where they are.
const float* as_floats(ThreadPool& pool, const Weight& w, float* memory) {
  LUMEN_CHECK(w.layout == Layout::kRows);
  if (w.dtype == DType::kF32) return static_cast<const float*>(w.data);
  const auto* const rows = static_cast<const std::byte*>(w.data);
  pool.parallel_for(w.rows, 16, [&](int64_t r, int64_t end, int) {
    to_float(w.dtype, rows + r * row_bytes(w.dtype, w.cols), memory + r * w.cols,
             (end - r) * w.cols);
  });
  return memory;
}

// a(g, u) = silu(g) · u, or its like, and its derivatives in the place of g and u.
void gated_slopes(const ExpertsArgs& args, float* gate, float* up, int64_t n, float* value) {
  if (args.clamped.limit != 0) return clamped_swiglu_slopes(args.clamped, gate, up, n, value);
  const float* const in = gate;
  (args.gelu ? block::gelu_tanh_slope : block::silu_slope)(&in, value, n, nullptr);
  (args.gelu ? block::gelu_tanh : block::silu)(&in, gate, n, nullptr);
  for (int64_t i = 0; i < n; ++i) {
    const float activated = gate[i], slope = value[i];
    value[i] = activated * up[i];
    gate[i] = up[i] * slope;
    up[i] = activated;
  }
}

// relu(u)², and its derivative in the place of u.
void squared_relu_slopes(float* up, int64_t n, float* value) {
  for (int64_t i = 0; i < n; ++i) {
    const float positive = std::max(up[i], 0.0f);
    value[i] = positive * positive;
    up[i] = 2 * positive;
  }
}

class OneExpert {
 public:
  OneExpert(ThreadPool& pool, const ExpertsBackwardArgs& args, const Routes& routes,
            const Buffers& buffers, int64_t expert)
      : pool_(pool),
        args_(args),
        routes_(routes),
        buffers_(buffers),
        shape_(shape_of(args.forward)),
        expert_(expert),
        count_(routes.count(expert)),
        width_((args.forward.gate.empty() ? 1 : 2) * shape_.intermediate) {}

  void run() const {
    const ExpertsArgs& forward = args_.forward;
    gather_rows(pool_, routes_, expert_, forward.x, forward.x_stride, shape_.hidden, buffers_.x);
    gather_rows(pool_, routes_, expert_, args_.dy, shape_.hidden, shape_.hidden, buffers_.dy);
    const auto at = static_cast<size_t>(expert_);
    const bool gated = !forward.gate.empty();
    const Weight &up = forward.up[at], &gate = gated ? forward.gate[at] : up;
    const Weight gate_and_up[] = {gate, up};
    linear(pool_, {.x = buffers_.x,
                   .x_stride = shape_.hidden,
                   .m = count_,
                   .weights = std::span(gate_and_up).last(gated ? 2 : 1),
                   .y = buffers_.inner,
                   .y_stride = width_,
                   .workspace = buffers_.workspace});
    multiply(buffers_.dy, shape_.hidden, forward.down[at], buffers_.dinner, false);
    through_activation();
    multiply(buffers_.inner, width_, gate, buffers_.dx, false);
    if (gated) multiply(buffers_.inner + shape_.intermediate, width_, up, buffers_.dx, true);
    scatter_rows(pool_, routes_, expert_, buffers_.dx, shape_.hidden, false, args_.dx);
  }

 private:
  // y [count, w.cols] = a [count, w.rows] · w, or += that.
  void multiply(const float* a, int64_t stride, const Weight& w, float* y, bool accumulate) const {
    gemm(pool_, {.m = count_,
                 .n = w.cols,
                 .k = w.rows,
                 .a = a,
                 .a_row_stride = stride,
                 .a_col_stride = 1,
                 .b = as_floats(pool_, w, buffers_.floats),
                 .b_row_stride = w.cols,
                 .b_col_stride = 1,
                 .c = y,
                 .c_stride = w.cols,
                 .workspace = buffers_.workspace,
                 .accumulate = accumulate});
  }

  // dinner is dy · down. For the gate's g and up's u, of which a(g, u) is made, with the weight w =
  // scale · probability, the gradients are w · dinner · ∂a/∂g and w · dinner · ∂a/∂u; of the
  // probability it is scale times Σ dinner · a(g, u) and, with a bias of down, Σ dy · bias.
  void through_activation() const {
    const ExpertsArgs& forward = args_.forward;
    const int64_t n = shape_.intermediate, hidden = shape_.hidden, first = routes_.begin[expert_];
    const ExpertBias& bias = forward.down_bias;
    const double scale = forward.scales != nullptr ? double{forward.scales[expert_]} : 1;
    pool_.parallel_for(count_, kRowsAtOnce, [&](int64_t r, int64_t end, int thread) {
      float* const value = buffers_.values + thread * n;
      for (; r < end; ++r) {
        const float* const d = buffers_.dinner + r * n;
        float* const slopes = buffers_.inner + r * width_;
        const float weight = routes_.weight[first + r];
        if (forward.gate.empty()) {
          squared_relu_slopes(slopes, n, value);
        } else {
          add_bias(forward.gate_bias, expert_, 0, n, slopes);
          add_bias(forward.up_bias, expert_, 0, n, slopes + n);
          gated_slopes(forward, slopes, slopes + n, n, value);
        }
        double sum = 0;
        for (int64_t i = 0; i < n; ++i) sum += static_cast<double>(d[i] * value[i]);
        for (float* part = slopes; part < slopes + width_; part += n) {
          for (int64_t i = 0; i < n; ++i) part[i] *= weight * d[i];
        }
        if (bias.data != nullptr) {
          const float* const of_down = bias.data + expert_ * bias.stride;
          const float* const dy = buffers_.dy + r * hidden;
          for (int64_t i = 0; i < hidden; ++i) sum += static_cast<double>(dy[i] * of_down[i]);
        }
        args_.dprobability[routes_.token[first + r] * shape_.experts + expert_] =
            static_cast<float>(scale * sum);
      }
    });
  }

  ThreadPool& pool_;
  const ExpertsBackwardArgs& args_;
  const Routes& routes_;
  const Buffers& buffers_;
  const ExpertsShape shape_;
  const int64_t expert_, count_, width_;  // width_: of a row of `inner`
};

}  // namespace

size_t experts_backward_bytes(const ExpertsShape& shape, int threads) {
  MemoryPieces pieces(nullptr);
  const Routes routes(pieces, shape);
  const Buffers buffers(pieces, shape, threads);
  return taken_bytes(pieces);
}

void experts_backward(ThreadPool& pool, const ExpertsBackwardArgs& args) {
  const ExpertsShape shape = shape_of(args.forward);
  std::fill_n(args.dx, shape.m * shape.hidden, 0.0f);
  std::fill_n(args.dprobability, shape.m * shape.experts, 0.0f);
  if (shape.m == 0) return;
  MemoryPieces pieces = pieces_of(args.forward.workspace);
  Routes routes(pieces, shape);
  route(pool, args.forward, routes);
  const Buffers buffers(pieces, shape, pool.threads());
  for (int64_t i = 0; i < routes.actives; ++i) {
    OneExpert(pool, args, routes, buffers, routes.active[i]).run();
  }
}

}  // namespace lumen::kernels
