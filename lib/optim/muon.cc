// Muon (Jordan et al. 2024, https://kellerjordan.github.io/posts/muon/): momentum whose direction
// is made orthogonal, for the matrices of a network; AdamW for everything else.
//   b = momentum b + (1 − momentum) g; u = nesterov ? momentum b + (1 − momentum) g : b;
//   p −= lr · weight_decay · p; p −= lr · s · NewtonSchulz(u), s = √max(1, rows/columns).
// Convolution weights [out, in, h, w] are matrices [out, in·h·w].
//
// The iteration is in float32. torch.optim.Muon rounds it to bfloat16, for the speed of GPUs: five
// steps multiply singular values far below the norm by 3.4445⁵ = 485, and with them the noise of
// the rounding. Its direction of a matrix of normal numbers is 1 to 4 % off, of one whose singular
// values fall to a hundredth of the norm and below 20 to 80 %; here it is right to 1e-4. 50 steps
// on random gradients end 0.3 to 0.4 % of the way apart. The goldens are PyTorch's code with
// float64 in the place of bfloat16.
#include <algorithm>
#include <cmath>

#include "lib/base/error.h"
#include "lib/base/strings.h"
#include "lib/kernels/matmul.h"
#include "lib/kernels/optimizer_step.h"
#include "lib/optim/slot_optimizer.h"
#include "lib/tensor/allocator.h"

namespace lumen::optim {
namespace {

// The quintic of the post: steep at 0, and singular values end between about 0.7 and 1.2.
constexpr float kA = 3.4445f, kB = -4.7750f, kC = 2.0315f;
constexpr double kLeastNorm = 1e-7;

const std::vector<std::string>& tables() {
  static const std::vector<std::string> patterns = {"*embed*", "*emb.*", "*wte*", "*wpe*",
                                                    "*lm_head*"};
  return patterns;
}

// Memory for orthogonalising a matrix [m, n], m ≤ n.
struct Workspace {
  Array x, next;       // [m, n]
  Array gram, square;  // [m, m]
  Buffer gemm;

  Workspace(int64_t m, int64_t n, int threads)
      : x(Array::zeros(DType::kF32, {m, n})),
        next(Array::zeros(DType::kF32, {m, n})),
        gram(Array::zeros(DType::kF32, {m, m})),
        square(Array::zeros(DType::kF32, {m, m})),
        gemm(allocate(std::max(kernels::gemm_workspace_bytes(m, m, n, threads),
                               kernels::gemm_workspace_bytes(m, n, m, threads)))) {}
};

// c = a · b, b optionally transposed; all row-major.
void product(ThreadPool& pool, Workspace& w, const Array& a, const Array& b, bool transposed,
             Array& c) {
  const int64_t m = c.shape()[0], n = c.shape()[1], k = a.shape()[1];
  kernels::gemm(pool, {.m = m,
                       .n = n,
                       .k = k,
                       .a = a.as<float>().data(),
                       .a_row_stride = k,
                       .a_col_stride = 1,
                       .b = b.as<float>().data(),
                       .b_row_stride = transposed ? 1 : n,
                       .b_col_stride = transposed ? k : 1,
                       .c = c.as_mutable<float>().data(),
                       .c_stride = n,
                       .workspace = w.gemm.data});
}

// w.x becomes nearly orthogonal: X ← aX + (bA + cA²)X with A = XXᵀ, from X/‖X‖.
void newton_schulz(ThreadPool& pool, Workspace& w, int64_t steps) {
  const int64_t size = w.x.elements(), square = w.gram.elements();
  float* gram = w.gram.as_mutable<float>().data();
  float* gram2 = w.square.as_mutable<float>().data();
  const double norm = std::sqrt(kernels::power_sum(pool, w.x.as<float>().data(), size, 2));
  kernels::scale(pool, size, static_cast<float>(1 / std::max(norm, kLeastNorm)),
                 w.x.as_mutable<float>().data());
  for (int64_t i = 0; i < steps; ++i) {
    product(pool, w, w.x, w.x, true, w.gram);
    product(pool, w, w.gram, w.gram, false, w.square);
    kernels::scale(pool, square, kC, gram2);
    kernels::axpy(pool, square, kB, gram, gram2);
    product(pool, w, w.square, w.x, false, w.next);
    kernels::axpy(pool, size, kA, w.x.as<float>().data(), w.next.as_mutable<float>().data());
    std::swap(w.x, w.next);
  }
}

class Muon : public SlotOptimizer {
 public:
  enum class Adjust { kOriginal, kMatchRms, kUnclamped };  // OptimizerConfig::adjust_lr

  Muon(const OptimizerConfig& config, std::vector<NamedParameter> parameters)
      : SlotOptimizer(config, std::move(parameters), Unit::kParameter),
        adam_(adam_options(config, true)),
        momentum_(config.momentum.value_or(0.95)),
        nesterov_(config.nesterov.value_or(true)),
        steps_(config.newton_schulz_steps.value_or(5)) {
    const std::string adjust = config.adjust_lr.value_or("original");
    if (adjust == "match_rms_adamw") {
      adjust_ = Adjust::kMatchRms;
    } else if (adjust == "spectral_unclamped") {
      adjust_ = Adjust::kUnclamped;
    } else if (adjust != "original") {
      fail(ErrorKind::kMalformed, "adjust_lr is ", quoted(adjust),
           ", expected original, match_rms_adamw or spectral_unclamped");
    }
    for (Slot& slot : slots_) {
      bool matrix = slot.value.shape().rank() >= 2;
      for (const std::string& pattern : config.adamw_for.value_or(tables())) {
        if (matches_pattern(slot.name, pattern)) matrix = false;
      }
      if (matrix) {
        keep(slot, "momentum_buffer", slot.value.shape());
      } else {
        keep(slot, "exp_avg", slot.value.shape());
        keep(slot, "exp_avg_sq", slot.value.shape());
      }
    }
  }

 private:
  void update(ThreadPool& pool, Slot& slot, const Update& u) override {
    if (slot.state.size() == 2) {
      adam_update(pool, adam_, slot.size(), slot.weight_decay, u.lr, u.gradient_scale, u.t,
                  u.gradient, slot.data(), slot.state_data(0), slot.state_data(1), nullptr);
      return;
    }
    const int64_t rows = slot.value.shape()[0], columns = slot.size() / rows;
    const bool tall = rows > columns;  // the smaller product is that of the shorter side
    Workspace w(std::min(rows, columns), std::max(rows, columns), pool.threads());
    write_direction(pool, slot, u, rows, columns, w.x);
    newton_schulz(pool, w, steps_);
    const double decay = 1 - u.lr * slot.weight_decay, lr = u.lr * adjustment(rows, columns);
    const float* x = w.x.as<float>().data();
    float* p = slot.data();
    pool.parallel_for(rows, 1, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) {
        for (int64_t j = 0; j < columns; ++j) {
          const double direction = tall ? x[j * rows + i] : x[i * columns + j];
          float& value = p[i * columns + j];
          value = static_cast<float>(value * decay - lr * direction);
        }
      }
    });
  }

  // s of the learning rate.
  double adjustment(int64_t rows, int64_t columns) const {
    if (adjust_ == Adjust::kMatchRms) {
      return 0.2 * std::sqrt(static_cast<double>(std::max(rows, columns)));
    }
    const double ratio = static_cast<double>(rows) / static_cast<double>(columns);
    return std::sqrt(adjust_ == Adjust::kUnclamped ? ratio : std::max(1.0, ratio));
  }

  // Updates the momentum and writes the direction, transposed if rows > columns.
  void write_direction(ThreadPool& pool, Slot& slot, const Update& u, int64_t rows, int64_t columns,
                       Array& out) const {
    const bool tall = rows > columns;
    float* buffer = slot.state_data(0);
    float* x = out.as_mutable<float>().data();
    pool.parallel_for(rows, 1, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) {
        for (int64_t j = 0; j < columns; ++j) {
          const double g = u.gradient_scale * u.gradient[i * columns + j];
          float& b = buffer[i * columns + j];
          b = static_cast<float>(momentum_ * b + (1 - momentum_) * g);
          const double direction = nesterov_ ? (1 - momentum_) * g + momentum_ * b : b;
          x[tall ? j * rows + i : i * columns + j] = static_cast<float>(direction);
        }
      }
    });
  }

  AdamOptions adam_;
  double momentum_;
  bool nesterov_;
  Adjust adjust_ = Adjust::kOriginal;
  int64_t steps_;
};

}  // namespace

std::unique_ptr<Optimizer> make_muon(const OptimizerConfig& config,
                                     std::vector<NamedParameter> parameters) {
  return std::make_unique<Muon>(config, std::move(parameters));
}

}  // namespace lumen::optim
